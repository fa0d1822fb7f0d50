/* Updates of a run from outside: asked for through its inbox, answered by a value.
 *
 * The value is put with the record of what came of the update (project.c), follows from it, and
 * stays as long as the run; when a generation ends and its records go, its answers become baselines.
 * So whoever asks again with the same key gets the same answer; what was asked for twice is one
 * update, because the journal takes a key once.
 */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

#define UPDATE_WAIT_MS 10000
#define UPDATE_KEY_MAX 256u

/* ---- the value ------------------------------------------------------------------------------- */

bool
stet__update_key(stet__arena *arena, stet_bytes *out, stet_id run, stet_bytes key)
{
    uint8_t *at = stet__arena_get(arena, sizeof run.bytes + key.len);

    if (at == NULL)
        return false;
    memcpy(at, run.bytes, sizeof run.bytes);
    if (key.len > 0)
        memcpy(at + sizeof run.bytes, key.data, key.len);
    *out = (stet_bytes){ at, sizeof run.bytes + key.len };
    return true;
}

/* Without its time: an update that is made again after a rewind has the same. */
void
stet__update_mark(const stet__fact *update, stet__fact *mark)
{
    memset(mark, 0, sizeof *mark);
    mark->kind = STET__FACT_UPDATE;
    mark->name = update->name;
    mark->code = update->code;
    mark->text = update->text;
    mark->value = update->value;
}

bool
stet__update_put(stet__work *w, stet_id run, const stet__fact *update)
{
    stet_op   *op = stet__work_op(w, STET_OP_VALUE_PUT, run);
    stet__fact mark;

    if (op == NULL)
        return false;
    op->space = STET__SPACE_UPDATE;
    op->number = update->revision;
    stet__update_mark(update, &mark);
    w->has_event = true; /* who asked may wait here */
    return stet__update_key(&w->arena, &op->key, run, update->idempotency_key) &&
           stet__work_fact(w, &op->data, &mark);
}

/* ---- asking ---------------------------------------------------------------------------------- */

typedef struct update_wait {
    const stet_run_id *run;
    stet_id            id;
    stet__arena        arena;
    stet_bytes         key;   /* of the value */
    stet_bytes         found; /* the value, in the arena */
} update_wait;

/* STET_OK: it is answered; STET_EOPEN: not yet. In this order: a generation that ends takes its answers from the one
 * place to the other. */
static int
update_find(stet_engine *e, update_wait *u)
{
    stet_value v = { 0 };
    int        err = e->store->ops->value(e->store, STET__SPACE_UPDATE, u->key, &v);

    if (err == STET_ENOTFOUND &&
        (err = e->store->ops->value(e->store, STET__SPACE_BASE_UPDATE, u->key, &v)) == STET_ENOTFOUND)
        return STET_EOPEN;
    if (err != STET_OK)
        return err;
    u->found = (stet_bytes){ stet__arena_copy(&u->arena, v.data.data, v.data.len), v.data.len };
    stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    return u->found.data != NULL ? STET_OK : stet__fail(STET_ENOMEM, "out of memory for an answer");
}

/* The same; STET_EENDED: and it never will be. */
static int
update_look(stet_engine *e, void *arg)
{
    update_wait *u = arg;
    stet__arena  arena;
    stet_run_row row;
    stet__fact   extra;
    int          err = update_find(e, u);

    if (err != STET_EOPEN)
        return err;
    stet__arena_init(&arena, &e->p->alloc);
    if ((err = stet__load_row(e, u->id, &arena, &row, &extra)) == STET_OK) {
        err = STET_EOPEN;
        /* Its end and the answer may have come between the two looks; and retention since, which takes both. */
        if (row.is_terminal && (err = update_find(e, u)) == STET_EOPEN &&
            (err = stet__load_row(e, u->id, &arena, &row, &extra)) == STET_OK)
            err = stet__fail(STET_EENDED, "%s has ended (%s) before it came to the update; `fork` starts a new run from any of its steps",
                             u->run->text, stet_status_name((stet_status)row.status));
    }
    stet__arena_free(&arena);
    return err;
}

static int
update_late(stet_engine *e, const update_wait *u, const char *name, const char *key)
{
    stet__arena  arena;
    stet_run_row row = { 0 };
    stet__fact   extra;
    size_t       workers = 1;
    bool         has_timers;
    int          err;

    stet__arena_init(&arena, &e->p->alloc);
    if (stet__load_row(e, u->id, &arena, &row, &extra) == STET_OK)
        (void)stet__served_by(e, row.handler, &workers, &has_timers);
    err = stet__fail(
        STET_ETIMEOUT,
        "%s: update %s was accepted and is not answered yet: the run is %s%s; ask again "
        "with the idempotency key %s",
        u->run->text, name, row.handler != NULL ? stet__row_state(&arena, &row) : "gone",
        workers == 0 ? ", and no worker serves its handler" : "", key);
    stet__arena_free(&arena);
    return err;
}

static int
update_give(const update_wait *u, stet_bytes *reply, const char *name)
{
    stet_bytes in = u->found;
    stet__fact mark;

    if (stet__fact_decode(&mark, &in) != STET_OK)
        return stet__fail(STET_ECORRUPT, "%s: the answer to update %s cannot be read", u->run->text,
                          name);
    if (mark.name.len != strlen(name) || memcmp(mark.name.data, name, mark.name.len) != 0)
        return stet__fail(STET_EMISMATCH,
                          "%s: the idempotency key is that of an update %.*s, not %s", u->run->text,
                          (int)mark.name.len, (const char *)mark.name.data, name);
    return stet__answer_give(reply, u->run, "update", name, &mark);
}

static int
update_check(stet_engine *e, const stet_run_id *run, const char *name, stet_bytes input,
             const stet_update_options *o, stet_id *id)
{
    int err;

    if ((err = stet__alive(e, "stet_update")) != STET_OK ||
        (err = stet__not_in_handler(e, "stet_update", "it in a step's body")) != STET_OK ||
        (err = stet__id_parse(id, STET__ID_RUN, run != NULL ? run->text : NULL)) != STET_OK ||
        (err = stet__name_check("update", name)) != STET_OK)
        return err;
    if ((int64_t)input.len > e->config.payload_bytes_max)
        return stet__fail(STET_ETOOBIG,
                          "update %s: %zu bytes; the limit is payload_bytes_max, %lld", name,
                          input.len, (long long)e->config.payload_bytes_max);
    if (o == NULL)
        return STET_OK;
    if (o->size != sizeof *o)
        return stet__fail(STET_EINVAL,
                          "update %s: stet_update_options.size is %zu; use STET_UPDATE_OPTIONS(…)",
                          name, o->size);
    if (o->timeout_ms < 0 && o->timeout_ms != STET_NONE)
        return stet__fail(STET_EINVAL, "update %s: a time limit cannot be negative", name);
    if ((o->idempotency_key != NULL &&
         (o->idempotency_key[0] == '\0' || strlen(o->idempotency_key) > UPDATE_KEY_MAX)) ||
        (o->by != NULL && strlen(o->by) > UPDATE_KEY_MAX))
        return stet__fail(
            STET_ETOOBIG,
            "update %s: an idempotency key has 1 to %u bytes, who asks at most as many", name,
            UPDATE_KEY_MAX);
    return STET_OK;
}

/* Ask, unless it was asked and answered before, and wait. */
static int
update_ask(stet_engine *e, update_wait *u, stet__fact *fact, int64_t timeout_ms)
{
    int64_t until_us = timeout_ms == STET_NONE ? STET__FOREVER : stet__mono_in(e->p, timeout_ms);
    int     err;

    if (!stet__update_key(&u->arena, &u->key, u->id, fact->idempotency_key))
        return stet__fail(STET_ENOMEM, "out of memory for an update");
    if ((err = update_find(e, u)) != STET_EOPEN)
        return err;
    err = stet__signal_put(e, u->run, u->id, fact);
    if (err == STET_OK)
        return stet__ask_wait(e, until_us, update_look, u);
    if (err == STET_EBUSY && update_find(e, u) == STET_OK)
        return STET_OK; /* a generation that is over by now has answered */
    return err == STET_EENDED ? update_look(e, u) : err; /* it may have come to it just before */
}

int
stet_update(stet_engine *e, stet_bytes *reply, const stet_run_id *run, const char *name,
            stet_bytes input, const stet_update_options *o)
{
    update_wait u = { .run = run };
    stet__fact  fact = { .kind = STET__FACT_UPDATE_ASKED };
    int64_t     timeout_ms =
        o != NULL && o->size == sizeof *o && o->timeout_ms != 0 ? o->timeout_ms : UPDATE_WAIT_MS;
    const char *key;
    char        own[STET_ID_TEXT_MAX];
    int         err;

    if (reply != NULL)
        *reply = (stet_bytes){ NULL, 0 };
    if ((err = update_check(e, run, name, input, o, &u.id)) != STET_OK)
        return err;
    stet__id_text(own, STET__ID_UPDATE, stet__new_id(e));
    key = o != NULL && o->idempotency_key != NULL ? o->idempotency_key : own;
    fact.name = stet_text(name);
    fact.value = input.data != NULL ? input : stet_text("");
    fact.idempotency_key = stet_text(key);
    if (o != NULL && o->by != NULL)
        fact.who = stet_text(o->by);
    stet__arena_init(&u.arena, &e->p->alloc);
    if ((err = update_ask(e, &u, &fact, timeout_ms)) == STET_OK)
        err = update_give(&u, reply, name);
    else if (err == STET_EOPEN)
        err = update_late(e, &u, name, key);
    stet__arena_free(&u.arena);
    return err;
}
