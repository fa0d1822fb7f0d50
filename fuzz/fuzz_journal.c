/* Any sequence of facts into a run and its journal, then any questions: no crash, a refused fact changes
 * nothing that is counted, and what is counted is there.
 *
 * The bytes are pieces of a length and a body; each body becomes a record with the right checksum. Memory
 * is bounded by an allocator that says no, which is tried out along the way.
 */
#include <stdlib.h>
#include <string.h>

#include "core/journal.h"
#include "core/run.h"

#define FUZZ_BYTES_MAX ((size_t)64 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the handler must still ask for is only counted exactly while all was recorded before the first
 * question, and until the first contradiction, which stops a run. */
typedef struct fuzz_life {
    stet__run     run;
    stet__journal journal;
    bool          has_asked, is_exact;
} fuzz_life;

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
fuzz_apply(fuzz_life *life, const stet__fact *fact)
{
    stet__run  *run = &life->run;
    stet_status before = run->status;
    uint64_t    revision = run->journal;
    int         err;

    if (fact->kind >= STET__FACT_TIMER && fact->kind <= STET__FACT_UNSTICK)
        err = stet__run_apply_inbox(run, fact);
    else
        err = stet__run_apply(run, fact);
    if (err == STET_ECORRUPT && (run->status != before || run->journal != revision || stet_last_error()[0] == '\0'))
        abort();
    if (err == STET_OK && stet_status_is_terminal(before))
        abort();
    if (err == STET_OK && (err = stet__journal_apply(&life->journal, fact)) != STET_OK && err != STET_ECORRUPT && err != STET_ENOMEM)
        abort();
    life->is_exact = life->is_exact && !life->has_asked && err != STET_ENOMEM;
}

static void
fuzz_ask(fuzz_life *life, const stet__fact *fact)
{
    stet__journal   *journal = &life->journal;
    char             name[64] = "";
    size_t           len = fact->name.len < sizeof name - 1 ? fact->name.len : sizeof name - 1;
    const stet__cmd *recorded;
    stet__cmd       *cmd;
    uint64_t         occurrence;
    int              err;

    if (len > 0)
        memcpy(name, fact->name.data, len);
    (void)stet__journal_peek(journal, fact->kind, name);
    err = stet__journal_ask(journal, fact->kind, name, fact->fingerprint, &cmd, &occurrence, &recorded);
    if (err == STET_EREPLAY ? recorded == NULL : err != STET_OK && err != STET_ENOMEM)
        abort();
    life->has_asked = true;
    life->is_exact = life->is_exact && err == STET_OK;
    if (err == STET_OK && cmd != NULL && (cmd->occurrence != occurrence || !cmd->is_asked))
        abort();
}

static void
fuzz_piece(fuzz_life *life, stet_bytes body, bool is_question)
{
    stet__fact fact;
    stet__buf  b;
    stet_bytes in;

    stet__buf_init(&b, life->journal.rows.alloc);
    stet__buf_varint(&b, body.len + 4);
    stet__buf_add(&b, body.data, body.len);
    stet__buf_u32(&b, stet__crc32c(0, b.data, b.len));
    in = stet__buf_bytes(&b);
    if (!b.failed && stet__fact_decode(&fact, &in) == STET_OK) {
        fact.revision = life->run.journal + 1;
        if (is_question)
            fuzz_ask(life, &fact);
        else
            fuzz_apply(life, &fact);
    }
    stet__buf_free(&b);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_memory memory = { { fuzz_get }, 0 };
    fuzz_life   life = { .is_exact = true };
    stet_bytes  in = { data, size }, body;
    stet__arena arena;
    uint8_t     len;

    stet__arena_init(&arena, &memory.alloc);
    stet__run_init(&life.run, &arena, (stet_id){ { 1 } });
    stet__journal_init(&life.journal, &arena, &memory.alloc);
    while (stet__read_byte(&in, &len)) {
        size_t n = len & 0x7Fu;

        if (!stet__read_bytes(&in, n < in.len ? n : in.len, &body))
            break;
        fuzz_piece(&life, body, (len & 0x80u) != 0);
    }
    if (life.is_exact && (stet__journal_unasked(&life.journal) != NULL) != (life.journal.unasked > 0))
        abort();
    (void)stet__run_attempt(&life.run);
    (void)stet__run_answer(&life.run);
    (void)stet__run_is_at_risk(&life.run, "step", 1, false);
    (void)stet__backoff_ms(&life.run.retry, life.run.failed + 1, (uint64_t)life.run.created_ms);
    stet__journal_free(&life.journal);
    stet__arena_free(&arena);
    return 0;
}
