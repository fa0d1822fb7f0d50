/* A private redis-server for tests: in a fresh directory, on a free port of 127.0.0.1, run by an
 * unprivileged user, with an append-only log that is flushed with every answer unless a test asks
 * for something else.
 *
 * A keeper process owns it. The keeper waits at a pipe whose other end is with the process that
 * asked for the server; when that process is gone, however it went, the keeper ends the server and
 * removes the directory. A server that ends on its own, or is killed by a test, is started again on
 * the same port with the same files.
 */
#ifndef STET_REDIS_SERVER_H
#define STET_REDIS_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

#define REDIS_SERVER_ENV "STET_TEST_REDIS" /* the port of a server that is there */

typedef struct redis_server {
    char  dir[96];
    int   port;
    pid_t keeper;
    int   life; /* closing it ends the server */
} redis_server;

/* `settings` are lines of redis.conf that come behind ours, or NULL. NULL: it cannot be started
 * here; redis_server_why() says why. */
redis_server *redis_server_new(const char *settings);
const char   *redis_server_why(void);
/* Ends the server and waits until it and its directory are gone. Accepts NULL. */
void redis_server_free(redis_server *s);
/* The server's process, or 0 while it is being started. */
pid_t redis_server_pid(const redis_server *s);
/* An address on it, in a static buffer of its own for each of four calls in turn. */
const char *redis_server_url(const redis_server *s, const char *prefix);
const char *redis_server_url_at(int port, const char *prefix);

/* One server for all tests of a program: the first call starts it, unless REDIS_SERVER_ENV names
 * one. To be called before the tests are forked. */
void redis_server_share(void);
/* An address on that one; ends the test if there is none. */
const char *redis_shared_url(const char *prefix);

#endif
