#!/usr/bin/env bash
# make demo: a program takes orders, is killed with SIGKILL in the middle of a step, comes back and
# finishes every order. The ledger file, one line a side effect, is written outside of stet; the verdict
# comes from it. Works offline once built, twice in a row, and in several clones at once: everything it
# writes is in a temporary directory.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

BUILD=${BUILD:-build}
ORDERS=12   # 1-4 are done before the kill, 5 is inside its charge, 6-10 sleep, 11-12 are not due yet
AIR=5
EFFECTS="reserve charge pack label mail"
PATIENCE=30 # seconds until a wait of this script gives up

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    bold=$'\e[1m' dim=$'\e[2m' red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'
else
    bold='' dim='' red='' green='' plain=''
fi

say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
tell() { printf '  %s\n' "$*"; }
indent() { sed 's/^/  /'; }

# ---- building ----------------------------------------------------------------------------------

# DEMO_BUILD=no: $BUILD is finished, as in the tests.
build() {
    [ "${DEMO_BUILD:-yes}" = yes ] || return 0
    tools/deps.sh build
    [ -e "$BUILD/CMakeCache.txt" ] || cmake -S . -B "$BUILD" >"$1" 2>&1 || { cat "$1" >&2; exit 1; }
    cmake --build "$BUILD" -j "$(nproc)" --target example_shop >"$1" 2>&1 || { cat "$1" >&2; exit 1; }
}

work=$(mktemp -d "${TMPDIR:-/tmp}/stet-demo-XXXXXX")
worker=''
clean() {
    if [ -n "$worker" ]; then { kill -9 "$worker" && wait "$worker"; } 2>/dev/null || true; fi
    rm -rf "$work"
}
trap clean EXIT

build "$work/build.log"
mkdir "$work/bin"
cp "$BUILD/examples/shop" "$work/bin/shop"
cd "$work"
export PATH=$work/bin:$PATH SHOP_LEDGER=$work/ledger SHOP_BANK=$work/bank
unset STET_DB
: >ledger

# ---- helpers of the story ----------------------------------------------------------------------

until_so() { # WHAT COMMAND...
    local what=$1 end=$((SECONDS + PATIENCE))
    shift
    until "$@"; do
        if [ $SECONDS -ge $end ]; then
            printf '%sgave up waiting: %s%s\n' "$red" "$what" "$plain" >&2
            tail -n 5 worker.log >&2
            exit 1
        fi
        sleep 0.05
    done
}

start_worker() { # LOG
    shop worker >"$1" 2>&1 &
    worker=$!
    until_so "the worker is up" grep -q '^worker' "$1"
}

take_order() { # NUMBER PAUSE_MS BANK [OPTION...]
    local number=$1 pause=$2 bank=$3
    shift 3
    runs[number]=$(shop start orders.checkout "{\"order\":$number,\"pause_ms\":$pause,\"bank\":\"$bank\"}" \
        --idempotency-key "order-$number" "$@")
}

ledger_has() { grep -q "^$1 $2 " ledger; }
asleep() { [ "$(shop ls --status suspended --json | wc -l)" -eq "$1" ]; }

# ---- the story ---------------------------------------------------------------------------------

began=$SECONDS
runs=()
say "1. A program takes $ORDERS orders. Store: one SQLite file, shop.db"
start_worker worker.log
first_worker=$worker
taken=$(date +%s%3N)
for n in 1 2 3 4; do take_order $n 50 fast; done
# Long enough that the first of them still sleeps when the last one does, also where each command takes its time.
pause=$((2500 + 6 * ($(date +%s%3N) - taken)))
take_order $AIR 50 slow
for n in 6 7 8 9 10; do take_order $n $pause fast; done
for n in 11 12; do take_order $n 50 fast --delay 3s; done
for n in 1 2 3 4; do shop wait "${runs[n]}" >/dev/null; done
until_so "order $AIR is inside its charge" ledger_has $AIR charge
until_so "five orders sleep" asleep 5
shop ls --service orders | indent

say "2. kill -9 $first_worker, while order $AIR is being charged"
{ kill -9 "$first_worker" && wait "$first_worker" || worker=''; } 2>/dev/null
tell "$(wc -l <ledger) side effects are in the ledger. The bank had taken the money for order $AIR;"
tell "nobody was left to write that down."
tell "why order $AIR: $(shop why "${runs[AIR]}" 2>/dev/null | head -n 1)"

say "3. The program comes back. Nobody tells it what was left to do"
touch bank
again=$(date +%s%3N)
start_worker worker.log
for n in $(seq $ORDERS); do
    shop wait "${runs[n]}" --timeout ${PATIENCE}s >/dev/null || true
    [ "$n" -ne $AIR ] || tell "order $AIR done $(($(date +%s%3N) - again)) ms after the restart"
done
shop ls --service orders | indent

say "4. The journal of order $AIR"
shop show "${runs[AIR]}" | indent

# ---- the audit ---------------------------------------------------------------------------------

say "5. The audit: the ledger against what was ordered"
bad=0
fail() { tell "${red}$*${plain}"; bad=$((bad + 1)); }

completed=$(shop ls --service orders --status completed --json | wc -l)
if [ "$completed" -eq $ORDERS ]; then
    tell "$completed of $ORDERS orders completed: none lost, none doubled"
else
    fail "$completed of $ORDERS orders completed"
fi

# Steps whose journal says they may have happened twice, as "RUN STEP".
at_risk=$(shop ls --json --limit 1000 | sed 's/^{"run":"\([^"]*\)".*/\1/' | while read -r run; do
    shop show "$run" | sed -n "s/.* at risk  *\([a-z]*\)#1 .*/$run \1/p"
done)
air="${runs[AIR]} charge"
[ "$at_risk" = "$air" ] || fail "at risk should be \"$air\" alone, and is \"$at_risk\""

effects=0
for n in $(seq $ORDERS); do
    for effect in $EFFECTS; do
        lines=$(grep -c "^$n $effect " ledger || true)
        tokens=$(awk -v n="$n" -v e="$effect" '$1 == n && $2 == e { print $3 }' ledger | sort -u | wc -l)
        effects=$((effects + lines))
        [ "$tokens" -eq 1 ] || fail "order $n: $effect has $tokens tokens"
        if [ "$n $effect" = "$AIR charge" ]; then
            [ "$lines" -eq 2 ] || fail "order $n: $effect stands $lines times in the ledger"
        elif [ "$lines" -ne 1 ]; then
            fail "order $n: $effect stands $lines times in the ledger"
        fi
    done
done
[ "$effects" -eq "$(wc -l <ledger)" ] || fail "the ledger has lines nobody ordered"
[ $bad -gt 0 ] || tell "$((effects - 2)) side effects of $((ORDERS * 5 - 1)) recorded steps: each happened once"
tell "in the air at the kill: step ${bold}charge of order $AIR${plain}, and no other; it ran again with the same"
tell "token, by which a bank tells the repeat; stet reports it as at risk"
tell "${dim}$(grep "^$AIR charge " ledger | head -n 1)${plain}"
tell "${dim}$(grep "^$AIR charge " ledger | tail -n 1)${plain}"
if verified=$(shop verify); then tell "verify: $verified"; else fail "verify: $verified"; fi

kill "$worker"
wait "$worker" || fail "the worker ended with $?"
worker=''
if [ $bad -gt 0 ]; then
    printf '\n%s%d checks failed%s\n' "$red" $bad "$plain"
    exit 1
fi
printf '\n%s%sEvery order was finished, no recorded side effect was repeated.%s (%d s)\n' \
    "$bold" "$green" "$plain" $((SECONDS - began))
