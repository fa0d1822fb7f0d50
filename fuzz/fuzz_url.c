/* Any text as the address of a store: no crash, an error has a sentence, and nothing is left behind.
 *
 * Only an address that surely names no file is opened as it is: a scheme of two characters or more that
 * is not SQLite's. Everything else is put behind a directory that does not exist, so that nothing is ever
 * created wherever this runs.
 */
#include <stdlib.h>
#include <string.h>

#include "store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool
fuzz_names_no_file(const char *address)
{
    size_t len = strspn(address, "abcdefghijklmnopqrstuvwxyz0123456789+-");

    return len > 1 && address[len] == ':' && strncmp(address, "sqlite:", 7) != 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char before[] = "sqlite:./no-such-directory/x";
    char             *address = malloc(sizeof before + size);
    stet_store       *store = NULL;

    if (address == NULL)
        return 0;
    if (size > 0)
        memcpy(address, data, size);
    address[size] = '\0';
    if (!fuzz_names_no_file(address)) {
        memcpy(address, before, sizeof before - 1);
        if (size > 0)
            memcpy(address + sizeof before - 1, data, size);
        address[sizeof before - 1 + size] = '\0';
    }
    if (stet__store_open(&store, stet__platform_real(), address) != STET_OK && (store != NULL || stet_last_error()[0] == '\0'))
        abort();
    stet__store_close(store);
    free(address);
    return 0;
}
