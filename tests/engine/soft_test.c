/* Claims that the store granted and did not flush (stet_grant.is_soft): handler code goes on with
 * them, a body does not before a record under the claim is durable. tsan: yes */
#include "fixture.h"

#include "engine/engine.h"

/* ---- a store whose grants are all soft ------------------------------------------------------- */

static stet_store_ops        soft;
static const stet_store_ops *hard;
static stet_store           *server; /* another handle on the same data */
static atomic_bool           loses;   /* the next claim that something is recorded under, once */
static atomic_int            records; /* units under a claim that were applied */

static bool
soft_is_record(const stet_unit *u)
{
    return u->n_conds > 0 && u->conds[0].kind == STET_COND_CLAIM;
}

/* The server crashed and came back without the claim: the run is due. */
static void
soft_lose(const stet_id *run)
{
    stet_run_row row = { .id = *run, .status = STET_STATUS_PENDING,
                         .due_ms = server->ops->now_ms(server), .ended_ms = STET_NEVER };
    stet_op      op = { .kind = STET_OP_RUN_SET, .row = &row,
                        .mask = STET_RUN_STATUS | STET_RUN_OWNER };
    stet_unit    unit = { .seq = 1, .ops = &op, .n_ops = 1 };
    stet_outcome out;

    CHECK_OK(server->ops->commit(server, &unit, 1, &out));
    CHECK_INT(out.result, STET_OK);
    stet__free(server->alloc, out.grants);
}

static int
soft_commit(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    int err;

    for (size_t i = 0; i < n; i++)
        if (soft_is_record(&units[i]) && atomic_exchange(&loses, false))
            soft_lose(&units[i].conds[0].run);
    if ((err = hard->commit(s, units, n, outcomes)) != STET_OK)
        return err;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < outcomes[i].n_grants; j++)
            outcomes[i].grants[j].is_soft = true;
        if (soft_is_record(&units[i]) && outcomes[i].result == STET_OK)
            atomic_fetch_add(&records, 1);
    }
    return STET_OK;
}

typedef struct world {
    fixture     *f;
    stet_engine *client, *other;
} world;

/* A worker on it, which does not run yet, and a client: what that starts is claimed later. */
static void
world_begin(world *w, const stet_handler *handlers)
{
    fixture_service services[] = { { "t", handlers, false, NULL }, { 0 } };

    w->f = fixture_begin();
    w->f->engine = fixture_open_with(w->f, services);
    hard = w->f->engine->store->ops;
    soft = *hard;
    soft.commit = soft_commit;
    w->f->engine->store->ops = &soft;
    atomic_store(&records, 0);
    atomic_store(&loses, false);
    w->f->options.roles = STET_ROLE_CLIENT;
    w->client = fixture_open(w->f);
    CHECK_OK(stet_engine_start(w->client));
    w->other = fixture_open(w->f);
    server = w->other->store;
}

static void
world_end(world *w)
{
    stet_close(w->client);
    stet_close(w->other);
    fixture_end(w->f);
}

/* ---- handlers -------------------------------------------------------------------------------- */

static int
body_asks(stet_attempt *a, void *arg)
{
    (void)arg;
    effect("body after %s", atomic_load(&records) > 0 ? "a record" : "nothing");
    return stet_attempt_return(a, stet_text("done"));
}

static int
body_fails_once(stet_attempt *a, void *arg)
{
    static atomic_int times;

    (void)a;
    (void)arg;
    effect("try");
    return atomic_fetch_add(&times, 1) == 0 ? STET_EIO : STET_OK;
}

static int
h_body(stet_ctx *ctx, stet_bytes input)
{
    effect("enter");
    STET_TRY(stet_step(ctx, NULL, "asks", body_asks, NULL, NULL));
    return stet_return(ctx, input);
}

static int
h_fails_once(stet_ctx *ctx, stet_bytes input)
{
    STET_TRY(stet_step(ctx, NULL, "tries", body_fails_once, NULL,
                       STET_STEP(.attempts = 3, .first_ms = 1, .max_ms = 1)));
    return stet_return(ctx, input);
}

static const stet_handler handlers[] = { { "body", h_body, NULL },
                                         { "fails_once", h_fails_once, NULL },
                                         { "approval", h_approval, NULL },
                                         { 0 } };

/* ---- tests ----------------------------------------------------------------------------------- */

/* Nothing else is there to be recorded before the first body: the claim itself is. */
TEST(F1_a_body_waits_until_its_claim_is_durable)
{
    stet_run_id run;
    world       w;

    world_begin(&w, handlers);
    run = fixture_start(w.client, "t.body", "ok", NULL);
    CHECK_OK(stet_engine_start(w.f->engine));
    CHECK_OK(stet_wait(w.client, NULL, &run, 0));
    CHECK_INT(effects("body after a record"), 1);
    CHECK_INT(effects("body after nothing"), 0);
    world_end(&w);
}

TEST(F1_a_claim_that_the_server_lost_enters_no_body)
{
    stet_run_id run;
    world       w;

    world_begin(&w, handlers);
    run = fixture_start(w.client, "t.body", "ok", NULL);
    atomic_store(&loses, true);
    CHECK_OK(stet_engine_start(w.f->engine));
    CHECK_OK(stet_wait(w.client, NULL, &run, 0));
    CHECK(!atomic_load(&loses));
    CHECK_INT(effects("enter"), 2);
    CHECK_INT(effects("body after a record"), 1);
    CHECK_INT(effects("body after nothing"), 0);
    world_end(&w);
}

TEST(B9_a_retry_goes_on_with_a_claim_that_is_not_flushed)
{
    stet_run_id run;
    world       w;

    world_begin(&w, handlers);
    run = fixture_start(w.client, "t.fails_once", "ok", NULL);
    CHECK_OK(stet_engine_start(w.f->engine));
    CHECK_OK(stet_wait(w.client, NULL, &run, 0));
    CHECK_INT(effects("try"), 2);
    world_end(&w);
}

TEST(B6_a_resolved_run_goes_on_with_a_claim_that_is_not_flushed)
{
    stet_result result;
    stet_run_id run;
    world       w;

    world_begin(&w, handlers);
    run = fixture_start(w.client, "t.approval", "{}", NULL);
    CHECK_OK(stet_engine_start(w.f->engine));
    effects_await("handed out", 1);
    CHECK_OK(stet_resolve(w.client, handed_out, stet_text("\"yes\"")));
    CHECK_OK(stet_wait(w.client, &result, &run, 0));
    CHECK_INT(result.status, STET_STATUS_COMPLETED);
    stet_result_free(&result);
    world_end(&w);
}
