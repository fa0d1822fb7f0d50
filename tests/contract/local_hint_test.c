/* The hint contract on datagrams between the engines of one machine. tsan: yes */
#include "hint_contract.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HINT_PREFIX   G9_local
#define HINT_IS_EXACT true
#define HINT_FLOOD    100000

static void ear_say(void *arg, bool is_connected, int code, const char *text);

static void
stamp_begin(ears *c)
{
    (void)c;
}

static stet_hint_port *
stamp_open(ears *c, int place)
{
    stet__hint_setup setup = { NULL, ear_say, &c->ears[c->n] };
    stet_hint_port  *port;
    char             address[80];

    (void)snprintf(address, sizeof address, "local:%s-%d", c->name, place);
    CHECK_OK(stet__hint_open(&port, stet__platform_real(), address, &setup));
    return port;
}

static void
stamp_send(ears *c, ear *x, const stet_hint *hint)
{
    (void)c;
    x->port->ops->send(x->port, hint);
}

/* To the first seat, where the only listener of the test sits. */
static void
stamp_raw(ears *c, const void *bytes, size_t len)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int                fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), n;
    socklen_t          at_len;

    CHECK(fd >= 0);
    n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "stet-hint/%ld/%s-0/0", (long)getuid(),
                 c->name);
    at_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    CHECK(sendto(fd, bytes, len, 0, (struct sockaddr *)&at, at_len) == (ssize_t)len);
    close(fd);
}

static void
stamp_end(ears *c)
{
    (void)c;
}

#include "hint_suite.inc"

TEST(G9_local_has_seats_for_64_and_says_so)
{
    stet_hint_port *ports[65];
    ears           *c = ears_begin();
    ear            *x = ears_open(c, 0);
    int             n = 0;

    for (; n < 65; n++) {
        ports[n] = stamp_open(c, 0);
        if (n < 64)
            CHECK_OK(ports[n]->ops->watch(ports[n], 0, ear_take, x));
    }
    CHECK_CODE(ports[64]->ops->watch(ports[64], 0, ear_take, x), STET_EBUSY);
    CHECK_HAS(stet_last_error(), "64 engines listen already");
    while (n > 0)
        stet__hint_close(ports[--n]);
    ears_end(c);
}
