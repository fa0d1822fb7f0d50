/* Who serves what: names with spaces, kinds, workers of older builds. Rows A7, A8. tsan: yes */
#include "damage.h"

#include "engine/engine.h"

static const stet_handler         shop_handlers[] = { { "take order", h_echo, NULL },
                                                      { "pay", h_echo, NULL },
                                                      { 0 } };
static const stet_handler_options shared = { .shared = true };
static const stet_handler         box_handlers[] = { { "put in", h_echo, NULL },
                                                     { "look", h_echo, &shared },
                                                     { 0 } };
static const fixture_service      serves[] = { { "my shop", shop_handlers, false, NULL },
                                               { "box", box_handlers, true, NULL },
                                               { 0 } };

/* ---- listed ---------------------------------------------------------------------------------- */

typedef struct listed {
    char text[1024];
} listed;

static int
on_handler(void *arg, const stet_handler_info *i)
{
    listed *l = arg;
    size_t  len = strlen(l->text);

    (void)snprintf(l->text + len, sizeof l->text - len, "%s%s %s %zu%s", len > 0 ? ", " : "",
                   i->name,
                   i->is_shared   ? "shared"
                   : i->is_object ? "object"
                                  : "service",
                   i->workers, i->is_here ? " here" : "");
    return 0;
}

static listed
handlers_of(stet_engine *e)
{
    listed l = { "" };

    CHECK_OK(stet_handler_list(e, on_handler, &l));
    return l;
}

static int
on_worker(void *arg, const stet_worker_info *i)
{
    (void)snprintf(((listed *)arg)->text, sizeof(listed), "%s", i->handlers);
    return 0;
}

static int
on_served(void *arg, const stet_run_info *i)
{
    *(int *)arg += i->is_served;
    return 0;
}

static int
served(stet_engine *e)
{
    stet_run_filter all = { .size = sizeof all, .limit = 100 };
    int             n = 0;

    CHECK_OK(stet_run_list(e, &all, on_served, &n));
    return n;
}

TEST(A8_handlers_elsewhere_are_listed_by_name_with_their_kind)
{
    fixture     *f = fixture_begin();
    stet_engine *looker = fixture_open(f), *second;

    CHECK_STR(handlers_of(looker).text, "");
    fixture_up(f, serves);
    CHECK_STR(handlers_of(looker).text, "box.look shared 1, box.put in object 1, "
                                        "my shop.pay service 1, my shop.take order service 1");
    second = fixture_open_with(f, serves);
    CHECK_STR(handlers_of(second).text,
              "my shop.take order service 1 here, my shop.pay service 1 here, "
              "box.put in object 1 here, box.look shared 1 here");
    CHECK_OK(stet_engine_start(second));
    CHECK_STR(handlers_of(looker).text, "box.look shared 2, box.put in object 2, "
                                        "my shop.pay service 2, my shop.take order service 2");
    CHECK_OK(stet_engine_stop(second, 0));
    stet_close(second);
    stet_close(looker);
    fixture_end(f);
}

TEST(A8_a_handler_with_spaces_in_its_name_is_served_by_who_serves_it)
{
    fixture     *f = fixture_begin();
    stet_engine *looker = fixture_open(f);
    stet_run_id  run;
    listed       l = { "" };

    run = fixture_start(looker, "my shop.take order", "x", STET_START(.delay = "1h"));
    CHECK_INT(served(looker), 0);
    CHECK_OK(stet_handler_pause(looker, "my shop.pay", "ann", NULL));
    fixture_up(f, serves);
    CHECK_INT(served(looker), 1);
    CHECK_OK(stet_worker_list(looker, on_worker, &l));
    CHECK_STR(l.text, "my shop.take order\nmy shop.pay\nbox.put in\nbox.look");
    CHECK_STR(fixture_why(looker, &run).kind, "delay");
    run = fixture_start(looker, "my shop.take order", "y", NULL);
    EXPECT_RESULT(looker, &run, "y");
    fixture_down(f);
    run = fixture_start(looker, "my shop.take order", "z", NULL);
    CHECK_STR(fixture_why(looker, &run).kind, "no-worker");
    CHECK_INT(served(looker), 0);
    stet_close(looker);
    fixture_end(f);
}

/* ---- workers of older builds ----------------------------------------------------------------- */

/* As it was written before handlers were told apart by what no name contains. */
static uint64_t
older_worker(stet_engine *e, const char *words)
{
    stet__fact fact = { .kind = STET__FACT_ROW, .flags = STET_ROLE_WORKER | STET_ROLE_TIMERS };
    stet__buf  info;
    uint64_t   session = 0;

    fact.who = stet_text("older");
    fact.where = stet_text("here");
    fact.text = stet_text(words);
    stet__buf_init(&info, &e->p->alloc);
    stet__fact_encode(&info, &fact);
    CHECK_OK(e->store->ops->session_open(e->store, &session, stet__new_id(e), 60000,
                                         stet__buf_bytes(&info)));
    stet__buf_free(&info);
    return session;
}

TEST(A8_what_a_worker_of_an_older_build_serves_is_known)
{
    fixture     *f = fixture_begin();
    stet_engine *looker = fixture_open(f);
    stet_run_id  run;
    uint64_t     session;
    listed       l = { "" };

    run = fixture_start(looker, "t.b", "x", NULL);
    CHECK_STR(fixture_why(looker, &run).kind, "no-worker");
    session = older_worker(looker, "t.b t.a");
    CHECK_STR(fixture_why(looker, &run).kind, "ready");
    CHECK_INT(served(looker), 1);
    CHECK_STR(handlers_of(looker).text, "t.a service 1, t.b service 1");
    CHECK_OK(stet_worker_list(looker, on_worker, &l));
    CHECK_STR(l.text, "t.b\nt.a");
    CHECK_OK(looker->store->ops->session_close(looker->store, session));
    stet_close(looker);
    fixture_end(f);
}

/* Its record says nothing of kinds; that of a newer worker beside it does. */
TEST(A8_the_kind_is_told_by_whoever_knows_it)
{
    fixture     *f = fixture_begin();
    stet_engine *looker = fixture_open(f);
    uint64_t     session = older_worker(looker, "box.look");

    fixture_up(f, serves);
    CHECK_HAS(handlers_of(looker).text, "box.look shared 2, box.put in object 1");
    CHECK_OK(looker->store->ops->session_close(looker->store, session));
    stet_close(looker);
    fixture_end(f);
}

/* And it is understood by them: they find the names in the text, with spaces between. */
static int
on_record(void *arg, const stet_session_row *row)
{
    stet_bytes in = row->info;
    stet__fact fact;

    CHECK_OK(stet__fact_decode(&fact, &in));
    (void)snprintf(((listed *)arg)->text, sizeof(listed), "%.*s", (int)fact.text.len,
                   (const char *)fact.text.data);
    return 0;
}

TEST(A8_a_worker_of_an_older_build_understands_this_one)
{
    static const stet_handler plain[] = { { "a", h_echo, NULL }, { "b", h_echo, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    listed                    l = { "" };

    fixture_up_with(f, plain);
    CHECK_OK(f->engine->store->ops->sessions(f->engine->store, on_record, &l));
    CHECK_STR(l.text, "t.a t.b");
    fixture_end(f);
}

/* ---- A7: runs that nobody serves ------------------------------------------------------------- */

#define UNSERVED "no living worker serves it"

TEST(A7_a_worker_says_when_it_starts_which_handlers_with_due_runs_nobody_serves)
{
    fixture     *f = fixture_begin();
    stet_engine *looker = fixture_open(f);

    (void)fixture_start(looker, "nope.nope", "x", NULL);
    (void)fixture_start(looker, "nope.nope", "y", NULL);
    (void)fixture_start(looker, "my shop.look up", "z", NULL);
    CHECK_INT(fixture_logged(f, UNSERVED), 0);
    fixture_up_with(f, (stet_handler[]){ { "h", h_echo, NULL }, { 0 } });
    AWAIT(fixture_logged(f, UNSERVED) == 2);
    CHECK_INT(fixture_logged(f, "runs of nope.nope are due"), 1);
    CHECK_INT(fixture_logged(f, "runs of my shop.look up are due"), 1);
    stet_close(looker);
    fixture_end(f);
}

TEST(A7_a_handler_that_nobody_serves_is_named_once_and_no_other)
{
    static const stet_handler other[] = { { "h", h_echo, NULL }, { 0 } };
    fixture                  *f = fixture_begin();
    stet_engine              *worker; /* its keeper does not run: the test looks in its place */
    uint64_t                  reads;

    fixture_up(f, (fixture_service[]){ { "other", other, false, NULL }, { 0 } });
    worker = fixture_open_with(f, serves);
    CHECK_OK(stet_handler_pause(worker, "other.h", "ann", NULL));
    (void)fixture_start(worker, "other.h", "", NULL);                          /* served, paused */
    (void)fixture_start(worker, "later.run", "", STET_START(.delay = "1h"));   /* not due */
    (void)fixture_start(worker, "my shop.pay", "", STET_START(.delay = "1h")); /* served here */
    stet__unserved_look(worker);
    CHECK_INT(fixture_logged(f, UNSERVED), 0);
    (void)fixture_start(worker, "nope.nope", "", NULL);
    for (int i = 0; i < 3; i++) {
        reads = stet_engine_reads(worker);
        stet__unserved_look(worker);
        CHECK(stet_engine_reads(worker) - reads <= 6);
        CHECK_INT(fixture_logged(f, UNSERVED), 1);
        CHECK_INT(fixture_logged(f, "runs of nope.nope are due"), 1);
    }
    (void)fixture_start(worker, "nope.two", "", NULL);
    (void)fixture_start(worker, "nope.nope", "", NULL);
    stet__unserved_look(worker);
    CHECK_INT(fixture_logged(f, UNSERVED), 2);
    CHECK_INT(fixture_logged(f, "runs of nope.two are due"), 1);
    stet_close(worker);
    fixture_end(f);
}

/* A look reads a few runs only, and the next one goes on behind them. */
TEST(A7_a_handler_that_nobody_serves_is_found_among_many_runs)
{
    fixture     *f = fixture_begin();
    stet_engine *worker = fixture_open_with(f, serves);
    int          looks = 0;

    for (int i = 0; i < 560; i++) {
        /* Runs of one millisecond have no order among each other. */
        if (i == 290 || i == 291) {
            int64_t now_ms = stet_engine_now_ms(worker);

            AWAIT(stet_engine_now_ms(worker) > now_ms + 1);
        }
        (void)fixture_start(worker, i == 290 ? "nope.nope" : "my shop.pay", "",
                            i == 290 ? NULL : STET_START(.delay = "1h"));
    }
    while (fixture_logged(f, UNSERVED) == 0 && looks++ < 3)
        stet__unserved_look(worker);
    CHECK_INT(looks, 2);
    CHECK_INT(fixture_logged(f, "runs of nope.nope are due"), 1);
    stet_close(worker);
    fixture_end(f);
}
