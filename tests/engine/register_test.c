/* Registering (A1), configuration (A10), opening. tsan: yes */
#include <unistd.h>

#include "fixture.h"

static const stet_handler good[] = { { "echo", h_echo, NULL }, { 0 } };

static int
count_handler(void *arg, const stet_handler_info *info)
{
    (void)info;
    ++*(int *)arg;
    return 0;
}

static int
registered(stet_engine *e)
{
    int n = 0;

    CHECK_OK(stet_handler_list(e, count_handler, &n));
    return n;
}

/* ---- A1 -------------------------------------------------------------------------------------- */

TEST(A1_a_service_is_a_name_and_a_table_of_handlers)
{
    const stet_handler many[] = { { "one", h_echo, NULL },
                                  { "two-2", h_echo, NULL },
                                  { "Three_3", h_echo, NULL },
                                  { "a:b/c d", h_echo, NULL },
                                  { 0 } };
    fixture           *f = fixture_begin();
    stet_engine       *looker;
    stet_run_id        run;

    f->engine = fixture_open(f);
    CHECK_OK(stet_register(f->engine, "alpha", many));
    CHECK_OK(stet_register(f->engine, "beta", good));
    CHECK_OK(stet_register_object(f->engine, "gamma", good, NULL));
    CHECK_INT(registered(f->engine), 6);
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "alpha.a:b/c d", "1", NULL);
    EXPECT_RESULT(f->engine, &run, "1");
    /* To others, too, a name with a space is one name. */
    looker = fixture_open(f);
    CHECK_INT(registered(looker), 6);
    stet_close(looker);
    run = fixture_start(f->engine, "beta.echo", "2", NULL);
    EXPECT_RESULT(f->engine, &run, "2");
    run = fixture_start(f->engine, "gamma.echo", "3", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &run, "3");
    fixture_end(f);
}

TEST(A1_names_and_tables_are_not_kept)
{
    fixture *f = fixture_begin();
    char     service[16] = "fleeting", name[16] = "echo", text[16] = "about it", entry[16] = "e",
         value[4] = "v";
    stet_handler_options options = { .description = text };
    stet_handler         handlers[] = { { name, h_echo, &options }, { 0 } };
    stet_entry           initial[] = { { entry, { value, 1 } }, { 0 } };
    stet_run_id          run;
    stet_bytes           got;

    f->engine = fixture_open(f);
    CHECK_OK(stet_register_object(f->engine, service, handlers, initial));
    memset(service, 'x', sizeof service);
    memset(name, 'x', sizeof name);
    memset(text, 'x', sizeof text);
    memset(entry, 'x', sizeof entry);
    memset(value, 'x', sizeof value);
    memset(handlers, 0, sizeof handlers);
    memset(initial, 0, sizeof initial);
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, "fleeting.echo", "1", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &run, "1");
    CHECK_OK(stet_state_read(f->engine, &got, "fleeting", "k", "e"));
    CHECK(fixture_is(got, "v"));
    stet_free((void *)(uintptr_t)got.data);
    fixture_end(f);
}

TEST(A1_a_duplicate_name_is_refused)
{
    const stet_handler twice[] = {
        { "echo", h_echo, NULL }, { "other", h_echo, NULL }, { "echo", h_echo, NULL }, { 0 }
    };
    fixture *f = fixture_begin();

    f->engine = fixture_open(f);
    CHECK_OK(stet_register(f->engine, "t", good));
    CHECK_CODE(stet_register(f->engine, "t", good), STET_EEXISTS);
    CHECK_HAS(stet_last_error(), "t");
    CHECK_CODE(stet_register_object(f->engine, "t", good, NULL), STET_EEXISTS);
    CHECK_CODE(stet_register(f->engine, "u", twice), STET_EEXISTS);
    CHECK_HAS(stet_last_error(), "echo");
    CHECK_INT(registered(f->engine), 1); /* a refused service leaves nothing */
    CHECK_OK(stet_register(f->engine, "u", good));
    CHECK_OK(stet_register(f->engine, "T", good)); /* names are what they are, case included */
    fixture_end(f);
}

TEST(A1_empty_illegal_and_overlong_names_are_refused)
{
    static const char *const bad[] = { "",     "__mine",   "rollback:x", "a.b",  " a",
                                       "a ",   "a\tb",     "a\nb",       "a\"b", "a%b",
                                       "a\\b", "\xc3\xa4", "a\xff",      "a?b",  NULL };
    fixture                 *f = fixture_begin();
    char                     name[200];

    f->engine = fixture_open(f);
    for (int i = 0; bad[i] != NULL; i++) {
        const stet_handler handlers[] = { { "fine", h_echo, NULL },
                                          { bad[i], h_echo, NULL },
                                          { 0 } };

        CHECK_CODE(stet_register(f->engine, bad[i], good), STET_ENAME);
        CHECK_HAS(stet_last_error(), "service");
        CHECK_CODE(stet_register(f->engine, "fine", handlers), STET_ENAME);
        CHECK_HAS(stet_last_error(), "handler");
        CHECK_INT(registered(f->engine), 0);
    }
    memset(name, 'n', sizeof name);
    name[129] = '\0';
    CHECK_CODE(stet_register(f->engine, name, good), STET_ENAME);
    CHECK_HAS(stet_last_error(), "128");
    name[128] = '\0';
    CHECK_OK(
        stet_register(f->engine, name, (const stet_handler[]){ { name, h_echo, NULL }, { 0 } }));
    CHECK_CODE(stet_register(f->engine, NULL, good), STET_ENAME);
    CHECK_INT(registered(f->engine), 1);
    fixture_end(f);
}

TEST(A1_a_service_of_the_longest_names_works)
{
    fixture    *f = fixture_begin();
    char        name[129], handler[260];
    stet_run_id run;

    memset(name, 'n', 128);
    name[128] = '\0';
    (void)snprintf(handler, sizeof handler, "%s.%s", name, name);
    f->engine = fixture_open(f);
    CHECK_OK(
        stet_register(f->engine, name, (const stet_handler[]){ { name, h_echo, NULL }, { 0 } }));
    CHECK_OK(stet_engine_start(f->engine));
    run = fixture_start(f->engine, handler, "long", NULL);
    EXPECT_RESULT(f->engine, &run, "long");
    CHECK_STR(fixture_look(f->engine, &run).handler, handler);
    fixture_end(f);
}

TEST(A1_tables_that_make_no_sense_are_refused)
{
    const stet_handler         none[] = { { 0 } }, no_function[] = { { "a", NULL, NULL }, { 0 } };
    const stet_handler_options bad_timeout = { .timeout = "soon" },
                               bad_retention = { .retention = "-1d" };
    const stet_handler         timeout[] = { { "a", h_echo, &bad_timeout }, { 0 } };
    const stet_handler         retention[] = { { "a", h_echo, &bad_retention }, { 0 } };
    const stet_handler_options bad_retry = { .retry = { .attempts = -3 } };
    const stet_handler         retry[] = { { "a", h_echo, &bad_retry }, { 0 } };
    const stet_entry           bad_entry[] = { { "__x", { "1", 1 } }, { 0 } };
    fixture                   *f = fixture_begin();

    f->engine = fixture_open(f);
    CHECK_CODE(stet_register(f->engine, "t", NULL), STET_EINVAL);
    CHECK_CODE(stet_register(f->engine, "t", none), STET_EINVAL);
    CHECK_CODE(stet_register(f->engine, "t", no_function), STET_EINVAL);
    CHECK_CODE(stet_register(f->engine, "t", timeout), STET_EDURATION);
    CHECK_CODE(stet_register(f->engine, "t", retention), STET_EDURATION);
    CHECK_CODE(stet_register(f->engine, "t", retry), STET_EINVAL);
    CHECK_CODE(stet_register_object(f->engine, "t", good, bad_entry), STET_ENAME);
    CHECK_CODE(stet_register(NULL, "t", good), STET_EINVAL);
    CHECK_INT(registered(f->engine), 0);
    fixture_end(f);
}

TEST(A1_registering_after_start_is_refused)
{
    fixture *f = fixture_begin();

    fixture_up_with(f, good);
    CHECK_CODE(stet_register(f->engine, "late", good), STET_ESTATE);
    CHECK_HAS(stet_last_error(), "late");
    CHECK_CODE(stet_register_object(f->engine, "late", good, NULL), STET_ESTATE);
    CHECK_INT(registered(f->engine), 1);
    CHECK_OK(stet_engine_start(f->engine)); /* a second start is harmless */
    CHECK_OK(stet_engine_stop(f->engine, 0));
    CHECK_OK(stet_engine_stop(f->engine, 0));
    CHECK_CODE(stet_register(f->engine, "late", good), STET_ESTATE);
    fixture_end(f);
}

/* ---- A10 ------------------------------------------------------------------------------------- */

static int
try_open(fixture *f, const stet_options *options)
{
    stet_engine *e = NULL;
    int          code = stet_open(&e, f->url, options);

    CHECK((code == STET_OK) == (e != NULL));
    if (e != NULL)
        stet_close(e);
    return code;
}

TEST(A10_every_value_is_checked_at_open)
{
    fixture *f = fixture_begin();

    for (size_t i = 0; stet_config_at(i) != NULL; i++) {
        const stet_config_item *item = stet_config_at(i);
        stet_options            options;
        char                    text[32];

        CHECK(item->name[0] != '\0' && item->text[0] != '\0');
        CHECK(item->least <= item->normal && item->normal <= item->most);
        stet_options_init(&options);
        (void)snprintf(text, sizeof text, "%lld", (long long)item->most + 1);
        CHECK_CODE(stet_options_set(&options, item->name, text), STET_ECONFIG);
        CHECK_HAS(stet_last_error(), item->name);
        CHECK_CODE(stet_options_set(&options, item->name, "plenty"), STET_ECONFIG);
        CHECK_CODE(stet_options_set(&options, item->name, "-1"), STET_ECONFIG);
        CHECK_CODE(stet_options_set(&options, item->name, ""), STET_ECONFIG);
        (void)snprintf(text, sizeof text, "%lld", (long long)item->normal);
        CHECK_OK(stet_options_set(&options, item->name, text));
    }
    CHECK_CODE(stet_options_set(&f->options, "colour", "1"), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), "colour");
#define CHECK_RANGE(name, normal, least, most, unit, text)                                         \
    CHECK_CODE(try_open(f, STET_OPTIONS(.name = (most) + 1)), STET_ECONFIG);                       \
    CHECK_HAS(stet_last_error(), #name);                                                           \
    CHECK_CODE(try_open(f, STET_OPTIONS(.name = -2)), STET_ECONFIG);                               \
    CHECK_HAS(stet_last_error(), #name);
    STET_CONFIG_LIST(CHECK_RANGE)
#undef CHECK_RANGE
    fixture_end(f);
}

TEST(A10_the_defaults_are_the_documented_ones)
{
    static const struct {
        const char *name;
        int64_t     normal;
    } want[] = { { "concurrency", 10 },           { "run_attempts", 3 },
                 { "retry_first_ms", 1000 },      { "retry_max_ms", 30000 },
                 { "retry_factor_percent", 200 }, { "retry_jitter_percent", 25 },
                 { "lease_ms", 30000 },           { "renew_ms", 10000 },
                 { "drain_ms", 10000 },           { "wait_ms", 30000 },
                 { "wait_poll_ms", 250 } };

    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        size_t n = 0;

        while (stet_config_at(n) != NULL && strcmp(stet_config_at(n)->name, want[i].name) != 0)
            n++;
        CHECK(stet_config_at(n) != NULL);
        CHECK_INT(stet_config_at(n)->normal, want[i].normal);
    }
}

TEST(A10_values_that_do_not_go_together_are_refused)
{
    fixture     *f = fixture_begin();
    stet_options sizeless = { 0 };

    CHECK_CODE(try_open(f, STET_OPTIONS(.lease_ms = 1000, .renew_ms = 1000)), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), "renew_ms");
    CHECK_CODE(try_open(f, STET_OPTIONS(.retry_first_ms = 2000, .retry_max_ms = 1000)),
               STET_ECONFIG);
    CHECK_HAS(stet_last_error(), "retry_max_ms");
    CHECK_CODE(try_open(f, STET_OPTIONS(.roles = STET_ROLE_CLIENT | STET_ROLE_WORKER)),
               STET_ECONFIG);
    CHECK_HAS(stet_last_error(), "role");
    CHECK_CODE(try_open(f, STET_OPTIONS(.roles = 8)), STET_ECONFIG);
    CHECK_CODE(try_open(f, &sizeless), STET_ECONFIG);
    CHECK_HAS(stet_last_error(), "STET_OPTIONS");
    CHECK_OK(try_open(f, NULL));
    CHECK_OK(try_open(f, STET_OPTIONS(.drain_ms = STET_NONE, .parked_max = STET_NONE,
                                      .retry_jitter_percent = STET_NONE)));
    fixture_end(f);
}

/* A mistyped schema, prefix or path: a command that only looks would say that all is well. */
TEST(G7_who_looks_for_a_store_makes_none)
{
    fixture        *f = fixture_begin();
    stet__platform *p = stet__platform_real();

    if (strncmp(f->url, "memory:", 7) != 0) {
        CHECK_CODE(stet__store_exists(p, f->url), STET_ENOTFOUND);
        CHECK_HAS(stet_last_error(), "there is no store at");
        CHECK_CODE(stet__store_exists(p, f->url), STET_ENOTFOUND);
    }
    CHECK_OK(try_open(f, NULL));
    CHECK_OK(stet__store_exists(p, f->url));
    fixture_end(f);
}

#ifdef STET_WITH_SQLITE
TEST(A10_options_that_are_refused_leave_no_store_behind)
{
    stet_engine *e;

    CHECK_CODE(stet_open(&e, test_path("refused.db"), STET_OPTIONS(.concurrency = -2)),
               STET_ECONFIG);
    CHECK_CODE(stet_open(&e, test_path("refused.db"), STET_OPTIONS(.roles = 8)), STET_ECONFIG);
    CHECK(access(test_path("refused.db"), F_OK) != 0);
    CHECK(access(test_path("refused.db-live"), F_OK) != 0);
}
#endif

TEST(A10_an_open_that_worked_leaves_no_error)
{
    stet_engine *e;

    CHECK_CODE(stet_open(&e, "", NULL), STET_EURL);
    CHECK(stet_last_error()[0] != '\0');
    CHECK_OK(stet_open(&e, "memory:", NULL));
    CHECK_STR(stet_last_error(), "");
    CHECK_OK(stet_register(e, "alpha", good));
    CHECK_STR(stet_last_error(), "");
    stet_close(e);
}

TEST(A10_values_can_be_set_by_name_and_text)
{
    stet_options options;

    stet_options_init(&options);
    CHECK_OK(stet_options_set(&options, "concurrency", "8"));
    CHECK_INT(options.concurrency, 8);
    CHECK_OK(stet_options_set(&options, "lease_ms", "45s"));
    CHECK_INT(options.lease_ms, 45000);
    CHECK_OK(stet_options_set(&options, "lease_ms", "500"));
    CHECK_INT(options.lease_ms, 500);
    CHECK_OK(stet_options_set(&options, "drain_ms", "0"));
    CHECK_INT(options.drain_ms, STET_NONE); /* 0 would be the default */
    CHECK_CODE(stet_options_set(&options, "concurrency", "8s"), STET_ECONFIG);
    CHECK_CODE(stet_options_set(&options, "concurrency", "1.5"), STET_ECONFIG);
    CHECK_INT(options.concurrency, 8);
}

static int
backoff_handler(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    effect("%s at %lld", stet_info(ctx)->run, (long long)fixture_mono_ms());
    return stet_fail(ctx, STET_ERETRY, "again");
}

static int
retry_delay(void *arg, const stet_fact_info *fact)
{
    int64_t *ms = arg;

    if (strcmp(fact->kind, "attempt failed") == 0 && fact->until_ms != 0)
        ms[++ms[0]] = fact->until_ms - fact->time_ms;
    return 0;
}

/* Between executions of a run there was at least so much time; a millisecond is lost to
 * rounding. */
static void
check_gaps(const stet_run_id *run, const int64_t least[4])
{
    char   *text = effects_text(), *at = text;
    int64_t last_ms = 0;

    for (int i = 0; i < 5; i++) {
        int64_t ms;

        CHECK((at = strstr(at, run->text)) != NULL);
        ms = strtoll(at += strlen(run->text) + strlen(" at "), NULL, 10);
        CHECK(i == 0 || ms - last_ms >= least[i - 1] - 1);
        last_ms = ms;
    }
    free(text);
}

TEST(A10_the_backoff_doubles_to_its_maximum_with_jitter_that_never_exceeds_it)
{
    static const stet_handler handlers[] = { { "back", backoff_handler, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               runs[12];

    f->options.retry_first_ms = 8;
    f->options.retry_max_ms = 20;
    f->options.run_attempts = 5;
    fixture_up_with(f, handlers);
    for (int i = 0; i < 12; i++)
        runs[i] = fixture_start(f->engine, "t.back", "", NULL);
    for (int i = 0; i < 12; i++) {
        stet_result result = EXPECT_END(f->engine, &runs[i], STET_ERUN);
        int64_t     ms[16] = { 0 };

        CHECK_INT(result.attempts, 5);
        stet_result_free(&result);
        CHECK_OK(stet_run_facts(f->engine, &runs[i], false, retry_delay, ms));
        CHECK_INT(ms[0], 4);
        /* 8, 16, 20, 20 with a quarter up or down. The facts say how long it was to be, and the
         * executions that it was not cut short. */
        CHECK(ms[1] >= 6 && ms[1] <= 10 && ms[2] >= 12 && ms[2] <= 20);
        CHECK(ms[3] >= 15 && ms[3] <= 20 && ms[4] >= 15 && ms[4] <= 20);
        check_gaps(&runs[i], (const int64_t[]){ 6, 12, 15, 15 });
    }
    fixture_end(f);
}

TEST(A10_concurrency_is_the_number_of_handlers_at_one_time)
{
    fixture    *f = fixture_begin();
    stet_health health;

    f->options.concurrency = 3;
    fixture_up_with(f, good);
    CHECK_OK(stet_health_get(f->engine, &health));
    CHECK(health.is_alive && health.is_ready && health.has_store && health.has_timers);
    CHECK_INT(health.workers, 1);
    fixture_end(f);
}

static gate all_in = GATE_INIT;

static int
body_meets(stet_attempt *a, void *arg)
{
    (void)a;
    (void)arg;
    gate_pass(&all_in);
    return STET_OK;
}

static int
meets(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_step(ctx, NULL, "meet", body_meets, NULL, NULL);
}

TEST(A10_as_many_bodies_run_at_one_time_as_there_are_slots_and_no_more)
{
    static const stet_handler handlers[] = { { "meet", meets, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_run_id               runs[8];
    int64_t                   until;

    f->options.concurrency = 3;
    fixture_up_with(f, handlers);
    for (int i = 0; i < 8; i++)
        runs[i] = fixture_start(f->engine, "t.meet", "", NULL);
    gate_await(&all_in, 3);
    until = fixture_mono_ms() + 50;
    AWAIT(fixture_mono_ms() > until); /* nobody else comes meanwhile */
    pthread_mutex_lock(&all_in.lock);
    CHECK_INT(all_in.arrived, 3);
    pthread_mutex_unlock(&all_in.lock);
    gate_open(&all_in);
    for (int i = 0; i < 8; i++)
        EXPECT_RESULT(f->engine, &runs[i], "");
    fixture_end(f);
}

TEST(A10_addresses_that_name_no_store_are_refused)
{
    stet_engine *e;
    FILE        *file = fopen(test_path("not-a-store"), "w");

    CHECK(file != NULL && fputs("just some text, and quite a lot of it\n", file) >= 0 &&
          fclose(file) == 0);
    CHECK_CODE(stet_open(&e, NULL, NULL), STET_EURL);
    CHECK(e == NULL);
    CHECK_CODE(stet_open(&e, "", NULL), STET_EURL);
    CHECK_CODE(stet_open(&e, "gopher://x", NULL), STET_EURL);
    CHECK_HAS(stet_last_error(), "gopher");
    CHECK_CODE(stet_open(&e, test_path("not-a-store"), NULL), STET_ENOTDB);
    CHECK_CODE(stet_open(&e, test_path("no/such/folder.db"), NULL), STET_EIO);
    CHECK(e == NULL);
}
