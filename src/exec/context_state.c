/* Object state, and what is the same on every replay: now, versions.
 *
 * A run holds its key, so nobody else writes while it runs. The first read of an entry is recorded with
 * its value; later reads come from memory, where the run's own writes are. So a replay sees what the
 * first execution saw, whatever was written since.
 */
#include <string.h>

#include "exec/context.h"

#undef stet_state_get
#undef stet_state_set
#undef stet_state_clear
#undef stet_now
#undef stet_version

static int
state_enter(stet_ctx *c, const char *call, const char *name)
{
    int err;

    if ((err = stet__ctx_enter(c, call)) != STET_OK)
        return err;
    if (!c->run.is_object)
        return stet__ctx_fail(c, STET_EKEY, 0, "only objects have state, and this handler is of a service", NULL, 0);
    if ((err = stet__name_check("state entry", name)) != STET_OK)
        return stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
    return STET_OK;
}

/* What is known of an entry. Inherited: the run this one retries saw or wrote it, and others may have written since;
 * good only as long as what that run did next is inherited as well, and was a write: a read it made because it was a
 * retry itself is to be made here, too. */
typedef struct state_entry {
    stet_bytes value; /* data NULL: none */
    int64_t    writer; /* before this run wrote it; 0: not known, or this run wrote it */
    bool       is_inherited;
    bool       is_own; /* this run wrote it */
} state_entry;

static bool
state_is_stale(const stet_ctx *c, const state_entry *entry, const char *name)
{
    static const stet__fact_kind kinds[] = { STET__FACT_STATE_GET, STET__FACT_STATE_SET, STET__FACT_STATE_CLEAR };
    const stet__cmd             *first = NULL;

    for (size_t i = 0; entry->is_inherited && i < sizeof kinds / sizeof kinds[0]; i++) {
        const stet__cmd *next = stet__journal_peek(&c->journal, kinds[i], name);

        if (next != NULL && next->is_inherited && (first == NULL || next->revision < first->revision))
            first = next;
    }
    return entry->is_inherited &&
           (first == NULL || (first->kind == STET__FACT_STATE_GET && !STET__MUTANT(reread_spared)));
}

static int
state_remember(stet_ctx *c, const char *name, stet_bytes value, int64_t writer, bool is_own, bool is_inherited)
{
    state_entry *entry = stet__map_find(&c->state_entries, name, strlen(name));

    if (entry == NULL) {
        if ((entry = stet__arena_get0(&c->arena, sizeof *entry)) == NULL ||
            stet__map_put(&c->state_entries, name, strlen(name), entry) != STET_OK)
            return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for state entry %s", name));
    }
    entry->writer = writer;
    entry->is_own = is_own && !is_inherited;
    entry->is_inherited = is_inherited;
    entry->value = (stet_bytes){ NULL, 0 };
    if (value.data == NULL)
        return STET_OK;
    if ((entry->value.data = stet__arena_copy(&c->arena, value.data, value.len)) == NULL)
        return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory for state entry %s", name));
    entry->value.len = value.len;
    return STET_OK;
}

int
stet_state_get(stet_ctx *c, stet_bytes *out, const char *name)
{
    const state_entry *known;
    stet__cmd         *cmd;
    stet__fact         fact = { 0 };
    stet_bytes         value = { NULL, 0 };
    uint64_t           occurrence;
    int64_t            writer = 0;
    int                err;

    *out = (stet_bytes){ NULL, 0 };
    if ((err = state_enter(c, "stet_state_get", name)) != STET_OK)
        return err;
    if ((known = stet__map_find(&c->state_entries, name, strlen(name))) != NULL && !state_is_stale(c, known, name)) {
        *out = known->value;
        return STET_OK;
    }
    if ((err = stet__ctx_ask(c, STET__FACT_STATE_GET, name, 0, &cmd, &occurrence)) != STET_OK)
        return err;
    if (cmd == NULL) {
        if ((err = c->exec->host->state_read(c, name, &value, &writer)) != STET_OK)
            return stet__ctx_latch(c, err);
        fact.kind = STET__FACT_STATE_GET;
        fact.name = stet_text(name);
        fact.occurrence = (int64_t)occurrence;
        fact.value = value;
        fact.flags = value.data == NULL ? STET__FACT_ABSENT : 0;
        if ((err = stet__ctx_append(c, &fact, NULL)) != STET_OK)
            return err;
    } else
        value = cmd->is_absent ? (stet_bytes){ NULL, 0 } : cmd->value.data != NULL ? cmd->value : stet_text("");
    if ((err = state_remember(c, name, value, writer, false, cmd != NULL && cmd->is_inherited)) != STET_OK)
        return err;
    known = stet__map_find(&c->state_entries, name, strlen(name));
    *out = known->value;
    return STET_OK;
}

/* Which write this one replaces orders the two for good, whatever clocks say. A run that has not read the entry, or read
 * it in an earlier execution, reads it now. */
static int
state_replaces(stet_ctx *c, const char *name, int64_t *writer)
{
    const state_entry *known = stet__map_find(&c->state_entries, name, strlen(name));
    stet_bytes         value;
    int                err;

    *writer = 0;
    if ((known != NULL && known->is_own) || STET__MUTANT(replaced_unknown))
        return STET_OK; /* its own facts have an order */
    if (known != NULL && !known->is_inherited && known->writer != 0) {
        *writer = known->writer;
        return STET_OK;
    }
    err = c->exec->host->state_read(c, name, &value, writer);
    return err == STET_OK ? STET_OK : stet__ctx_latch(c, err);
}

static int
state_write(stet_ctx *c, stet__fact_kind kind, const char *name, stet_bytes value)
{
    stet__cmd *cmd;
    stet__fact fact = { 0 };
    uint64_t   occurrence;
    int        err;

    if ((c->run.is_shared || c->is_shared) && !STET__MUTANT(shared_writes))
        return stet_fail(c, STET_EUSAGE, "state entry %s: %s is shared, and only reads; write in a handler that has the key", name,
                         c->run.handler);
    if ((int64_t)value.len > c->exec->host->payload_max(c))
        return stet_fail(c, STET_ETOOBIG, "state entry %s of %zu bytes; the limit is payload_bytes_max, %lld", name,
                         value.len, (long long)c->exec->host->payload_max(c));
    if ((err = stet__ctx_ask(c, kind, name, 0, &cmd, &occurrence)) != STET_OK)
        return err;
    if (cmd == NULL) {
        fact.kind = kind;
        fact.name = stet_text(name);
        fact.occurrence = (int64_t)occurrence;
        fact.value = value;
        if ((err = state_replaces(c, name, &fact.replaces)) != STET_OK ||
            (err = stet__ctx_append(c, &fact, NULL)) != STET_OK)
            return err;
    }
    return state_remember(c, name, value, 0, true, cmd != NULL && cmd->is_inherited);
}

int
stet_state_set(stet_ctx *c, const char *name, stet_bytes value)
{
    int err = state_enter(c, "stet_state_set", name);

    if (err != STET_OK)
        return err;
    return state_write(c, STET__FACT_STATE_SET, name, value.data != NULL ? value : stet_text(""));
}

int
stet_state_clear(stet_ctx *c, const char *name)
{
    int err = state_enter(c, "stet_state_clear", name);

    return err != STET_OK ? err : state_write(c, STET__FACT_STATE_CLEAR, name, (stet_bytes){ NULL, 0 });
}

/* ---- now, version -------------------------------------------------------------------------------- */

int
stet_now(stet_ctx *c, int64_t *now_ms)
{
    stet__cmd *cmd;
    stet__fact fact = { 0 };
    uint64_t   occurrence;
    int        err;

    if ((err = stet__ctx_enter(c, "stet_now")) != STET_OK ||
        (err = stet__ctx_ask(c, STET__FACT_NOW, "now", 0, &cmd, &occurrence)) != STET_OK)
        return err;
    if (cmd != NULL) {
        *now_ms = cmd->number;
        return STET_OK;
    }
    fact.kind = STET__FACT_NOW;
    fact.name = stet_text("now");
    fact.occurrence = (int64_t)occurrence;
    fact.number = c->exec->host->now_ms(c);
    *now_ms = fact.number;
    if (STET__MUTANT(now_unrecorded))
        return STET_OK;
    return stet__ctx_append(c, &fact, NULL);
}

int
stet_version(stet_ctx *c, int *version, const char *name, int oldest, int newest)
{
    stet__cmd *cmd;
    stet__fact fact = { 0 };
    uint64_t   occurrence;
    int        err;

    if ((err = stet__ctx_enter(c, "stet_version")) != STET_OK)
        return err;
    if ((err = stet__name_check("version", name)) != STET_OK)
        return stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
    if (oldest > newest)
        return stet__ctx_fail(c, STET_EINVAL, 0, "the oldest version is above the newest", NULL, 0);
    if ((err = stet__ctx_ask(c, STET__FACT_VERSION, name, 0, &cmd, &occurrence)) != STET_OK)
        return err;
    if (cmd != NULL) {
        *version = (int)cmd->number;
        if (*version < oldest || *version > newest) {
            stet__cmd shown = *cmd;

            return stet__ctx_stuck(c, &shown, STET__FACT_VERSION, name, occurrence);
        }
        return STET_OK;
    }
    /* Recorded commands ahead of us, or a wait: this run passed here under code that had no marker. */
    *version = c->journal.unasked > 0 || c->journal.choices > 0 ? oldest : newest;
    fact.kind = STET__FACT_VERSION;
    fact.name = stet_text(name);
    fact.occurrence = (int64_t)occurrence;
    fact.number = *version;
    return stet__ctx_append(c, &fact, NULL);
}
