/* Any text as the address of a store: no crash, an error has a sentence, and nothing is left behind.
 *
 * Only an address that surely names no file and no server is opened as it is: a scheme of two characters or more
 * that is no store's but memory's. Everything else is put behind a directory that does not exist, so that nothing is
 * ever created or connected to wherever this runs; the addresses of servers have fuzzers of their own.
 */
#include "secret.h"
#include "store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool
fuzz_names_nothing(const char *address)
{
    static const char *const stores[] = { "sqlite:", "postgres:", "postgresql:", "redis:" };
    size_t                   len = strspn(address, "abcdefghijklmnopqrstuvwxyz0123456789+-");

    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++)
        if (strncmp(address, stores[i], strlen(stores[i])) == 0)
            return false;
    return len > 1 && address[len] == ':';
}

/* An address as logs show it, of any scheme. In a password that has the address of a queue in it the secret is a host, for
 * all that anybody can tell. */
static void
fuzz_shown(const uint8_t *data, size_t size)
{
    char *address = fuzz_address("postgre:", data, size), shown[256];

    if (address != NULL && strstr(address, "queue=") == NULL)
        fuzz_is_silent(stet__store_shown(shown, sizeof shown, address));
    free(address);
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
    if (!fuzz_names_nothing(address)) {
        memcpy(address, before, sizeof before - 1);
        if (size > 0)
            memcpy(address + sizeof before - 1, data, size);
        address[sizeof before - 1 + size] = '\0';
    }
    if (stet__store_open(&store, stet__platform_real(), address) != STET_OK && (store != NULL || stet_last_error()[0] == '\0'))
        abort();
    stet__store_close(store);
    free(address);
    fuzz_shown(data, size);
    return 0;
}
