/* Scopes of a handler when memory is out: on one simulated node, whose allocations fail to order. */
#include <string.h>

#include "engine/engine.h"
#include "exec/context.h"
#include "platform/platform.h"
#include "store/store.h"
#include "test.h"

static stet__sim      *scope_sim;
static stet__platform *scope_node;
static stet_handler_fn scope_handler;
static bool            scope_is_over;

static void
scope_on_exit(void *arg)
{
    (void)arg;
}

/* From here on nothing more can be had, not even from what the context has in reserve. */
static void
scope_exhaust(stet_ctx *ctx)
{
    stet__sim_node_memory(scope_sim, scope_node, 1);
    while (stet_on_exit(ctx, scope_on_exit, NULL) == STET_OK)
        continue;
}

static int
scope_starved(stet_ctx *ctx, stet_bytes input)
{
    const char *kept, *more;

    (void)input;
    stet_scope_begin(ctx);
    kept = stet_ctx_printf(ctx, "%s", "kept");
    scope_exhaust(ctx);
    stet_scope_begin(ctx); /* cannot have memory of its own */
    stet_scope_end(ctx);
    stet__sim_node_memory(scope_sim, scope_node, 0);
    more = stet_ctx_printf(ctx, "%s", "more");
    CHECK(ctx->scope != NULL);
    CHECK_STR(kept, "kept");
    CHECK_STR(more, "more");
    stet_scope_end(ctx);
    CHECK(ctx->scope == NULL);
    return stet_return(ctx, stet_text("done"));
}

/* Between a scope that could not begin and its end one that could has its turn. */
static int
scope_mixed(stet_ctx *ctx, stet_bytes input)
{
    const char *outer;

    (void)input;
    stet_scope_begin(ctx);
    outer = stet_ctx_printf(ctx, "%s", "outer");
    scope_exhaust(ctx);
    stet_scope_begin(ctx);
    stet__sim_node_memory(scope_sim, scope_node, 0);
    stet_scope_begin(ctx);
    CHECK_STR(stet_ctx_printf(ctx, "%s", "inner"), "inner");
    stet_scope_end(ctx);
    stet_scope_end(ctx);
    CHECK(ctx->scope != NULL);
    CHECK_STR(outer, "outer");
    stet_scope_end(ctx);
    CHECK(ctx->scope == NULL);
    return stet_return(ctx, stet_text("done"));
}

static int
scope_many(stet_ctx *ctx, stet_bytes input)
{
    (void)input;
    stet_scope_begin(ctx);
    stet_scope_end(ctx);
    scope_exhaust(ctx);
    for (int i = 0; i < 1000; i++) { /* an ended one is used again */
        stet_scope_begin(ctx);
        CHECK(ctx->scope != NULL);
        stet_scope_end(ctx);
    }
    stet__sim_node_memory(scope_sim, scope_node, 0);
    return stet_return(ctx, stet_text("done"));
}

static void
scope_story(void *arg)
{
    const stet_handler handlers[] = { { "run", scope_handler, NULL }, { NULL, NULL, NULL } };
    stet__memory_db   *db = stet__memory_db_new(scope_node);
    stet_store        *store;
    stet_engine       *e;
    stet_result        result;
    stet_run_id        run;

    (void)arg;
    CHECK(db != NULL);
    CHECK_OK(stet__memory_open(&store, scope_node, db));
    CHECK_OK(stet__open_on(&e, scope_node, store, "memory:", STET_OPTIONS(.concurrency = 1)));
    CHECK_OK(stet_register(e, "t", handlers));
    CHECK_OK(stet_engine_start(e));
    CHECK_OK(stet_invoke(e, &result, &run, "t.run", stet_text(""), NULL, 60000));
    stet_result_free(&result);
    stet_close(e);
    stet__memory_db_free(db);
    scope_is_over = true;
}

static void
scope_run(stet_handler_fn handler)
{
    scope_handler = handler;
    scope_is_over = false;
    CHECK((scope_sim = stet__sim_new(1)) != NULL);
    CHECK((scope_node = stet__sim_node_new(scope_sim)) != NULL);
    CHECK_OK(stet__sim_spawn(scope_sim, scope_node, scope_story, NULL));
    (void)stet__sim_run(scope_sim, 600000000);
    CHECK(scope_is_over);
    CHECK(stet__sim_node_is_clean(scope_sim, scope_node));
    stet__sim_free(scope_sim);
}

/* It would close the scope around it, and free what the handler still uses. */
TEST(B1_a_scope_without_memory_leaves_the_one_around_it_alone)
{
    scope_run(scope_starved);
    scope_run(scope_mixed);
}

TEST(B1_scopes_in_a_loop_take_no_memory)
{
    scope_run(scope_many);
}
