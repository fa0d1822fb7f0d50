/* Any bytes as a bundle: no crash, and what is accepted is what it says: rows without gaps, written
 * again it is read again as the same. Its facts then go into a run and its journal.
 *
 * The first byte chooses: the rest as it is, or as sections that get the right frame and checksum
 * around them, which no fuzzer would guess.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/offline.h"

#define FUZZ_BYTES_MAX ((size_t)64 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct fuzz_memory {
    stet__alloc alloc;
    size_t      used;
} fuzz_memory;

static void *
fuzz_get(stet__alloc *a, void *old, size_t size)
{
    fuzz_memory *m = (fuzz_memory *)(void *)a;

    if (size == 0) {
        free(old);
        return NULL;
    }
    if (size > FUZZ_BYTES_MAX - m->used)
        return NULL;
    m->used += size;
    return realloc(old, size);
}

static void
fuzz_rows(const stet__tape_row *rows, size_t n, const uint8_t *from, size_t len)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *at = rows[i].facts.data;

        if (rows[i].first == 0 || rows[i].count == 0 || rows[i].count > rows[i].facts.len)
            abort();
        if (i > 0 && rows[i].first != rows[i - 1].first + rows[i - 1].count)
            abort();
        if (at < from || rows[i].facts.len > len - (size_t)(at - from))
            abort();
    }
}

static void
fuzz_again(stet__alloc *alloc, const stet__tape *tape)
{
    stet__arena arena;
    stet__buf   b;
    stet__tape  again;

    stet__arena_init(&arena, alloc);
    stet__buf_init(&b, alloc);
    stet__bundle_begin(&b, tape->run, tape->status, tape->revision, tape->exported_ms);
    for (size_t i = 0; i < tape->n_inbox; i++)
        stet__bundle_inbox(&b, tape->inbox[i].first, tape->inbox[i].facts);
    for (size_t i = 0; i < tape->n_journal; i++)
        stet__bundle_journal(&b, tape->journal[i].first, tape->journal[i].count,
                             tape->journal[i].facts);
    stet__bundle_end(&b, 0);
    if (!b.failed) {
        int err = stet__bundle_decode(&again, &arena, stet__buf_bytes(&b));

        if (err != STET_OK && err != STET_ENOMEM)
            abort();
        if (err == STET_OK &&
            (again.n_journal != tape->n_journal || again.n_inbox != tape->n_inbox ||
             again.revision != tape->revision || !stet__id_equal(again.run, tape->run)))
            abort();
    }
    stet__buf_free(&b);
    stet__arena_free(&arena);
}

static void
fuzz_load(stet__alloc *alloc, const stet__tape *tape)
{
    stet__arena   arena;
    stet__run     run;
    stet__journal journal;
    uint64_t      bad;
    int           err;

    stet__arena_init(&arena, alloc);
    stet__run_init(&run, &arena, tape->run);
    stet__journal_init(&journal, &arena, alloc);
    err = stet__load_tape(alloc, &run, &journal, tape, &bad);
    if (err == STET_OK && run.journal < tape->revision)
        abort();
    if (err != STET_OK && (err != STET_ECORRUPT && err != STET_ENOMEM))
        abort();
    stet__journal_free(&journal);
    stet__arena_free(&arena);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_memory      memory = { { .get = fuzz_get }, 0 };
    stet__buf        framed;
    stet__arena      arena;
    stet__tape       tape;
    stet_bundle_info info;
    stet_bytes       in = { data, size };
    int              err;

    if (size == 0)
        return 0;
    stet__buf_init(&framed, &memory.alloc);
    stet__arena_init(&arena, &memory.alloc);
    in.data = data + 1;
    in.len--;
    if (data[0] % 2 != 0) {
        stet__buf_str(&framed, "stetrun\n");
        stet__buf_byte(&framed, 1);
        stet__buf_add(&framed, in.data, in.len);
        stet__bundle_end(&framed, 0);
        in = stet__buf_bytes(&framed);
    }
    err = framed.failed ? STET_ENOMEM : stet__bundle_decode(&tape, &arena, in);
    if (err == STET_OK) {
        if (tape.n_journal == 0 || stet__id_is_zero(tape.run))
            abort();
        fuzz_rows(tape.journal, tape.n_journal, in.data, in.len);
        fuzz_rows(tape.inbox, tape.n_inbox, in.data, in.len);
        fuzz_again(&memory.alloc, &tape);
        fuzz_load(&memory.alloc, &tape);
        (void)stet_bundle_read(&info, in);
    } else if (err != STET_ENOMEM && stet_last_error()[0] == '\0')
        abort();
    stet__arena_free(&arena);
    stet__buf_free(&framed);
    return 0;
}
