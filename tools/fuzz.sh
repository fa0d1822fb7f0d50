#!/usr/bin/env bash
# Fuzz every parser and decoder: fuzz/fuzz_NAME.c with the seeds in fuzz/corpus/NAME. First a build with
# a planted bug must be found, or finding nothing would mean nothing. What crashes is kept in
# BUILD/fuzz/crashes, what was learnt in BUILD/fuzz/corpus.
#
#   TIME=10m         for each: 30s, 10m, 8h (else FUZZ_SECONDS=60, else MINUTES for all together)
#   ONLY=name        those whose name contains it
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

BUILD=${BUILD:-build}
ONLY=${ONLY:-}
CLANG=${CLANG:-clang}
JOBS=${JOBS:-$(nproc 2>/dev/null || echo 2)}
mkdir -p "$BUILD/fuzz/scratch" || exit 2
out=$(cd "$BUILD/fuzz" && pwd) || exit 2
seeds=$PWD/fuzz/corpus
flags=(-g -O1 -std=c11 -D_GNU_SOURCE=1 -DSTET_WITH_SQLITE=1 -Iinclude -Isrc
    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined)

sources=()
for source in fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    [[ ${name#fuzz_} == *"$ONLY"* ]] && sources+=("$source")
done
if [ ${#sources[@]} -eq 0 ]; then
    echo "fuzz: nothing matches ONLY=$ONLY" >&2
    exit 2
fi
if [ -n "${TIME:-}" ]; then
    if [[ ! $TIME =~ ^([0-9]+)(s|m|h|)$ ]]; then
        echo "fuzz: TIME=$TIME: expected a time like 30s, 5m or 8h" >&2
        exit 2
    fi
    case ${BASH_REMATCH[2]} in
    s) FUZZ_SECONDS=${BASH_REMATCH[1]} ;;
    h) FUZZ_SECONDS=$((BASH_REMATCH[1] * 3600)) ;;
    *) FUZZ_SECONDS=$((BASH_REMATCH[1] * 60)) ;;
    esac
fi
seconds=${FUZZ_SECONDS:-$([ -n "${MINUTES:-}" ] && echo $((MINUTES * 60 / ${#sources[@]})) || echo 60)}

mkdir -p "$out/bin" "$out/crashes" || exit 2
CC=$CLANG cmake -S . -B "$out/lib" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSTET_TESTS=OFF \
    -DSTET_SANITIZE=address -DCMAKE_C_FLAGS=-fsanitize=fuzzer-no-link >"$out/build.log" 2>&1 &&
    cmake --build "$out/lib" -j "$JOBS" --target stet_static >>"$out/build.log" 2>&1 || {
    cat "$out/build.log"
    echo "fuzz: the library does not build" >&2
    exit 1
}

# The servers' libraries, where they are; what needs one that is not there is left out, and told.
cached() { # NAME: what the build found, or nothing
    sed -n "s,^$1:[A-Z]*=\\(/.*\\),\\1,p" "$out/lib/CMakeCache.txt"
}
servers=()
missing=()
for server in LIBPQ:postgres:-lpq HIREDIS:redis:-lhiredis RABBITMQ:rabbitmq:-lrabbitmq; do
    IFS=: read -r variable name link <<<"$server"
    if [ -n "$(cached "STET_${variable}_LIBRARY")" ] && [ -n "$(cached "STET_${variable}_INCLUDE")" ]; then
        servers+=("$link")
        flags+=("-DSTET_WITH_${name^^}=1" -isystem "$(cached "STET_${variable}_INCLUDE")")
    else
        missing+=("fuzz/fuzz_${name}_")
        echo "fuzz: without $link nothing of $name is fuzzed"
    fi
done
library=$(find "$out/lib" -name 'libstet.a' | head -n 1)

build() { # SOURCE PROGRAM [FLAG …]
    local source=$1 program=$2
    shift 2
    "$CLANG" "${flags[@]}" "$@" "$source" "$library" -lsqlite3 "${servers[@]}" -lpthread -lm -o "$program"
}

# The planted bug: found within a minute, with the input kept.
build fuzz/fuzz_fact.c "$out/bin/planted" -DFUZZ_PLANT || exit 1
planted=$(mktemp -d) || exit 2
trap 'rm -rf "$planted"' EXIT
"$out/bin/planted" -max_total_time=60 -artifact_prefix="$planted/" "$planted" "$seeds/fact" >"$out/planted.log" 2>&1
if [ $? -eq 0 ] || ! compgen -G "$planted/crash-*" >/dev/null; then
    tail -n 20 "$out/planted.log"
    echo "fuzz: the planted bug was not found" >&2
    exit 1
fi
echo "fuzz: the planted bug was found"

failed=0
for source in "${sources[@]}"; do
    for prefix in "${missing[@]}"; do
        [[ $source != "$prefix"* ]] || continue 2
    done
    name=$(basename "$source" .c)
    name=${name#fuzz_}
    mkdir -p "$out/corpus/$name" "$seeds/$name"
    build "$source" "$out/bin/$name" || exit 1
    # In a directory of its own, whatever it may do to files; silent, since parsers say what is wrong a
    # million times.
    if (cd "$out/scratch" && "$out/bin/$name" -max_total_time="$seconds" -max_len=4096 -timeout=10 \
        -rss_limit_mb=2048 -close_fd_mask=3 -print_final_stats=1 -artifact_prefix="$out/crashes/$name-" \
        "$out/corpus/$name" "$seeds/$name") >"$out/$name.log" 2>&1 </dev/null; then
        echo "fuzz: $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$name.log") inputs, no failure"
    else
        grep -aE 'ERROR|SUMMARY|runtime error|Test unit written|    #[0-9] ' "$out/$name.log" | head -n 30
        echo "fuzz: $name failed; the log is $out/$name.log" >&2
        failed=1
    fi
done
exit $failed
