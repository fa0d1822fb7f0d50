/* The small tools everything stands on: errors, buffers, arenas, IDs, checksums, JSON text.
 *
 * Memory comes through stet__alloc (a vtable handed in by the platform), never malloc directly, so
 * that tests can make any allocation fail. What every fact passes through (appending to a buffer,
 * taking from an arena, reading numbers back) is inline here; the slow halves are in the .c files.
 */
#ifndef STET__UTIL_H
#define STET__UTIL_H

#include <string.h>

#include <stet/engine.h>

#include "util/mutant.h"

/* Built with AddressSanitizer. */
#if defined(__SANITIZE_ADDRESS__)
#define STET__ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STET__ASAN 1
#endif
#endif

#if defined(__GNUC__) || defined(__clang__)
#define STET__LIKELY(x) __builtin_expect(!!(x), 1)
#define STET__NOINLINE __attribute__((noinline))
#else
#define STET__LIKELY(x) (x)
#define STET__NOINLINE
#endif

/* ---- memory -------------------------------------------------------------------------------- */

typedef struct stet__alloc {
    /* realloc semantics; size 0 frees. What it gives is aligned for 16 bytes. */
    void *(*get)(struct stet__alloc *a, void *old, size_t size);
    /* Nothing is asked for ahead of its need: arenas have no room to spare, arrays grow by one. So
     * a test can let each single thing find no memory, not only the one that happens to need a new
     * chunk. */
    bool is_tight;
} stet__alloc;

/* The next size of an array that is full. */
static inline size_t
stet__cap_next(const stet__alloc *a, size_t cap, size_t first)
{
    if (a->is_tight)
        return cap + 1;
    return cap > 0 ? cap * 2 : first;
}

/* Asking for 0 bytes gives a unique pointer: NULL always means out of memory. */

void *stet__get(stet__alloc *a, size_t size);             /* NULL when out of memory */
void *stet__get0(stet__alloc *a, size_t size);            /* zeroed */
/* Only so much of it zeroed: room for a page follows. */
void *stet__get_head(stet__alloc *a, size_t size, size_t head);
void *stet__grow(stet__alloc *a, void *old, size_t size); /* old stays valid on NULL */
void  stet__free(stet__alloc *a, void *p);                /* accepts NULL */
char *stet__strdup(stet__alloc *a, const char *s);        /* NULL for NULL or out of memory */

/* ---- errors -------------------------------------------------------------------------------- */

/* Remember the sentence for stet_last_error() of this thread and return `code`. stet_last_error()
 * may itself be an argument. Bad UTF-8 becomes '?', what is longer than 1 KiB ends in "…". */
int  stet__fail(int code, const char *fmt, ...) STET_PRINTF(2, 3);
int  stet__failv(int code, const char *fmt, va_list args);
void stet__error_clear(void);

/* ---- buffer: growing bytes ----------------------------------------------------------------- */

typedef struct stet__buf {
    stet__alloc *alloc;
    uint8_t     *data;
    size_t       len, cap;
    bool         failed; /* an append ran out of memory; everything after it was ignored */
} stet__buf;

void        stet__buf_init(stet__buf *b, stet__alloc *alloc);
void        stet__buf_free(stet__buf *b); /* safe twice; usable again afterwards */
void        stet__buf_printf(stet__buf *b, const char *fmt, ...) STET_PRINTF(2, 3);
const char *stet__buf_cstr(stet__buf *b); /* NUL-terminates behind len; "" when failed or empty */
/* The half of stet__buf_reserve() that allocates. After a failure it leaves cap == len, so that the
 * inline appends need not look at `failed`: nothing ever fits and they all end up here. */
bool stet__buf_enlarge(stet__buf *b, size_t more);

static inline bool stet__buf_reserve(stet__buf *b, size_t more)
{
    return STET__LIKELY(more <= b->cap - b->len) || stet__buf_enlarge(b, more);
}

/* `data` must not lie inside the buffer: growing would move it away. */
static inline void stet__buf_add(stet__buf *b, const void *data, size_t len)
{
    if (len != 0 && stet__buf_reserve(b, len)) {
        memcpy(b->data + b->len, data, len);
        b->len += len;
    }
}

static inline void stet__buf_byte(stet__buf *b, uint8_t byte)
{
    if (stet__buf_reserve(b, 1))
        b->data[b->len++] = byte;
}

static inline void stet__buf_str(stet__buf *b, const char *text)
{
    stet__buf_add(b, text, strlen(text));
}

/* LEB128 */
static inline void stet__buf_varint(stet__buf *b, uint64_t v)
{
    uint8_t *at;

    if (!stet__buf_reserve(b, 10))
        return;
    at = b->data + b->len;
    for (; v >= 0x80; v >>= 7)
        *at++ = (uint8_t)(v | 0x80);
    *at++  = (uint8_t)v;
    b->len = (size_t)(at - b->data);
}

/* Little endian; compilers make one store of it. */
static inline void stet__buf_u32(stet__buf *b, uint32_t v)
{
    uint8_t raw[4] = { (uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24) };

    stet__buf_add(b, raw, sizeof raw);
}

static inline void stet__buf_u64(stet__buf *b, uint64_t v)
{
    uint8_t raw[8] = { (uint8_t)v,         (uint8_t)(v >> 8),  (uint8_t)(v >> 16),
                       (uint8_t)(v >> 24), (uint8_t)(v >> 32), (uint8_t)(v >> 40),
                       (uint8_t)(v >> 48), (uint8_t)(v >> 56) };

    stet__buf_add(b, raw, sizeof raw);
}

/* Forget what lies behind `len`; a failed buffer stays failed. */
static inline void stet__buf_cut(stet__buf *b, size_t len)
{
    b->len = len;
    if (b->failed)
        b->cap = len;
}

static inline stet_bytes stet__buf_bytes(const stet__buf *b)
{
    stet_bytes bytes = { b->data, b->len };

    return bytes;
}

static inline uint32_t stet__load_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t stet__load_u64(const uint8_t *p)
{
    return (uint64_t)stet__load_u32(p) | (uint64_t)stet__load_u32(p + 4) << 32;
}

/* Big-endian: numbers in the order of their bytes. */
static inline uint64_t stet__load_be64(const uint8_t *p)
{
    return (uint64_t)p[0] << 56 | (uint64_t)p[1] << 48 | (uint64_t)p[2] << 40 |
           (uint64_t)p[3] << 32 | (uint64_t)p[4] << 24 | (uint64_t)p[5] << 16 |
           (uint64_t)p[6] << 8 | (uint64_t)p[7];
}

/* Reads from the front of *in and moves it on; false (and *in untouched) when it does not fit. */
static inline bool stet__read_bytes(stet_bytes *in, size_t len, stet_bytes *out)
{
    if (len > in->len)
        return false;
    out->data = in->data;
    out->len  = len;
    if (len != 0) /* data may be NULL then */
        in->data = (const uint8_t *)in->data + len;
    in->len -= len;
    return true;
}

static inline bool stet__read_byte(stet_bytes *in, uint8_t *v)
{
    stet_bytes raw;

    if (!stet__read_bytes(in, 1, &raw))
        return false;
    *v = *(const uint8_t *)raw.data;
    return true;
}

static inline bool stet__read_u32(stet_bytes *in, uint32_t *v)
{
    stet_bytes raw;

    if (!stet__read_bytes(in, 4, &raw))
        return false;
    *v = stet__load_u32(raw.data);
    return true;
}

static inline bool stet__read_u64(stet_bytes *in, uint64_t *v)
{
    stet_bytes raw;

    if (!stet__read_bytes(in, 8, &raw))
        return false;
    *v = stet__load_u64(raw.data);
    return true;
}

#if defined(__GNUC__)
/* A number of up to eight bytes where eight can be read; gives how many it has. No loop: nobody
 * guesses how long a number is. 0: it is longer. */
static inline size_t stet__varint_word(const uint8_t *p, uint64_t *v)
{
    uint64_t word = stet__load_u64(p), last = ~word & UINT64_C(0x8080808080808080);

    if (last == 0)
        return 0;
    word &= last ^ (last - 1);
    word = (word & UINT64_C(0x007f007f007f007f)) | (word & UINT64_C(0x7f007f007f007f00)) >> 1;
    word = (word & UINT64_C(0x00003fff00003fff)) | (word & UINT64_C(0x3fff00003fff0000)) >> 2;
    *v   = (word & UINT64_C(0x000000000fffffff)) | (word & UINT64_C(0x0fffffff00000000)) >> 4;
    return (size_t)__builtin_ctzll(last) / 8 + 1;
}
#endif

bool stet__read_varint_long(stet_bytes *in, uint64_t *v);

/* Refuses what needs more than 64 bits; padding ("80 00" for 0) is accepted. */
static inline bool stet__read_varint(stet_bytes *in, uint64_t *v)
{
    const uint8_t *p = in->data;

    if (!STET__LIKELY(in->len != 0 && *p < 0x80))
        return stet__read_varint_long(in, v);
    *v       = *p;
    in->data = p + 1;
    in->len--;
    return true;
}

/* ---- arena: many small things with one life ------------------------------------------------- */

typedef struct stet__arena_chunk {
    struct stet__arena_chunk *older;
    size_t                    size, used; /* of space; always multiples of 16 */
    _Alignas(16) uint8_t      space[];
} stet__arena_chunk;

typedef struct stet__arena {
    stet__alloc       *alloc;
    stet__arena_chunk *chunks; /* newest first */
} stet__arena;

typedef struct stet__arena_mark {
    stet__arena_chunk *chunk;
    size_t             used;
} stet__arena_mark;

void             stet__arena_init(stet__arena *a, stet__alloc *alloc);
void             stet__arena_free(stet__arena *a); /* frees everything; usable again afterwards */
/* Forgets everything and keeps one chunk of at most so many bytes, for the next use. */
void             stet__arena_reuse(stet__arena *a, size_t bytes_max);
void            *stet__arena_get_new(stet__arena *a, size_t size); /* out of a new chunk */
void            *stet__arena_get0(stet__arena *a, size_t size);
void            *stet__arena_copy(stet__arena *a, const void *data, size_t len); /* and a NUL */
char            *stet__arena_str(stet__arena *a, const char *text);
char            *stet__arena_printf(stet__arena *a, const char *fmt, ...) STET_PRINTF(2, 3);
stet__arena_mark stet__arena_mark_get(stet__arena *a);
void             stet__arena_release(stet__arena *a, stet__arena_mark mark); /* what came later */

/* 16-byte aligned; NULL when out of memory. Room is a multiple of 16, so what fits also fits
 * rounded up, and the rounding cannot overflow. */
static inline void *stet__arena_get(stet__arena *a, size_t size)
{
    stet__arena_chunk *c = a->chunks;
    void              *p;

    if (!STET__LIKELY(c != NULL && size <= c->size - c->used))
        return stet__arena_get_new(a, size);
    p = c->space + c->used;
    c->used += (size + 15) & ~(size_t)15;
    return p;
}

/* ---- map: bytes to pointer or number -------------------------------------------------------- */

/* Open addressing; keys are copied, short ones (IDs, most names) into the entry itself. Not
 * thread-safe. The order of iteration depends only on the sequence of calls: a simulation repeats
 * itself. */
typedef struct stet__map_entry {
    uint64_t hash;
    void    *value;
    union {
        uint8_t *far;
        uint8_t  near[16];
    } key;
    uint32_t len;
    uint32_t state; /* 0 free, 1 used, 2 removed */
} stet__map_entry;
typedef struct stet__map {
    stet__alloc     *alloc;
    stet__map_entry *slots;
    size_t           cap, used, filled; /* filled counts removed ones too */
} stet__map;

void  stet__map_init(stet__map *m, stet__alloc *alloc);
void  stet__map_free(stet__map *m); /* not the values */
void *stet__map_find(const stet__map *m, const void *key, size_t len);  /* NULL: absent */
int   stet__map_put(stet__map *m, const void *key, size_t len, void *value); /* or STET_ENOMEM */
void *stet__map_remove(stet__map *m, const void *key, size_t len);      /* the value, or NULL */
/* Iterate: start with *at = 0; false at the end. Removing the current entry is allowed; *key lasts
 * until the next put. */
bool  stet__map_next(const stet__map *m, size_t *at, const void **key, size_t *len, void **value);

/* ---- IDs ----------------------------------------------------------------------------------- */

#define STET__ID_RUN "run"
#define STET__ID_AWAKEABLE "awk"
#define STET__ID_WORKER "wrk"
#define STET__ID_UPDATE "upd" /* a key nobody gave; never parsed */

stet_id stet__id_make(int64_t now_ms, const uint8_t random[10]);
int64_t stet__id_time_ms(stet_id id);
bool    stet__id_equal(stet_id a, stet_id b);
bool    stet__id_is_zero(stet_id id);
/* kind + '_' + 26 lower-case Crockford base32 characters. Text order is byte order. */
void stet__id_text(char text[STET_ID_TEXT_MAX], const char *kind, stet_id id);
/* STET_OK; STET_EKIND "awk_… is an awakeable, a run ID begins with run_"; STET_EINVAL. */
int stet__id_parse(stet_id *id, const char *kind, const char *text);

/* ---- times ---------------------------------------------------------------------------------- */

/* "2026-11-16T03:24:05Z" for milliseconds since 1970. */
#define STET__UTC_MAX 40
const char *stet__utc_text(char room[STET__UTC_MAX], int64_t ms);

/* ---- names --------------------------------------------------------------------------------- */

#define STET__NAME_MAX 128
/* Letters, digits, '_', '-', '.', ':', '/', and space inside; not empty, at most STET__NAME_MAX
 * bytes, not beginning with "__" or "rollback:". `what` ("step") goes into the error text.
 * STET_ENAME otherwise. */
int stet__name_check(const char *what, const char *name);
/* The name of an undo is this and that of the step it undoes (core/journal.h). */
#define STET__UNDO_PREFIX "rollback:"
bool stet__name_is_undo(stet_bytes name);
/* The same without '.', for service and handler names (joined as "service.handler"). */
int stet__part_check(const char *what, const char *name);

/* ---- checksums and hashes ------------------------------------------------------------------- */

uint32_t stet__crc32c(uint32_t crc, const void *data, size_t len); /* start with 0 */
uint32_t stet__crc32c_soft(uint32_t crc, const void *data, size_t len); /* the same from tables */
uint64_t stet__hash64(const void *data, size_t len, uint64_t seed); /* fast, not cryptographic */
void     stet__sha256(uint8_t out[32], const void *data, size_t len);
/* The same piece by piece. */
typedef struct stet__sha256_sum {
    uint32_t state[8];
    uint8_t  rest[64];
    uint64_t len;
} stet__sha256_sum;
void     stet__sha256_begin(stet__sha256_sum *sum);
void     stet__sha256_add(stet__sha256_sum *sum, const void *data, size_t len);
void     stet__sha256_end(stet__sha256_sum *sum, uint8_t out[32]);

/* A small generator for jitter and replay-safe randomness; seeded, reproducible. */
typedef struct stet__rng {
    uint64_t s[2];
} stet__rng;
void     stet__rng_seed(stet__rng *r, uint64_t seed);
uint64_t stet__rng_next(stet__rng *r);

/* ---- text ------------------------------------------------------------------------------------ */

/* As stet_duration_parse(), for what lasts: no time at all is refused. The text says of what it
 * is. */
int stet__span_parse(int64_t *ms, const char *of, const char *what, const char *text);

/* The longest duration stet_duration_parse() accepts, 10,000 years: as microseconds and added to
 * any clock it still is far from the end of int64_t. */
#define STET__DURATION_MAX_MS INT64_C(315576000000000)

/* Arithmetic with times somebody gave: INT64_MAX is "for ever" and stays that. */
static inline int64_t stet__time_add(int64_t at, int64_t more)
{
    if (more > 0 && at > INT64_MAX - more)
        return INT64_MAX;
    return more < 0 && at < INT64_MIN - more ? INT64_MIN : at + more;
}

static inline int64_t stet__ms_us(int64_t ms)
{
    if (ms > INT64_MAX / 1000)
        return INT64_MAX;
    return ms < INT64_MIN / 1000 ? INT64_MIN : ms * 1000;
}

/* "3 min ago", "in 2 h", "just now", "in < 1 s": for people. Returns text. */
const char *stet__time_relative(char *text, size_t size, int64_t then_ms, int64_t now_ms);

/* Length of the UTF-8 character at p, 1 to 4; 0 when it is malformed, overlong, a surrogate, beyond
 * U+10FFFF or does not end within `left` bytes. */
size_t stet__utf8_len(const uint8_t *p, size_t left);

/* Text at `at`, cut to fit before `end`; returns where the next goes. For what is put together for
 * every step and wait: printf takes ten times as long. */
static inline char *stet__text_add(char *at, const char *end, const char *text)
{
    size_t len = strlen(text), room = (size_t)(end - at) - 1;

    if (len > room)
        len = room;
    memcpy(at, text, len);
    at[len] = '\0';
    return at + len;
}

static inline char *stet__text_add_number(char *at, const char *end, uint64_t v)
{
    char digits[21], *first = digits + 20;

    *first = '\0';
    do
        *--first = (char)('0' + v % 10);
    while ((v /= 10) != 0);
    return stet__text_add(at, end, first);
}

static inline char *stet__text_add_hex(char *at, const char *end, uint64_t v) /* 16 digits */
{
    char digits[17];

    for (int i = 15; i >= 0; i--, v >>= 4)
        digits[i] = "0123456789abcdef"[v & 15];
    digits[16] = '\0';
    return stet__text_add(at, end, digits);
}

/* ---- options of an address ------------------------------------------------------------------- */

/* `options` is what stands behind the '?': NAME=VALUE&NAME=VALUE. Is there one of this name? */
bool stet__option_is_set(const char *options, const char *name);
/* The address without its option of this name, in place. */
void stet__option_drop(char *address, const char *name);
/* Each name is there once, or the first that is not is refused: "store X: the option …". */
int stet__options_check(const char *options, const char *what, const char *address);
/* Digits and nothing else, 0 to `most`. False: *out is untouched. */
bool stet__option_number(const char *text, size_t len, int most, int *out);
/* A number of seconds from 1 on, as milliseconds. STET_EURL: "store X: NAME is …". */
#define STET__OPTION_SECONDS_MAX 3600 /* of a connection */
int stet__option_seconds(const char *value, size_t len, int most_s, const char *name,
                         const char *what, const char *address, int64_t *out_ms);

/* ---- near names ------------------------------------------------------------------------------ */

/* Edits (insert, remove, replace, swap two neighbours) from what was typed to a name; SIZE_MAX: one
 * of them has 40 bytes or more. */
size_t stet__near_edits(const char *typed, size_t len, const char *name);
/* The nearest of the names that were offered; NULL: none takes at most 1 + len / 3 edits. */
typedef struct stet__near {
    const char *typed;
    size_t      len, edits;
    const char *name;
} stet__near;
void stet__near_begin(stet__near *n, const char *typed, size_t len);
void stet__near_offer(stet__near *n, const char *name);

/* ---- log lines ------------------------------------------------------------------------------ */

const char *stet__level_name(stet_level level); /* "debug" */
/* The name of a code; of a number that is none, the number. */
#define STET__CODE_TEXT_MAX 16
const char *stet__code_text(char room[STET__CODE_TEXT_MAX], int code);
void        stet__log_print(const stet_log_record *r); /* to standard error */

/* ---- JSON text ------------------------------------------------------------------------------ */

/* printf with %Q (const char *, quoted as a JSON string; NULL is null) and %J (stet_bytes passed by
 * value, inserted after checking that it is one valid JSON value); the rest as printf: %d %i %u %ld
 * %lld %lu %llu %zu %s %g %f %c %% %x with flags, width and precision. STET_EJSON when a %J is not
 * valid or the whole is not; nothing is appended then. */
int  stet__json_printf(stet__buf *b, const char *fmt, ...);
int  stet__json_vprintf(stet__buf *b, const char *fmt, va_list args);
/* Is `text` one JSON value (depth at most 64)? On false *at is the position of the first error;
 * `at` may be NULL. */
bool stet__json_valid(stet_bytes text, size_t *at);
void stet__json_quote(stet__buf *b, const char *text, size_t len); /* bad UTF-8 becomes U+FFFD */

#endif
