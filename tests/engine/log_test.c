/* Log lines: of handlers, of bodies, of the engine; their fields. Row H7.
 * tsan: yes */
#include "fixture.h"

#include "engine/engine.h"

/* ---- lines of a run -------------------------------------------------------------------------- */

static int
h_logs(stet_ctx *ctx, stet_bytes input)
{
    stet_log(ctx, STET_LOG_DEBUG, "detail %d", 1);
    stet_log(ctx, STET_LOG_INFO, "before the nap");
    STET_TRY(stet_step(ctx, NULL, "one", body_effect, (void *)"one", NULL));
    stet_log(ctx, STET_LOG_WARN, "between");
    STET_TRY(stet_sleep_ms(ctx, "nap", 5));
    stet_log(ctx, STET_LOG_ERROR, "after the nap");
    return stet_return(ctx, input);
}

static const stet_handler h7_handlers[] = { { "logs", h_logs, NULL },
                                            { "fails", h_bank_closed, NULL },
                                            { 0 } };

static const fixture_record *
h7_find(fixture *f, const char *message)
{
    for (size_t i = 0; i < f->n_records; i++)
        if (strcmp(f->records[i].message, message) == 0)
            return &f->records[i];
    test_fail(__FILE__, __LINE__, "nobody said: %s", message);
}

TEST(H7_a_log_line_has_the_runs_fields_and_is_silent_during_replay)
{
    fixture              *f = fixture_begin();
    stet_run_id           run;
    const fixture_record *r;

    f->options.parked_max = STET_NONE; /* every sleep is replayed over */
    fixture_up_with(f, h7_handlers);
    run = fixture_start(f->engine, "t.logs", "ok", NULL);
    EXPECT_RESULT(f->engine, &run, "ok");
    fixture_down(f);
    CHECK_INT(fixture_logged(f, "before the nap"), 1);
    CHECK_INT(fixture_logged(f, "between"), 1);
    CHECK_INT(fixture_logged(f, "after the nap"), 1);
    CHECK_INT(fixture_logged(f, "detail 1"), 1);
    r = h7_find(f, "between");
    CHECK_STR(r->run, run.text);
    CHECK_STR(r->handler, "t.logs");
    CHECK_INT(r->level, STET_LOG_WARN);
    CHECK_INT(h7_find(f, "after the nap")->level, STET_LOG_ERROR);
    fixture_end(f);
}

TEST(H7_lines_below_the_level_are_not_made)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.log_level = STET_LOG_WARN;
    fixture_up_with(f, h7_handlers);
    run = fixture_start(f->engine, "t.logs", "ok", NULL);
    EXPECT_RESULT(f->engine, &run, "ok");
    fixture_down(f);
    CHECK_INT(fixture_logged(f, "detail"), 0);
    CHECK_INT(fixture_logged(f, "before the nap"), 0);
    CHECK_INT(fixture_logged(f, "between"), 1);
    CHECK_INT(fixture_logged(f, "after the nap"), 1);
    f->options.log_level = STET_LOG_OFF;
    fixture_up_with(f, h7_handlers);
    run = fixture_start(f->engine, "t.logs", "ok", NULL);
    EXPECT_RESULT(f->engine, &run, "ok");
    fixture_down(f);
    CHECK_INT(fixture_logged(f, "after the nap"), 1);
    fixture_end(f);
}

TEST(H7_the_engine_tells_about_failures_with_code_run_and_handler)
{
    fixture              *f = fixture_begin();
    stet_run_id           run;
    const fixture_record *line;

    fixture_up_with(f, h7_handlers);
    run = fixture_start(f->engine, "t.fails", "", STET_START(.retry = { .attempts = 2 }));
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    fixture_down(f);
    line = h7_find(f, "attempt 1 failed: the bank is closed");
    CHECK_STR(line->run, run.text);
    CHECK_STR(line->handler, "t.fails");
    CHECK_INT(line->code, STET_ERETRY);
    CHECK_INT(line->level, STET_LOG_WARN);
    line = h7_find(f, "failed: the bank is closed");
    CHECK_INT(line->code, STET_EATTEMPTS);
    CHECK_INT(line->level, STET_LOG_ERROR);
    fixture_end(f);
}

/* ---- fields of one's own --------------------------------------------------------------------- */

static int
body_speaks(stet_attempt *a, void *arg)
{
    stet_attempt_log(a, STET_LOG_INFO, STET_FIELDS({ "card", arg }), "in the body");
    return STET_OK;
}

static int
h_fields(stet_ctx *ctx, stet_bytes input)
{
    stet_future *future;
    bool         has_refused = false;

    CHECK_OK(stet_log_set(ctx, "customer", "anna b"));
    CHECK_OK(stet_log_set(ctx, "shop", "north"));
    stet_log(ctx, STET_LOG_INFO, "set ones");
    stet_log_with(ctx, STET_LOG_INFO,
                  STET_FIELDS({ "amount", "12" }, { "shop", "south" }, { "none", NULL }),
                  "own ones");
    STET_TRY(stet_step(ctx, NULL, "charge", body_speaks, (void *)"visa", NULL));
    CHECK_OK(stet_log_set(ctx, "shop", NULL));
    CHECK_OK(stet_log_set(ctx, "shop", NULL)); /* gone already */
    CHECK_OK(stet_log_set(ctx, "customer", "bert"));
    STET_TRY(stet_step_start(ctx, &future, "ship", body_speaks, (void *)"ship", NULL));
    CHECK_OK(stet_log_set(ctx, "customer",
                          "carl")); /* the body keeps what was set when it was started */
    STET_TRY(stet_await(ctx, NULL, future));
    STET_TRY(stet_sleep_ms(ctx, "nap", 5));
    has_refused = stet_log_set(ctx, "not a name", "x") == STET_ENAME &&
                  stet_log_set(ctx, "", "x") == STET_ENAME;
    stet_log_with(ctx, STET_LOG_INFO, NULL, "last, refused %d", has_refused);
    return stet_return(ctx, input);
}

static const stet_handler field_handlers[] = { { "fields", h_fields, NULL }, { 0 } };

static const fixture_record *
h7_find_step(fixture *f, const char *message, const char *step)
{
    for (size_t i = 0; i < f->n_records; i++)
        if (strcmp(f->records[i].message, message) == 0 && strcmp(f->records[i].step, step) == 0)
            return &f->records[i];
    test_fail(__FILE__, __LINE__, "nobody said in step %s: %s", step, message);
}

TEST(H7_fields_of_ones_own_are_on_the_lines_and_said_once)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.parked_max = STET_NONE; /* every wait is replayed over */
    fixture_up_with(f, field_handlers);
    run = fixture_start(f->engine, "t.fields", "ok", NULL);
    EXPECT_RESULT(f->engine, &run, "ok");
    fixture_down(f);
    CHECK_STR(h7_find(f, "set ones")->fields, "customer=\"anna b\" shop=north");
    CHECK_STR(h7_find(f, "set ones")->run, run.text);
    CHECK_STR(h7_find(f, "own ones")->fields, "customer=\"anna b\" amount=12 shop=south");
    CHECK_INT(h7_find(f, "own ones")->n_own, 3);
    CHECK_STR(h7_find_step(f, "in the body", "charge")->fields,
              "customer=\"anna b\" shop=north card=visa");
    CHECK_STR(h7_find_step(f, "in the body", "charge")->handler, "t.fields");
    CHECK_STR(h7_find_step(f, "in the body", "ship")->fields, "customer=bert card=ship");
    CHECK_STR(h7_find(f, "last, refused 1")->fields, "customer=carl");
    CHECK_INT(fixture_logged(f, "set ones"), 1);
    CHECK_INT(fixture_logged(f, "own ones"), 1);
    CHECK_INT(fixture_logged(f, "in the body"), 2);
    fixture_end(f);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static stet_log_record limit_record;
static stet_log_field  limit_fields[STET_LOG_FIELDS_MAX];
static char            limit_text[8192];

static void
limit_sink(void *arg, const stet_log_record *r)
{
    (void)arg;
    if (strcmp(r->message, "limits") != 0)
        return;
    limit_record = *r;
    CHECK(r->n_own <= STET_LOG_FIELDS_MAX);
    for (size_t i = 0; i < r->n_own; i++) {
        limit_fields[i].name = strdup(r->own[i].name);
        limit_fields[i].value = strdup(r->own[i].value);
    }
    (void)snprintf(limit_text, sizeof limit_text, "%s", r->fields);
}

static int
h_limits(stet_ctx *ctx, stet_bytes input)
{
    char           value[2048], names[40][8];
    stet_log_field many[41] = { { 0 } };

    (void)input;
    for (size_t i = 0; i < sizeof value - 1; i++)
        value[i] = "\xC3\xA4"[i % 2]; /* two bytes a character: not cut between them */
    value[sizeof value - 1] = '\0';
    for (size_t i = 0; i < 40; i++) {
        (void)snprintf(names[i], sizeof names[i], "f%zu", i);
        many[i].name = names[i];
        many[i].value = i == 0 ? value : i == 1 ? "a=\"b\"\n" : "";
    }
    many[2].name = "bad name=\"";
    stet_log_with(ctx, STET_LOG_INFO, many, "limits");
    for (size_t i = 0; i < STET_LOG_FIELDS_MAX; i++)
        CHECK_OK(stet_log_set(ctx, names[i], value));
    CHECK_CODE(stet_log_set(ctx, names[STET_LOG_FIELDS_MAX], "x"), STET_ETOOBIG);
    CHECK_OK(stet_log_set(ctx, names[0], "again"));
    CHECK_OK(stet_log_set(ctx, names[1], NULL));
    CHECK_OK(stet_log_set(ctx, names[STET_LOG_FIELDS_MAX], "x"));
    return stet_return(ctx, stet_text("done"));
}

static const stet_handler limit_handlers[] = { { "limits", h_limits, NULL }, { 0 } };

TEST(H7_fields_are_bounded_and_quoted)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    f->options.log = limit_sink;
    fixture_up_with(f, limit_handlers);
    run = fixture_start(f->engine, "t.limits", "", NULL);
    EXPECT_RESULT(f->engine, &run, "done");
    fixture_down(f);
    CHECK_INT(limit_record.n_own, STET_LOG_FIELDS_MAX);
    CHECK(strlen(limit_fields[0].value) <= STET_LOG_VALUE_MAX &&
          strlen(limit_fields[0].value) > STET_LOG_VALUE_MAX - 4);
    CHECK_STR(limit_fields[0].value + strlen(limit_fields[0].value) - 5, "\xC3\xA4\xE2\x80\xA6");
    CHECK_STR(limit_fields[1].value, "a=\"b\"\n");
    CHECK_STR(limit_fields[2].name, "bad_name__");
    CHECK_HAS(limit_text, " f1=\"a=\\\"b\\\"\\n\" bad_name__=\"\" f3=\"\" ");
    for (size_t i = 0; i < limit_record.n_own; i++) {
        free((void *)(uintptr_t)limit_fields[i].name);
        free((void *)(uintptr_t)limit_fields[i].value);
    }
    fixture_end(f);
}
