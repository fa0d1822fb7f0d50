/* A server that is restarted under a worker with runs: the worker says once that the store is away
 * and once that it is back, and nothing about each of the runs. Rows G3, G4, H7. */
#include <errno.h>
#include <signal.h>

#include "cluster.h"
#include "engine/engine.h"
#include "fixture.h"
#include "redis_server.h"

enum { AWAY_RUNS = 8 };

/* Lines that an operator sees about single runs. */
static int
lines_of_runs(fixture *f)
{
    int n = 0;

    pthread_mutex_lock(&f->log_lock);
    for (size_t i = 0; i < f->n_records; i++)
        n += f->records[i].level >= STET_LOG_WARN && f->records[i].run[0] != '\0';
    pthread_mutex_unlock(&f->log_lock);
    return n;
}

static int
lines_of_level(fixture *f, stet_level level, const char *part)
{
    int n = 0;

    pthread_mutex_lock(&f->log_lock);
    for (size_t i = 0; i < f->n_records; i++)
        n += f->records[i].level == level && strstr(f->records[i].message, part) != NULL;
    pthread_mutex_unlock(&f->log_lock);
    return n;
}

static fixture *
away_begin(const char *url, stet_run_id runs[AWAY_RUNS])
{
    fixture *f = fixture_begin_on(url != NULL ? "sqlite" : "memory");

    if (url != NULL) { /* a store that is opened by its address */
        free((void *)(uintptr_t)f->url);
        f->url = strdup(url);
    }
    f->options.concurrency = AWAY_RUNS;
    f->options.lease_ms = 60000; /* nobody else is there to take the runs */
    f->options.renew_ms = 200;
    fixture_up(f, common_services);
    for (int i = 0; i < AWAY_RUNS; i++)
        runs[i] = fixture_start(f->engine, "t.door", "ok", NULL);
    gate_await(&common_door, AWAY_RUNS);
    return f;
}

static int
on_finding(void *arg, const stet_finding *finding)
{
    (void)arg;
    (void)finding;
    return 0;
}

/* What the bodies did could not be recorded; it is, now. */
static void
away_end(fixture *f, const stet_run_id runs[AWAY_RUNS])
{
    for (int i = 0; i < AWAY_RUNS; i++)
        EXPECT_RESULT(f->engine, &runs[i], "ok");
    AWAIT(fixture_logged(f, "the store is back; it was away for ") == 1);
    CHECK_INT(fixture_logged(f, "the store is away"), 1);
    CHECK_INT(lines_of_level(f, STET_LOG_ERROR, ""), 1);
    CHECK_INT(lines_of_level(f, STET_LOG_ERROR, "the store is away"), 1);
    CHECK_INT(lines_of_level(f, STET_LOG_INFO, "the store is back"), 1);
    CHECK_INT(lines_of_runs(f), 0);
    AWAIT(stet_verify(f->engine, NULL, on_finding, NULL) == STET_OK); /* every connection is */
    fixture_end(f);
}

/* ---- one that refuses ------------------------------------------------------------------------ */

static const stet_store_ops *away_inner;
static stet_store_ops        away_ops;
static atomic_bool           away_is_down;

static int
commit_down(stet_store *s, const stet_unit *units, size_t n, stet_outcome *outcomes)
{
    return atomic_load(&away_is_down) ? stet__fail(STET_EIO, "no server")
                                      : away_inner->commit(s, units, n, outcomes);
}

static int
ping_down(stet_store *s)
{
    return atomic_load(&away_is_down) ? stet__fail(STET_EIO, "no server") : away_inner->ping(s);
}

TEST(H7_a_store_that_takes_no_commits_is_told_once)
{
    stet_run_id runs[AWAY_RUNS];
    fixture    *f = away_begin(NULL, runs);

    away_inner = f->engine->store->ops;
    away_ops = *away_inner;
    away_ops.commit = commit_down;
    away_ops.ping = ping_down;
    atomic_store(&away_is_down, true);
    f->engine->store->ops = &away_ops;
    gate_open(&common_door);
    AWAIT(lines_of_level(f, STET_LOG_DEBUG, "failed and is tried again: no server") > 2);
    CHECK_INT(fixture_logged(f, "the store is away from now on: no server; it is tried again"), 1);
    atomic_store(&away_is_down, false);
    away_end(f, runs);
}

/* ---- servers --------------------------------------------------------------------------------- */

/* Ends the server again and again, which is up in no time, until this line was written. */
static void
strike_until(fixture *f, pid_t (*server)(void), int how, const char *line)
{
    pid_t pid;

    AWAIT(((pid = server()) <= 0 || kill(pid, how) == 0 || errno == ESRCH) &&
          fixture_logged(f, line) > 0);
}

static void
restart_told_once(const char *url, pid_t (*server)(void), int how)
{
    stet_run_id runs[AWAY_RUNS];
    fixture    *f = away_begin(url, runs);

    strike_until(f, server, how, "the store is away");
    gate_open(&common_door);
    strike_until(f, server, how, "a commit of ");
    away_end(f, runs);
}

#ifdef STET_WITH_POSTGRES
static cluster *away_cluster;

static pid_t
postgres_pid(void)
{
    return cluster_server(away_cluster);
}

TEST_LIMIT(G3_a_restart_of_the_server_is_told_once, 120)
{
    CHECK((away_cluster = cluster_new()) != NULL);
    /* As pg_ctl restart -m immediate. */
    restart_told_once(cluster_url_of(away_cluster, "away"), postgres_pid, SIGQUIT);
    cluster_free(away_cluster);
}
#endif

#ifdef STET_WITH_REDIS
static redis_server *away_redis;

static pid_t
redis_pid(void)
{
    return redis_server_pid(away_redis);
}

TEST_LIMIT(G4_a_restart_of_the_server_is_told_once, 120)
{
    CHECK((away_redis = redis_server_new(NULL)) != NULL);
    restart_told_once(redis_server_url(away_redis, "away"), redis_pid, SIGKILL);
    redis_server_free(away_redis);
}
#endif
