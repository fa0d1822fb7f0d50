/* Any text as an ID: no crash, an error has a sentence, and what is accepted is written as it was
 * read. */
#include <stdlib.h>
#include <string.h>

#include "util/util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
fuzz_kind(const char *kind, const char *text)
{
    char    again[STET_ID_TEXT_MAX];
    stet_id id, same;

    if (stet__id_parse(&id, kind, text) != STET_OK) {
        if (stet_last_error()[0] == '\0')
            abort();
        return;
    }
    stet__id_text(again, kind, id);
    if (stet__id_parse(&same, kind, again) != STET_OK || !stet__id_equal(id, same))
        abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char       *text = malloc(size + 1);
    stet_run_id run;

    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    fuzz_kind(STET__ID_RUN, text);
    fuzz_kind(STET__ID_AWAKEABLE, text);
    fuzz_kind(STET__ID_WORKER, text);
    if (stet_run_id_parse(&run, text) == STET_OK)
        fuzz_kind(STET__ID_RUN, run.text);
    free(text);
    return 0;
}
