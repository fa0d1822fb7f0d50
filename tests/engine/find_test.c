/* Finding runs: by a text, by what they wait for, by who has them; and what one run tells of its
 * times. Row C8. */

#include "engine/engine.h"
#include "fixture.h"

enum { FOUND_MAX = 1000 };

typedef struct found {
    stet_run_id ids[FOUND_MAX];
    size_t      n;
} found;

static int
on_found(void *arg, const stet_run_info *info)
{
    found *all = arg;

    CHECK(all->n < FOUND_MAX);
    (void)snprintf(all->ids[all->n++].text, sizeof all->ids[0].text, "%s", info->id);
    return STET_OK;
}

/* Is this run, and no other, found? */
static bool
finds(stet_engine *e, const stet_run_filter *filter, const stet_run_id *run)
{
    static found all;

    all.n = 0;
    CHECK_OK(stet_run_list(e, filter, on_found, &all));
    return all.n == 1 && strcmp(all.ids[0].text, run->text) == 0;
}

/* ---- text ---- */

static const stet_handler failing[] = { { "fails", h_no_account, NULL },
                                        { "echo", h_echo, NULL },
                                        { 0 } };

TEST(C8_a_text_is_found_in_handler_key_labels_input_error_and_idempotency_key)
{
    static const char *const labels[] = { "tier=Gold", "town=Ulm", NULL };
    fixture                 *f = fixture_begin();
    stet_run_id              plain, keyed, labelled, named, failed, handled;

    fixture_up_with(f, failing);
    plain = fixture_start(f->engine, "elsewhere.h", "{\"order\":\"A-4711\"}", NULL);
    keyed = fixture_start(f->engine, "elsewhere.o", "1", STET_START(.key = "Customer-12"));
    labelled = fixture_start(f->engine, "elsewhere.h", "2", STET_START(.labels = labels));
    named = fixture_start(f->engine, "elsewhere.h", "3", STET_START(.idempotency_key = "Req-99"));
    failed = fixture_start(f->engine, "t.fails", "4", NULL);
    handled = fixture_start(f->engine, "elsewhere.special", "5", NULL);
    EXPECT_ANSWER(f->engine, &failed, STET_ERUN);
    CHECK(finds(f->engine, STET_FILTER(.text = "a-4711"), &plain));
    CHECK(finds(f->engine, STET_FILTER(.text = "\"ORDER\":"), &plain));
    CHECK(finds(f->engine, STET_FILTER(.text = "customer-1"), &keyed));
    CHECK(finds(f->engine, STET_FILTER(.text = "=gold"), &labelled));
    CHECK(finds(f->engine, STET_FILTER(.text = "town=ulm"), &labelled));
    CHECK(finds(f->engine, STET_FILTER(.text = "req-99"), &named));
    CHECK(finds(f->engine, STET_FILTER(.text = "NO SUCH ACCOUNT"), &failed));
    CHECK(finds(f->engine, STET_FILTER(.text = "e.spec"), &handled));
    CHECK(finds(f->engine, STET_FILTER(.text = "gold", .label = "town=Ulm"), &labelled));
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.text = "gold", .label = "town=ulm")), 0);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.text = "gold", .handler = "t")), 0);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.text = "goldtown")), 0);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.text = "elsewhere")), 5);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.text = "elsewhere", .limit = 3)), 3);
    fixture_end(f);
}

static int
h_goes_on(stet_ctx *ctx, stet_bytes input)
{
    if (stet_info(ctx)->generation < 2)
        return stet_continue(ctx, stet_text(stet_ctx_printf(ctx, "%.*s on", (int)input.len,
                                                            (const char *)input.data)));
    return stet_await_signal(ctx, NULL, "go", NULL);
}

static const stet_handler continuing[] = { { "goes", h_goes_on, NULL }, { 0 } };

/* Its record does not begin with fact 1. */
TEST(C8_a_text_is_found_in_a_run_that_continued_as_new)
{
    static const char *const labels[] = { "tier=Gold", NULL };
    fixture                 *f = fixture_begin();
    stet_run_id              run;

    fixture_up_with(f, continuing);
    run = fixture_start(f->engine, "t.goes", "walk",
                        STET_START(.labels = labels, .idempotency_key = "Req-99"));
    AWAIT(fixture_facts(f->engine, &run, "signal wait", "go") == 1);
    CHECK(finds(f->engine, STET_FILTER(.text = "WALK ON ON"), &run));
    CHECK(finds(f->engine, STET_FILTER(.text = "tier=gold"), &run));
    CHECK(finds(f->engine, STET_FILTER(.text = "req-99"), &run));
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.text = "walk on on on")), 0);
    fixture_end(f);
}

static void
start_many(stet_engine *e, size_t n)
{
    stet_start_request *requests = calloc(n, sizeof *requests);

    CHECK(requests != NULL);
    for (size_t i = 0; i < n; i++)
        requests[i] =
            (stet_start_request){ .handler = "elsewhere.h", .input = stet_text("nothing") };
    CHECK_OK(stet_start_many(e, requests, n));
    free(requests);
}

/* IDs of one millisecond have no order. */
static void
next_ms(stet_engine *e)
{
    int64_t now_ms = stet_engine_now_ms(e);

    AWAIT(stet_engine_now_ms(e) > now_ms);
}

TEST(C8_a_search_looks_at_so_many_runs_says_how_far_it_came_and_goes_on_from_there)
{
    static found    all;
    fixture        *f = fixture_begin();
    stet_engine    *e = fixture_open(f);
    stet_run_id     old = fixture_start(e, "elsewhere.h", "here is the Needle", NULL), young;
    stet_run_looked at = { 0 };
    size_t          total = 0, calls = 0;

    next_ms(e);
    start_many(e, 700);
    next_ms(e);
    young = fixture_start(e, "elsewhere.h", "another needle", NULL);
    all.n = 0;
    do {
        CHECK_OK(stet_run_list(e,
                               STET_FILTER(.text = "needle", .look_max = 300, .looked = &at,
                                           .before = at.runs > 0 ? &at.last : NULL),
                               on_found, &all));
        CHECK(at.runs <= 300);
        CHECK(at.is_all || at.runs == 300);
        CHECK(at.created_ms > 0);
        total += at.runs;
        CHECK(++calls < 10);
        CHECK(calls > 2 || all.n == 1);
    } while (!at.is_all);
    CHECK_INT(total, 702);
    CHECK_INT(calls, 3);
    CHECK_INT(all.n, 2);
    CHECK_STR(all.ids[0].text, young.text);
    CHECK_STR(all.ids[1].text, old.text);
    CHECK_STR(at.last.text, old.text);
    stet_close(e);
    fixture_end(f);
}

/* A page that is full ends where its last run was, not where the looking could have gone. */
TEST(C8_a_search_with_a_limit_goes_on_behind_the_last_run_it_gave)
{
    static found    all;
    fixture        *f = fixture_begin();
    stet_engine    *e = fixture_open(f);
    stet_run_looked at = { 0 };

    start_many(e, 10);
    all.n = 0;
    for (size_t i = 0; i < 5; i++) {
        CHECK_OK(stet_run_list(e,
                               STET_FILTER(.text = "NOTHING", .limit = 2, .looked = &at,
                                           .before = i > 0 ? &at.last : NULL),
                               on_found, &all));
        CHECK_INT(all.n, 2 * (i + 1));
        CHECK_STR(all.ids[all.n - 1].text, at.last.text);
        CHECK_INT(at.runs, 2);
    }
    CHECK_OK(stet_run_list(e, STET_FILTER(.text = "NOTHING", .looked = &at, .before = &all.ids[9]),
                           on_found, &all));
    CHECK_INT(all.n, 10);
    CHECK(at.is_all);
    CHECK_INT(at.runs, 0);
    CHECK_STR(at.last.text, "");
    stet_close(e);
    fixture_end(f);
}

/* ---- what it waits for ---- */

static int
h_waits_paid(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;

    (void)input;
    STET_TRY(stet_await_signal(ctx, &value, "paid", NULL));
    STET_TRY(stet_await_signal(ctx, &value, "shipped", NULL));
    return stet_return(ctx, value);
}

static int
h_waits_any(stet_ctx *ctx, stet_bytes input)
{
    stet_future *futures[2];
    size_t       chosen;

    (void)input;
    STET_TRY(stet_signal_start(ctx, &futures[0], "paid", NULL));
    STET_TRY(stet_signal_start(ctx, &futures[1], "called off", NULL));
    STET_TRY(stet_await_any(ctx, &chosen, futures, 2, NULL));
    return stet_return(ctx, stet_text(chosen == 0 ? "paid" : "called off"));
}

static int
h_hears(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;

    (void)input;
    STET_TRY(stet_await_event(ctx, &value, "news", NULL));
    return stet_return(ctx, value);
}

static const stet_handler waiting[] = { { "paid", h_waits_paid, NULL },
                                        { "any", h_waits_any, NULL },
                                        { "hears", h_hears, NULL },
                                        { "pauses", h_pauses, NULL },
                                        { 0 } };

TEST(C8_runs_are_listed_by_the_signal_they_wait_for)
{
    fixture    *f = fixture_begin();
    stet_run_id paid, any, other;

    fixture_up_with(f, waiting);
    paid = fixture_start(f->engine, "t.paid", "", NULL);
    any = fixture_start(f->engine, "t.any", "", NULL);
    other = fixture_start(f->engine, "t.pauses", "", NULL);
    fixture_await_status(f->engine, &paid, STET_STATUS_SUSPENDED);
    fixture_await_status(f->engine, &any, STET_STATUS_SUSPENDED);
    fixture_paused(f->engine, &other);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.waits_for_signal = "paid")), 2);
    CHECK(finds(f->engine, STET_FILTER(.waits_for_signal = "called off"), &any));
    CHECK(finds(f->engine, STET_FILTER(.waits_for_signal = "paid", .handler = "t.paid"), &paid));
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.waits_for_signal = "shipped")), 0);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.waits_for_signal = "pai")), 0);
    CHECK_OK(stet_signal(f->engine, &paid, "paid", stet_text("1"), NULL));
    CHECK_OK(stet_signal(f->engine, &any, "paid", stet_text("1"), NULL));
    EXPECT_RESULT(f->engine, &any, "paid");
    AWAIT(finds(f->engine, STET_FILTER(.waits_for_signal = "shipped"), &paid));
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.waits_for_signal = "paid")), 0);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.waits_for_signal = "called off")), 0);
    fixture_end(f);
}

TEST_LIMIT(C8_runs_are_listed_by_the_topic_they_wait_for_newest_first_in_pages, 120)
{
    enum { N = 900, PAGE = 70 };
    static stet_start_request requests[N];
    static found              all;
    static const char *const  red[] = { "colour=red", NULL };
    fixture                  *f = fixture_begin();
    stet_start_options        options = { .size = sizeof options, .labels = red };
    stet_run_looked           at = { 0 };
    size_t                    resumed;

    fixture_up_with(f, waiting);
    for (size_t i = 0; i < N; i++)
        requests[i] = (stet_start_request){ .handler = i % 3 == 0 ? "t.pauses" : "t.hears",
                                            .input = stet_text(""),
                                            .options = i == 1 || i == 3 ? &options : NULL };
    CHECK_OK(stet_start_many(f->engine, requests, N));
    AWAIT(fixture_count(f->engine,
                        STET_FILTER(.statuses = 1u << STET_STATUS_SUSPENDED, .limit = 2 * N)) == N);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.waits_for_topic = "news", .limit = N)),
              N * 2 / 3);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.waits_for_topic = "new", .limit = N)), 0);
    CHECK(finds(f->engine, STET_FILTER(.waits_for_topic = "news", .label = "colour=red"),
                &requests[1].run));
    all.n = 0;
    do
        CHECK_OK(stet_run_list(f->engine,
                               STET_FILTER(.waits_for_topic = "news", .limit = PAGE, .looked = &at,
                                           .before = all.n > 0 ? &at.last : NULL),
                               on_found, &all));
    while (!at.is_all);
    CHECK_INT(all.n, N * 2 / 3);
    for (size_t i = 1; i < all.n; i++)
        CHECK(strcmp(all.ids[i - 1].text, all.ids[i].text) > 0);
    CHECK_OK(stet_emit(f->engine, &resumed, "news", stet_text("x")));
    AWAIT(fixture_count(f->engine, STET_FILTER(.statuses = 1u << STET_STATUS_COMPLETED,
                                               .limit = N)) == N * 2 / 3);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.waits_for_topic = "news", .limit = N)), 0);
    fixture_end(f);
}

static int
on_worker(void *arg, const stet_worker_info *info)
{
    (void)snprintf(arg, STET_ID_TEXT_MAX, "%s", info->id);
    return STET_OK;
}

/* An index leads to the run, the rest of the filter is asked of its row. */
TEST(C8_a_label_or_topic_is_combined_with_all_other_filters)
{
    static const char *const     red[] = { "colour=red", NULL };
    static const fixture_service services[] = { { "t", waiting, false, NULL },
                                                { "o", waiting, true, NULL },
                                                { 0 } };
    static const uint32_t        open = 1u << STET_STATUS_SUSPENDED;
    fixture                     *f = fixture_begin();
    stet_run_id                  keyed, hears, paid;
    int64_t                      old_ms, new_ms;
    char                         worker[STET_ID_TEXT_MAX] = "";

    fixture_up(f, services);
    keyed = fixture_start(f->engine, "o.hears", "first", STET_START(.key = "k", .labels = red));
    fixture_await_status(f->engine, &keyed, STET_STATUS_SUSPENDED);
    next_ms(f->engine);
    hears = fixture_start(f->engine, "t.hears", "second", STET_START(.labels = red));
    paid = fixture_start(f->engine, "t.paid", "third", NULL);
    fixture_await_status(f->engine, &hears, STET_STATUS_SUSPENDED);
    fixture_await_status(f->engine, &paid, STET_STATUS_SUSPENDED);
    old_ms = fixture_look(f->engine, &keyed).created_ms;
    new_ms = fixture_look(f->engine, &hears).created_ms;
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "colour=red")), 2);
    CHECK(finds(f->engine, STET_FILTER(.label = "colour=red", .handler = "t"), &hears));
    CHECK(finds(f->engine, STET_FILTER(.label = "colour=red", .handler = "o.hears"), &keyed));
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "colour=red", .handler = "t.he")), 0);
    CHECK(finds(f->engine, STET_FILTER(.label = "colour=red", .key = "k"), &keyed));
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "colour=red", .key = "l")), 0);
    CHECK(finds(f->engine, STET_FILTER(.label = "colour=red", .from_ms = new_ms), &hears));
    CHECK(finds(f->engine, STET_FILTER(.label = "colour=red", .to_ms = old_ms), &keyed));
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "colour=red", .from_ms = new_ms + 1)),
              0);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "colour=red", .is_here = true)), 0);
    CHECK_OK(stet_worker_list(f->engine, on_worker, worker));
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "colour=red", .worker = worker)), 0);
    CHECK(finds(f->engine, STET_FILTER(.label = "colour=red", .text = "SECOND"), &hears));
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "colour=red", .text = "third")), 0);
    CHECK(finds(f->engine, STET_FILTER(.waits_for_topic = "news", .key = "k"), &keyed));
    CHECK(finds(f->engine, STET_FILTER(.waits_for_topic = "news", .handler = "t", .statuses = open),
                &hears));
    CHECK(finds(f->engine, STET_FILTER(.waits_for_signal = "paid", .statuses = open), &paid));
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.waits_for_signal = "news",
                                                   .label = "colour=red")), 0);
    CHECK(finds(f->engine, STET_FILTER(.text = "third", .look_max = 2000000), &paid));
    fixture_end(f);
}

/* ---- who has it ---- */

static const stet_handler busy[] = { { "door", h_door, NULL },
                                     { "pauses", h_pauses, NULL },
                                     { 0 } };

TEST(C8_runs_that_are_active_in_this_process_are_listed)
{
    fixture     *f = fixture_begin();
    stet_engine *other;
    stet_run_id  active, parked;
    char         worker[STET_ID_TEXT_MAX] = "";

    fixture_up_with(f, busy);
    parked = fixture_start(f->engine, "t.pauses", "", NULL);
    fixture_paused(f->engine, &parked);
    active = fixture_start(f->engine, "t.door", "x", NULL);
    gate_await(&common_door, 1);
    AWAIT(finds(f->engine, STET_FILTER(.is_here = true), &active));
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.is_here = true, .handler = "t.pauses")), 0);
    CHECK_OK(stet_worker_list(f->engine, on_worker, worker));
    other = fixture_open(f);
    CHECK_INT(fixture_count(other, STET_FILTER(.is_here = true)), 0);
    CHECK(finds(other, STET_FILTER(.worker = worker), &active));
    stet_close(other);
    gate_open(&common_door);
    EXPECT_RESULT(f->engine, &active, "x");
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.is_here = true)), 0);
    fixture_end(f);
}

/* ---- bad input ---- */

static void
refused(stet_engine *e, const stet_run_filter *filter, int code, const char *text)
{
    found none = { .n = 0 };

    CHECK_CODE(stet_run_list(e, filter, on_found, &none), code);
    CHECK_HAS(stet_last_error(), text);
    CHECK_INT(none.n, 0);
}

TEST(C8_lists_that_can_find_nothing_are_refused)
{
    fixture     *f = fixture_begin();
    stet_engine *e = fixture_open(f);
    char         text[300];

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    refused(e, STET_FILTER(.text = ""), STET_EINVAL, "expected 1 to 256");
    refused(e, STET_FILTER(.text = text), STET_EINVAL, "has 299 bytes");
    refused(e, STET_FILTER(.waits_for_signal = ""), STET_ENAME, "signal");
    refused(e, STET_FILTER(.waits_for_topic = "__x"), STET_ENAME, "topic");
    refused(e, STET_FILTER(.waits_for_signal = "go", .statuses = 1u << STET_STATUS_FAILED),
            STET_EINVAL, "ask for suspended ones");
    refused(e, STET_FILTER(.waits_for_topic = "go", .is_here = true), STET_EINVAL, "no worker");
    refused(e, STET_FILTER(.waits_for_topic = "go", .worker = "wrk_x"), STET_EINVAL, "no worker");
    refused(e, STET_FILTER(.worker = "wrk_x"), STET_EINVAL, "");
    refused(e, STET_FILTER(.worker = "x", .is_here = true), STET_EINVAL, "one or the other");
    CHECK_CODE(stet_dlq_list(e, STET_FILTER(.waits_for_signal = "go"), on_found, NULL),
               STET_EINVAL);
    stet_close(e);
    fixture_end(f);
}

/* ---- dead letters ---- */

TEST(C8_a_dead_letter_is_listed_behind_many_that_were_settled)
{
    enum { N = 60 };
    static stet_start_request requests[N];
    static found              all;
    fixture                  *f = fixture_begin();
    stet_run_id               old;

    fixture_up_with(f, failing);
    old = fixture_start(f->engine, "t.fails", "first", NULL);
    EXPECT_ANSWER(f->engine, &old, STET_ERUN);
    next_ms(f->engine);
    for (size_t i = 0; i < N; i++)
        requests[i] = (stet_start_request){ .handler = "t.fails", .input = stet_text("x") };
    CHECK_OK(stet_start_many(f->engine, requests, N));
    for (size_t i = 0; i < N; i++) {
        EXPECT_ANSWER(f->engine, &requests[i].run, STET_ERUN);
        CHECK_OK(stet_dlq_discard(f->engine, &requests[i].run));
    }
    all.n = 0;
    CHECK_OK(stet_dlq_list(f->engine, STET_FILTER(.limit = 5), on_found, &all));
    CHECK_INT(all.n, 1);
    CHECK_STR(all.ids[0].text, old.text);
    fixture_end(f);
}

/* ---- one run ---- */

static gate long_door = GATE_INIT;

typedef struct times {
    int64_t created_ms, eligible_ms, begun_ms, ended_ms;
} times;

static int
on_times(void *arg, const stet_run_info *info)
{
    *(times *)arg = (times){ info->created_ms, info->eligible_ms, info->begun_ms, info->ended_ms };
    return STET_OK;
}

TEST(C8_a_run_tells_when_it_could_begin_when_it_began_and_when_it_ended)
{
    fixture    *f = fixture_begin();
    stet_run_id run, later;
    times       t;

    fixture_up_with(f, failing);
    run = fixture_start(f->engine, "t.echo", "x", STET_START(.delay_ms = 30));
    EXPECT_RESULT(f->engine, &run, "x");
    CHECK_OK(stet_run_get(f->engine, &run, on_times, &t));
    CHECK_INT(t.eligible_ms, t.created_ms + 30);
    CHECK(t.begun_ms >= t.eligible_ms);
    CHECK(t.ended_ms >= t.begun_ms);
    later = fixture_start(f->engine, "t.echo", "x", STET_START(.delay = "1h"));
    CHECK_OK(stet_run_get(f->engine, &later, on_times, &t));
    CHECK_INT(t.eligible_ms, t.created_ms + 3600000);
    CHECK_INT(t.begun_ms, 0);
    CHECK_INT(t.ended_ms, 0);
    fixture_end(f);
}

static int
long_one(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "long", body_gate, &long_door, NULL));
    return stet_return(ctx, input);
}

/* Its first record comes behind its first body. */
TEST(C8_a_run_began_before_its_first_body_and_not_with_its_first_record)
{
    static const stet_handler handlers[] = { { "long", long_one, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               run;
    int64_t                   entered_ms;
    times                     t;

    fixture_up_with(f, handlers);
    run = fixture_start(f->engine, "t.long", "x", NULL);
    gate_await(&long_door, 1);
    entered_ms = stet_engine_now_ms(f->engine);
    AWAIT(stet_engine_now_ms(f->engine) > entered_ms);
    gate_open(&long_door);
    EXPECT_RESULT(f->engine, &run, "x");
    CHECK_OK(stet_run_get(f->engine, &run, on_times, &t));
    CHECK(t.begun_ms >= t.created_ms);
    CHECK(t.begun_ms <= entered_ms);
    CHECK(t.ended_ms > entered_ms);
    fixture_end(f);
}
