/* Result codes, and the sentence each thread remembers about its last failure.
 *
 * The sentence lives in thread-local storage of fixed size: reporting "out of memory" must not need
 * memory. It is always NUL-terminated, valid UTF-8; so what other programs put into names and
 * payloads cannot break a log or a JSON answer it ends up in.
 */
#include <stdio.h>

#include "util/util.h"

#define ERROR_TEXT_MAX 1024

static const char error_ellipsis[] = "\xE2\x80\xA6"; /* … */

static _Thread_local char error_text[ERROR_TEXT_MAX];

const char *
stet_code_name(int code)
{
    switch (code) {
    case STET_OK: return "STET_OK";
#define ERROR_NAME(name, number, class_, text)                                                     \
    case number: return "STET_" #name;
        STET_ERROR_LIST(ERROR_NAME)
#undef ERROR_NAME
    default: return NULL;
    }
}

const char *
stet_code_text(int code)
{
    switch (code) {
    case STET_OK: return "it worked";
#define ERROR_TEXT(name, number, class_, text)                                                     \
    case number: return text;
        STET_ERROR_LIST(ERROR_TEXT)
#undef ERROR_TEXT
    default: return code <= STET_CODE_USER ? "the application's own code" : "unknown code";
    }
}

stet_class
stet_code_class(int code)
{
    switch (code) {
    case STET_OK: return STET_CLASS_OK;
#define ERROR_CLASS(name, number, class_, text)                                                    \
    case number: return STET_CLASS_##class_;
        STET_ERROR_LIST(ERROR_CLASS)
#undef ERROR_CLASS
    default: return STET_CLASS_RETRY;
    }
}

const char *
stet_last_error(void)
{
    return error_text;
}

void
stet__error_clear(void)
{
    error_text[0] = '\0';
}

/* Replace what is no UTF-8, and drop a character that begins but does not fit before `limit`.
 * Returns the new length. */
static size_t
error_clean(char *text, size_t len, size_t limit)
{
    uint8_t *p = (uint8_t *)text;
    size_t   at = 0, n;

    while (at + 8 <= limit && at + 8 <= len &&
           (stet__load_u64(p + at) & UINT64_C(0x8080808080808080)) == 0)
        at += 8; /* the most of it in most cases */
    while (at < len) {
        n = p[at] < 0x80 ? 1 : stet__utf8_len(p + at, len - at);
        if (at + (n ? n : 1) > limit)
            break;
        if (n == 0) {
            p[at] = '?';
            n = 1;
        }
        at += n;
    }
    return at;
}

int
stet__failv(int code, const char *fmt, va_list args)
{
    char   text[ERROR_TEXT_MAX]; /* not error_text: it may be among the arguments */
    size_t len, wanted;
    int    printed;

    len = strlen(fmt);
    if (len < sizeof text && memchr(fmt, '%', len) == NULL) {
        memcpy(text, fmt, len); /* "there is no such value": many times a second */
        printed = (int)len;
    } else
        printed = vsnprintf(text, sizeof text, fmt, args);
    if (printed < 0)
        printed = snprintf(text, sizeof text, "%s", stet_code_text(code));
    wanted = (size_t)printed;
    if (wanted < sizeof text) {
        len = error_clean(text, wanted, wanted);
    } else {
        len = error_clean(text, sizeof text - 1, sizeof text - sizeof error_ellipsis);
        memcpy(text + len, error_ellipsis, sizeof error_ellipsis - 1);
        len += sizeof error_ellipsis - 1;
    }
    memcpy(error_text, text, len);
    error_text[len] = '\0';
    return code;
}

int
stet__fail(int code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)stet__failv(code, fmt, args);
    va_end(args);
    return code;
}
