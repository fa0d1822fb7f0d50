/* Redis that refuses or answers nonsense: whatever happens to one call, the same handle works
 * again, and every unit is applied once. */
#include <unistd.h>

#include "proxy.h"
#include "redis_server.h"
#include "store_life.h"
#include "test.h"

enum { SPOIL_BYTES_MAX = 400 };

__attribute__((constructor)) static void
answer_server(void)
{
    test_before(redis_server_share);
}

typedef struct answer_world {
    proxy     *proxy;
    proxy_kind kinds[PROXY_KINDS_MAX];
    size_t     n_kinds;
    uint32_t   lives;
    char       url[160], clean[160], where[160];
} answer_world;

static void
answer_live(answer_world *w, store_life *l)
{
    char prefix[48];

    *l = (store_life){ .platform = stet__platform_real(), .url = w->url, .clean = w->clean,
                       .n = ++w->lives, .where = w->where };
    (void)snprintf(prefix, sizeof prefix, "answer_%s_%u", test_unique(), (unsigned)w->lives);
    (void)snprintf(w->url, sizeof w->url, "%s",
                   redis_server_url_at(proxy_port(w->proxy), prefix));
    (void)snprintf(w->clean, sizeof w->clean, "%s", redis_shared_url(prefix));
    store_life_live(l);
}

static void
answer_begin(answer_world *w)
{
    store_life l;

    memset(w, 0, sizeof *w);
    w->proxy = proxy_new_redis((int)strtol(getenv(REDIS_SERVER_ENV), NULL, 10));
    (void)snprintf(w->where, sizeof w->where, "as it should be");
    answer_live(w, &l);
    CHECK_INT(l.failures, 0);
    w->n_kinds = proxy_census(w->proxy, w->kinds);
    CHECK(w->n_kinds > 10);
}

/* ---- other answers --------------------------------------------------------------------------- */

static void
answer_everywhere(answer_world *w, const char *answer)
{
    for (size_t k = 0; k < w->n_kinds; k++) {
        store_life l;

        (void)snprintf(w->where, sizeof w->where, "%.*s to %s", (int)strcspn(answer, "\r"), answer,
                       w->kinds[k].name);
        proxy_answer(w->proxy, answer, strlen(answer));
        proxy_fault_at(w->proxy, PROXY_ANSWER, w->kinds[k].name, 1);
        answer_live(w, &l);
        (void)proxy_calm(w->proxy);
    }
}

TEST_LIMIT(G4_redis_every_command_is_refused_once, 120)
{
    static const char *const errors[] = {
        "-ERR made up by a test\r\n",
        "-OOM command not allowed\r\n",
        "-NOSCRIPT No matching script\r\n",
        "-READONLY You can't write\r\n",
        "-LOADING Redis is loading\r\n",
        "-WRONGTYPE Operation\r\n",
    };
    answer_world w;

    answer_begin(&w);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        answer_everywhere(&w, errors[i]);
    test_note("%u lives", (unsigned)w.lives);
    proxy_free(w.proxy);
}

TEST_LIMIT(G4_redis_every_command_is_answered_with_nonsense_once, 120)
{
    static const char *const nonsense[] = {
        "$-1\r\n", ":7\r\n", "+OK\r\n", "*0\r\n", "$3\r\nabc\r\n", "*1\r\n:1\r\n",
        "*2\r\n:1\r\n:1\r\n", "*2\r\n$1\r\nx\r\n*1\r\n$1\r\nx\r\n",
        "*2\r\n:1\r\n*3\r\n$1\r\nx\r\n$1\r\nx\r\n$1\r\nx\r\n",
    };
    answer_world w;

    answer_begin(&w);
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++)
        answer_everywhere(&w, nonsense[i]);
    test_note("%u lives", (unsigned)w.lives);
    proxy_free(w.proxy);
}

/* One script reads many things: it is asked for each of them, and each request is answered so. */
TEST_LIMIT(G4_redis_every_single_request_is_answered_with_nonsense, 300)
{
    static const char *const nonsense[] = {
        "*2\r\n:1\r\n:1\r\n",
        "$17\r\n0123456789abcdefg\r\n",
        "*2\r\n$-1\r\n*1\r\n$25\r\n0123456789abcdef012345678\r\n",
    };
    answer_world w;

    answer_begin(&w);
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        bool was_there = true;

        for (size_t n = 1; was_there; n += i == 0 ? 1 : 3) {
            store_life l;

            (void)snprintf(w.where, sizeof w.where, "%.*s to request %zu",
                           (int)strcspn(nonsense[i], "\r"), nonsense[i], n);
            proxy_answer(w.proxy, nonsense[i], strlen(nonsense[i]));
            proxy_fault_at(w.proxy, PROXY_ANSWER, NULL, n);
            answer_live(&w, &l);
            was_there = !proxy_calm(w.proxy);
        }
    }
    CHECK(w.lives > 60);
    test_note("%u lives", (unsigned)w.lives);
    proxy_free(w.proxy);
}

/* ---- spoiled ones ---------------------------------------------------------------------------- */

typedef struct answer_spoil {
    size_t at;     /* byte of all the strings of the answer */
    bool   is_cut; /* the string ends there; else the byte is none of its format */
    bool   was_there;
} answer_spoil;

/* The length of what comes before the number, the number, the end of its line. */
static size_t
spoil_line(const uint8_t *at, long *number)
{
    *number = strtol((const char *)at + 1, NULL, 10);
    return (size_t)((const uint8_t *)strchr((const char *)at, '\n') + 1 - at);
}

static size_t
spoil_string(void *arg, uint8_t *bytes, size_t len)
{
    answer_spoil *s = arg;
    size_t        left = s->at, at = 0;

    while (at < len) {
        long   number;
        size_t head = spoil_line(bytes + at, &number);

        if (bytes[at] == '$' && number >= 0 && left < (size_t)number) {
            s->was_there = true;
            if (!s->is_cut) {
                bytes[at + head + left] = 0xc1;
                return len;
            } else {
                size_t rest = at + head + (size_t)number, n;
                char   text[24];

                n = (size_t)snprintf(text, sizeof text, "$%zu\r\n", left);
                memmove(bytes + at + n, bytes + at + head, left);
                memcpy(bytes + at, text, n);
                memmove(bytes + at + n + left, bytes + rest, len - rest);
                return len - (rest - (at + n + left));
            }
        }
        if (bytes[at] == '$' && number >= 0) {
            left -= (size_t)number;
            head += (size_t)number + 2;
        }
        at += head;
    }
    return len;
}

/* STET_FAULT_STRIDE=1: every byte. */
static size_t
spoil_stride(void)
{
    return (size_t)test_count("STET_FAULT_STRIDE", 11);
}

static size_t
spoil_everywhere(answer_world *w, const char *kind, size_t nth, bool is_cut)
{
    answer_spoil s = { .is_cut = is_cut, .was_there = true };
    size_t       n = 0;

    for (s.at = 0; s.was_there && s.at < SPOIL_BYTES_MAX; s.at += spoil_stride()) {
        store_life l;

        (void)snprintf(w->where, sizeof w->where, "%s at byte %zu of the answer to %s",
                       is_cut ? "cut" : "spoiled", s.at, kind);
        s.was_there = false;
        proxy_spoil(w->proxy, spoil_string, &s);
        proxy_fault_at(w->proxy, PROXY_SPOIL, kind, nth);
        answer_live(w, &l);
        (void)proxy_calm(w->proxy);
        n += s.was_there;
    }
    return n;
}

TEST_LIMIT(G4_redis_answers_that_are_cut_or_spoiled_somewhere_harm_nobody, 300)
{
    answer_world w;
    size_t       n = 0;

    answer_begin(&w);
    for (size_t k = 0; k < w.n_kinds; k++) {
        const char *name = w.kinds[k].name;
        size_t      last = w.kinds[k].requests, places[] = { 1, (last + 1) / 2, last };

        if (strcmp(name, "INFO") == 0 || strcmp(name, "SUBSCRIBE") == 0)
            continue; /* text for people, and news without a request */
        for (size_t i = 0; i < 3; i++) {
            if (i > 0 && places[i] <= places[i - 1])
                continue;
            n += spoil_everywhere(&w, name, places[i], true);
            /* The names of a script and of the data are believed. */
            if (strcmp(name, "SCRIPT LOAD") != 0 && strcmp(name, "EVAL") != 0)
                n += spoil_everywhere(&w, name, places[i], false);
        }
    }
    CHECK(n > 50);
    test_note("%zu places in the answers to %zu kinds of request", n, w.n_kinds);
    proxy_free(w.proxy);
}
