#!/usr/bin/env bash
# Branch coverage of src/ by the tests: builds with clang's counters, runs every test program, prints a
# table (branches and lines, per file and in all), lists the branches of src/core nobody took, and fails
# below the floors in tools/coverage.py. Counters live in mapped files, so that processes which are killed
# or leave by _exit() count as well. Programs of crashes and faults try as many points as in `make test`; whoever
# wants more says so (STET_CRASH_STRIDE=1 …).
#
#   ONLY=unit   only programs whose name has this in it (then the goals are not judged)
#   LIST=src/engine/dlq.c  whose branches that were not taken are listed, instead of those of src/core
#   JOBS=2      parallel compilations
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
. tools/thin.sh

BUILD=${BUILD:-build}
ONLY=${ONLY:-}
JOBS=${JOBS:-$(nproc 2>/dev/null || echo 2)}
mkdir -p "$BUILD/coverage" || exit 2
out=$(cd "$BUILD/coverage" && pwd) || exit 2
for tool in clang llvm-profdata llvm-cov python3; do
    command -v "$tool" >/dev/null || { echo "coverage: $tool is missing" >&2; exit 2; }
done

# Atomic: an outcome is often counted as the difference of two counters, and threads that lose counts of
# the one would hide the other.
flags="-fprofile-update=atomic -fprofile-instr-generate -fcoverage-mapping -mllvm -runtime-counter-relocation -Wno-unused-command-line-argument"
CC=clang cmake -S . -B "$out/build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS="$flags" \
    >"$out/build.log" 2>&1 && cmake --build "$out/build" -j "$JOBS" >>"$out/build.log" 2>&1 || {
    tail -n 30 "$out/build.log"
    echo "coverage: the build failed; the log is $out/build.log" >&2
    exit 1
}

rm -rf "$out/profiles" "$out/logs"
mkdir -p "$out/profiles" "$out/logs"
export STET_TEST_SLOW=4

export out
run() { # PROGRAM@STORE
    local program=${1%@*} store=${1##*@} name
    name=$(basename "$program")
    # A folder each: process numbers come again, and a profile would be overwritten.
    export LLVM_PROFILE_FILE="$out/profiles/$name.$store/%c%p.profraw"
    mkdir -p "$out/profiles/$name.$store"
    case $name in # in larger steps they miss the same allocations every time
    fault_repair_test | fault_*_answer_test) export STET_FAULT_STRIDE=3 STET_FAULT_THIN=1 ;;
    fault_sqlite_test) export STET_FAULT_STRIDE=1 ;;
    esac
    export STET_TEST_STORE=$store
    thin_program "plain/$name"
    if ! "$program" >"$out/logs/$name.$store" 2>&1 </dev/null; then
        grep -A 5 '^not ok' "$out/logs/$name.$store" | head -n 20
        echo "coverage: $name failed; the log is $out/logs/$name.$store" >&2
        return 1
    fi
}
export -f run thin thin_program

objects=()
jobs=()
failed=0
for program in "$out"/build/tests/{unit,contract,engine,crash,fault,sim,e2e}_*; do
    name=$(basename "$program")
    [[ -x $program && ! -d $program && $name == *"$ONLY"* ]] || continue
    objects+=(-object "$program")
    case $name in
    engine_start_test | engine_object_test | engine_facts_test | engine_fleet_test | engine_hint_test | \
        engine_move_test | engine_repair_test)
        jobs+=("$program@memory" "$program@sqlite" "$program@postgres" "$program@redis") ;;
    engine_*) jobs+=("$program@memory" "$program@sqlite") ;;
    *) jobs+=("$program@memory") ;;
    esac
done
if [ ${#objects[@]} -eq 0 ]; then
    echo "coverage: no test has \"$ONLY\" in its name" >&2
    exit 2
fi
# One PostgreSQL server for all of them.
server=$out/build/tests/stet-test-server
printf '%s\0' "${jobs[@]}" | LLVM_PROFILE_FILE="$out/profiles/%c%p.profraw" "$server" xargs -0 -n 1 -P 2 bash -c 'run "$1" || exit 1' run || failed=1
for program in "$out"/build/tests/apps/* "$out"/build/stet "$out"/build/examples/*; do
    [[ -f $program && -x $program ]] && objects+=(-object "$program")
done

find "$out/profiles" -name '*.profraw' -size +0 >"$out/profiles.list"
llvm-profdata merge -sparse --failure-mode=all -f "$out/profiles.list" -o "$out/all.profdata" 2>"$out/merge.log" || {
    tail -n 5 "$out/merge.log"
    echo "coverage: the profiles cannot be merged" >&2
    exit 1
}
llvm-cov export -instr-profile="$out/all.profdata" "${objects[@]:1}" "$PWD/src" >"$out/coverage.json" 2>"$out/export.log" || {
    tail -n 5 "$out/export.log"
    exit 1
}
python3 tools/coverage.py "$out/coverage.json" "$PWD" ${ONLY:+--no-goals} || failed=1
exit $failed
