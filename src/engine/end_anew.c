/* The end of a generation: the run begins anew with another input.
 *
 * One unit removes what the run recorded, with all that follows from it, and writes the first facts
 * of the next generation: its STARTED fact, the signals nobody took and the updates nobody decided,
 * and the idempotency keys of those that came, so that one that is sent again is still known. What the run wrote to the state of
 * its object becomes a baseline, as if the run had been removed. What is removed is read from the
 * store, so everything before must be durable, and the unit holds only while the claim does and the
 * inbox has nothing new.
 */
#include "engine/host.h"

typedef struct anew_letters {
    stet_ctx *c;
    stet__map ids; /* of those that go along as they are */
} anew_letters;

static int
anew_signal(stet_ctx *c, stet_bytes signal, stet_bytes value, stet_bytes id, uint32_t flags)
{
    stet__fact fact = { .kind = STET__FACT_SIGNALLED,
                        .name = signal,
                        .value = value,
                        .idempotency_key = id,
                        .flags = flags };

    return stet__host_append(c, &fact, NULL);
}

static int
anew_on_letter(void *arg, stet_bytes signal, const stet__letter *letter)
{
    anew_letters *l = arg;

    if (letter->id.data != NULL &&
        stet__map_put(&l->ids, letter->id.data, letter->id.len, l) != STET_OK)
        return stet__fail(STET_ENOMEM, "out of memory for a unit");
    return anew_signal(l->c, signal, letter->value, letter->id, 0);
}

/* What was decided is known by its key: it may be asked for again by somebody who found no answer yet. */
static int
anew_update(stet_ctx *c, const stet__update *u, uint32_t flags)
{
    stet__fact fact = { .kind = STET__FACT_UPDATE_ASKED,
                        .name = stet_text(u->name),
                        .idempotency_key = u->key,
                        .flags = flags };

    fact.value = (flags & STET__FACT_SEEN) != 0 ? stet_text("") : u->input;
    return stet__host_append(c, &fact, NULL);
}

/* Keys that the generation before this one had are forgotten: or a run would carry all it ever
 * saw. */
static int
anew_signals(stet_ctx *c, stet__journal *j)
{
    anew_letters l = { .c = c };
    size_t       at = 0, len;
    const void  *id;
    void        *value;
    int          err;

    stet__map_init(&l.ids, &host_claim(c)->engine->p->alloc);
    err = STET__MUTANT(turn_letters) ? STET_OK : stet__journal_letters(j, anew_on_letter, &l);
    while (err == STET_OK && stet__map_next(&j->signal_ids, &at, &id, &len, &value))
        if (value == stet__journal_came(j) && stet__map_find(&l.ids, id, len) == NULL)
            err = anew_signal(c, (stet_bytes){ NULL, 0 }, (stet_bytes){ NULL, 0 },
                              (stet_bytes){ id, len }, STET__FACT_SEEN);
    stet__map_free(&l.ids);
    for (const stet__update *u = j->updates; err == STET_OK && u != NULL; u = u->next)
        if (u->key.data != NULL)
            err = anew_update(c, u, STET__FACT_SEEN);
    for (const stet__update *u = j->asked; err == STET_OK && u != NULL; u = u->next)
        err = anew_update(c, u, 0);
    return err;
}

/* The deadline is the run's. */
static bool
anew_timers(stet__work *w, const stet__expect *x)
{
    bool ok = true;

    for (const stet__want_timer *t = STET__MUTANT(turn_timers) ? NULL : x->timers; ok && t != NULL;
         t = t->next)
        if (t->completion != STET__TIMER_DEADLINE)
            ok = stet__work_timer_gone(w, x->l.run.id, t->fire_ms, t->completion);
    return ok;
}

/* The last entry that was taken stays: a store that lost the row finds in it how far the inbox
 * came. */
static void
anew_mark(stet__work *w, uint64_t taken)
{
    for (size_t i = 0; i < w->unit.n_ops; i++)
        if (w->ops[i].kind == STET_OP_FACTS && stet__id_equal(w->ops[i].run, w->run)) {
            w->ops[i].flags = STET_OP_ANEW;
            w->ops[i].session = taken > 0 ? taken - 1 : 0;
        }
}

static int
anew_unit(stet_ctx *c, stet__expect *x)
{
    stet__claim *claim = host_claim(c);
    stet__fact   started;
    int          err;

    if (x->is_unreadable)
        return STET_ECORRUPT;
    if (x->l.run.journal != c->run.journal ||
        x->l.run.taken != c->run.taken) /* not ours any more: the unit is refused */
        return stet__fail(STET_EFENCED, "another worker owns this run now");
    if (!anew_timers(claim->open, x))
        return stet__fail(STET_ENOMEM, "out of memory for a unit");
    if ((err = stet__purge_generation(claim->engine, claim->open, x)) != STET_OK ||
        (err = stet__mirror_keep(claim->engine, claim->open, x)) != STET_OK)
        return err;
    stet__run_restart(&x->l.run, &started, c->next_input, claim->epoch);
    claim->is_new = false; /* the fact says whose claim it was */
    if ((err = stet__host_append(c, &started, NULL)) != STET_OK)
        return err;
    anew_mark(claim->open, c->run.taken);
    return anew_signals(c, &x->l.journal);
}

int
stet__end_anew(stet_ctx *c)
{
    stet__claim *claim = host_claim(c);
    stet__expect x;
    stet__fact   released = { .kind = STET__FACT_RELEASED };
    int          err = stet__expect_load(claim->engine, &x, claim->run, NULL);

    if (err == STET_OK) {
        err = anew_unit(c, &x);
        stet__expect_free(&x);
    }
    if (err == STET_EFENCED || err == STET_ENOTFOUND)
        return stet__host_append(c, &released, NULL);
    return err;
}
