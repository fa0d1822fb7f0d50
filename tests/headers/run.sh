#!/usr/bin/env bash
# Every public header compiles alone, as strict C11 and as C++17, with every compiler that is here:
# users include one header in whatever order they like.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2

status=0
warnings=(-Wall -Wextra -Wpedantic -pedantic-errors -Werror -fsyntax-only -Iinclude)
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

check() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "ok $name"
    else
        echo "not ok $name"
        sed 's/^/    | /' "$work/log"
        status=1
    fi
}

compile_all() { # SOURCE COMPILER... -- FLAG...
    local source=$1 compilers=()
    shift
    while [ "$1" != -- ]; do
        compilers+=("$1")
        shift
    done
    shift
    for compiler in "${compilers[@]}"; do
        command -v "$compiler" >/dev/null || continue
        "$compiler" "$@" "${warnings[@]}" "$source" || return
    done
}

while read -r header; do
    # Included twice: the guard is part of what a header promises.
    printf '#include <%s>\n#include <%s>\nint header_alone;\n' "$header" "$header" | tee "$work/alone.c" >"$work/alone.cc"
    check "H1_header_${header}_as_C11" compile_all "$work/alone.c" gcc clang -- -std=c11 -Wstrict-prototypes
    check "H1_header_${header}_as_C++17" compile_all "$work/alone.cc" g++ clang++ -- -std=c++17
done < <(cd include && find . -name '*.h' | sed 's|^\./||' | sort)
exit $status
