/* A hint as bytes: "sh", version, kind, sender, run, time, and the handler's name to the end.
 *
 * Anybody may send anything, a newer stet too. So reading cannot fail: what is too short, too long,
 * or of another version or kind is STET_HINT_ANY, and every field is checked before it is used.
 */
#include <string.h>

#include "queue/queue.h"

#define WIRE_VERSION 1u
#define WIRE_HEAD    44u /* all but the name */

size_t
stet__hint_encode(uint8_t out[STET__HINT_BYTES_MAX], stet_id from, const stet_hint *hint)
{
    size_t len = strnlen(hint->handler, sizeof hint->handler - 1);

    out[0] = 's';
    out[1] = 'h';
    out[2] = WIRE_VERSION;
    out[3] = (uint8_t)hint->kind;
    memcpy(out + 4, from.bytes, 16);
    memcpy(out + 20, hint->run.bytes, 16);
    for (size_t i = 0; i < 8; i++)
        out[36 + i] = (uint8_t)((uint64_t)hint->time_ms >> (8 * i));
    memcpy(out + WIRE_HEAD, hint->handler, len);
    return WIRE_HEAD + len;
}

/* A name is told to others and compared with ours: nothing but what names are made of. */
static bool
wire_name(char *out, const uint8_t *bytes, size_t len)
{
    if (len >= STET_HINT_HANDLER_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if (bytes[i] < ' ' || bytes[i] > '~')
            return false;
    memcpy(out, bytes, len);
    out[len] = '\0';
    return true;
}

void
stet__hint_decode(stet_hint *hint, stet_id *from, const void *data, size_t len)
{
    const uint8_t *bytes = data;

    memset(hint, 0, sizeof *hint);
    memset(from, 0, sizeof *from);
    if (len < WIRE_HEAD || bytes[0] != 's' || bytes[1] != 'h')
        return;
    memcpy(from->bytes, bytes + 4, 16); /* of every version, so that nobody hears himself */
    if (bytes[2] != WIRE_VERSION || bytes[3] > STET_HINT_TIMER ||
        !wire_name(hint->handler, bytes + WIRE_HEAD, len - WIRE_HEAD))
        return;
    hint->kind = (stet_hint_kind)bytes[3];
    memcpy(hint->run.bytes, bytes + 20, 16);
    hint->time_ms = (int64_t)stet__load_u64(bytes + 36);
    if (hint->time_ms < 0)
        hint->time_ms = 0;
}

bool
stet__hint_equal(const stet_hint *a, const stet_hint *b)
{
    return a->kind == b->kind && a->time_ms == b->time_ms &&
           memcmp(a->run.bytes, b->run.bytes, sizeof a->run.bytes) == 0 &&
           strcmp(a->handler, b->handler) == 0;
}
