/* See proxy.h. One thread polls all connections. What was read is kept until it is a whole request,
 * or a whole message of an answer. */
#include "proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "test.h"

enum { PROXY_PAIRS = 96, PROXY_READ = 65536 };

/* Bytes that were read and not yet forwarded. */
typedef struct proxy_bytes {
    uint8_t *at;
    size_t   len, cap;
} proxy_bytes;

typedef struct proxy_pair {
    int         client, server; /* -1: free */
    proxy_bytes asked, told;
    bool        is_greeted; /* PostgreSQL: what follows has a type */
    bool        is_short;   /* PostgreSQL: the next answer is one byte */
    uint64_t    requests, answers;
    uint64_t    losing;   /* the answer to this one; 0: none */
    uint64_t    spoiling; /* the same; it is held back until it is whole */
    proxy_bytes held;
    bool        is_hanging;
} proxy_pair;

typedef struct proxy_request {
    size_t len;        /* 0: more has to come */
    bool   has_answer; /* it counts as a request */
    char   name[PROXY_NAME_MAX + 1];
} proxy_request;

typedef struct proxy_protocol {
    proxy_request (*request)(proxy_pair *pair);
    /* Bytes of the first message of an answer, 0: more has to come. */
    size_t (*answer)(proxy_pair *pair, bool *is_last);
} proxy_protocol;

struct proxy {
    const proxy_protocol *protocol;
    int                   listener, port;
    _Atomic int           server_port;
    char                  socket[108]; /* of the server; "": it has a port */
    pthread_t             thread;
    pthread_mutex_t       lock; /* the fault and the census */
    proxy_fault           fault;
    char                  part[64], name[PROXY_NAME_MAX + 1];
    size_t                left; /* requests until it is due */
    const void           *answer;
    size_t                answer_len;
    proxy_spoil_fn        spoil;
    void                 *spoil_arg;
    proxy_kind            kinds[PROXY_KINDS_MAX];
    size_t                n_kinds;
    _Atomic int           faults;
    _Atomic bool          is_over, is_pool;
    proxy_pair            pairs[PROXY_PAIRS];
};

/* ---- bytes ----------------------------------------------------------------------------------- */

static bool
bytes_read(proxy_bytes *b, int fd)
{
    ssize_t len;

    if (b->cap - b->len < PROXY_READ) {
        b->cap = b->cap * 2 + PROXY_READ;
        if ((b->at = realloc(b->at, b->cap)) == NULL)
            abort();
    }
    if ((len = read(fd, b->at + b->len, PROXY_READ)) <= 0)
        return false;
    b->len += (size_t)len;
    return true;
}

static void
bytes_add(proxy_bytes *b, const uint8_t *at, size_t len)
{
    if (b->cap - b->len < len) {
        b->cap = b->cap * 2 + len;
        if ((b->at = realloc(b->at, b->cap)) == NULL)
            abort();
    }
    memcpy(b->at + b->len, at, len);
    b->len += len;
}

static void
bytes_drop(proxy_bytes *b, size_t len)
{
    b->len -= len;
    memmove(b->at, b->at + len, b->len);
}

static bool
bytes_write(int fd, const uint8_t *bytes, size_t len)
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

/* A name people can read; what is not printable ends it. */
static void
bytes_name(char *name, const char *before, const uint8_t *at, size_t len)
{
    size_t n = (size_t)snprintf(name, PROXY_NAME_MAX + 1, "%s", before);

    for (size_t i = 0; i < len && at[i] >= ' ' && at[i] <= '~' && n < PROXY_NAME_MAX; i++)
        name[n++] = (char)at[i];
    name[n] = '\0';
}

/* ---- PostgreSQL ------------------------------------------------------------------------------ */

static size_t
pg_length(const uint8_t *at)
{
    return (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];
}

/* Before the greeting messages have no type. */
static proxy_request
pg_greeting(proxy_pair *pair)
{
    enum { CANCEL = 80877102, SSL = 80877103, GSS = 80877104 };
    proxy_request r = { 0 };
    size_t        len = pair->asked.len >= 8 ? pg_length(pair->asked.at) : SIZE_MAX, code;

    if (pair->asked.len < len)
        return r;
    code = pg_length(pair->asked.at + 4);
    r.len = len;
    r.has_answer = code != CANCEL;
    pair->is_short = code == SSL || code == GSS;
    pair->is_greeted = !pair->is_short;
    bytes_name(r.name, "connect", NULL, 0);
    return r;
}

/* The statement a message is about; a name that was found already stays. */
static void
pg_name(char *name, uint8_t type, const uint8_t *at, size_t len)
{
    size_t skip = strnlen((const char *)at, len) + 1;

    if (name[0] != '\0')
        return;
    if (type == 'Q' || (type == 'P' && skip == 1))
        bytes_name(name, "", at + (type == 'P'), len - (type == 'P'));
    else if (type == 'P')
        bytes_name(name, "prepare ", at, len);
    else if (type == 'B' && skip < len)
        bytes_name(name, "", at + skip, len - skip);
}

/* All messages up to the one the server answers to. */
static proxy_request
pg_request(proxy_pair *pair)
{
    proxy_request r = { 0 };
    size_t        at = 0;

    if (!pair->is_greeted)
        return pg_greeting(pair);
    while (pair->asked.len >= at + 5) {
        const uint8_t *message = pair->asked.at + at;
        size_t         len = 1 + pg_length(message + 1);

        if (pair->asked.len < at + len)
            break;
        pg_name(r.name, message[0], message + 5, len - 5);
        at += len;
        r.has_answer = message[0] == 'S' || message[0] == 'Q';
        if (r.has_answer || message[0] == 'X' || message[0] == 'p') {
            r.len = at;
            break;
        }
    }
    return r;
}

static size_t
pg_answer(proxy_pair *pair, bool *is_last)
{
    size_t len = pair->is_short ? 1 : 5;

    if (pair->told.len < len)
        return 0;
    *is_last = pair->is_short || pair->told.at[0] == 'Z';
    if (!pair->is_short)
        len = 1 + pg_length(pair->told.at + 1);
    if (pair->told.len < len)
        return 0;
    pair->is_short = false;
    return len;
}

/* "K", a length of 12, the process, the key. */
static void
pg_repaint(uint8_t *message, size_t len)
{
    if (message[0] == 'K' && len == 13)
        message[8] ^= 0x55;
}

static const proxy_protocol pg_protocol = { pg_request, pg_answer };

/* ---- Redis ----------------------------------------------------------------------------------- */

/* The number behind the type at `at`, and where the line ends; 0: not yet. */
static size_t
redis_line(const proxy_bytes *b, size_t at, long *number)
{
    const uint8_t *end = at < b->len ? memmem(b->at + at, b->len - at, "\r\n", 2) : NULL;

    if (end == NULL)
        return 0;
    *number = strtol((const char *)b->at + at + 1, NULL, 10);
    return (size_t)(end - b->at) + 2;
}

/* One value of any type that begins at `at`: where it ends, or 0. */
static size_t
redis_value(const proxy_bytes *b, size_t at)
{
    long   number = 0;
    size_t end = redis_line(b, at, &number);

    if (end == 0)
        return 0;
    if (b->at[at] == '$' && number >= 0)
        return b->len >= end + (size_t)number + 2 ? end + (size_t)number + 2 : 0;
    if (b->at[at] == '*')
        for (long i = 0; i < number && end != 0; i++)
            end = redis_value(b, end);
    return end;
}

/* Some commands are many; the next word says which, or the beginning of a script's hash. */
static void
redis_name(char *name, const proxy_bytes *b)
{
    static const char *const doubles[] = { "EVALSHA", "SCRIPT", "XGROUP", "CONFIG" };
    long                     number = 0, len = 0;
    size_t                   at = redis_line(b, 0, &number), word;

    word = redis_line(b, at, &len);
    bytes_name(name, "", b->at + word, (size_t)len);
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
        if (strcmp(name, doubles[i]) == 0 && number > 1) {
            char before[16];

            (void)snprintf(before, sizeof before, "%s ", doubles[i]);
            word = redis_line(b, redis_value(b, at), &len);
            bytes_name(name, before, b->at + word, len < 8 ? (size_t)len : 8);
        }
}

static proxy_request
redis_request(proxy_pair *pair)
{
    proxy_request r = { .has_answer = true };

    if ((r.len = redis_value(&pair->asked, 0)) > 0)
        redis_name(r.name, &pair->asked);
    return r;
}

static size_t
redis_answer(proxy_pair *pair, bool *is_last)
{
    *is_last = pair->answers < pair->requests; /* else it is a message to who subscribed */
    return redis_value(&pair->told, 0);
}

static const proxy_protocol redis_protocol = { redis_request, redis_answer };

/* ---- connections ----------------------------------------------------------------------------- */

static void
pair_close(proxy_pair *pair)
{
    close(pair->client);
    close(pair->server);
    free(pair->asked.at);
    free(pair->told.at);
    free(pair->held.at);
    *pair = (proxy_pair){ .client = -1, .server = -1 };
}

static int
proxy_dial(const proxy *p)
{
    struct sockaddr_un local = { .sun_family = AF_UNIX };
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)atomic_load(&p->server_port)),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    bool               is_local = p->socket[0] != '\0';
    int fd = socket(is_local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    memcpy(local.sun_path, p->socket, sizeof local.sun_path);
    if (!is_local)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (is_local ? connect(fd, (struct sockaddr *)&local, sizeof local) == 0
                 : connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
        return fd;
    close(fd);
    return -1;
}

static void
proxy_accept(proxy *p)
{
    int         client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC), one = 1;
    proxy_pair *pair = p->pairs;

    while (pair < p->pairs + PROXY_PAIRS && pair->client >= 0)
        pair++;
    if (client < 0)
        return;
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (pair == p->pairs + PROXY_PAIRS || (pair->server = proxy_dial(p)) < 0) {
        close(client);
        return;
    }
    pair->client = client;
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void
proxy_count(proxy *p, const char *name)
{
    size_t i = 0;

    while (i < p->n_kinds && strcmp(p->kinds[i].name, name) != 0)
        i++;
    if (i == PROXY_KINDS_MAX)
        return;
    if (i == p->n_kinds) {
        p->kinds[p->n_kinds++].requests = 0;
        (void)snprintf(p->kinds[i].name, sizeof p->kinds[i].name, "%s", name);
    }
    p->kinds[i].requests++;
}

static bool
proxy_is_meant(const proxy *p, const proxy_request *r, const uint8_t *bytes)
{
    if (p->part[0] != '\0')
        return memmem(bytes, r->len, p->part, strlen(p->part)) != NULL;
    return p->name[0] == '\0' || strcmp(p->name, r->name) == 0;
}

/* The fault that is due for this request. */
static proxy_fault
proxy_due(proxy *p, const proxy_request *r, const uint8_t *bytes)
{
    proxy_fault fault = PROXY_NONE;

    pthread_mutex_lock(&p->lock);
    proxy_count(p, r->name);
    if (p->fault != PROXY_NONE && proxy_is_meant(p, r, bytes) && --p->left == 0) {
        fault = p->fault;
        p->fault = PROXY_NONE;
        atomic_fetch_add(&p->faults, 1);
    }
    pthread_mutex_unlock(&p->lock);
    return fault;
}

/* ---- forwarding ------------------------------------------------------------------------------ */

/* False: the connection is to be cut. */
static bool
proxy_ask(proxy *p, proxy_pair *pair, const proxy_request *r)
{
    if (r->has_answer) {
        pair->requests++;
        switch (proxy_due(p, r, pair->asked.at)) {
        case PROXY_LOSE_REQUEST: return false;
        case PROXY_LOSE_ANSWER: pair->losing = pair->requests; break;
        case PROXY_HANG: pair->is_hanging = true; break;
        case PROXY_SPOIL: pair->spoiling = pair->requests; break;
        case PROXY_ANSWER:
            pair->requests--;
            bytes_drop(&pair->asked, r->len);
            return bytes_write(pair->client, p->answer, p->answer_len);
        case PROXY_NONE: break;
        }
    }
    if (!pair->is_hanging && !bytes_write(pair->server, pair->asked.at, r->len))
        return false;
    bytes_drop(&pair->asked, r->len);
    return true;
}

static bool
proxy_from_client(proxy *p, proxy_pair *pair)
{
    proxy_request r;

    if (!bytes_read(&pair->asked, pair->client))
        return false;
    while ((r = p->protocol->request(pair)).len > 0)
        if (!proxy_ask(p, pair, &r))
            return false;
    return true;
}

static bool
proxy_tell(proxy *p, proxy_pair *pair, size_t len, bool is_last)
{
    bool is_lost = pair->losing != 0 && pair->answers + 1 >= pair->losing;

    if (atomic_load(&p->is_pool))
        pg_repaint(pair->told.at, len);
    if (pair->spoiling == pair->answers + 1)
        bytes_add(&pair->held, pair->told.at, len);
    else if (!is_lost && !pair->is_hanging && !bytes_write(pair->client, pair->told.at, len))
        return false;
    bytes_drop(&pair->told, len);
    if (is_last && pair->spoiling == pair->answers + 1) {
        pair->held.len = p->spoil(p->spoil_arg, pair->held.at, pair->held.len);
        if (!bytes_write(pair->client, pair->held.at, pair->held.len))
            return false;
        pair->held.len = 0;
    }
    pair->answers += is_last;
    return !is_lost || pair->answers < pair->losing;
}

static bool
proxy_from_server(proxy *p, proxy_pair *pair)
{
    bool   is_last = false;
    size_t len;

    if (!bytes_read(&pair->told, pair->server))
        return false;
    while ((len = p->protocol->answer(pair, &is_last)) > 0)
        if (!proxy_tell(p, pair, len, is_last))
            return false;
    return true;
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
            proxy_pair *pair = &p->pairs[i];

            if (pair->client >= 0 && at[1 + 2 * i].revents != 0 && !proxy_from_client(p, pair))
                pair_close(pair);
            if (pair->client >= 0 && at[2 + 2 * i].revents != 0 && !proxy_from_server(p, pair))
                pair_close(pair);
        }
        if (at[0].revents != 0)
            proxy_accept(p);
    }
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static proxy *
proxy_alloc(const proxy_protocol *protocol)
{
    proxy *p = calloc(1, sizeof *p);

    CHECK(p != NULL);
    p->protocol = protocol;
    for (int i = 0; i < PROXY_PAIRS; i++)
        p->pairs[i].client = p->pairs[i].server = -1;
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

static proxy *
proxy_listen(proxy *p)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          len = sizeof at;

    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(p->listener >= 0 && bind(p->listener, (struct sockaddr *)&at, len) == 0 &&
          listen(p->listener, 16) == 0 &&
          getsockname(p->listener, (struct sockaddr *)&at, &len) == 0);
    p->port = ntohs(at.sin_port);
    CHECK_INT(pthread_create(&p->thread, NULL, proxy_main, p), 0);
    return p;
}

proxy *
proxy_new(void)
{
    const char *server = cluster_url("x");
    const char *host = strstr(server, "host="), *port = strstr(server, "@:");
    proxy      *p = proxy_alloc(&pg_protocol);

    CHECK(host != NULL && port != NULL);
    (void)snprintf(p->socket, sizeof p->socket, "%.*s/.s.PGSQL.%d", (int)strcspn(host + 5, "&"),
                   host + 5, (int)strtol(port + 2, NULL, 10));
    return proxy_listen(p);
}

proxy *
proxy_new_redis(int server_port)
{
    proxy *p = proxy_alloc(&redis_protocol);

    atomic_store(&p->server_port, server_port);
    return proxy_listen(p);
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

int
proxy_port(const proxy *p)
{
    return p->port;
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

/* ---- orders ---------------------------------------------------------------------------------- */

static void
proxy_order(proxy *p, proxy_fault fault, const char *part, const char *name, size_t n)
{
    pthread_mutex_lock(&p->lock);
    p->fault = fault;
    (void)snprintf(p->part, sizeof p->part, "%s", part);
    (void)snprintf(p->name, sizeof p->name, "%s", name);
    p->left = n;
    pthread_mutex_unlock(&p->lock);
}

void
proxy_fault_next(proxy *p, proxy_fault fault, const char *part)
{
    proxy_order(p, fault, part, "", 1);
}

void
proxy_fault_at(proxy *p, proxy_fault fault, const char *name, size_t n)
{
    proxy_order(p, fault, "", name != NULL ? name : "", n);
}

void
proxy_answer(proxy *p, const void *bytes, size_t len)
{
    p->answer = bytes;
    p->answer_len = len;
}

void
proxy_spoil(proxy *p, proxy_spoil_fn fn, void *arg)
{
    p->spoil = fn;
    p->spoil_arg = arg;
}

bool
proxy_calm(proxy *p)
{
    bool was_due;

    pthread_mutex_lock(&p->lock);
    was_due = p->fault != PROXY_NONE;
    p->fault = PROXY_NONE;
    pthread_mutex_unlock(&p->lock);
    return was_due;
}

int
proxy_faults(proxy *p)
{
    return atomic_load(&p->faults);
}

size_t
proxy_census(proxy *p, proxy_kind kinds[PROXY_KINDS_MAX])
{
    size_t n;

    pthread_mutex_lock(&p->lock);
    n = p->n_kinds;
    memcpy(kinds, p->kinds, n * sizeof *kinds);
    p->n_kinds = 0;
    pthread_mutex_unlock(&p->lock);
    return n;
}

void
proxy_lead(proxy *p, int server_port)
{
    atomic_store(&p->server_port, server_port);
}

void
proxy_pool(proxy *p)
{
    atomic_store(&p->is_pool, true);
}
