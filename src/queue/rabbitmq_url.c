/* The address of a broker: amqp://USER:PASSWORD@HOST:PORT/VHOST?prefix=NAME&…
 *
 * USER, PASSWORD and VHOST may have %XX. r->name is the address as it may be told: no password,
 * ever. A mistyped address may have it in an odd place, so of what is not understood only the name
 * of an option is repeated.
 */
#include <stdio.h>
#include <string.h>

#include "queue/rabbitmq.h"

#define URL_FORM "amqp://USER:PASSWORD@HOST:PORT/VHOST?prefix=NAME"

static const char *const url_options[] = { "prefix",          "heartbeat", "ttl",
                                           "connect_timeout", "cacert",    "verify",
                                           NULL };

static int
url_hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Into `out` of size + 1 bytes; what is longer, or has a NUL or a bad %XX, is refused. */
static int
url_decode(char *out, size_t size, const char *what, const char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        int c = (unsigned char)text[i];

        if (c == '%' && i + 2 < len && url_hex(text[i + 1]) >= 0 && url_hex(text[i + 2]) >= 0) {
            c = url_hex(text[i + 1]) * 16 + url_hex(text[i + 2]);
            i += 2;
        } else if (c == '%')
            c = 0;
        if (c == 0)
            return stet__fail(STET_EURL,
                              "queue amqp://…: '%%' in the %s is followed by two hexadecimal "
                              "digits (%%25 is '%%' itself)",
                              what);
        if (n == size)
            return stet__fail(STET_EURL, "queue amqp://…: the %s has more than %zu bytes", what,
                              size);
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return STET_OK;
}

static int
url_set_prefix(rabbit_port *r, const char *value, size_t len)
{
    size_t ok = strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");

    if (len == 0 || len > RABBIT_PREFIX_MAX || ok < len || strncmp(value, "amq.", 4) == 0)
        return stet__fail(
            STET_EURL,
            "queue amqp://…: a prefix is at most %d letters, digits and - _ . and does not "
            "begin with \"amq.\"",
            RABBIT_PREFIX_MAX);
    memcpy(r->prefix, value, len);
    r->prefix[len] = '\0';
    return STET_OK;
}

static int
url_seconds(const char *name, const char *value, size_t len, int most_s, int *out_s)
{
    int64_t ms;
    int     err = stet__option_seconds(value, len, most_s, name, "queue", "amqp://…", &ms);

    if (err == STET_OK)
        *out_s = (int)(ms / 1000);
    return err;
}

static int
url_option(rabbit_port *r, const char *text, size_t len)
{
    const char *equals = memchr(text, '=', len), *near;
    size_t      n = equals != NULL ? (size_t)(equals - text) : len, value_len;
    const char *value = text + n + (equals != NULL ? 1 : 0);
    int         err, number = 0;

    value_len = len - (size_t)(value - text);
    if (equals == NULL || n == 0)
        return stet__fail(STET_EURL, "queue amqp://…: an option of the address is NAME=VALUE");
#define URL_IS(word) (n == sizeof word - 1 && memcmp(text, word, n) == 0)
    if (URL_IS("prefix"))
        return url_set_prefix(r, value, value_len);
    if (URL_IS("heartbeat"))
        return url_seconds("heartbeat", value, value_len, STET__OPTION_SECONDS_MAX,
                           &r->heartbeat_s);
    if (URL_IS("ttl"))
        return url_seconds("ttl", value, value_len, 86400, &r->ttl_s);
    if (URL_IS("connect_timeout")) {
        if ((err = url_seconds("connect_timeout", value, value_len, 60, &number)) == STET_OK)
            r->connect_ms = number * 1000;
        return err;
    }
    if (URL_IS("verify")) {
        if (!stet__option_number(value, value_len, 1, &number))
            return stet__fail(STET_EURL, "queue amqp://…: verify is 0 or 1");
        r->must_verify = number == 1;
        return STET_OK;
    }
    if (URL_IS("cacert")) {
        stet__free(r->base.alloc, r->cacert);
        if ((r->cacert = stet__get0(r->base.alloc, value_len + 1)) == NULL)
            return stet__fail(STET_ENOMEM, "out of memory for hints");
        return url_decode(r->cacert, value_len, "cacert", value, value_len);
    }
#undef URL_IS
    near = stet__hint_nearest(text, n, url_options);
    return stet__fail(STET_EURL, "queue amqp://…: unknown option \"%.*s\" in the address%s%s%s",
                      (int)(n < 40 ? n : 40), text, near != NULL ? "; did you mean " : "",
                      near != NULL ? near : "", near != NULL ? "?" : "");
}

static int
url_user(rabbit_port *r, const char *text, size_t len)
{
    const char *colon = memchr(text, ':', len);
    size_t      n = colon != NULL ? (size_t)(colon - text) : len, left;
    int         err;

    if ((err = url_decode(r->user, RABBIT_NAME_MAX, "user", text, n)) != STET_OK)
        return err;
    if (r->user[0] == '\0')
        return stet__fail(STET_EURL, "queue amqp://…: there is no user before the '@'; it is %s",
                          URL_FORM);
    left = colon != NULL ? len - n - 1 : 0;
    if ((r->password = stet__get0(r->base.alloc, left + 1)) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for hints");
    return left > 0 ? url_decode(r->password, left, "password", colon + 1, left) : STET_OK;
}

/* HOST, HOST:PORT or [ADDRESS]:PORT. */
static int
url_host(rabbit_port *r, const char *text, size_t len)
{
    bool        is_v6 = len > 0 && text[0] == '[';
    const char *end = is_v6 ? memchr(text, ']', len) : memchr(text, ':', len);
    const char *host = text + (is_v6 ? 1 : 0), *rest;
    size_t      n;

    if (is_v6 && end == NULL)
        return stet__fail(STET_EURL, "queue amqp://…: an address in [ ] has no end");
    n = end != NULL ? (size_t)(end - host) : len;
    rest = end != NULL ? end + (is_v6 ? 1 : 0) : text + len;
    if (n == 0 || n > RABBIT_NAME_MAX ||
        strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:%") < n)
        return stet__fail(STET_EURL, "queue amqp://…: the host is no name or address; it is %s",
                          URL_FORM);
    memcpy(r->host, host, n);
    r->host[n] = '\0';
    if (rest == text + len)
        return STET_OK;
    if (rest[0] != ':')
        return stet__fail(STET_EURL, "queue amqp://…: the host is no name or address; it is %s",
                          URL_FORM);
    if (!stet__option_number(rest + 1, (size_t)(text + len - rest - 1), 65535, &r->port) ||
        r->port == 0)
        return stet__fail(STET_EURL, "queue amqp://…: the port is a number from 1 to 65535");
    return STET_OK;
}

static int
url_place(rabbit_port *r, const char *text, size_t len)
{
    const char *at = NULL, *slash;
    int         err;

    for (size_t i = 0; i < len; i++)
        if (text[i] == '@')
            at = text + i; /* a password may have one that was not written as %40 */
    if (at != NULL) {
        if ((err = url_user(r, text, (size_t)(at - text))) != STET_OK)
            return err;
        len -= (size_t)(at + 1 - text);
        text = at + 1;
    }
    slash = memchr(text, '/', len);
    if ((err = url_host(r, text, slash != NULL ? (size_t)(slash - text) : len)) != STET_OK)
        return err;
    if (slash != NULL && slash + 1 < text + len)
        return url_decode(r->vhost, RABBIT_NAME_MAX, "vhost", slash + 1,
                          (size_t)(text + len - slash - 1));
    return STET_OK;
}

int
stet__rabbit_parse(rabbit_port *r, const char *address)
{
    const char *options;
    size_t      len;
    int         err;

    r->connect_ms = 5000;
    r->heartbeat_s = 10;
    r->ttl_s = 60;
    r->must_verify = true;
    memcpy(r->prefix, "stet", 5);
    memcpy(r->user, "guest", 6);
    memcpy(r->vhost, "/", 2);
    r->is_tls = strncmp(address, "amqps:", 6) == 0;
    r->port = r->is_tls ? 5671 : 5672;
    address += strcspn(address, ":"); /* "amqp" alone has none */
    if (strncmp(address, "://", 3) != 0)
        return stet__fail(STET_EURL, "queue amqp: the address is %s", URL_FORM);
    address += 3;
    len = strcspn(address, "?");
    options = address + len;
    if (strchr(options, '@') != NULL) /* what stands before it would be told as host and option */
        return stet__fail(STET_EURL,
                          "queue amqp://…: there is an '@' behind the '?'; in a password '?' is "
                          "written as %%3F, in an option '@' as %%40");
    if ((err = url_place(r, address, len)) != STET_OK ||
        (options[0] == '?' &&
         (err = stet__options_check(options + 1, "queue", "amqp://…")) != STET_OK))
        return err;
    while (options[0] != '\0' && options[1] != '\0') {
        options++;
        len = strcspn(options, "&");
        if ((err = url_option(r, options, len)) != STET_OK)
            return err;
        options += len;
    }
    if (r->password == NULL && (r->password = stet__strdup(r->base.alloc, "guest")) == NULL)
        return stet__fail(STET_ENOMEM, "out of memory for hints");
    if (!r->is_tls && (r->cacert != NULL || !r->must_verify))
        return stet__fail(STET_EURL, "queue amqp://…: cacert and verify are for amqps://");
    (void)snprintf(r->name, sizeof r->name, "%s://%s@%s:%d/%s?prefix=%s",
                   r->is_tls ? "amqps" : "amqp", r->user, r->host, r->port,
                   strcmp(r->vhost, "/") == 0 ? "" : r->vhost, r->prefix);
    (void)snprintf(r->exchange, sizeof r->exchange, "%s.hints", r->prefix);
    (void)snprintf(r->work, sizeof r->work, "%s.work", r->prefix);
    return STET_OK;
}

void
stet__rabbit_forget(rabbit_port *r)
{
    if (r->password != NULL)
        memset(r->password, 0, strlen(r->password));
    stet__free(r->base.alloc, r->password);
    stet__free(r->base.alloc, r->cacert);
    r->password = r->cacert = NULL;
}
