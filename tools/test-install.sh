#!/usr/bin/env bash
# Install a finished build into a temporary directory and use it the ways a user would: pkg-config,
# find_package with the shared library, find_package with the static one; and the test kit both ways.
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

cat >"$work/user_test.c" <<'C'
#include <stdio.h>
#include <stet/test.h>

static int
nap(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_sleep(ctx, "nap", "30d"));
    return stet_return(ctx, input);
}

int
main(void)
{
    static const stet_handler handlers[] = { { "nap", nap, NULL }, { 0 } };
    stet_test                *kit = stet_test_new(NULL);
    stet_run_id               run;

    if (kit == NULL || stet_test_service(kit, "t", handlers) != STET_OK ||
        stet_test_start(kit, &run, "t.nap", stet_text("rested"), NULL) != STET_OK ||
        stet_test_advance(kit, "30d") != STET_OK || stet_test_expect(kit, &run, "rested") != STET_OK) {
        puts(stet_last_error());
        return 1;
    }
    stet_test_free(kit);
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

pkg_config_test_works() {
    export PKG_CONFIG_PATH
    PKG_CONFIG_PATH=$(libdir)/pkgconfig
    # shellcheck disable=SC2046
    cc -std=c11 "$work/user_test.c" -o "$work/user_test" $(pkg-config --cflags --libs stet-test)
    answers "$work/user_test"
}

find_package_works() { # TARGET [SOURCE [COMPONENTS]]
    local dir=$work/cmake-$1
    mkdir "$dir"
    cp "$work/${2:-user.c}" "$dir/user.c"
    cat >"$dir/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.18)
project(user C)
find_package(stet 0.1 REQUIRED ${3:-})
add_executable(user user.c)
target_link_libraries(user PRIVATE stet::$1)
CMAKE
    cmake -S "$dir" -B "$dir/build" -DCMAKE_PREFIX_PATH="$prefix"
    cmake --build "$dir/build"
    answers "$dir/build/user"
}
find_package_shared() { find_package_works stet; }
find_package_static() { find_package_works stet_static; }
find_package_test() { find_package_works test user_test.c "COMPONENTS test"; }

check install installs
check install_pkg_config pkg_config_works
check install_find_package_shared find_package_shared
check install_find_package_static find_package_static
check H5_install_test_kit_pkg_config pkg_config_test_works
check H5_install_test_kit_find_package find_package_test
exit $status
