#!/usr/bin/env bash
# The tests that break things, again and again for TIME ("30s", "5m", "8h"; a plain number is minutes).
#
# Rounds: the crash, fault, sim and e2e programs take turns, each with a seed of its own (STET_TEST_SEED).
# Half of the time goes to workers killed with kill -9 under load, KILLS at a time (STET_TEST_KILLS), so
# that ten minutes are thousands of kills. First the simulator has a third of the time: seeds nobody has seen,
# counted with what they did. Stops at the first failure, prints it and how to repeat it, and
# ends with a summary in any case. ONLY=substring narrows the programs down.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

BUILD=${BUILD:-build}
KILLS=${KILLS:-500}
ONLY=${ONLY:-}
TIME=${TIME:-10m}

if [[ ! $TIME =~ ^([0-9]+)(s|m|h|)$ ]] || [[ ! $KILLS =~ ^[1-9][0-9]*$ ]]; then
    echo "soak: TIME=$TIME KILLS=$KILLS: expected a time like 30s, 5m or 8h, and a number of kills" >&2
    exit 2
fi
[[ $TIME =~ ^([0-9]+)(s|m|h|)$ ]]
case ${BASH_REMATCH[2]} in
s) limit=${BASH_REMATCH[1]} ;;
h) limit=$((BASH_REMATCH[1] * 3600)) ;;
*) limit=$((BASH_REMATCH[1] * 60)) ;;
esac

log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT
declare -A times took
declare -i runs=0 kills=0 killed_runs=0 repeats=0 kill_s=0 other_s=0 turn=0
failed=
export STET_POWER_SEEDS=20 # many more versions of each power cut than `make test` tries

shopt -s nullglob
programs=()
for program in "$BUILD"/tests/{crash,fault,sim,e2e}_*; do
    [[ -x $program && ! -d $program && ${program##*/} == *"$ONLY"* ]] && programs+=("$program")
done
killer=$BUILD/tests/crash_kill_test
kill_name=C6_workers_killed_at_random_under_load
if [ ${#programs[@]} -eq 0 ]; then
    echo "soak: no crash, fault, sim or e2e test in $BUILD/tests with \"$ONLY\" in its name" >&2
    exit 1
fi
[[ ${killer##*/} == *"$ONLY"* && -x $killer ]] || killer=

# run LABEL PROGRAM ARGUMENT…: one program with a new seed; its time goes to `seconds`.
run()
{
    local label=$1 began=$SECONDS

    shift
    export STET_TEST_SEED=$((RANDOM * 32768 + RANDOM + 1))
    if ! "$@" >"$log" 2>&1; then
        failed="STET_TEST_SEED=$STET_TEST_SEED $*"
        return 1
    fi
    seconds=$((SECONDS - began))
    runs+=1
    times[$label]=$((${times[$label]:-0} + 1))
    took[$label]=$((${took[$label]:-0} + seconds))
}

kill_round()
{
    # A limit that grows with the kills: each takes at most a tenth of a second, and the check its own time.
    export STET_TEST_KILLS=$KILLS STET_TEST_SLOW=$((1 + KILLS / 1000))
    run "kill -9, $KILLS at a time" "$killer" $kill_name || {
        failed="STET_TEST_KILLS=$KILLS STET_TEST_SLOW=$STET_TEST_SLOW $failed"
        return 1
    }
    unset STET_TEST_KILLS STET_TEST_SLOW
    kill_s+=seconds
    [[ $(<"$log") =~ ([0-9]+)\ kills,\ ([0-9]+)\ runs,\ [0-9]+\ executions,\ ([0-9]+) ]] || {
        failed="$killer, which does not say how many it killed"
        return 1
    }
    kills+=BASH_REMATCH[1]
    killed_runs+=BASH_REMATCH[2]
    repeats+=BASH_REMATCH[3]
}

# Its own summary is printed: seeds a second, simulated years, faults of each kind, operations checked.
sim_round()
{
    local seed=$((RANDOM * 32768 + RANDOM + 100000))

    "$simulator" --seed $seed --seconds $((limit / 3 + 1)) >"$log" 2>&1 || {
        failed="make sim as told above"
        return 1
    }
    cat "$log"
}

began=$SECONDS
end=$((SECONDS + limit))
simulator=$BUILD/tests/stet-sim
if [[ -x $simulator && stet-sim == *"$ONLY"* ]]; then
    echo "soak: the simulator"
    sim_round
fi
while [ $SECONDS -lt $end ] && [ -z "$failed" ]; do
    if [ -n "$killer" ] && [ $kill_s -le $other_s ]; then
        kill_round && echo "soak: $kills workers killed, $killed_runs runs of theirs finished, $repeats steps repeated and reported;" \
            "$((end > SECONDS ? end - SECONDS : 0)) s left"
    else
        program=${programs[turn % ${#programs[@]}]}
        turn+=1
        run "${program##*/}" "$program" && other_s+=seconds
        [ $((turn % ${#programs[@]})) -ne 0 ] || echo "soak: every program $((turn / ${#programs[@]})) times," \
            "$((end > SECONDS ? end - SECONDS : 0)) s left"
    fi
done

for label in "${!times[@]}"; do
    printf '  %5d times %6d s  %s\n' "${times[$label]}" "${took[$label]}" "$label"
done | sort -k5
echo "soak: $runs runs in $((SECONDS - began)) s, $kills workers killed, $killed_runs runs finished in spite of it"
if [ -n "$failed" ]; then
    cat "$log"
    echo "soak: failed; repeat with $failed"
    exit 1
fi
echo "soak: no failure"
