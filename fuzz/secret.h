/* Addresses with a password in them, for the fuzzers of addresses: whatever surrounds it, what an error tells must
 * not have it. Mistyped passwords are the point: one with '@', '/', '?' or '&' that were not written as %XX ends up
 * in odd places of the address.
 */
#ifndef FUZZ_SECRET_H
#define FUZZ_SECRET_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <stet.h>

#define FUZZ_SECRET "hUsH5"

/* Four lines are USER, what the password has before and behind the secret, and what follows the '@'; anything else is
 * the address as it is. Up to the first NUL, behind `scheme`. NULL: no use. */
static inline char *
fuzz_address(const char *scheme, const uint8_t *data, size_t size)
{
    static const char *const between[] = { ":", FUZZ_SECRET, "@" };
    size_t                   n = 0, len, lines = 0;
    char                    *text = calloc(1, size + 1), *out = calloc(1, size + 64);

    if (text == NULL || out == NULL)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    len = strlen(text);
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    n = (size_t)(stpcpy(out, scheme) - out);
    if (lines == 3)
        n = (size_t)(stpcpy(out + n, "//") - out);
    for (size_t i = 0, line = 0; i < len; i++)
        if (lines == 3 && text[i] == '\n')
            n = (size_t)(stpcpy(out + n, between[line++]) - out);
        else
            out[n++] = text[i];
    if (strstr(text, FUZZ_SECRET) != NULL) { /* it is not only in the password */
        free(out);
        out = NULL;
    }
    free(text);
    return out;
}

static inline void
fuzz_is_silent(const char *told)
{
    if (told != NULL && strstr(told, FUZZ_SECRET) != NULL)
        abort();
}

#endif
