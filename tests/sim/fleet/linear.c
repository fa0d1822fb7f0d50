/* Is there a legal order? Linearizability of a history of one object.
 *
 * Three ways, from the cheapest to the one that always knows:
 *
 * 1. Most operations say after how many writes they came. Those have one order; if two of them
 *    claim the same place, if real time contradicts it, or if writes are missing in between that
 *    nobody else can have made, there is none.
 * 2. The order the caller believes in is followed, operation by operation; only what those without
 *    an answer did is searched for. A history that is as it should be ends here.
 * 3. Wing and Gong's search as Lowe improved it: take the operations one after another, each of
 *    them not before one that was answered before it was asked for, and remember which sets of
 *    operations with which state were reached: from there nothing new comes.
 *
 * Nothing but an order that was walked through with the step function is a yes, and nothing but a
 * contradiction or a search that tried everything is a no.
 *
 * Some operations need not come: those without an answer, which may have happened at any time after
 * they were asked for or never, and those that may have done nothing (is_optional). The latter end
 * when something comes that was asked for after their answer; whether they came before or not is
 * then the same.
 *
 * Three things keep the search short. An operation that only reads and could come next may as well:
 * it cannot come better later, unless something else would end with it. What need not come does not
 * come where it changes nothing. And writes are counted in the state, so a state is a dead end as
 * soon as it has more of them, or others, than an operation saw that is still to come.
 *
 * It knows nothing of runs: what an operation does to a state is the caller's.
 */
#include <stdlib.h>
#include <string.h>

#include "fleet.h"

enum { LINEAR_WORDS = 16, LINEAR_OPS_MAX = LINEAR_WORDS * 64 };

typedef struct linear_search {
    const fleet_linear_op *ops;
    size_t                 n;
    fleet_linear_fn        step;
    void                  *arg;
    uint64_t               done[LINEAR_WORDS]; /* placed, or ended without */
    size_t                 musts;              /* operations that must still be placed */
    uint64_t              *memo;               /* open addressing; 0: free */
    size_t                 memo_n, memo_cap;
    fleet_linear_state    *pool; /* a stack: what the operations on the way may lead to */
    size_t                 pool_n, pool_cap;
    size_t                 left;   /* how many more states may be looked at */
    bool                   is_cut; /* something was not tried */
} linear_search;

static bool
linear_is_must(const fleet_linear_op *op)
{
    return op->answered_us != INT64_MAX && !op->is_optional;
}

static bool
linear_is_same(const fleet_linear_state *a, const fleet_linear_state *b)
{
    return a->writes == b->writes && a->sum == b->sum && a->scribble == b->scribble;
}

/* ---- what is known before -------------------------------------------------------------------- */

/* Operations that came after the same number of writes. */
typedef struct linear_group {
    uint64_t writes, end; /* after it there are at least so many */
    uint64_t sum;         /* at its end, if nothing is loose */
    uint64_t loose;       /* writes of it nobody is sure of */
    int64_t  asked_us;    /* the last that was asked for, of this one and those before */
} linear_group;

/* Those that say when they came, in that order; a writer is the last of its place. */
static int
linear_by_place(const void *a, const void *b)
{
    const fleet_linear_op *x = *(const fleet_linear_op *const *)a;
    const fleet_linear_op *y = *(const fleet_linear_op *const *)b;

    if (x->writes_max != y->writes_max)
        return x->writes_max < y->writes_max ? -1 : 1;
    return (x->adds_min > 0) - (y->adds_min > 0);
}

/* Can the others have made as many writes between the two? */
static bool
linear_is_filled(const fleet_linear_op *ops, size_t n, const linear_group *from,
                 const fleet_linear_op *to, int64_t answered_us)
{
    uint64_t missing = to->writes_max - from->end;

    if (missing <= from->loose)
        return true;
    missing -= from->loose;
    for (size_t i = 0; i < n; i++) {
        const fleet_linear_op *op = &ops[i];

        if ((op->is_exact && (linear_is_must(op) || op->writes_max < from->end ||
                              op->writes_max >= to->writes_max)) ||
            op->answered_us < from->asked_us || op->asked_us > answered_us)
            continue;
        if (op->adds_max >= missing)
            return true;
        missing -= op->adds_max;
    }
    return false;
}

/* Takes the operations of one place, `n` of them; false if they cannot come there. */
static bool
linear_group_add(linear_group *g, const fleet_linear_op *const *at, size_t n)
{
    const fleet_linear_op *last = at[n - 1];
    linear_group           next = { .writes = last->writes_max,
                                    .end = last->writes_max + last->adds_min,
                                    .sum = last->sum + last->adds_sum,
                                    .asked_us = g->asked_us };

    for (size_t i = 0; i < n; i++) {
        if (at[i]->sum != last->sum || at[i]->answered_us < g->asked_us)
            return false;
        if (i + 1 < n &&
            (at[i]->adds_min > 0 || (last->adds_min > 0 && last->answered_us < at[i]->asked_us)))
            return false;
        next.loose += at[i]->adds_max - at[i]->adds_min;
        if (at[i]->asked_us > next.asked_us)
            next.asked_us = at[i]->asked_us;
    }
    *g = next;
    return true;
}

static bool
linear_is_contradiction(const fleet_linear_op *ops, size_t n, const fleet_linear_state *first)
{
    const fleet_linear_op **at = malloc((n + 1) * sizeof *at);
    linear_group            g = { first->writes, first->writes, first->sum, 0, INT64_MIN };
    size_t                  n_at = 0, end;
    bool                    is_legal = true;

    if (at == NULL)
        abort();
    for (size_t i = 0; i < n; i++) {
        is_legal = is_legal && ops[i].asked_us <= ops[i].answered_us;
        if (ops[i].is_exact && linear_is_must(&ops[i]))
            at[n_at++] = &ops[i];
    }
    qsort(at, n_at, sizeof *at, linear_by_place);
    for (size_t i = 0; i < n_at && is_legal; i = end) {
        int64_t answered_us = INT64_MAX;

        for (end = i; end < n_at && at[end]->writes_max == at[i]->writes_max; end++)
            if (at[end]->answered_us < answered_us)
                answered_us = at[end]->answered_us;
        if (at[i]->writes_max < g.end)
            is_legal = false;
        else if (at[i]->writes_max == g.end)
            is_legal = g.loose > 0 || at[i]->sum == g.sum;
        else
            is_legal = linear_is_filled(ops, n, &g, at[i], answered_us);
        is_legal = is_legal && linear_group_add(&g, &at[i], end - i);
    }
    free(at);
    return !is_legal;
}

/* ---- what was seen --------------------------------------------------------------------------- */

static void
linear_memo_put(linear_search *s, uint64_t h)
{
    size_t at = (size_t)h & (s->memo_cap - 1);

    while (s->memo[at] != 0)
        at = (at + 1) & (s->memo_cap - 1);
    s->memo[at] = h;
    s->memo_n++;
}

static void
linear_memo_grow(linear_search *s)
{
    uint64_t *old = s->memo;
    size_t    cap = s->memo_cap;

    s->memo_cap = cap > 0 ? cap * 2 : 256;
    if ((s->memo = calloc(s->memo_cap, sizeof *s->memo)) == NULL)
        abort();
    s->memo_n = 0;
    for (size_t i = 0; i < cap; i++)
        if (old[i] != 0)
            linear_memo_put(s, old[i]);
    free(old);
}

static void
linear_memo_clear(linear_search *s)
{
    if (s->memo_n > 0)
        memset(s->memo, 0, s->memo_cap * sizeof *s->memo);
    s->memo_n = 0;
}

/* Seen before? Remembers it. Two of 64 bits that collide could hide an order, never invent one. */
static bool
linear_is_known(linear_search *s, const void *where, size_t size, const fleet_linear_state *state)
{
    uint64_t h = stet__hash64(where, size, stet__hash64(state, sizeof *state, 1)) | 1u;
    size_t   at;

    if (s->memo_n * 2 >= s->memo_cap)
        linear_memo_grow(s);
    for (at = (size_t)h & (s->memo_cap - 1); s->memo[at] != 0; at = (at + 1) & (s->memo_cap - 1))
        if (s->memo[at] == h)
            return true;
    linear_memo_put(s, h);
    return false;
}

/* May one more state be looked at? */
static bool
linear_may_look(linear_search *s)
{
    if (s->left == 0) {
        s->is_cut = true;
        return false;
    }
    s->left--;
    return true;
}

/* Where the operation may lead, on top of the pool; how many. The caller takes them off. */
static size_t
linear_step(linear_search *s, size_t i, const fleet_linear_state *state)
{
    size_t n;

    if (s->pool_n + FLEET_LINEAR_NEXT_MAX > s->pool_cap) {
        size_t cap = s->pool_cap * 2 + FLEET_LINEAR_NEXT_MAX;

        if ((s->pool = realloc(s->pool, cap * sizeof *s->pool)) == NULL)
            abort();
        s->pool_cap = cap;
    }
    n = s->step(s->arg, s->ops[i].what, state, s->pool + s->pool_n, &s->is_cut);
    s->pool_n += n;
    return n;
}

/* ---- the order the caller believes in -------------------------------------------------------- */

typedef struct linear_stop {
    size_t   op;
    int64_t  answered_us; /* the first of those that must come here or later, */
    uint64_t writes_max;  /* and how many writes they permit */
} linear_stop;

typedef struct linear_path {
    linear_search *s;
    linear_stop   *stops; /* and one behind the last */
} linear_path;

/* `floor_us`: what was answered before cannot come any more. */
static bool
linear_follow(const linear_path *path, size_t at, fleet_linear_state state, int64_t floor_us)
{
    linear_search         *s = path->s;
    const linear_stop     *stop = &path->stops[at];
    const fleet_linear_op *op = &s->ops[stop->op];
    size_t                 base = s->pool_n, n;
    bool                   is_found = false, is_must;

    if (at == s->n)
        return true;
    if (!linear_may_look(s) || state.writes > stop->writes_max ||
        linear_is_known(s, &at, sizeof at, &state))
        return false;
    is_must = linear_is_must(op);
    if (op->asked_us <= stop->answered_us && op->answered_us >= floor_us) {
        n = linear_step(s, stop->op, &state);
        for (size_t k = 0; k < n && !is_found; k++)
            if (is_must || !linear_is_same(&s->pool[base + k], &state))
                is_found = linear_follow(path, at + 1, s->pool[base + k],
                                         op->asked_us > floor_us ? op->asked_us : floor_us);
        s->pool_n = base;
    }
    return is_found || (!is_must && linear_follow(path, at + 1, state, floor_us));
}

typedef struct linear_hint {
    uint64_t hint;
    size_t   op;
} linear_hint;

static int
linear_by_hint(const void *a, const void *b)
{
    const linear_hint *x = a, *y = b;

    if (x->hint != y->hint)
        return x->hint < y->hint ? -1 : 1;
    return (x->op > y->op) - (x->op < y->op);
}

static bool
linear_is_as_hinted(linear_search *s, const fleet_linear_state *first)
{
    linear_stop *stops = malloc((s->n + 1) * sizeof *stops);
    linear_hint *hints = malloc((s->n + 1) * sizeof *hints);
    bool         is_found;

    if (stops == NULL || hints == NULL)
        abort();
    for (size_t i = 0; i < s->n; i++)
        hints[i] = (linear_hint){ s->ops[i].hint, i };
    qsort(hints, s->n, sizeof *hints, linear_by_hint);
    stops[s->n] = (linear_stop){ 0, INT64_MAX, UINT64_MAX };
    for (size_t at = s->n; at-- > 0;) {
        const fleet_linear_op *op = &s->ops[hints[at].op];

        stops[at] = stops[at + 1];
        stops[at].op = hints[at].op;
        if (linear_is_must(op) && op->answered_us < stops[at].answered_us)
            stops[at].answered_us = op->answered_us;
        if (linear_is_must(op) && op->writes_max < stops[at].writes_max)
            stops[at].writes_max = op->writes_max;
    }
    is_found = linear_follow(&(linear_path){ s, stops }, 0, *first, INT64_MIN);
    free(stops);
    free(hints);
    return is_found;
}

/* ---- the search ------------------------------------------------------------------------------ */

static bool
linear_is_done(const linear_search *s, size_t i)
{
    return (s->done[i / 64] >> (i % 64) & 1u) != 0;
}

/* Nothing asked for later than this can be next. INT64_MIN: a dead end. */
static int64_t
linear_first_answer(const linear_search *s, const fleet_linear_state *state)
{
    int64_t first_us = INT64_MAX;

    for (size_t i = 0; i < s->n; i++) {
        const fleet_linear_op *op = &s->ops[i];

        if (linear_is_done(s, i) || !linear_is_must(op))
            continue;
        if (op->writes_max < state->writes ||
            (op->is_exact && op->writes_max == state->writes && op->sum != state->sum))
            return INT64_MIN;
        if (op->answered_us < first_us)
            first_us = op->answered_us;
    }
    return first_us;
}

/* It comes; what can come no more after it is as good as done. Is there anything? */
static bool
linear_place(linear_search *s, size_t placed)
{
    bool is_end = false;

    s->done[placed / 64] |= (uint64_t)1 << (placed % 64);
    if (linear_is_must(&s->ops[placed]))
        s->musts--;
    for (size_t i = 0; i < s->n; i++)
        if (s->ops[i].is_optional && s->ops[i].answered_us < s->ops[placed].asked_us &&
            !linear_is_done(s, i)) {
            s->done[i / 64] |= (uint64_t)1 << (i % 64);
            is_end = true;
        }
    return is_end;
}

static bool linear_go(linear_search *s, fleet_linear_state state);

/* *is_settled: nothing else need be tried from this state. */
static bool
linear_try(linear_search *s, size_t i, const fleet_linear_state *state, bool *is_settled)
{
    size_t   base = s->pool_n, musts = s->musts, n = linear_step(s, i, state);
    bool     is_found = false, is_must = linear_is_must(&s->ops[i]);
    uint64_t done[LINEAR_WORDS];

    memcpy(done, s->done, sizeof done);
    *is_settled = n > 0 && !linear_place(s, i) && s->ops[i].is_read && is_must &&
                  linear_is_same(&s->pool[base], state);
    for (size_t k = 0; k < n && !is_found; k++)
        if (is_must || !linear_is_same(&s->pool[base + k], state))
            is_found = linear_go(s, s->pool[base + k]);
    memcpy(s->done, done, sizeof done);
    s->musts = musts;
    s->pool_n = base;
    return is_found;
}

static bool
linear_go(linear_search *s, fleet_linear_state state)
{
    int64_t first_us;
    bool    is_settled = false;

    if (s->musts == 0)
        return true;
    if (!linear_may_look(s) || (first_us = linear_first_answer(s, &state)) == INT64_MIN ||
        linear_is_known(s, s->done, (s->n + 63) / 64 * 8, &state))
        return false;
    for (size_t i = 0; i < s->n && !is_settled; i++)
        if (!linear_is_done(s, i) && s->ops[i].asked_us <= first_us &&
            linear_try(s, i, &state, &is_settled))
            return true;
    return false;
}

fleet_linear
fleet_linear_check(const fleet_linear_op *ops, size_t n, const fleet_linear_state *first,
                   fleet_linear_fn step, void *arg, size_t states_max)
{
    linear_search s = { .ops = ops, .n = n, .step = step, .arg = arg, .left = states_max };
    bool          is_found;

    if (linear_is_contradiction(ops, n, first))
        return FLEET_LINEAR_NO;
    if (n == 0)
        return FLEET_LINEAR_YES;
    if (!(is_found = linear_is_as_hinted(&s, first)) && n > LINEAR_OPS_MAX)
        s.is_cut = true;
    else if (!is_found) {
        s.left = states_max;
        s.is_cut = false;
        linear_memo_clear(&s);
        for (size_t i = 0; i < n; i++)
            s.musts += linear_is_must(&ops[i]);
        is_found = linear_go(&s, *first);
    }
    free(s.memo);
    free(s.pool);
    if (is_found)
        return FLEET_LINEAR_YES;
    return s.is_cut ? FLEET_LINEAR_UNDECIDED : FLEET_LINEAR_NO;
}
