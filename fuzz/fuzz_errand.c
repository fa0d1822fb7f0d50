/* Any bytes as what a child tells of a replay or a handler's operations (the child may die in the middle of it): no
 * crash, and what is understood survives writing and reading again.
 *
 * The first byte chooses reports or operations, and whether the bytes are taken as they are or get the frame of a
 * fact around them (or no random bytes would ever get past its checksum).
 */
#include <stdlib.h>
#include <string.h>

#include "engine/offline.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static stet__alloc *
fuzz_alloc(void)
{
    return &stet__platform_real()->alloc;
}

static bool
fuzz_same(const char *a, const char *b)
{
    return (a == NULL) == (b == NULL) && (a == NULL || strcmp(a, b) == 0);
}

static bool
fuzz_same_bytes(stet_bytes a, stet_bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static void
fuzz_report(const stet_replay_report *r, stet__arena *arena)
{
    stet_replay_report again;
    stet__buf          b;
    stet_bytes         in;

    stet__buf_init(&b, fuzz_alloc());
    stet__report_encode(&b, r);
    in = stet__buf_bytes(&b);
    if (b.failed || stet__report_decode(&again, arena, &in) != STET_OK || in.len != 0 ||
        !fuzz_same(r->run, again.run) || !fuzz_same(r->handler, again.handler) ||
        !fuzz_same(r->recorded, again.recorded) || !fuzz_same(r->asked, again.asked) ||
        !fuzz_same(r->where, again.where) || !fuzz_same(r->text, again.text) ||
        r->end != again.end || r->status != again.status || r->is_fine != again.is_fine ||
        r->operations != again.operations || r->assumed != again.assumed || r->code != again.code)
        abort();
    stet__buf_free(&b);
}

static void
fuzz_operation(const stet_operation *op, stet__arena *arena)
{
    stet_operation again;
    stet__buf      b;
    stet_bytes     in;

    stet__buf_init(&b, fuzz_alloc());
    stet__operation_encode(&b, op);
    in = stet__buf_bytes(&b);
    if (b.failed || stet__operation_decode(&again, arena, &in) != STET_OK || in.len != 0 ||
        !fuzz_same(op->kind, again.kind) || !fuzz_same(op->shape, again.shape) ||
        !fuzz_same(op->name, again.name) || !fuzz_same(op->where, again.where) ||
        !fuzz_same(op->text, again.text) || !fuzz_same(op->key, again.key) ||
        !fuzz_same_bytes(op->value, again.value) ||
        !fuzz_same_bytes(op->branches, again.branches) || op->occurrence != again.occurrence ||
        op->code != again.code || op->duration_ms != again.duration_ms ||
        op->timeout_ms != again.timeout_ms || op->attempts != again.attempts ||
        op->is_recorded != again.is_recorded || op->is_settled != again.is_settled ||
        op->is_parallel != again.is_parallel || op->is_transaction != again.is_transaction ||
        op->has_undo != again.has_undo || op->has_default != again.has_default)
        abort();
    stet__buf_free(&b);
}

/* One behind the other, as check.c and describe.c read them: up to the first that is not whole. */
static void
fuzz_read(bool is_report, stet_bytes in)
{
    stet_replay_report report;
    stet_operation     op;
    stet__arena        arena;
    size_t             before;
    int                err;

    stet__arena_init(&arena, fuzz_alloc());
    do {
        before = in.len;
        err = is_report ? stet__report_decode(&report, &arena, &in)
                        : stet__operation_decode(&op, &arena, &in);
        if (err == STET_OK && in.len >= before) /* it must move on */
            abort();
        if (err == STET_OK && is_report)
            fuzz_report(&report, &arena);
        else if (err == STET_OK)
            fuzz_operation(&op, &arena);
        else if (err != STET_END && stet_last_error()[0] == '\0')
            abort();
    } while (err == STET_OK);
    stet__arena_free(&arena);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stet__buf b;

    if (size == 0)
        return 0;
    stet__buf_init(&b, fuzz_alloc());
    if (data[0] & 2) {
        stet__buf_varint(&b, size - 1 + 4);
        stet__buf_add(&b, data + 1, size - 1);
        stet__buf_u32(&b, stet__crc32c(0, b.data, b.len));
    } else {
        stet__buf_add(&b, data + 1, size - 1);
    }
    fuzz_read(data[0] & 1, stet__buf_bytes(&b));
    stet__buf_free(&b);
    return 0;
}
