/* Any "name NUL value" into stet_options_set(): no crash; what is accepted is inside the table's
 * limits, what is not changes nothing and has a sentence.
 */
#include <stdlib.h>
#include <string.h>

#include <stet/engine.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
fuzz_set(const char *name, const char *value)
{
    stet_options before, after;

    memset(&before, 0, sizeof before);
    stet_options_init(&before);
    memcpy(&after, &before, sizeof after);
    if (stet_options_set(&after, name, value) != STET_OK &&
        (memcmp(&before, &after, sizeof after) != 0 || stet_last_error()[0] == '\0'))
        abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const stet_config_item *item;
    char                   *text = calloc(1, size + 2);

    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    fuzz_set(text, text + strlen(text) + 1);
    /* Names are hard to guess: the value for each of them. */
    for (size_t i = 0; (item = stet_config_at(i)) != NULL; i++)
        fuzz_set(item->name, text);
    free(text);
    return 0;
}
