/* A private RabbitMQ broker for tests: one node with a name, ports, a port mapper (epmd) and a
 * directory of its own, run by an unprivileged user.
 *
 * A keeper process owns it. It waits at a socket whose other end is with the process that asked for
 * the broker and with its tests; when all of them are gone, however they went, the keeper ends the
 * broker and removes the directory. A broker takes seconds to start: one for each test program.
 */
#ifndef STET_RABBIT_SERVER_H
#define STET_RABBIT_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

#define RABBIT_USER     "stet"
#define RABBIT_PASSWORD "open-sesame-77"

/* Started by the first call, in the runner, before the tests are forked. */
void rabbit_server_share(void);
/* Skips the test if there is none, and says why; else starts it again if a test left it down. */
void rabbit_server_need(void);
int  rabbit_server_port(void);
/* With TLS, for the name localhost; 0: there is no openssl to make a certificate with. */
int         rabbit_server_tls_port(void);
const char *rabbit_server_cacert(void);
/* Ends it, by asking it to or by SIGKILL; both return when it is gone. */
void rabbit_server_stop(bool by_force);
/* Returns when it answers. */
void rabbit_server_start(void);
/* Its memory is short, or is not any more: it takes nothing from who publishes. */
void rabbit_server_alarm(bool is_short);
/* amqp://USER:PASSWORD@127.0.0.1:PORT/?prefix=PREFIX&heartbeat=1, in a static buffer of its own for
 * each of four calls in turn; port 0: the broker's. */
const char *rabbit_url(int port, const char *prefix);

#endif
