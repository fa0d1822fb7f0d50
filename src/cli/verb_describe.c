/* describe: the operations a handler comes to, as a picture in text, Mermaid, DOT or JSON.
 *
 * It is one path, the one taken with these results; other results may lead elsewhere, and the
 * picture says so. */
#include "cli/cli.h"

#include <string.h>

typedef enum describe_format {
    DESCRIBE_TEXT,
    DESCRIBE_JSON,
    DESCRIBE_MERMAID,
    DESCRIBE_DOT
} describe_format;

typedef struct describe_op {
    struct describe_op *next;
    stet_operation      op; /* texts in the arena */
} describe_op;

typedef struct describe_picture {
    cli            *c;
    const char     *handler, *input, *results;
    bool            has_progress;
    describe_op    *first, *last;
    size_t          n;
    stet_replay_end end;
    const char     *text, *asked, *where;
    int             code;
} describe_picture;

/* ---- gathering ------------------------------------------------------------------------------ */

static const char *
describe_copy(cli *c, const char *text)
{
    return text != NULL ? stet__arena_str(c->arena, text) : NULL;
}

static int
describe_operation(void *arg, const stet_operation *op)
{
    describe_picture *p = arg;
    describe_op      *o = stet__arena_get0(p->c->arena, sizeof *o);

    o->op = *op;
    o->op.kind = describe_copy(p->c, op->kind);
    o->op.shape = describe_copy(p->c, op->shape);
    o->op.name = describe_copy(p->c, op->name);
    o->op.where = describe_copy(p->c, op->where);
    o->op.text = describe_copy(p->c, op->text);
    o->op.key = describe_copy(p->c, op->key);
    o->op.value.data = op->value.data != NULL
                           ? stet__arena_copy(p->c->arena, op->value.data, op->value.len)
                           : NULL;
    o->op.branches.data = op->branches.data != NULL
                              ? stet__arena_copy(p->c->arena, op->branches.data, op->branches.len)
                              : NULL;
    if (p->last != NULL)
        p->last->next = o;
    else
        p->first = o;
    p->last = o;
    p->n++;
    return STET_OK;
}

static int
describe_report(void *arg, const stet_replay_report *r)
{
    describe_picture *p = arg;

    p->end = r->end;
    p->text = describe_copy(p->c, r->text);
    p->asked = describe_copy(p->c, r->asked);
    p->where = describe_copy(p->c, r->where);
    p->code = r->code;
    return STET_OK;
}

/* ---- what is said of an operation ----------------------------------------------------------- */

/* The next branch behind `at` (NULL: the first), or NULL. */
static const char *
describe_branch(const stet_operation *op, const char *at)
{
    const char *end =
        op->branches.len > 0 ? (const char *)op->branches.data + op->branches.len : NULL;

    at = at == NULL ? op->branches.data : at + strlen(at) + 1;
    return at != NULL && at < end ? at : NULL;
}

static bool
describe_is_chosen(const stet_operation *op, const char *branch)
{
    return op->value.len == strlen(branch) && memcmp(op->value.data, branch, op->value.len) == 0;
}

static bool
describe_is_default(const stet_operation *op, const char *branch)
{
    return op->has_default && describe_branch(op, branch) == NULL;
}

/* "express, of express, freight, other (default)" */
static const char *
describe_branches(cli *c, const stet_operation *op)
{
    const char *text = "", *chosen = "none";

    for (const char *b = describe_branch(op, NULL); b != NULL; b = describe_branch(op, b)) {
        text = stet__cli_printf(c, "%s%s%s%s", text, *text != '\0' ? ", " : "", b,
                                describe_is_default(op, b) ? " (default)" : "");
        if (describe_is_chosen(op, b))
            chosen = b;
    }
    return stet__cli_printf(c, "goes %s, of %s", chosen, text);
}

static const char *
describe_title(cli *c, const stet_operation *op)
{
    const char *name = stet__cli_clean(c, stet_text(op->name));

    /* "now now" would say it twice. */
    if (strcmp(op->kind, op->name) == 0)
        return op->kind;
    return op->occurrence > 1 ? stet__cli_printf(c, "%s %s#%llu", op->kind, name,
                                                 (unsigned long long)op->occurrence)
                              : stet__cli_printf(c, "%s %s", op->kind, name);
}

static const char *
describe_add(cli *c, const char *text, const char *more)
{
    return *text != '\0' ? stet__cli_printf(c, "%s, %s", text, more) : more;
}

static const char *
describe_details(cli *c, const stet_operation *op)
{
    const char *text = "";
    bool        is_sleep = strcmp(op->kind, "sleep") == 0;
    char        span[64];

    if (op->duration_ms > 0)
        text = stet__cli_printf(c, is_sleep ? "%s" : "after %s",
                                stet_duration_text(span, sizeof span, op->duration_ms));
    if (op->attempts > 0)
        text = describe_add(c, text, stet__cli_printf(c, "up to %d attempts", op->attempts));
    if (op->timeout_ms > 0)
        text =
            describe_add(c, text,
                         stet__cli_printf(c, "at most %s",
                                          stet_duration_text(span, sizeof span, op->timeout_ms)));
    if (op->is_transaction)
        text = describe_add(c, text, "in a transaction");
    if (op->has_undo)
        text = describe_add(c, text, "with an undo");
    if (op->branches.len > 0)
        text = describe_add(c, text, describe_branches(c, op));
    if (strcmp(op->kind, "note") == 0 && op->text != NULL)
        text = describe_add(c, text, stet__cli_clean(c, stet_text(op->text)));
    if (op->key != NULL)
        text = describe_add(c, text,
                            stet__cli_printf(c, "key %s", stet__cli_clean(c, stet_text(op->key))));
    if (op->is_parallel)
        text = describe_add(c, text, "awaited later");
    if (op->code != 0)
        text = describe_add(c, text,
                            stet__cli_printf(c, "fails: %s",
                                             stet_code_name(op->code) ? stet_code_name(op->code)
                                                                      : "a code of its own"));
    return text;
}

static const char *
describe_progress(const describe_picture *p, const stet_operation *op)
{
    if (!p->has_progress)
        return "";
    return op->is_settled ? "done" : op->is_recorded ? "waiting" : "ahead";
}

static const char *
describe_label(const describe_picture *p)
{
    return stet__cli_printf(p->c, "one path, with %s", p->results);
}

/* ---- text ----------------------------------------------------------------------------------- */

static void
describe_text_line(const describe_picture *p, const stet_operation *op, size_t width)
{
    cli        *c = p->c;
    const char *title = describe_title(c, op), *details = describe_details(c, op);
    const char *mark = !p->has_progress  ? ""
                       : op->is_settled  ? "✓ "
                       : op->is_recorded ? "… "
                                         : "  ";
    const char *bough = op->is_parallel ? "├┄ " : "├─ ";

    printf("%s%s", mark, bough);
    stet__cli_paint(c, op->is_settled ? CLI_GOOD : op->is_recorded ? CLI_CARE : CLI_PLAIN, title);
    printf("%*s", (int)(width - stet__cli_columns(title) + 2), "");
    if (*details != '\0')
        printf("%s  ", details);
    if (op->where != NULL)
        stet__cli_paint(c, CLI_DIM, op->where);
    putchar('\n');
}

static void
describe_as_text(const describe_picture *p)
{
    const char *pad = p->has_progress ? "  " : "";
    size_t      width = 0;

    for (const describe_op *o = p->first; o != NULL; o = o->next) {
        size_t columns = stet__cli_columns(describe_title(p->c, &o->op));

        width = columns > width ? columns : width;
    }
    stet__cli_paint(p->c, CLI_BOLD, p->handler);
    printf("  (%s)\n%s┌─ start%s%s\n", describe_label(p), pad, *p->input != '\0' ? "  " : "",
           p->input);
    for (const describe_op *o = p->first; o != NULL; o = o->next)
        describe_text_line(p, &o->op, width);
    printf("%s└─ ", pad);
    stet__cli_paint(p->c, p->end == STET_REPLAY_RETURNED && p->code == 0 ? CLI_PLAIN : CLI_BAD,
                    p->text);
    putchar('\n');
    if (p->code != 0 && !p->has_progress)
        printf("\nInput and results may be what led it there: give --input JSON or --from RUN, or "
               "register the\n"
               "handler with a default_input and samples.\n");
}

/* ---- Mermaid -------------------------------------------------------------------------------- */

/* In a quoted label neither quotes nor tags may stand as they are. */
static const char *
describe_escaped(cli *c, const char *text, const char *quote)
{
    stet__buf   b;
    const char *copy;

    stet__buf_init(&b, c->alloc);
    for (; *text != '\0'; text++)
        if (*text == '"')
            stet__buf_str(&b, quote);
        else if (*text == '\\')
            stet__buf_str(&b, *quote == '\\' ? "\\\\" : "\\");
        else
            stet__buf_byte(&b, (uint8_t)*text);
    copy = stet__arena_str(c->arena, stet__buf_cstr(&b));
    stet__buf_free(&b);
    return copy;
}

static void
describe_mermaid_node(const describe_picture *p, size_t i, const stet_operation *op)
{
    static const struct {
        const char *shape, *open, *close;
    } shapes[] = { { "work", "[", "]" },    { "wait", "([", "])" }, { "run", "[[", "]]" },
                   { "state", "[(", ")]" }, { "choice", "{", "}" }, { "mark", "{{", "}}" } };
    const char *details = describe_details(p->c, op);
    size_t      at = 0;

    while (at < 5 && strcmp(shapes[at].shape, op->shape) != 0)
        at++;
    if (op->branches.len > 0)
        details = "";
    printf("    n%zu%s\"%s%s%s\"%s\n", i, shapes[at].open,
           describe_escaped(p->c, describe_title(p->c, op), "#quot;"),
           *details != '\0' ? "<br/>" : "", describe_escaped(p->c, details, "#quot;"),
           shapes[at].close);
}

/* Behind a switch the edges say which way they are; those not taken end at once. */
static void
describe_mermaid_edge(const describe_picture *p, size_t i, const stet_operation *before,
                      const stet_operation *op)
{
    if (before == NULL || before->branches.len == 0) {
        printf("    n%zu %s n%zu\n", i - 1, op != NULL && op->is_parallel ? "-.->" : "-->", i);
        return;
    }
    for (const char *b = describe_branch(before, NULL); b != NULL; b = describe_branch(before, b)) {
        const char *label =
            stet__cli_printf(p->c, "%s%s", b, describe_is_default(before, b) ? " (default)" : "");

        if (describe_is_chosen(before, b))
            printf("    n%zu -->|\"%s\"| n%zu\n", i - 1, label, i);
        else
            printf(
                "    n%zu -.->|\"%s\"| n%zu_%s([\"not on this path\"])\n", i - 1, label, i - 1,
                stet__cli_printf(p->c, "%zu", (size_t)(b - (const char *)before->branches.data)));
    }
}

static void
describe_as_mermaid(const describe_picture *p)
{
    const stet_operation *before = NULL;
    size_t                i = 1;

    printf("%%%% %s: %s\nflowchart TD\n    n0([\"%s\"])\n", p->handler, describe_label(p),
           p->handler);
    for (const describe_op *o = p->first; o != NULL; o = o->next, i++) {
        describe_mermaid_node(p, i, &o->op);
        describe_mermaid_edge(p, i, before, &o->op);
        before = &o->op;
    }
    printf("    n%zu([\"%s\"])\n", i, describe_escaped(p->c, p->text, "#quot;"));
    describe_mermaid_edge(p, i, before, NULL);
    if (!p->has_progress)
        return;
    printf("    classDef done fill:#cfc\n    classDef waiting fill:#ffc\n"
           "    classDef ahead fill:#eee\n");
    i = 1;
    for (const describe_op *o = p->first; o != NULL; o = o->next, i++)
        printf("    class n%zu %s\n", i, describe_progress(p, &o->op));
}

/* ---- DOT ------------------------------------------------------------------------------------ */

static const char *
describe_dot_shape(const stet_operation *op)
{
    if (strcmp(op->shape, "work") == 0)
        return "box";
    if (strcmp(op->shape, "wait") == 0)
        return "ellipse";
    if (strcmp(op->shape, "run") == 0)
        return "component";
    if (strcmp(op->shape, "choice") == 0)
        return "diamond";
    return strcmp(op->shape, "state") == 0 ? "cylinder" : "note";
}

static void
describe_dot_edge(const describe_picture *p, size_t i, const stet_operation *before,
                  const stet_operation *op)
{
    if (before == NULL || before->branches.len == 0) {
        printf("    n%zu -> n%zu%s;\n", i - 1, i,
               op != NULL && op->is_parallel ? " [style=dashed]" : "");
        return;
    }
    for (const char *b = describe_branch(before, NULL); b != NULL; b = describe_branch(before, b)) {
        const char *label =
            stet__cli_printf(p->c, "%s%s", b, describe_is_default(before, b) ? " (default)" : "");
        size_t at = (size_t)(b - (const char *)before->branches.data);

        if (describe_is_chosen(before, b))
            printf("    n%zu -> n%zu [label=\"%s\"];\n", i - 1, i, label);
        else
            printf("    n%zu_%zu [shape=plaintext,label=\"not on this path\"];\n"
                   "    n%zu -> n%zu_%zu [style=dashed,label=\"%s\"];\n",
                   i - 1, at, i - 1, i - 1, at, label);
    }
}

static void
describe_as_dot(const describe_picture *p)
{
    const stet_operation *before = NULL;
    size_t                i = 1;

    printf("digraph \"%s\" {\n    label=\"%s\";\n    n0 [shape=circle,label=\"%s\"];\n", p->handler,
           describe_label(p), p->handler);
    for (const describe_op *o = p->first; o != NULL; o = o->next, i++) {
        const char *details = o->op.branches.len > 0 ? "" : describe_details(p->c, &o->op),
                   *progress = describe_progress(p, &o->op);

        printf("    n%zu [shape=%s,label=\"%s%s%s\"%s];\n", i, describe_dot_shape(&o->op),
               describe_escaped(p->c, describe_title(p->c, &o->op), "\\\""),
               *details != '\0' ? "\\n" : "", describe_escaped(p->c, details, "\\\""),
               strcmp(progress, "done") == 0      ? ",style=filled,fillcolor=palegreen"
               : strcmp(progress, "waiting") == 0 ? ",style=filled,fillcolor=khaki"
                                                  : "");
        describe_dot_edge(p, i, before, &o->op);
        before = &o->op;
    }
    printf("    n%zu [shape=doublecircle,label=\"%s\"];\n", i,
           describe_escaped(p->c, p->text, "\\\""));
    describe_dot_edge(p, i, before, NULL);
    printf("}\n");
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void
describe_as_json(const describe_picture *p)
{
    cli_json j;

    stet__cli_json_begin(&j, p->c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "handler", p->handler);
    stet__cli_json_text(&j, "label", describe_label(p));
    stet__cli_json_text(&j, "input", *p->input != '\0' ? p->input : NULL);
    stet__cli_json_open(&j, "operations", '[');
    for (const describe_op *o = p->first; o != NULL; o = o->next) {
        stet__cli_json_open(&j, NULL, '{');
        stet__cli_json_text(&j, "kind", o->op.kind);
        stet__cli_json_text(&j, "shape", o->op.shape);
        stet__cli_json_text(&j, "name", o->op.name);
        stet__cli_json_int(&j, "occurrence", (int64_t)o->op.occurrence);
        stet__cli_json_text(&j, "where", o->op.where);
        stet__cli_json_int(&j, "duration_ms", o->op.duration_ms);
        stet__cli_json_int(&j, "timeout_ms", o->op.timeout_ms);
        stet__cli_json_int(&j, "attempts", o->op.attempts);
        stet__cli_json_bool(&j, "transaction", o->op.is_transaction);
        stet__cli_json_bool(&j, "undo", o->op.has_undo);
        stet__cli_json_bool(&j, "parallel", o->op.is_parallel);
        stet__cli_json_text(&j, "key", o->op.key);
        stet__cli_json_text(&j, "code", o->op.code ? stet_code_name(o->op.code) : NULL);
        stet__cli_json_text(&j, "text", o->op.text);
        if (o->op.branches.len > 0) {
            stet__cli_json_open(&j, "branches", '[');
            for (const char *b = describe_branch(&o->op, NULL); b; b = describe_branch(&o->op, b))
                stet__cli_json_text(&j, NULL, b);
            stet__cli_json_close(&j, ']');
            stet__cli_json_bool(&j, "default", o->op.has_default);
        }
        stet__cli_json_payload(&j, "value", o->op.value);
        if (p->has_progress)
            stet__cli_json_text(&j, "progress", describe_progress(p, &o->op));
        stet__cli_json_close(&j, '}');
    }
    stet__cli_json_close(&j, ']');
    stet__cli_json_text(&j, "end", stet_replay_end_name(p->end));
    stet__cli_json_text(&j, "text", p->text);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

/* ---- the verb ------------------------------------------------------------------------------- */

typedef struct describe_input {
    describe_picture *p;
    const char       *handler;
} describe_input;

static int
describe_default(void *arg, const stet_handler_info *info)
{
    describe_input *i = arg;

    if (strcmp(info->name, i->handler) == 0 && info->default_input != NULL)
        i->p->input = stet__cli_clean(i->p->c, stet_text(info->default_input));
    return STET_OK;
}

static int
describe_format_of(cli *c, describe_format *format)
{
    static const char *const names[] = { "text", "json", "mermaid", "dot" };
    const char              *given = stet__cli_value(c, "format");

    *format = c->json ? DESCRIBE_JSON : DESCRIBE_TEXT;
    for (size_t i = 0; given != NULL && i < 4; i++)
        if (strcmp(given, names[i]) == 0) {
            *format = (describe_format)i;
            return CLI_OK;
        }
    if (given == NULL)
        return CLI_OK;
    return stet__cli_fail(c, CLI_USAGE, "--format %s: expected text, json, mermaid or dot", given);
}

/* The store is asked only for a run. */
static int
describe_open(cli *c, describe_picture *p, stet_describe_options *o, stet_run_id *run)
{
    const char *from = stet__cli_value(c, "from"), *of = stet__cli_value(c, "run");
    int         exit;

    if (from != NULL && of != NULL)
        return stet__cli_fail(c, CLI_USAGE, "--from and --run exclude each other");
    p->has_progress = o->has_progress = of != NULL;
    p->results = "the handler's samples as results";
    if (from != NULL || of != NULL) {
        if ((exit = stet__cli_run_id(c, of != NULL ? of : from, run)) != CLI_OK)
            return exit;
        o->from = run;
        p->results = stet__cli_printf(c, "results of %s", run->text);
        c->is_readonly = true;
    } else
        c->db = "memory:";
    return stet__cli_open(c);
}

static int
describe_run(cli *c)
{
    describe_picture      p = { .c = c, .handler = stet__cli_arg(c, 0), .input = "" };
    stet_describe_options o = { .size = sizeof o };
    describe_input        with = { &p, p.handler };
    const char           *input = stet__cli_value(c, "input");
    describe_format       format;
    stet_run_id           run;
    int                   exit, err;

    if (c->app->n_services == 0)
        return stet__cli_fail(c, CLI_USAGE,
                              "%s has no handlers: let the program that has it describe it "
                              "(./shop describe orders.checkout)",
                              c->name);
    if ((exit = describe_format_of(c, &format)) != CLI_OK ||
        (input != NULL && (exit = stet__cli_payload(c, input, &o.input)) != CLI_OK) ||
        (exit = stet__cli_duration(c, "time", &o.time_ms)) != CLI_OK ||
        (exit = stet__cli_number(c, "operations", &o.operations_max, 1, 100000)) != CLI_OK ||
        (exit = describe_open(c, &p, &o, &run)) != CLI_OK)
        return exit;
    o.key = stet__cli_value(c, "key");
    if (input != NULL)
        p.input = stet__cli_payload_text(c, o.input);
    else if (o.from == NULL &&
             (err = stet_handler_list(c->engine, describe_default, &with)) != STET_OK)
        return stet__cli_fail_code(c, err);
    if ((err = stet_describe(c->engine, p.handler, &o, describe_operation, describe_report, &p)) !=
        STET_OK)
        return stet__cli_fail_code(c, err);
    switch (format) {
    case DESCRIBE_TEXT: describe_as_text(&p); break;
    case DESCRIBE_JSON: describe_as_json(&p); break;
    case DESCRIBE_MERMAID: describe_as_mermaid(&p); break;
    case DESCRIBE_DOT: describe_as_dot(&p); break;
    }
    return p.end == STET_REPLAY_RETURNED ? CLI_OK : CLI_NEGATIVE;
}

static const cli_option describe_options[] = {
    { "input", "JSON", "what the handler gets; default: its default input" },
    { "raw", NULL, "the input is no JSON" },
    { "key", "KEY", "of an object (key)" },
    { "from", "RUN", "take input and results from this run" },
    { "run", "RUN", "the same, and show how far it is" },
    { "format", "NAME", "text, json, mermaid or dot" },
    { "time", "D", "how long the handler may take (5s)" },
    { "operations", "N", "at most so many operations (1000)" },
    { 0 },
};

const cli_verb stet__cli_describe = {
    .name = "describe",
    .args = "HANDLER",
    .summary = "draw the operations a handler comes to, without executing them",
    .details =
        "    ./shop describe orders.checkout\n"
        "    ./shop describe orders.checkout --run RUN --format mermaid\n"
        "\n"
        "The handler executes in a child process against no record: no step body is entered, "
        "waits end at\n"
        "once, results are those of its samples or of a run, else empty. So it is one path: with "
        "other\n"
        "results the handler may go another way. Exit code 1 if it did not come to its end.",
    .args_min = 1,
    .args_max = 1,
    .options = describe_options,
    .needs_handlers = true,
    .fn = describe_run,
};
