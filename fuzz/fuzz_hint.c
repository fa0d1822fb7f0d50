/* Any bytes as a hint, and as the address of a queue: no crash, and what comes out is whole. An address is only
 * understood, nothing is asked of the network.
 */
#include "secret.h"

#include "engine/engine.h"
#include "queue/queue.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
fuzz_wire(const uint8_t *data, size_t size)
{
    uint8_t   bytes[STET__HINT_BYTES_MAX];
    stet_hint hint, again;
    stet_id   from, from_again;

    stet__hint_decode(&hint, &from, data, size);
    if ((int)hint.kind > STET_HINT_TIMER || hint.time_ms < 0 ||
        memchr(hint.handler, '\0', sizeof hint.handler) == NULL)
        abort();
    stet__hint_decode(&again, &from_again, bytes, stet__hint_encode(bytes, from, &hint));
    if (!stet__hint_equal(&hint, &again) || !stet__id_equal(from, from_again))
        abort();
}

static void
fuzz_open(const char *text)
{
    stet__platform  *p = stet__platform_real();
    stet__hint_setup setup = { 0 };
    stet_hint_port  *port;
    char            *store, *queue;

    if (stet__hint_split(p, text, &store, &queue) == STET_OK) {
        if (strlen(store) + (queue != NULL ? strlen(queue) : 0) > strlen(text))
            abort();
        stet__free(&p->alloc, store);
        stet__hint_wipe(p, queue);
    }
    if (stet__hint_open(&port, p, text, &setup) == STET_OK)
        stet__hint_close(port);
    else if (port != NULL || stet_last_error()[0] == '\0')
        abort();
    else
        fuzz_is_silent(stet_last_error());
}

/* A broker's address whose password is known: it is told nowhere. */
static void
fuzz_broker(const uint8_t *data, size_t size)
{
    char *address = fuzz_address("amqp:", data, size);

    if (address != NULL)
        fuzz_open(address);
    free(address);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    fuzz_wire(data, size);
    if (strstr(text, FUZZ_SECRET) == NULL)
        fuzz_open(text);
    fuzz_broker(data, size);
    free(text);
    return 0;
}
