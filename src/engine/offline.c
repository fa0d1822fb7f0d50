/* The second host of the executor: a context is fed from a tape, and nothing it decides leaves.
 *
 * What is recorded is matched by the journal as in a worker. At the first operation that is not
 * recorded, when all that is recorded was asked for, the handler is let go: that is the end of the
 * record. If it comes to a new operation before that, the record cannot tell what it would give, so
 * a result is assumed and the handler goes on: only then can be said whether it comes to the rest.
 * A host that follows (describe) assumes results to the handler's end.
 *
 * A host with a question asks it where the record ends, while the handler stands in that call, and
 * where the handler may be in its last call; the last answer counts. It assumes nothing: what came
 * of a new operation before the end would be in the answer.
 *
 * No body is entered, ever: crumb_set() either refuses the attempt or puts a body of ours in its
 * place, which gives the assumed result. There is one slot and no thread; no call here reaches a
 * store.
 */
#include <stdio.h>
#include <string.h>

#include "engine/host.h"
#include "engine/offline.h"

struct stet__offline_node {
    stet__offline_node *next;
    stet_operation      op;
    stet__fact_kind     kind;
    bool                is_done;
};

/* Every kind a handler can ask for: what it is like for people, and which fact ends the wait for it
 * (0: none). A kind that is not here is a mark, and ended as an awakeable is. */
static const struct offline_kind {
    stet__fact_kind kind;
    const char     *shape;
    stet__fact_kind answer;
} offline_kinds[] = {
    { STET__FACT_STEP, "work", STET__FACT_TIMER },
    { STET__FACT_SLEEP, "wait", STET__FACT_TIMER },
    { STET__FACT_CALL, "run", STET__FACT_CHILD_DONE },
    { STET__FACT_SEND, "run", (stet__fact_kind)0 },
    { STET__FACT_AWAKEABLE, "wait", STET__FACT_SETTLED },
    { STET__FACT_SIGNAL, "wait", STET__FACT_SIGNALLED },
    { STET__FACT_SIGNAL_SEND, "run", (stet__fact_kind)0 },
    { STET__FACT_SETTLE, "run", (stet__fact_kind)0 },
    { STET__FACT_STATE_GET, "state", (stet__fact_kind)0 },
    { STET__FACT_STATE_SET, "state", (stet__fact_kind)0 },
    { STET__FACT_STATE_CLEAR, "state", (stet__fact_kind)0 },
    { STET__FACT_NOW, "mark", (stet__fact_kind)0 },
    { STET__FACT_VERSION, "mark", (stet__fact_kind)0 },
    { STET__FACT_NOTE, "mark", (stet__fact_kind)0 },
    { STET__FACT_SWITCH, "choice", (stet__fact_kind)0 },
    { STET__FACT_ONCE, "state", (stet__fact_kind)0 },
    { STET__FACT_LOOK, "run", (stet__fact_kind)0 },
    { STET__FACT_TOPIC, "wait", STET__FACT_EVENT },
    { STET__FACT_EMIT, "run", (stet__fact_kind)0 },
    { STET__FACT_ROLLBACK, "mark", (stet__fact_kind)0 },
    { STET__FACT_BOUNDARY, "wait", STET__FACT_DECIDED },
    { STET__FACT_UPDATE, "state", (stet__fact_kind)0 },
    { STET__FACT_AWAIT, "wait", STET__FACT_TIMER },
    { STET__FACT_ANY, "wait", STET__FACT_TIMER },
};

static const struct offline_kind *
offline_kind_of(stet__fact_kind kind)
{
    static const struct offline_kind other = { (stet__fact_kind)0, "mark", STET__FACT_SETTLED };

    for (size_t i = 0; i < sizeof offline_kinds / sizeof offline_kinds[0]; i++)
        if (offline_kinds[i].kind == kind)
            return &offline_kinds[i];
    return &other;
}

const char *
stet__operation_shape(stet__fact_kind kind)
{
    return offline_kind_of(kind)->shape;
}

const char *
stet_replay_end_name(stet_replay_end end)
{
    switch (end) {
#define OFFLINE_NAME(name, number, word, is_fine, text)                                            \
    case STET_REPLAY_##name: return word;
        STET_REPLAY_LIST(OFFLINE_NAME)
#undef OFFLINE_NAME
    }
    return NULL;
}

static bool
offline_is_fine(stet_replay_end end)
{
    switch (end) {
#define OFFLINE_FINE(name, number, word, is_fine, text)                                            \
    case STET_REPLAY_##name: return is_fine;
        STET_REPLAY_LIST(OFFLINE_FINE)
#undef OFFLINE_FINE
    }
    return false;
}

static const char *
offline_end_text(stet_replay_end end)
{
    switch (end) {
#define OFFLINE_TEXT(name, number, word, is_fine, text)                                            \
    case STET_REPLAY_##name: return text;
        STET_REPLAY_LIST(OFFLINE_TEXT)
#undef OFFLINE_TEXT
    }
    return NULL;
}

static stet__offline *
offline_of(stet_ctx *c)
{
    return c->host;
}

/* ---- the report ------------------------------------------------------------------------------ */

/* A report that lacks a text because memory was out would be a lie. */
static const char *
offline_kept(stet__offline *o, const char *text)
{
    if (text == NULL)
        o->err = stet__fail(STET_ENOMEM, "out of memory for a report");
    return text;
}

static const char *
offline_text(stet__offline *o, const char *text)
{
    return text != NULL ? offline_kept(o, stet__arena_str(&o->arena, text)) : NULL;
}

static const char *
offline_operation(stet__offline *o, stet__fact_kind kind, const char *name, uint64_t occurrence)
{
    return offline_kept(o, stet__arena_printf(&o->arena, "%s %s#%llu", stet__fact_kind_name(kind),
                                              name, (unsigned long long)occurrence));
}

static const char *
offline_where(stet__offline *o, const stet_ctx *c)
{
    return c->file != NULL
               ? offline_kept(o, stet__arena_printf(&o->arena, "%s:%d", c->file, c->line))
               : NULL;
}

/* The first end counts: what the handler does while it is unwound means nothing. Texts are the
 * arena's. */
static void
offline_end(stet__offline *o, stet_replay_end end, const char *recorded, const char *asked,
            const char *where, const char *text)
{
    if (o->report.end != 0)
        return;
    o->report.end = end;
    o->report.is_fine = offline_is_fine(end);
    o->report.recorded = recorded;
    o->report.asked = asked;
    o->report.where = where;
    o->report.text = text != NULL ? text : offline_end_text(end);
}

/* Everything was asked for: from here on the record says nothing. */
static bool
offline_is_over(const stet__offline *o, const stet_ctx *c)
{
    return !o->follows && c->journal.unasked == 0;
}

/* A step whose body may be running now, and that a recorded choice did not wait for. */
static bool
offline_is_left(const stet__offline *o, const stet_ctx *c, stet__fact_kind kind)
{
    return o->question != NULL && (kind == STET__FACT_STEP || kind == STET__FACT_AT_RISK) && c->journal.choices > 0;
}

/* Ask what is to be asked, if the handler is in a call and has nothing recorded before it. */
static void
offline_ask(stet__offline *o, stet_ctx *c)
{
    stet__question *q = o->question;
    stet__live     *live;

    if (q == NULL || !c->is_watched || c->callback != NULL || o->report.end != 0 || o->err != STET_OK)
        return;
    live = stet__live_find(c->queries, q->name);
    q->is_asked = true;
    q->code = live != NULL
                  ? stet__live_call(c, "a query", live->fn, live->arg, q->input, &q->reply)
                  : stet__live_unknown(c->queries, "query", q->name, &q->reply);
}

/* One that failed and is rolled back does not come to its undos in a call of its own. */
static void
offline_entered(stet_ctx *c)
{
    if (c->journal.unasked == 0 || c->run.is_auto)
        offline_ask(offline_of(c), c);
}

static void
offline_over(stet__offline *o, stet_ctx *c, const char *asked)
{
    offline_ask(o, c);
    offline_end(o, STET_REPLAY_RECORD, NULL, asked, offline_where(o, c), NULL);
}

/* True: there were too many. */
static bool
offline_count(stet__offline *o, const stet_ctx *c)
{
    if (++o->news <= o->new_max)
        return false;
    offline_end(o, STET_REPLAY_OPERATIONS, NULL, NULL, offline_where(o, c),
                stet__arena_printf(&o->arena,
                                   "asks for more than %llu operations that are not recorded",
                                   (unsigned long long)o->new_max));
    return true;
}

/* New, though more is recorded: what it gives would be in the answer. True: that ends it. */
static bool
offline_is_strange(stet__offline *o, const stet_ctx *c, const char *asked)
{
    const stet__cmd *left = stet__journal_unasked(&c->journal);
    const char      *recorded;

    if (o->question == NULL || left == NULL)
        return false;
    recorded = offline_operation(o, left->kind, left->name, left->occurrence);
    offline_end(o, STET_REPLAY_UNASKED, recorded, asked, offline_where(o, c),
                stet__arena_printf(&o->arena,
                                   "the code comes to %s, which is not recorded, before %s, which is",
                                   asked, recorded));
    return true;
}

/* Those that change nothing for the handler, and a step whose body may be running now. */
static bool
offline_is_harmless(stet__fact_kind kind)
{
    return kind == STET__FACT_NOTE || kind == STET__FACT_VERSION || kind == STET__FACT_AWAIT ||
           kind == STET__FACT_ANY || kind == STET__FACT_STEP;
}

/* ---- operations ------------------------------------------------------------------------------ */

static stet__offline_node *
offline_node(stet__offline *o, stet__fact_kind kind, const char *name, size_t len,
             uint64_t occurrence)
{
    stet__offline_node *n = o->first;

    while (n != NULL && !(n->kind == kind && n->op.occurrence == occurrence &&
                          strlen(n->op.name) == len && memcmp(n->op.name, name, len) == 0))
        n = n->next;
    return n;
}

static void
offline_keep(stet__offline *o, const stet_operation *op, stet__fact_kind kind)
{
    stet__offline_node *n = stet__arena_get0(&o->arena, sizeof *n);

    if (n == NULL ||
        (op->name != NULL && (n->op.name = stet__arena_str(&o->arena, op->name)) == NULL)) {
        o->err = stet__fail(STET_ENOMEM, "out of memory for an operation");
        return;
    }
    n->op.kind = op->kind;
    n->op.shape = op->shape;
    n->op.occurrence = op->occurrence;
    n->op.where = op->where;
    n->op.branches = op->branches;
    n->op.has_default = op->has_default;
    n->kind = kind;
    n->is_done = kind == STET__FACT_ANY;
    if (o->last != NULL)
        o->last->next = n;
    else
        o->first = n;
    o->last = n;
}

static void
offline_place(stet__offline *o, const stet_ctx *c, stet__fact_kind kind, const char *name,
              uint64_t occurrence)
{
    (void)snprintf(o->place->asked, sizeof o->place->asked, "%s %s#%llu",
                   stet__fact_kind_name(kind), name, (unsigned long long)occurrence);
    o->place->operations++;
    (void)snprintf(o->place->where, sizeof o->place->where, "%s:%d",
                   c->file != NULL ? c->file : "?", c->line);
}

/* All ways a switch can go. */
static void
offline_branches(stet__offline *o, stet_operation *op, const stet_branch *branches)
{
    size_t len = 0;
    char  *at;

    for (const stet_branch *b = branches; b->id != NULL; b++) {
        len += strlen(b->id) + 1;
        op->has_default = b->match == NULL;
    }
    if ((at = stet__arena_get(&o->arena, len)) == NULL) {
        o->err = stet__fail(STET_ENOMEM, "out of memory for an operation");
        return;
    }
    op->branches = (stet_bytes){ at, len };
    for (const stet_branch *b = branches; b->id != NULL; at += strlen(b->id) + 1, b++)
        memcpy(at, b->id, strlen(b->id) + 1);
}

void
stet__offline_lost(stet_replay_report *r, const stet__offline_place *place, bool is_late,
                   int64_t time_ms, const char *text, char line[512])
{
    const char *asked = place->asked[0] != '\0' ? place->asked : "its begin";

    if (is_late)
        (void)snprintf(line, 512, "did not end in %lld ms, after %s", (long long)time_ms, asked);
    else
        (void)snprintf(line, 512, "crashed after %s: %s", asked, text);
    r->end = is_late ? STET_REPLAY_TIME : STET_REPLAY_CRASHED;
    r->asked = place->asked[0] != '\0' ? place->asked : NULL;
    r->where = place->where[0] != '\0' ? place->where : NULL;
    r->text = line;
    r->operations = place->operations;
}

/* Tell the operation, or keep it. Its place is in the arena only where it is kept: a replay has
 * many. */
static void
offline_tell(stet__offline *o, const stet_ctx *c, stet__fact_kind kind, const char *name,
             uint64_t occurrence, const stet__cmd *cmd)
{
    stet_operation op = { .kind = stet__fact_kind_name(kind),
                          .name = name,
                          .occurrence = occurrence };
    char           where[300] = "";

    op.shape = stet__operation_shape(kind);
    if (c->file != NULL)
        (void)snprintf(where, sizeof where, "%s:%d", c->file, c->line);
    if (o->follows) {
        op.where = where[0] != '\0' ? offline_text(o, where) : NULL;
        if (kind == STET__FACT_SWITCH)
            offline_branches(o, &op, c->branches);
        offline_keep(o, &op, kind);
        return;
    }
    op.where = where[0] != '\0' ? where : NULL;
    if (cmd != NULL) {
        op.is_recorded = true;
        op.is_settled = cmd->is_settled;
        op.code = cmd->is_settled ? cmd->code : 0;
        op.text = cmd->is_settled ? cmd->text : NULL;
        op.value = cmd->is_settled ? cmd->value : (stet_bytes){ NULL, 0 };
        op.attempts = (int)cmd->attempt;
    }
    o->err = o->fn(o->arg, &op);
}

static void
offline_asked(stet_ctx *c, stet__fact_kind kind, const char *name, uint64_t occurrence,
              const stet__cmd *cmd)
{
    stet__offline *o = offline_of(c);

    if (o->place != NULL)
        offline_place(o, c, kind, name, occurrence);
    if (cmd == NULL && offline_is_over(o, c) && stet__journal_is_binding(kind) && !offline_is_left(o, c, kind)) {
        offline_over(o, c, offline_operation(o, kind, name, occurrence));
        (void)stet__ctx_latch(c, STET_SUSPENDED);
        return;
    }
    if (cmd == NULL && o->question != NULL && !offline_is_harmless(kind) &&
        offline_is_strange(o, c, offline_operation(o, kind, name, occurrence))) {
        (void)stet__ctx_latch(c, STET_SUSPENDED);
        return;
    }
    if (cmd == NULL && !o->follows && o->strange == NULL && stet__journal_is_binding(kind)) {
        o->strange = offline_operation(o, kind, name, occurrence);
        o->strange_where = offline_where(o, c);
    }
    if (o->last != NULL && !o->last->is_done)
        o->last->op.is_parallel = true;
    if (cmd != NULL || !offline_is_over(o, c)) {
        o->report.operations++;
        if (o->follows || o->fn != NULL)
            offline_tell(o, c, kind, name, occurrence, cmd);
    }
    if (o->err != STET_OK || (cmd == NULL && offline_count(o, c)))
        (void)stet__ctx_latch(c, STET_SUSPENDED);
    else if (cmd != NULL)
        offline_entered(c); /* perhaps it was the last */
}

/* ---- results that are not recorded ----------------------------------------------------------- */

typedef struct offline_result {
    stet_bytes  value; /* data NULL: none */
    int         code;
    const char *text;
} offline_result;

static const stet_sample *
offline_sample(const stet__offline *o, const char *name, uint64_t occurrence)
{
    const stet_sample *any = NULL;

    for (const stet_sample *s = o->handler->samples; s != NULL && s->name != NULL; s++) {
        if (strcmp(s->name, name) != 0)
            continue;
        if (s->occurrence == occurrence)
            return s;
        if (s->occurrence == 0)
            any = s;
    }
    return any;
}

/* Of another run, of the handler's samples, or nothing. */
static offline_result
offline_assume(stet__offline *o, stet__fact_kind kind, const char *name, uint64_t occurrence)
{
    offline_result     r = { { NULL, 0 }, 0, NULL };
    const stet__cmd   *cmd =
        o->from != NULL ? stet__journal_find(o->from, kind, name, occurrence) : NULL;
    const stet_sample *s;

    o->report.assumed++;
    if (cmd != NULL && cmd->is_settled) {
        r.value = cmd->is_absent ? (stet_bytes){ NULL, 0 } : cmd->value;
        r.code = cmd->code;
        r.text = cmd->text;
    } else if ((s = offline_sample(o, name, occurrence)) != NULL) {
        if (s->value != NULL)
            r.value = stet_text(s->value);
        r.code = s->code;
        r.text = s->code != 0 ? "as its sample says" : NULL;
    }
    return r;
}

static void
offline_gave(stet__offline *o, stet__fact_kind kind, const char *name, size_t len,
             uint64_t occurrence, const offline_result *r)
{
    stet__offline_node *n = offline_node(o, kind, name, len, occurrence);

    if (n == NULL)
        return;
    n->is_done = true;
    n->op.code = r->code;
    n->op.text = offline_text(o, r->text);
    n->op.value.len = r->value.len;
    n->op.value.data =
        r->value.data != NULL ? stet__arena_copy(&o->arena, r->value.data, r->value.len) : NULL;
}

/* Stands in for a step's body. A failure is for good, also with a policy: its waits would tell
 * nothing. */
static int
offline_body(stet_attempt *a, void *arg)
{
    stet__offline *o = arg;
    offline_result r = offline_assume(o, STET__FACT_STEP, a->step, a->occurrence);

    if (r.code != 0)
        return stet_attempt_fail(a, STET_EPERMANENT, "%s",
                                 r.text != NULL ? r.text : stet_code_text(r.code));
    if (r.value.data != NULL && stet_attempt_return(a, r.value) == STET_ENOMEM)
        o->err = STET_ENOMEM; /* that is not how it would fail */
    return o->err;
}

/* The oldest that is waited for and not settled; awaits with a limit only if nothing else is. */
static stet__cmd *
offline_oldest(const stet__journal *j)
{
    stet__cmd *oldest = NULL, *limit = NULL;

    for (stet__cmd *cmd = j->waiting; cmd != NULL; cmd = cmd->next) {
        bool is_limit = cmd->kind == STET__FACT_AWAIT || cmd->kind == STET__FACT_ANY;

        if (cmd->is_settled || offline_kind_of(cmd->kind)->answer == 0 ||
            (is_limit && !cmd->has_timer) || (cmd->kind == STET__FACT_STEP && !cmd->has_timer))
            continue;
        if (is_limit)
            limit = cmd;
        else
            oldest = cmd;
    }
    return oldest != NULL ? oldest : limit;
}

/* Let what it waits for come. */
static int
offline_settle(stet__offline *o, stet_ctx *c, stet__cmd *cmd)
{
    stet__fact     fact = { .kind = offline_kind_of(cmd->kind)->answer,
                            .completion = (int64_t)cmd->completion };
    offline_result r = { { NULL, 0 }, 0, NULL };

    if (cmd->until_ms > o->now_ms && fact.kind == STET__FACT_TIMER)
        o->now_ms = cmd->until_ms;
    if (fact.kind != STET__FACT_TIMER) {
        r = offline_assume(o, cmd->kind, cmd->name, cmd->occurrence);
        if (r.code == STET_ETIMEOUT && cmd->has_timer)
            fact.kind = STET__FACT_TIMER;
        else if (r.code != 0) /* a signal cannot fail, but what waits for it can be told to stop */
            fact.kind = STET__FACT_SETTLED;
        if (fact.kind == STET__FACT_SIGNALLED)
            fact.name = stet_text(cmd->topic);
        fact.code = r.code;
        fact.value = r.value.data != NULL ? r.value : stet_text("");
        if (r.text != NULL)
            fact.text = stet_text(r.text);
    }
    if (cmd->kind != STET__FACT_STEP)
        offline_gave(o, cmd->kind, cmd->name, strlen(cmd->name), cmd->occurrence, &r);
    return stet__journal_apply(&c->journal, &fact);
}

/* ---- the host -------------------------------------------------------------------------------- */

static int
offline_begin(stet_ctx *c)
{
    stet__offline *o = offline_of(c);
    uint64_t       bad = 0;
    int            err;

    stet__run_init(&c->run, &c->arena, o->tape->run);
    err = stet__load_tape(&o->p->alloc, &c->run, &c->journal, o->tape, &bad);
    o->report.handler = c->run.handler != NULL ? offline_text(o, c->run.handler) : NULL;
    if (err == STET_ENOMEM)
        o->err = err;
    else if (err != STET_OK)
        offline_end(o, STET_REPLAY_CORRUPT, NULL, NULL, NULL,
                    stet__arena_printf(&o->arena, "revision %llu: %s", (unsigned long long)bad,
                                       stet_last_error()));
    else if ((o->handler = stet__handler_find(o->e, c->run.handler)) == NULL) {
        offline_end(
            o, STET_REPLAY_NO_HANDLER, NULL, NULL, NULL,
            stet__arena_printf(&o->arena, "this program has no handler %s", c->run.handler));
        o->report.is_fine = stet__offline_is_elsewhere(o->e, c->run.handler);
    }
    if (o->err != STET_OK || o->report.end != 0) {
        c->latch = STET_SUSPENDED;
        return STET_OK;
    }
    c->fn = o->handler->fn;
    c->rolls_back = o->handler->rolls_back;
    c->is_shared = o->handler->is_shared;
    c->was_stopped = c->run.stop_code != 0;
    c->is_watched = o->question != NULL;
    c->journal.spared = c->journal.orphans = NULL;
    stet__host_info(c);
    /* As if it was claimed, also behind its end: what is assumed comes there. */
    c->run.status = stet__run_shown(&c->run, STET_STATUS_RUNNING);
    o->now_ms = c->run.created_ms;
    return STET_OK;
}

/* The limit of a wait belongs to what is waited for; the wait is named after that. */
static void
offline_note_limit(stet__offline *o, const stet__fact *fact, int64_t ms)
{
    char name[3 * STET__NAME_MAX];

    for (stet__offline_node *n = o->first; n != NULL; n = n->next) {
        int len = snprintf(name, sizeof name, "%s %s#%llu", n->op.kind, n->op.name,
                           (unsigned long long)n->op.occurrence);

        if (len > 0 && (size_t)len == fact->name.len &&
            memcmp(name, fact->name.data, fact->name.len) == 0)
            n->op.timeout_ms = ms;
    }
}

/* What a new command says of itself. */
static void
offline_note(stet__offline *o, const stet__fact *fact, const stet__fact *child)
{
    stet__offline_node *n =
        offline_node(o, fact->kind, fact->name.data, fact->name.len, (uint64_t)fact->occurrence);
    int64_t             ms = fact->until_ms > o->now_ms ? fact->until_ms - o->now_ms : 0;

    if (fact->kind == STET__FACT_AWAIT && ms > 0)
        offline_note_limit(o, fact, ms);
    if (n == NULL)
        return;
    if (fact->kind == STET__FACT_SLEEP)
        n->op.duration_ms = ms;
    else if (n->op.timeout_ms == 0)
        n->op.timeout_ms = ms;
    if (fact->key.data != NULL)
        n->op.key = stet__arena_copy(&o->arena, fact->key.data, fact->key.len);
    if (child != NULL && child->until_ms > o->now_ms)
        n->op.duration_ms = child->until_ms - o->now_ms;
    if (offline_kind_of(fact->kind)->answer == 0 || fact->kind == STET__FACT_STEP)
        offline_gave(o, fact->kind, fact->name.data, fact->name.len, (uint64_t)fact->occurrence,
                     &(offline_result){ fact->value, (int)fact->code, NULL });
    if (fact->kind == STET__FACT_NOTE)
        n->op.text = offline_kept(o, stet__arena_copy(&o->arena, fact->text.data, fact->text.len));
}

static int
offline_append(stet_ctx *c, stet__fact *fact, const stet__fact *child)
{
    stet__offline *o = offline_of(c);
    char           name[2 * STET__NAME_MAX];

    if (offline_is_over(o, c) && !offline_is_left(o, c, fact->kind)) {
        (void)snprintf(name, sizeof name, "%.*s", (int)fact->name.len,
                       fact->name.data != NULL ? (const char *)fact->name.data : "");
        offline_over(o, c, offline_operation(o, fact->kind, name, (uint64_t)fact->occurrence));
        return STET_SUSPENDED;
    }
    fact->revision = c->run.journal + 1;
    fact->time_ms = o->now_ms;
    if (o->follows && fact->name.data != NULL)
        offline_note(o, fact, child);
    return stet__run_apply(&c->run, fact);
}

/* Before a body. */
static bool
offline_crumb_set(stet_ctx *c, stet_attempt *a)
{
    stet__offline      *o = offline_of(c);
    stet__offline_node *n;

    if (a == NULL)
        return true;
    a->body = offline_body;
    a->arg = o;
    /* In a rollback the handler stands still: an undo that is not recorded may come before others that are, of a step that
     * was done while it lasted. */
    if (offline_is_over(o, c) || (o->question != NULL && a->future->is_undo)) {
        offline_over(o, c, offline_operation(o, STET__FACT_STEP, a->step, a->occurrence));
        return false;
    }
    if (o->report.end != 0 || o->err != STET_OK ||
        offline_is_strange(o, c, offline_operation(o, STET__FACT_STEP, a->step, a->occurrence)))
        return false;
    if ((n = offline_node(o, STET__FACT_STEP, a->step, strlen(a->step), a->occurrence)) != NULL) {
        n->op.attempts = (int)a->future->retry.attempts;
        n->op.timeout_ms = a->future->timeout_ms;
        n->op.is_transaction = a->future->is_tx;
        n->op.has_undo = a->future->undo != NULL;
    }
    return true;
}

static void
offline_go_on(stet__offline *o, stet_ctx *c)
{
    stet__lock(o->p, &o->lock);
    stet__exec_wake(&o->exec, c);
    stet__unlock(o->p, &o->lock);
}

static void
offline_suspend(stet_ctx *c)
{
    stet__offline   *o = offline_of(c);
    const stet__cmd *left = stet__journal_unasked(&c->journal);
    stet__cmd       *cmd = offline_oldest(&c->journal);

    if (offline_is_over(o, c))
        offline_over(o, c, offline_text(o, c->waits_for));
    else if (offline_is_strange(o, c, offline_text(o, c->waits_for)))
        ; /* that is all there is to say */
    else if (cmd == NULL)
        offline_end(
            o, o->follows ? STET_REPLAY_RECORD : STET_REPLAY_UNASKED,
            left != NULL ? offline_operation(o, left->kind, left->name, left->occurrence) : NULL,
            o->strange != NULL ? o->strange : offline_text(o, c->waits_for),
            o->strange != NULL ? o->strange_where : offline_where(o, c),
            stet__arena_printf(&o->arena, "waits for %s, and nothing can end that", c->waits_for));
    else
        o->err = offline_settle(o, c, cmd);
    if (o->report.end != 0 || o->err != STET_OK)
        c->is_let_go = true;
    else
        atomic_store(&c->park, STET__PARK_AGAIN);
    offline_go_on(o, c);
}

/* It came back with some of the record left, or fails where a worker would not. */
static void
offline_returned(stet__offline *o, stet_ctx *c)
{
    const stet__cmd *left = stet__journal_unasked(&c->journal);
    stet_class       class_ = stet_code_class(c->rc);
    bool             is_well = c->rc == STET_OK || c->rc == STET_CONTINUED;
    bool             is_final =
        is_well || class_ == STET_CLASS_PERMANENT || class_ == STET_CLASS_USAGE;
    const char *recorded =
        left != NULL ? offline_operation(o, left->kind, left->name, left->occurrence) : NULL;
    const char *failure = c->failure.code == c->rc && c->failure.text != NULL
                              ? c->failure.text
                              : stet_code_text(c->rc);

    o->report.code = c->rc == STET_CONTINUED ? 0 : c->rc;
    if (c->rc > 0 || c->rc == STET_SUSPENDED || c->rc == STET_END)
        offline_end(
            o, STET_REPLAY_FAILED, recorded, "the handler returned", NULL,
            stet__arena_printf(&o->arena, "the handler returned %d, which is no stet code", c->rc));
    else if (is_final && left != NULL)
        offline_end(o, STET_REPLAY_UNASKED, recorded,
                    o->strange != NULL ? o->strange : "the handler returned",
                    o->strange != NULL ? o->strange_where : offline_where(o, c),
                    stet__arena_printf(
                        &o->arena, "recorded %s, but the code asked for %s%s%s and returned %s",
                        recorded, o->strange != NULL ? o->strange : "nothing like it",
                        o->strange_where != NULL ? " at " : "",
                        o->strange_where != NULL ? o->strange_where : "",
                        is_well ? "without it" : failure));
    else if (left != NULL)
        offline_end(
            o, STET_REPLAY_FAILED, recorded,
            o->strange != NULL ? o->strange : "the handler returned",
            o->strange != NULL ? o->strange_where : offline_where(o, c),
            stet__arena_printf(&o->arena, "fails before it comes to %s: %s", recorded, failure));
    else
        offline_end(o, STET_REPLAY_RETURNED, NULL, "the handler returned", NULL,
                    c->rc == STET_CONTINUED          ? "begins anew"
                    : c->rc == STET_OK && o->follows ? "returns"
                    : c->rc == STET_OK
                        ? NULL
                        : stet__arena_printf(&o->arena, "returned %s: %s",
                                             stet_code_name(c->rc) != NULL ? stet_code_name(c->rc)
                                                                           : "a code of its own",
                                             failure));
}

static bool
offline_ended(stet_ctx *c)
{
    stet__offline *o = offline_of(c);
    size_t         jobs;

    if (o->report.end == 0 && o->err == STET_OK) {
        if (c->latch == STET_ENOMEM || (c->latch == 0 && c->rc == STET_ENOMEM))
            o->err = stet__fail(STET_ENOMEM, "out of memory while replaying");
        else if (c->stuck_code != 0)
            offline_end(o, STET_REPLAY_CONTRADICTION, offline_text(o, c->stuck_recorded),
                        offline_text(o, c->stuck_asked), offline_text(o, c->stuck_where),
                        offline_text(o, c->stuck_text));
        else if (c->latch != 0)
            offline_end(o, STET_REPLAY_FAILED, NULL, NULL, offline_where(o, c),
                        offline_text(o, c->failure.text != NULL ? c->failure.text
                                                                : stet_code_text(c->latch)));
        else
            offline_returned(o, c);
    }
    stet__lock(o->p, &o->lock);
    jobs = c->jobs;
    if (jobs > 0)
        c->is_let_go = true; /* bodies nobody waits for any more are not begun */
    stet__unlock(o->p, &o->lock);
    return jobs > 0;
}

/* A child that is never started. Its ID is like none that exists, and the same every time. */
static int
offline_child(stet_ctx *c, stet_id *id, stet__fact *started, const char *handler, stet_bytes input,
              const stet_start_options *options, bool is_call)
{
    stet__offline *o = offline_of(c);
    uint64_t       hash = stet__hash64(handler, strlen(handler), c->run.journal);
    uint8_t        random[10] = { 0 };
    int64_t        delay_ms = 0;

    (void)is_call;
    memcpy(random, &hash, sizeof hash);
    *id = stet__id_make(o->now_ms, random);
    started->kind = STET__FACT_STARTED;
    started->name = stet_text(handler);
    started->value = input;
    if (options == NULL)
        return STET_OK;
    if (options->size != sizeof *options)
        return stet__fail(STET_EINVAL, "stet_start_options.size is %zu; use STET_START(…)",
                          options->size);
    if (options->delay != NULL && stet_duration_parse(&delay_ms, options->delay) != STET_OK)
        return STET_EDURATION;
    if (options->delay == NULL)
        delay_ms = options->delay_ms;
    started->until_ms = options->run_at_ms != 0 ? options->run_at_ms
                        : delay_ms > 0          ? stet__time_add(o->now_ms, delay_ms)
                                                : 0;
    if (options->key != NULL)
        started->key = stet_text(options->key);
    return STET_OK;
}

static int
offline_state_read(stet_ctx *c, const char *name, stet_bytes *value, int64_t *writer)
{
    stet__offline    *o = offline_of(c);
    const stet_entry *initial = stet__initial_find(o->e, c->service, name);
    offline_result    r = { { NULL, 0 }, 0, NULL };

    *writer = 0;
    if (!offline_is_over(o, c))
        r = offline_assume(o, STET__FACT_STATE_GET, name, 1);
    *value = r.value.data != NULL || initial == NULL ? r.value : initial->value;
    return STET_OK;
}

static int
offline_child_existing(stet_ctx *c, const stet__fact *started, stet_id *existing)
{
    (void)c;
    (void)started;
    memset(existing, 0, sizeof *existing);
    return STET_OK;
}

/* What the store would say: the key was free, the other run has completed, nobody waited for the
 * event. */
static void
offline_answer(stet_ctx *c, stet__fact *fact)
{
    stet__offline   *o = offline_of(c);
    char             name[STET__NAME_MAX * 2 + 1];
    const stet__cmd *cmd;
    offline_result   r;

    (void)snprintf(name, sizeof name, "%.*s", (int)fact->name.len, (const char *)fact->name.data);
    cmd = o->from != NULL
              ? stet__journal_find(o->from, fact->kind, name, (uint64_t)fact->occurrence)
              : NULL;
    if (fact->kind == STET__FACT_ONCE)
        fact->number = cmd != NULL ? cmd->number : 1;
    if (fact->kind == STET__FACT_LOOK) {
        r = offline_assume(o, fact->kind, name, (uint64_t)fact->occurrence);
        fact->number = cmd != NULL ? cmd->number : STET_STATUS_COMPLETED;
        fact->value = r.value;
        fact->cause = cmd != NULL ? cmd->cause : 0;
    }
}

static int
offline_tell_run(stet_ctx *c, stet__fact *fact)
{
    if (!offline_is_over(offline_of(c), c))
        offline_answer(c, fact);
    return offline_append(c, fact, NULL);
}

static int
offline_tx_begin(stet_ctx *c, stet_attempt *a, int64_t limit_ms)
{
    (void)limit_ms;
    a->tx = &offline_of(c)->tx;
    return STET_OK;
}

static int
offline_tx_record(stet_ctx *c, stet_attempt *a, stet__fact *fact)
{
    a->tx = NULL;
    return offline_append(c, fact, NULL);
}

static void
offline_tx_rollback(stet_ctx *c, stet_attempt *a)
{
    (void)c;
    a->tx = NULL;
}

static void    offline_nothing(stet_ctx *c) { (void)c; }
static bool    offline_yes(stet_ctx *c) { (void)c; return true; }
static bool    offline_no(stet_ctx *c) { (void)c; return false; }
static int     offline_ok(stet_ctx *c) { (void)c; return STET_OK; }
static void    offline_after_turn(stet__exec *x, bool is_free) { (void)x; (void)is_free; }
static void    offline_look_soon(stet__exec *x) { (void)x; }
static void    offline_crumb(stet_ctx *c, stet_attempt *a) { (void)c; (void)a; }
static int64_t offline_now_ms(stet_ctx *c) { return offline_of(c)->now_ms; }
static int64_t
offline_payload_max(stet_ctx *c)
{
    return offline_of(c)->e->config.payload_bytes_max;
}
static int64_t offline_tx_limit(stet_ctx *c) { (void)c; return 3600000; }

static void
offline_log(stet_ctx *c, stet_level level, const char *step, int code, const stet_log_field *fields,
            size_t n, const char *message)
{
    (void)c, (void)level, (void)step, (void)code, (void)fields, (void)n, (void)message;
}

static const stet__host_ops offline_host = {
    .begin = offline_begin,
    .append = offline_append,
    .commit = offline_nothing,
    .commit_now = offline_nothing,
    .is_durable = offline_yes,
    .is_ahead = offline_no,
    .suspend = offline_suspend,
    .refresh = offline_ok,
    .end = offline_ended,
    .gone = offline_nothing,
    .after_turn = offline_after_turn,
    .look_soon = offline_look_soon,
    .may_execute = offline_yes,
    .crumb_set = offline_crumb_set,
    .crumb_rest = offline_crumb,
    .crumb_spent = offline_crumb,
    .state_read = offline_state_read,
    .tell = offline_tell_run,
    .child = offline_child,
    .child_existing = offline_child_existing,
    .tx_limit = offline_tx_limit,
    .tx_begin = offline_tx_begin,
    .tx_record = offline_tx_record,
    .tx_rollback = offline_tx_rollback,
    .now_ms = offline_now_ms,
    .payload_max = offline_payload_max,
    .log = offline_log,
    .asked = offline_asked,
    .entered = offline_entered,
};

/* ---- life ------------------------------------------------------------------------------------ */

bool
stet__offline_is_elsewhere(const stet_engine *e, const char *handler)
{
    const char *dot = strchr(handler, '.');
    size_t      len = dot != NULL ? (size_t)(dot - handler) : strlen(handler);

    for (const stet__service *s = e->services; s != NULL; s = s->next)
        if (strlen(s->name) == len && memcmp(s->name, handler, len) == 0)
            return false;
    return true;
}

int
stet__offline_open(stet__offline *o, stet_engine *e)
{
    int err;

    memset(o, 0, sizeof *o);
    o->e = e;
    o->p = e->p;
    o->new_max = UINT64_MAX;
    if ((err = o->p->ops->mutex_init(o->p, &o->lock)) != STET_OK)
        return err;
    if ((err = stet__exec_init(&o->exec, o->p, &offline_host, &o->lock, 1,
                               (size_t)e->config.stack_bytes)) != STET_OK) {
        o->p->ops->mutex_destroy(o->p, &o->lock);
        return err;
    }
    o->exec.host_arg = o;
    stet__arena_init(&o->arena, &o->p->alloc);
    return STET_OK;
}

void
stet__offline_close(stet__offline *o)
{
    stet__exec_free(&o->exec);
    stet__arena_free(&o->arena);
    o->p->ops->mutex_destroy(o->p, &o->lock);
}

static int
offline_tell_all(stet__offline *o)
{
    int err = o->err;

    for (stet__offline_node *n = o->first; err == STET_OK && o->fn != NULL && n != NULL;
         n = n->next) {
        const stet__cmd *cmd =
            o->from != NULL ? stet__journal_find(o->from, n->kind, n->op.name, n->op.occurrence)
                            : NULL;

        n->op.is_recorded = cmd != NULL;
        n->op.is_settled = cmd != NULL && cmd->is_settled;
        err = o->fn(o->arg, &n->op);
    }
    return err;
}

int
stet__offline_run(stet__offline *o, const stet__tape *tape)
{
    stet_ctx *c;
    char      run[STET_ID_TEXT_MAX];

    stet__arena_free(&o->arena);
    memset(&o->report, 0, sizeof o->report);
    o->tape = tape;
    o->handler = NULL;
    o->err = STET_OK;
    o->strange = o->strange_where = NULL;
    o->news = 0;
    o->first = o->last = NULL;
    stet__id_text(run, STET__ID_RUN, tape->run);
    o->report.run = stet__arena_str(&o->arena, run);
    o->report.status = tape->status;
    stet__lock(o->p, &o->lock);
    if ((c = stet__exec_new(&o->exec, NULL, o)) != NULL)
        stet__exec_submit(&o->exec, c);
    stet__unlock(o->p, &o->lock);
    if (c == NULL || o->report.run == NULL)
        o->err = stet__fail(STET_ENOMEM, "out of memory for a replay");
    stet__exec_run(&o->exec);
    return offline_tell_all(o);
}
