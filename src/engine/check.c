/* The deploy gate, and one run by itself: what is recorded in a store, replayed with the handlers
 * that are registered here.
 *
 * The parent reads open runs in pages and packs them as bundles; a child replays a pack (errand.c).
 * So the child needs no store, and a handler cannot reach one through us.
 */
#include <stdio.h>
#include <string.h>

#include "engine/offline.h"

#define CHECK_PAGE       512u
#define CHECK_PACK_BYTES ((size_t)16 << 20)
#define CHECK_TIME_MS    5000
#define CHECK_NEW_MAX    10000

/* ---- one run --------------------------------------------------------------------------------- */

int
stet_run_export(stet_engine *e, stet_bytes *bundle, const stet_run_id *run)
{
    stet__arena  arena;
    stet_run_row row;
    stet__fact   extra;
    stet__buf    b;
    stet_id      id;
    int          err;

    *bundle = (stet_bytes){ NULL, 0 };
    if ((err = stet__alive(e, "stet_run_export")) != STET_OK ||
        (err = stet__id_parse(&id, STET__ID_RUN, run != NULL ? run->text : NULL)) != STET_OK)
        return err;
    stet__arena_init(&arena, &e->p->alloc);
    stet__buf_init(&b, &stet__platform_real()->alloc); /* stet_free() is of that one */
    if ((err = stet__load_row(e, id, &arena, &row, &extra)) == STET_OK)
        err = stet__bundle_load(e, &b, &row);
    stet__arena_free(&arena);
    if (err != STET_OK) {
        stet__buf_free(&b);
        return err;
    }
    *bundle = stet__buf_bytes(&b);
    return STET_OK;
}

static void
check_text(char *out, size_t size, stet_bytes from)
{
    (void)snprintf(out, size, "%.*s", (int)(from.len < size ? from.len : size),
                   from.len > 0 ? (const char *)from.data : "");
}

int
stet_bundle_read(stet_bundle_info *info, stet_bytes bundle)
{
    stet__alloc *alloc = &stet__platform_real()->alloc;
    stet__arena  arena;
    stet__tape   tape;
    stet__fact   started;
    char         build[sizeof info->build];
    int          err;

    memset(info, 0, sizeof *info);
    stet__arena_init(&arena, alloc);
    if ((err = stet__bundle_decode(&tape, &arena, bundle)) == STET_OK) {
        stet_bytes first = tape.journal[0].facts;

        stet__id_text(info->run.text, STET__ID_RUN, tape.run);
        info->status = tape.status;
        info->revision = tape.revision;
        info->inbox = tape.n_inbox;
        info->exported_ms = tape.exported_ms;
        check_text(info->version, sizeof info->version, tape.version);
        check_text(info->build, sizeof info->build, tape.build);
        stet__build_id(build, sizeof build);
        info->is_this_build = build[0] != '\0' && strcmp(build, info->build) == 0;
        if ((err = stet__fact_decode(&started, &first)) == STET_OK)
            check_text(info->handler, sizeof info->handler, started.name);
        else
            err = stet__fail(STET_ECORRUPT, "the first fact of this bundle cannot be read");
    }
    stet__arena_free(&arena);
    return err;
}

int
stet_replay(stet_engine *e, stet_bytes bundle, stet_operation_fn operation, stet_replay_fn report,
            void *arg)
{
    stet__offline o;
    stet__arena   arena;
    stet__tape    tape;
    int           err;

    if ((err = stet__alive(e, "stet_replay")) != STET_OK ||
        (err = stet__offline_open(&o, e)) != STET_OK)
        return err;
    o.fn = operation;
    o.arg = arg;
    o.new_max = CHECK_NEW_MAX;
    stet__arena_init(&arena, &e->p->alloc);
    if ((err = stet__bundle_decode(&tape, &arena, bundle)) == STET_OK &&
        (err = stet__offline_run(&o, &tape)) == STET_OK && report != NULL)
        err = report(arg, &o.report);
    stet__arena_free(&arena);
    stet__offline_close(&o);
    return err;
}

/* ---- all runs -------------------------------------------------------------------------------- */

typedef struct check_piece {
    size_t  at, len; /* of its bundle in the pack */
    stet_id run;
    char    handler[2 * STET__NAME_MAX + 2];
    stet_status status;
} check_piece;

typedef struct check {
    stet__errand        x; /* first */
    stet_engine        *e;
    stet_check_summary *summary;
    stet_replay_fn      fn;
    void               *arg;
    uint64_t            new_max;
    stet_run_row        rows[CHECK_PAGE]; /* texts are not kept */
    char                handlers[CHECK_PAGE][2 * STET__NAME_MAX + 2];
    size_t              n_rows;
    stet__buf           pack;
    check_piece         pieces[CHECK_PAGE];
    /* In the child. */
    stet__offline       offline;
    stet__arena         arena;
} check;

static int
check_tell(check *c, const stet_replay_report *r)
{
    c->summary->checked++;
    c->summary->stuck += !r->is_fine;
    c->summary->elsewhere += r->is_fine && r->end == STET_REPLAY_NO_HANDLER;
    return (r->is_fine && r->end != STET_REPLAY_NO_HANDLER) || c->fn == NULL ? STET_OK
                                                                             : c->fn(c->arg, r);
}

static bool
check_begin(stet__errand *x)
{
    check *c = (check *)x;

    stet__arena_init(&c->arena, &c->e->p->alloc);
    if (stet__offline_open(&c->offline, c->e) != STET_OK)
        return false;
    c->offline.place = x->shared;
    c->offline.new_max = c->new_max;
    return true;
}

static bool
check_perform(stet__errand *x, size_t i, stet__buf *out)
{
    check     *c = (check *)x;
    stet_bytes bundle = { c->pack.data + c->pieces[i].at, c->pieces[i].len };
    stet__tape tape;

    memset(c->offline.place, 0, sizeof *c->offline.place);
    stet__arena_reuse(&c->arena, 65536);
    if (stet__bundle_decode(&tape, &c->arena, bundle) != STET_OK ||
        stet__offline_run(&c->offline, &tape) != STET_OK)
        return false;
    /* That it is fine is all the parent needs to know of most. */
    if (c->offline.report.is_fine && c->offline.report.end != STET_REPLAY_NO_HANDLER)
        return true;
    stet__report_encode(out, &c->offline.report);
    return !out->failed;
}

static int
check_done(stet__errand *x, size_t i, stet_bytes out)
{
    check             *c = (check *)x;
    stet_replay_report r = { .is_fine = true, .end = STET_REPLAY_RECORD };
    stet__arena        arena;
    int                err = STET_OK;

    (void)i;
    stet__arena_init(&arena, &c->e->p->alloc);
    if (out.len > 0)
        err = stet__report_decode(&r, &arena, &out);
    if (err == STET_OK)
        err = check_tell(c, &r);
    stet__arena_free(&arena);
    return err;
}

static int
check_lost(stet__errand *x, size_t i, bool is_late, const char *text)
{
    check             *c = (check *)x;
    const check_piece *p = &c->pieces[i];
    stet_replay_report r = { .handler = p->handler, .status = p->status };
    char               run[STET_ID_TEXT_MAX], line[512];

    stet__id_text(run, STET__ID_RUN, p->run);
    r.run = run;
    stet__offline_lost(&r, x->shared, is_late, x->time_ms, text, line);
    return check_tell(c, &r);
}

static int
check_on_row(void *arg, const stet_run_row *row)
{
    check *c = arg;

    c->rows[c->n_rows] = *row;
    (void)snprintf(c->handlers[c->n_rows], sizeof c->handlers[0], "%s",
                   row->handler != NULL ? row->handler : "");
    c->n_rows++;
    return STET_OK;
}

/* A run of a service that is not ours is told from its row. */
static int
check_elsewhere(check *c, const stet_run_row *row, const char *handler)
{
    stet_replay_report r = { .handler = handler,
                             .status = (stet_status)row->status,
                             .is_fine = true };
    char               run[STET_ID_TEXT_MAX], text[2 * STET__NAME_MAX + 64];

    stet__id_text(run, STET__ID_RUN, row->id);
    (void)snprintf(text, sizeof text, "this program has no service of %s", handler);
    r.run = run;
    r.end = STET_REPLAY_NO_HANDLER;
    r.text = text;
    return check_tell(c, &r);
}

/* Pack runs from `from` on, until the pack is full. */
static int
check_pack(check *c, size_t *from)
{
    int err = STET_OK;

    c->pack.len = 0;
    c->x.n = 0;
    for (; err == STET_OK && *from < c->n_rows && c->pack.len < CHECK_PACK_BYTES; (*from)++) {
        const stet_run_row *row = &c->rows[*from];
        check_piece        *p = &c->pieces[c->x.n];

        if (stet__offline_is_elsewhere(c->e, c->handlers[*from])) {
            err = check_elsewhere(c, row, c->handlers[*from]);
            continue;
        }
        p->at = c->pack.len;
        p->run = row->id;
        p->status = (stet_status)row->status;
        memcpy(p->handler, c->handlers[*from], sizeof p->handler);
        err = stet__bundle_load(c->e, &c->pack, row);
        if (err == STET_ENOTFOUND) {
            c->pack.len = p->at;
            err = STET_OK;
            continue;
        }
        p->len = c->pack.len - p->at;
        c->x.n++;
    }
    return err;
}

static int
check_page(check *c)
{
    int err = STET_OK;

    for (size_t from = 0; err == STET_OK && from < c->n_rows;)
        if ((err = check_pack(c, &from)) == STET_OK)
            err = stet__errand_run(&c->x);
    return err;
}

static int
check_all(check *c, const char *handler)
{
    stet_run_query query = { .oldest_first = true, .limit = CHECK_PAGE };
    char           service[2 * STET__NAME_MAX + 4];
    int            err;

    if (handler != NULL) { /* a trailing '.' means the service */
        (void)snprintf(service, sizeof service, "%s%s", handler,
                       strchr(handler, '.') == NULL ? "." : "");
        query.handler = service;
    }
    for (uint32_t status = STET_STATUS_PENDING; status <= STET_STATUS_EXPIRED; status++)
        if (!stet_status_is_terminal((stet_status)status))
            query.status_mask |= 1ull << status;
    do {
        c->n_rows = 0;
        if ((err = c->e->store->ops->runs(c->e->store, &query, check_on_row, c)) != STET_OK)
            return err;
        if (c->n_rows > 0)
            query.before = c->rows[c->n_rows - 1].id;
        err = check_page(c);
    } while (err == STET_OK && c->n_rows == CHECK_PAGE);
    return err;
}

#define CHECK_NAMES_MAX 12 /* in an error */

/* Nothing was found under this name. If this program does not know it either, it is a slip, and
 * "nothing is wrong" would be no answer to it. */
static int
check_known(stet_engine *e, const char *name)
{
    size_t     len = strlen(name);
    bool       is_service = strchr(name, '.') == NULL || (len > 0 && name[len - 1] == '.');
    stet__near near;
    stet__buf  list;
    int        err;

    if (len > 0 && name[len - 1] == '.')
        len--;
    stet__near_begin(&near, name, len);
    for (stet__service *s = e->services; is_service && s != NULL; s = s->next) {
        if (strlen(s->name) == len && memcmp(s->name, name, len) == 0)
            return STET_OK;
        stet__near_offer(&near, s->name);
    }
    stet__buf_init(&list, &e->p->alloc);
    for (size_t i = 0; i < e->n_handlers; i++) {
        if (!is_service && strcmp(e->handlers[i].name, name) == 0) {
            stet__buf_free(&list);
            return STET_OK;
        }
        if (!is_service)
            stet__near_offer(&near, e->handlers[i].name);
        if (i <= CHECK_NAMES_MAX)
            stet__buf_printf(&list, "%s%s", i > 0 ? ", " : "",
                             i < CHECK_NAMES_MAX ? e->handlers[i].name : "…");
    }
    err = list.failed ? stet__fail(STET_ENOMEM, "out of memory")
                      : stet__fail(STET_ENOHANDLER,
                                   "this program has no %s %.*s, and the store no open run of it; "
                                   "%s%s%sit has %s",
                                   is_service ? "service" : "handler", (int)len, name,
                                   near.name != NULL ? "did you mean " : "",
                                   near.name != NULL ? near.name : "",
                                   near.name != NULL ? "? " : "", stet__buf_cstr(&list));
    stet__buf_free(&list);
    return err;
}

int
stet_check(stet_engine *e, stet_check_summary *summary, const stet_check_options *options,
           stet_replay_fn fn, void *arg)
{
    stet_check_summary own;
    check             *c;
    int                err;

    summary = summary != NULL ? summary : &own;
    memset(summary, 0, sizeof *summary);
    if ((err = stet__alive(e, "stet_check")) != STET_OK)
        return err;
    if (options != NULL &&
        (options->size != sizeof *options || options->time_ms < 0 || options->operations_max < 0))
        return stet__fail(STET_EINVAL,
                          "stet_check_options: use STET_CHECK(…), and no limit below 0");
    if ((c = stet__get0(&e->p->alloc, sizeof *c)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory");
    c->e = e;
    c->summary = summary;
    c->fn = fn;
    c->arg = arg;
    c->new_max = options != NULL && options->operations_max > 0 ? (uint64_t)options->operations_max
                                                                : CHECK_NEW_MAX;
    c->x = (stet__errand){ .p = e->p,
                           .shared_bytes = sizeof(stet__offline_place),
                           .begin = check_begin,
                           .perform = check_perform,
                           .done = check_done,
                           .lost = check_lost };
    c->x.time_ms = options != NULL && options->time_ms > 0 ? options->time_ms : CHECK_TIME_MS;
    stet__buf_init(&c->pack, &e->p->alloc);
    err = check_all(c, options != NULL ? options->handler : NULL);
    if (err == STET_OK && options != NULL && options->handler != NULL && summary->checked == 0)
        err = check_known(e, options->handler);
    stet__buf_free(&c->pack);
    stet__free(&e->p->alloc, c);
    return err;
}
