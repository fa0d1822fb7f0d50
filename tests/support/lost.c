/* See lost.h. */
#include "lost.h"

#ifdef STET_WITH_SQLITE

#include <sqlite3.h>

#include "engine/engine.h"

/* ---- handlers -------------------------------------------------------------------------------- */

static int
lost_put(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_state_set(ctx, "note", input));
    return stet_return(ctx, input);
}

static int
lost_clear(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_state_clear(ctx, "greeting"));
    return stet_return(ctx, input);
}

static int
lost_hold(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_state_set(ctx, "note", input));
    STET_TRY(stet_sleep(ctx, "hold", "1h"));
    return STET_OK;
}

static int
lost_tell(stet_ctx *ctx, stet_bytes input)
{
    char line[64];

    (void)snprintf(line, sizeof line, "tell %.*s", (int)input.len, (const char *)input.data);
    STET_TRY(stet_step(ctx, NULL, "tell", body_effect, line, NULL));
    return stet_return(ctx, input);
}

/* "note|greeting", "-" for what is absent. */
static int
lost_read(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes note, greeting;
    char       text[128];

    (void)input;
    STET_TRY(stet_state_get(ctx, &note, "note"));
    STET_TRY(stet_state_get(ctx, &greeting, "greeting"));
    (void)snprintf(text, sizeof text, "%.*s|%.*s", note.data != NULL ? (int)note.len : 1,
                   note.data != NULL ? (const char *)note.data : "-",
                   greeting.data != NULL ? (int)greeting.len : 1,
                   greeting.data != NULL ? (const char *)greeting.data : "-");
    return stet_return(ctx, stet_text(text));
}

static int
lost_note(void *arg, stet_bytes input, stet_reply *reply)
{
    (void)snprintf(arg, 32, "%.*s", (int)input.len, (const char *)input.data);
    return stet_reply_json(reply, "%Q", (const char *)arg);
}

/* Three generations, a word in each; each leaves something to its object. The first is told a
 * note. */
static int
lost_turns(stet_ctx *ctx, stet_bytes input)
{
    uint64_t   turn = stet_info(ctx)->generation;
    char       note[32] = "";
    stet_bytes word, other;
    char      *text;

    STET_TRY(stet_on_update(ctx, "note", NULL, lost_note, note));
    if (turn == 0)
        STET_TRY(stet_state_set(ctx, "note", stet_text("first turn")));
    if (turn == 1)
        STET_TRY(stet_state_clear(ctx, "greeting"));
    STET_TRY(stet_await_signal(ctx, &word, "word", "2h"));
    text = stet_ctx_printf(ctx, "%.*s%s%.*s", (int)input.len, (const char *)input.data, note,
                           (int)word.len, (const char *)word.data);
    if (turn < 2)
        return stet_continue(ctx, stet_text(text));
    STET_TRY(stet_await_signal(ctx, &other, "other", NULL));
    return stet_return(ctx, stet_text(stet_ctx_printf(ctx, "%s%.*s", text, (int)other.len,
                                                      (const char *)other.data)));
}

static int
lost_told(stet_ctx *ctx, stet_bytes input)
{
    char note[32] = "-";

    (void)input;
    STET_TRY(stet_on_update(ctx, "note", NULL, lost_note, note));
    STET_TRY(stet_await_signal(ctx, NULL, "end", NULL));
    return stet_return(ctx, stet_text(note));
}

/* The same answer, however often it is asked for. */
static void
lost_update(fixture *f, const stet_run_id *run, const char *input)
{
    stet_bytes reply;

    CHECK_OK(stet_update(f->engine, &reply, run, "note", stet_text(input),
                         STET_UPDATE_OPTIONS(.idempotency_key = "k")));
    CHECK_STR(reply.data, "\"noted\"");
    stet_free((void *)(uintptr_t)reply.data);
}

static const stet_handler lost_t[] = {
    { "quick", h_echo, NULL },
    { "nap", h_hour, NULL },
    { "caller", h_caller, NULL },
    { "fails", h_bank_closed, NULL },
    { "letter", h_no_account, NULL },
    { "approval", h_approval, NULL },
    { "told", lost_told, NULL },
    { 0 },
};
static const stet_handler lost_o[] = {
    { "put", lost_put, NULL },   { "clear", lost_clear, NULL }, { "hold", lost_hold, NULL },
    { "tell", lost_tell, NULL }, { "read", lost_read, NULL },   { "turns", lost_turns, NULL },
    { 0 },
};
static const stet_entry lost_initial[] = { { "greeting", { "hello", 5 } }, { NULL, { NULL, 0 } } };

const fixture_service lost_services[] = { { "t", lost_t, false, NULL },
                                          { "o", lost_o, true, lost_initial },
                                          { 0 } };

/* ---- the story ------------------------------------------------------------------------------- */

static void
lost_put_now(fixture *f, const char *handler, const char *key, const char *value, bool is_brief)
{
    stet_run_id run = fixture_start(f->engine, handler, value,
                                    STET_START(.key = key, .retention = is_brief ? "1ms" : "10h"));

    if (is_brief)
        AWAIT(fixture_is_gone(f->engine, &run));
    else
        EXPECT_RESULT(f->engine, &run, value);
}

static void
lost_objects(fixture *f, lost_story *s)
{
    lost_put_now(f, "o.put", "p", "baseline", true);
    lost_put_now(f, "o.clear", "q", "", true);
    lost_put_now(f, "o.put", "r", "fact", false);
    lost_put_now(f, "o.put", "s", "older fact", false);
    lost_put_now(f, "o.put", "s", "newer baseline", true);
    lost_put_now(f, "o.put", "u", "older baseline", true);
    lost_put_now(f, "o.put", "u", "newer fact", false);
    lost_put_now(f, "o.put", "w", "older fact", false);
    lost_put_now(f, "o.clear", "w", "", true);
    s->hold = fixture_start(f->engine, "o.hold", "held", STET_START(.key = "l"));
    fixture_await_status(f->engine, &s->hold, STET_STATUS_SUSPENDED);
    (void)fixture_start(f->engine, "o.tell", "1", STET_START(.key = "l"));
    (void)fixture_start(f->engine, "o.tell", "2", STET_START(.key = "l"));
    (void)fixture_start(f->engine, "o.tell", "3", STET_START(.key = "l"));
    (void)fixture_start(f->engine, "o.tell", "4", STET_START(.key = "l", .delay = "1h"));
    s->runs += 9;
}

static void
lost_generations(fixture *f, lost_story *s)
{
    static const char *const labels[] = { "turns=3", NULL };

    s->turns = fixture_start(f->engine, "o.turns", "",
                             STET_START(.key = "g", .timeout = "3h", .labels = labels));
    fixture_await_status(f->engine, &s->turns, STET_STATUS_SUSPENDED);
    lost_update(f, &s->turns, "noted");
    CHECK_OK(stet_signal(f->engine, &s->turns, "other", stet_text("!"), NULL));
    CHECK_OK(stet_signal(f->engine, &s->turns, "word", stet_text("a"), NULL));
    CHECK_OK(stet_signal(f->engine, &s->turns, "word", stet_text("b"),
                         STET_SIGNAL_OPTIONS(.idempotency_key = "b")));
    AWAIT(strcmp(fixture_look(f->engine, &s->turns).input, "notedab") == 0);
    fixture_await_status(f->engine, &s->turns, STET_STATUS_SUSPENDED);
    s->runs++;
}

static void
lost_letters(fixture *f, lost_story *s)
{
    s->letter = fixture_start(f->engine, "t.letter", "a", STET_START(.priority = 7, .group = "g"));
    EXPECT_ANSWER(f->engine, &s->letter, STET_ERUN);
    s->discarded = fixture_start(f->engine, "t.letter", "b", NULL);
    EXPECT_ANSWER(f->engine, &s->discarded, STET_ERUN);
    CHECK_OK(stet_dlq_discard(f->engine, &s->discarded));
    CHECK_OK(stet_dlq_retry(f->engine, &s->retried, &s->letter));
    EXPECT_ANSWER(f->engine, &s->retried, STET_ERUN);
    s->runs += 3;
}

static stet_run_id
lost_child(fixture *f, const lost_story *s, const char *child_key, const char *retention,
           bool *existed)
{
    stet_run_id run;

    CHECK_OK(stet_start(f->engine, &run, "t.quick", stet_text("kid"),
                        STET_START(.parent = &s->parent, .parent_step = "x", .child_key = child_key,
                                   .retention = retention, .existed = existed)));
    return run;
}

void
lost_fill(fixture *f, lost_story *s)
{
    static const char *const labels[] = { "colour=red", "size=9", NULL };
    stet_run_id              run;

    memset(s, 0, sizeof *s);
    f->options.sweep_ms = 10;
    fixture_up(f, lost_services);
    lost_objects(f, s);
    lost_generations(f, s);
    lost_letters(f, s);
    s->napping =
        fixture_start(f->engine, "t.nap", "",
                      STET_START(.timeout = "2h", .labels = labels, .idempotency_key = "once"));
    fixture_await_status(f->engine, &s->napping, STET_STATUS_SUSPENDED);
    s->settled = fixture_start(f->engine, "t.approval", "", NULL);
    fixture_await_status(f->engine, &s->settled, STET_STATUS_SUSPENDED);
    (void)snprintf(s->spent, sizeof s->spent, "%s", handed_out);
    CHECK_OK(stet_resolve(f->engine, s->spent, stet_text("\"yes\"")));
    EXPECT_RESULT(f->engine, &s->settled, "\"yes\"");
    s->approval = fixture_start(f->engine, "t.approval", "", NULL);
    fixture_await_status(f->engine, &s->approval, STET_STATUS_SUSPENDED);
    (void)snprintf(s->awakeable, sizeof s->awakeable, "%s", handed_out);
    s->caller = fixture_start(f->engine, "t.caller", "", NULL);
    fixture_await_status(f->engine, &s->caller, STET_STATUS_SUSPENDED);
    s->retrying = fixture_start(f->engine, "t.fails", "",
                                STET_START(.retry = { .first_ms = 7200000, .max_ms = 7200000 }));
    fixture_await_status(f->engine, &s->retrying, STET_STATUS_RETRYING);
    (void)fixture_start(f->engine, "t.quick", "later", STET_START(.delay = "1h"));
    (void)fixture_start(f->engine, "elsewhere.thing", "", NULL);
    run = fixture_start(f->engine, "t.quick", "", STET_START(.delay = "1h"));
    CHECK_OK(stet_cancel(f->engine, &run, "tester", "no need"));
    s->parent = fixture_start(f->engine, "t.nap", "", NULL);
    fixture_await_status(f->engine, &s->parent, STET_STATUS_SUSPENDED);
    run = lost_child(f, s, "c1", "10h", NULL);
    EXPECT_RESULT(f->engine, &run, "kid");
    run = lost_child(f, s, "c2", "1ms", NULL);
    AWAIT(fixture_is_gone(f->engine, &run));
    s->told = fixture_start(f->engine, "t.told", "", NULL);
    lost_update(f, &s->told, "noted");
    fixture_await_status(f->engine, &s->told, STET_STATUS_SUSPENDED);
    s->runs += 12;
    fixture_down(f);
}

static void
lost_expect_state(fixture *f, const char *key, const char *want)
{
    stet_run_id run = fixture_start(f->engine, "o.read", "", STET_START(.key = key));

    EXPECT_RESULT(f->engine, &run, want);
}

static int
lost_count_letter(void *arg, const stet_run_info *info)
{
    (void)info;
    ++*(int *)arg;
    return STET_OK;
}

void
lost_goes_on(fixture *f, const lost_story *s)
{
    bool        existed = false;
    int         letters = 0;
    char       *told;
    stet_run_id run;

    fixture_up(f, lost_services);
    CHECK_INT(fixture_sound(f->engine), s->runs);
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "colour=red")), 1);
    CHECK_OK(stet_start(f->engine, &run, "t.nap", stet_text(""),
                        STET_START(.idempotency_key = "once", .existed = &existed)));
    CHECK(existed);
    CHECK_STR(run.text, s->napping.text);
    existed = false;
    (void)lost_child(f, s, "c2", NULL, &existed);
    CHECK(existed);
    CHECK_CODE(stet_resolve(f->engine, s->spent, stet_text("1")), STET_ESETTLED);
    CHECK_OK(stet_resolve(f->engine, s->awakeable, stet_text("\"ok\"")));
    EXPECT_RESULT(f->engine, &s->approval, "\"ok\"");
    lost_update(f, &s->told, "again");
    lost_update(f, &s->turns, "again");
    CHECK_OK(stet_signal(f->engine, &s->told, "end", stet_text(""), NULL));
    EXPECT_RESULT(f->engine, &s->told, "noted");
    CHECK_OK(stet_dlq_list(f->engine, NULL, lost_count_letter, &letters));
    CHECK_INT(letters, 1); /* the retry of the first; that one was retried, the other discarded */
    CHECK_INT(fixture_count(f->engine, STET_FILTER(.label = "turns=3")), 1);
    CHECK_OK(stet_signal(f->engine, &s->turns, "word", stet_text("b"),
                         STET_SIGNAL_OPTIONS(.idempotency_key = "b"))); /* once more: still known */
    CHECK_OK(stet_signal(f->engine, &s->turns, "word", stet_text("c"), NULL));
    EXPECT_RESULT(f->engine, &s->turns, "notedabc!");
    lost_expect_state(f, "g", "first turn|-");
    lost_expect_state(f, "p", "baseline|hello");
    lost_expect_state(f, "q", "-|-");
    lost_expect_state(f, "r", "fact|hello");
    lost_expect_state(f, "s", "newer baseline|hello");
    lost_expect_state(f, "u", "newer fact|hello");
    lost_expect_state(f, "w", "older fact|-");
    CHECK_INT(fixture_look(f->engine, &s->retrying).status, STET_STATUS_RETRYING);
    CHECK_INT(effects("tell 1"), 0);
    CHECK_OK(stet_cancel(f->engine, &s->hold, NULL, NULL));
    effects_await("tell 3", 1);
    told = effects_text();
    CHECK(strstr(told, "tell 1") < strstr(told, "tell 2") &&
          strstr(told, "tell 2") < strstr(told, "tell 3"));
    free(told);
    CHECK_INT(effects("tell 4"), 0);
    fixture_down(f);
}

/* ---- the file -------------------------------------------------------------------------------- */

#define LOST_NOW "CAST(strftime('%s','now') AS INTEGER)*1000+60000"

static const char lost_runs[] =
    "SELECT 'run',hex(id),handler,key,lane,status,terminal,inbox,created,ended,priority,attempt,"
    "grp,reason,hex(extra),work,CASE WHEN due<" LOST_NOW " THEN 'now' ELSE due END,"
    "(SELECT count(*) FROM runs b WHERE b.lane=r.lane AND b.lane_pos<r.lane_pos) "
    "FROM runs r ORDER BY id";
static const char lost_timers[] =
    "SELECT 'timer',fire,hex(run),completion FROM timers ORDER BY fire,run,completion";
static const char lost_values[] =
    "SELECT 'value',space,hex(key),hex(data),hex(run),rev,space='awk' AND version>1 "
    "FROM values_ WHERE space<>'handler' ORDER BY space,key"; /* workers write those anew */
static const char lost_parts[] = "SELECT 'part',type,name FROM sqlite_schema ORDER BY name";

static const char *const lost_queries[] = { lost_runs, lost_timers, lost_values, lost_parts };

static sqlite3 *
lost_open(const char *path)
{
    sqlite3 *db = NULL;

    CHECK_INT(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    CHECK_INT(sqlite3_busy_timeout(db, 20000), SQLITE_OK);
    return db;
}

char *
lost_text(const char *path)
{
    sqlite3      *db = lost_open(path);
    sqlite3_stmt *stmt;
    stet__buf     b;
    char         *out;

    stet__buf_init(&b, &stet__platform_real()->alloc);
    for (size_t i = 0; i < sizeof lost_queries / sizeof lost_queries[0]; i++) {
        if (sqlite3_prepare_v2(db, lost_queries[i], -1, &stmt, NULL) != SQLITE_OK)
            test_fail(__FILE__, __LINE__, "%s", sqlite3_errmsg(db));
        while (sqlite3_step(stmt) == SQLITE_ROW) {
            for (int k = 0; k < sqlite3_column_count(stmt); k++) {
                const char *text = (const char *)sqlite3_column_text(stmt, k);

                stet__buf_printf(&b, "%s|", text != NULL ? text : "-");
            }
            stet__buf_str(&b, "\n");
        }
        sqlite3_finalize(stmt);
    }
    sqlite3_close(db);
    out = strdup(stet__buf_cstr(&b));
    stet__buf_free(&b);
    CHECK(out != NULL);
    return out;
}

void
lost_sql(const char *path, const char *sql)
{
    sqlite3 *db = lost_open(path);

    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_close(db);
}

typedef struct lost_found {
    int findings, repaired;
} lost_found;

static int
lost_on_finding(void *arg, const stet_finding *finding)
{
    lost_found *found = arg;

    found->findings++;
    found->repaired += finding->is_repaired;
    if (!finding->is_repaired)
        test_note("not repaired: %s of %s: %s", finding->rule,
                  finding->run != NULL ? finding->run : "-", finding->text);
    return STET_OK;
}

void
lost_repair(const char *path, int *findings, int *repaired)
{
    lost_found   found = { 0, 0 };
    stet_engine *e = NULL;
    char         url[1024];

    (void)snprintf(url, sizeof url, "%s%crepair=1", path, strchr(path, '?') != NULL ? '&' : '?');
    CHECK_OK(stet_open(&e, url, STET_OPTIONS(.log_level = STET_LOG_OFF)));
    CHECK_OK(stet_repair(e, NULL, lost_on_finding, &found));
    stet_close(e);
    *findings = found.findings;
    *repaired = found.repaired;
}

#endif
