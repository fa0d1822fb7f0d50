/* Any bytes as what a worker says about itself in the store: no crash, no missing text. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stet_session_row row = { .session = 1, .info = { data, size } };
    stet_worker_info info;
    stet__arena      arena;

    stet__arena_init(&arena, &stet__platform_real()->alloc);
    stet__info_decode(&info, &arena, &row);
    if (info.id == NULL || info.name == NULL || info.host == NULL || info.handlers == NULL)
        abort();
    if (strlen(info.name) > size || strlen(info.host) > size || strlen(info.handlers) > size)
        abort();
    stet__arena_free(&arena);
    return 0;
}
