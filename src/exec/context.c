/* The context: what all calls of a handler share, and the small calls.
 *
 * Every public call begins with stet__ctx_enter(): right thread, handler code and not a body, not
 * latched. A latch is final for this incarnation: the run is let go, fenced, stuck or its attempt has
 * failed, and whatever the handler does from there on has no effect.
 */
#include <stdio.h>
#include <string.h>

#include "exec/context.h"

stet_ctx *
stet_at(stet_ctx *c, const char *file, int line)
{
    /* Not what another thread says, or a place in a body: that is misuse, which the call itself reports. */
    if (c != NULL && c->magic == STET__CTX_MAGIC && c->is_inside && c->thread == c->exec->p->ops->thread_self(c->exec->p)) {
        c->file = file;
        c->line = line;
    }
    return c;
}

/* Does a body run on this thread? Its own slot's, or that of any slot a future's body was given to. */
static bool
ctx_is_in_body(stet_ctx *c)
{
    const void *self = c->exec->p->ops->thread_self(c->exec->p);

    for (size_t i = 0; i < c->exec->n_slots; i++)
        if (atomic_load(&c->exec->slots[i].self) == self)
            return atomic_load(&c->exec->slots[i].current_body) != NULL;
    return c->is_in_body && c->thread == self;
}

int
stet__ctx_enter(stet_ctx *c, const char *call)
{
    int err;

    if (c == NULL || c->magic != STET__CTX_MAGIC)
        return stet__fail(STET_EUSAGE, "%s: the handler of this context has returned", call);
    if (STET__LIKELY(c->is_inside && !c->is_in_body && c->thread == c->exec->p->ops->thread_self(c->exec->p))) {
        if (c->is_watched && (err = stet__live_enter(c, call)) != STET_OK)
            return err;
        return c->latch == 0 && c->is_let_go ? stet__ctx_latch(c, STET_SUSPENDED) : c->latch;
    }
    if (ctx_is_in_body(c))
        return stet__fail(STET_EUSAGE,
                          "%s: a step body cannot use the context; return a result with "
                          "stet_attempt_return() and call %s from the handler",
                          call, call);
    return stet__fail(STET_EUSAGE,
                      "%s: a context belongs to its handler's own thread; from elsewhere use the engine "
                      "(stet_start, stet_resolve) or start a step with stet_step_start()",
                      call);
}

/* Bodies use what the handler gave them; it cannot await them any more, so it is not unwound before they
 * have ended. */
static void
ctx_await_bodies(stet_ctx *c)
{
    for (;;) {
        size_t jobs;

        stet__lock(c->exec->p, c->exec->lock);
        jobs = c->jobs;
        stet__unlock(c->exec->p, c->exec->lock);
        if (jobs == 0)
            return;
        c->yield = STET__YIELD_WAIT;
        stet__co_yield(c->co);
        c->yield = STET__YIELD_NONE;
    }
}

int
stet__ctx_latch(stet_ctx *c, int code)
{
    if (c->latch == 0) {
        c->latch = code;
        /* What the handler asks from here on may say something else on this thread. */
        if (code != STET_SUSPENDED && code != STET_ERETRY && code != STET_ENOMEM)
            c->latch_text = stet__arena_str(&c->arena, stet_last_error());
    }
    if (c->is_inside)
        ctx_await_bodies(c);
    return c->latch;
}

void
stet__ctx_yield(stet_ctx *c, stet__yield why)
{
    c->yield = why;
    stet__co_yield(c->co);
    c->yield = STET__YIELD_NONE;
    /* Not after a body: what it did is recorded first, or a stop would repeat it. */
    if (c->is_let_go && why != STET__YIELD_BODY)
        (void)stet__ctx_latch(c, STET_SUSPENDED);
}

/* A future that failed passingly and has no policy ends the attempt, which is its only record: a run that was
 * suspended instead would execute the body again when it is resumed elsewhere, and nobody would count it. */
static const stet_future *
ctx_broken(const stet_ctx *c)
{
    for (const stet_future *f = c->steps; f != NULL; f = f->next)
        if (f->is_broken)
            return f;
    return NULL;
}

int
stet__ctx_suspend(stet_ctx *c)
{
    const stet_future *broken = ctx_broken(c);

    if (stet__ctx_is_undone(c))
        return c->latch;
    if (broken != NULL) {
        (void)stet__ctx_fail(c, STET_ERETRY, broken->broken_cause, broken->broken_text, broken->name, 0);
        return stet__ctx_latch(c, STET_ERETRY);
    }
    stet__ctx_yield(c, STET__YIELD_SUSPEND);
    /* A wake for another reason must not run the handler of a run that is not ours just now. */
    while (c->latch == 0 && atomic_load(&c->park) != STET__PARK_AGAIN)
        stet__ctx_yield(c, STET__YIELD_WAIT);
    atomic_store(&c->park, STET__PARK_NONE);
    return c->latch != 0 ? c->latch : c->exec->host->refresh(c);
}

int
stet__ctx_await_news(stet_ctx *c)
{
    size_t jobs;

    stet__lock(c->exec->p, c->exec->lock);
    jobs = c->jobs;
    stet__unlock(c->exec->p, c->exec->lock);
    if (jobs > 0) {
        /* Bodies run: stay, but let what was recorded become durable meanwhile. */
        if (!c->exec->host->is_durable(c))
            c->exec->host->commit(c);
        stet__ctx_yield(c, STET__YIELD_WAIT);
        return c->latch;
    }
    if (atomic_load(&c->has_finished))
        return STET_OK;
    return stet__ctx_suspend(c);
}

int
stet__ctx_barrier(stet_ctx *c)
{
    while (c->latch == 0 && !c->exec->host->is_durable(c)) {
        c->exec->host->commit(c);
        stet__ctx_yield(c, STET__YIELD_WAIT);
    }
    /* All is answered, but perhaps refused, and that between our last look and this one. */
    return c->latch == 0 && c->is_let_go ? stet__ctx_latch(c, STET_SUSPENDED) : c->latch;
}

int
stet__ctx_skipped(stet_ctx *c)
{
    if (c->lacks != 0)
        (void)stet__fail(c->lacks, "%s", c->lacks_text != NULL ? c->lacks_text : stet_code_text(c->lacks));
    return stet__ctx_latch(c, c->lacks != 0 ? c->lacks : STET_SUSPENDED);
}

int
stet__ctx_catch_up(stet_ctx *c)
{
    stet_attempt *done = NULL, *reversed = NULL;
    bool          is_skipped = false;

    if (atomic_load(&c->has_finished)) {
        stet__lock(c->exec->p, c->exec->lock);
        done = c->finished;
        c->finished = NULL;
        atomic_store(&c->has_finished, false);
        stet__unlock(c->exec->p, c->exec->lock);
    }
    while (done != NULL) { /* oldest first */
        stet_attempt *next = done->next;

        done->next = reversed;
        reversed = done;
        done = next;
    }
    while (reversed != NULL) {
        stet_attempt *next = reversed->next;

        is_skipped = is_skipped || reversed->is_skipped;
        (void)stet__step_record(c, reversed);
        reversed = next;
    }
    if (is_skipped)
        (void)stet__ctx_skipped(c);
    if (c->latch == 0 && (atomic_load(&c->inbox_known) > c->run.taken || atomic_load(&c->has_news)))
        (void)c->exec->host->refresh(c);
    return c->latch;
}

int
stet__ctx_append(stet_ctx *c, stet__fact *fact, const stet__fact *child)
{
    int err = c->exec->host->append(c, fact, child);

    if (err == STET_OK)
        return STET_OK;
    (void)stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
    return stet__ctx_latch(c, err);
}

/* ---- replay ------------------------------------------------------------------------------------- */

int
stet__ctx_stuck(stet_ctx *c, const stet__cmd *recorded, stet__fact_kind kind, const char *name,
                uint64_t occurrence)
{
    const char *what;

    c->stuck_code = STET_EREPLAY;
    c->stuck_recorded =
        stet__arena_printf(&c->arena, "%s %s#%llu", stet__fact_kind_name(recorded->kind), recorded->name,
                           (unsigned long long)recorded->occurrence);
    if (name == NULL)
        c->stuck_asked = "the handler returned";
    else
        c->stuck_asked = stet__arena_printf(&c->arena, "%s %s#%llu", stet__fact_kind_name(kind), name,
                                            (unsigned long long)occurrence);
    what = name != NULL && recorded->kind == kind ? " with another input" : "";
    if (name != NULL && c->file != NULL)
        c->stuck_where = stet__arena_printf(&c->arena, "%s:%d", c->file, c->line);
    c->stuck_text = stet__arena_printf(
        &c->arena, "recorded %s, but %s%s%s%s%s; start a worker with code that agrees",
        c->stuck_recorded ? c->stuck_recorded : "?", name != NULL ? "the code asked for " : "",
        c->stuck_asked ? c->stuck_asked : "?", what,
        c->stuck_where ? " at " : "", c->stuck_where ? c->stuck_where : "");
    (void)stet__fail(STET_EREPLAY, "run %s: %s", c->run_text, c->stuck_text ? c->stuck_text : "");
    return stet__ctx_latch(c, STET_EREPLAY);
}

bool
stet__ctx_is_undone(stet_ctx *c)
{
    if (!c->run.is_auto || c->is_undoing)
        return false;
    (void)stet__ctx_latch(c, stet__fail(STET_EROLLBACK, "run %s failed and is being rolled back", c->run_text));
    return true;
}

int
stet__ctx_ask(stet_ctx *c, stet__fact_kind kind, const char *name, int64_t fingerprint, stet__cmd **cmd,
              uint64_t *occurrence)
{
    const stet__cmd *recorded;
    int err = stet__journal_ask(&c->journal, kind, name, fingerprint, cmd, occurrence, &recorded);

    /* A wait for what is there already leaves no record. */
    if (err == STET_OK && *cmd == NULL && kind != STET__FACT_AWAIT && kind != STET__FACT_ANY && stet__ctx_is_undone(c))
        return c->latch;
    if (err == STET_OK && c->exec->host->asked != NULL)
        c->exec->host->asked(c, kind, name, *occurrence, *cmd);
    if (err == STET_OK)
        return c->latch;
    if (err == STET_EREPLAY)
        return stet__ctx_stuck(c, recorded, kind, name, *occurrence);
    return stet__ctx_latch(c, err);
}

static bool
ctx_is_stopped(const stet_ctx *c)
{
    /* Not before something that is recorded: a future's body left no record there, and the first
     * execution went on. Past what it inherits none may have gone yet; if one has and failed, all who come after it
     * have to come as far. */
    return c->run.stop_code != 0 && !c->run.is_stop_told && c->journal.unasked == 0 && c->journal.choices == 0 &&
           c->journal.inherited >= c->journal.inherited_max &&
           (c->journal.inherited_choices == 0 || !(stet__run_has_begun(&c->run) || c->run.lost > 0));
}

const char *
stet__ctx_stop_text(const stet_ctx *c)
{
    return c->run.stop_why != NULL ? c->run.stop_why : stet_code_text(c->run.stop_code);
}

int
stet__ctx_end_cmd(stet_ctx *c, stet__cmd **cmd, stet__fact_kind kind, const char *name, uint64_t occurrence, int code,
                  const char *text)
{
    stet__fact fact = { 0 };
    int        err;

    fact.kind = kind;
    fact.name = stet_text(name);
    fact.occurrence = (int64_t)occurrence;
    fact.code = code;
    fact.text = stet_text(text);
    if ((err = stet__ctx_append(c, &fact, NULL)) != STET_OK)
        return err;
    if ((*cmd = stet__journal_add(&c->journal, kind, name, occurrence, 0)) == NULL ||
        stet__journal_apply(&c->journal, &fact) != STET_OK)
        return stet__ctx_latch(c, STET_ENOMEM);
    return STET_OK;
}

int
stet__ctx_stop_cmd(stet_ctx *c, stet__cmd **cmd, stet__fact_kind kind, const char *name, uint64_t occurrence)
{
    int err;

    if (!ctx_is_stopped(c))
        return STET_OK;
    err = stet__ctx_end_cmd(c, cmd, kind, name, occurrence, c->run.stop_code, stet__ctx_stop_text(c));
    return err == STET_OK && STET__MUTANT(stop_unmade) ? stet__ctx_outcome(c, NULL, *cmd) : err;
}

int
stet__ctx_stop(stet_ctx *c, stet__fact_kind kind, const char *name, uint64_t occurrence)
{
    stet__cmd *cmd = NULL;
    int        err = stet__ctx_stop_cmd(c, &cmd, kind, name, occurrence);

    return err == STET_OK && cmd != NULL ? stet__ctx_outcome(c, NULL, cmd) : err;
}

/* ---- results ------------------------------------------------------------------------------------ */

void *
stet__ctx_get(stet_ctx *c, size_t size)
{
    return stet__arena_get(c->scope != NULL ? &c->scope->arena : &c->arena, size);
}

int
stet__ctx_out(stet_ctx *c, stet_bytes *out, stet_bytes value)
{
    void *copy;

    if (out == NULL)
        return STET_OK;
    out->data = NULL;
    out->len = 0;
    if (value.data == NULL)
        return STET_OK;
    copy = stet__arena_copy(c->scope != NULL ? &c->scope->arena : &c->arena, value.data, value.len);
    if (copy == NULL)
        return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for a result of %zu bytes", value.len));
    out->data = copy;
    out->len = value.len;
    return STET_OK;
}

int
stet__ctx_fail(stet_ctx *c, int code, int cause, const char *text, const char *origin, uint32_t attempts)
{
    const char *copy = text != NULL ? stet__arena_str(&c->arena, text) : NULL;

    c->failure.code = code;
    c->failure.cause = cause;
    c->failure.text = copy != NULL ? copy : stet_code_text(code);
    c->failure.origin = origin != NULL ? stet__arena_str(&c->arena, origin) : NULL;
    c->failure.attempts = attempts;
    return stet__fail(code, "%s%s%s", c->failure.origin != NULL ? c->failure.origin : "",
                      c->failure.origin != NULL ? ": " : "", c->failure.text);
}

int
stet__ctx_outcome(stet_ctx *c, stet_bytes *out, const stet__cmd *cmd)
{
    if (out != NULL)
        *out = (stet_bytes){ NULL, 0 };
    if (cmd->code == STET_OK) {
        if (out != NULL)
            *out = cmd->value; /* lives in the context's arena */
        return STET_OK;
    }
    return stet__ctx_fail(c, cmd->code, cmd->cause, cmd->text, cmd->origin, cmd->attempt);
}

void
stet__ctx_judge(stet_ctx *c)
{
    const stet_failure *f = &c->failure;
    stet_class          class_ = stet_code_class(c->rc);
    bool                is_said; /* what it says of its failure is about this one */
    int                 code = c->rc;

    if (c->is_let_go || (c->latch != 0 && c->latch != STET_ERETRY) || c->run.stop_code != 0 || c->run.is_auto ||
        c->exec->host->judge == NULL)
        return;
    if (c->latch == 0 && (c->rc >= 0 || c->rc == STET_EDEFER || c->rc == STET_CONTINUED || c->rc == STET_SUSPENDED || c->rc == STET_END ||
                          class_ == STET_CLASS_PERMANENT || class_ == STET_CLASS_USAGE))
        return;
    if (c->latch != 0)
        code = f->code == c->latch && f->cause != 0 ? f->cause : c->latch;
    is_said = f->code == (c->latch != 0 ? c->latch : c->rc);
    c->judged = c->exec->host->judge(c, code, is_said && f->text != NULL ? f->text : stet_code_text(code),
                                     is_said ? f->origin : NULL, &c->defer_ms);
}

/* ---- small public calls ------------------------------------------------------------------------- */

const stet_failure *
stet_failure_get(const stet_ctx *c)
{
    return &c->failure;
}

const stet_ctx_info *
stet_info(stet_ctx *c)
{
    c->info.is_replaying = c->journal.unasked > 0;
    return &c->info;
}

int
stet_return(stet_ctx *c, stet_bytes value)
{
    int  err = stet__ctx_enter(c, "stet_return");
    void *copy;

    if (err != STET_OK)
        return err;
    if ((int64_t)value.len > c->exec->host->payload_max(c))
        return stet_fail(c, STET_ETOOBIG, "a result of %zu bytes; the limit is payload_bytes_max, %lld", value.len,
                         (long long)c->exec->host->payload_max(c));
    if ((copy = stet__arena_copy(&c->arena, value.data, value.len)) == NULL)
        return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for a result"));
    c->result.data = copy;
    c->result.len = value.len;
    c->has_result = true;
    return STET_OK;
}

int
stet_return_json(stet_ctx *c, const char *fmt, ...)
{
    stet__buf b;
    va_list   args;
    int       err = stet__ctx_enter(c, "stet_return_json");

    if (err != STET_OK)
        return err;
    stet__buf_init(&b, &c->exec->p->alloc);
    va_start(args, fmt);
    err = stet__json_vprintf(&b, fmt, args);
    va_end(args);
    if (err == STET_OK)
        err = stet_return(c, stet__buf_bytes(&b));
    else
        (void)stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
    stet__buf_free(&b);
    return err;
}

int
stet_fail(stet_ctx *c, int code, const char *fmt, ...)
{
    char    text[512];
    va_list args;
    int     err = stet__ctx_enter(c, "stet_fail");

    if (err != STET_OK)
        return err;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return stet__ctx_fail(c, code, 0, text, NULL, 0);
}

int
stet_defer_until(stet_ctx *c, int64_t time_ms, const char *why)
{
    int err = stet__ctx_enter(c, "stet_defer_until");

    if (err != STET_OK)
        return err;
    c->defer_ms = time_ms > STET__DEFER_MS_MAX ? STET__DEFER_MS_MAX : time_ms > 0 ? time_ms : 1;
    return stet__ctx_fail(c, STET_EDEFER, 0, why, NULL, 0);
}

int
stet_continue(stet_ctx *c, stet_bytes input)
{
    int   err = stet__ctx_enter(c, "stet_continue");
    void *copy;

    if (err != STET_OK)
        return err;
    if ((int64_t)input.len > c->exec->host->payload_max(c))
        return stet_fail(c, STET_ETOOBIG, "an input of %zu bytes; the limit is payload_bytes_max, %lld", input.len,
                         (long long)c->exec->host->payload_max(c));
    if ((copy = stet__arena_copy(&c->arena, input.data, input.len)) == NULL)
        return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for an input"));
    c->next_input = (stet_bytes){ copy, input.len };
    c->has_next = true;
    return STET_CONTINUED;
}

/* What the handler returned is no outcome of its: says why. */
static bool
returned_nonsense(const stet_ctx *c, char *text, size_t size)
{
    if (c->has_next && c->rc != STET_CONTINUED)
        (void)snprintf(text, size, "the handler called stet_continue() and returned %d instead of what that returned", c->rc);
    else if (c->rc == STET_EDEFER && c->defer_ms == 0) /* it would come back at once, without end */
        (void)snprintf(text, size, "the handler returned STET_EDEFER and did not call stet_defer_until()");
    else if (c->rc == STET_CONTINUED && !c->has_next)
        (void)snprintf(text, size, "the handler returned STET_CONTINUED and did not call stet_continue()");
    else
        return false;
    return true;
}

void
stet__ctx_returned(stet_ctx *c)
{
    char text[160];

    if (c->latch != 0 || c->is_let_go)
        return;
    if (returned_nonsense(c, text, sizeof text)) {
        c->has_next = false;
        c->rc = stet__ctx_fail(c, STET_EHANDLER, 0, text, NULL, 0);
    } else if (c->rc != STET_OK && c->rc != STET_CONTINUED && c->failure.code != c->rc) {
        /* A code of its own: what failed before it was dealt with, and is not why. */
        (void)snprintf(text, sizeof text, "the handler returned %d, which is no code of stet", c->rc);
        (void)stet__ctx_fail(c, c->rc, 0, stet_code_name(c->rc) == NULL && c->rc > STET_CODE_USER ? text : NULL, NULL, 0);
    }
}

uint64_t
stet_random(stet_ctx *c)
{
    return stet__ctx_enter(c, "stet_random") == STET_OK ? stet__rng_next(&c->rng) : 0;
}

const char *
stet_uuid(stet_ctx *c, char text[37])
{
    uint64_t hi = stet_random(c), lo = stet_random(c);

    hi = (hi & ~0xF000ull) | 0x4000ull;
    lo = (lo & ~(3ull << 62)) | (2ull << 62);
    (void)snprintf(text, 37, "%08llx-%04llx-%04llx-%04llx-%012llx", (unsigned long long)(hi >> 32),
                   (unsigned long long)(hi >> 16 & 0xFFFF), (unsigned long long)(hi & 0xFFFF),
                   (unsigned long long)(lo >> 48), (unsigned long long)(lo & 0xFFFFFFFFFFFFull));
    return text;
}

/* Without memory a scope begins that has none of its own: results belong to the one around it, and the next end is
 * this one's, or the handler would lose what it still uses. */
void
stet_scope_begin(stet_ctx *c)
{
    stet__scope *scope;

    if (c == NULL || c->magic != STET__CTX_MAGIC)
        return;
    if ((scope = c->scopes_spare) != NULL)
        c->scopes_spare = scope->outer;
    else if ((scope = stet__arena_get(&c->arena, sizeof *scope)) == NULL) {
        c->scopes_missing++;
        return;
    }
    stet__arena_init(&scope->arena, &c->exec->p->alloc);
    scope->outer = c->scope;
    c->scope = scope;
}

void
stet_scope_end(stet_ctx *c)
{
    stet__scope *scope;

    if (c == NULL || c->magic != STET__CTX_MAGIC)
        return;
    if (c->scopes_missing > 0) { /* one that began later goes with the end of one around it: late, never early */
        c->scopes_missing--;
        return;
    }
    if ((scope = c->scope) == NULL)
        return;
    stet__arena_free(&scope->arena);
    c->scope = scope->outer;
    scope->outer = c->scopes_spare;
    c->scopes_spare = scope;
}

void *
stet_ctx_alloc(stet_ctx *c, size_t size)
{
    return c != NULL && c->magic == STET__CTX_MAGIC ? stet__ctx_get(c, size) : NULL;
}

char *
stet_ctx_printf(stet_ctx *c, const char *fmt, ...)
{
    va_list args, again;
    char   *text;
    int     len;

    va_start(args, fmt);
    va_copy(again, args);
    len = vsnprintf(NULL, 0, fmt, args);
    text = len >= 0 ? stet_ctx_alloc(c, (size_t)len + 1) : NULL;
    if (text != NULL)
        (void)vsnprintf(text, (size_t)len + 1, fmt, again);
    va_end(again);
    va_end(args);
    return text;
}

int
stet_on_exit(stet_ctx *c, void (*fn)(void *arg), void *arg)
{
    stet__exit_hook *hook;

    if (c == NULL || c->magic != STET__CTX_MAGIC || (hook = stet__arena_get(&c->arena, sizeof *hook)) == NULL)
        return STET_ENOMEM;
    hook->fn = fn;
    hook->arg = arg;
    hook->next = c->exits;
    c->exits = hook;
    return STET_OK;
}
