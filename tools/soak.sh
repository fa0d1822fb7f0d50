#!/usr/bin/env bash
# The tests that break things, again and again for MINUTES, each round with a seed of its own
# (STET_TEST_SEED). Stops at the first failure, prints it and the seed that gave it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

BUILD=${BUILD:-build}
MINUTES=${MINUTES:-10}
end=$((SECONDS + MINUTES * 60))
rounds=0
runs=0
log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT

shopt -s nullglob
programs=("$BUILD"/tests/{crash,fault,sim,e2e}_*)
if [ ${#programs[@]} -eq 0 ]; then
    echo "soak: no crash, fault, sim or e2e test in $BUILD/tests" >&2
    exit 1
fi
while [ $SECONDS -lt $end ]; do
    export STET_TEST_SEED=$RANDOM$RANDOM STET_POWER_SEEDS=20
    for program in "${programs[@]}"; do
        [ $SECONDS -lt $end ] || break
        if ! "$program" >"$log" 2>&1; then
            cat "$log"
            echo "soak: failed after $runs runs; repeat with STET_TEST_SEED=$STET_TEST_SEED $program"
            exit 1
        fi
        runs=$((runs + 1))
    done
    rounds=$((rounds + 1))
    echo "soak: round $rounds, $((end > SECONDS ? (end - SECONDS) / 60 : 0)) min left"
done
echo "soak: $runs runs in $MINUTES min, no failure"
