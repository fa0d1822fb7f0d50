/* See redis_proxy.h. One thread polls all connections; nothing is kept but what one read gives. */
#include "redis_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"

#define PROXY_PAIRS 32

typedef struct proxy_pair {
    int  client, server; /* -1: free */
    bool is_losing;      /* the next answer */
} proxy_pair;

struct redis_proxy {
    int          listener, port, server_port;
    pthread_t    thread;
    _Atomic bool is_over, is_hit;
    _Atomic int  left, cut; /* pieces until one is cut; 0: none is */
    proxy_pair   pairs[PROXY_PAIRS];
    char         bytes[65536];
};

static void
pair_close(proxy_pair *pair)
{
    close(pair->client);
    close(pair->server);
    pair->client = pair->server = -1;
}

static bool
proxy_write(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t done = send(fd, bytes, len, MSG_NOSIGNAL);

        if (done <= 0)
            return false;
        bytes += done;
        len -= (size_t)done;
    }
    return true;
}

static void
proxy_accept(redis_proxy *p)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)p->server_port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int                client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC), one = 1;
    proxy_pair        *pair = p->pairs;

    while (pair < p->pairs + PROXY_PAIRS && pair->client >= 0)
        pair++;
    if (client < 0)
        return;
    if (pair == p->pairs + PROXY_PAIRS) {
        close(client);
        return;
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    pair->is_losing = false;
    pair->client = client;
    pair->server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(pair->server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(pair->server, (struct sockaddr *)&at, sizeof at) != 0)
        pair_close(pair);
}

static void
proxy_from_client(redis_proxy *p, proxy_pair *pair)
{
    ssize_t len = read(pair->client, p->bytes, sizeof p->bytes);
    bool    is_cut = len > 0 && atomic_load(&p->left) > 0 && atomic_fetch_sub(&p->left, 1) == 1;

    if (is_cut) {
        atomic_store(&p->is_hit, true);
        pair->is_losing = atomic_load(&p->cut) == REDIS_CUT_ANSWER;
    }
    if (len <= 0 || (is_cut && !pair->is_losing) ||
        !proxy_write(pair->server, p->bytes, (size_t)len))
        pair_close(pair);
}

static void
proxy_from_server(redis_proxy *p, proxy_pair *pair)
{
    ssize_t len = read(pair->server, p->bytes, sizeof p->bytes);

    if (len <= 0 || pair->is_losing || !proxy_write(pair->client, p->bytes, (size_t)len))
        pair_close(pair);
}

static void *
proxy_main(void *arg)
{
    redis_proxy  *p = arg;
    struct pollfd at[1 + 2 * PROXY_PAIRS];

    while (!atomic_load(&p->is_over)) {
        at[0] = (struct pollfd){ .fd = p->listener, .events = POLLIN };
        for (int i = 0; i < PROXY_PAIRS; i++) {
            at[1 + 2 * i] = (struct pollfd){ .fd = p->pairs[i].client, .events = POLLIN };
            at[2 + 2 * i] = (struct pollfd){ .fd = p->pairs[i].server, .events = POLLIN };
        }
        if (poll(at, 1 + 2 * PROXY_PAIRS, 20) <= 0)
            continue;
        for (int i = 0; i < PROXY_PAIRS; i++) {
            if (p->pairs[i].client >= 0 && at[1 + 2 * i].revents != 0)
                proxy_from_client(p, &p->pairs[i]);
            if (p->pairs[i].client >= 0 && at[2 + 2 * i].revents != 0)
                proxy_from_server(p, &p->pairs[i]);
        }
        if (at[0].revents != 0)
            proxy_accept(p);
    }
    return NULL;
}

redis_proxy *
redis_proxy_new(int server_port)
{
    redis_proxy       *p = calloc(1, sizeof *p);
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          len = sizeof at;

    CHECK(p != NULL);
    p->server_port = server_port;
    for (int i = 0; i < PROXY_PAIRS; i++)
        p->pairs[i].client = p->pairs[i].server = -1;
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(p->listener >= 0 && bind(p->listener, (struct sockaddr *)&at, len) == 0 &&
          listen(p->listener, 16) == 0 &&
          getsockname(p->listener, (struct sockaddr *)&at, &len) == 0);
    p->port = ntohs(at.sin_port);
    CHECK_INT(pthread_create(&p->thread, NULL, proxy_main, p), 0);
    return p;
}

void
redis_proxy_free(redis_proxy *p)
{
    atomic_store(&p->is_over, true);
    pthread_join(p->thread, NULL);
    for (int i = 0; i < PROXY_PAIRS; i++)
        if (p->pairs[i].client >= 0)
            pair_close(&p->pairs[i]);
    close(p->listener);
    free(p);
}

int
redis_proxy_port(const redis_proxy *p)
{
    return p->port;
}

void
redis_proxy_arm(redis_proxy *p, redis_cut cut, int n)
{
    atomic_store(&p->is_hit, false);
    atomic_store(&p->cut, (int)cut);
    atomic_store(&p->left, n);
}

bool
redis_proxy_is_hit(const redis_proxy *p)
{
    return atomic_load(&p->is_hit);
}
