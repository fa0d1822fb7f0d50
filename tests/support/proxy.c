/* See proxy.h. One thread polls all connections; nothing is buffered but what one read gives. */
#include "proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "test.h"

#define PROXY_PAIRS 32
#define PROXY_BYTES 65536

typedef struct proxy_pair {
    int  client, server; /* -1: free */
    bool is_losing;      /* the answer */
    bool is_hanging;
} proxy_pair;

struct proxy {
    int             listener, port;
    char            socket[108]; /* of the server */
    pthread_t       thread;
    pthread_mutex_t lock;
    proxy_fault     fault;
    char            part[64];
    _Atomic int     faults;
    _Atomic bool    is_over, is_pool;
    proxy_pair      pairs[PROXY_PAIRS];
    uint8_t         bytes[PROXY_BYTES];
};

static void
pair_close(proxy_pair *pair)
{
    close(pair->client);
    close(pair->server);
    pair->client = pair->server = -1;
}

static bool
proxy_write(int fd, const uint8_t *bytes, size_t len)
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
proxy_accept(proxy *p)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int                client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC), one = 1;

    if (client < 0)
        return;
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (proxy_pair *pair = p->pairs; pair < p->pairs + PROXY_PAIRS; pair++) {
        if (pair->client >= 0)
            continue;
        pair->is_losing = pair->is_hanging = false;
        pair->client = client;
        pair->server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        memcpy(at.sun_path, p->socket, sizeof at.sun_path);
        if (connect(pair->server, (struct sockaddr *)&at, sizeof at) != 0)
            pair_close(pair);
        return;
    }
    close(client);
}

/* The fault that is due for these bytes of a client. */
static proxy_fault
proxy_due(proxy *p, size_t len)
{
    proxy_fault fault = PROXY_NONE;

    pthread_mutex_lock(&p->lock);
    if (p->fault != PROXY_NONE && memmem(p->bytes, len, p->part, strlen(p->part)) != NULL) {
        fault = p->fault;
        p->fault = PROXY_NONE;
        atomic_fetch_add(&p->faults, 1);
    }
    pthread_mutex_unlock(&p->lock);
    return fault;
}

static void
proxy_from_client(proxy *p, proxy_pair *pair)
{
    ssize_t len = read(pair->client, p->bytes, sizeof p->bytes);

    if (len <= 0) {
        pair_close(pair);
        return;
    }
    switch (proxy_due(p, (size_t)len)) {
    case PROXY_LOSE_REQUEST: pair_close(pair); return;
    case PROXY_LOSE_ANSWER: pair->is_losing = true; break;
    case PROXY_HANG: pair->is_hanging = true; break;
    case PROXY_NONE: break;
    }
    if (!pair->is_hanging && !proxy_write(pair->server, p->bytes, (size_t)len))
        pair_close(pair);
}

/* "K", a length of 12, the process, the key. */
static void
proxy_repaint(uint8_t *bytes, size_t len)
{
    static const uint8_t head[] = { 'K', 0, 0, 0, 12 };
    uint8_t             *at = memmem(bytes, len, head, sizeof head);

    if (at != NULL && at + 9 <= bytes + len)
        at[8] ^= 0x55;
}

static void
proxy_from_server(proxy *p, proxy_pair *pair)
{
    ssize_t len = read(pair->server, p->bytes, sizeof p->bytes);

    if (len > 0 && pair->is_losing && memchr(p->bytes, 'Z', (size_t)len) == NULL)
        return; /* not done yet: ReadyForQuery follows the flush */
    if (len <= 0 || pair->is_losing) {
        pair_close(pair);
        return;
    }
    if (atomic_load(&p->is_pool))
        proxy_repaint(p->bytes, (size_t)len);
    if (!pair->is_hanging && !proxy_write(pair->client, p->bytes, (size_t)len))
        pair_close(pair);
}

static void *
proxy_main(void *arg)
{
    proxy        *p = arg;
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

proxy *
proxy_new(void)
{
    const char        *server = cluster_url("x");
    const char        *host = strstr(server, "host="), *port = strstr(server, "@:");
    proxy             *p = calloc(1, sizeof *p);
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          len = sizeof at;

    CHECK(p != NULL && host != NULL && port != NULL);
    (void)snprintf(p->socket, sizeof p->socket, "%.*s/.s.PGSQL.%d", (int)strcspn(host + 5, "&"),
                   host + 5, (int)strtol(port + 2, NULL, 10));
    for (int i = 0; i < PROXY_PAIRS; i++)
        p->pairs[i].client = p->pairs[i].server = -1;
    pthread_mutex_init(&p->lock, NULL);
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(p->listener >= 0 && bind(p->listener, (struct sockaddr *)&at, len) == 0 &&
          listen(p->listener, 16) == 0 &&
          getsockname(p->listener, (struct sockaddr *)&at, &len) == 0);
    p->port = ntohs(at.sin_port);
    CHECK_INT(pthread_create(&p->thread, NULL, proxy_main, p), 0);
    return p;
}

void
proxy_free(proxy *p)
{
    atomic_store(&p->is_over, true);
    pthread_join(p->thread, NULL);
    for (int i = 0; i < PROXY_PAIRS; i++)
        if (p->pairs[i].client >= 0)
            pair_close(&p->pairs[i]);
    close(p->listener);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

const char *
proxy_url(proxy *p, const char *schema, const char *more)
{
    static char url[256];

    (void)snprintf(url, sizeof url,
                   "postgres://%s@127.0.0.1:%d/postgres?sslmode=disable&schema=%s%s", CLUSTER_USER,
                   p->port, schema, more);
    return url;
}

void
proxy_fault_next(proxy *p, proxy_fault fault, const char *part)
{
    pthread_mutex_lock(&p->lock);
    p->fault = fault;
    (void)snprintf(p->part, sizeof p->part, "%s", part);
    pthread_mutex_unlock(&p->lock);
}

int
proxy_faults(proxy *p)
{
    return atomic_load(&p->faults);
}

void
proxy_pool(proxy *p)
{
    atomic_store(&p->is_pool, true);
}
