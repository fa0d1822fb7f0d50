# How many points the programs of crashes and faults try in `make test` and `make coverage`: sourced by both.
#
# Each point is tried in one configuration or the other, as far as there is time: where memory may be handled
# wrongly on the way back, more of them with AddressSanitizer; where it is what was stored that counts, without.
# `make soak` and whoever runs a program alone try all of them.

# Only so many points, unless whoever called says how many.
thin() { # NAME=NUMBER...
    local one name
    for one; do
        name=${one%%=*}
        [ -n "${!name:-}" ] || export "${one?}"
    done
}

thin_program() { # CONFIG/PROGRAM, on the store STET_TEST_STORE names
    case $1 in
    plain/crash_pairs_test) thin STET_TEST_PAIRS_STRIDE=45 ;;
    asan/crash_pairs_test) thin STET_TEST_PAIRS_STRIDE=1000 STET_TEST_PAIRS_SEEDS=1 ;;
    plain/crash_processes_test)
        case ${STET_TEST_STORE:-} in
        postgres) thin STET_CRASH_STRIDE=64 ;;
        redis) thin STET_CRASH_STRIDE=28 ;;
        *) thin STET_CRASH_STRIDE=6 ;;
        esac ;;
    asan/crash_processes_test) thin STET_CRASH_STRIDE=20 ;;
    plain/crash_stopped_test | asan/crash_stopped_test) thin STET_CRASH_STRIDE=16 ;;
    plain/crash_transaction_test) [ "${STET_TEST_STORE:-}" != postgres ] || thin STET_CRASH_STRIDE=6 ;;
    plain/crash_repair_test) thin STET_CRASH_STRIDE=3 ;;
    asan/crash_repair_test) thin STET_CRASH_STRIDE=20 ;;
    plain/crash_power_test) thin STET_POWER_SEEDS=1 STET_POWER_STRIDE=2 ;;
    asan/crash_power_test) thin STET_POWER_SEEDS=1 STET_POWER_STRIDE=10 ;;
    plain/fault_postgres_cut_test) thin STET_CUT_STRIDE=45 ;;
    plain/fault_redis_cut_test) thin STET_CUT_STRIDE=6 ;;
    asan/fault_*_cut_test) thin STET_CUT_STRIDE=300 STET_CUT_KINDS=3 ;;
    plain/fault_rabbitmq_test | asan/fault_rabbitmq_test) thin STET_CUT_STRIDE=24 ;;
    plain/fault_api_test) thin STET_FAULT_THIN=60 ;;
    asan/fault_api_test) thin STET_FAULT_STRIDE=2000 STET_FAULT_FIRST=1 ;;
    asan/fault_sqlite_test) thin STET_FAULT_STRIDE=20 ;;
    asan/fault_postgres_answer_test) thin STET_FAULT_STRIDE=40 ;;
    asan/fault_redis_answer_test) thin STET_FAULT_STRIDE=29 ;;
    plain/fault_io_test | plain/fault_memory_test | plain/fault_repair_test) thin STET_FAULT_THIN=5 ;;
    asan/fault_io_test | asan/fault_repair_test) thin STET_FAULT_THIN=8 ;;
    asan/fault_memory_test) thin STET_FAULT_THIN=6 ;;
    asan/unit_testkit_test) thin STET_TEST_KIT_SEEDS=8 ;;
    tsan/unit_testkit_test) thin STET_TEST_KIT_SEEDS=4 ;;
    esac
}
