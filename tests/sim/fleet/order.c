/* In which order what a run waits for came, and that it saw that order.
 *
 * What comes through the inbox came when its entry was taken, of several the first entry first; what is recorded by the
 * run itself came with that fact. Whoever waits for the first of futures gets the first one, and who is told to stop at a
 * wait is not told so of what had ended before. Of futures those with a name of their own are known: no calls, no signals. /
 */
#include <stdlib.h>
#include <string.h>

#include "fleet.h"

/* What is waited for, as its command is recorded. */
struct fleet_due {
    fleet_due *next;
    char       name[16];
    uint64_t   completion;
    uint64_t   at,
        entry; /* when it came: a revision, and the entry that was taken there; 0: it has not, or none was */
};

static bool
order_is(const fleet_due *d, const char *name, size_t len)
{
    return strlen(d->name) == len && memcmp(d->name, name, len) == 0;
}

static fleet_due *
order_find(const fleet_run *run, const char *name, size_t len)
{
    fleet_due *d = run->dues;

    while (d != NULL && !order_is(d, name, len))
        d = d->next;
    return d;
}

static fleet_due *
order_add(fleet *w, fleet_run *run, const stet__fact *fact)
{
    fleet_due *d = order_find(run, fact->name.data, fact->name.len);

    if (d == NULL) {
        if ((d = stet__arena_get0(&w->arena, sizeof *d)) == NULL)
            abort();
        fleet_text(d->name, sizeof d->name, fact->name.data, fact->name.len);
        d->next = run->dues;
        run->dues = d;
    }
    return d;
}

void
fleet_order_forget(fleet_run *run)
{
    run->dues = NULL;
}

/* Its entry is in the inbox. */
void
fleet_order_entry(fleet_run *run, const stet__fact *fact)
{
    for (fleet_due *d = run->dues; d != NULL; d = d->next)
        if (d->completion == (uint64_t)fact->completion && d->entry == 0 && d->at == 0)
            d->entry = run->inbox;
}

void
fleet_order_taken(fleet_run *run, uint64_t upto, uint64_t revision)
{
    for (fleet_due *d = run->dues; d != NULL; d = d->next)
        if (d->entry != 0 && d->entry <= upto && d->at == 0)
            d->at = revision;
}

static bool
order_is_before(const fleet_due *a, const fleet_due *b)
{
    return a->at != b->at ? a->at < b->at : a->entry < b->entry;
}

/* Of the futures of that operation it says that this one came first. */
static void
order_chosen(fleet *w, const fleet_run *run, size_t op, size_t chosen)
{
    const fleet_op  *o = &run->program.ops[op];
    const fleet_due *parts[FLEET_PARTS_MAX] = { NULL };

    for (size_t i = 0; i < o->parts; i++) {
        char  name[16], *end = name + sizeof name;
        char *at = stet__text_add_number(stet__text_add(name, end, "s"), end, op);

        if (o->part[i] == FLEET_OP_CALL)
            return; /* one that is refused is no future */
        (void)stet__text_add_number(stet__text_add(at, end, "-"), end, i);
        parts[i] = o->part[i] != FLEET_OP_SIGNAL ? order_find(run, name, strlen(name)) : NULL;
    }
    if (chosen >= o->parts || parts[chosen] == NULL)
        return;
    if (parts[chosen]->at == 0)
        fleet_fail(w, run, "%s is said to have come first, and has not come", parts[chosen]->name);
    for (size_t i = 0; i < o->parts; i++)
        if (parts[i] != NULL && parts[i]->at != 0 && order_is_before(parts[i], parts[chosen]))
            fleet_fail(w, run, "%s is said to have come first, and %s did", parts[chosen]->name,
                       parts[i]->name);
    w->stats.checks++;
}

static void
order_any(fleet *w, const fleet_run *run, const stet__fact *fact)
{
    size_t          nth = (size_t)fact->occurrence - 1, op;
    const fleet_op *o;

    if (nth >= FLEET_OPS_MAX || run->any_ops[nth] == 0 || fact->code != 0)
        return;
    op = run->any_ops[nth] - 1u;
    o = &run->program.ops[op];
    if (op < run->program.n && o->kind == FLEET_OP_FUTURES &&
        (o->wait == FLEET_WAIT_ANY || o->wait == FLEET_WAIT_ANY_FOR))
        order_chosen(w, run, op, (size_t)fact->number);
}

void
fleet_order_any(fleet_run *run, size_t nth, size_t op)
{
    if (nth < FLEET_OPS_MAX)
        run->any_ops[nth] = (uint8_t)(op + 1);
}

static void
order_stopped(fleet *w, const fleet_run *run, const stet__fact *fact)
{
    static const char awakeable[] = "awakeable ";
    size_t            skip = sizeof awakeable - 1;
    const char       *name = fact->name.data;
    const fleet_due  *d;

    if (fact->name.len < skip + 2 || memcmp(name, awakeable, skip) != 0)
        return;
    d = order_find(run, name + skip, fact->name.len - skip - 2); /* without "#1" */
    if (d != NULL && d->at != 0 && d->entry != 0 && d->entry < run->stop_entry)
        fleet_fail(w, run, "it is told to stop at its wait for %s, which had been settled",
                   d->name);
    w->stats.checks++;
}

void
fleet_order_fact(fleet *w, fleet_run *run, const stet__fact *fact)
{
    bool       is_stop = fact->code == STET_ECANCELLED || fact->code == STET_EEXPIRED;
    bool       is_part;
    fleet_due *d;

    if (w->of != NULL || run->is_retry || run->is_rewritten)
        return;
    switch (fact->kind) {
    case STET__FACT_AWAKEABLE:
    case STET__FACT_SLEEP:
    case STET__FACT_SIGNAL:
    case STET__FACT_STEP:
        is_part = fact->name.len > 0 && memchr(fact->name.data, '-', fact->name.len) != NULL;
        if (!is_part && fact->kind != STET__FACT_AWAKEABLE)
            return;
        d = order_add(w, run, fact);
        d->completion = fact->revision;
        if (fact->kind == STET__FACT_STEP || fact->code != 0)
            d->at = fact->revision;
        break;
    case STET__FACT_TIMER:
        for (d = run->dues; d != NULL; d = d->next)
            if (d->completion == (uint64_t)fact->completion && d->at == 0)
                d->at = fact->revision;
        break;
    case STET__FACT_CHOICE:
        if (fact->name.len == 3 && memcmp(fact->name.data, "any", 3) == 0)
            order_any(w, run, fact);
        /* fall through */
    case STET__FACT_AWAIT:
        if (is_stop)
            order_stopped(w, run, fact);
        break;
    default: break;
    }
}
