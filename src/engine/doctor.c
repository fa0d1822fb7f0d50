/* The storage doctor: what the store says is wrong with the place its data are in, told in the log
 * when the engine starts and whenever it changes.
 *
 * Runs on: who starts the engine, then the keeper. No lock held: a store may ask its server.
 */
#include "engine/engine.h"

typedef struct doctor_round {
    stet_engine *e;
    uint64_t     hash;
    bool         is_telling;
} doctor_round;

static int
doctor_on_sentence(void *arg, const char *sentence)
{
    doctor_round *r = arg;

    r->hash = stet__hash64(sentence, strlen(sentence), r->hash + 1);
    if (r->is_telling)
        stet__log(r->e, STET_LOG_WARN, NULL, NULL, NULL, STET_ECONFIG, "the store: %s", sentence);
    return STET_OK;
}

void
stet__doctor_ask(stet_engine *e)
{
    doctor_round r = { .e = e };

    if (e->store->ops->doctor == NULL ||
        e->store->ops->doctor(e->store, doctor_on_sentence, &r) != STET_OK ||
        r.hash == e->doctor_hash)
        return;
    e->doctor_hash = r.hash;
    r.is_telling = true;
    if (r.hash == 0)
        stet__log(e, STET_LOG_INFO, NULL, NULL, NULL, STET_OK,
                  "the store: nothing is wrong with it any more");
    else
        (void)e->store->ops->doctor(e->store, doctor_on_sentence, &r);
}
