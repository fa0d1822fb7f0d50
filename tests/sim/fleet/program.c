/* Programs: what one run does, drawn from a seed.
 *
 * A program is a function of the run's input alone, so every execution of a run, on whatever node,
 * interprets the same one. /
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet.h"

const char *const fleet_op_names[FLEET_OPS] = {
#define FLEET_OP_NAME(name, service, object, shared, text) text,
    FLEET_OP_LIST(FLEET_OP_NAME)
#undef FLEET_OP_NAME
};

/* Of a service, of an object, of a shared handler of one. */
static const unsigned program_weights[3][FLEET_OPS] = {
#define FLEET_OP_SERVICE(name, service, object, shared, text) service,
#define FLEET_OP_OBJECT(name, service, object, shared, text)  object,
#define FLEET_OP_SHARED(name, service, object, shared, text)  shared,
    { FLEET_OP_LIST(FLEET_OP_SERVICE) },
    { FLEET_OP_LIST(FLEET_OP_OBJECT) },
    { FLEET_OP_LIST(FLEET_OP_SHARED) }
};

static bool
program_one_in(stet__rng *r, uint64_t n)
{
    return fleet_draw(r, n) == 0;
}

static fleet_op_kind
program_kind(stet__rng *r, int of)
{
    const unsigned *weights = program_weights[of];
    uint64_t        sum = 0, at;

    for (int i = 0; i < FLEET_OPS; i++)
        sum += weights[i];
    at = fleet_draw(r, sum);
    for (int i = 0; i < FLEET_OPS; i++) {
        if (at < weights[i])
            return (fleet_op_kind)i;
        at -= weights[i];
    }
    return FLEET_OP_STEP;
}

static void
program_body(fleet_body *b, stet__rng *r)
{
    *b = (fleet_body){ 0 };
    if (program_one_in(r, 3))
        b->takes_ms = (uint16_t)fleet_draw(r, program_one_in(r, 8) ? 3000 : 60);
    if (program_one_in(r, 2))
        b->attempts = (uint8_t)(1 + fleet_draw(r, 3));
    if (program_one_in(r, 3))
        b->fails = (uint8_t)(1 + fleet_draw(r, 2));
    if (b->fails > 0 && b->attempts == 0 && program_one_in(r, 12))
        b->verdict = (uint8_t)(1 + fleet_draw(r, FLEET_VERDICTS - 1));
    b->is_permanent = program_one_in(r, 16);
    b->is_late = b->attempts > 1 && b->fails == 0 && program_one_in(r, 12);
    if (b->is_late)
        b->takes_ms = 40;
}

static int64_t
program_ms(stet__rng *r)
{
    switch (fleet_draw(r, 4)) {
    case 0: return (int64_t)fleet_draw(r, 5);
    case 1: return (int64_t)fleet_draw(r, 200);
    case 2: return (int64_t)fleet_draw(r, 3000);
    default: return (int64_t)fleet_draw(r, 15000);
    }
}

static void
program_child(fleet_op *op, stet__rng *r, const fleet_order *order, bool is_call)
{
    op->seed = stet__rng_next(r);
    op->key = -1;
    if (program_one_in(r, 3)) {
        int floor = is_call ? order->floor : -1;

        if (floor + 1 < FLEET_KEYS)
            op->key = floor + 1 + (int)fleet_draw(r, (uint64_t)(FLEET_KEYS - floor - 1));
    } else if (program_one_in(r, 8)) { /* it holds nothing, so any key will do, also the caller's */
        op->key = (int)fleet_draw(r, FLEET_KEYS);
        op->is_shared = true;
    }
}

static void
program_futures(fleet_op *op, stet__rng *r)
{
    static const fleet_op_kind parts[] = { FLEET_OP_STEP, FLEET_OP_STEP, FLEET_OP_SLEEP,
                                           FLEET_OP_CALL };

    op->parts = (uint8_t)(1 + fleet_draw(r, FLEET_PARTS_MAX));
    op->wait = (fleet_wait)fleet_draw(r, 4);
    for (uint8_t i = 0; i < op->parts; i++) {
        op->part[i] = (uint8_t)parts[fleet_draw(r, 4)];
        program_body(&op->body[i], r);
    }
}

/* A schedule's runs come in numbers, and nobody is asked to help them. */
static fleet_op_kind
program_planned(fleet_op_kind kind)
{
    switch (kind) {
    case FLEET_OP_AWAKE:
    case FLEET_OP_SIGNAL:
    case FLEET_OP_EVENT:
    case FLEET_OP_APPROVE:
    case FLEET_OP_PAUSE: return FLEET_OP_SLEEP;
    default: return kind;
    }
}

static void
program_op(fleet_op *op, stet__rng *r, const fleet_order *order, int of)
{
    *op = (fleet_op){ .kind = program_kind(r, of), .key = -1 };
    if (order->depth >= 2 && (op->kind == FLEET_OP_CALL || op->kind == FLEET_OP_SEND))
        op->kind = FLEET_OP_STEP;
    if (order->depth == FLEET_DEPTH_PLANNED)
        op->kind = program_planned(op->kind);
    op->ms = program_ms(r);
    op->seed = stet__rng_next(r);
    program_body(&op->body[0], r);
    switch (op->kind) {
    case FLEET_OP_CALL: program_child(op, r, order, true); break;
    case FLEET_OP_SEND:
        program_child(op, r, order, false);
        op->has_limit = program_one_in(r, 3);
        if (program_one_in(r, 2))
            op->ms = 0;
        break;
    case FLEET_OP_AWAKE:
        op->has_limit = program_one_in(r, 2);
        op->is_inside = program_one_in(r, 3);
        op->is_reject = program_one_in(r, 4);
        break;
    case FLEET_OP_SIGNAL:
        op->has_limit = program_one_in(r, 2);
        op->is_inside = program_one_in(r, 4);
        break;
    case FLEET_OP_FUTURES:
        program_futures(op, r);
        program_child(op, r, order, true);
        for (uint8_t i = 0; i < op->parts; i++)
            if (order->depth >= 2 && op->part[i] == FLEET_OP_CALL)
                op->part[i] = FLEET_OP_SLEEP;
        break;
    default: break;
    }
}

/* What came later is drawn by itself, so that programs are for the rest what they were without. */
/* Some wait for what comes from outside; one of them at most for an awakeable. */
static void
program_more_parts(fleet_op *op, stet__rng *r)
{
    bool has_awakeable = false;

    for (uint8_t i = 0; i < op->parts; i++) {
        if (!program_one_in(r, 4))
            continue;
        op->part[i] = !has_awakeable && program_one_in(r, 2) ? FLEET_OP_AWAKE : FLEET_OP_SIGNAL;
        has_awakeable = has_awakeable || op->part[i] == FLEET_OP_AWAKE;
    }
}

size_t
fleet_signal_parts(const fleet_program *p, size_t op, size_t part)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n && i <= op; i++)
        for (size_t k = 0;
             p->ops[i].kind == FLEET_OP_FUTURES && k < p->ops[i].parts && (i < op || k < part); k++)
            n += p->ops[i].part[k] == FLEET_OP_SIGNAL;
    return n;
}

static void
program_more_op(fleet_op *op, stet__rng *r)
{
    for (size_t i = 0; i < FLEET_PARTS_MAX; i++) {
        op->body[i].has_print = program_one_in(r, 2);
        if (program_one_in(r, 12) && !op->body[i].is_late)
            op->body[i].later_ms = (uint16_t)(1 + fleet_draw(r, program_one_in(r, 4) ? 4000 : 200));
    }
    if ((op->kind == FLEET_OP_CALL || op->kind == FLEET_OP_SEND || op->kind == FLEET_OP_FUTURES) &&
        program_one_in(r, 10))
        op->child_ms = 1 + (int64_t)fleet_draw(r, program_one_in(r, 2) ? 100 : 8000);
    if (op->kind == FLEET_OP_SEND)
        op->is_at = program_one_in(r, 4);
    if (op->kind == FLEET_OP_SCRIBBLE && program_one_in(r, 3))
        op->kind = FLEET_OP_MOTTO;
}

static void
program_more(fleet_program *p, const fleet_order *order)
{
    stet__rng r;

    stet__rng_seed(&r, order->seed * 131 + 29);
    for (size_t i = 0; i < p->n; i++)
        program_more_op(&p->ops[i], &r);
    for (size_t i = 0; i < p->n && order->depth != FLEET_DEPTH_PLANNED; i++)
        if (p->ops[i].kind == FLEET_OP_FUTURES)
            program_more_parts(&p->ops[i], &r);
    if (p->n > 1 && program_one_in(&r, 6)) {
        p->rollback = 1 + (size_t)fleet_draw(&r, p->n - 1);
        if (p->ops[p->rollback].kind == FLEET_OP_SETTLE)
            p->rollback = 0; /* somebody waits for that */
        else
            p->ops[p->rollback] = (fleet_op){ .kind = FLEET_OP_ROLLBACK, .key = -1 };
    }
    p->has_undo = p->is_undone || p->rollback > 0;
}

/* … and what came later still. */
static void
program_looks(fleet_program *p, const fleet_order *order)
{
    stet__rng r;

    stet__rng_seed(&r, order->seed * 131 + 37);
    for (size_t i = 0; i < p->n; i++)
        if ((p->ops[i].kind == FLEET_OP_NOW || p->ops[i].kind == FLEET_OP_RANDOM) &&
            program_one_in(&r, 3))
            p->ops[i].kind = FLEET_OP_LOOK;
}

/* One of two futures ends the run, and the other is done when the rollback has begun. */
static void
program_regrets(fleet_program *p, const fleet_order *order)
{
    stet__rng r;
    size_t    i = 0;

    stet__rng_seed(&r, order->seed * 131 + 41);
    while (i < p->n && (p->ops[i].kind != FLEET_OP_FUTURES || p->ops[i].parts < 2))
        i++;
    if (!p->is_undone || i == p->n || !program_one_in(&r, 3))
        return;
    p->ops[i].wait = FLEET_WAIT_ANY;
    p->ops[i].part[0] = p->ops[i].part[1] = FLEET_OP_STEP;
    p->ops[i].body[0] = (fleet_body){ .takes_ms = (uint16_t)(20 + fleet_draw(&r, 60)) };
    p->ops[i].body[1] = (fleet_body){ .fails = 1, .verdict = FLEET_VERDICT_OWN };
}

void
fleet_program_make(fleet_program *p, const fleet_order *order, bool is_object, size_t ops_max)
{
    stet__rng r;
    size_t    max = order->depth == 0 ? ops_max : 3;

    stet__rng_seed(&r, order->seed);
    memset(p, 0, sizeof *p);
    if (order->depth == FLEET_DEPTH_IDLE) {
        p->n = 1;
        p->ops[0] = (fleet_op){ .kind = FLEET_OP_SLEEP, .key = -1, .ms = 20 * FLEET_FAR_MS };
        return;
    }
    p->n = 1 + (size_t)fleet_draw(&r, max);
    p->is_stubborn = program_one_in(&r, 2);
    p->is_tidy = program_one_in(&r, 2);
    p->is_undone = program_one_in(&r, 4);
    if (program_one_in(&r, 10))
        p->fails = (uint8_t)(1 + fleet_draw(&r, 3));
    if (p->fails > 0 && program_one_in(&r, 4))
        p->verdict = (uint8_t)(1 + fleet_draw(&r, FLEET_VERDICTS - 1));
    p->is_doomed = program_one_in(&r, 16);
    for (size_t i = 0; i < p->n; i++)
        program_op(&p->ops[i], &r, order, !is_object ? 0 : order->is_shared ? 2 : 1);
    if (order->awakeable[0] != '\0')
        p->ops[p->n - 1] =
            (fleet_op){ .kind = FLEET_OP_SETTLE, .key = -1, .is_reject = program_one_in(&r, 4) };
    if (program_one_in(&r, 6))
        p->turns = (uint8_t)(1 + fleet_draw(&r, 3));
    program_more(p, order);
    program_looks(p, order);
    program_regrets(p, order);
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* 16 digits and a space. */
static void
order_put(char *text, uint64_t v)
{
    for (int i = 15; i >= 0; i--, v >>= 4)
        text[i] = "0123456789abcdef"[v & 15];
    text[16] = ' ';
}

static uint64_t
order_get(const char *text)
{
    uint64_t v = 0;

    for (int i = 0; i < 16; i++)
        v = v << 4 | (uint64_t)(text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10);
    return v;
}

size_t
fleet_order_text(char *text, size_t size, const fleet_order *order)
{
    const char *awakeable = order->awakeable[0] != '\0' ? order->awakeable : "-";
    size_t      len = strlen(awakeable), n = 34;

    assert(order->depth < 10 && order->floor >= -1 && order->floor < 9);
    if (size < 34 + 5 + len + 1)
        return 0;
    order_put(text, order->seed);
    order_put(text + 17, order->nonce);
    text[n++] = (char)('0' + order->depth);
    if (order->is_shared)
        text[n++] = 's';
    text[n++] = ' ';
    text[n++] = (char)('0' + order->floor + 1);
    text[n++] = ' ';
    memcpy(text + n, awakeable, len + 1);
    return n + len;
}

bool
fleet_order_parse(fleet_order *order, stet_bytes input)
{
    char  text[160];
    char *at = text + 34;

    if (input.len >= sizeof text || input.len < 34)
        return false;
    memcpy(text, input.data, input.len);
    text[input.len] = '\0';
    memset(order, 0, sizeof *order);
    order->seed = order_get(text);
    order->nonce = order_get(text + 17);
    order->depth = (unsigned)strtoul(at, &at, 10);
    if ((order->is_shared = *at == 's'))
        at++;
    order->floor = (int)strtol(at, &at, 10) - 1;
    if (*at++ != ' ')
        return false;
    if (*at != '-')
        (void)snprintf(order->awakeable, sizeof order->awakeable, "%s", at);
    return true;
}
