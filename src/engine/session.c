/* The worker's session: one lease for all its claims, renewed by a thread of its own; the crumbs that tell
 * what it was executing when it died; and giving the runs of dead sessions back.
 */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

#define SESSION_TRIES_MAX  10
#define SESSION_REAP_TRIES 5

/* ---- crumbs --------------------------------------------------------------------------------------- */

int
stet__crumb_get(stet__claim *claim)
{
    stet_engine *e = claim->engine;

    if (claim->session != e->session)
        return -1;
    if (claim->crumbs != e->crumbs) /* its slot reads it without a lock; it changes only while parked */
        claim->crumbs = e->crumbs;
    for (size_t i = 0; e->crumbs != NULL && i < e->n_crumbs; i++) {
        size_t at = (e->crumb_next + i) % e->n_crumbs;

        if (!e->crumb_uses[at].is_used) {
            e->crumb_uses[at] = (stet__crumb_use){ true, claim->run, claim->epoch };
            e->crumb_next = at + 1;
            return (int)at;
        }
    }
    return -1;
}

void
stet__crumb_put(stet__claim *claim, int crumb)
{
    stet_engine *e = claim->engine;

    if (crumb < 0 || claim->session != e->session || e->crumbs == NULL || (size_t)crumb >= e->n_crumbs)
        return;
    e->crumbs[crumb].is_busy = 0;
    e->crumbs[crumb].is_body = 0;
    e->crumb_uses[crumb].is_used = false;
}

/* ---- what a session says about itself --------------------------------------------------------------- */

/* What it serves stands in its record twice. `value` is what counts: of each handler a letter for its kind, its name, a
 * NUL, which no name can contain. `text` has the names with a space between them, for builds from before there was
 * `value`: they live beside us and know no other. A record without `value` is of such a build, or of a session that
 * serves nothing; a name with spaces falls to pieces in it, and nothing can mend that. */
static const char session_kinds[] = { [STET__SERVES_SERVICE] = 's', [STET__SERVES_OBJECT] = 'o', [STET__SERVES_SHARED] = 'r' };

static void
session_serves(stet_engine *e, stet__buf *serves, stet__buf *words, stet__buf *shared)
{
    for (size_t i = 0; i < e->n_handlers && (e->config.roles & STET_ROLE_WORKER); i++) {
        const stet__handler *h = &e->handlers[i];
        size_t               len = strlen(h->name);

        stet__buf_add(serves,
                      &session_kinds[h->is_shared   ? STET__SERVES_SHARED
                                     : h->is_object ? STET__SERVES_OBJECT
                                                    : STET__SERVES_SERVICE],
                      1);
        stet__buf_add(serves, h->name, len + 1);
        stet__buf_printf(words, "%s%s", i > 0 ? " " : "", h->name);
        if (h->is_shared)
            stet__buf_add(shared, h->name, len + 1);
    }
}

bool
stet__serves_next(const stet__fact *info, size_t *at, stet_bytes *name, stet__serves *kind)
{
    bool        is_old = info->value.data == NULL;
    stet_bytes  list = is_old ? info->text : info->value;
    const char *from = list.data, *end;
    size_t      len;

    *kind = STET__SERVES_UNKNOWN;
    while (is_old && *at < list.len && from[*at] == ' ')
        ++*at;
    if (*at >= list.len)
        return false;
    if (!is_old) {
        const void *found = memchr(session_kinds + 1, from[*at], sizeof session_kinds - 1);

        *kind = found != NULL ? (stet__serves)((const char *)found - session_kinds) : STET__SERVES_UNKNOWN;
        ++*at;
    }
    len = list.len - *at;
    end = len > 0 ? memchr(from + *at, is_old ? ' ' : '\0', len) : NULL;
    *name = (stet_bytes){ from + *at, end != NULL ? (size_t)(end - (from + *at)) : len };
    *at += name->len + 1;
    return true;
}

static void
session_info(stet_engine *e, stet__buf *out)
{
    stet__fact fact = { 0 };
    stet__buf  handlers, functions, shared, serves;

    stet__buf_init(&handlers, &e->p->alloc);
    stet__buf_init(&shared, &e->p->alloc);
    stet__buf_init(&serves, &e->p->alloc);
    session_serves(e, &serves, &handlers, &shared);
    if (serves.len > 0)
        fact.value = stet__buf_bytes(&serves);
    if (shared.len > 0)
        fact.labels = stet__buf_bytes(&shared);
    fact.kind = STET__FACT_ROW;
    fact.who = stet_text(e->worker);
    fact.where = stet_text(e->host_name);
    fact.text = stet__buf_bytes(&handlers);
    fact.flags = e->config.roles;
    fact.attempt = e->config.concurrency;
    fact.number = e->process;
    stet__buf_init(&functions, &e->p->alloc);
    for (const stet__sched_function *f = e->sched_functions; f != NULL; f = f->next)
        stet__buf_printf(&functions, "%s%s", f != e->sched_functions ? "\n" : "", f->name);
    if (functions.len > 0 && (e->config.roles & STET_ROLE_TIMERS))
        fact.schedule = stet__buf_bytes(&functions);
    stet__fact_encode(out, &fact);
    out->failed = out->failed || handlers.failed || functions.failed || shared.failed || serves.failed;
    stet__buf_free(&serves);
    stet__buf_free(&shared);
    stet__buf_free(&handlers);
    stet__buf_free(&functions);
}

static const char *
session_text(stet__arena *arena, stet_bytes b)
{
    const char *copy = b.data != NULL ? stet__arena_copy(arena, b.data, b.len) : "";

    return copy != NULL ? copy : "";
}

/* One a line. */
static const char *
session_handlers(stet__arena *arena, const stet__fact *info)
{
    char        *text = stet__arena_get(arena, info->text.len + info->value.len + 1), *to = text;
    size_t       at = 0;
    stet_bytes   name;
    stet__serves kind;

    if (text == NULL)
        return "";
    while (stet__serves_next(info, &at, &name, &kind)) {
        if (to != text)
            *to++ = '\n';
        if (name.len > 0)
            memcpy(to, name.data, name.len);
        to += name.len;
    }
    *to = '\0';
    return text;
}

void
stet__info_decode(stet_worker_info *info, stet__arena *arena, const stet_session_row *row)
{
    stet_bytes in = row->info;
    stet__fact fact;
    char       id[STET_ID_TEXT_MAX];

    memset(info, 0, sizeof *info);
    stet__id_text(id, STET__ID_WORKER, row->id);
    info->id = session_text(arena, stet_text(id));
    info->started_ms = row->started_ms;
    info->seen_ms = row->seen_ms;
    info->is_dead = row->is_dead;
    info->name = info->host = info->handlers = info->schedules = "";
    if (stet__fact_decode(&fact, &in) != STET_OK)
        return;
    info->name = session_text(arena, fact.who);
    info->host = session_text(arena, fact.where);
    info->handlers = session_handlers(arena, &fact);
    info->schedules = session_text(arena, fact.schedule);
    info->roles = (uint32_t)fact.flags;
    info->slots = (uint32_t)fact.attempt;
    info->process = fact.number;
}

/* ---- life ------------------------------------------------------------------------------------------ */

/* STET_EFENCED: we stood still for longer than its lease, and it was taken for dead and put away. */
static int
session_try(stet_engine *e)
{
    uint64_t    session = 0;
    int64_t     now_us = stet__mono_us(e->p);
    stet_crumb *crumbs;
    stet__stop  stop;
    stet__buf   info;
    int         err;

    /* Who is refused anyway must not show up as a living worker, again and again. */
    if ((err = stet__stop_check(e, &stop)) != STET_OK)
        return err;
    stet__buf_init(&info, &e->p->alloc);
    session_info(e, &info);
    err = info.failed ? stet__fail(STET_ENOMEM, "out of memory")
                      : e->store->ops->session_open(e->store, &session, e->worker_id, e->config.lease_ms, stet__buf_bytes(&info));
    stet__buf_free(&info);
    if (err != STET_OK)
        return err;
    /* Once more, and this is what counts: see stop.c. */
    if ((err = stet__stop_check(e, &stop)) != STET_OK) {
        char text[1024];

        (void)snprintf(text, sizeof text, "%s", stet_last_error());
        (void)e->store->ops->session_close(e->store, session);
        return stet__fail(err, "%s", text);
    }
    if ((crumbs = e->store->ops->crumbs(e->store, session, e->n_crumbs)) == NULL) {
        char text[512];

        (void)snprintf(text, sizeof text, "%s", stet_last_error());
        if (e->store->ops->session_renew(e->store, session, e->config.lease_ms) == STET_EFENCED)
            return stet__fail(STET_EFENCED, "the session ended while the engine was starting");
        (void)e->store->ops->session_close(e->store, session);
        return stet__fail(STET_ENOMEM, "no room to note what is executed: %s", text);
    }
    stet__lock(e->p, &e->lock);
    e->session = session;
    e->crumbs = crumbs;
    memset(e->crumb_uses, 0, e->n_crumbs * sizeof *e->crumb_uses);
    atomic_store(&e->lease_us, now_us + e->config.lease_ms * 1000);
    stet__unlock(e->p, &e->lock);
    return STET_OK;
}

int
stet__session_open(stet_engine *e)
{
    int err = STET_EFENCED;

    for (int i = 0; i < SESSION_TRIES_MAX && err == STET_EFENCED; i++)
        err = session_try(e);
    return err;
}

void
stet__session_close(stet_engine *e)
{
    uint64_t session;

    stet__lock(e->p, &e->lock);
    session = e->session;
    e->session = 0;
    e->crumbs = NULL;
    stet__unlock(e->p, &e->lock);
    if (session != 0)
        (void)e->store->ops->session_close(e->store, session);
}

/* The lease was lost: every claim of it is gone. What still executes is fenced by the store; here it is
 * let go, and a new session begins. */
static void
session_lost(stet_engine *e)
{
    size_t      at = 0, len;
    const void *key;
    void       *value;
    int         err;

    stet__log(e, STET_LOG_WARN, NULL, NULL, NULL, STET_EFENCED,
              "this worker's lease ended; its runs are given up and nothing more is written for them");
    stet__lock(e->p, &e->lock);
    e->session = 0;
    e->crumbs = NULL;
    atomic_store(&e->lease_us, 0);
    stet__map_free(&e->fenced);
    stet__map_init(&e->fenced, &e->p->alloc);
    while (stet__map_next(&e->claims, &at, &key, &len, &value)) {
        stet_ctx    *c = value;
        stet__claim *claim = c->host;

        if (!claim->is_owned)
            continue;
        stet__disown(claim);
        stet__exec_let_go(&e->exec, c, STET_EFENCED);
    }
    stet__unlock(e->p, &e->lock);
    if ((err = stet__session_open(e)) != STET_OK)
        stet__log_store(e, NULL, NULL, err, "no new session yet");
    stet__lock(e->p, &e->lock);
    e->next_sweep_us = 0; /* take our old runs up again */
    e->is_stirred = true;
    stet__keeper_poke(e);
    stet__unlock(e->p, &e->lock);
}

bool
stet__lease_holds(stet_engine *e)
{
    return stet__mono_us(e->p) < atomic_load(&e->lease_us) - e->config.lease_ms * 100;
}

void
stet__renew(stet_engine *e)
{
    int64_t  before_us = stet__mono_us(e->p);
    uint64_t session;
    int      err;

    stet__lock(e->p, &e->lock);
    session = e->session;
    stet__unlock(e->p, &e->lock);
    if (session == 0) {
        if (e->life == STET__LIFE_STARTED)
            (void)stet__session_open(e);
        return;
    }
    err = e->store->ops->session_renew(e->store, session, e->config.lease_ms);
    if (STET__MUTANT(renewed_late))
        before_us = stet__mono_us(e->p);
    if (err == STET_OK) {
        bool was_short = !stet__lease_holds(e);

        atomic_store(&e->lease_us, before_us + e->config.lease_ms * 1000);
        stet__store_back(e);
        if (was_short) { /* nothing was claimed meanwhile */
            stet__lock(e->p, &e->lock);
            e->wants_claim = true;
            stet__keeper_poke(e);
            stet__unlock(e->p, &e->lock);
        }
    } else if (err == STET_EFENCED)
        session_lost(e);
    else
        stet__log_store(e, NULL, NULL, err, "the lease could not be renewed");
}

static void
session_renewer(void *arg)
{
    stet_engine *e = arg;

    stet__lock(e->p, &e->lock);
    while (!e->is_renewer_closing) {
        int64_t now_us = stet__mono_us(e->p);
        int64_t wait_us = e->config.renew_ms * 1000;

        /* A renewal that failed is tried again well before the lease ends. */
        if (atomic_load(&e->lease_us) - now_us < e->config.lease_ms * 1000 - wait_us)
            wait_us = wait_us / 4 > 10000 ? wait_us / 4 : 10000;
        while (!e->is_renewer_closing && stet__wait(e->p, &e->renew_cond, &e->lock, now_us + wait_us))
            ; /* woken without cause: the deadline stays */
        if (e->is_renewer_closing)
            break;
        stet__unlock(e->p, &e->lock);
        stet__renew(e);
        stet__lock(e->p, &e->lock);
    }
    stet__unlock(e->p, &e->lock);
}

int
stet__renewer_start(stet_engine *e)
{
    e->is_renewer_closing = false;
    return e->p->ops->thread_start(e->p, &e->renewer, "stet-lease", session_renewer, e);
}

void
stet__renewer_close(stet_engine *e)
{
    if (e->renewer == NULL)
        return;
    stet__lock(e->p, &e->lock);
    e->is_renewer_closing = true;
    stet__signal(e->p, &e->renew_cond);
    stet__unlock(e->p, &e->lock);
    e->p->ops->thread_join(e->p, e->renewer);
    e->renewer = NULL;
}

/* ---- the dead --------------------------------------------------------------------------------------- */

typedef struct session_dead {
    uint64_t sessions[64];
    stet_id  ids[64];
    size_t   n;
} session_dead;

static int
session_on_row(void *arg, const stet_session_row *row)
{
    session_dead *dead = arg;

    if (row->is_dead && dead->n < 64) {
        dead->ids[dead->n] = row->id;
        dead->sessions[dead->n++] = row->session;
    }
    return STET_OK;
}

typedef struct session_runs {
    stet__arena *arena;
    stet_id     *runs;
    uint64_t    *epochs, *inboxes, *journals;
    size_t       n, cap;
} session_runs;

static int
session_on_run(void *arg, const stet_run_row *row)
{
    session_runs *r = arg;

    if (r->n == r->cap) {
        size_t    cap = stet__cap_next(r->arena->alloc, r->cap, 64);
        stet_id  *runs = stet__arena_get(r->arena, cap * sizeof *runs);
        uint64_t *epochs = stet__arena_get(r->arena, cap * sizeof *epochs);
        uint64_t *inboxes = stet__arena_get(r->arena, cap * sizeof *inboxes);
        uint64_t *journals = stet__arena_get(r->arena, cap * sizeof *journals);

        if (runs == NULL || epochs == NULL || inboxes == NULL || journals == NULL)
            return STET_ENOMEM;
        if (r->n > 0) {
            memcpy(runs, r->runs, r->n * sizeof *runs);
            memcpy(epochs, r->epochs, r->n * sizeof *epochs);
            memcpy(inboxes, r->inboxes, r->n * sizeof *inboxes);
            memcpy(journals, r->journals, r->n * sizeof *journals);
        }
        r->runs = runs;
        r->epochs = epochs;
        r->inboxes = inboxes;
        r->journals = journals;
        r->cap = cap;
    }
    r->epochs[r->n] = row->epoch;
    r->inboxes[r->n] = row->inbox;
    r->journals[r->n] = row->journal;
    r->runs[r->n++] = row->id;
    return STET_OK;
}

bool
stet__tell_lost(stet__work *w, int64_t now_ms, stet_id run, stet_id worker, const stet_crumb *crumb, bool *is_counted)
{
    stet__fact fact = { 0 };
    char       who[STET_ID_TEXT_MAX];
    char       step[STET_CRUMB_MAX];
    stet_op   *op = stet__work_op(w, STET_OP_INBOX, run);

    if (op == NULL)
        return false;
    stet__id_text(who, STET__ID_WORKER, worker);
    fact.kind = STET__FACT_LOST;
    fact.time_ms = now_ms;
    fact.who = stet_text(who);
    if (crumb == NULL)
        fact.flags = STET__FACT_UNKNOWN;
    else {
        memcpy(step, crumb->step, sizeof step);
        step[sizeof step - 1] = '\0';
        if (crumb->is_busy == 1 && !*is_counted) {
            fact.flags |= STET__FACT_EXECUTING;
            *is_counted = true;
        }
        if (crumb->is_body) {
            fact.flags |= STET__FACT_IN_BODY;
            fact.name = stet_text(step);
            fact.occurrence = (int64_t)crumb->occurrence;
        }
    }
    op->flags = STET_OP_IF_OPEN;
    return stet__work_fact(w, &op->data, &fact);
}

/* Tell one run what its dead worker was doing with it; the unit is conditional on its inbox, by which one death is told
 * once, and on its journal: one that was given back by another node, which had nothing to tell, may have been executed
 * since, and wait. */
static bool
session_tell_run(stet__work *w, int64_t now_ms, const session_runs *r, size_t i, stet_id worker, bool has_crumbs,
                 const stet_crumb *crumbs, size_t n_crumbs)
{
    bool       is_told = !has_crumbs, is_counted = false;
    stet_cond *cond;

    if (!has_crumbs && !stet__tell_lost(w, now_ms, r->runs[i], worker, NULL, &is_counted))
        return false;
    for (size_t k = 0; k < n_crumbs; k++) {
        if (STET__MUTANT(death_untold) || crumbs[k].is_busy == 0 || crumbs[k].epoch != r->epochs[i] || !stet__id_equal(crumbs[k].run, r->runs[i]))
            continue;
        if (!stet__tell_lost(w, now_ms, r->runs[i], worker, &crumbs[k], &is_counted))
            return false;
        is_told = true;
    }
    if (!is_told)
        return true;
    if ((cond = stet__work_cond(w, STET_COND_INBOX, r->runs[i])) == NULL)
        return false;
    cond->number = r->inboxes[i];
    if (STET__MUTANT(death_late))
        return true;
    if ((cond = stet__work_cond(w, STET_COND_JOURNAL, r->runs[i])) == NULL)
        return false;
    cond->number = r->journals[i];
    return true;
}

/* It stays dead, whatever becomes of the store's clock: one that came to life again could claim what we have not looked
 * at, and die when our unit is on its way. */
static int
session_bury(stet_engine *e, uint64_t session)
{
    stet__work *w = stet__work_new(e, NULL, NULL);
    stet_cond  *cond = w != NULL ? stet__work_cond(w, STET_COND_SESSION_DEAD, (stet_id){ { 0 } }) : NULL;
    stet_op    *op = cond != NULL ? stet__work_op(w, STET_OP_BURY, (stet_id){ { 0 } }) : NULL;

    if (op == NULL) {
        stet__work_free(w);
        return stet__fail(STET_ENOMEM, "out of memory for a unit");
    }
    cond->session = op->session = session;
    return stet__commit_sync(e, w, NULL);
}

/* Tell each run what its dead worker was doing with it, and give them all back: one unit. Several nodes may
 * find the same dead one: the condition on the inboxes lets one death be told once, and crumbs are read
 * before the runs, because they vanish only after the runs were given back. */
static int
session_reap(stet_engine *e, uint64_t session, stet_id worker)
{
    stet__work    *w = stet__work_new(e, NULL, NULL);
    stet_run_query query = { 0 };
    session_runs   runs = { 0 };
    stet_crumb    *crumbs = NULL;
    size_t         n_crumbs = 0;
    int64_t        now_ms = stet__store_now(e);
    stet_cond     *cond;
    stet_op       *op;
    bool           has_crumbs;
    int            err = STET_ENOMEM;

    if (w == NULL)
        return err;
    runs.arena = &w->arena;
    query.session = session;
    query.limit = 1000000;
    if ((cond = stet__work_cond(w, STET_COND_SESSION_DEAD, (stet_id){ { 0 } })) == NULL)
        goto done;
    cond->session = session;
    err = e->store->ops->crumbs_of(e->store, session, &crumbs, &n_crumbs);
    if (err == STET_ESTATE) { /* looked dead a moment ago and does not now: the next sweep knows better */
        err = STET_OK;
        goto done;
    }
    has_crumbs = err == STET_OK;
    if ((err = e->store->ops->runs(e->store, &query, session_on_run, &runs)) != STET_OK)
        goto done;
    err = STET_ENOMEM;
    for (size_t i = 0; i < runs.n; i++)
        if (!session_tell_run(w, now_ms, &runs, i, worker, has_crumbs, crumbs, n_crumbs))
            goto done;
    if ((op = stet__work_op(w, STET_OP_REAP, (stet_id){ { 0 } })) == NULL)
        goto done;
    op->session = session;
    op->status = STET_STATUS_PENDING;
    w->timer_ms = now_ms;
    stet__free(e->store->alloc, crumbs);
    if ((err = stet__commit_sync(e, w, NULL)) == STET_OK && runs.n > 0) {
        char who[STET_ID_TEXT_MAX];

        stet__id_text(who, STET__ID_WORKER, worker);
        stet__log(e, STET_LOG_WARN, NULL, NULL, NULL, 0, "worker %s is gone; its %zu runs go on", who, runs.n);
    }
    return err;
done:
    stet__free(e->store->alloc, crumbs);
    stet__work_free(w);
    return err;
}

int
stet__reap(stet_engine *e)
{
    session_dead dead = { .n = 0 };
    int          err, failed = STET_OK;

    if ((err = e->store->ops->sessions(e->store, session_on_row, &dead)) != STET_OK)
        return err;
    for (size_t i = 0; i < dead.n; i++) {
        bool is_buried = (err = STET__MUTANT(reap_unburied) ? STET_OK : session_bury(e, dead.sessions[i])) == STET_OK;

        /* A conflict: another node was faster, or something else arrived for a run of it; look again. */
        for (int tries = 0; is_buried && (tries == 0 || err == STET_ECONFLICT) && tries < SESSION_REAP_TRIES; tries++)
            err = session_reap(e, dead.sessions[i], dead.ids[i]);
        if (err == STET_OK || err == STET_ECONFLICT) /* one that cannot be buried is alive */
            continue;
        stet__log_store(e, NULL, NULL, err, "the runs of a dead worker cannot be taken over yet");
        failed = err;
    }
    return failed;
}
