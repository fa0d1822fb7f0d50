/* The address of a Redis store: redis://USER:PASSWORD@HOST:PORT/DATABASE?prefix=NAME&…
 *
 * st->name is the address as it may be told: no user, no password, ever. Nothing of an address that
 * is not understood is repeated before its options, for the password may be in an odd place.
 */
#include <stdio.h>
#include <string.h>

#include "store/redis.h"

static const char *const url_options[] = {
    "prefix", "allow_lossy", "connect_timeout", "answer_timeout", "repair", "create", NULL
};

#define URL_FORM "redis://USER:PASSWORD@HOST:PORT/DATABASE?prefix=NAME"

static int
url_unknown(redis_store *st, const char *typed, size_t len)
{
    stet__near near;

    stet__near_begin(&near, typed, len);
    for (size_t i = 0; url_options[i] != NULL; i++)
        stet__near_offer(&near, url_options[i]);
    if (near.name == NULL)
        return stet__fail(STET_EURL,
                          "store %s: unknown option \"%.*s\" in the address; there are prefix, "
                          "allow_lossy, connect_timeout, answer_timeout, repair and create",
                          st->name, (int)(len < 40 ? len : 40), typed);
    return stet__fail(STET_EURL,
                      "store %s: unknown option \"%.*s\" in the address; did you mean %s?",
                      st->name, (int)(len < 40 ? len : 40), typed, near.name);
}

/* ---- options --------------------------------------------------------------------------------- */

static bool
url_is(const char *typed, size_t len, const char *name)
{
    return strlen(name) == len && memcmp(typed, name, len) == 0;
}

static int
url_set_prefix(redis_store *st, const char *value, size_t len)
{
    size_t i = 0;

    while (i < len && strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-",
                             value[i]) != NULL)
        i++;
    if (len == 0 || len > REDIS_PREFIX_MAX || i < len)
        return stet__fail(STET_EURL,
                          "store %s: a prefix is 1 to %d letters, digits, '_', '-' and '.'",
                          st->name, REDIS_PREFIX_MAX);
    memcpy(st->prefix, value, len);
    st->prefix[len] = '\0';
    return STET_OK;
}

static int
url_option(redis_store *st, const char *text, size_t len)
{
    const char *equals = memchr(text, '=', len);
    size_t      name = equals != NULL ? (size_t)(equals - text) : len;
    const char *value = text + (equals != NULL ? name + 1 : len);
    size_t      value_len = len - (size_t)(value - text);

    if (equals == NULL || name == 0)
        return stet__fail(STET_EURL, "store %s: an option of the address is NAME=VALUE", st->name);
    if (url_is(text, name, "prefix"))
        return url_set_prefix(st, value, value_len);
    if (url_is(text, name, "connect_timeout"))
        return stet__option_seconds(value, value_len, STET__OPTION_SECONDS_MAX, "connect_timeout",
                                    "store", st->name, &st->connect_ms);
    if (url_is(text, name, "answer_timeout"))
        return stet__option_seconds(value, value_len, STET__OPTION_SECONDS_MAX, "answer_timeout",
                                    "store", st->name, &st->answer_ms);
    if (!url_is(text, name, "allow_lossy") && !url_is(text, name, "repair") &&
        !url_is(text, name, "create"))
        return url_unknown(st, text, name);
    if (!url_is(value, value_len, "0") && !url_is(value, value_len, "1"))
        return stet__fail(STET_EURL, "store %s: %.*s is 0 or 1", st->name, (int)name, text);
    if (url_is(text, name, "create"))
        st->must_exist = value[0] == '0';
    else if (url_is(text, name,
                    "allow_lossy")) /* repair: there is no table that could be missing */
        st->is_lossy_allowed = value[0] == '1';
    return STET_OK;
}

static int
url_all_options(redis_store *st, const char *text)
{
    int err = stet__options_check(text, "store", st->name);

    while (err == STET_OK && *text != '\0') {
        size_t len = strcspn(text, "&");

        err = url_option(st, text, len);
        text += len + (text[len] == '&' ? 1 : 0);
    }
    return err;
}

/* ---- user, host, database -------------------------------------------------------------------- */

static int
url_digit(char c)
{
    const char *digits = "0123456789abcdef0123456789ABCDEF", *at = strchr(digits, c);

    return c != '\0' && at != NULL ? (int)((at - digits) % 16) : -1;
}

static int
url_bad(redis_store *st, const char *what)
{
    return stet__fail(STET_EURL, "store %s: %s; the address is %s", st->name, what, URL_FORM);
}

/* %XX in user and password. */
static int
url_decode(redis_store *st, const char *text, size_t len, char **out)
{
    char  *copy = stet__get0(st->base.alloc, len + 1);
    size_t n = 0;

    if (copy == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    *out = copy;
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '%') {
            copy[n++] = text[i];
            continue;
        }
        if (i + 2 >= len || url_digit(text[i + 1]) < 0 || url_digit(text[i + 2]) < 0)
            return url_bad(st, "user and password have a '%' that is not %XX");
        copy[n++] = (char)(url_digit(text[i + 1]) * 16 + url_digit(text[i + 2]));
        i += 2;
    }
    return STET_OK;
}

static int
url_set_login(redis_store *st, const char *text, size_t len)
{
    const char *colon = memchr(text, ':', len);
    size_t      user = colon != NULL ? (size_t)(colon - text) : len;
    int         err;

    if (colon == NULL)
        return url_bad(st, "before the '@' is no password: write USER:PASSWORD, or :PASSWORD");
    if ((err = url_decode(st, text, user, &st->user)) != STET_OK)
        return err;
    return url_decode(st, colon + 1, len - user - 1, &st->password);
}

static int
url_set_host(redis_store *st, const char *text, size_t len)
{
    const char *end = text + len, *port = NULL, *host = text, *stop;

    if (len > 0 && text[0] == '[') { /* [::1] */
        host = text + 1;
        if ((stop = memchr(text, ']', len)) == NULL)
            return url_bad(st, "the host has a '[' without a ']'");
        if (stop + 1 < end && stop[1] == ':')
            port = stop + 2;
    } else if ((stop = memchr(text, ':', len)) != NULL) {
        port = stop + 1;
    } else {
        stop = end;
    }
    if ((size_t)(stop - host) > REDIS_HOST_MAX)
        return url_bad(st, "the host is too long");
    if (port != NULL && !stet__option_number(port, (size_t)(end - port), 65535, &st->port))
        return url_bad(st, "the port is no number up to 65535 (other characters than letters and "
                           "digits in user and password are written as %XX)");
    if (stop > host)
        (void)snprintf(st->host, sizeof st->host, "%.*s", (int)(stop - host), host);
    return STET_OK;
}

/* HOST:PORT/DATABASE without a login, up to the options. */
static int
url_set_place(redis_store *st, const char *text, size_t len)
{
    const char *slash = memchr(text, '/', len);
    size_t      host = slash != NULL ? (size_t)(slash - text) : len;
    size_t      db = slash != NULL ? len - host - 1 : 0;
    int         err;

    if ((err = url_set_host(st, text, host)) != STET_OK)
        return err;
    if (db > 0 && !stet__option_number(slash + 1, db, 65535, &st->db))
        return url_bad(st, "behind the host is the number of a database");
    return STET_OK;
}

static void
url_make_name(redis_store *st)
{
    (void)snprintf(st->name, sizeof st->name, "redis://%s:%d/%d?prefix=%s", st->host, st->port,
                   st->db, st->prefix);
    (void)snprintf(st->key, sizeof st->key, "{%s}:", st->prefix);
}

int
stet__redis_url_parse(redis_store *st, const char *address)
{
    size_t      len = strcspn(address, "?");
    const char *options = address + len + (address[len] == '?' ? 1 : 0), *at = NULL;
    int         err;

    st->connect_ms = REDIS_CONNECT_MS;
    st->answer_ms = REDIS_ANSWER_MS;
    st->port = 6379;
    (void)snprintf(st->host, sizeof st->host, "localhost");
    (void)snprintf(st->prefix, sizeof st->prefix, "stet");
    (void)snprintf(st->name, sizeof st->name, "redis://…");
    if (strncmp(address, "//", 2) != 0)
        return url_bad(st, "it begins with redis://");
    if (strchr(options, '@') != NULL) /* what stands before it would be told as host and option */
        return url_bad(st, "there is an '@' behind the '?', so the '?' is in the password: write "
                           "it as %3F");
    for (const char *c = address + 2; c < address + len; c++)
        if (*c == '@')
            at = c; /* the last: a password may have one that was not written as %40 */
    if (at != NULL && (err = url_set_login(st, address + 2, (size_t)(at - address - 2))) != STET_OK)
        return err;
    at = at != NULL ? at + 1 : address + 2;
    if ((err = url_set_place(st, at, (size_t)(address + len - at))) != STET_OK)
        return err;
    url_make_name(st);
    if ((err = url_all_options(st, options)) == STET_OK)
        url_make_name(st);
    return err;
}

static void
url_wipe(redis_store *st, char **text)
{
    if (*text != NULL)
        memset(*text, 0, strlen(*text));
    stet__free(st->base.alloc, *text);
    *text = NULL;
}

void
stet__redis_url_free(redis_store *st)
{
    url_wipe(st, &st->user);
    url_wipe(st, &st->password);
}
