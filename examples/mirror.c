/* mirror: what happens to every run, kept in a file of its own, one JSON object a line. Kill the
 * worker whenever you like: no entry is missing in audit.jsonl. One may stand there twice; `id`
 * tells. `./mirror audit RUN` prints the same from the store. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <stet.h>

/* ---- JSON ------------------------------------------------------------------------------------ */

typedef struct line {
    char   text[8192];
    size_t len;
} line;

static void
add(line *l, const char *text, size_t len)
{
    if (len > sizeof l->text - l->len) /* cut, and refused by keep() */
        len = sizeof l->text - l->len;
    memcpy(l->text + l->len, text, len);
    l->len += len;
}

static void
add_number(line *l, const char *name, int64_t number)
{
    char text[128];
    int  len = snprintf(text, sizeof text, ",\"%s\":%lld", name, (long long)number);

    add(l, text, (size_t)len);
}

/* Nothing for NULL. */
static void
add_text(line *l, const char *name, const char *text)
{
    char mark[64];
    int  len = snprintf(mark, sizeof mark, "%s\"%s\":\"", l->len > 1 ? "," : "", name);

    if (text == NULL)
        return;
    add(l, mark, (size_t)len);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            add(l, "\\", 1);
        if ((unsigned char)*text < ' ') {
            len = snprintf(mark, sizeof mark, "\\u%04x", (unsigned)(unsigned char)*text);
            add(l, mark, (size_t)len);
        } else
            add(l, text, 1);
    }
    add(l, "\"", 1);
}

/* ---- the hook -------------------------------------------------------------------------------- */

/* What it says STET_OK to is not told again, so that has to be on the disk by then. Anything
 * else, and the entry comes again later: a full disk costs nothing but time. */
static int
keep(void *file, const stet_audit_entry *entry)
{
    int  fd = *(int *)file;
    line l = { "{", 1 };

    add_text(&l, "id", entry->id);
    add_text(&l, "handler", entry->handler);
    add_text(&l, "topic", entry->topic);
    add_text(&l, "kind", entry->kind);
    add_text(&l, "name", entry->name);
    add_text(&l, "outcome", entry->outcome);
    add_text(&l, "status", entry->is_transition ? stet_status_name(entry->status) : NULL);
    add_text(&l, "who", entry->who);
    add_text(&l, "text", entry->text);
    add_number(&l, "time_ms", entry->time_ms);
    if (entry->duration_ms >= 0)
        add_number(&l, "duration_ms", entry->duration_ms);
    add(&l, "}\n", 2);
    if (l.len == sizeof l.text)
        return STET_ETOOBIG;
    if (write(fd, l.text, l.len) != (ssize_t)l.len || fdatasync(fd) != 0)
        return STET_EIO;
    return STET_OK;
}

/* ---- something to tell of -------------------------------------------------------------------- */

static int
brew(stet_attempt *attempt, void *drink)
{
    (void)attempt;
    return printf("brewed %s\n", (const char *)drink) < 0 || fflush(stdout) != 0 ? STET_EIO
                                                                                 : STET_OK;
}

static int
serve(stet_ctx *ctx, stet_bytes drink)
{
    char *name = stet_ctx_printf(ctx, "%.*s", (int)drink.len, (const char *)drink.data);

    STET_TRY(stet_note(ctx, "ordered %s", name));
    STET_TRY(stet_step(ctx, NULL, "brew", brew, name, NULL));
    STET_TRY(stet_sleep(ctx, "steep", "2s"));
    STET_TRY(stet_step(ctx, NULL, "pour", brew, name, NULL));
    return stet_return(ctx, drink);
}

static const stet_handler tea[] = { { "serve", serve, NULL }, { 0 } };

int
main(int argc, char **argv)
{
    stet_app *app = stet_app_new("mirror");
    int       fd = open("audit.jsonl", O_WRONLY | O_CREAT | O_APPEND, 0600);

    if (fd < 0) {
        perror("audit.jsonl");
        return 1;
    }
    stet_app_service(app, "tea", tea);
    stet_app_options(app, STET_OPTIONS(.audit = keep, .audit_arg = &fd));
    return stet_main(argc, argv, app);
}
