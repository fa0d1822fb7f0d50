/* Any bytes as JSON: the check does not crash and points inside the text; what it accepts may be
 * printed with %J; and any bytes at all, quoted, are valid. */
#include <stdlib.h>

#include "util/util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *
fuzz_get(stet__alloc *a, void *old, size_t size)
{
    (void)a;
    if (size == 0) {
        free(old);
        return NULL;
    }
    return realloc(old, size);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stet__alloc alloc = { .get = fuzz_get };
    stet_bytes  text = { data, size };
    stet__buf   b;
    size_t      at = size + 1;

    stet__buf_init(&b, &alloc);
    if (!stet__json_valid(text, &at)) {
        if (at > size || stet__json_printf(&b, "%J", text) != STET_EJSON || b.len != 0)
            abort();
    } else if (stet__json_printf(&b, "%J", text) != STET_OK || b.len != size) {
        abort();
    }
    stet__buf_free(&b);

    stet__json_quote(&b, (const char *)data, size);
    if (b.failed || !stet__json_valid(stet__buf_bytes(&b), &at))
        abort();
    stet__buf_free(&b);
    return 0;
}
