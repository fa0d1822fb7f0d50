/* A hash map from bytes to pointers: open addressing, linear probing, cap a power of two.
 *
 * Invariants: used <= filled < cap, so a probe always meets a free slot and ends; removed slots
 * count as filled until the next rehash. Only stet__map_put() moves entries; removing never does,
 * which is what lets a loop remove the entry it stands on.
 */
#include "util/util.h"

#define MAP_FIRST_CAP ((size_t)16)

enum { MAP_FREE = 0, MAP_USED = 1, MAP_REMOVED = 2 };

static const uint8_t *
map_key(const stet__map_entry *e)
{
    return e->len <= sizeof e->key.near ? e->key.near : e->key.far;
}

static void
map_key_free(stet__map *m, stet__map_entry *e)
{
    if (e->len > sizeof e->key.near)
        stet__free(m->alloc, e->key.far);
}

void
stet__map_init(stet__map *m, stet__alloc *alloc)
{
    memset(m, 0, sizeof *m);
    m->alloc = alloc;
}

void
stet__map_free(stet__map *m)
{
    size_t i;

    for (i = 0; i < m->cap; i++)
        if (m->slots[i].state == MAP_USED)
            map_key_free(m, &m->slots[i]);
    if (m->slots != NULL)
        stet__free(m->alloc, m->slots);
    stet__map_init(m, m->alloc);
}

static bool
map_is_key(const stet__map_entry *e, uint64_t hash, const void *key, size_t len)
{
    return e->state == MAP_USED && e->hash == hash && e->len == len &&
           (len == 0 || memcmp(map_key(e), key, len) == 0);
}

static stet__map_entry *
map_lookup(const stet__map *m, uint64_t hash, const void *key, size_t len)
{
    size_t i;

    if (m->used == 0)
        return NULL;
    for (i = (size_t)hash & (m->cap - 1); m->slots[i].state != MAP_FREE; i = (i + 1) & (m->cap - 1))
        if (map_is_key(&m->slots[i], hash, key, len))
            return &m->slots[i];
    return NULL;
}

/* Where an absent key goes: the first slot on its way that holds nothing. */
static stet__map_entry *
map_vacancy(stet__map_entry *slots, size_t cap, uint64_t hash)
{
    size_t i = (size_t)hash & (cap - 1);

    while (slots[i].state == MAP_USED)
        i = (i + 1) & (cap - 1);
    return &slots[i];
}

static bool
map_rehash(stet__map *m, size_t cap)
{
    stet__map_entry *slots;
    size_t           i;

    if (cap > SIZE_MAX / sizeof *slots)
        return false;
    if ((slots = stet__get0(m->alloc, cap * sizeof *slots)) == NULL)
        return false;
    for (i = 0; i < m->cap; i++)
        if (m->slots[i].state == MAP_USED)
            *map_vacancy(slots, cap, m->slots[i].hash) = m->slots[i];
    if (m->slots != NULL)
        stet__free(m->alloc, m->slots);
    m->slots = slots;
    m->cap = cap;
    m->filled = m->used;
    return true;
}

/* Room for one more at three quarters full. If half of that are removed ones, sweeping them out is
 * enough; doubling then would let a map that only turns over grow for ever. */
static bool
map_make_room(stet__map *m)
{
    if (m->cap == 0)
        return map_rehash(m, MAP_FIRST_CAP);
    if (m->filled + 1 <= m->cap / 4 * 3)
        return true;
    return map_rehash(m, m->used > m->cap / 8 * 3 ? m->cap * 2 : m->cap);
}

void *
stet__map_find(const stet__map *m, const void *key, size_t len)
{
    stet__map_entry *e = map_lookup(m, stet__hash64(key, len, 0), key, len);

    return e != NULL ? e->value : NULL;
}

static int
map_add(stet__map *m, uint64_t hash, const void *key, size_t len, void *value)
{
    stet__map_entry *e;
    uint8_t         *copy = NULL;
    bool             is_near = len <= sizeof e->key.near;

    if (!map_make_room(m) || (!is_near && (copy = stet__get(m->alloc, len)) == NULL))
        return stet__fail(STET_ENOMEM, "out of memory for one more of %zu entries", m->used);
    e = map_vacancy(m->slots, m->cap, hash);
    if (!is_near)
        e->key.far = copy;
    if (len != 0)
        memcpy(is_near ? e->key.near : copy, key, len);
    if (e->state == MAP_FREE)
        m->filled++;
    e->hash = hash;
    e->value = value;
    e->len = (uint32_t)len;
    e->state = MAP_USED;
    m->used++;
    return STET_OK;
}

int
stet__map_put(stet__map *m, const void *key, size_t len, void *value)
{
    uint64_t         hash;
    stet__map_entry *e;

    if (len > UINT32_MAX)
        return stet__fail(STET_ETOOBIG, "a key of %zu bytes is too long", len);
    hash = stet__hash64(key, len, 0);
    if ((e = map_lookup(m, hash, key, len)) == NULL)
        return map_add(m, hash, key, len, value);
    e->value = value;
    return STET_OK;
}

/* No probe needs a removed slot that is followed by a free one. */
static void
map_reclaim(stet__map *m, size_t i)
{
    size_t mask = m->cap - 1;

    if (m->slots[(i + 1) & mask].state != MAP_FREE)
        return;
    for (; m->slots[i].state == MAP_REMOVED; i = (i - 1) & mask) {
        m->slots[i].state = MAP_FREE;
        m->filled--;
    }
}

void *
stet__map_remove(stet__map *m, const void *key, size_t len)
{
    stet__map_entry *e = map_lookup(m, stet__hash64(key, len, 0), key, len);

    if (e == NULL)
        return NULL;
    map_key_free(m, e); /* `key` may have pointed into it, and is not needed any more */
    e->state = MAP_REMOVED;
    m->used--;
    map_reclaim(m, (size_t)(e - m->slots));
    return e->value;
}

bool
stet__map_next(const stet__map *m, size_t *at, const void **key, size_t *len, void **value)
{
    const stet__map_entry *e;

    while (*at < m->cap) {
        e = &m->slots[(*at)++];
        if (e->state != MAP_USED)
            continue;
        *key = map_key(e);
        *len = e->len;
        *value = e->value;
        return true;
    }
    return false;
}
