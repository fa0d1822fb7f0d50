/* IDs: 48 bits of time and 80 random ones; as text the kind, '_' and 26 characters of base32.
 *
 * The alphabet (Crockford's: no i, l, o, u) ascends in ASCII, and 128 bits fill 26 characters from
 * the right, so text, bytes and time all sort alike. Reading is generous as Crockford asks (any
 * case, i and l for 1, o for 0), since people read IDs to each other; writing has one form only.
 */
#include <assert.h>

#include "util/util.h"

#define ID_DIGITS   26
#define ID_KIND_MAX (STET_ID_TEXT_MAX - ID_DIGITS - 2)

static const char id_alphabet[33] = "0123456789abcdefghjkmnpqrstvwxyz";

stet_id
stet__id_make(int64_t now_ms, const uint8_t random[10])
{
    uint64_t t = now_ms > 0 ? (uint64_t)now_ms : 0;
    stet_id  id;
    int      i;

    for (i = 0; i < 6; i++)
        id.bytes[i] = (uint8_t)(t >> (40 - 8 * i));
    memcpy(id.bytes + 6, random, 10);
    return id;
}

int64_t
stet__id_time_ms(stet_id id)
{
    int64_t t = 0;
    int     i;

    for (i = 0; i < 6; i++)
        t = t << 8 | id.bytes[i];
    return t;
}

bool
stet__id_equal(stet_id a, stet_id b)
{
    return memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

bool
stet__id_is_zero(stet_id id)
{
    static const stet_id zero = { { 0 } };

    return stet__id_equal(id, zero);
}

static void
id_store(uint8_t *p, uint64_t v)
{
    p[0] = (uint8_t)(v >> 56);
    p[1] = (uint8_t)(v >> 48);
    p[2] = (uint8_t)(v >> 40);
    p[3] = (uint8_t)(v >> 32);
    p[4] = (uint8_t)(v >> 24);
    p[5] = (uint8_t)(v >> 16);
    p[6] = (uint8_t)(v >> 8);
    p[7] = (uint8_t)v;
}

/* Twelve digits, of 60 bits. Each has its own shift, so none waits for the one before. */
static void
id_write_digits(char *out, uint64_t v)
{
    int i;

    for (i = 0; i < 12; i++)
        out[i] = id_alphabet[v >> (55 - 5 * i) & 31];
}

void
stet__id_text(char text[STET_ID_TEXT_MAX], const char *kind, stet_id id)
{
    uint64_t high = stet__load_be64(id.bytes), low = stet__load_be64(id.bytes + 8);
    size_t   kind_len = strlen(kind);

    assert(kind_len <= ID_KIND_MAX);
    memcpy(text, kind, kind_len);
    text += kind_len;
    *text++ = '_';
    text[0] = id_alphabet[high >> 61];
    text[1] = id_alphabet[high >> 56 & 31];
    id_write_digits(text + 2, high << 4 | low >> 60);
    id_write_digits(text + 14, low);
    text[ID_DIGITS] = '\0';
}

static char
id_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* One more than what each character stands for; 0 for what is no digit. */
static const uint8_t id_values[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['g'] = 17, ['h'] = 18, ['j'] = 19, ['k'] = 20, ['m'] = 21, ['n'] = 22, ['p'] = 23, ['q'] = 24,
    ['r'] = 25, ['s'] = 26, ['t'] = 27, ['v'] = 28, ['w'] = 29, ['x'] = 30, ['y'] = 31, ['z'] = 32,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16, ['G'] = 17, ['H'] = 18,
    ['J'] = 19, ['K'] = 20, ['M'] = 21, ['N'] = 22, ['P'] = 23, ['Q'] = 24, ['R'] = 25, ['S'] = 26,
    ['T'] = 27, ['V'] = 28, ['W'] = 29, ['X'] = 30, ['Y'] = 31, ['Z'] = 32, ['o'] = 1,  ['O'] = 1,
    ['i'] = 2,  ['I'] = 2,  ['l'] = 2,  ['L'] = 2,
};

/* At most twelve digits, of 60 bits. */
static bool
id_read_part(uint64_t *v, const char *text, int n)
{
    uint64_t sum = 0;
    unsigned digit;
    int      i;

    for (i = 0; i < n; i++) {
        if ((digit = id_values[(uint8_t)text[i]]) == 0)
            return false;
        sum = sum << 5 | (digit - 1);
    }
    *v = sum;
    return true;
}

/* Exactly 26 digits, and nothing above 128 bits. */
static bool
id_read_digits(stet_id *id, const char *text)
{
    uint64_t top, middle, low;

    if (!id_read_part(&top, text, 2) || !id_read_part(&middle, text + 2, 12) ||
        !id_read_part(&low, text + 14, 12) || text[ID_DIGITS] != '\0' || top > 255)
        return false;
    id_store(id->bytes, top << 56 | middle >> 4);
    id_store(id->bytes + 8, middle << 60 | low);
    return true;
}

/* The letters before the '_' into `kind`, in lower case; returns their number, 0 if there are
 * none. */
static size_t
id_read_kind(char kind[ID_KIND_MAX + 1], const char *text)
{
    size_t len;

    for (len = 0; len < ID_KIND_MAX && text[len] != '_'; len++) {
        kind[len] = id_lower(text[len]);
        if (kind[len] < 'a' || kind[len] > 'z')
            return 0;
    }
    kind[len] = '\0';
    return text[len] == '_' ? len : 0;
}

static const char *
id_kind_noun(const char *kind)
{
    if (strcmp(kind, STET__ID_RUN) == 0)
        return "a run";
    if (strcmp(kind, STET__ID_AWAKEABLE) == 0)
        return "an awakeable";
    if (strcmp(kind, STET__ID_WORKER) == 0)
        return "a worker";
    return NULL;
}

static int
id_fail_kind(const char *text, const char *kind, const char *wanted)
{
    const char *is = id_kind_noun(kind);
    const char *want = id_kind_noun(wanted);

    return stet__fail(STET_EKIND, "%s is %s, %s ID begins with %s_", text,
                      is != NULL ? is : "of another kind", want != NULL ? want : "this", wanted);
}

int
stet__id_parse(stet_id *id, const char *kind, const char *text)
{
    char    found[ID_KIND_MAX + 1];
    size_t  found_len = text != NULL ? id_read_kind(found, text) : 0;
    stet_id parsed;

    if (found_len == 0 || !id_read_digits(&parsed, text + found_len + 1))
        return stet__fail(STET_EINVAL, "\"%.64s\" is no ID: expected %s_ and 26 letters and digits",
                          text != NULL ? text : "", kind);
    if (strcmp(found, kind) != 0)
        return id_fail_kind(text, found, kind);
    *id = parsed;
    return STET_OK;
}

int
stet_run_id_parse(stet_run_id *run, const char *text)
{
    stet_id id;
    int     err;

    if ((err = stet__id_parse(&id, STET__ID_RUN, text)) != STET_OK)
        return err;
    stet__id_text(run->text, STET__ID_RUN, id);
    return STET_OK;
}
