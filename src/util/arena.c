/* Many small things with one life: taken one behind the other from chunks, given back together.
 *
 * Only the newest chunk is taken from; what is left in an older one is wasted. So marks nest: all
 * that came after a mark lies behind it in its chunk or in newer chunks. Chunks double in size up
 * to a bound, so a small arena stays small and a large one asks the allocator rarely.
 */
#include <stdio.h>

#include "util/util.h"

#define ARENA_FIRST_BYTES     ((size_t)1024)
#define ARENA_CHUNK_BYTES_MAX ((size_t)64 * 1024)

void
stet__arena_init(stet__arena *a, stet__alloc *alloc)
{
    a->alloc = alloc;
    a->chunks = NULL;
}

void
stet__arena_free(stet__arena *a)
{
    stet__arena_mark start = { NULL, 0 };

    stet__arena_release(a, start);
}

void
stet__arena_reuse(stet__arena *a, size_t bytes_max)
{
    stet__arena_chunk *kept = a->chunks;

    if (kept == NULL || kept->size > bytes_max) {
        stet__arena_free(a);
        return;
    }
    a->chunks = kept->older;
    stet__arena_free(a);
    kept->older = NULL;
    kept->used = 0;
    a->chunks = kept;
}

/* With the chunk's head a multiple of 1 KiB, which suits the allocators. */
static size_t
arena_next_size(const stet__arena *a)
{
    size_t whole = ARENA_FIRST_BYTES;

    if (a->alloc->is_tight)
        return 0;
    if (a->chunks != NULL)
        whole = (a->chunks->size + sizeof(stet__arena_chunk)) * 2;
    if (whole > ARENA_CHUNK_BYTES_MAX)
        whole = ARENA_CHUNK_BYTES_MAX;
    return whole - sizeof(stet__arena_chunk);
}

void *
stet__arena_get_new(stet__arena *a, size_t size)
{
    stet__arena_chunk *c;
    size_t             space = arena_next_size(a);

    if (size > SIZE_MAX / 2)
        return NULL;
    size = (size + 15) & ~(size_t)15;
    if (space < size)
        space = size;
    if ((c = stet__get(a->alloc, sizeof *c + space)) == NULL)
        return NULL;
    c->older = a->chunks;
    c->size = space;
    c->used = size;
    a->chunks = c;
    return c->space;
}

void *
stet__arena_get0(stet__arena *a, size_t size)
{
    void *p = stet__arena_get(a, size);

    if (p != NULL)
        memset(p, 0, size);
    return p;
}

void *
stet__arena_copy(stet__arena *a, const void *data, size_t len)
{
    uint8_t *copy = len < SIZE_MAX ? stet__arena_get(a, len + 1) : NULL;

    if (copy == NULL)
        return NULL;
    if (len != 0)
        memcpy(copy, data, len);
    copy[len] = '\0';
    return copy;
}

char *
stet__arena_str(stet__arena *a, const char *text)
{
    return text != NULL ? stet__arena_copy(a, text, strlen(text)) : NULL;
}

/* Print into the room there is; only when that is too small, get more and print again. */
char *
stet__arena_printf(stet__arena *a, const char *fmt, ...)
{
    stet__arena_chunk *c = a->chunks;
    size_t             room = c != NULL ? c->size - c->used : 0;
    va_list            args;
    char              *text;
    int                printed;

    va_start(args, fmt);
    printed = vsnprintf(room ? (char *)c->space + c->used : NULL, room, fmt, args);
    va_end(args);
    if (printed < 0 || (text = stet__arena_get(a, (size_t)printed + 1)) == NULL)
        return NULL;
    if ((size_t)printed >= room) {
        va_start(args, fmt);
        (void)vsnprintf(text, (size_t)printed + 1, fmt, args);
        va_end(args);
    }
    return text;
}

stet__arena_mark
stet__arena_mark_get(stet__arena *a)
{
    stet__arena_mark mark = { a->chunks, a->chunks != NULL ? a->chunks->used : 0 };

    return mark;
}

void
stet__arena_release(stet__arena *a, stet__arena_mark mark)
{
    stet__arena_chunk *c;

    while ((c = a->chunks) != mark.chunk) {
        a->chunks = c->older;
        stet__free(a->alloc, c);
    }
    if (c != NULL)
        c->used = mark.used;
}
