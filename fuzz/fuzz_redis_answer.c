/* Any bytes as what a Redis server answers: rows of runs, journals, inboxes, timers, values, lanes, sessions, the
 * outcome of a commit. No crash, an error has a sentence, and what is handed out is whole.
 *
 * The server is one end of a pair of sockets into which the answer is put beforehand; behind it the connection ends,
 * and no other is made. The first byte says what is asked, the second how the rest becomes an answer: as it is (the
 * protocol's bytes), as one string, or as an array of strings, each with its length before it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "store/redis.h"

enum { FUZZ_ASKS = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the answer ------------------------------------------------------------------------------ */

static void
fuzz_string(stet__buf *b, stet_bytes text)
{
    stet__buf_printf(b, "$%zu\r\n", text.len);
    stet__buf_add(b, text.data, text.len);
    stet__buf_str(b, "\r\n");
}

static void
fuzz_array(stet__buf *b, stet_bytes in)
{
    stet__buf  strings;
    stet_bytes text;
    uint8_t    len;
    size_t     n = 0;

    stet__buf_init(&strings, b->alloc);
    for (; stet__read_byte(&in, &len); n++) {
        (void)stet__read_bytes(&in, len < in.len ? len : in.len, &text);
        fuzz_string(&strings, text);
    }
    stet__buf_printf(b, "*%zu\r\n", n);
    stet__buf_add(b, strings.data, strings.len);
    stet__buf_free(&strings);
}

static void
fuzz_answer(redis_store *st, uint8_t form, stet_bytes in, int servers[2])
{
    redis_conn *conns[] = { &st->readers[0], &st->writer };
    stet__buf   b;

    stet__buf_init(&b, st->base.alloc);
    if (form % 3 == 0)
        stet__buf_add(&b, in.data, in.len);
    else if (form % 3 == 1)
        fuzz_string(&b, in);
    else
        fuzz_array(&b, in);
    for (size_t i = 0; i < sizeof conns / sizeof *conns; i++) {
        int ends[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0 ||
            (b.len > 0 && send(ends[1], b.data, b.len, MSG_NOSIGNAL) != (ssize_t)b.len) ||
            shutdown(ends[1], SHUT_WR) != 0 || (conns[i]->ctx = redisConnectFd(ends[0])) == NULL)
            abort();
        stet__buf_init(&conns[i]->out, st->base.alloc);
        servers[i] = ends[1];
    }
    stet__buf_free(&b);
}

/* ---- what is handed out: every byte is touched ------------------------------------------------ */

static uint64_t fuzz_sum;

static void
fuzz_touch(const void *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        fuzz_sum += ((const uint8_t *)data)[i];
}

static void
fuzz_touch_text(const char *text)
{
    if (text != NULL)
        fuzz_touch(text, strlen(text));
}

static int
on_run(void *arg, const stet_run_row *row)
{
    (void)arg;
    fuzz_touch_text(row->handler);
    fuzz_touch_text(row->key);
    fuzz_touch_text(row->lane);
    fuzz_touch_text(row->group);
    fuzz_touch_text(row->reason);
    fuzz_touch(row->extra.data, row->extra.len);
    return STET_OK;
}

static int
on_facts(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    (void)arg;
    (void)first;
    (void)count;
    fuzz_touch(facts.data, facts.len);
    return STET_OK;
}

static int
on_timer(void *arg, const stet_timer *timer)
{
    (void)arg;
    fuzz_touch(timer, sizeof *timer);
    return STET_OK;
}

static int
on_value(void *arg, stet_bytes key, const stet_value *value)
{
    (void)arg;
    fuzz_touch(key.data, key.len);
    fuzz_touch(value->data.data, value->data.len);
    return STET_OK;
}

static int
on_lane(void *arg, stet_id run)
{
    (void)arg;
    fuzz_touch(run.bytes, sizeof run.bytes);
    return STET_OK;
}

static int
on_session(void *arg, const stet_session_row *row)
{
    (void)arg;
    fuzz_touch(row->info.data, row->info.len);
    return STET_OK;
}

/* ---- what is asked ---------------------------------------------------------------------------- */

static int
fuzz_commit(stet_store *s, bool is_claim)
{
    static const char *const handlers[] = { "h.a" };
    stet_claimer             claimer = { 1, 2, handlers, 1 };
    stet_op                  ops[] = {
                         { .kind = STET_OP_VALUE_PUT, .space = "s", .key = stet_text("k"), .data = stet_text("v") },
                         { .kind = STET_OP_CLAIM_DUE, .count = 2, .claimer = &claimer, .status = 1 }
    };
    stet_unit    unit = { .seq = 1, .ops = &ops[is_claim], .n_ops = 1 };
    stet_outcome out;
    int          err = s->ops->commit(s, &unit, 1, &out);

    for (size_t i = 0; err == STET_OK && i < out.n_grants; i++) {
        fuzz_touch(out.grants[i].news.data, out.grants[i].news.len);
        fuzz_touch(out.grants[i].facts.data, out.grants[i].facts.len);
    }
    stet__free(s->alloc, out.grants);
    return err;
}

static int
fuzz_value(stet_store *s)
{
    stet_value value;
    int        err = s->ops->value(s, "s", stet_text("k"), &value);

    if (err == STET_OK)
        fuzz_touch(value.data.data, value.data.len);
    stet__free(s->alloc, (void *)(uintptr_t)value.data.data);
    return err;
}

static int
fuzz_ask(stet_store *s, uint8_t what)
{
    static const char *const handlers[] = { "h.a", "h.b" };
    const stet_store_ops    *ops = s->ops;
    stet_run_query           newest = { .limit = 3 }, lost = { .limit = 3, .is_lost = true };
    stet_id                  run = { { 1 } };
    int64_t                  next_ms;

    switch (what % FUZZ_ASKS) {
    case 0: return ops->run(s, run, on_run, NULL);
    case 1: return ops->load(s, run, false, 9, on_run, on_facts, NULL);
    case 2: return ops->runs(s, &newest, on_run, NULL);
    case 3: return ops->runs(s, &lost, on_run, NULL);
    case 4: return ops->journal(s, run, 1, 9, on_facts, NULL);
    case 5: return ops->journal(s, run, 5, 9, on_facts, NULL);
    case 6: return ops->inbox(s, run, 1, 9, on_facts, NULL);
    case 7: return ops->timers(s, 1000, 9, on_timer, NULL, &next_ms);
    case 8: return ops->timers_of(s, run, on_timer, NULL);
    case 9: return fuzz_value(s);
    case 10: return ops->values(s, "s", stet_text("k"), NULL, 9, on_value, NULL);
    case 11: return ops->lane(s, "lane", 9, on_lane, NULL);
    case 12: return ops->due(s, handlers, 2, &next_ms);
    case 13: return ops->sessions(s, on_session, NULL);
    case 14: return fuzz_commit(s, false);
    default: return fuzz_commit(s, true);
    }
}

/* ---- the store -------------------------------------------------------------------------------- */

/* As it is when it was opened, but for its connections: a lost one is not tried again before the end of time. */
static void
fuzz_store(redis_store *st)
{
    stet__platform *p = stet__platform_real();
    stet__mutex    *locks[] = { &st->commit_lock, &st->side_lock,  &st->read_lock,
                                &st->hint_lock,   &st->clock_lock, &st->tell_lock };

    st->base.ops = &stet__store_redis_ops;
    st->base.platform = p;
    st->base.alloc = &p->alloc;
    st->pid = getpid();
    st->hint_fd = -1;
    st->is_open = st->has_locks = true;
    for (size_t i = 0; i < sizeof locks / sizeof *locks; i++)
        if (p->ops->mutex_init(p, locks[i]) != STET_OK)
            abort();
    if (p->ops->cond_init(p, &st->read_cond) != STET_OK ||
        stet__redis_url_parse(st, "//127.0.0.1:1/0") != STET_OK)
        abort();
    st->clock_us = st->clock_older_us = INT64_MIN;
    stet__buf_init(&st->args, st->base.alloc);
    stet__buf_init(&st->lost, st->base.alloc);
    stet__buf_init(&st->acks, st->base.alloc);
    st->writer.retry_us = st->side.retry_us = INT64_MAX;
    for (size_t i = 0; i < REDIS_READERS; i++)
        st->readers[i].retry_us = INT64_MAX;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    redis_store *st;
    int          servers[2], err;

    if (size < 2)
        return 0;
    if ((st = calloc(1, sizeof *st)) == NULL)
        abort();
    fuzz_store(st);
    fuzz_answer(st, data[1], (stet_bytes){ data + 2, size - 2 }, servers);
    if ((err = fuzz_ask(&st->base, data[0])) != STET_OK && stet_last_error()[0] == '\0')
        abort();
    st->base.ops->close(&st->base);
    close(servers[0]);
    close(servers[1]);
    free(st);
    return 0;
}
