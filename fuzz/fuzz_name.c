/* Any text as the name of a service, handler or step, as a status and as a time on the command
 * line: no crash, refusals have a sentence, accepted names fit where names are kept.
 */
#include <stdlib.h>
#include <string.h>

#include <stet/run.h>

#include "cli/cli.h"
#include "util/util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
fuzz_check(int err, const char *text)
{
    if (err == STET_OK ? strlen(text) == 0 || strlen(text) > STET__NAME_MAX
                       : stet_last_error()[0] == '\0')
        abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char       *text = malloc(size + 1);
    stet_status status;
    int64_t     ms;

    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    fuzz_check(stet__name_check("step", text), text);
    fuzz_check(stet__part_check("service", text), text);
    if ((status = stet_status_parse(text)) != 0 && strcmp(stet_status_name(status), text) != 0)
        abort();
    if (stet__cli_time_parse(&ms, text) && ms < 0)
        abort();
    free(text);
    return 0;
}
