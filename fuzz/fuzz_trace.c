/* Any text as a traceparent or a tracestate: no crash, and what a run hands on of a legal one is legal, of the same
 * trace and with the same flags.
 */
#include <stdlib.h>
#include <string.h>

#include "core/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1); /* of exactly this size, so that a byte read behind it is seen */
    char  next[STET__TRACEPARENT_LEN + 1];
    stet_id run = { { 0 } };

    if (text == NULL)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    memcpy(run.bytes, data, size < sizeof run.bytes ? size : sizeof run.bytes);
    (void)stet__tracestate_is_legal(text);
    if (stet__traceparent_is_legal(text)) {
        stet__traceparent_of(next, text, run);
        if (!stet__traceparent_is_legal(next) || strlen(next) != STET__TRACEPARENT_LEN ||
            strncmp(next, "00-", 3) != 0 || memcmp(next + 3, text + 3, 32) != 0 ||
            memcmp(next + 53, text + 53, 2) != 0)
            abort();
    }
    free(text);
    return 0;
}
