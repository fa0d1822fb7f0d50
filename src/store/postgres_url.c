/* The address of a PostgreSQL store: postgres://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME&…
 *
 * It is libpq's URL with options of our own among its parameters. Those are taken out, the rest is
 * libpq's to understand. Every name is looked at before libpq is asked, because libpq repeats what
 * it does not understand, and a mistyped URL may have its password in an odd place. st->name is the
 * address as it may be told: no password, ever.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/postgres.h"

static const char *const url_own[] = { "schema", "repair", "create", "answer_timeout", NULL };

/* ---- names ----------------------------------------------------------------------------------- */

static bool
url_is(const char *typed, size_t len, const char *name)
{
    return strlen(name) == len && memcmp(typed, name, len) == 0;
}

/* Is it a parameter of libpq? "ssl" is one in URLs only. */
static int
url_check_name(pg_store *st, const char *typed, size_t len)
{
    PQconninfoOption *all = PQconndefaults();
    stet__near        near;
    bool              is_known = url_is(typed, len, "ssl");
    int               err = STET_OK;

    if (all == NULL)
        return stet__fail(STET_ENOMEM, "store: out of memory");
    stet__near_begin(&near, typed, len);
    for (const PQconninfoOption *o = all; o->keyword != NULL; o++) {
        is_known = is_known || url_is(typed, len, o->keyword);
        stet__near_offer(&near, o->keyword);
    }
    for (size_t i = 0; url_own[i] != NULL; i++)
        stet__near_offer(&near, url_own[i]);
    if (!is_known)
        err = stet__fail(STET_EURL, "store %s: unknown option \"%.*s\" in the address%s%s%s",
                         st->name, (int)(len < 40 ? len : 40), typed,
                         near.name != NULL ? "; did you mean " : "",
                         near.name != NULL ? near.name : "", near.name != NULL ? "?" : "");
    PQconninfoFree(all);
    return err;
}

/* ---- our options ----------------------------------------------------------------------------- */

static int
url_set_schema(pg_store *st, const char *value, size_t len)
{
    size_t i;

    for (i = 0; i < len; i++)
        if (strchr("abcdefghijklmnopqrstuvwxyz0123456789_", value[i]) == NULL)
            break;
    if (len == 0 || len > PG_SCHEMA_MAX || i < len || (value[0] >= '0' && value[0] <= '9') ||
        strncmp(value, "pg_", 3) == 0 || url_is(value, len, "public") ||
        url_is(value, len, "information_schema"))
        return stet__fail(STET_EURL,
                          "store %s: a schema is at most %d small letters, digits and '_', begins "
                          "with no digit and "
                          "not with \"pg_\", and is stet's own (not public)",
                          st->name, PG_SCHEMA_MAX);
    memcpy(st->schema, value, len);
    st->schema[len] = '\0';
    return STET_OK;
}

/* One NAME=VALUE: taken if it is ours, else left for libpq. */
static int
url_option(pg_store *st, const char *text, size_t len, stet__buf *rest)
{
    const char *equals = memchr(text, '=', len);
    size_t      name = equals != NULL ? (size_t)(equals - text) : len;
    const char *value = text + (equals != NULL ? name + 1 : len);
    size_t      value_len = len - (size_t)(value - text);
    int         err;

    if (equals == NULL || name == 0)
        return stet__fail(STET_EURL, "store %s: an option of the address is NAME=VALUE", st->name);
    if (url_is(text, name, "schema"))
        return url_set_schema(st, value, value_len);
    if (url_is(text, name, "answer_timeout"))
        return stet__option_seconds(value, value_len, STET__OPTION_SECONDS_MAX, "answer_timeout",
                                    "store", st->name, &st->answer_ms);
    if (url_is(text, name, "repair") && url_is(value, value_len, "1")) {
        st->may_mend = true;
        return STET_OK;
    }
    if (url_is(text, name, "create") &&
        (url_is(value, value_len, "0") || url_is(value, value_len, "1"))) {
        st->must_exist = value[0] == '0';
        return STET_OK;
    }
    if ((err = url_check_name(st, text, name)) != STET_OK)
        return err;
    if (url_is(text, name, "connect_timeout") &&
        (err = stet__option_seconds(value, value_len, STET__OPTION_SECONDS_MAX, "connect_timeout",
                                    "store", st->name, &st->connect_ms)) != STET_OK)
        return err;
    stet__buf_byte(rest, rest->len > 0 && memchr(rest->data, '?', rest->len) != NULL ? '&' : '?');
    stet__buf_add(rest, text, len);
    return STET_OK;
}

/* ---- the address ----------------------------------------------------------------------------- */

const char *
stet__pg_url_option(const pg_store *st, const char *name)
{
    for (const PQconninfoOption *o = st->options; o != NULL && o->keyword != NULL; o++)
        if (strcmp(o->keyword, name) == 0 && o->val != NULL)
            return o->val;
    return "";
}

static int
url_set_name(pg_store *st, const char *name)
{
    stet__free(st->base.alloc, st->name);
    if ((st->name = stet__strdup(st->base.alloc, name)) == NULL)
        return stet__fail(STET_ENOMEM, "store: out of memory");
    return STET_OK;
}

static int
url_make_name(pg_store *st)
{
    const char *host = stet__pg_url_option(st, "host"), *port = stet__pg_url_option(st, "port");
    char        name[400];

    if (host[0] == '\0')
        host = stet__pg_url_option(st, "hostaddr");
    (void)snprintf(name, sizeof name, "postgres://%.120s%s%.10s/%.80s?schema=%s", host,
                   port[0] != '\0' ? ":" : "", port, stet__pg_url_option(st, "dbname"), st->schema);
    return url_set_name(st, name);
}

/* `rest` is a URL without options of ours. */
static int
url_ask_libpq(pg_store *st, const char *rest)
{
    char *said = NULL;

    if ((st->options = PQconninfoParse(rest, &said)) == NULL) {
        PQfreemem(said); /* it may repeat a part of the password */
        return stet__fail(STET_EURL,
                          "store %s: the address is no PostgreSQL URL; it is "
                          "postgres://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME, and other "
                          "characters than letters and "
                          "digits in user and password are written as %%XX",
                          st->name);
    }
    return STET_OK;
}

/* A password with a '@', '/' or '?' that was not written as %XX: libpq would take parts of it for a
 * host, a port, a database or an option, and those are told. One '@' ends user and password, and
 * there is no other. */
static bool
url_is_torn(const char *address)
{
    const char *at = strchr(address, '@'), *end = strpbrk(address + 2, "/?");

    return at != NULL && ((end != NULL && end < at) || strchr(at + 1, '@') != NULL);
}

int
stet__pg_url_parse(pg_store *st, const char *address)
{
    stet__buf   rest;
    const char *options = strchr(address, '?');
    size_t      len = options != NULL ? (size_t)(options - address) : strlen(address);
    int         err;

    st->connect_ms = PG_CONNECT_MS;
    st->answer_ms = PG_ANSWER_MS;
    memcpy(st->schema, "stet", 5);
    if ((err = url_set_name(st, "postgres://…")) != STET_OK)
        return err;
    if (strncmp(address, "//", 2) != 0)
        return stet__fail(STET_EURL, "store %s: the address begins with postgres://", st->name);
    if (url_is_torn(address))
        return stet__fail(STET_EURL,
                          "store %s: the address has an '@' that does not end user and password; "
                          "other characters than letters and digits in them, and an '@' anywhere "
                          "else, are written as %%XX ('@' is %%40, '/' %%2F, '?' %%3F)",
                          st->name);
    if (options != NULL && (err = stet__options_check(options + 1, "store", st->name)) != STET_OK)
        return err;
    stet__buf_init(&rest, st->base.alloc);
    stet__buf_str(&rest, "postgresql:");
    stet__buf_add(&rest, address, len);
    while (err == STET_OK && options != NULL && options[0] != '\0' && options[1] != '\0') {
        options++;
        len = strcspn(options, "&");
        err = url_option(st, options, len, &rest);
        options += len;
    }
    if (err == STET_OK && rest.failed)
        err = stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    if (err == STET_OK && (err = url_ask_libpq(st, stet__buf_cstr(&rest))) == STET_OK)
        err = url_make_name(st);
    if (rest.data != NULL)
        memset(rest.data, 0, rest.len); /* it has the password */
    stet__buf_free(&rest);
    return err;
}

void
stet__pg_url_free(pg_store *st)
{
    PQconninfoFree(st->options);
    st->options = NULL;
    stet__free(st->base.alloc, st->name);
    st->name = NULL;
}
