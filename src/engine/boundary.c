/* Manual boundaries from outside: who waits for a person, and what was decided.
 *
 * The mark of a run is put with the record of its wait. A decision replaces the mark, on condition that it is still
 * the one that was seen, and tells the run, in one unit: of two people one decides, and the other is told who did.
 */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

#define BOUNDARY_TRIES_MAX 100
#define BOUNDARY_PAGE 256u

/* ---- marks ------------------------------------------------------------------------------------------ */

void
stet__boundary_mark(const stet__fact *fact, uint64_t completion, stet_bytes name, uint32_t flags, stet__fact *mark)
{
    memset(mark, 0, sizeof *mark);
    mark->kind = fact->kind;
    mark->time_ms = fact->time_ms;
    mark->name = name;
    mark->completion = (int64_t)completion;
    mark->flags = flags;
    if (fact->kind == STET__FACT_BOUNDARY)
        mark->value = fact->value;
    else {
        mark->code = fact->code;
        mark->who = fact->who;
        mark->text = fact->text;
    }
}

static bool
boundary_value(stet__work *w, stet_id run, const stet__fact *mark)
{
    stet_op *op = stet__work_op(w, STET_OP_VALUE_PUT, run);

    if (op == NULL)
        return false;
    op->space = STET__SPACE_BOUNDARY;
    op->number = (uint64_t)mark->completion;
    return stet__work_bytes(w, &op->key, stet__id_bytes(&run)) && stet__work_fact(w, &op->data, mark);
}

bool
stet__boundary_put(stet__work *w, stet_id run, const stet__fact *boundary)
{
    stet__fact mark;

    stet__boundary_mark(boundary, boundary->revision, boundary->name, (uint32_t)boundary->flags, &mark);
    return boundary_value(w, run, &mark);
}

bool
stet__boundary_gone(stet__work *w, stet_id run)
{
    stet_op *op = stet__work_op(w, STET_OP_VALUE_DEL, run);

    if (op == NULL)
        return false;
    op->space = STET__SPACE_BOUNDARY;
    return stet__work_bytes(w, &op->key, stet__id_bytes(&run));
}

/* ---- deciding ---------------------------------------------------------------------------------------- */

static const char *
boundary_verb(uint32_t flags, int code)
{
    return !(flags & STET__FACT_APPROVAL) ? "resumed" : code == 0 ? "approved" : "rejected";
}

#define BOUNDARY_SAID_MAX 512 /* a longer note is cut */

/* "manager was approved by the boss at …: fine with me" */
static const char *
boundary_said(char room[BOUNDARY_SAID_MAX], const stet__fact *mark)
{
    char when[STET__UTC_MAX];

    (void)snprintf(room, BOUNDARY_SAID_MAX, "%.*s was %s by %.*s at %s%s%.*s", (int)mark->name.len,
                   (const char *)mark->name.data, boundary_verb((uint32_t)mark->flags, (int)mark->code),
                   mark->who.data != NULL ? (int)mark->who.len : 8,
                   mark->who.data != NULL ? (const char *)mark->who.data : "somebody",
                   stet__utc_text(when, mark->time_ms), mark->text.data != NULL ? ": " : "", (int)mark->text.len,
                   mark->text.data != NULL ? (const char *)mark->text.data : "");
    return room;
}

/* What is to be decided, and how. */
typedef struct decision {
    const char *name; /* of the boundary; NULL: whatever the run waits for */
    uint32_t    asked;
    int         code;
    const char *by, *note;
} decision;

/* The last decision of this kind, and of this name if one is given, that the facts of a run tell; its mark is gone. Room
 * stays empty if there is none. */
static int
boundary_decided(stet_engine *e, stet_id run, const decision *d, char room[BOUNDARY_SAID_MAX])
{
    const stet__cmd *last = NULL;
    stet__loaded     l;
    int              err = stet__load(e, &l, run, true);

    room[0] = '\0';
    if (err != STET_OK)
        return err == STET_ECORRUPT || err == STET_ENOTFOUND ? STET_OK : err;
    for (const stet__cmd *cmd = l.journal.waiting; cmd != NULL; cmd = cmd->next)
        if (cmd->kind == STET__FACT_BOUNDARY && cmd->is_settled && cmd->number != 0 &&
            cmd->is_approval == (d->asked != 0) && (d->name == NULL || strcmp(cmd->name, d->name) == 0) && (last == NULL || cmd->number > last->number))
            last = cmd;
    if (last != NULL) {
        stet__fact mark = { .kind = STET__FACT_DECIDED,
                            .name = stet_text(last->name),
                            .flags = d->asked,
                            .code = last->code,
                            .time_ms = last->number };

        if (last->origin != NULL)
            mark.who = stet_text(last->origin);
        if (last->text != NULL)
            mark.text = stet_text(last->text);
        (void)boundary_said(room, &mark);
    }
    stet__loaded_free(&l);
    return STET_OK;
}

/* Nothing to decide: what is it then? */
static int
boundary_none(stet_engine *e, stet_id run, const decision *d)
{
    stet__arena  arena;
    stet_run_row row;
    stet__fact   extra;
    char         text[STET_ID_TEXT_MAX], said[BOUNDARY_SAID_MAX] = "";
    int          err;

    stet__id_text(text, STET__ID_RUN, run);
    stet__arena_init(&arena, &e->p->alloc);
    if ((err = stet__load_row(e, run, &arena, &row, &extra)) == STET_OK && (row.is_terminal || d->name != NULL))
        err = boundary_decided(e, run, d, said);
    if (err == STET_OK && !row.is_terminal && said[0] != '\0')
        err = stet__fail(STET_ESETTLED, "%s: %s", text, said);
    else if (err == STET_OK)
        err = row.is_terminal ? stet__fail(STET_EENDED, "%s has ended (%s): %s", text, stet_status_name((stet_status)row.status),
                                           said[0] != '\0' ? said : "nothing is left to decide")
                              : stet__fail(STET_ESTATE, "%s waits for no decision, it is %s%s%s; `stet waits` lists those that do",
                                           text, stet_status_name((stet_status)row.status), row.reason != NULL ? ": " : "",
                                           row.reason != NULL ? row.reason : "");
    stet__arena_free(&arena);
    return err;
}

static int
boundary_refuse(const char *run, const stet__fact *mark, uint32_t asked)
{
    char said[BOUNDARY_SAID_MAX];

    if (mark->kind == STET__FACT_DECIDED)
        return stet__fail(STET_ESETTLED, "%s: %s", run, boundary_said(said, mark));
    if ((mark->flags & STET__FACT_APPROVAL) == asked || STET__MUTANT(decision_kind))
        return STET_OK;
    return asked != 0 ? stet__fail(STET_ESTATE, "%s: %.*s is a pause, not an approval: `stet resume %s`", run, (int)mark->name.len,
                                   (const char *)mark->name.data, run)
                      : stet__fail(STET_ESTATE, "%s: %.*s is an approval: `stet approve %s` or `stet reject %s`", run,
                                   (int)mark->name.len, (const char *)mark->name.data, run, run);
}

/* It waits for another one: was this one decided? */
static int
boundary_other(stet_engine *e, stet_id run, const char *text, const decision *d, const stet__fact *mark)
{
    char        said[BOUNDARY_SAID_MAX];
    int         len = (int)mark->name.len, err = boundary_decided(e, run, d, said);
    const char *open = mark->name.data, *quote = memchr(open, ' ', mark->name.len) != NULL ? "'" : "";

    if (err != STET_OK)
        return err;
    if (said[0] != '\0')
        return stet__fail(STET_ESETTLED, "%s: %s", text, said);
    if ((mark->flags & STET__FACT_APPROVAL) == 0)
        return stet__fail(STET_ESTATE, "%s does not wait for %.64s, but for the pause %.*s: `stet resume %s`", text, d->name,
                          len, open, text);
    return stet__fail(STET_ESTATE,
                      "%s does not wait for %.64s, but for the approval %.*s: `stet approve %s --name %s%.*s%s` or `stet reject "
                      "%s --name %s%.*s%s`",
                      text, d->name, len, open, text, quote, len, open, quote, text, quote, len, open, quote);
}

/* The mark is the one that was read. Its version tells whether somebody has decided; but a run that was rewound may
 * have come to another boundary meanwhile, whose mark counts its versions anew. */
static bool
boundary_conds(stet__work *w, stet_id run, const stet_value *v, const stet__fact *mark)
{
    stet_cond *cond;

    if (STET__MUTANT(decision_unchecked))
        return true;
    if ((cond = stet__work_cond(w, STET_COND_VALUE, run)) == NULL ||
        !stet__work_bytes(w, &cond->key, stet__id_bytes(&run)))
        return false;
    cond->space = STET__SPACE_BOUNDARY;
    cond->number = v->version;
    if (STET__MUTANT(decision_late))
        return true;
    if ((cond = stet__work_cond(w, STET_COND_WRITER, run)) == NULL ||
        !stet__work_bytes(w, &cond->key, stet__id_bytes(&run)))
        return false;
    cond->space = STET__SPACE_BOUNDARY;
    cond->number = (uint64_t)mark->completion;
    return true;
}

static int
boundary_decide_once(stet_engine *e, stet_id run, const char *text, const decision *d)
{
    stet_value  v = { 0 };
    stet__fact  mark, decided = { 0 }, kept;
    stet_bytes  in;
    stet__work *w = NULL;
    stet_op    *op;
    int         err = e->store->ops->value(e->store, STET__SPACE_BOUNDARY, stet__id_bytes(&run), &v);

    if (err == STET_ENOTFOUND)
        return boundary_none(e, run, d);
    if (err != STET_OK)
        return err;
    in = v.data;
    if ((err = stet__fact_decode(&mark, &in)) == STET_OK && d->name != NULL &&
        (strlen(d->name) != mark.name.len || memcmp(d->name, mark.name.data, mark.name.len) != 0))
        err = boundary_other(e, run, text, d, &mark);
    if (err == STET_OK && (err = boundary_refuse(text, &mark, d->asked)) == STET_OK) {
        decided.kind = STET__FACT_DECIDED;
        decided.time_ms = stet__store_now(e);
        decided.name = mark.name;
        decided.completion = mark.completion;
        decided.flags = mark.flags;
        decided.code = d->code;
        if (d->by != NULL)
            decided.who = stet_text(d->by);
        if (d->note != NULL)
            decided.text = stet_text(d->note);
        stet__boundary_mark(&decided, (uint64_t)mark.completion, mark.name, (uint32_t)mark.flags, &kept);
        err = (w = stet__work_new(e, NULL, NULL)) != NULL && boundary_conds(w, run, &v, &mark) &&
                      boundary_value(w, run, &kept) && (op = stet__work_op(w, STET_OP_INBOX, run)) != NULL &&
                      stet__work_fact(w, &op->data, &decided) && stet__work_wake(w, run, STET_STATUS_PENDING, 0)
                  ? STET_OK
                  : stet__fail(STET_ENOMEM, "out of memory");
    }
    stet__free(e->store->alloc, (void *)(uintptr_t)v.data.data);
    if (err != STET_OK) {
        stet__work_free(w);
        return err;
    }
    return stet__commit_sync(e, w, NULL);
}

static int
boundary_decide(stet_engine *e, const char *call, const stet_run_id *run, decision d)
{
    stet_id id;
    int     err;

    if ((err = stet__alive(e, call)) != STET_OK || (err = stet__not_in_handler(e, call, "stet_ctx_signal")) != STET_OK ||
        (err = stet__id_parse(&id, STET__ID_RUN, run != NULL ? run->text : NULL)) != STET_OK ||
        (d.name != NULL && (err = stet__name_check("boundary", d.name)) != STET_OK))
        return err;
    if ((d.by != NULL && strlen(d.by) > 256) || (d.note != NULL && strlen(d.note) > 4096))
        return stet__fail(STET_ETOOBIG, "who has at most 256 bytes, the note at most 4096");
    err = STET_ECONFLICT;
    for (int i = 0; i < BOUNDARY_TRIES_MAX && err == STET_ECONFLICT; i++)
        err = boundary_decide_once(e, id, run->text, &d);
    return err == STET_ECONFLICT ? stet__fail(STET_EBUSY, "%s changed all the time; nothing was written, try again", run->text)
                                 : err;
}

int
stet_run_approve(stet_engine *e, const stet_run_id *run, const char *by, const char *note)
{
    return boundary_decide(e, "stet_run_approve", run, (decision){ .asked = STET__FACT_APPROVAL, .by = by, .note = note });
}

int
stet_run_reject(stet_engine *e, const stet_run_id *run, const char *by, const char *note)
{
    return boundary_decide(e, "stet_run_reject", run,
                           (decision){ .asked = STET__FACT_APPROVAL, .code = STET_EREJECTED, .by = by, .note = note });
}

int
stet_run_decide(stet_engine *e, const stet_run_id *run, const char *name, bool is_approved, const char *by, const char *note)
{
    return boundary_decide(e, "stet_run_decide", run,
                           (decision){ .name = name != NULL ? name : "",
                                       .asked = STET__FACT_APPROVAL,
                                       .code = is_approved ? 0 : STET_EREJECTED,
                                       .by = by,
                                       .note = note });
}

int
stet_run_resume(stet_engine *e, const stet_run_id *run, const char *by, const char *note)
{
    int err = stet__operate_resume(e, run, by, note);

    return err != STET_ESTATE && err != STET_EENDED
               ? err
               : boundary_decide(e, "stet_run_resume", run, (decision){ .by = by, .note = note });
}

/* ---- who waits ---------------------------------------------------------------------------------------- */

typedef struct boundary_page {
    stet__arena arena;
    size_t      rows, n;
    stet_bytes  after;
    struct {
        stet_id    run;
        stet__fact mark;
    } found[BOUNDARY_PAGE];
} boundary_page;

static int
boundary_on_value(void *arg, stet_bytes key, const stet_value *value)
{
    boundary_page *page = arg;
    stet_bytes     in = { stet__arena_copy(&page->arena, value->data.data, value->data.len), value->data.len };
    void          *copy = stet__arena_copy(&page->arena, key.data, key.len);
    stet__fact     mark;

    if (in.data == NULL || copy == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    page->rows++;
    page->after = (stet_bytes){ copy, key.len };
    if (stet__fact_decode(&mark, &in) != STET_OK || mark.kind != STET__FACT_BOUNDARY)
        return STET_OK;
    page->found[page->n].run = stet__fact_id(key);
    page->found[page->n++].mark = mark;
    return STET_OK;
}

static int
boundary_tell(const boundary_page *page, size_t at, stet_boundary_fn fn, void *arg)
{
    const stet__fact *mark = &page->found[at].mark;
    stet_boundary     info = { .since_ms = mark->time_ms, .metadata = mark->value };
    char              run[STET_ID_TEXT_MAX], name[STET__NAME_MAX + 1];

    stet__id_text(run, STET__ID_RUN, page->found[at].run);
    (void)snprintf(name, sizeof name, "%.*s", (int)mark->name.len, mark->name.data != NULL ? (const char *)mark->name.data : "");
    info.run = run;
    info.name = name;
    info.is_approval = (mark->flags & STET__FACT_APPROVAL) != 0;
    return fn(arg, &info);
}

int
stet_boundary_list(stet_engine *e, stet_boundary_fn fn, void *arg)
{
    boundary_page *page;
    stet_bytes     all = { NULL, 0 };
    stet_id        last;
    int            err;

    if ((err = stet__alive(e, "stet_boundary_list")) != STET_OK)
        return err;
    if ((page = stet__get0(&e->p->alloc, sizeof *page)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    stet__arena_init(&page->arena, &e->p->alloc);
    do {
        stet_bytes after = page->after;

        page->rows = page->n = 0;
        err = e->store->ops->values(e->store, STET__SPACE_BOUNDARY, all, after.data != NULL ? &after : NULL, BOUNDARY_PAGE,
                                    boundary_on_value, page);
        for (size_t i = 0; err == STET_OK && i < page->n; i++)
            err = boundary_tell(page, i, fn, arg);
        last = stet__fact_id(page->after);
        stet__arena_free(&page->arena);
        page->after = stet__id_bytes(&last);
    } while (err == STET_OK && page->rows == BOUNDARY_PAGE);
    stet__arena_free(&page->arena);
    stet__free(&e->p->alloc, page);
    return err;
}
