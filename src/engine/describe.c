/* stet_describe(): the operations a handler comes to, told by executing it against an empty record
 * in a child, with results of another run, of its samples, or none.
 */
#include <stdio.h>
#include <string.h>

#include "engine/offline.h"

#define DESCRIBE_TIME_MS 5000
#define DESCRIBE_OPS_MAX 1000

/* What stands before each piece of the child's answer. */
enum { DESCRIBE_OPERATION = 1, DESCRIBE_REPORT = 2 };

typedef struct describe {
    stet__errand                 x; /* first */
    stet_engine                 *e;
    const stet_describe_options *o;
    const char                  *handler;
    stet__tape                   tape;
    stet__tape_row               row;
    const stet__journal         *from;
    stet_operation_fn            operation;
    stet_replay_fn               report;
    void                        *arg;
    bool                         is_lost; /* the child died of it, as `lost` says */
    stet_replay_report           lost;
    stet__offline_place          lost_at;
    char                         lost_text[512];
    stet__buf                   *out; /* in the child */
    stet__offline                offline;
} describe;

/* ---- the child ------------------------------------------------------------------------------- */

static int
describe_keep(void *arg, const stet_operation *op)
{
    describe *d = arg;

    stet__buf_byte(d->out, DESCRIBE_OPERATION);
    stet__operation_encode(d->out, op);
    return STET_OK;
}

static bool
describe_begin(stet__errand *x)
{
    describe *d = (describe *)x;

    if (stet__offline_open(&d->offline, d->e) != STET_OK)
        return false;
    d->offline.follows = true;
    d->offline.from = d->from;
    d->offline.place = x->shared;
    d->offline.fn = describe_keep;
    d->offline.arg = d;
    d->offline.new_max =
        d->o->operations_max > 0 ? (uint64_t)d->o->operations_max : DESCRIBE_OPS_MAX;
    if (d->is_lost)
        d->offline.new_max = d->lost_at.operations - 1;
    return true;
}

static bool
describe_perform(stet__errand *x, size_t i, stet__buf *out)
{
    describe *d = (describe *)x;

    (void)i;
    d->out = out;
    if (stet__offline_run(&d->offline, &d->tape) != STET_OK)
        return false;
    stet__buf_byte(out, DESCRIBE_REPORT);
    stet__report_encode(out, &d->offline.report);
    return !out->failed;
}

/* ---- the parent ------------------------------------------------------------------------------ */

static int
describe_tell(describe *d, stet_replay_report *r)
{
    r->run = NULL; /* there is none */
    r->status = (stet_status)0;
    r->handler = d->handler;
    return d->report != NULL ? d->report(d->arg, r) : STET_OK;
}

static int
describe_done(stet__errand *x, size_t i, stet_bytes out)
{
    describe          *d = (describe *)x;
    stet__arena        arena;
    stet_operation     op;
    stet_replay_report r;
    uint8_t            what;
    int                err = STET_OK;

    (void)i;
    stet__arena_init(&arena, &d->e->p->alloc);
    while (err == STET_OK && stet__read_byte(&out, &what)) {
        if (what == DESCRIBE_REPORT) {
            if ((err = stet__report_decode(&r, &arena, &out)) == STET_OK)
                err = describe_tell(d, d->is_lost ? &d->lost : &r);
            continue;
        }
        if ((err = stet__operation_decode(&op, &arena, &out)) != STET_OK)
            break;
        if (!d->o->has_progress)
            op.is_recorded = op.is_settled = false;
        if (d->operation != NULL)
            err = d->operation(d->arg, &op);
    }
    stet__arena_free(&arena);
    return err;
}

/* It is executed once more and let go at the operation it died behind: what came before is told. */
static int
describe_lost(stet__errand *x, size_t i, bool is_late, const char *text)
{
    describe *d = (describe *)x;

    (void)i;
    if (d->is_lost)
        return describe_tell(d, &d->lost); /* not even so */
    d->is_lost = true;
    memcpy(&d->lost_at, x->shared, sizeof d->lost_at);
    stet__offline_lost(&d->lost, &d->lost_at, is_late, x->time_ms, text, d->lost_text);
    return STET_OK;
}

/* A record of which only the start is there. */
static void
describe_tape(describe *d, stet__buf *facts, const stet__handler *h, stet_bytes input,
              const char *key)
{
    stet__fact started = { .kind = STET__FACT_STARTED };

    started.time_ms = stet__wall_ms(d->e->p);
    started.name = stet_text(h->name);
    started.value = input;
    started.attempts_max = h->retry.attempts > 0 ? h->retry.attempts : d->e->config.run_attempts;
    started.retry_first_ms = d->e->config.retry_first_ms;
    started.retry_max_ms = d->e->config.retry_max_ms;
    started.retry_factor = d->e->config.retry_factor_percent;
    if (h->is_object) {
        started.flags = STET__FACT_OBJECT;
        started.key = stet_text(key != NULL ? key : "key");
    }
    stet__fact_encode(facts, &started);
    d->row = (stet__tape_row){ 1, 1, stet__buf_bytes(facts) };
    d->tape.run.bytes[15] = 1;
    d->tape.status = STET_STATUS_PENDING;
    d->tape.revision = 1;
    d->tape.journal = &d->row;
    d->tape.n_journal = 1;
}

static int
describe_handler(describe *d, const stet__handler *h, const stet__run *run)
{
    stet_bytes input = d->o->input;
    stet__buf  facts;
    int        err;

    if (input.data == NULL && run != NULL)
        input = run->input;
    else if (input.data == NULL && h->default_input != NULL)
        input = stet_text(h->default_input);
    stet__buf_init(&facts, &d->e->p->alloc);
    describe_tape(d, &facts, h, input, d->o->key != NULL || run == NULL ? d->o->key : run->key);
    err = facts.failed ? stet__fail(STET_ENOMEM, "out of memory") : stet__errand_run(&d->x);
    if (err == STET_OK && d->is_lost)
        err = d->lost_at.operations > 0 ? stet__errand_run(&d->x) : describe_tell(d, &d->lost);
    stet__buf_free(&facts);
    return err;
}

static int
describe_from(describe *d, const stet__handler *h)
{
    stet__loaded l;
    stet_id      id;
    int          err = stet__id_parse(&id, STET__ID_RUN, d->o->from->text);

    if (err != STET_OK || (err = stet__load(d->e, &l, id, true)) != STET_OK)
        return err;
    if (strcmp(l.run.handler, h->name) != 0)
        err = stet__fail(STET_EMISMATCH, "run %s is one of %s, not of %s", d->o->from->text,
                         l.run.handler, h->name);
    else {
        d->from = &l.journal;
        err = describe_handler(d, h, &l.run);
    }
    stet__loaded_free(&l);
    return err;
}

int
stet_describe(stet_engine *e, const char *handler, const stet_describe_options *options,
              stet_operation_fn operation, stet_replay_fn report, void *arg)
{
    static const stet_describe_options none = { .size = sizeof none };
    const stet__handler               *h;
    describe                           d = { .e = e, .handler = handler, .arg = arg };
    int                                err;

    d.operation = operation;
    d.report = report;
    d.o = options != NULL ? options : &none;
    if ((err = stet__alive(e, "stet_describe")) != STET_OK)
        return err;
    if (d.o->size != sizeof none || d.o->time_ms < 0 || d.o->operations_max < 0)
        return stet__fail(STET_EINVAL,
                          "stet_describe_options: use STET_DESCRIBE(…), and no limit below 0");
    if (handler == NULL || (h = stet__handler_find(e, handler)) == NULL)
        return stet__fail(STET_ENOHANDLER, "this program has no handler %s; `handlers` lists them",
                          handler != NULL ? handler : "(none)");
    d.x = (stet__errand){ .p = e->p,
                          .n = 1,
                          .shared_bytes = sizeof(stet__offline_place),
                          .begin = describe_begin,
                          .perform = describe_perform,
                          .done = describe_done,
                          .lost = describe_lost };
    d.x.time_ms = d.o->time_ms > 0 ? d.o->time_ms : DESCRIBE_TIME_MS;
    return d.o->from != NULL ? describe_from(&d, h) : describe_handler(&d, h, NULL);
}
