/* The hash map, checked against a plain array; iteration, turnover and running out of memory. */
#include "util_fault.h"

#define KEYS 400

/* Some fit into an entry, some do not. */
static size_t
map_key(char key[32], unsigned n)
{
    return (size_t)snprintf(key, 32, n % 3 == 0 ? "key-%u-and-more-of-it" : "key-%u", n);
}

static void
map_check_against(const stet__map *m, void *const *model)
{
    char        text[32];
    const void *key;
    void       *value;
    size_t      len, at = 0, seen = 0, live = 0;
    unsigned    n;

    for (n = 0; n < KEYS; n++) {
        len = map_key(text, n);
        CHECK(stet__map_find(m, text, len) == model[n]);
        live += model[n] != NULL;
    }
    while (stet__map_next(m, &at, &key, &len, &value)) {
        CHECK(len >= 5);
        n = (unsigned)strtoul(
            (snprintf(text, sizeof text, "%.*s", (int)len, (const char *)key), text) + 4, NULL, 10);
        CHECK(n < KEYS && model[n] == value);
        seen++;
    }
    CHECK_INT(seen, live);
    CHECK_INT(m->used, live);
}

TEST(util_map_agrees_with_a_plain_array)
{
    fault_alloc f = fault_new(0);
    void       *model[KEYS] = { NULL };
    static char values[KEYS];
    stet__map   m;
    stet__rng   r;
    char        key[32];
    unsigned    n;
    int         i;

    stet__rng_seed(&r, 7);
    stet__map_init(&m, &f.base);
    for (i = 0; i < 20000; i++) {
        n = (unsigned)(stet__rng_next(&r) % KEYS);
        if (stet__rng_next(&r) % 2) {
            model[n] = &values[stet__rng_next(&r) % KEYS];
            CHECK_OK(stet__map_put(&m, key, map_key(key, n), model[n]));
        } else {
            CHECK(stet__map_remove(&m, key, map_key(key, n)) == model[n]);
            model[n] = NULL;
        }
        if (i % 1000 == 0)
            map_check_against(&m, model);
    }
    map_check_against(&m, model);
    stet__map_free(&m);
    stet__map_free(&m);
    CHECK_INT(f.held, 0);
}

TEST(util_map_turnover_does_not_grow_it)
{
    fault_alloc f = fault_new(0);
    stet__map   m;
    char        key[32];
    unsigned    i;

    stet__map_init(&m, &f.base);
    for (i = 0; i < 20000; i++) {
        CHECK_OK(stet__map_put(&m, key, map_key(key, i), key));
        if (i >= 5)
            CHECK(stet__map_remove(&m, key, map_key(key, i - 5)) == key);
    }
    CHECK_INT(m.cap, 16);
    stet__map_free(&m);
    CHECK_INT(f.held, 0);
}

TEST(util_map_keys_are_bytes_and_copied)
{
    fault_alloc f = fault_new(0);
    stet__map   m;
    char        key[3] = { 'a', '\0', 'b' };
    int         x, y, z;

    stet__map_init(&m, &f.base);
    CHECK(stet__map_find(&m, key, 3) == NULL);
    CHECK(stet__map_remove(&m, key, 3) == NULL);
    CHECK_OK(stet__map_put(&m, key, 3, &x));
    CHECK_OK(stet__map_put(&m, key, 1, &y));
    CHECK_OK(stet__map_put(&m, NULL, 0, &z));
    CHECK(stet__map_find(&m, "a\0b", 3) == &x);
    key[0] = 'q';
    CHECK(stet__map_find(&m, "a\0b", 3) == &x);
    CHECK(stet__map_find(&m, "a", 1) == &y);
    CHECK(stet__map_find(&m, "", 0) == &z);
    CHECK(stet__map_find(&m, "a\0", 2) == NULL);
    stet__map_free(&m);
    CHECK_INT(f.held, 0);
}

TEST(util_map_the_current_entry_may_be_removed)
{
    fault_alloc f = fault_new(0);
    stet__map   m;
    char        text[32];
    const void *key;
    void       *value;
    size_t      len, at = 0, seen = 0;
    unsigned    n;

    stet__map_init(&m, &f.base);
    for (n = 0; n < KEYS; n++)
        CHECK_OK(stet__map_put(&m, text, map_key(text, n), text));
    while (stet__map_next(&m, &at, &key, &len, &value)) {
        CHECK(stet__map_remove(&m, key, len) == text);
        seen++;
    }
    CHECK_INT(seen, KEYS);
    CHECK_INT(m.used, 0);
    stet__map_free(&m);
    CHECK_INT(f.held, 0);
}

TEST(util_map_survives_every_failing_allocation)
{
    stet__map m;
    char      key[32];
    long      n;
    unsigned  i, put;

    for (n = 1; n < 60; n++) {
        fault_alloc f = fault_new(n);

        stet__map_init(&m, &f.base);
        for (put = 0; put < 40; put++)
            if (stet__map_put(&m, key, map_key(key, put), key) != STET_OK)
                break;
        CHECK_INT(put < 40, fault_was_hit(&f));
        CHECK_INT(m.used, put);
        for (i = 0; i < 40; i++)
            CHECK(stet__map_find(&m, key, map_key(key, i)) == (i < put ? key : NULL));
        f.fail_at = 0;
        CHECK_OK(stet__map_put(&m, key, map_key(key, 99), key));
        stet__map_free(&m);
        CHECK_INT(f.held, 0);
    }
}
