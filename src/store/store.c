/* Opening a store by its address: which backend an address means, and the life of a handle.
 *
 * A backend is one line in store_backends. A handle is memory of the platform it is opened on.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/memory.h"
#include "store/store.h"

static const stet_store_ops *const store_backends[] = {
    &stet__store_memory_ops,
#ifdef STET_WITH_SQLITE
    &stet__store_sqlite_ops,
#endif
#ifdef STET_WITH_POSTGRES
    &stet__store_postgres_ops,
#endif
#ifdef STET_WITH_REDIS
    &stet__store_redis_ops,
#endif
};

#define STORE_BACKENDS (sizeof store_backends / sizeof store_backends[0])

#ifdef STET_WITH_SQLITE
#define STORE_KNOWN_SQLITE ", a path, sqlite:PATH"
#else
#define STORE_KNOWN_SQLITE ""
#endif
#ifdef STET_WITH_POSTGRES
#define STORE_KNOWN_POSTGRES ", postgres://USER@HOST/DATABASE"
#else
#define STORE_KNOWN_POSTGRES ""
#endif
#ifdef STET_WITH_REDIS
#define STORE_KNOWN_REDIS ", redis://HOST:PORT/DATABASE"
#else
#define STORE_KNOWN_REDIS ""
#endif
#define STORE_KNOWN "memory:" STORE_KNOWN_SQLITE STORE_KNOWN_POSTGRES STORE_KNOWN_REDIS

/* How many bytes of the address are its scheme, without the colon. "shop.db" and "./a:b" have none. */
static size_t
store_scheme(const char *address)
{
    size_t len = strspn(address, "abcdefghijklmnopqrstuvwxyz0123456789+-");

    return len > 1 && address[len] == ':' ? len : 0;
}

static const stet_store_ops *
store_backend(const char *scheme, size_t len)
{
    if (len == 10 && memcmp(scheme, "postgresql", 10) == 0)
        len = 8; /* both are in use */
    for (size_t i = 0; i < STORE_BACKENDS; i++)
        if (strlen(store_backends[i]->scheme) == len &&
            memcmp(store_backends[i]->scheme, scheme, len) == 0)
            return store_backends[i];
    return NULL;
}

static stet_store *
store_new(stet__platform *p, const stet_store_ops *ops)
{
    stet_store *s = stet__get0(&p->alloc, ops->size);
    uint8_t     random[10];

    if (s == NULL)
        return NULL;
    p->ops->random(p, random, sizeof random);
    s->ops = ops;
    s->platform = p;
    s->alloc = &p->alloc;
    s->committer = stet__id_make(stet__wall_ms(p), random);
    return s;
}

/* An address in an option has a password of its own. NULL: there is none; "://" anywhere else is no address. */
static const char *
store_queue(const char *options)
{
    static const char name[] = "queue=";

    for (; *options != '\0'; options += 1 + strcspn(options + 1, "&?"))
        if (strncmp(options + 1, name, sizeof name - 1) == 0) {
            const char *scheme = options + sizeof name;
            size_t      len = strspn(scheme, "abcdefghijklmnopqrstuvwxyz");

            if (len > 0 && strncmp(scheme + len, "://", 3) == 0)
                return scheme + len;
        }
    return NULL;
}

/* Between "//" and the last '@', behind ':', is a password; so is password=…. */
const char *
stet__store_shown(char *out, size_t size, const char *address)
{
    const char *from = strstr(address, "://"), *at = NULL, *colon, *end, *word, *other;
    int         len;

    if (from == NULL) {
        (void)snprintf(out, size, "%s", address);
        return out;
    }
    from += 3;
    end = from + strcspn(from, "?");
    other = store_queue(end);
    for (const char *c = from; *c != '\0' && c != other; c++)
        if (*c == '@')
            at = c; /* a password may have a '@', '/' or '?' that was not written as %XX */
    colon = at != NULL ? memchr(from, ':', (size_t)(at - from)) : NULL;
    if (at != NULL && at > end)
        end = other != NULL ? at : at + strcspn(at, "?&");
    if (other != NULL)
        word = end;
    else if ((word = strstr(end, "password=")) == NULL)
        word = end + strlen(end);
    len =
        snprintf(out, size, "%.*s%s%.*s", (int)((colon != NULL ? colon : from) - address), address,
                 colon != NULL ? ":…" : "", (int)(word - (at != NULL && colon != NULL ? at : from)),
                 at != NULL && colon != NULL ? at : from);
    if (*word != '\0' && len > 0 && (size_t)len < size)
        (void)snprintf(out + len, size - (size_t)len, other != NULL ? "?…" : "password=…%s", word + strcspn(word, "&"));
    return out;
}

int
stet__store_open(stet_store **out, stet__platform *p, const char *address)
{
    size_t                len = store_scheme(address);
    const char           *rest = address + (len > 0 ? len + 1 : 0);
    const stet_store_ops *ops;
    stet_store           *s;
    char                  shown[256];
    int                   err;

    *out = NULL;
#ifndef STET_WITH_POSTGRES
    if (len >= 8 && strncmp(address, "postgres", 8) == 0)
        return stet__fail(
            STET_EURL,
            "this build has no PostgreSQL; build stet with libpq (Debian: libpq-dev), "
            "or use one of: %s",
            STORE_KNOWN);
#endif
#ifdef STET_WITH_REDIS
    if (len == 6 && memcmp(address, "rediss", 6) == 0)
        return stet__fail(
            STET_EURL,
            "store %s: TLS is asked for (rediss://) and this build's hiredis has none; use "
            "redis:// and protect the way to the server by other means (a tunnel)",
            stet__store_shown(shown, sizeof shown, address));
#else
    if ((len == 5 || len == 6) && memcmp(address, "rediss", len) == 0)
        return stet__fail(
            STET_EURL,
            "this build has no Redis; build stet with hiredis (Debian: libhiredis-dev), "
            "or use one of: %s",
            STORE_KNOWN);
#endif
    ops = len > 0 ? store_backend(address, len) : store_backend("sqlite", 6);
    if (ops == NULL || (ops == &stet__store_memory_ops) != (*rest == '\0'))
        return stet__fail(STET_EURL, "no store for the address \"%s\"; this build opens: %s",
                          stet__store_shown(shown, sizeof shown, address), STORE_KNOWN);
    if ((s = store_new(p, ops)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory while opening",
                          stet__store_shown(shown, sizeof shown, address));
    if ((err = ops->open(s, rest)) != STET_OK) {
        stet__store_close(s);
        return err;
    }
    *out = s;
    return STET_OK;
}

/* Of a server: opening it would make one, unless it is told not to. */
static int
store_answers(stet__platform *p, const char *address)
{
    const char *options = strchr(address, '?');
    size_t      len = options != NULL ? (size_t)(options - address) : strlen(address);
    stet_store *s;
    stet__buf   asking;
    int         err;

    if (strncmp(address, "memory:", 7) == 0)
        return STET_OK;
    stet__buf_init(&asking, &p->alloc);
    if (options != NULL && stet__option_is_set(options + 1, "create"))
        stet__buf_str(&asking, address);
    else {
        stet__buf_add(&asking, address, len);
        stet__buf_printf(&asking, "?create=0%s%s", options != NULL ? "&" : "",
                         options != NULL ? options + 1 : "");
    }
    if (asking.failed)
        err = stet__fail(STET_ENOMEM, "out of memory");
    else if ((err = stet__store_open(&s, p, stet__buf_cstr(&asking))) == STET_OK)
        stet__store_close(s);
    if (asking.data != NULL)
        memset(asking.data, 0, asking.len); /* it may have a password */
    stet__buf_free(&asking);
    return err;
}

int
stet__store_exists(stet__platform *p, const char *address)
{
    size_t len = store_scheme(address), path_len;
    char  *path;
    bool   is_there;

    if (len > 0 && (len != 6 || memcmp(address, "sqlite", 6) != 0))
        return store_answers(p, address);
    address += len > 0 ? len + 1 : 0;
    path_len = strcspn(address, "?");
    if ((path = stet__get0(&p->alloc, path_len + 1)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", address);
    memcpy(path, address, path_len);
    is_there = access(path, F_OK) == 0;
    stet__free(&p->alloc, path);
    return is_there ? STET_OK : stet__fail(STET_ENOTFOUND, "there is no store at %s", address);
}

void
stet__store_close(stet_store *s)
{
    if (s == NULL)
        return;
    s->ops->close(s);
    stet__free(s->alloc, s);
}

int
stet__memory_open(stet_store **out, stet__platform *p, stet__memory_db *db)
{
    *out = store_new(p, &stet__store_memory_ops);
    if (*out == NULL)
        return stet__fail(STET_ENOMEM, "memory store: out of memory while opening a handle");
    stet__memory_attach(*out, db);
    return STET_OK;
}

static bool
store_set_is_news(const stet_op *op)
{
    if ((op->mask & STET_RUN_DUE) != 0)
        return true;
    if ((op->mask & STET_RUN_STATUS) == 0)
        return false;
    return (op->mask & STET_RUN_OWNER) == 0 || op->row->is_terminal != 0 ||
           op->row->due_ms != STET_NEVER;
}

bool
stet__unit_is_news(const stet_unit *unit)
{
    for (size_t i = 0; i < unit->n_ops; i++)
        switch (unit->ops[i].kind) {
        case STET_OP_FACTS:
        case STET_OP_CLAIM_DUE:
        case STET_OP_TIMER_DEL: break;
        case STET_OP_RUN_SET:
            if (store_set_is_news(&unit->ops[i]))
                return true;
            break;
        default: return true;
        }
    return false;
}
