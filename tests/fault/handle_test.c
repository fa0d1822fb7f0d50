/* Handles that are of no use any more: closed, or taken along into a child process. Every method
 * says so, on every store that is a file or a server, and the handle of the parent goes on. */
#include <sys/wait.h>
#include <unistd.h>

#include "cluster.h"
#include "redis_server.h"
#include "store/store.h"
#include "test.h"

static void
handle_share(void)
{
    cluster_share();
    redis_server_share();
}

__attribute__((constructor)) static void
handle_servers(void)
{
    test_before(handle_share);
}

static int
on_run(void *arg, const stet_run_row *row)
{
    (void)arg, (void)row;
    return STET_OK;
}

static int
on_facts(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    (void)arg, (void)first, (void)count, (void)facts;
    return STET_OK;
}

static int
on_timer(void *arg, const stet_timer *timer)
{
    (void)arg, (void)timer;
    return STET_OK;
}

static int
on_value(void *arg, stet_bytes key, const stet_value *value)
{
    (void)arg, (void)key, (void)value;
    return STET_OK;
}

static int
on_lane(void *arg, stet_id run)
{
    (void)arg, (void)run;
    return STET_OK;
}

static int
on_session(void *arg, const stet_session_row *row)
{
    (void)arg, (void)row;
    return STET_OK;
}

static void
on_hint(void *arg)
{
    (void)arg;
}

static int
on_sentence(void *arg, const char *sentence)
{
    (void)arg, (void)sentence;
    return STET_OK;
}

static int
handle_put(stet_store *s, uint64_t seq)
{
    stet_op op = { .kind = STET_OP_VALUE_PUT, .space = "s", .key = stet_text("k"),
                   .data = stet_text("v") };
    stet_unit    unit = { .seq = seq, .ops = &op, .n_ops = 1 };
    stet_outcome out = { 0 };

    return s->ops->commit(s, &unit, 1, &out);
}

/* Every method that can say it. */
static void
handle_refuses(stet_store *s, uint64_t session, int want)
{
    const stet_store_ops *ops = s->ops;
    stet_run_query        query = { .limit = 9 }, lost = { .limit = 9, .is_lost = true };
    static const char *const handlers[] = { "h.a" };
    stet_id               id = { { 1 } };
    stet_value            value;
    stet_crumb           *crumbs;
    stet_tx              *tx;
    uint64_t              number;
    int64_t               ms;
    size_t                n;

    CHECK_CODE(handle_put(s, 9), want);
    CHECK_CODE(ops->session_open(s, &number, id, 1000, stet_text("")), want);
    CHECK_CODE(ops->session_renew(s, session, 1000), want);
    CHECK_CODE(ops->session_close(s, session), want);
    CHECK_CODE(ops->sessions(s, on_session, NULL), want);
    CHECK(ops->crumbs(s, session, 1) == NULL);
    CHECK_CODE(ops->crumbs_of(s, session, &crumbs, &n), want);
    CHECK_CODE(ops->run(s, id, on_run, NULL), want);
    CHECK_CODE(ops->runs(s, &query, on_run, NULL), want);
    CHECK_CODE(ops->runs(s, &lost, on_run, NULL), want);
    CHECK_CODE(ops->journal(s, id, 1, 9, on_facts, NULL), want);
    CHECK_CODE(ops->inbox(s, id, 1, 9, on_facts, NULL), want);
    CHECK_CODE(ops->timers(s, 1, 9, on_timer, NULL, &ms), want);
    CHECK_CODE(ops->timers_of(s, id, on_timer, NULL), want);
    CHECK_CODE(ops->value(s, "s", stet_text("k"), &value), want);
    CHECK_CODE(ops->values(s, "s", stet_text(""), NULL, 9, on_value, NULL), want);
    CHECK_CODE(ops->lane(s, "l", 9, on_lane, NULL), want);
    CHECK_CODE(ops->maintain(s), want);
    CHECK_CODE(ops->ping(s), want);
    CHECK_CODE(ops->due(s, handlers, 1, &ms), want);
    if (ops->watch != NULL)
        CHECK_CODE(ops->watch(s, on_hint, NULL), want);
    if (ops->tx_begin != NULL)
        CHECK_CODE(ops->tx_begin(s, 1000, &tx), want);
    if (ops->doctor != NULL)
        CHECK_CODE(ops->doctor(s, on_sentence, NULL), want);
    if (ops->hint != NULL)
        ops->hint(s);
}

/* ---- units that make no sense ---------------------------------------------------------------- */

static void
handle_refuses_unit(stet_store *s, uint64_t *seq, const stet_cond *cond, const stet_op *op)
{
    stet_unit    unit = { .seq = ++*seq, .conds = cond, .n_conds = cond != NULL, .ops = op,
                          .n_ops = op != NULL };
    stet_outcome out = { 0 };

    CHECK_OK(s->ops->commit(s, &unit, 1, &out));
    if (out.result != STET_EINVAL)
        test_fail(__FILE__, __LINE__, "%s %d is answered with %s",
                  op != NULL ? "operation" : "condition",
                  op != NULL ? (int)op->kind : (int)cond->kind, stet_code_name(out.result));
    stet__free(s->alloc, out.grants);
}

static void
handle_bad_units(const char *url)
{
    stet_run_row    owned = { .id = { { 1 } }, .handler = "h.a", .session = 3 };
    stet_run_row    nameless = { .id = { { 2 } } };
    const stet_cond conds[] = {
        { .kind = STET_COND_VALUE, .key = stet_text("k") },
        { .kind = STET_COND_WRITER, .key = stet_text("k") },
        { .kind = (stet_cond_kind)99 },
    };
    const stet_op ops[] = {
        { .kind = STET_OP_RUN_PUT },
        { .kind = STET_OP_RUN_PUT, .row = &nameless, .run = { { 2 } } },
        { .kind = STET_OP_RUN_SET },
        { .kind = STET_OP_RUN_SET, .row = &owned, .run = { { 1 } }, .mask = STET_RUN_OWNER },
        { .kind = STET_OP_FACTS, .run = { { 1 } }, .number = 1, .data = stet_text("x") },
        { .kind = STET_OP_VALUE_PUT, .key = stet_text("k"), .data = stet_text("v") },
        { .kind = STET_OP_VALUE_DEL, .key = stet_text("k") },
        { .kind = STET_OP_LANE_ENTER, .run = { { 1 } } },
        { .kind = STET_OP_CLAIM_DUE, .count = 1 },
        { .kind = STET_OP_REQUEUE },
        { .kind = (stet_op_kind)99 },
    };
    stet_store *s;
    uint64_t    seq = 0;

    CHECK_OK(stet__store_open(&s, stet__platform_real(), url));
    for (size_t i = 0; i < sizeof conds / sizeof *conds; i++)
        handle_refuses_unit(s, &seq, &conds[i], NULL);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        handle_refuses_unit(s, &seq, NULL, &ops[i]);
    CHECK_OK(handle_put(s, seq + 1)); /* and nothing stands in the way of others */
    stet__store_close(s);
}

static void
handle_test(const char *url)
{
    stet_store *s;
    uint64_t    session;
    stet_value  value;
    int         status;
    pid_t       child;

    CHECK_OK(stet__store_open(&s, stet__platform_real(), url));
    CHECK_OK(s->ops->session_open(s, &session, (stet_id){ { 1 } }, 60000, stet_text("")));
    CHECK_OK(handle_put(s, 1));
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        handle_refuses(s, session, STET_EFORKED);
        stet__store_close(s);
        _exit(0);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    CHECK_OK(handle_put(s, 2));
    CHECK_OK(s->ops->session_renew(s, session, 60000));
    CHECK_OK(s->ops->value(s, "s", stet_text("k"), &value));
    CHECK_INT(value.version, 2);
    stet__free(s->alloc, (void *)(uintptr_t)value.data.data);
    s->ops->close(s);
    handle_refuses(s, session, STET_ESTATE);
    stet__store_close(s);
}

/* The servers are shared with other runs of this program. */
__attribute__((unused)) static const char *
handle_name(const char *what)
{
    static char name[80];

    (void)snprintf(name, sizeof name, "%s_%s", what, test_unique());
    return name;
}

#ifdef STET_WITH_SQLITE
TEST(G2_sqlite_handles_that_are_closed_or_forked_say_so)
{
    handle_test(test_path("handle.db"));
}

TEST(F1_sqlite_units_that_make_no_sense_are_refused)
{
    handle_bad_units(test_path("bad.db"));
}
#endif

#ifdef STET_WITH_POSTGRES
TEST(G3_postgres_handles_that_are_closed_or_forked_say_so)
{
    handle_test(cluster_url(handle_name("handle")));
}

TEST(F1_postgres_units_that_make_no_sense_are_refused)
{
    handle_bad_units(cluster_url(handle_name("bad")));
}
#endif

#ifdef STET_WITH_REDIS
TEST(G4_redis_handles_that_are_closed_or_forked_say_so)
{
    handle_test(redis_shared_url(handle_name("handle")));
}

TEST(F1_redis_units_that_make_no_sense_are_refused)
{
    handle_bad_units(redis_shared_url(handle_name("bad")));
}
#endif
