/* What a handler asks the store for, with the record of the answer: a key that is given out once, the state of
 * another run.
 *
 * A key that was given out is not a projection of its run's facts: it outlives the run, so it is a baseline from
 * the beginning.
 */
#include "engine/host.h"

int
stet__once_in(stet_ctx *c, stet__work *w, stet__fact *fact)
{
    stet__claim *claim = host_claim(c);
    stet_engine *e = claim->engine;
    stet_value   v = { 0 };
    stet_cond   *cond;
    stet_op     *op;
    int          err = e->store->ops->value(e->store, STET__SPACE_BASE_ONCE, fact->name, &v);

    if (err == STET_OK)
        stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    else if (err != STET_ENOTFOUND)
        return err;
    if (err == STET_ENOTFOUND) {
        if ((cond = stet__work_cond(w, STET_COND_VALUE, claim->run)) == NULL ||
            (op = stet__work_op(w, STET_OP_VALUE_PUT, claim->run)) == NULL ||
            !stet__work_bytes(w, &op->key, fact->name) || !stet__work_bytes(w, &op->data, stet__id_bytes(&claim->run)))
            return stet__fail(STET_ENOMEM, "out of memory");
        cond->space = op->space = STET__SPACE_BASE_ONCE;
        cond->key = op->key;
        op->number = c->run.journal + 1;
        if (STET__MUTANT(once_unchecked))
            w->unit.n_conds--;
        fact->number = 1;
    }
    return stet__host_append(c, fact, NULL);
}

static const char *
look_text(stet_ctx *c, const stet__fact *fact, int err)
{
    char run[STET_ID_TEXT_MAX];

    if (err == STET_ENOTFOUND)
        return stet__arena_str(&c->arena, stet_last_error());
    stet__id_text(run, STET__ID_RUN, stet__fact_id(fact->run));
    return stet__arena_printf(&c->arena, "the record of %s is damaged: %s; see `stet why %s`", run, stet_last_error(), run);
}

int
stet__look_in(stet_ctx *c, stet__fact *fact)
{
    stet_engine *e = host_claim(c)->engine;
    stet__loaded l;
    const char  *text;
    bool         ok = true;
    int          err = stet__load(e, &l, stet__fact_id(fact->run), false);

    if (err == STET_ENOTFOUND || err == STET_ECORRUPT) { /* recorded too: the same on every replay */
        if ((text = look_text(c, fact, err)) == NULL)
            return stet__fail(STET_ENOMEM, "out of memory");
        fact->code = err;
        fact->text = stet_text(text);
        return stet__host_append(c, fact, NULL);
    }
    if (err != STET_OK)
        return err;
    fact->number = l.run.status;
    if (l.run.status == STET_STATUS_COMPLETED) {
        fact->value = (stet_bytes){ stet__arena_copy(&c->arena, l.run.result.data, l.run.result.len), l.run.result.len };
        ok = fact->value.data != NULL;
    } else {
        fact->cause = l.run.code;
        if (l.run.error != NULL && (ok = (text = stet__arena_str(&c->arena, l.run.error)) != NULL))
            fact->text = stet_text(text);
    }
    stet__loaded_free(&l);
    return ok ? stet__host_append(c, fact, NULL) : stet__fail(STET_ENOMEM, "out of memory");
}
