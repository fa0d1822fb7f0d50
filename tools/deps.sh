#!/usr/bin/env bash
# Install the Debian packages that building and testing need, or with the argument "build" only those
# of building the library, the command and the examples. Asks for what is missing by looking at
# what it is needed for, not at package names, so nothing touches the network when all is there.
set -euo pipefail

missing=()

need_command() { # COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || missing+=("$2")
}

compiles() { # COMPILER FLAG...
    echo 'int main(void) { return 0; }' | "$@" -x c - -o /dev/null >/dev/null 2>&1
}

need_sanitizers() {
    local version
    if ! command -v clang >/dev/null 2>&1; then
        missing+=(libclang-rt-14-dev)
    elif ! compiles clang -fsanitize=address,undefined || ! compiles clang -fsanitize=thread; then
        version=$(clang -dumpversion | cut -d. -f1)
        missing+=("libclang-rt-$version-dev")
    fi
}

need_command gcc gcc
need_command cmake cmake
need_command make make
need_command pkg-config pkg-config
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
[ -e /usr/include/sqlite3.h ] || missing+=(libsqlite3-dev)
[ -e /usr/include/postgresql/libpq-fe.h ] || missing+=(libpq-dev)
[ -e /usr/include/hiredis/hiredis.h ] || missing+=(libhiredis-dev)
[ -e /usr/include/amqp_ssl_socket.h ] || missing+=(librabbitmq-dev)
if [ "${1:-}" != build ]; then
    need_command g++ g++
    need_command clang clang
    need_command ld.lld lld
    need_command sqlite3 sqlite3
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
    [ -x /usr/sbin/pgbouncer ] || missing+=(pgbouncer)
    need_command redis-server redis-server
    [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || missing+=(rabbitmq-server)
    [ -e /usr/share/zoneinfo/Europe/Berlin ] || missing+=(tzdata)
    need_command python3 python3
    need_command nm binutils
    need_command setarch util-linux
    compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null || missing+=(faketime)
    need_sanitizers
fi

[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "missing, and there is no apt-get to install it: ${missing[*]}" >&2
    exit 1
fi
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
echo "installing: ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
