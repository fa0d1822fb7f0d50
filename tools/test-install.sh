#!/usr/bin/env bash
# Install a finished build into a temporary directory and use it the three ways a user would:
# pkg-config, find_package with the shared library, find_package with the static one.
# Usage: tools/test-install.sh BUILD_DIR
set -uo pipefail

build=${1:?usage: tools/test-install.sh BUILD_DIR}
status=0
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

cat >"$work/user.c" <<'C'
#include <stdio.h>
#include <stet.h>

int
main(void)
{
    printf("%s: %s\n", STET_VERSION, stet_code_text(STET_EBUSY));
    return 0;
}
C

check() { # NAME FUNCTION
    if (set -e; "$2") >"$work/log" 2>&1; then
        echo "ok $1"
    else
        echo "not ok $1"
        sed 's/^/    | /' "$work/log"
        status=1
    fi
}

installs() {
    cmake --install "$build" --prefix "$prefix"
}

# Where it went depends on the distribution: lib, lib64 or lib/x86_64-linux-gnu.
libdir() {
    dirname "$(find "$prefix" -name libstet.so)"
}

answers() { # COMMAND...
    "$@" | tee "$work/answer"
    grep -q '^[0-9]*\.[0-9]*\.[0-9]*: busy$' "$work/answer"
}

pkg_config_works() {
    export PKG_CONFIG_PATH
    PKG_CONFIG_PATH=$(libdir)/pkgconfig
    # shellcheck disable=SC2046
    cc -std=c11 "$work/user.c" -o "$work/user" $(pkg-config --cflags --libs stet)
    LD_LIBRARY_PATH=$(libdir) answers "$work/user"
}

find_package_works() { # TARGET
    local dir=$work/cmake-$1
    mkdir "$dir"
    cp "$work/user.c" "$dir"
    cat >"$dir/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.18)
project(user C)
find_package(stet 0.1 REQUIRED)
add_executable(user user.c)
target_link_libraries(user PRIVATE stet::$1)
CMAKE
    cmake -S "$dir" -B "$dir/build" -DCMAKE_PREFIX_PATH="$prefix"
    cmake --build "$dir/build"
    answers "$dir/build/user"
}
find_package_shared() { find_package_works stet; }
find_package_static() { find_package_works stet_static; }

check install installs
check install_pkg_config pkg_config_works
check install_find_package_shared find_package_shared
check install_find_package_static find_package_static
exit $status
