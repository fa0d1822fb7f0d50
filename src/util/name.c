/* Which names are legal (B21).
 *
 * Names end up in URLs, logs, SQL rows and on command lines, so they are plain ASCII. "__" and
 * "rollback:" are kept for what stet records itself: a user's step of that name could be mistaken
 * for it on replay.
 */
#include "util/util.h"

static bool
name_is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool
name_is_legal(char c, const char *marks)
{
    return name_is_alnum(c) || (c != '\0' && strchr(marks, c) != NULL);
}

static bool
name_begins(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

bool
stet__name_is_undo(stet_bytes name)
{
    size_t len = sizeof STET__UNDO_PREFIX - 1;

    return name.len > len && memcmp(name.data, STET__UNDO_PREFIX, len) == 0;
}

/* A whole character for the error text, not a byte out of the middle of one. */
static int
name_fail_character(const char *what, const char *name, size_t at, const char *marks)
{
    size_t left = strlen(name + at);
    size_t len = stet__utf8_len((const uint8_t *)name + at, left);

    return stet__fail(STET_ENAME,
                      "%s name \"%s\": '%.*s' at byte %zu is not allowed; use letters, digits, "
                      "%s and spaces inside",
                      what, name, (int)(len ? len : 1), name + at, at, marks);
}

static int
name_check(const char *what, const char *name, const char *marks)
{
    size_t len, i;

    if (name == NULL || name[0] == '\0')
        return stet__fail(STET_ENAME, "%s name is empty", what);
    for (len = 0; len <= STET__NAME_MAX && name[len] != '\0'; len++)
        continue;
    if (len > STET__NAME_MAX)
        return stet__fail(STET_ENAME, "%s name \"%.32s…\" is longer than %d bytes", what, name,
                          STET__NAME_MAX);
    if (name_begins(name, "__") || name_begins(name, STET__UNDO_PREFIX))
        return stet__fail(STET_ENAME,
                          "%s name \"%s\": names that begin with \"__\" or \"" STET__UNDO_PREFIX
                          "\" are reserved",
                          what, name);
    for (i = 0; i < len; i++)
        if (!name_is_legal(name[i], marks) && (name[i] != ' ' || i == 0 || i == len - 1))
            return name_fail_character(what, name, i, marks);
    return STET_OK;
}

int
stet__name_check(const char *what, const char *name)
{
    return name_check(what, name, "_-.:/");
}

int
stet__part_check(const char *what, const char *name)
{
    return name_check(what, name, "_-:/");
}
