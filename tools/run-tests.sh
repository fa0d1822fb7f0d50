#!/usr/bin/env bash
# Everything `make test` promises: builds each configuration, runs each test program in each, then
# the checks of the tree itself, and ends with one line of counts. Non-zero exit on any failure.
#
#   CONFIGS  which of: plain (gcc), asan (clang, address and undefined), tsan (clang, programs whose
#            source says `tsan: yes`), checks (headers, tidy, install, docs). Default: all
#   ONLY     only programs whose name has this in it
#   JOBS     parallel compilations; test programs run seven at a time, those of one configuration while the
#            next one is being built
#
# All it writes is under $BUILD/test of this clone and in fresh temporary directories.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

export ROOT=$PWD
. tools/thin.sh
BUILD=${BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$ROOT/$BUILD ;; esac
export OUT=$BUILD/test
CONFIGS=${CONFIGS:-plain asan tsan checks}
ONLY=${ONLY:-}
JOBS=${JOBS:-$(nproc)}
PROGRAMS_AT_ONCE=7 # most wait for servers, leases and disks
START=$SECONDS
# Whoever ends us ends the programs we run, too.
trap 'trap - TERM HUP; kill 0' TERM HUP

rm -rf "$OUT/logs"
mkdir -p "$OUT/logs"
export RESULTS=$OUT/logs/results # one line a program: passed failed skipped name
: >"$RESULTS"

has_config() { [[ " $CONFIGS " == *" $1 "* ]]; }

# ---- results -----------------------------------------------------------------------------------

# Print a job's output in one piece and add its counts. A program that ended without its line of
# counts crashed as a whole and counts as one failure.
report() { # NAME LOG STATUS MILLISECONDS "USER SYSTEM" (seconds of processor; may be left out)
    local name=$1 log=$2 status=$3 ms=$4 cpu=${5:-} passed failed skipped
    passed=$(grep -c '^ok ' "$log")
    failed=$(grep -c '^not ok ' "$log")
    skipped=$(grep -c '^skip ' "$log")
    if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
        failed=1
        echo "not ok $name: exit status $status" >>"$log"
    elif [ $((passed + failed + skipped)) -eq 0 ]; then
        failed=1
        echo "not ok $name: it has no tests" >>"$log"
    fi
    {
        flock 9
        echo "== $name"
        grep -vE '^[0-9]+ passed, [0-9]+ failed' "$log"
        printf '   %s: %d passed, %d failed, %d skipped in %d.%d s%s\n' \
            "$name" "$passed" "$failed" "$skipped" $((ms / 1000)) $((ms % 1000 / 100)) "${cpu:+ (cpu $cpu)}"
        echo "$passed $failed $skipped $name" >>"$RESULTS"
    } 9>"$OUT/logs/lock"
}

run_job() { # NAME COMMAND...
    local name=$1 log status start cpu TIMEFORMAT='%U %S'
    shift
    log=$OUT/logs/${name//\//_}.log
    start=$(date +%s%3N)
    cpu=$({ time "$@" >"$log" 2>&1 </dev/null; } 2>&1)
    status=$?
    report "$name" "$log" "$status" $(($(date +%s%3N) - start)) "$cpu"
}

# ---- building ----------------------------------------------------------------------------------

# The programs of a configuration, as names of targets.
programs() { # CONFIG
    local source
    for source in tests/{unit,contract,engine,crash,fault,sim,e2e}/*.c; do
        [ -e "$source" ] || continue
        [ "$1" != tsan ] || grep -q 'tsan: yes' "$source" || continue
        source=${source#tests/}
        source=${source%.c}
        ! is_left_out "$1/${source/\//_}" || continue
        [[ ${source/\//_} == *"$ONLY"* ]] && echo "${source/\//_}"
    done
}

# What those programs start: the command, examples and applications.
started_programs() {
    local source
    printf '%s\n' stet_command stet-test-server
    for source in tests/apps/*.c; do echo "app_$(basename "$source" .c)"; done
    for source in examples/*.c; do echo "example_$(basename "$source" .c)"; done
}

# Hundreds of processes, each of which does what engine_move_test does in one.
is_left_out() { # CONFIG/PROGRAM
    case $1 in asan/crash_move_test | asan/crash_postgres_move_test) ;; *) return 1 ;; esac
}

build_step() { # CONFIG COMPILER SANITIZE TARGET...
    local config=$1 compiler=$2 sanitize=$3 linker= flags=()
    shift 3
    # What a sanitizer reports has its lines without the rest of what a debugger wants.
    [ -z "$sanitize" ] || flags=(-DCMAKE_C_FLAGS_RELWITHDEBINFO="-O1 -gline-tables-only")
    # Some two hundred programs are linked: a third to half of the time with this one. The simulator's own program,
    # which nobody times here, need not be compiled once more as one unit.
    ! command -v ld.lld >/dev/null || linker=-fuse-ld=lld
    cmake -S . -B "$OUT/$config" -DCMAKE_C_COMPILER="$compiler" -DSTET_WERROR=ON -DSTET_SIM_IPO=OFF \
        -DSTET_SANITIZE="$sanitize" -DCMAKE_EXE_LINKER_FLAGS="$linker" "${flags[@]}" || return
    cmake --build "$OUT/$config" -j "$JOBS" --target "$@" || return
    echo "ok build $config with $compiler"
}

build() { # CONFIG COMPILER SANITIZE TARGET...
    local log=$OUT/logs/build_$1.log start status
    start=$(date +%s%3N)
    build_step "$@" >"$log" 2>&1
    status=$?
    if [ $status -eq 0 ]; then
        echo "ok build $1 with $2" >"$log"
    else
        # The warnings and errors matter, not the progress lines.
        sed -i '/^\[ *[0-9]*%\]/d; /^--/d; s/^/    | /' "$log"
        sed -i "1i not ok build $1 with $2" "$log"
    fi
    report "build_$1" "$log" $status $(($(date +%s%3N) - start))
    return $status
}

# ---- running -----------------------------------------------------------------------------------

# Sanitizers of older compilers cannot place their shadow memory when addresses are randomised with
# many bits; where personality() is allowed, randomisation is off for them.
fixed_addresses() {
    if setarch -R true 2>/dev/null; then echo "setarch -R"; fi
}

run_check() { # NAME
    case $1 in
    headers) run_job headers tests/headers/run.sh ;;
    tidy) run_job tidy tests/tidy/run.sh "$OUT/plain" ;;
    install) run_job install tools/test-install.sh "$OUT/plain" ;;
    docs) run_job docs tests/docs/run.sh "$OUT/plain" ;;
    esac
}

run_program() { # CONFIG/PROGRAM, CONFIG/PROGRAM@STORE or checks/NAME
    local config=${1%%/*} program=${1#*/}
    [ "$config" != checks ] || { run_check "$program"; return; }
    case $program in *@*) local -x STET_TEST_STORE=${program#*@} ;; esac
    program=${program%@*}
    thin_program "$config/$program"
    # A limit that is too short for a busy machine loses the work of a whole session; one that is long costs nothing
    # unless something is wrong.
    case $config in
    plain) STET_TEST_SLOW=${STET_TEST_SLOW:-3} run_job "$1" "$OUT/plain/tests/$program" ;;
    *)
        # shellcheck disable=SC2046
        STET_TEST_SLOW=${STET_TEST_SLOW:-8} run_job "$1" $(fixed_addresses) "$OUT/$config/tests/$program"
        ;;
    esac
}

# Handlers run on coroutine stacks, which stack-use-after-return does not know.
export ASAN_OPTIONS="detect_stack_use_after_return=0:detect_leaks=1:allocator_may_return_null=1"
export UBSAN_OPTIONS="print_stacktrace=1"
export TSAN_OPTIONS="second_deadlock_stack=1"
[ ! -e tests/lsan.supp ] || export LSAN_OPTIONS="suppressions=$ROOT/tests/lsan.supp:print_suppressions=0"
[ ! -e tests/tsan.supp ] || TSAN_OPTIONS+=":suppressions=$ROOT/tests/tsan.supp"
export -f report run_job run_check thin thin_program run_program fixed_addresses

# What is to be run of a configuration, a name a line.
jobs_of() { # CONFIG
    local program
    for program in $(programs "$1"); do
        # What strangers send is for the sanitizer to judge.
        case $1/$program in plain/fault_*_answer_test | plain/fault_rabbitmq_test) continue ;; esac
        case $program in
        engine_clock_test) echo "$1/$program@memory" ;; # the only clock a test can set
        # The engine's tests hold on every store.
        engine_*)
            # What a sanitizer finds in the engine it finds on any store; in the memory store's own code, with these.
            case $1/$program in
            plain/* | */engine_start_test | */engine_step_test | */engine_object_test | */engine_fleet_test)
                echo "$1/$program@memory" ;;
            esac
            echo "$1/$program@sqlite"
            # On a server the engine's code is the same, and waits longer: all of it once, the stores' own code
            # with AddressSanitizer too, through the programs that use most of it.
            case $1/$program in
            plain/* | asan/engine_start_test | asan/engine_step_test | asan/engine_object_test | \
                asan/engine_facts_test | asan/engine_fleet_test)
                printf '%s\n' "$1/$program@postgres" "$1/$program@redis" ;;
            esac
            ;;
        # So does crash everywhere; without a lock that proves a death it waits for leases.
        crash_processes_test | crash_stopped_test)
            echo "$1/$program"
            [ "$1" != plain ] || printf '%s\n' "$1/$program@redis" "$1/$program@postgres"
            ;;
        crash_transaction_test)
            echo "$1/$program"
            [ "$1" != plain ] || echo "$1/$program@postgres"
            ;;
        *) echo "$1/$program" ;;
        esac
    done
}

# Programs that take minutes, waiting for the most part, come first, so that none is left alone at the end.
slow_first() {
    local all
    all=$(cat)
    [ -n "$all" ] || return 0
    grep -E '/(fault_|crash_|unit_testkit)' <<<"$all"
    grep -vE '/(fault_|crash_|unit_testkit)' <<<"$all"
}

# The programs are run while the next ones are compiled: most of them wait.
all_jobs() {
    # They keep one core busy: beside programs that wait they cost nothing.
    if has_config checks && [ -z "$ONLY" ]; then
        printf '%s\n' checks/tidy checks/headers checks/install checks/docs
    fi
    ! has_config plain || jobs_of plain | slow_first
    local targets
    if has_config asan; then
        mapfile -t targets < <(programs asan)
        [ ${#targets[@]} -eq 0 ] || mapfile -t -O ${#targets[@]} targets < <(started_programs)
        [ ${#targets[@]} -eq 0 ] || ! build asan clang address "${targets[@]}" >&3 || jobs_of asan | slow_first
    fi
    if has_config tsan; then
        mapfile -t targets < <(programs tsan)
        [ ${#targets[@]} -eq 0 ] || ! build tsan clang thread "${targets[@]}" stet-test-server >&3 || jobs_of tsan | slow_first
    fi
}

# One PostgreSQL server for all of them: its program has to be there first.
exec 3>&1
if has_config plain || has_config checks; then
    build plain gcc "" all
elif has_config asan; then
    build asan clang address stet-test-server
else
    build tsan clang thread stet-test-server
fi
if [ $? -eq 0 ]; then
    server=$(ls "$OUT"/{plain,asan,tsan}/tests/stet-test-server 2>/dev/null | head -n 1)
    [ "$CONFIGS" != checks ] || server=
    all_jobs | ${server:+"$server"} xargs -r -d '\n' -n 1 -P $PROGRAMS_AT_ONCE bash -c 'run_program "$1"' run_program
fi

# ---- the sum -----------------------------------------------------------------------------------

read -r passed failed skipped < <(awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }' "$RESULTS")
if [ "$failed" -gt 0 ]; then
    echo "failures:"
    awk '$2 > 0 { print $4 }' "$RESULTS" | while read -r name; do
        grep '^not ok ' "$OUT/logs/${name//\//_}.log" | sed "s|^not ok |   $name: |"
    done
fi
echo "took $((SECONDS - START)) s"
if [ "$skipped" -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ]
