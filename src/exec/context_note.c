/* Notes and choices: what a handler decided, and what it says about it.
 *
 * Both are commands like any other, recorded with what the run does next. A note is known by its format
 * rather than by its text, which may differ from execution to execution.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "exec/context.h"

#undef stet_note
#undef stet_switch

/* Not in the middle of a character. */
static size_t
note_cut(const char *text, size_t len, size_t most)
{
    if (len <= most)
        return len;
    while (most > 0 && ((unsigned char)text[most] & 0xC0u) == 0x80u)
        most--;
    return most;
}

int
stet_note(stet_ctx *c, const char *fmt, ...)
{
    char       name[STET__NAME_MAX + 1], text[STET_NOTE_MAX + 8];
    stet__fact fact = { 0 };
    stet__cmd *cmd;
    va_list    args;
    uint64_t   occurrence;
    int        len, err;

    if ((err = stet__ctx_enter(c, "stet_note")) != STET_OK)
        return err;
    if (fmt == NULL || fmt[0] == '\0')
        return stet__ctx_fail(c, STET_EINVAL, 0, "a note without text", NULL, 0);
    (void)snprintf(name, sizeof name, "%.*s", (int)note_cut(fmt, strlen(fmt), STET__NAME_MAX), fmt);
    if ((err = stet__ctx_ask(c, STET__FACT_NOTE, name, 0, &cmd, &occurrence)) != STET_OK || cmd != NULL)
        return err;
    va_start(args, fmt);
    len = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (len < 0)
        return stet__ctx_fail(c, STET_EINVAL, 0, "a note that cannot be printed", NULL, 0);
    fact.kind = STET__FACT_NOTE;
    fact.name = stet_text(name);
    fact.occurrence = (int64_t)occurrence;
    fact.text = (stet_bytes){ text, note_cut(text, strlen(text), STET_NOTE_MAX) };
    return stet__ctx_append(c, &fact, NULL);
}

/* ---- switch ------------------------------------------------------------------------------------- */

static int
switch_check(stet_ctx *c, const char *name, const stet_branch *branches, size_t *n)
{
    int err = stet__name_check("switch", name);

    for (*n = 0; err == STET_OK && branches != NULL && branches[*n].id != NULL; ++*n) {
        err = stet__name_check("branch", branches[*n].id);
        for (size_t i = 0; err == STET_OK && i < *n; i++) {
            if (strcmp(branches[i].id, branches[*n].id) == 0)
                err = stet__fail(STET_EINVAL, "switch %s: two branches are called %s", name, branches[i].id);
            else if (branches[i].match == NULL)
                err = stet__fail(STET_EINVAL, "switch %s: branch %s has no matcher, which makes it the default: put it last",
                                 name, branches[i].id);
        }
        if (err == STET_OK && *n == STET_BRANCHES_MAX)
            err = stet__fail(STET_EINVAL, "switch %s: more than %d branches", name, STET_BRANCHES_MAX);
    }
    if (err == STET_OK && *n == 0)
        err = stet__fail(STET_EINVAL, "switch %s has no branches", name);
    return err == STET_OK ? STET_OK : stet__ctx_fail(c, err, 0, stet_last_error(), NULL, 0);
}

static int
switch_recorded(stet_ctx *c, size_t *chosen, const stet__cmd *cmd, const stet_branch *branches, size_t n)
{
    stet__cmd recorded = *cmd;

    if (cmd->code != 0)
        return stet__ctx_outcome(c, NULL, cmd); /* told to stop here */
    for (*chosen = 0; *chosen < n; ++*chosen)
        if (strlen(branches[*chosen].id) == cmd->value.len &&
            memcmp(branches[*chosen].id, cmd->value.data, cmd->value.len) == 0)
            return STET_OK;
    if ((recorded.name = stet__arena_printf(&c->arena, "%s: branch %.*s", cmd->name, (int)cmd->value.len,
                                            cmd->value.data != NULL ? (const char *)cmd->value.data : "")) == NULL)
        return stet__ctx_latch(c, stet__fail(STET_ENOMEM, "out of memory"));
    return stet__ctx_stuck(c, &recorded, STET__FACT_SWITCH, cmd->name, cmd->occurrence);
}

int
stet_switch(stet_ctx *c, size_t *chosen, const char *name, const stet_branch *branches, void *arg)
{
    stet__fact fact = { 0 };
    stet__cmd *cmd;
    uint64_t   occurrence;
    size_t     n, at;
    int        err, fits = 0;

    if ((err = stet__ctx_enter(c, "stet_switch")) != STET_OK || (err = switch_check(c, name, branches, &n)) != STET_OK)
        return err;
    c->branches = branches;
    if ((err = stet__ctx_ask(c, STET__FACT_SWITCH, name, 0, &cmd, &occurrence)) != STET_OK)
        return err;
    if (cmd != NULL)
        return switch_recorded(c, chosen, cmd, branches, n);
    if ((err = stet__ctx_catch_up(c)) != STET_OK ||
        (err = stet__ctx_stop(c, STET__FACT_SWITCH, name, occurrence)) != STET_OK)
        return err;
    for (at = 0; at < n && fits == 0; at++)
        fits = branches[at].match == NULL ? 1 : branches[at].match(arg);
    if (fits < 0) {
        (void)stet__fail(fits, "switch %s: the matcher of branch %s failed: %s", name, branches[at - 1].id,
                         stet_code_text(fits));
        return stet__ctx_fail(c, fits, 0, stet_last_error(), NULL, 0);
    }
    if (fits == 0) {
        (void)stet__fail(STET_ENOBRANCH, "switch %s: none of its %zu branches fits, and there is no default", name, n);
        return stet__ctx_fail(c, STET_ENOBRANCH, 0, stet_last_error(), NULL, 0);
    }
    *chosen = at - 1;
    fact.kind = STET__FACT_SWITCH;
    fact.name = stet_text(name);
    fact.occurrence = (int64_t)occurrence;
    fact.number = (int64_t)*chosen;
    fact.value = stet_text(branches[*chosen].id);
    fact.text = fact.value; /* for people; values are shown on demand */
    return stet__ctx_append(c, &fact, NULL);
}
