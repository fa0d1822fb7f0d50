/* Any text as the address of a PostgreSQL store: no crash, an error has a sentence, and neither it nor the name of the
 * store has the password. Nothing is asked of the network.
 */
#include "secret.h"
#include "store/postgres.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stet__platform *p = stet__platform_real();
    pg_store       *st = calloc(1, sizeof *st);
    char           *address = fuzz_address("", data, size);
    int             err;

    if (st == NULL)
        abort();
    if (address == NULL)
        goto done;
    st->base.platform = p;
    st->base.alloc = &p->alloc;
    err = stet__pg_url_parse(st, address);
    if (err != STET_OK && (err != STET_EURL || stet_last_error()[0] == '\0'))
        abort();
    if (err == STET_OK && (st->options == NULL || st->schema[0] == '\0' || st->connect_ms < 1000 ||
                           st->answer_ms < 1000))
        abort();
    if (err != STET_OK)
        fuzz_is_silent(stet_last_error());
    fuzz_is_silent(st->name);
    stet__pg_url_free(st);
done:
    free(address);
    free(st);
    return 0;
}
