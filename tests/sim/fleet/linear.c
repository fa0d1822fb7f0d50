/* Is there a legal order? Linearizability of a history of one object, by search.
 *
 * Wing and Gong's search as Lowe improved it: take the operations one after another, each of them
 * not before one that was answered before it was asked for, and remember which sets of operations
 * with which state were reached: from there nothing new comes. An operation without an answer may
 * have happened at any time after it was asked for, or never.
 *
 * Two things keep it short. An operation that only reads and could come next may as well: it
 * cannot come better later. And writes are counted in the state, so a state is a dead end as soon
 * as it has more of them than an operation saw that is still to come.
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
    uint64_t               done[LINEAR_WORDS];
    size_t                 answered; /* operations that must still be placed */
    uint64_t              *memo;     /* open addressing; 0: free */
    size_t                 memo_n, memo_cap;
    size_t                 left;   /* how many more states may be looked at */
    bool                   is_cut; /* something was not tried */
} linear_search;

static bool
linear_is_done(const linear_search *s, size_t i)
{
    return (s->done[i / 64] >> (i % 64) & 1u) != 0;
}

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

/* Seen before? Remembers it. Two of 64 bits that collide could hide an order, never invent one. */
static bool
linear_is_known(linear_search *s, const fleet_linear_state *state)
{
    uint64_t h =
        stet__hash64(s->done, (s->n + 63) / 64 * 8, stet__hash64(state, sizeof *state, 1)) | 1u;
    size_t at;

    if (s->memo_n * 2 >= s->memo_cap)
        linear_memo_grow(s);
    for (at = (size_t)h & (s->memo_cap - 1); s->memo[at] != 0; at = (at + 1) & (s->memo_cap - 1))
        if (s->memo[at] == h)
            return true;
    linear_memo_put(s, h);
    return false;
}

/* Nothing asked for later than this can be next. INT64_MIN: a dead end. */
static int64_t
linear_first_answer(const linear_search *s, const fleet_linear_state *state)
{
    int64_t first_us = INT64_MAX;

    for (size_t i = 0; i < s->n; i++) {
        if (linear_is_done(s, i) || s->ops[i].answered_us == INT64_MAX)
            continue;
        if (s->ops[i].writes_max < state->writes)
            return INT64_MIN;
        if (s->ops[i].answered_us < first_us)
            first_us = s->ops[i].answered_us;
    }
    return first_us;
}

static void
linear_place(linear_search *s, size_t i, bool is_placed)
{
    s->done[i / 64] ^= (uint64_t)1 << (i % 64);
    if (s->ops[i].answered_us != INT64_MAX)
        s->answered = is_placed ? s->answered - 1 : s->answered + 1;
}

static bool linear_go(linear_search *s, const fleet_linear_state *state);

/* *is_settled: nothing else need be tried from this state. */
static bool
linear_try(linear_search *s, size_t i, const fleet_linear_state *state, bool *is_settled)
{
    fleet_linear_state next[FLEET_LINEAR_NEXT_MAX];
    size_t             n = s->step(s->arg, s->ops[i].what, state, next, &s->is_cut);
    bool               is_found = false;

    *is_settled = s->ops[i].is_read && n > 0;
    linear_place(s, i, true);
    for (size_t k = 0; k < n && !is_found; k++)
        is_found = linear_go(s, &next[k]);
    linear_place(s, i, false);
    return is_found;
}

static bool
linear_go(linear_search *s, const fleet_linear_state *state)
{
    int64_t first_us;
    bool    is_settled = false;

    if (s->answered == 0)
        return true;
    if (s->left == 0) {
        s->is_cut = true;
        return false;
    }
    s->left--;
    if ((first_us = linear_first_answer(s, state)) == INT64_MIN || linear_is_known(s, state))
        return false;
    for (size_t i = 0; i < s->n && !is_settled; i++)
        if (!linear_is_done(s, i) && s->ops[i].asked_us <= first_us &&
            linear_try(s, i, state, &is_settled))
            return true;
    return false;
}

fleet_linear
fleet_linear_check(const fleet_linear_op *ops, size_t n, const fleet_linear_state *first,
                   fleet_linear_fn step, void *arg, size_t states_max)
{
    linear_search s = { .ops = ops, .n = n, .step = step, .arg = arg, .left = states_max };
    bool          is_found;

    if (n > LINEAR_OPS_MAX)
        return FLEET_LINEAR_UNDECIDED;
    for (size_t i = 0; i < n; i++)
        s.answered += ops[i].answered_us != INT64_MAX;
    is_found = linear_go(&s, first);
    free(s.memo);
    if (is_found)
        return FLEET_LINEAR_YES;
    return s.is_cut ? FLEET_LINEAR_UNDECIDED : FLEET_LINEAR_NO;
}
