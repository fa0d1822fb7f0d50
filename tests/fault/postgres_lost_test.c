/* Connections that are cut at a commit, servers that hang or are restarted, a pooler in between:
 * units are applied once, everything goes on by itself, and nothing waits for ever. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "platform/platform.h"
#include "proxy.h"
#include "store/postgres.h"
#include "test.h"

__attribute__((constructor)) static void
lost_server(void)
{
    test_before(cluster_share);
}

static const char *
lost_schema(void)
{
    static char schema[32];

    (void)snprintf(schema, sizeof schema, "l_%s", test_unique());
    return schema;
}

static stet_store *
lost_open(const char *url)
{
    stet_store *s;

    CHECK_OK(stet__store_open(&s, stet__platform_real(), url));
    return s;
}

/* One more value "k"; the outcome is in *out. */
static int
put(stet_store *s, uint64_t seq, stet_outcome *out)
{
    stet_op op = {
        .kind = STET_OP_VALUE_PUT, .space = "s", .key = stet_text("k"), .data = stet_text("v")
    };
    stet_unit unit = { .seq = seq, .ops = &op, .n_ops = 1 };

    return s->ops->commit(s, &unit, 1, out);
}

static uint64_t
version(stet_store *s)
{
    stet_value value;
    int        err = s->ops->value(s, "s", stet_text("k"), &value);

    if (err == STET_ENOTFOUND)
        return 0;
    CHECK_OK(err);
    stet__free(s->alloc, (void *)(uintptr_t)value.data.data);
    return value.version;
}

static int64_t
now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Again until it is settled, as the engine does. */
static void
settle(stet_store *s, uint64_t seq, stet_outcome *out)
{
    int64_t until = now_ms() + INT64_C(40000) * test_slow();
    int     err;

    while ((err = put(s, seq, out)) != STET_OK) {
        if (now_ms() > until)
            test_fail(__FILE__, __LINE__, "never settled: %s", stet_last_error());
        (void)poll(NULL, 0, 5);
    }
}

/* The same of reads. */
static uint64_t
version_at_last(stet_store *s)
{
    int64_t until = now_ms() + INT64_C(40000) * test_slow();

    while (s->ops->ping(s) != STET_OK) {
        if (now_ms() > until)
            test_fail(__FILE__, __LINE__, "never reached: %s", stet_last_error());
        (void)poll(NULL, 0, 5);
    }
    return version(s);
}

static void
cut_at_commit(proxy_fault fault, bool is_applied, bool is_pooled)
{
    proxy       *p = proxy_new();
    stet_store  *s;
    stet_outcome out;

    if (is_pooled)
        proxy_pool(p);
    s = lost_open(proxy_url(p, lost_schema(), ""));
    CHECK_OK(put(s, 1, &out));
    for (uint64_t seq = 2; seq <= 5; seq++) {
        int before = proxy_faults(p);

        /* The name of the commit's statement; behind a pooler it has none. */
        proxy_fault_next(p, fault, is_pooled ? "READ COMMITTED" : "stet0");
        CHECK_CODE(put(s, seq, &out), STET_EUNCERTAIN);
        CHECK_INT(proxy_faults(p), before + 1);
        CHECK_HAS(stet_last_error(), "not known");
        settle(s, seq, &out);
        CHECK_INT(out.result, STET_OK);
        CHECK_INT(out.is_repeat, is_applied);
        CHECK_INT(version(s), seq);
    }
    stet__store_close(s);
    proxy_free(p);
}

TEST(F6_postgres_a_commit_whose_answer_is_lost_is_applied_once)
{
    cut_at_commit(PROXY_LOSE_ANSWER, true, false);
}

TEST(F6_postgres_a_commit_that_never_arrived_is_applied_once)
{
    cut_at_commit(PROXY_LOSE_REQUEST, false, false);
}

#ifdef LIBPQ_HAS_PIPELINING
TEST(F6_postgres_a_commit_behind_a_pooler_whose_answer_is_lost_is_applied_once)
{
    cut_at_commit(PROXY_LOSE_ANSWER, true, true);
}

TEST(F6_postgres_a_commit_behind_a_pooler_that_never_arrived_is_applied_once)
{
    cut_at_commit(PROXY_LOSE_REQUEST, false, true);
}
#endif

TEST(G3_a_server_that_hangs_is_given_up)
{
    proxy       *p = proxy_new();
    stet_store  *s = lost_open(proxy_url(p, lost_schema(), "&answer_timeout=1"));
    stet_outcome out;

    CHECK_OK(put(s, 1, &out));
    proxy_fault_next(p, PROXY_HANG, "stet0");
    CHECK_CODE(put(s, 2, &out), STET_EUNCERTAIN);
    CHECK_HAS(stet_last_error(), "did not answer in 1000 ms");
    settle(s, 2, &out);
    CHECK(!out.is_repeat);
    CHECK_INT(version(s), 2);
    stet__store_close(s);
    proxy_free(p);
}

/* Reads and renewals may be repeated, so they are, and nobody hears of it. */
TEST(G3_a_lost_connection_is_not_noticed_by_reads_and_renewals)
{
    proxy       *p = proxy_new();
    stet_store  *s = lost_open(proxy_url(p, lost_schema(), ""));
    stet_outcome out;
    uint64_t     session;
    char         name[16];

    CHECK_OK(put(s, 1, &out));
    CHECK_OK(s->ops->session_open(s, &session, (stet_id){ { 1 } }, 60000, stet_text("")));
    CHECK_OK(s->ops->session_renew(s, session, 60000));
    CHECK_INT(version(s), 1);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(name, sizeof name, "stet%d", (int)PG_SQL_VALUE_GET);
        proxy_fault_next(p, PROXY_LOSE_ANSWER, name);
        CHECK_INT(version(s), 1);
        (void)snprintf(name, sizeof name, "stet%d", (int)PG_SQL_SESSION_RENEW);
        proxy_fault_next(p, PROXY_LOSE_REQUEST, name);
        CHECK_OK(s->ops->session_renew(s, session, 60000));
    }
    CHECK_INT(proxy_faults(p), 6);
    stet__store_close(s);
    proxy_free(p);
}

/* ---- a pooler -------------------------------------------------------------------------------- */

static void
pool_hint(void *arg)
{
    (void)arg;
}

TEST(G3_behind_a_pooler_there_are_no_hints_and_it_is_told)
{
    proxy       *p = proxy_new();
    stet_store  *s;
    stet_outcome out;

    proxy_pool(p);
    s = lost_open(proxy_url(p, lost_schema(), ""));
    for (uint64_t seq = 1; seq <= 3; seq++)
        CHECK_OK(put(s, seq, &out));
    CHECK_INT(version(s), 3);
    CHECK_CODE(s->ops->watch(s, pool_hint, NULL), STET_ESTATE);
    CHECK_HAS(stet_last_error(), "pooler");
    s->ops->unwatch(s);
    /* Nothing is prepared: another server process would not know it. */
    proxy_fault_next(p, PROXY_LOSE_REQUEST, "stet0");
    CHECK_OK(put(s, 4, &out));
    CHECK_INT(proxy_faults(p), 0);
    stet__store_close(s);
    proxy_free(p);
}

/* ---- hints ----------------------------------------------------------------------------------- */

static _Atomic int step_hints;

static void
step_hint(void *arg)
{
    (void)arg;
    atomic_fetch_add(&step_hints, 1);
}

/* Else every step of a worker would wake all the others, and they would look for work in vain. */
TEST(G9_postgres_a_step_that_is_recorded_is_no_hint)
{
    stet_store  *s = lost_open(cluster_url(lost_schema()));
    stet_store  *other = lost_open(cluster_url(lost_schema()));
    stet_run_row row = {
        .id = { { 7 } }, .handler = "a.one", .due_ms = STET_NEVER, .ended_ms = STET_NEVER
    };
    stet_op      run = { .kind = STET_OP_RUN_PUT, .run = row.id, .row = &row };
    stet_unit    unit = { .seq = 1, .ops = &run, .n_ops = 1 };
    stet_outcome out;

    CHECK_OK(s->ops->commit(s, &unit, 1, &out));
    CHECK_INT(out.result, STET_OK);
    CHECK_OK(other->ops->watch(other, step_hint, NULL));
    for (int i = 1; i <= 20; i++) {
        int64_t until = now_ms() + INT64_C(40000) * test_slow();
        stet_op facts = { .kind = STET_OP_FACTS,
                          .run = row.id,
                          .number = (uint64_t)i,
                          .count = 1,
                          .data = stet_text("fact") };

        unit = (stet_unit){ .seq = (uint64_t)i * 2, .ops = &facts, .n_ops = 1 };
        CHECK_OK(s->ops->commit(s, &unit, 1, &out));
        CHECK_INT(out.result, STET_OK);
        CHECK_OK(put(s, (uint64_t)i * 2 + 1, &out));
        while (atomic_load(&step_hints) < i && now_ms() < until)
            (void)poll(NULL, 0, 1);
        CHECK_INT(atomic_load(&step_hints), i);
    }
    stet__store_close(other);
    stet__store_close(s);
}

/* What one that watches tells, the others hear byte for byte; a commit of it tells nothing by
 * itself; what is too much for one notification becomes "something changed"; and so does
 * nonsense. */
typedef struct heard {
    pthread_mutex_t lock;
    int             n, any;
    char            last[600];
    size_t          len;
} heard;

static void
heard_told(void *arg, const void *bytes, size_t len)
{
    heard *h = arg;

    pthread_mutex_lock(&h->lock);
    h->n++;
    h->len = len < sizeof h->last ? len : sizeof h->last;
    memcpy(h->last, bytes, h->len);
    pthread_mutex_unlock(&h->lock);
}

static void
heard_any(void *arg)
{
    heard *h = arg;

    pthread_mutex_lock(&h->lock);
    h->any++;
    pthread_mutex_unlock(&h->lock);
}

static int
heard_count(heard *h, const int *which)
{
    int n;

    pthread_mutex_lock(&h->lock);
    n = *which;
    pthread_mutex_unlock(&h->lock);
    return n;
}

static void
heard_await(heard *h, const int *which, int n)
{
    int64_t until = now_ms() + INT64_C(40000) * test_slow();

    while (heard_count(h, which) < n && now_ms() < until)
        (void)poll(NULL, 0, 1);
    CHECK(heard_count(h, which) >= n);
}

TEST(G9_postgres_what_is_told_is_heard)
{
    static const uint8_t bytes[] = { 0, 1, ':', 0xff, 'x' };
    stet_store          *s = lost_open(cluster_url(lost_schema()));
    stet_store          *other = lost_open(cluster_url(lost_schema()));
    stet_store          *third = lost_open(cluster_url(lost_schema()));
    heard                mine = { .lock = PTHREAD_MUTEX_INITIALIZER };
    heard                h = { .lock = PTHREAD_MUTEX_INITIALIZER };
    stet_outcome         out;
    char                 sql[512];
    PGconn              *db;
    int                  any;

    s->told = other->told = heard_told;
    s->told_arg = &mine;
    other->told_arg = &h;
    CHECK_OK(s->ops->watch(s, heard_any, &mine));
    CHECK_OK(other->ops->watch(other, heard_any, &h));
    s->ops->tell(s, bytes, sizeof bytes);
    heard_await(&h, &h.n, 1);
    CHECK_INT(h.len, sizeof bytes);
    CHECK(memcmp(h.last, bytes, sizeof bytes) == 0);
    /* Its commits say nothing; those of somebody who does not watch do. */
    any = heard_count(&h, &h.any);
    CHECK_OK(put(s, 1, &out));
    s->ops->tell(s, "after", 5);
    heard_await(&h, &h.n, 2);
    CHECK_INT(heard_count(&h, &h.any), any);
    CHECK_OK(put(third, 1, &out));
    heard_await(&h, &h.any, any + 1);
    /* Too much at once. */
    any = heard_count(&h, &h.any);
    for (int i = 0; i < 5000 && heard_count(&h, &h.any) == any; i++) {
        uint8_t long_one[512] = { 0 };

        memcpy(long_one, &i, sizeof i);
        s->ops->tell(s, long_one, sizeof long_one);
    }
    heard_await(&h, &h.any, any + 1);
    /* Nonsense. */
    snprintf(sql, sizeof sql, "%s", cluster_url(lost_schema()));
    *strstr(sql, "&schema=") = '\0';
    db = PQconnectdb(sql);
    CHECK_INT(PQstatus(db), CONNECTION_OK);
    for (int i = 0; i < 4; i++) {
        static const char *const said[] = { "", "stranger", "stranger:0", "stranger:zz:00" };

        any = heard_count(&h, &h.any);
        snprintf(sql, sizeof sql, "NOTIFY stet_%s, '%s'", lost_schema(), said[i]);
        PQclear(PQexec(db, sql));
        heard_await(&h, &h.any, any + 1);
    }
    PQfinish(db);
    CHECK_INT(heard_count(&mine, &mine.n), 0);
    stet__store_close(third);
    stet__store_close(other);
    stet__store_close(s);
}

/* The connection that listens is lost just when it tells: it is never made anew without listening.
 * What was to be told is told by the next one, and whoever listens looks, since something may have
 * been missed. */
static void
cut_at_telling(proxy_fault fault)
{
    proxy      *p = proxy_new();
    stet_store *s = lost_open(proxy_url(p, lost_schema(), ""));
    stet_store *other = lost_open(cluster_url(lost_schema()));
    heard       h = { .lock = PTHREAD_MUTEX_INITIALIZER };
    heard       o = { .lock = PTHREAD_MUTEX_INITIALIZER };
    char        name[16];
    int         any, others;

    s->told = other->told = heard_told;
    s->told_arg = &h;
    other->told_arg = &o;
    CHECK_OK(s->ops->watch(s, heard_any, &h));
    CHECK_OK(other->ops->watch(other, heard_any, &o));
    s->ops->tell(s, "first", 5); /* its statement is prepared */
    heard_await(&o, &o.n, 1);
    (void)snprintf(name, sizeof name, "stet%d", (int)PG_SQL_NOTIFY);
    for (int i = 1; i <= 3; i++) {
        others = heard_count(&o, &o.any);
        any = heard_count(&h, &h.any);
        proxy_fault_next(p, fault, name);
        s->ops->tell(s, &i, sizeof i);
        heard_await(&o, &o.any, others + 1);
        heard_await(&h, &h.any, any + 1);
        CHECK_INT(proxy_faults(p), i);
        other->ops->tell(other, &i, sizeof i);
        heard_await(&h, &h.n, i);
        s->ops->tell(s, "again", 5); /* prepared on the new one, too */
        heard_await(&o, &o.n, fault == PROXY_LOSE_ANSWER ? 1 + 2 * i : 1 + i);
    }
    stet__store_close(other);
    stet__store_close(s);
    proxy_free(p);
}

TEST(G9_postgres_a_listening_connection_that_is_cut_before_it_tells_listens_again)
{
    cut_at_telling(PROXY_LOSE_REQUEST);
}

TEST(G9_postgres_a_listening_connection_that_is_cut_after_it_told_listens_again)
{
    cut_at_telling(PROXY_LOSE_ANSWER);
}

/* Connections of the store by its own name; until there are so many. */
static void
watch_await(PGconn *db, const char *name, int n)
{
    int64_t until = now_ms() + INT64_C(40000) * test_slow();
    int     found = -1;
    char    sql[160];

    (void)snprintf(sql, sizeof sql, "SELECT 1 FROM pg_stat_activity WHERE application_name='%s'",
                   name);
    while (found != n && now_ms() < until) {
        PGresult *res = PQexec(db, sql);

        CHECK_INT(PQresultStatus(res), PGRES_TUPLES_OK);
        found = PQntuples(res);
        PQclear(res);
        if (found != n)
            (void)poll(NULL, 0, 5);
    }
    CHECK_INT(found, n);
}

/* The server does not let it listen: nothing of the try is left, and the next one is as good as
 * ever. */
TEST(G9_postgres_a_watch_that_failed_leaves_no_connection)
{
    static const char refusal[] = "E\0\0\0\36SERROR\0C53200\0Mby a test\0\0Z\0\0\0\5I";
    proxy            *p = proxy_new();
    heard             h = { .lock = PTHREAD_MUTEX_INITIALIZER };
    char              name[48], more[96], url[512];
    stet_store       *s;
    stet_outcome      out;
    PGconn           *db;

    (void)snprintf(name, sizeof name, "watch_%s", test_unique());
    (void)snprintf(more, sizeof more, "&application_name=%s", name);
    s = lost_open(proxy_url(p, lost_schema(), more));
    CHECK_OK(put(s, 1, &out));
    (void)snprintf(url, sizeof url, "%s", cluster_url(lost_schema()));
    *strstr(url, "&schema=") = '\0';
    db = PQconnectdb(url);
    CHECK_INT(PQstatus(db), CONNECTION_OK);
    watch_await(db, name, 2); /* one for commits and one for sessions */
    proxy_answer(p, refusal, sizeof refusal - 1);
    proxy_fault_next(p, PROXY_ANSWER, "LISTEN");
    CHECK_CODE(s->ops->watch(s, heard_any, &h), STET_ENOMEM);
    CHECK_HAS(stet_last_error(), "by a test");
    CHECK_INT(proxy_faults(p), 1);
    watch_await(db, name, 2);
    CHECK_OK(s->ops->watch(s, heard_any, &h));
    watch_await(db, name, 3);
    CHECK_CODE(s->ops->watch(s, heard_any, &h), STET_ESTATE); /* which leaves the first alone */
    watch_await(db, name, 3);
    s->ops->unwatch(s);
    watch_await(db, name, 2);
    PQfinish(db);
    stet__store_close(s);
    proxy_free(p);
}

/* ---- runs that end --------------------------------------------------------------------------- */

#ifdef LIBPQ_HAS_PIPELINING /* else they are told as everything else is */
/* Somebody who executes runs. */
typedef struct ender {
    stet_store *store;
    uint64_t    session, seq;
    uint8_t     run;
    int         n_news;
    char        news[24];
} ender;

static stet_id
ender_id(const ender *x)
{
    return (stet_id){ { 9, x->run } };
}

static void
ender_open(ender *x, heard *h)
{
    *x = (ender){ .store = lost_open(cluster_url(lost_schema())) };
    x->store->told = heard_told;
    x->store->told_arg = h;
    CHECK_OK(x->store->ops->session_open(x->store, &x->session, (stet_id){ { 3 } }, 600000,
                                         stet_text("ender")));
    CHECK_OK(x->store->ops->watch(x->store, heard_any, h));
}

static void
ender_commit(ender *x, const stet_unit *unit, bool is_told)
{
    stet_outcome out;
    stet_unit    u = *unit;

    u.seq = ++x->seq;
    CHECK_OK(x->store->ops->commit(x->store, &u, 1, &out));
    CHECK_INT(out.result, STET_OK);
    CHECK_INT(out.is_told, is_told);
    stet__free(x->store->alloc, out.grants);
}

/* A run is put and claimed. */
static void
ender_begin(ender *x)
{
    const char  *handlers[] = { "a.end" };
    stet_claimer claimer = { .session = x->session, .handlers = handlers, .n_handlers = 1 };
    stet_run_row row = { .handler = "a.end", .due_ms = 1000, .ended_ms = STET_NEVER };
    stet_op      put = { .kind = STET_OP_RUN_PUT, .row = &row };
    stet_op      look = { .kind = STET_OP_CLAIM_DUE, .claimer = &claimer, .count = 1 };

    x->run++;
    put.run = row.id = ender_id(x);
    ender_commit(x, &(stet_unit){ .ops = &put, .n_ops = 1 }, false);
    ender_commit(x, &(stet_unit){ .ops = &look, .n_ops = 1 }, false);
}

/* ... and ended; its end is told with the commit. */
static void
ender_end(ender *x)
{
    stet_run_row row = {
        .handler = "a.end", .due_ms = STET_NEVER, .ended_ms = 5, .is_terminal = 1
    };
    stet_op end[2] = {
        { .kind = STET_OP_FACTS, .number = 1, .count = 1, .data = stet_text("end") },
        { .kind = STET_OP_RUN_SET, .row = &row, .mask = STET_RUN_STATUS | STET_RUN_OWNER }
    };
    stet_cond claim = { .kind = STET_COND_CLAIM, .session = x->session, .epoch = 1 };

    end[0].run = end[1].run = claim.run = row.id = ender_id(x);
    ender_commit(x, &(stet_unit){ .conds = &claim, .n_conds = 1, .ops = end, .n_ops = 2 }, true);
}

static bool
heard_end(heard *h, const ender *x)
{
    stet_id id = ender_id(x);
    bool    is;

    pthread_mutex_lock(&h->lock);
    is = h->len == 16 && memcmp(h->last, id.bytes, 16) == 0;
    pthread_mutex_unlock(&h->lock);
    return is;
}

/* Somebody looks whether it has ended. */
static int
waiter_row(void *arg, const stet_run_row *row)
{
    *(bool *)arg = row->is_terminal != 0;
    return STET_OK;
}

static int
waiter_facts(void *arg, uint64_t rev, uint32_t count, stet_bytes data)
{
    (void)arg;
    (void)rev;
    (void)count;
    (void)data;
    return STET_OK;
}

static bool
waiter_looks(stet_store *s, const ender *x)
{
    bool is_ended = false;

    CHECK_OK(s->ops->load(s, ender_id(x), true, 1, waiter_row, waiter_facts, &is_ended));
    return is_ended;
}

/* Something that is said once only; who has heard it has heard all that came before. */
static void
ender_says(ender *x)
{
    int len = snprintf(x->news, sizeof x->news, "news %d", ++x->n_news);

    x->store->ops->tell(x->store, x->news, (size_t)len);
}

/* That was heard; how much in all. */
static int
heard_news(heard *h, const ender *x)
{
    int64_t until = now_ms() + INT64_C(40000) * test_slow();
    bool    is = false;

    while (!is && now_ms() < until) {
        pthread_mutex_lock(&h->lock);
        is = h->len == strlen(x->news) && memcmp(h->last, x->news, h->len) == 0;
        pthread_mutex_unlock(&h->lock);
        if (!is)
            (void)poll(NULL, 0, 1);
    }
    CHECK(is);
    return heard_count(h, &h->n);
}

/* Somebody whose connections can be told from those of other programs on the server. */
static const char *
waiter_name(void)
{
    static char name[40];

    (void)snprintf(name, sizeof name, "w_%s", test_unique());
    return name;
}

static stet_store *
waiter_open(void)
{
    char url[640];

    (void)snprintf(url, sizeof url, "%s&application_name=%s", cluster_url(lost_schema()),
                   waiter_name());
    return lost_open(url);
}

/* Ask the server about its connections; how many rows there were. */
static int
waiter_ask(PGconn *db, const char *select, const char *where)
{
    char      sql[512];
    PGresult *res;
    int       n;

    (void)snprintf(sql, sizeof sql, "%s FROM pg_stat_activity a WHERE application_name='%s' AND %s",
                   select, waiter_name(), where);
    res = PQexec(db, sql);
    CHECK_INT(PQresultStatus(res), PGRES_TUPLES_OK);
    n = PQntuples(res);
    PQclear(res);
    return n;
}

static PGconn *
waiter_server(void)
{
    char    url[512];
    PGconn *db;

    (void)snprintf(url, sizeof url, "%s", cluster_url(lost_schema()));
    *strstr(url, "&schema=") = '\0';
    db = PQconnectdb(url);
    CHECK_INT(PQstatus(db), CONNECTION_OK);
    return db;
}

#define WAITER_HOLDS                                                                               \
    "EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid=a.pid AND l.locktype='advisory' AND "            \
    "l.mode='ShareLock')"

/* Who waits for no run does not hear of ends, be it a worker or a client. Who found one open is
 * told to look once more, and from then on hears of it, also on the next connection. */
TEST(G9_postgres_ends_are_told_to_those_who_wait)
{
    stet_store *worker = waiter_open();
    stet_store *client = lost_open(cluster_url(lost_schema()));
    heard       mine = { .lock = PTHREAD_MUTEX_INITIALIZER };
    heard       h = { .lock = PTHREAD_MUTEX_INITIALIZER };
    heard       c = { .lock = PTHREAD_MUTEX_INITIALIZER };
    ender       x;
    PGconn     *db;
    int         any;

    worker->told = client->told = heard_told;
    worker->told_arg = &h;
    client->told_arg = &c;
    client->is_client = true;
    CHECK_OK(worker->ops->watch(worker, heard_any, &h));
    CHECK_OK(client->ops->watch(client, heard_any, &c));
    ender_open(&x, &mine);
    ender_begin(&x);
    ender_end(&x);
    CHECK(waiter_looks(client, &x)); /* it has its answer, so it does not wait */
    ender_begin(&x);
    ender_end(&x);
    ender_says(&x);
    CHECK_INT(heard_news(&h, &x), 1);
    CHECK_INT(heard_news(&c, &x), 1);
    /* They wait. */
    any = heard_count(&h, &h.any);
    ender_begin(&x);
    CHECK(!waiter_looks(worker, &x));
    heard_await(&h, &h.n, 2);
    CHECK(heard_end(&h, &x)); /* it is to look once more */
    CHECK(!waiter_looks(worker, &x));
    CHECK(!waiter_looks(client, &x));
    heard_await(&c, &c.n, 2);
    ender_says(&x);
    CHECK_INT(heard_news(&h, &x), 3); /* once is enough */
    CHECK_INT(heard_news(&c, &x), 3);
    ender_end(&x);
    heard_await(&h, &h.n, 4);
    heard_await(&c, &c.n, 4);
    CHECK(heard_end(&h, &x) && heard_end(&c, &x));
    CHECK(waiter_looks(worker, &x));
    CHECK_INT(heard_count(&h, &h.any), any);
    /* The connection that listens is cut. */
    ender_begin(&x);
    CHECK(!waiter_looks(worker, &x));
    heard_await(&h, &h.n, 5);
    db = waiter_server();
    CHECK_INT(waiter_ask(db, "SELECT pg_terminate_backend(pid)", WAITER_HOLDS), 1);
    PQfinish(db);
    heard_await(&h, &h.any, any + 1);
    ender_end(&x);
    heard_await(&h, &h.n, 6);
    CHECK(heard_end(&h, &x));
    stet__store_close(x.store);
    stet__store_close(client);
    stet__store_close(worker);
}

/* Who waits before it listens to anything hears of ends at once; so does one that wants them
 * all. */
TEST(G9_postgres_ends_are_told_from_the_beginning_to_those_who_want_them)
{
    stet_store *waiter = lost_open(cluster_url(lost_schema()));
    stet_store *audit = lost_open(cluster_url(lost_schema()));
    heard       mine = { .lock = PTHREAD_MUTEX_INITIALIZER };
    heard       h = { .lock = PTHREAD_MUTEX_INITIALIZER };
    heard       a = { .lock = PTHREAD_MUTEX_INITIALIZER };
    ender       x;

    waiter->told = audit->told = heard_told;
    waiter->told_arg = &h;
    audit->told_arg = &a;
    audit->wants_ends = true;
    ender_open(&x, &mine);
    ender_begin(&x);
    CHECK(!waiter_looks(waiter, &x));
    CHECK_OK(waiter->ops->watch(waiter, heard_any, &h));
    CHECK_OK(audit->ops->watch(audit, heard_any, &a));
    ender_end(&x);
    heard_await(&h, &h.n, 1);
    heard_await(&a, &a.n, 1);
    CHECK(heard_end(&h, &x) && heard_end(&a, &x));
    stet__store_close(x.store);
    stet__store_close(audit);
    stet__store_close(waiter);
}

/* Who does not look any more does not wait any more, and says so; who waits for many runs, for all
 * of them, too. */
TEST(G9_postgres_who_waits_no_more_is_told_no_more)
{
    stet_store *waiter = waiter_open();
    PGconn     *db = waiter_server();
    heard       mine = { .lock = PTHREAD_MUTEX_INITIALIZER };
    heard       h = { .lock = PTHREAD_MUTEX_INITIALIZER };
    int64_t     until = now_ms() + INT64_C(40000) * test_slow();
    ender       x;

    waiter->told = heard_told;
    waiter->told_arg = &h;
    waiter->looks_ms = 10;
    CHECK_OK(waiter->ops->watch(waiter, heard_any, &h));
    ender_open(&x, &mine);
    for (int round = 0; round < 2; round++) {
        int  n, runs = round == 0 ? 1 : 40;
        bool is_held = false;

        for (int i = 0; i < runs; i++) {
            ender_begin(&x);
            CHECK(!waiter_looks(waiter, &x));
        }
        while (!is_held && now_ms() < until) {
            CHECK(!waiter_looks(waiter, &x));
            (void)poll(NULL, 0, 1);
            is_held = waiter_ask(db, "SELECT 1", WAITER_HOLDS) > 0;
        }
        CHECK(is_held);
        while (is_held && now_ms() < until) {
            (void)poll(NULL, 0, 20);
            is_held = waiter_ask(db, "SELECT 1", WAITER_HOLDS) > 0;
        }
        CHECK(!is_held);
        ender_says(&x);
        n = heard_news(&h, &x);
        ender_end(&x);
        ender_begin(&x);
        ender_end(&x);
        ender_says(&x);
        CHECK_INT(heard_news(&h, &x), n + 1);
    }
    PQfinish(db);
    stet__store_close(x.store);
    stet__store_close(waiter);
}
#endif

/* ---- a restart ------------------------------------------------------------------------------- */

static _Atomic int restart_hints;

static void
restart_hint(void *arg)
{
    (void)arg;
    atomic_fetch_add(&restart_hints, 1);
}

TEST_LIMIT(G3_everything_goes_on_after_the_server_was_killed, 120)
{
    cluster     *c = cluster_new();
    stet_store  *s, *other;
    stet_outcome out;
    uint64_t     seq = 0;

    CHECK(c != NULL);
    s = lost_open(cluster_url_of(c, "restart"));
    other = lost_open(cluster_url_of(c, "restart"));
    CHECK_OK(s->ops->watch(s, restart_hint, NULL));
    for (int round = 0; round < 2; round++) {
        pid_t   server = cluster_server(c);
        int     hints;
        int64_t until = now_ms() + INT64_C(40000) * test_slow();

        settle(s, ++seq, &out);
        CHECK(server > 0);
        CHECK_INT(kill(server, SIGQUIT), 0); /* as pg_ctl restart -m immediate */
        settle(s, ++seq, &out);              /* before it is down, while it is, or after */
        CHECK_INT(out.result, STET_OK);
        while (cluster_server(c) == server && now_ms() < until)
            (void)poll(NULL, 0, 5);
        CHECK(cluster_await(c));
        settle(s, ++seq, &out);
        CHECK_INT(version_at_last(other), seq);
        /* It listens again, too; the first may only say that it does. */
        hints = atomic_load(&restart_hints);
        while (atomic_load(&restart_hints) < hints + 3) {
            settle(other, ++seq, &out);
            if (now_ms() > until)
                test_fail(__FILE__, __LINE__, "no hint after the restart");
            (void)poll(NULL, 0, 5);
        }
        CHECK_INT(version_at_last(s), seq);
    }
    stet__store_close(other);
    stet__store_close(s);
    cluster_free(c);
}
