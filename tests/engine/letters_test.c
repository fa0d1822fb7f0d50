/* Dead letters that are long, damaged or just gone. Row C3. */
#include <stdatomic.h>

#include "damage.h"
#include "engine/engine.h"
#include "fixture.h"

enum { NAPS = 300 }; /* more than a page of the journal and of the inbox */

static _Atomic bool is_mended;
static _Atomic int  bodies;

static int
body_count(stet_attempt *a, void *arg)
{
    (void)arg;
    atomic_fetch_add(&bodies, 1);
    return stet_attempt_return(a, stet_text("once"));
}

static int
h_long(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes value;

    STET_TRY(stet_step(ctx, &value, "first", body_count, NULL, NULL));
    for (int i = 0; i < NAPS; i++)
        STET_TRY(stet_sleep_ms(ctx, "nap", 1));
    STET_TRY(stet_step(ctx, &value, "last", body_count, NULL, NULL));
    if (!atomic_load(&is_mended))
        return stet_fail(ctx, STET_EPERMANENT, "not mended yet");
    return stet_return(ctx, input);
}

static int
h_fail(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    return stet_fail(ctx, STET_EPERMANENT, "no way");
}

/* One word is for the generation before, and another comes when nobody waits for one. */
static int
h_turned(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes word;
    int        rc;

    if (stet_info(ctx)->generation == 0) {
        STET_TRY(stet_await_signal(ctx, &word, "word", NULL));
        return stet_continue(ctx, input);
    }
    STET_TRY(stet_await_signal(ctx, NULL, "go", NULL));
    if (!atomic_load(&is_mended))
        return stet_fail(ctx, STET_EPERMANENT, "not mended yet");
    if ((rc = stet_await_signal(ctx, &word, "word", "50ms")) == STET_ETIMEOUT)
        return stet_return(ctx, stet_text("no word"));
    return rc != STET_OK ? rc : stet_return(ctx, word);
}

static const stet_handler letters[] = {
    { "turned", h_turned, NULL }, { "long", h_long, NULL }, { "fail", h_fail, NULL }, { 0 }
};

static stet_run_id
letter(fixture *f, const char *handler)
{
    stet_run_id run = fixture_start(f->engine, handler, "in", NULL);
    stet_result r = EXPECT_END(f->engine, &run, STET_ERUN);

    stet_result_free(&r);
    return run;
}

/* What a generation before the last one had taken is no part of the last one. */
TEST(C3_B22_a_retry_is_not_given_a_signal_that_an_older_generation_took)
{
    fixture    *f = fixture_begin();
    stet_run_id run, retry;

    atomic_store(&is_mended, false);
    fixture_up_with(f, letters);
    run = fixture_start(f->engine, "t.turned", "in", NULL);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_signal(f->engine, &run, "word", stet_text("old"), NULL));
    AWAIT(fixture_facts(f->engine, &run, "signal wait", "go") == 1);
    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_signal(f->engine, &run, "go", stet_text(""), NULL));
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    atomic_store(&is_mended, true);
    CHECK_OK(stet_dlq_retry(f->engine, &retry, &run));
    EXPECT_RESULT(f->engine, &retry, "no word");
    fixture_end(f);
}

TEST_LIMIT(C3_a_retry_of_a_run_of_many_pages_inherits_all_of_it, 120)
{
    fixture    *f = fixture_begin();
    stet_run_id run, again;

    fixture_up_with(f, letters);
    run = letter(f, "t.long");
    CHECK_INT(atomic_load(&bodies), 2);
    atomic_store(&is_mended, true);
    CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
    EXPECT_RESULT(f->engine, &again, "in");
    CHECK_INT(atomic_load(&bodies), 2); /* no recorded step ran again */
    CHECK_INT(fixture_facts(f->engine, &again, "sleep", "nap"), NAPS);
    CHECK_INT(fixture_facts(f->engine, &again, "timer fired", NULL), NAPS);
    CHECK_INT(fixture_facts(f->engine, &again, "suspended", NULL), 0); /* none is slept again */
    fixture_end(f);
}

#ifdef STET_WITH_SQLITE
TEST(C3_a_letter_whose_facts_cannot_be_read_is_not_retried)
{
    static const struct {
        const char *sql, *said;
        int         code;
    } all[] = {
        { "UPDATE facts SET data=x'00' WHERE run=?1 AND rev=1", "not believable", STET_ECORRUPT },
        { "UPDATE facts SET data=x'' WHERE run=?1 AND rev=1", "", STET_ECORRUPT },
        { "DELETE FROM facts WHERE run=?1 AND rev=1", "first fact is not readable", STET_ECORRUPT },
        { "DELETE FROM facts WHERE run=?1", "first fact is not readable", STET_ECORRUPT },
        { "UPDATE runs SET extra=x'07' WHERE id=?1", "", STET_ECORRUPT },
    };
    stet_bytes none = { NULL, 0 };
    fixture   *f = fixture_begin();

    if (!f->is_sqlite)
        test_skip("needs a file");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        stet_run_id run, again;

        fixture_up_with(f, letters);
        run = letter(f, "t.fail");
        fixture_down(f);
        damage_sql(f, all[i].sql, &run, none);
        fixture_up_with(f, letters);
        test_note("%s", all[i].sql);
        CHECK_CODE(stet_dlq_retry(f->engine, &again, &run), all[i].code);
        CHECK_HAS(stet_last_error(), all[i].said);
        fixture_down(f);
    }
    f->engine = NULL;
    fixture_end(f);
}
#endif

/* ---- gone between two looks ------------------------------------------------------------------ */

static int (*real_inbox)(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn,
                         void *arg);
static fixture    *here;
static stet_run_id gone;

static int
inbox_after_removal(stet_store *s, stet_id run, uint64_t from, size_t limit, stet_facts_fn fn,
                    void *arg)
{
    stet_op op = { .kind = STET_OP_RUN_DEL, .run = damage_id(&gone) };

    damage_do(here, &op, 1);
    return real_inbox(s, run, from, limit, fn, arg);
}

TEST(C3_a_letter_that_is_removed_while_it_is_retried_is_not_found)
{
    stet_engine *client;
    stet_run_id  again;

    here = fixture_begin();
    fixture_up_with(here, letters);
    gone = letter(here, "t.fail");
    here->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(here);
    real_inbox = client->store->ops->inbox;
    damage_ops(client)->inbox = inbox_after_removal;
    CHECK_CODE(stet_dlq_retry(client, &again, &gone), STET_ENOTFOUND);
    stet_close(client);
    CHECK_INT(fixture_count(here->engine, NULL), 0);
    fixture_end(here);
}

/* ---- state ----------------------------------------------------------------------------------- */

/* How many deposits of h_deposits() work. */
static _Atomic int n_deposits;

static int
deposit(stet_ctx *ctx)
{
    stet_bytes n;

    STET_TRY(stet_state_get(ctx, &n, "n"));
    return stet_state_set(ctx, "n", stet_text(stet_ctx_printf(ctx, "%ld", fixture_number(n) + 1)));
}

/* Three deposits; it fails behind some of them. */
static int
h_deposits(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes n;

    (void)input;
    for (int i = 0; i < 3; i++) {
        if (i == atomic_load(&n_deposits))
            return stet_fail(ctx, STET_EPERMANENT, "after %d", i);
        STET_TRY(deposit(ctx));
    }
    STET_TRY(stet_state_get(ctx, &n, "n"));
    return stet_return(ctx, n);
}

static int
h_deposit(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(deposit(ctx));
    return stet_return(ctx, input);
}

/* Each retry reads what others have written, and inherits what the one before it read to write. */
TEST(C3_A2_a_retry_of_a_retry_loses_no_write_of_others)
{
    static const stet_handler    accounts[] = { { "deposits", h_deposits, NULL },
                                                { "deposit", h_deposit, NULL },
                                                { 0 } };
    static const fixture_service services[] = { { "account", accounts, true, NULL }, { 0 } };
    fixture                     *f = fixture_begin();
    stet_run_id                  run, other, again;

    fixture_up(f, services);
    atomic_store(&n_deposits, 1);
    run = fixture_start(f->engine, "account.deposits", "", STET_START(.key = "k"));
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    for (int i = 2; i <= 3; i++) {
        other = fixture_start(f->engine, "account.deposit", "", STET_START(.key = "k"));
        EXPECT_RESULT(f->engine, &other, "");
        atomic_store(&n_deposits, i);
        CHECK_OK(stet_dlq_retry(f->engine, &again, &run));
        if (i == 2)
            EXPECT_ANSWER(f->engine, &again, STET_ERUN);
        run = again;
    }
    EXPECT_RESULT(f->engine, &run, "5"); /* three of its own, two of others */
    fixture_end(f);
}
