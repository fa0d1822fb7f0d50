/* The options of an address, NAME=VALUE&NAME=VALUE: what all addresses have in common.
 *
 * What they mean is for each store and queue to know. Of two with one name no reader could tell
 * which is meant, so none is taken. Values are never told: they may have a password.
 */
#include "util/util.h"

static bool
option_is(const char *options, const char *name, size_t len)
{
    return strncmp(options, name, len) == 0 && options[len] == '=';
}

static const char *
option_next(const char *options)
{
    options += strcspn(options, "&");
    return *options == '&' ? options + 1 : NULL;
}

static bool
option_has(const char *options, const char *name, size_t len)
{
    for (; options != NULL; options = option_next(options))
        if (option_is(options, name, len))
            return true;
    return false;
}

bool
stet__option_is_set(const char *options, const char *name)
{
    return option_has(options, name, strlen(name));
}

void
stet__option_drop(char *address, const char *name)
{
    char  *at = strchr(address, '?'), *end;
    size_t len = strlen(name);

    for (; at != NULL; at = end) {
        end = strchr(at + 1, '&');
        if (!option_is(at + 1, name, len))
            continue;
        if (end == NULL)
            *at = '\0';
        else
            memmove(at + 1, end + 1, strlen(end + 1) + 1);
        return;
    }
}

int
stet__options_check(const char *options, const char *what, const char *address)
{
    for (; options != NULL; options = option_next(options)) {
        size_t len = strcspn(options, "=&");

        if (len > 0 && options[len] == '=' && option_has(option_next(options), options, len))
            return stet__fail(
                STET_EURL,
                "%s %s: the option \"%.*s\" is given twice in the address; keep the one "
                "that is meant",
                what, address, (int)(len < 40 ? len : 40), options);
    }
    return STET_OK;
}

bool
stet__option_number(const char *text, size_t len, int most, int *out)
{
    int64_t number = 0;

    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' || (number = number * 10 + (text[i] - '0')) > most)
            return false;
    }
    if (len == 0)
        return false;
    *out = (int)number;
    return true;
}

int
stet__option_seconds(const char *value, size_t len, int most_s, const char *name, const char *what,
                     const char *address, int64_t *out_ms)
{
    int seconds;

    if (!stet__option_number(value, len, most_s, &seconds) || seconds == 0)
        return stet__fail(STET_EURL, "%s %s: %s is a number of seconds from 1 to %d", what, address,
                          name, most_s);
    *out_ms = (int64_t)seconds * 1000;
    return STET_OK;
}
