/* The history of a seed: every event goes into one hash, the last ones are kept to be read. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fleet.h"

enum { TRACE_SHOWN = 80, TRACE_TAIL = 25 };

void
fleet_trace(fleet *w, const fleet_node *node, const fleet_run *run, const char *what,
            const char *name, int64_t a, int64_t b)
{
    fleet_event *e;
    uint64_t     numbers[4];
    size_t       len = 0;

    if (w->of != NULL)
        return; /* a recovery: its history is nobody's */
    e = &w->events[w->n_events++ % FLEET_EVENTS_KEPT];
    e->at_us = stet__sim_now_us(w->sim);
    e->node = node != NULL ? (int)node->index : -1;
    e->run = run != NULL ? run->number : 0;
    e->what = what;
    while (name != NULL && name[len] != '\0' && len < sizeof e->name - 1)
        len++;
    if (len > 0)
        memcpy(e->name, name, len);
    e->name[len] = '\0';
    e->a = a;
    e->b = b;
    numbers[0] = (uint64_t)e->at_us;
    numbers[1] = (uint64_t)(e->node + 1) << 32 | e->run;
    numbers[2] = (uint64_t)a;
    numbers[3] = (uint64_t)b;
    w->hash = stet__hash64(numbers, sizeof numbers, w->hash);
    w->hash = stet__hash64(what, strlen(what), w->hash);
    w->hash = stet__hash64(e->name, len, w->hash);
}

void
fleet_fail(fleet *w, const fleet_run *run, const char *fmt, ...)
{
    va_list args;

    if (w->is_failed)
        return;
    w->is_failed = true;
    w->failed_run = run != NULL ? run->number : 0;
    va_start(args, fmt);
    (void)vsnprintf(w->failure, sizeof w->failure, fmt, args);
    va_end(args);
    fleet_trace(w, NULL, run, "FAILED", NULL, 0, 0);
    stet__sim_stop(w->sim);
}

static void
trace_print(const fleet_event *e, FILE *out)
{
    char who[16], run[16] = "";

    (void)snprintf(who, sizeof who, e->node < 0 ? "store" : "node %d", e->node);
    if (e->run != 0)
        (void)snprintf(run, sizeof run, "run %u", e->run);
    fprintf(out, "  %12.6f s  %-7s %-8s %s", (double)e->at_us / 1e6, who, run, e->what);
    if (e->name[0] != '\0')
        fprintf(out, " %s", e->name);
    if (e->a != 0 || e->b != 0)
        fprintf(out, " %" PRId64, e->a);
    if (e->b != 0)
        fprintf(out, " %" PRId64, e->b);
    fprintf(out, "\n");
}

/* The last `max` events of one run, or of all (0). */
static void
trace_show(const fleet *w, unsigned run, size_t max, FILE *out)
{
    size_t first = w->n_events > FLEET_EVENTS_KEPT ? w->n_events - FLEET_EVENTS_KEPT : 0;
    size_t from = w->n_events, found = 0;

    while (from > first && found < max) {
        from--;
        found += run == 0 || w->events[from % FLEET_EVENTS_KEPT].run == run;
    }
    for (; from < w->n_events; from++)
        if (run == 0 || w->events[from % FLEET_EVENTS_KEPT].run == run)
            trace_print(&w->events[from % FLEET_EVENTS_KEPT], out);
}

void
fleet_tell(fleet *w, FILE *out)
{
    const char *size = w->options.is_large ? " SIZE=large" : "";
#ifdef STET__ASAN
    const char *build = " SANITIZE=address"; /* where it is another history (Makefile) */
#else
    const char *build = "";
#endif

    if (w->is_failed) {
        fprintf(out, "seed %" PRIu64 " failed: %s\n", w->options.seed, w->failure);
        fprintf(out, "again: make sim SEEDS=1 SEED=%" PRIu64 "%s%s\n", w->options.seed, size,
                build);
    }
    if (w->failed_run != 0) {
        fprintf(out, "the last events of run %u:\n", w->failed_run);
        trace_show(w, w->failed_run, TRACE_SHOWN, out);
    }
    fprintf(out, "the last events of all:\n");
    trace_show(w, 0, w->options.is_verbose ? FLEET_EVENTS_KEPT : TRACE_TAIL, out);
    fflush(out);
}
