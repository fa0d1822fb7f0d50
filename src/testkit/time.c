/* Letting time pass. The simulator's clock moves only here: to the time of the next thing that
 * waits.
 *
 * Idle means more than that every fiber waits: a commit that is tried again in a second waits too.
 * So the engine is asked whether it has anything in hand, and the store whether anything is due.
 */
#include "testkit/kit.h"

#include <stdio.h>
#include <string.h>

#define TIME_MOST_MS INT64_C(31557600000000)
#define TIME_IDLE_US INT64_C(600000000) /* so long may what is in hand wait for itself */

int64_t
stet__kit_now_us(stet_test *kit)
{
    return stet__sim_now_us(kit->sim);
}

int64_t
stet_test_now(stet_test *kit)
{
    return kit->wall_ms + stet__kit_now_us(kit) / 1000;
}

int
stet__kit_settle(stet_test *kit)
{
    bool is_at_rest;

    kit->is_inside = true;
    is_at_rest = stet__sim_settle(kit->sim, kit->events_max);
    kit->is_inside = false;
    return is_at_rest
               ? STET_OK
               : stet__fail(STET_ETIMEOUT, "something runs without end, and no time passes: look "
                                           "for a run that starts itself again");
}

bool
stet__kit_leap(stet_test *kit, int64_t until_us)
{
    int64_t next_us = stet__sim_next_us(kit->sim);
    bool    is_next = next_us <= until_us && next_us != STET__FOREVER;

    if (is_next || until_us != STET__FOREVER)
        stet__sim_leap(kit->sim, is_next ? next_us : until_us);
    return is_next;
}

/* ---- idle ------------------------------------------------------------------------------------ */

static int
time_on_timer(void *arg, const stet_timer *timer)
{
    (void)timer;
    *(bool *)arg = true;
    return STET_END;
}

/* Everything rests; is there something in hand all the same, or due? */
static bool
time_is_busy(stet_test *kit)
{
    stet_engine        *e = kit->engine;
    const stet__served *served = atomic_load(&e->served);
    int64_t             due_ms = STET_NEVER, now_ms = stet_test_now(kit);
    bool                has_timer = false;

    if (atomic_load(&e->in_flight) > 0 || atomic_load(&e->asked) > 0 || e->firing > 0 ||
        e->is_claiming || e->wants_claim || atomic_load(&e->is_poisoned) ||
        atomic_load(&e->committer.n_queued) > 0 || e->committer.is_busy)
        return true;
    (void)kit->look->ops->timers(kit->look, now_ms, 1, time_on_timer, &has_timer, NULL);
    if (!has_timer && served != NULL && served->n > 0)
        (void)kit->look->ops->due(kit->look, served->names, served->n, &due_ms);
    return has_timer || due_ms <= now_ms;
}

typedef struct time_list {
    stet_engine *engine;
    char        *text;
    size_t       size, used, n;
} time_list;

static void
time_say(time_list *list, const char *a, const char *b, const char *c)
{
    int n = snprintf(list->text + list->used, list->size - list->used, "%s%s%s", a, b, c);

    if (n > 0)
        list->used += (size_t)n < list->size - list->used ? (size_t)n : list->size - list->used - 1;
}

static void
time_on_verdict(void *arg, const stet_verdict *verdict)
{
    time_say(arg, " ", verdict->text, "");
}

static int
time_on_run(void *arg, const stet_run_info *info)
{
    time_list  *list = arg;
    stet_run_id run;

    if (stet_status_is_terminal(info->status) || stet_run_id_parse(&run, info->id) != STET_OK)
        return STET_OK;
    time_say(list, list->n++ > 0 ? "; " : "", info->handler, " ");
    time_say(list, info->id, " is ", stet_status_name(info->status));
    (void)stet_why(list->engine, &run, time_on_verdict, list);
    return list->n < 5 ? STET_OK : STET_END;
}

static int
time_list_main(stet_engine *e, void *arg)
{
    time_list *list = arg;

    list->engine = e;
    list->used = list->n = 0;
    list->text[0] = '\0';
    (void)stet_run_list(e, NULL, time_on_run, list);
    return STET_OK;
}

/* Fail with a sentence, and what the open runs wait for. */
static int
time_out(stet_test *kit, const char *what)
{
    char      text[1024] = "";
    time_list list = { .text = text, .size = sizeof text };

    (void)stet__kit_do(kit, time_list_main, &list, NULL);
    return stet__fail(STET_ETIMEOUT, "%s: %s", what, text[0] != '\0' ? text : "no run is open");
}

static int
time_idle(stet_test *kit)
{
    int64_t until_us = stet__kit_now_us(kit) + TIME_IDLE_US;
    int     err;

    for (;;) {
        if ((err = stet__kit_up(kit)) != STET_OK)
            return err;
        if ((err = stet__kit_settle(kit)) != STET_OK)
            return err;
        if (!stet__sim_node_is_alive(kit->sim, kit->node))
            continue;
        if (!time_is_busy(kit))
            return STET_OK;
        if (stet__sim_next_us(kit->sim) >
            (until_us > kit->spent_us ? until_us : kit->spent_us + TIME_IDLE_US))
            return time_out(kit, "still at work after 10 minutes of virtual time");
        stet__sim_leap(kit->sim, stet__sim_next_us(kit->sim));
    }
}

/* ---- public ---------------------------------------------------------------------------------- */

int
stet_test_run_until_idle(stet_test *kit)
{
    int err = stet__kit_enter(kit, "stet_test_run_until_idle");

    return err == STET_OK ? time_idle(kit) : err;
}

static int
time_until(stet_test *kit, const char *duration, int64_t *until_us)
{
    int64_t ms;
    int     err = stet_duration_parse(&ms, duration);

    if (err != STET_OK)
        return err;
    if (ms > TIME_MOST_MS)
        return stet__fail(STET_EDURATION, "%s is longer than a test can last: a thousand years",
                          duration);
    *until_us = stet__kit_now_us(kit) + ms * 1000;
    return STET_OK;
}

int
stet_test_advance(stet_test *kit, const char *duration)
{
    int64_t until_us;
    int     err = stet__kit_enter(kit, "stet_test_advance");

    /* What is ready begins its waits now, and not late by what it takes to get there. */
    if (err != STET_OK || (err = time_idle(kit)) != STET_OK ||
        (err = time_until(kit, duration, &until_us)) != STET_OK)
        return err;
    while (stet__kit_now_us(kit) < until_us) {
        if ((err = stet__kit_settle(kit)) != STET_OK || (err = stet__kit_up(kit)) != STET_OK)
            return err;
        (void)stet__kit_leap(kit, until_us);
    }
    return time_idle(kit);
}

int
stet_test_wait_until(stet_test *kit, stet_test_predicate predicate, void *arg, const char *limit)
{
    int64_t until_us;
    char    what[128];
    int     err = stet__kit_enter(kit, "stet_test_wait_until");

    if (err != STET_OK || (err = time_until(kit, limit, &until_us)) != STET_OK)
        return err;
    for (;;) {
        if ((err = time_idle(kit)) != STET_OK || predicate(kit, arg))
            return err;
        if (stet__kit_now_us(kit) >= until_us)
            break;
        (void)stet__kit_leap(kit, until_us);
    }
    (void)snprintf(what, sizeof what, "what was waited for is not so after %s", limit);
    return time_out(kit, what);
}

/* A wait of this fiber alone, on a lock nobody else knows. */
int
stet_test_spend(stet_test *kit, const char *duration)
{
    stet__platform *p = kit->node;
    stet__mutex     lock;
    stet__cond      over;
    int64_t         until_us;
    int             err;

    if (!kit->is_inside)
        return stet__fail(STET_EUSAGE, "stet_test_spend is for bodies; a test lets time pass with "
                                       "stet_test_advance()");
    if ((err = time_until(kit, duration, &until_us)) != STET_OK ||
        (err = p->ops->mutex_init(p, &lock)) != STET_OK)
        return err;
    if ((err = p->ops->cond_init(p, &over)) == STET_OK) {
        if (until_us > kit->spent_us)
            kit->spent_us = until_us;
        stet__lock(p, &lock);
        while (stet__wait(p, &over, &lock, until_us))
            ; /* woken without cause */
        stet__unlock(p, &lock);
        p->ops->cond_destroy(p, &over);
    }
    p->ops->mutex_destroy(p, &lock);
    return err;
}
