/* A bundle: one run as one file. docs/bundle.md is its definition.
 *
 *     "stetrun\n" | version 1 | sections … | tag 0, length 4, crc32c of all before, little endian
 *
 * where a section is a tag byte, a varint length and so many bytes. Sections nobody knows are
 * skipped. Facts are as they are stored, each with its own checksum, so a record that is damaged in
 * the store is so in the bundle, and is found at the same place.
 *
 * A bundle comes from anywhere: nothing in it is believed before it was checked
 * (fuzz/fuzz_bundle.c).
 */
#include <stdio.h>
#include <string.h>

#if defined(__linux__)
#include <link.h>
#endif

#include "engine/offline.h"

#define BUNDLE_MAGIC   "stetrun\n"
#define BUNDLE_VERSION 1
#define BUNDLE_PAGE    256u
#define BUNDLE_TRIES_MAX 100

typedef enum bundle_tag {
    BUNDLE_END = 0,
    BUNDLE_RUN = 1,   /* 16 bytes */
    BUNDLE_HEAD = 2,  /* varints: revision, status; 8 bytes: when it was exported, ms since 1970 */
    BUNDLE_STET = 3,  /* text: version of stet */
    BUNDLE_BUILD = 4, /* text: build ID of the program, in hex */
    BUNDLE_JOURNAL = 5, /* varints: first revision, number of facts; the facts */
    BUNDLE_INBOX = 6    /* varint: sequence; one fact */
} bundle_tag;

/* ---- the program ----------------------------------------------------------------------------- */

#if defined(__linux__)
typedef struct build_id {
    char  *text;
    size_t size;
} build_id;

static bool
build_note(const build_id *out, const uint8_t *at, size_t len)
{
    while (len >= 12) {
        size_t name = ((size_t)stet__load_u32(at) + 3) & ~(size_t)3;
        size_t desc = stet__load_u32(at + 4), room = (desc + 3) & ~(size_t)3;

        if (name > len - 12 || room > len - 12 - name)
            return false;
        if (stet__load_u32(at + 8) == NT_GNU_BUILD_ID && name == 4 &&
            memcmp(at + 12, "GNU", 4) == 0) {
            for (size_t i = 0; i < desc && 2 * i + 3 <= out->size; i++)
                (void)snprintf(out->text + 2 * i, 3, "%02x", at[12 + name + i]);
            return true;
        }
        at += 12 + name + room;
        len -= 12 + name + room;
    }
    return false;
}

/* The first object is the program itself. */
static int
build_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];

        if (h->p_type == PT_NOTE &&
            build_note(arg, (const uint8_t *)(uintptr_t)(info->dlpi_addr + h->p_vaddr),
                       (size_t)h->p_memsz))
            break;
    }
    return 1;
}
#endif

void
stet__build_id(char *text, size_t size)
{
    text[0] = '\0';
#if defined(__linux__)
    (void)dl_iterate_phdr(build_object, &(build_id){ text, size });
#else
    (void)size;
#endif
}

/* ---- writing --------------------------------------------------------------------------------- */

static void
bundle_section(stet__buf *b, bundle_tag tag, const void *data, size_t len)
{
    stet__buf_byte(b, (uint8_t)tag);
    stet__buf_varint(b, len);
    stet__buf_add(b, data, len);
}

static size_t
bundle_varint_len(uint64_t v)
{
    size_t len = 1;

    for (; v >= 0x80; v >>= 7)
        len++;
    return len;
}

void
stet__bundle_begin(stet__buf *b, stet_id run, stet_status status, uint64_t revision,
                   int64_t exported_ms)
{
    char build[72];

    stet__build_id(build, sizeof build);
    stet__buf_str(b, BUNDLE_MAGIC);
    stet__buf_byte(b, BUNDLE_VERSION);
    bundle_section(b, BUNDLE_RUN, run.bytes, sizeof run.bytes);
    stet__buf_byte(b, BUNDLE_HEAD);
    stet__buf_varint(b, bundle_varint_len(revision) + bundle_varint_len((uint64_t)status) + 8);
    stet__buf_varint(b, revision);
    stet__buf_varint(b, (uint64_t)status);
    stet__buf_u64(b, (uint64_t)exported_ms);
    bundle_section(b, BUNDLE_STET, STET_VERSION, strlen(STET_VERSION));
    bundle_section(b, BUNDLE_BUILD, build, strlen(build));
}

void
stet__bundle_journal(stet__buf *b, uint64_t first, uint32_t count, stet_bytes facts)
{
    stet__buf_byte(b, BUNDLE_JOURNAL);
    stet__buf_varint(b, bundle_varint_len(first) + bundle_varint_len(count) + facts.len);
    stet__buf_varint(b, first);
    stet__buf_varint(b, count);
    stet__buf_add(b, facts.data, facts.len);
}

void
stet__bundle_inbox(stet__buf *b, uint64_t seq, stet_bytes fact)
{
    stet__buf_byte(b, BUNDLE_INBOX);
    stet__buf_varint(b, bundle_varint_len(seq) + fact.len);
    stet__buf_varint(b, seq);
    stet__buf_add(b, fact.data, fact.len);
}

void
stet__bundle_end(stet__buf *b, size_t from)
{
    uint32_t crc = b->failed ? 0 : stet__crc32c(0, b->data + from, b->len - from);

    stet__buf_byte(b, BUNDLE_END);
    stet__buf_varint(b, 4);
    stet__buf_u32(b, crc);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int
bundle_bad(const char *what)
{
    return stet__fail(STET_ECORRUPT, "this is no bundle of a run, or a damaged one: %s", what);
}

static bool
bundle_grow(stet__arena *arena, stet__tape_row **rows, size_t n)
{
    stet__tape_row *grown;

    /* A power of two is full. */
    if (n != 0 && (n < 16 || (n & (n - 1)) != 0))
        return true;
    if ((grown = stet__arena_get(arena, (n == 0 ? 16 : 2 * n) * sizeof *grown)) == NULL)
        return false;
    if (n > 0)
        memcpy(grown, *rows, n * sizeof *grown);
    *rows = grown;
    return true;
}

static int
bundle_row(stet__arena *arena, stet__tape_row **rows, size_t *n, stet_bytes in, bool has_count)
{
    stet__tape_row row = { 0, 1, { NULL, 0 } };
    uint64_t       count = 1;

    if (!stet__read_varint(&in, &row.first) || (has_count && !stet__read_varint(&in, &count)))
        return bundle_bad("a row without a number");
    /* A fact has at least one byte; so nobody is told of more than there can be. */
    if (row.first == 0 || count == 0 || count > in.len)
        return bundle_bad("a row with an impossible number");
    if (*n > 0 && row.first != (*rows)[*n - 1].first + (*rows)[*n - 1].count)
        return bundle_bad("rows with a gap");
    row.count = (uint32_t)count;
    row.facts = in;
    if (!bundle_grow(arena, rows, *n))
        return stet__fail(STET_ENOMEM, "out of memory for a bundle");
    (*rows)[(*n)++] = row;
    return STET_OK;
}

static int
bundle_head(stet__tape *tape, stet_bytes in)
{
    uint64_t status, exported_ms;

    if (!stet__read_varint(&in, &tape->revision) || !stet__read_varint(&in, &status) ||
        !stet__read_u64(&in, &exported_ms))
        return bundle_bad("its head is too short");
    if (status == 0 || status > STET_STATUS_EXPIRED)
        return bundle_bad("a status nobody knows");
    tape->status = (stet_status)status;
    tape->exported_ms = (int64_t)exported_ms;
    return STET_OK;
}

static int
bundle_take(stet__tape *tape, stet__arena *arena, uint8_t tag, stet_bytes in)
{
    switch (tag) {
    case BUNDLE_RUN:
        if (in.len != sizeof tape->run.bytes)
            return bundle_bad("an ID of another length");
        memcpy(tape->run.bytes, in.data, sizeof tape->run.bytes);
        return STET_OK;
    case BUNDLE_HEAD: return bundle_head(tape, in);
    case BUNDLE_STET: tape->version = in; return STET_OK;
    case BUNDLE_BUILD: tape->build = in; return STET_OK;
    case BUNDLE_JOURNAL: return bundle_row(arena, &tape->journal, &tape->n_journal, in, true);
    case BUNDLE_INBOX: return bundle_row(arena, &tape->inbox, &tape->n_inbox, in, false);
    default: return STET_OK;
    }
}

int
stet__bundle_decode(stet__tape *tape, stet__arena *arena, stet_bytes in)
{
    const uint8_t *begin = in.data;
    stet_bytes     part;
    uint64_t       len;
    uint32_t       crc;
    uint8_t        tag;
    int            err;

    memset(tape, 0, sizeof *tape);
    if (in.len > STET_BUNDLE_BYTES_MAX)
        return stet__fail(STET_ETOOBIG, "a bundle of %zu bytes; the limit is %zu", in.len,
                          STET_BUNDLE_BYTES_MAX);
    if (!stet__read_bytes(&in, strlen(BUNDLE_MAGIC), &part) ||
        memcmp(part.data, BUNDLE_MAGIC, part.len) != 0)
        return bundle_bad("it does not begin like one");
    if (!stet__read_byte(&in, &tag))
        return bundle_bad("it is cut off");
    if (tag != BUNDLE_VERSION)
        return stet__fail(STET_ENEWER, "a bundle of format %u; this stet knows %d", tag,
                          BUNDLE_VERSION);
    for (;;) {
        size_t upto = (size_t)((const uint8_t *)in.data - begin);

        if (!stet__read_byte(&in, &tag) || !stet__read_varint(&in, &len) || len > in.len ||
            !stet__read_bytes(&in, (size_t)len, &part))
            return bundle_bad("it is cut off");
        if (tag == BUNDLE_END) {
            if (!stet__read_u32(&part, &crc) || part.len > 0 || in.len > 0)
                return bundle_bad("something follows its end");
            if (crc != stet__crc32c(0, begin, upto))
                return bundle_bad("its checksum is wrong");
            break;
        }
        if ((err = bundle_take(tape, arena, tag, part)) != STET_OK)
            return err;
    }
    if (tape->status == 0 || tape->n_journal == 0 || stet__id_is_zero(tape->run))
        return bundle_bad("a part of it is missing");
    return STET_OK;
}

/* ---- from a store ---------------------------------------------------------------------------- */

typedef struct bundle_rows {
    stet__buf *b;
    size_t     from;
    uint64_t   next, upto;
    size_t     rows;
    bool       is_inbox;
    bool       is_passed; /* the run began anew while it was read */
} bundle_rows;

static int
bundle_on_row(void *arg, uint64_t first, uint32_t count, stet_bytes facts)
{
    bundle_rows *r = arg;

    r->rows++;
    if (first > r->upto) {
        r->is_passed = r->next <= r->upto;
        return STET_END;
    }
    if (r->is_inbox)
        stet__bundle_inbox(r->b, first, facts);
    else
        stet__bundle_journal(r->b, first, count, facts);
    r->next = first + count;
    if (r->b->failed)
        return stet__fail(STET_ENOMEM, "out of memory for a bundle");
    if (r->b->len - r->from > STET_BUNDLE_BYTES_MAX)
        return stet__fail(STET_ETOOBIG, "a run of more than %zu bytes has no bundle",
                          STET_BUNDLE_BYTES_MAX);
    return STET_OK;
}

static int
bundle_on_head(void *arg, const stet_run_row *row)
{
    stet_run_row *to = arg;

    to->status = row->status; /* nothing else of it is looked at */
    to->journal = row->journal;
    to->inbox = row->inbox;
    return STET_OK;
}

/* The inbox first: whatever a fact that is read later took is in it. */
static int
bundle_load(stet_engine *e, stet__buf *b, const stet_run_row *row)
{
    bundle_rows r = { b, b->len, 1, UINT64_MAX, 0, true, false };
    int         err = STET_OK;

    stet__bundle_begin(b, row->id, (stet_status)row->status, row->journal, stet__wall_ms(e->p));
    if (row->inbox > 0)
        do {
            r.rows = 0;
            err = e->store->ops->inbox(e->store, row->id, r.next, BUNDLE_PAGE, bundle_on_row, &r);
        } while (err == STET_OK && r.rows == BUNDLE_PAGE);
    r.is_inbox = false;
    r.next = 1;
    r.upto = row->journal;
    if (err == STET_OK)
        do {
            r.rows = 0;
            err = e->store->ops->journal(e->store, row->id, r.next, BUNDLE_PAGE, bundle_on_row, &r);
        } while (err == STET_OK && r.rows == BUNDLE_PAGE);
    stet__bundle_end(b, r.from);
    if (err == STET_END)
        err = STET_OK;
    if (err == STET_OK && r.is_passed)
        return stet__fail(STET_ECONFLICT, "the run began anew while it was read; try again");
    if (err == STET_OK && r.next == 1) {
        char text[STET_ID_TEXT_MAX];

        stet__id_text(text, STET__ID_RUN, row->id);
        return stet__fail(STET_ENOTFOUND, "run %s has no facts any more: it was removed meanwhile",
                          text);
    }
    return b->failed ? stet__fail(STET_ENOMEM, "out of memory for a bundle") : err;
}

int
stet__bundle_load(stet_engine *e, stet__buf *b, const stet_run_row *row)
{
    stet_run_row now = *row;
    size_t       from = b->len;
    int          err;

    now.journal -= STET__MUTANT(query_behind) && now.journal > 1;
    err = bundle_load(e, b, &now);

    for (int i = 0; err == STET_ECONFLICT && i < BUNDLE_TRIES_MAX; i++) {
        b->len = from;
        if ((err = e->store->ops->run(e->store, row->id, bundle_on_head, &now)) == STET_OK)
            err = bundle_load(e, b, &now);
    }
    return err;
}
