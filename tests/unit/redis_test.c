/* What is special to the Redis store: commits in parts, scripts that are lost, servers that are
 * killed, connections that are cut, keys and their names, hints, memory. Everything else is in the
 * contract suite. tsan: yes */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#include <stet.h>

#include "redis_server.h"
#include "store/redis.h"
#include "test.h"

#define PATIENCE_US 20000000

/* ---- tools ----------------------------------------------------------------------------------- */

typedef struct world {
    redis_server *server;
    redisContext *hand;
    stet_store   *store;
    uint64_t      seq;
} world;

static stet_store *
open_store(const world *w, const char *prefix)
{
    stet_store *s;

    CHECK_OK(stet__store_open(&s, stet__platform_real(), redis_server_url(w->server, prefix)));
    return s;
}

static void
hand_connect(world *w)
{
    int64_t until_us = stet__mono_us(stet__platform_real()) + PATIENCE_US;

    do { /* it may be starting again */
        if (w->hand != NULL)
            redisFree(w->hand);
        w->hand = redisConnect("127.0.0.1", w->server->port);
        CHECK(w->hand != NULL);
    } while (w->hand->err != 0 && stet__mono_us(stet__platform_real()) < until_us);
    CHECK_INT(w->hand->err, 0);
}

static void
world_begin(world *w, const char *settings)
{
    memset(w, 0, sizeof *w);
    if ((w->server = redis_server_new(settings)) == NULL)
        test_fail(__FILE__, __LINE__, "no server: %s", redis_server_why());
    hand_connect(w);
    w->store = open_store(w, "a");
}

static void
world_end(world *w)
{
    stet__store_close(w->store);
    redisFree(w->hand);
    redis_server_free(w->server);
}

/* A command by hand; the answer as a number: of an integer, or how many elements. */
static long long
by_hand(world *w, const char *fmt, ...)
{
    redisReply *reply;
    long long   number;
    va_list     args;

    va_start(args, fmt);
    reply = redisvCommand(w->hand, fmt, args);
    va_end(args);
    CHECK(reply != NULL);
    if (reply->type == REDIS_REPLY_ERROR)
        test_fail(__FILE__, __LINE__, "%s: %s", fmt, reply->str);
    number = reply->type == REDIS_REPLY_INTEGER ? reply->integer : (long long)reply->elements;
    freeReplyObject(reply);
    return number;
}

static stet_op
op_value(const char *space, const char *key, const char *data)
{
    return (stet_op){
        .kind = STET_OP_VALUE_PUT, .space = space, .key = stet_text(key), .data = stet_text(data)
    };
}

static int
commit_on(stet_store *s, uint64_t seq, const stet_op *ops, size_t n, bool *is_repeat)
{
    stet_unit    unit = { .seq = seq, .ops = ops, .n_ops = n };
    stet_outcome out;
    int          err = s->ops->commit(s, &unit, 1, &out);

    if (err != STET_OK)
        return err;
    stet__free(s->alloc, out.grants);
    if (is_repeat != NULL)
        *is_repeat = out.is_repeat;
    return out.result;
}

static uint64_t
version_of(stet_store *s, const char *space, const char *key)
{
    stet_value value;
    int        err = s->ops->value(s, space, stet_text(key), &value);

    if (err == STET_ENOTFOUND)
        return 0;
    CHECK_OK(err);
    stet__free(s->alloc, (void *)(uintptr_t)value.data.data);
    return value.version;
}

static stet_id
run_id(uint32_t n)
{
    uint8_t random[10] = { 0 };

    random[8] = (uint8_t)(n >> 8);
    random[9] = (uint8_t)n;
    return stet__id_make(1700000000000 + n, random);
}

static stet_run_row
run_row(uint32_t n, const char *handler)
{
    return (stet_run_row){
        .id = run_id(n), .handler = handler, .status = 1, .due_ms = 0, .ended_ms = STET_NEVER
    };
}

static void
put_run(world *w, uint32_t n, const char *handler)
{
    stet_run_row row = run_row(n, handler);
    stet_op      op = { .kind = STET_OP_RUN_PUT, .row = &row, .run = row.id };

    CHECK_CODE(commit_on(w->store, ++w->seq, &op, 1, NULL), STET_OK);
}

static int
count_fn(void *arg, const stet_run_row *row)
{
    (void)row;
    ++*(size_t *)arg;
    return 0;
}

static size_t
count_runs(stet_store *s, stet_run_query query)
{
    size_t n = 0;

    query.limit = 1000000;
    CHECK_OK(s->ops->runs(s, &query, count_fn, &n));
    return n;
}

/* ---- commits in parts ------------------------------------------------------------------------ */

#define MANY 2000

/* MANY puts of one value: each sees the one before, whatever part it is in. */
static void
commit_many(world *w, stet_outcome *outcomes, bool is_repeat)
{
    static stet_op   ops[MANY];
    static stet_cond conds[MANY];
    static stet_unit units[MANY];

    for (uint64_t i = 0; i < MANY; i++) {
        ops[i] = op_value("s", "k", "v");
        conds[i] = (stet_cond){
            .kind = STET_COND_VALUE, .space = "s", .key = stet_text("k"), .number = i
        };
        units[i] = (stet_unit){
            .seq = w->seq + 1 + i, .conds = &conds[i], .n_conds = 1, .ops = &ops[i], .n_ops = 1
        };
    }
    CHECK_OK(w->store->ops->commit(w->store, units, MANY, outcomes));
    for (size_t i = 0; i < MANY; i++) {
        CHECK_CODE(outcomes[i].result, STET_OK);
        CHECK_INT(outcomes[i].is_repeat, is_repeat);
    }
}

TEST(F6_redis_a_commit_of_many_parts_is_in_order_and_repeats_whole)
{
    static stet_outcome outcomes[MANY];
    world               w;

    world_begin(&w, NULL);
    commit_many(&w, outcomes, false);
    CHECK_INT(version_of(w.store, "s", "k"), MANY);
    commit_many(&w, outcomes, true);
    CHECK_INT(version_of(w.store, "s", "k"), MANY);
    world_end(&w);
}

/* A part whose front is missing is not applied. */
TEST(F6_redis_a_part_does_not_overtake_the_one_before_it)
{
    redis_store *st;
    stet_unit    units[2];
    stet_op      ops[2] = { op_value("s", "a", "1"), op_value("s", "b", "1") };
    redis_words  words = { 0 };
    redisReply  *reply = NULL;
    stet__buf    args;
    world        w;

    world_begin(&w, NULL);
    st = redis_of(w.store);
    for (uint64_t i = 0; i < 2; i++)
        units[i] = (stet_unit){ .seq = 1 + i, .ops = &ops[i], .n_ops = 1 };
    stet__buf_init(&args, w.store->alloc);
    CHECK(stet__redis_encode(st, &args, units, 1, 2));
    CHECK_OK(stet__redis_conn_need(st, &st->writer));
    stet__redis_word_script(st, &words, REDIS_COMMIT);
    stet__redis_word_bytes(&words, args.data, args.len);
    CHECK_CODE(stet__redis_run(st, &st->writer, REDIS_COMMIT, &words, &reply, "commit"), STET_EIO);
    CHECK_HAS(stet_last_error(), "earlier part");
    CHECK_INT(version_of(w.store, "s", "b"), 0);
    stet__buf_free(&args);
    world_end(&w);
}

/* ---- scripts --------------------------------------------------------------------------------- */

TEST(G4_lost_scripts_are_loaded_again)
{
    static stet_outcome outcomes[MANY];
    uint64_t            session;
    stet_op             op = op_value("s", "x", "v");
    world               w;

    world_begin(&w, NULL);
    for (int i = 0; i < 3; i++) {
        by_hand(&w, "SCRIPT FLUSH");
        CHECK_CODE(commit_on(w.store, ++w.seq, &op, 1, NULL), STET_OK);
        by_hand(&w, "SCRIPT FLUSH");
        CHECK_INT(count_runs(w.store, (stet_run_query){ 0 }), 0);
        by_hand(&w, "SCRIPT FLUSH");
        CHECK_OK(w.store->ops->session_open(w.store, &session, run_id(1), 1000, stet_text("")));
    }
    by_hand(&w, "SCRIPT FLUSH");
    commit_many(&w, outcomes, false);
    CHECK_INT(version_of(w.store, "s", "k"), MANY);
    world_end(&w);
}

typedef struct flusher {
    int         port;
    _Atomic int is_over;
} flusher;

static void *
flush_on(void *arg)
{
    flusher      *f = arg;
    redisContext *c = redisConnect("127.0.0.1", f->port);

    while (!atomic_load(&f->is_over))
        freeReplyObject(redisCommand(c, "SCRIPT FLUSH"));
    redisFree(c);
    return NULL;
}

/* Between the parts of a commit too: what stands is in order, and nothing stands twice. */
TEST(G4_scripts_lost_all_the_time_lose_and_double_nothing)
{
    flusher      f = { 0 };
    pthread_t    thread;
    stet_outcome outcomes[8];
    uint64_t     done = 0;
    world        w;

    world_begin(&w, NULL);
    f.port = w.server->port;
    CHECK_INT(pthread_create(&thread, NULL, flush_on, &f), 0);
    for (int round = 0; round < 100; round++) {
        stet_op   ops[8];
        stet_cond conds[8];
        stet_unit units[8];
        int       err;

        for (uint64_t i = 0; i < 8; i++) {
            ops[i] = op_value("s", "k", "v");
            conds[i] = (stet_cond){
                .kind = STET_COND_VALUE, .space = "s", .key = stet_text("k"), .number = done + i
            };
            units[i] = (stet_unit){
                .seq = w.seq + 1 + i, .conds = &conds[i], .n_conds = 1, .ops = &ops[i], .n_ops = 1
            };
        }
        do
            err = w.store->ops->commit(w.store, units, 8, outcomes);
        while (err == STET_EIO || err == STET_EUNCERTAIN);
        CHECK_OK(err);
        for (int i = 0; i < 8; i++)
            CHECK_CODE(outcomes[i].result, STET_OK);
        w.seq += 8;
        done += 8;
    }
    atomic_store(&f.is_over, 1);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(version_of(w.store, "s", "k"), done);
    world_end(&w);
}

/* ---- killed servers, cut connections --------------------------------------------------------- */

/* Commits until `total` are answered, each again until its outcome is known. */
static void
commit_through(world *w, uint64_t total)
{
    int64_t until_us = stet__mono_us(stet__platform_real()) + PATIENCE_US;

    for (uint64_t done = 0; done < total;) {
        stet_op op = op_value("s", "k", "v");
        int     err = commit_on(w->store, w->seq + 1, &op, 1, NULL);

        if (err == STET_OK) {
            w->seq++;
            done++;
            continue;
        }
        CHECK(err == STET_EIO || err == STET_EUNCERTAIN || err == STET_EBUSY);
        CHECK(stet__mono_us(stet__platform_real()) < until_us);
    }
}

#define KILLS 6

typedef struct killer {
    const world *w;
    _Atomic int  kills;
    _Atomic long done; /* commits that were answered */
} killer;

/* Each server is killed when it has answered a few commits, in the middle of the next ones. */
static void *
kill_on(void *arg)
{
    killer *k = arg;
    long    next = 5;

    while (atomic_load(&k->kills) < KILLS) {
        if (atomic_load(&k->done) < next) {
            (void)sched_yield();
            continue;
        }
        next = atomic_load(&k->done) + 5 + 3 * atomic_load(&k->kills);
        CHECK_INT(kill(redis_server_pid(k->w->server), SIGKILL), 0);
        atomic_fetch_add(&k->kills, 1);
    }
    return NULL;
}

TEST(G4_a_killed_server_loses_nothing_it_answered_and_doubles_nothing)
{
    pthread_t thread;
    killer    k = { 0 };
    world     w;

    world_begin(&w, NULL);
    k.w = &w;
    CHECK_INT(pthread_create(&thread, NULL, kill_on, &k), 0);
    while (atomic_load(&k.kills) < KILLS) {
        commit_through(&w, 1);
        atomic_fetch_add(&k.done, 1);
    }
    CHECK_INT(pthread_join(thread, NULL), 0);
    commit_through(&w, 1); /* the last of them has to come back */
    CHECK_INT(version_of(w.store, "s", "k"), w.seq);
    test_note("%d kills in %llu commits", KILLS, (unsigned long long)w.seq);
    world_end(&w);
}

TEST(G4_cut_connections_are_made_again)
{
    uint64_t session, version;
    bool     is_repeat = false;
    stet_op  op = op_value("s", "k", "v");
    world    w;
    int      err;

    world_begin(&w, NULL);
    CHECK_OK(w.store->ops->session_open(w.store, &session, run_id(1), 60000, stet_text("")));
    CHECK_CODE(commit_on(w.store, 1, &op, 1, NULL), STET_OK);
    for (uint64_t round = 0; round < 5; round++) {
        by_hand(&w, "CLIENT KILL TYPE normal SKIPME yes");
        CHECK_OK(w.store->ops->ping(w.store)); /* reads notice nothing */
        version = version_of(w.store, "s", "k");
        by_hand(&w, "CLIENT KILL TYPE normal SKIPME yes");
        CHECK_OK(w.store->ops->session_renew(w.store, session, 60000));
        /* A commit cannot know. The same unit again settles it. */
        err = commit_on(w.store, 2 + round, &op, 1, &is_repeat);
        CHECK_CODE(err, STET_EUNCERTAIN);
        CHECK_CODE(commit_on(w.store, 2 + round, &op, 1, &is_repeat), STET_OK);
        CHECK_INT(version_of(w.store, "s", "k"), version + 1);
        CHECK_CODE(commit_on(w.store, 2 + round, &op, 1, &is_repeat), STET_OK);
        CHECK(is_repeat);
        CHECK_INT(version_of(w.store, "s", "k"), version + 1);
    }
    world_end(&w);
}

TEST(G4_a_server_that_stands_still_is_not_waited_for_for_ever)
{
    stet_store *s;
    stet_op     op = op_value("s", "k", "v");
    char        url[300];
    pid_t       pid;
    world       w;
    bool        is_repeat;
    int64_t     until_us;
    int         err;

    world_begin(&w, NULL);
    (void)snprintf(url, sizeof url, "%s&answer_timeout=1&connect_timeout=1",
                   redis_server_url(w.server, "b"));
    CHECK_OK(stet__store_open(&s, stet__platform_real(), url));
    CHECK_CODE(commit_on(s, 1, &op, 1, NULL), STET_OK);
    pid = redis_server_pid(w.server);
    CHECK_INT(kill(pid, SIGSTOP), 0);
    CHECK_CODE(commit_on(s, 2, &op, 1, NULL), STET_EUNCERTAIN);
    CHECK_HAS(stet_last_error(), "no answer in time");
    CHECK_CODE(s->ops->ping(s), STET_EIO);
    CHECK_INT(kill(pid, SIGCONT), 0);
    until_us = stet__mono_us(stet__platform_real()) + PATIENCE_US;
    while ((err = commit_on(s, 2, &op, 1, &is_repeat)) == STET_EIO || err == STET_EUNCERTAIN)
        CHECK(stet__mono_us(stet__platform_real()) < until_us);
    CHECK_OK(err);
    while (s->ops->ping(s) != STET_OK) /* a reader's turn to try again has to come */
        CHECK(stet__mono_us(stet__platform_real()) < until_us);
    CHECK_INT(version_of(s, "s", "k"), 2); /* the late one and the repeat are one */
    stet__store_close(s);
    world_end(&w);
}

/* What was there is gone: better no answer than one as if nothing had ever happened. */
TEST(G4_a_server_that_lost_its_data_is_not_used)
{
    stet_op op = op_value("s", "k", "v");
    world   w;

    world_begin(&w, NULL);
    CHECK_CODE(commit_on(w.store, 1, &op, 1, NULL), STET_OK);
    by_hand(&w, "FLUSHALL");
    by_hand(&w, "CLIENT KILL TYPE normal SKIPME yes");
    CHECK_CODE(commit_on(w.store, 2, &op, 1, NULL), STET_EUNCERTAIN);
    CHECK_CODE(commit_on(w.store, 2, &op, 1, NULL), STET_EIO);
    CHECK_HAS(stet_last_error(), "does not have the data any more");
    world_end(&w);
}

TEST(G4_a_full_server_refuses_and_keeps_what_it_has)
{
    stet_op  op = op_value("s", "k", "v");
    uint64_t seq = 0;
    world    w;

    world_begin(&w, NULL);
    CHECK_CODE(commit_on(w.store, ++seq, &op, 1, NULL), STET_OK);
    by_hand(&w, "CONFIG SET maxmemory 1");
    CHECK_CODE(commit_on(w.store, ++seq, &op, 1, NULL), STET_EFULL);
    CHECK_HAS(stet_last_error(), "memory is full");
    CHECK_INT(version_of(w.store, "s", "k"), 1);
    by_hand(&w, "CONFIG SET maxmemory 0");
    CHECK_CODE(commit_on(w.store, seq, &op, 1, NULL), STET_OK);
    CHECK_INT(version_of(w.store, "s", "k"), 2);
    world_end(&w);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int
one_more(void *arg, stet_bytes key, const stet_value *value)
{
    (void)key;
    (void)value;
    ++*(int *)arg;
    return 0;
}

/* Names that look like keys of ours, like other names with a part behind, or like nothing at
 * all. */
TEST(G4_names_cannot_collide_or_escape)
{
    static const char *const names[] = { "a",     "a:b",   "a:",   "{b}:m",  "}:m", "m",
                                         "\r\n",  "*",     "?",    "[a-z]",  " ",   "ids",
                                         "1:h.b", "b\xff", "\xff", "a\001b", "x:s", "../.." };
    enum { N = sizeof names / sizeof *names };
    world       w;
    stet_store *other;
    redisReply *keys;
    int         n;

    world_begin(&w, NULL);
    other = open_store(&w, "a.b");
    for (size_t i = 0; i < N; i++) {
        stet_run_row row = run_row((uint32_t)i + 1, names[i]);
        stet_op      ops[] = {
                 { .kind = STET_OP_RUN_PUT, .row = &row, .run = row.id },
                 { .kind = STET_OP_LANE_ENTER, .run = row.id, .lane = names[i], .status = 1 },
                 op_value(names[i], names[i], names[i])
        };

        CHECK_CODE(commit_on(w.store, ++w.seq, ops, 3, NULL), STET_OK);
    }
    for (size_t i = 0; i < N; i++) {
        int64_t due_ms;

        n = 0;
        CHECK_OK(w.store->ops->values(w.store, names[i], stet_text(""), NULL, 100, one_more, &n));
        CHECK_INT(n, 1);
        CHECK_INT(version_of(w.store, names[i], names[i]), 1);
        CHECK_INT(version_of(other, names[i], names[i]), 0);
        CHECK_OK(w.store->ops->due(w.store, &names[i], 1, &due_ms));
        CHECK(due_ms != STET_NEVER);
        CHECK_INT(count_runs(w.store, (stet_run_query){ .handler = names[i] }), 1);
    }
    CHECK_INT(count_runs(other, (stet_run_query){ 0 }), 0);
    keys = redisCommand(w.hand, "KEYS *"); /* by hand only */
    CHECK(keys != NULL && keys->elements > N);
    for (size_t i = 0; i < keys->elements; i++)
        CHECK(strncmp(keys->element[i]->str, "{a}:", 4) == 0 ||
              strncmp(keys->element[i]->str, "{a.b}:", 6) == 0);
    freeReplyObject(keys);
    stet__store_close(other);
    world_end(&w);
}

TEST(F2_redis_runs_that_have_facts_and_no_row_are_listed_and_restored)
{
    stet_run_row row = run_row(2, "h.b");
    stet_id      id;
    stet_op      restore = { .kind = STET_OP_RUN_PUT, .flags = STET_OP_RESTORE, .row = &row };
    world        w;

    world_begin(&w, NULL);
    for (uint32_t n = 1; n <= 3; n++) {
        stet_op ops[] = { { .kind = STET_OP_FACTS,
                            .run = run_id(n),
                            .number = 1,
                            .count = 3,
                            .data = stet_text("facts") },
                          { .kind = STET_OP_INBOX, .run = run_id(n), .data = stet_text("in") } };

        put_run(&w, n, "h.b");
        CHECK_CODE(commit_on(w.store, ++w.seq, ops, 2, NULL), STET_OK);
    }
    id = run_id(2);
    CHECK_INT(by_hand(&w, "DEL {a}:r:%b", id.bytes, sizeof id.bytes), 1);
    CHECK_INT(count_runs(w.store, (stet_run_query){ .is_lost = true }), 1);
    CHECK_INT(
        count_runs(w.store,
                   (stet_run_query){ .is_lost = true, .before = run_id(1), .upto = run_id(2) }),
        1);
    CHECK_INT(count_runs(w.store, (stet_run_query){ .is_lost = true, .before = run_id(2) }), 0);
    CHECK_INT(count_runs(w.store, (stet_run_query){ 0 }), 2);
    row.journal = 2;
    row.inbox = 1;
    CHECK_CODE(commit_on(w.store, ++w.seq, &restore, 1, NULL), STET_ECONFLICT);
    row.journal = 3;
    CHECK_CODE(commit_on(w.store, ++w.seq, &restore, 1, NULL), STET_OK);
    CHECK_INT(count_runs(w.store, (stet_run_query){ .is_lost = true }), 0);
    CHECK_INT(count_runs(w.store, (stet_run_query){ 0 }), 3);
    world_end(&w);
}

static int
one_timer(void *arg, const stet_timer *timer)
{
    (void)timer;
    ++*(int *)arg;
    return 0;
}

typedef struct missing {
    int  n, repaired, without_run;
    char text[256];
} missing;

static int
one_missing(void *arg, const stet_id *run, const char *sentence, bool is_repaired)
{
    missing *to = arg;

    to->n++;
    to->repaired += is_repaired;
    to->without_run += run == NULL;
    (void)snprintf(to->text, sizeof to->text, "%s", sentence);
    return STET_OK;
}

static missing
check_now(world *w, bool is_repairing)
{
    missing found = { .n = 0 };

    CHECK_OK(w->store->ops->check(w->store, is_repairing, one_missing, &found));
    CHECK_INT(found.repaired, is_repairing ? found.n : 0);
    return found;
}

/* Lost, found by one look after the other, repaired, sound. */
static void
expect_missing(world *w, const char *lose, int n, const char *text)
{
    CHECK_INT(check_now(w, false).n, 0);
    CHECK(by_hand(w, lose) > 0);
    CHECK_INT(check_now(w, false).n, n);
    CHECK_HAS(check_now(w, false).text, text);
    CHECK_INT(check_now(w, true).n, n);
    CHECK_INT(check_now(w, false).n, 0);
    CHECK_INT(check_now(w, true).n, 0);
}

/* Rows and values are there, what finds them is not. */
TEST(F2_redis_lost_indexes_are_found_and_made_again)
{
    static const char *const handlers[] = { "h.b" };
    stet_claimer             claimer = { .running_status = 2, .handlers = handlers,
                                         .n_handlers = 1 };
    stet_op                  ops[] = { { .kind = STET_OP_TIMER_PUT, .run = run_id(1), .fire_ms = 5,
                                         .number = 1 },
                                       op_value("s", "a", "v"), op_value("s", "b", "v") };
    stet_op                  claim = { .kind = STET_OP_CLAIM_DUE, .claimer = &claimer, .count = 1 };
    stet_run_row             idle = { .id = run_id(3), .status = 4, .due_ms = STET_NEVER,
                                      .ended_ms = STET_NEVER };
    stet_op                  park = { .kind = STET_OP_RUN_SET, .row = &idle, .run = run_id(3),
                                      .mask = STET_RUN_STATUS | STET_RUN_DUE };
    int64_t                  due_ms;
    int                      values = 0, timers = 0;
    world                    w;

    world_begin(&w, NULL);
    CHECK_OK(
        w.store->ops->session_open(w.store, &claimer.session, run_id(9), 600000, stet_text("")));
    put_run(&w, 1, "h.b");
    put_run(&w, 2, "h.b");
    put_run(&w, 3, "h.c");
    CHECK_CODE(commit_on(w.store, ++w.seq, ops, 3, NULL), STET_OK);
    CHECK_CODE(commit_on(w.store, ++w.seq, &claim, 1, NULL), STET_OK);
    CHECK_CODE(commit_on(w.store, ++w.seq, &park, 1, NULL), STET_OK);
    expect_missing(&w, "ZREMRANGEBYRANK {a}:ids 0 1", 2, "list of all runs");
    expect_missing(&w, "DEL {a}:q:h.b", 1, "queue");
    expect_missing(&w, "DEL {a}:o:1", 1, "its session");
    expect_missing(&w, "DEL {a}:w:4:h.c", 1, "by its status");
    expect_missing(&w, "DEL {a}:x:s", 2, "space s");
    expect_missing(&w, "DEL {a}:t", 1, "timer");
    expect_missing(&w, "DEL {a}:ids {a}:q:h.b {a}:o:1 {a}:w:4:h.c {a}:x:s {a}:t", 9, "");
    CHECK_INT(count_runs(w.store, (stet_run_query){ 0 }), 3);
    CHECK_INT(count_runs(w.store, (stet_run_query){ .session = claimer.session }), 1);
    CHECK_OK(w.store->ops->due(w.store, handlers, 1, &due_ms));
    CHECK(due_ms != STET_NEVER);
    CHECK_OK(w.store->ops->values(w.store, "s", stet_text(""), NULL, 9, one_more, &values));
    CHECK_INT(values, 2);
    CHECK_OK(w.store->ops->timers(w.store, 100, 9, one_timer, &timers, NULL));
    CHECK_INT(timers, 1);
    /* Of a status that nobody asks for it need not be found. */
    w.store->quiet = 1u << 4;
    CHECK_INT(by_hand(&w, "DEL {a}:w:4:h.c"), 1);
    CHECK_INT(check_now(&w, false).n, 0);
    world_end(&w);
}

/* More than one call looks at: pages of keys, and of a space's values. */
TEST(F2_redis_lost_indexes_of_many_are_found)
{
    char    key[16];
    world   w;
    missing found;

    world_begin(&w, NULL);
    for (uint32_t n = 1; n <= 1200; n++) {
        stet_op op;

        (void)snprintf(key, sizeof key, "key %u", n);
        op = op_value("s", key, "v");
        put_run(&w, n, "h.b");
        CHECK_CODE(commit_on(w.store, ++w.seq, &op, 1, NULL), STET_OK);
    }
    CHECK_INT(by_hand(&w, "DEL {a}:ids {a}:x:s"), 2);
    found = check_now(&w, false);
    CHECK_INT(found.n, 2400);
    CHECK_INT(check_now(&w, true).n, 2400);
    CHECK_INT(check_now(&w, false).n, 0);
    CHECK_INT(by_hand(&w, "ZCARD {a}:x:s"), 1200);
    CHECK_INT(count_runs(w.store, (stet_run_query){ .limit = 2000 }), 1200);
    world_end(&w);
}

/* An index that names a run which is another's does not give it away. */
TEST(F3_redis_a_stray_entry_grants_nothing_and_is_removed)
{
    static const char *const handlers[] = { "h.b" };
    stet_claimer claimer = { .running_status = 2, .handlers = handlers, .n_handlers = 1 };
    stet_op      claim = { .kind = STET_OP_CLAIM_DUE, .claimer = &claimer, .count = 9 };
    stet_unit    unit = { .ops = &claim, .n_ops = 1 };
    stet_outcome out;
    stet_id      id = run_id(1);
    world        w;

    world_begin(&w, NULL);
    CHECK_OK(
        w.store->ops->session_open(w.store, &claimer.session, run_id(9), 600000, stet_text("")));
    put_run(&w, 1, "h.b");
    CHECK_CODE(commit_on(w.store, ++w.seq, &claim, 1, NULL), STET_OK);
    by_hand(&w, "EVAL %s 0 %b",
            "return redis.call('ZADD', '{a}:q:h.b', 0, "
            "struct.pack('>I8', 4503599627370496) .. ARGV[1])",
            id.bytes, sizeof id.bytes);
    unit.seq = ++w.seq;
    CHECK_OK(w.store->ops->commit(w.store, &unit, 1, &out));
    CHECK_CODE(out.result, STET_OK);
    CHECK_INT(out.n_grants, 0);
    CHECK(out.next_due_ms == STET_NEVER);
    CHECK_INT(by_hand(&w, "ZCARD {a}:q:h.b"), 0);
    world_end(&w);
}

/* One prefix is one slot: all that a script touches is where the script runs. */
TEST(G4_a_store_lives_on_a_node_of_a_cluster)
{
    uint64_t      session;
    redis_server *server = redis_server_new("cluster-enabled yes\n");
    world         w = { .server = server };
    redisReply   *reply = NULL;
    bool          is_ready = false;
    int64_t       until_us = stet__mono_us(stet__platform_real()) + PATIENCE_US;

    CHECK(server != NULL);
    hand_connect(&w);
    by_hand(&w, "CLUSTER ADDSLOTSRANGE 0 16383");
    while (!is_ready) {
        CHECK(stet__mono_us(stet__platform_real()) < until_us);
        reply = redisCommand(w.hand, "CLUSTER INFO");
        is_ready = strstr(reply->str, "cluster_state:ok") != NULL;
        freeReplyObject(reply);
    }
    w.store = open_store(&w, "a");
    CHECK_OK(w.store->ops->session_open(w.store, &session, run_id(1), 60000, stet_text("")));
    for (uint32_t n = 1; n <= 5; n++)
        put_run(&w, n, "h.b");
    CHECK_INT(count_runs(w.store, (stet_run_query){ 0 }), 5);
    world_end(&w);
}

/* ---- hints ----------------------------------------------------------------------------------- */

typedef struct hints {
    stet__platform *p;
    stet__mutex     mutex;
    stet__cond      cond;
    int             calls;
} hints;

static void
hints_begin(hints *h)
{
    *h = (hints){ .p = stet__platform_real() };
    CHECK_OK(h->p->ops->mutex_init(h->p, &h->mutex));
    CHECK_OK(h->p->ops->cond_init(h->p, &h->cond));
}

static void
on_hint(void *arg)
{
    hints *h = arg;

    stet__lock(h->p, &h->mutex);
    h->calls++;
    stet__broadcast(h->p, &h->cond);
    stet__unlock(h->p, &h->mutex);
}

static void
hints_await(hints *h, int more_than)
{
    int64_t until_us = stet__mono_us(h->p) + PATIENCE_US;

    stet__lock(h->p, &h->mutex);
    while (h->calls <= more_than)
        if (!stet__wait(h->p, &h->cond, &h->mutex, until_us) && h->calls <= more_than)
            test_fail(__FILE__, __LINE__, "no hint arrived");
    stet__unlock(h->p, &h->mutex);
}

typedef struct tales {
    hints   h;
    int     works, runs, told; /* what was told: work, a run, what somebody gave to tell() */
    int     named;             /* work, and which run */
    stet_id run;
} tales;

static void
on_told(void *arg, const void *bytes, size_t len)
{
    tales *t = arg;

    stet__lock(t->h.p, &t->h.mutex);
    t->works += len == 0;
    t->runs += len == 16;
    t->named += len == 17 && *(const char *)bytes == 'w';
    if (len == 17)
        memcpy(t->run.bytes, (const char *)bytes + 1, 16);
    t->told += len == 5 && memcmp(bytes, "hello", 5) == 0;
    if (len == 16)
        memcpy(t->run.bytes, bytes, 16);
    stet__broadcast(t->h.p, &t->h.cond);
    stet__unlock(t->h.p, &t->h.mutex);
}

/* Wait until *count is `want`. */
static void
tales_await(tales *t, const int *count, int want)
{
    int64_t until_us = stet__mono_us(t->h.p) + PATIENCE_US;

    stet__lock(t->h.p, &t->h.mutex);
    while (*count < want)
        if (!stet__wait(t->h.p, &t->h.cond, &t->h.mutex, until_us) && *count < want)
            test_fail(__FILE__, __LINE__, "it was not told");
    CHECK_INT(*count, want);
    stet__unlock(t->h.p, &t->h.mutex);
}

static stet_store *
open_teller(world *w, tales *t)
{
    stet_store *s = open_store(w, "a");

    memset(t, 0, sizeof *t);
    hints_begin(&t->h);
    s->told = on_told;
    s->told_arg = t;
    CHECK_OK(s->ops->watch(s, on_hint, &t->h));
    return s;
}

/* Commits go through a handle that tells itself, or they would say that anything changed, and that
 * takes no entry of the stream. */
static stet_store *
open_writer(world *w, tales *own)
{
    stet_store *s = open_store(w, "a");

    memset(own, 0, sizeof *own);
    hints_begin(&own->h);
    s->is_client = true;
    s->told = on_told;
    s->told_arg = own;
    CHECK_OK(s->ops->watch(s, on_hint, &own->h));
    stet__store_close(w->store);
    return w->store = s;
}

/* Work that is left is heard of by the channel and by the stream, and told once; a run that ended
 * is named. */
TEST(G4_commits_tell_what_others_can_use)
{
    stet_run_row ended = {
        .id = run_id(1), .status = 9, .is_terminal = 1, .ended_ms = 5, .due_ms = STET_NEVER
    };
    stet_op     end = { .kind = STET_OP_RUN_SET,
                        .row = &ended,
                        .mask = STET_RUN_STATUS | STET_RUN_OWNER };
    stet_store *teller, *listener;
    tales       t, own;
    world       w;

    world_begin(&w, NULL);
    listener = open_teller(&w, &t);
    teller = open_writer(&w, &own);
    put_run(&w, 1, "h.b");
    tales_await(&t, &t.works, 1);
    CHECK_INT(listener->ops->load(listener, run_id(99), true, 1, NULL, NULL, NULL), STET_ENOTFOUND);
    hints_await(&t.h, 0); /* it waits, so it hears of ends */
    CHECK_INT(commit_on(teller, ++w.seq, &end, 1, NULL), STET_OK);
    tales_await(&t, &t.runs, 1);
    CHECK(stet__id_equal(t.run, run_id(1)));
    teller->ops->tell(teller, "hello", 5);
    tales_await(&t, &t.told, 1);
    put_run(&w, 2, "h.b");
    tales_await(&t, &t.works, 2);
    CHECK_INT(t.runs, 1);
    CHECK_INT(own.runs + own.told, 0); /* nobody hears himself */
    stet__store_close(listener);
    world_end(&w);
}

/* A run that is woken by what it got is named, by the quick script and the other one; told once. */
TEST(G4_commits_tell_which_run_they_wake)
{
    stet_run_row idle = {
        .id = run_id(1), .status = 3, .due_ms = STET_NEVER, .ended_ms = STET_NEVER
    };
    stet_op     set = { .kind = STET_OP_RUN_SET,
                        .row = &idle,
                        .mask = STET_RUN_STATUS | STET_RUN_OWNER };
    stet_op     wake[] = { { .kind = STET_OP_INBOX, .run = run_id(1), .data = stet_text("news") },
                           { .kind = STET_OP_RUN_WAKE, .run = run_id(1), .status = 1 },
                           { .kind = STET_OP_VALUE_DEL, .space = "s", .key = stet_text("k") } };
    stet_store *teller, *listener;
    tales       t, own;
    world       w;

    world_begin(&w, NULL);
    listener = open_teller(&w, &t);
    teller = open_writer(&w, &own);
    put_run(&w, 1, "h.b");
    tales_await(&t, &t.works, 1);
    for (int i = 0; i < 2; i++) { /* with the third operation it is none of the quick ones */
        CHECK_INT(commit_on(teller, ++w.seq, &set, 1, NULL), STET_OK);
        memset(&t.run, 0, sizeof t.run);
        CHECK_INT(commit_on(teller, ++w.seq, wake, 2 + (size_t)i, NULL), STET_OK);
        tales_await(&t, &t.named, i + 1);
        CHECK(stet__id_equal(t.run, run_id(1)));
        CHECK_INT(redis_of(teller)->n_quick[REDIS_WAKE], 1);
    }
    put_run(&w, 2, "h.b");
    tales_await(&t, &t.works, 2);
    CHECK_INT(t.named, 2);
    stet__store_close(listener);
    world_end(&w);
}

static int
hints_so_far(hints *h)
{
    int calls;

    stet__lock(h->p, &h->mutex);
    calls = h->calls;
    stet__unlock(h->p, &h->mutex);
    return calls;
}

/* Whatever comes that is not understood says that something changed, and nothing else. */
TEST(G4_hints_that_are_not_understood_are_a_reason_to_look)
{
    static const struct {
        const char *bytes;
        size_t      len;
    } odd[] = {
        { "", 0 },        { "\0", 1 },    { "\0\0t", 3 },
        { "\0\011t", 3 }, { "\0\1z", 3 }, /* of a newer stet */
        { "\0\2rx", 4 },                  /* no run has such an ID */
    };
    stet_store *listener;
    redisReply *reply;
    size_t      from;
    char        text[128];
    tales       t;
    world       w;
    int         before;

    world_begin(&w, NULL);
    listener = open_teller(&w, &t);
    from = strlen(redis_of(listener)->self);
    memset(text, 'x', sizeof text);
    CHECK(from + 16 < sizeof text);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        memcpy(text + from, odd[i].bytes, odd[i].len);
        before = hints_so_far(&t.h);
        reply = redisCommand(w.hand, "PUBLISH {a}:n %b", text, from + odd[i].len);
        CHECK(reply != NULL && reply->type == REDIS_REPLY_INTEGER && reply->integer >= 1);
        freeReplyObject(reply);
        hints_await(&t.h, before);
    }
    before = hints_so_far(&t.h);
    CHECK(by_hand(&w, "PUBLISH {a}:n short") >= 1);
    hints_await(&t.h, before);
    CHECK_INT(t.works + t.runs + t.told, 0);
    /* Work with an ID that is none is work. */
    memcpy(text + from, "\0\3wxx", 5);
    reply = redisCommand(w.hand, "PUBLISH {a}:n %b", text, from + 5);
    CHECK(reply != NULL && reply->type == REDIS_REPLY_INTEGER);
    freeReplyObject(reply);
    tales_await(&t, &t.works, 1);
    /* And so is an entry of the stream that says more than we know. */
    freeReplyObject(redisCommand(w.hand, "XADD {a}:h * c somebody more fields"));
    tales_await(&t, &t.works, 2);
    stet__store_close(listener);
    world_end(&w);
}

/* What is too much to be told one by one, or is not said, is told as "something changed". */
TEST(G4_more_than_a_message_holds_is_told_as_a_change)
{
    static uint8_t large[REDIS_TELL_MAX];
    stet_store    *teller, *listener;
    tales          t, own;
    world          w;
    int            before;

    world_begin(&w, NULL);
    listener = open_teller(&w, &t);
    teller = open_writer(&w, &own);
    before = hints_so_far(&t.h);
    teller->ops->tell(teller, large, sizeof large);
    hints_await(&t.h, before);
    before = hints_so_far(&t.h);
    teller->ops->tell(teller, "", 0);
    hints_await(&t.h, before);
    for (int i = 0; i < 3; i++) /* again before it was sent: once is enough */
        teller->ops->tell(teller, "hello", 5);
    teller->ops->tell(teller, "other", 5);
    stet__lock(t.h.p, &t.h.mutex);
    while (t.told == 0)
        CHECK(stet__wait(t.h.p, &t.h.cond, &t.h.mutex, stet__mono_us(t.h.p) + PATIENCE_US) ||
              t.told > 0);
    CHECK(t.told <= 3);
    stet__unlock(t.h.p, &t.h.mutex);
    stet__store_close(listener);
    world_end(&w);
}

/* What was taken is acknowledged, at the latest when nobody watches any more. */
TEST(G4_hints_that_were_taken_are_acknowledged)
{
    stet_store *listener;
    tales       t, own;
    world       w;

    world_begin(&w, NULL);
    listener = open_teller(&w, &t);
    (void)open_writer(&w, &own);
    for (uint32_t n = 1; n <= 5; n++) {
        put_run(&w, n, "h.b");
        tales_await(&t, &t.works, (int)n);
    }
    listener->ops->unwatch(listener);
    /* The last may have been heard of by the channel, and its entry be on its way to us. */
    CHECK(by_hand(&w, "XPENDING {a}:h workers - + 10") <= 1);
    stet__store_close(listener);
    world_end(&w);
}

/* An idle worker makes the server write nothing, so it flushes nothing. */
TEST(G4_a_look_for_work_that_finds_none_is_not_written)
{
    static const char *const handlers[] = { "h.b" };
    stet_claimer claimer = { .running_status = 2, .handlers = handlers, .n_handlers = 1 };
    stet_op      look = { .kind = STET_OP_CLAIM_DUE, .claimer = &claimer, .count = 3 };
    redisReply  *before, *after;
    const char  *find = "rdb_changes_since_last_save:";
    world        w;

    world_begin(&w, NULL);
    CHECK_OK(
        w.store->ops->session_open(w.store, &claimer.session, run_id(1), 60000, stet_text("")));
    before = redisCommand(w.hand, "INFO persistence");
    for (int i = 0; i < 3; i++)
        CHECK_INT(commit_on(w.store, ++w.seq, &look, 1, NULL), STET_OK);
    after = redisCommand(w.hand, "INFO persistence");
    CHECK_INT(strtol(strstr(after->str, find) + strlen(find), NULL, 10),
              strtol(strstr(before->str, find) + strlen(find), NULL, 10));
    freeReplyObject(before);
    freeReplyObject(after);
    world_end(&w);
}

/* A part of a commit that is such a look is not remembered, and the next part does not wait for
 * it. */
TEST(G4_a_look_for_work_may_be_the_first_part_of_a_commit)
{
    static const char *const handlers[] = { "h.b" };
    static char              large[5 << 20];
    stet_claimer claimer = { .running_status = 2, .handlers = handlers, .n_handlers = 1 };
    stet_op      look = { .kind = STET_OP_CLAIM_DUE, .claimer = &claimer, .count = 3 };
    stet_op      put = op_value("s", "k", "");
    stet_unit    units[2] = { { .ops = &look, .n_ops = 1 }, { .ops = &put, .n_ops = 1 } };
    stet_outcome outs[2];
    world        w;

    world_begin(&w, NULL);
    CHECK_OK(
        w.store->ops->session_open(w.store, &claimer.session, run_id(1), 60000, stet_text("")));
    memset(large, 'x', sizeof large);
    put.data = (stet_bytes){ large, sizeof large };
    units[0].seq = ++w.seq;
    units[1].seq = ++w.seq;
    CHECK_OK(w.store->ops->commit(w.store, units, 2, outs));
    CHECK_INT(outs[0].result, STET_OK);
    CHECK_INT(outs[1].result, STET_OK);
    CHECK_INT(version_of(w.store, "s", "k"), 1);
    world_end(&w);
}

/* Somebody took the hint and died. */
TEST(G4_a_hint_that_a_dead_worker_took_is_claimed_by_another)
{
    stet_store *other;
    hints       h;
    world       w;

    world_begin(&w, NULL);
    by_hand(&w, "XGROUP CREATE {a}:h workers $ MKSTREAM");
    put_run(&w, 1, "h.b"); /* due for anybody */
    CHECK_INT(by_hand(&w, "XLEN {a}:h"), 1);
    CHECK_INT(by_hand(&w, "XREADGROUP GROUP workers dead COUNT 9 STREAMS {a}:h >"), 1);
    by_hand(&w, "EVAL %s 0",
            "local e = redis.call('XRANGE', '{a}:h', '-', '+') "
            "return redis.call('XCLAIM', '{a}:h', 'workers', 'dead', 0, e[1][1], "
            "'IDLE', 600000)"); /* long ago */
    other = open_store(&w, "a");
    hints_begin(&h);
    CHECK_OK(other->ops->watch(other, on_hint, &h));
    hints_await(&h, 0);
    other->ops->unwatch(other);
    CHECK_INT(by_hand(&w, "XPENDING {a}:h workers - + 10 dead"), 0);
    stet__store_close(other);
    world_end(&w);
}

TEST(G4_watching_goes_on_after_a_restart)
{
    stet_store *other;
    hints       h;
    world       w;
    int         calls;

    world_begin(&w, NULL);
    other = open_store(&w, "a");
    hints_begin(&h);
    CHECK_OK(other->ops->watch(other, on_hint, &h));
    CHECK_INT(kill(redis_server_pid(w.server), SIGKILL), 0);
    hints_await(&h, 0); /* something may have been missed */
    stet__lock(h.p, &h.mutex);
    calls = h.calls;
    stet__unlock(h.p, &h.mutex);
    commit_through(&w, 1);
    hints_await(&h, calls);
    stet__store_close(other);
    hand_connect(&w);
    world_end(&w);
}

TEST(G4_the_stream_of_hints_is_cut)
{
    world w;

    world_begin(&w, NULL);
    by_hand(&w, "EVAL %s 0", "for i = 1, 5000 do redis.call('XADD', '{a}:h', '*', 'c', i) end");
    CHECK_INT(by_hand(&w, "XLEN {a}:h"), 5000);
    put_run(&w, 1, "h.b");
    CHECK(by_hand(&w, "XLEN {a}:h") <= 1200);
    world_end(&w);
}

/* ---- what is left ---------------------------------------------------------------------------- */

/* A run that is removed leaves nothing: keys and their bytes are as before. */
TEST(C10_redis_a_removed_run_leaves_no_key)
{
    long long before;
    world     w;

    world_begin(&w, NULL);
    put_run(&w, 1, "h.b");
    before = by_hand(&w, "DBSIZE");
    for (uint32_t n = 2; n <= 40; n++) {
        stet_run_row ended = {
            .id = run_id(n), .status = 9, .is_terminal = 1, .ended_ms = 5, .due_ms = STET_NEVER
        };
        stet_op ops[] = {
            { .kind = STET_OP_FACTS,
              .run = run_id(n),
              .number = 1,
              .count = 1,
              .data = stet_text("facts") },
            { .kind = STET_OP_INBOX, .run = run_id(n), .data = stet_text("in") },
            { .kind = STET_OP_TIMER_PUT, .run = run_id(n), .fire_ms = 7, .number = 1 },
            { .kind = STET_OP_LANE_ENTER, .run = run_id(n), .lane = "lane", .status = 1 },
            { .kind = STET_OP_RUN_SET, .row = &ended, .mask = STET_RUN_STATUS | STET_RUN_OWNER },
        };
        stet_op del = { .kind = STET_OP_RUN_DEL, .run = run_id(n), .status = 1 };

        put_run(&w, n, "h.b");
        CHECK_CODE(commit_on(w.store, ++w.seq, ops, 5, NULL), STET_OK);
        CHECK(by_hand(&w, "DBSIZE") > before);
        CHECK_CODE(commit_on(w.store, ++w.seq, &del, 1, NULL), STET_OK);
        CHECK_INT(by_hand(&w, "DBSIZE"), before);
    }
    world_end(&w);
}

static int
h_three(stet_ctx *ctx, stet_bytes input)
{
    return stet_return(ctx, input);
}

/* Memory is bounded by what retention keeps, not by what ever ran. */
TEST_LIMIT(C10_redis_memory_is_bounded_by_retention, 120)
{
    static const stet_handler handlers[] = { { "three", h_three, NULL }, { 0 } };
    stet_engine              *e;
    long long                 size, most = 0;
    int64_t                   until_us;
    world                     w;

    world_begin(&w, NULL);
    CHECK_OK(
        stet_open(&e, redis_server_url(w.server, "engine"),
                  STET_OPTIONS(.retention_ms = 1, .sweep_ms = 20, .log_level = STET_LOG_ERROR)));
    CHECK_OK(stet_register(e, "t", handlers));
    CHECK_OK(stet_engine_start(e));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 100; i++)
            CHECK_OK(stet_start(e, NULL, "t.three", stet_text("{}"), NULL));
        until_us = stet__mono_us(stet__platform_real()) + PATIENCE_US;
        do { /* a few keys of the engine's own stay */
            size = by_hand(&w, "DBSIZE");
            CHECK(stet__mono_us(stet__platform_real()) < until_us);
        } while (size > 40);
        most = size > most ? size : most;
    }
    stet_close(e);
    test_note("500 runs, at most %lld keys left", most);
    world_end(&w);
}

static bool
was_called(world *w, const char *command)
{
    redisReply *reply = redisCommand(w->hand, "INFO commandstats");
    char        field[40];
    bool        is_there;

    CHECK(reply != NULL && reply->type == REDIS_REPLY_STRING);
    (void)snprintf(field, sizeof field, "cmdstat_%s:", command);
    is_there = strstr(reply->str, field) != NULL;
    freeReplyObject(reply);
    return is_there;
}

TEST(G4_keys_are_gone_through_by_scan_only)
{
    world w;

    world_begin(&w, NULL);
    put_run(&w, 1, "h.b");
    CHECK_INT(count_runs(w.store, (stet_run_query){ 0 }), 1);
    CHECK_INT(count_runs(w.store, (stet_run_query){ .is_lost = true }), 0);
    CHECK_OK(w.store->ops->maintain(w.store));
    CHECK(was_called(&w, "scan"));
    CHECK(!was_called(&w, "keys"));
    world_end(&w);
}
