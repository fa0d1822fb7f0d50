/* Any text into stet_duration_parse(): no crash, and what it accepts comes back through text. */
#include <stdlib.h>
#include <string.h>

#include <stet/base.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char    text[64];
    char   *copy = malloc(size + 1);
    int64_t ms = -1, again = -1;

    if (copy == NULL)
        return 0;
    if (size != 0)
        memcpy(copy, data, size);
    copy[size] = '\0';
    if (stet_duration_parse(&ms, copy) == STET_OK) {
        if (ms < 0)
            abort();
        if (stet_duration_parse(&again, stet_duration_text(text, sizeof text, ms)) != STET_OK)
            abort();
        if (again != ms)
            abort();
    } else if (ms != -1 || stet_last_error()[0] == '\0') {
        abort();
    }
    free(copy);
    return 0;
}
