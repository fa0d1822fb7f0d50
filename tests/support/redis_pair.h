/* A Redis primary and its replica, which takes its place when a test says so; and what a server
 * says of itself. Whatever goes wrong ends the test. */
#ifndef STET_REDIS_PAIR_H
#define STET_REDIS_PAIR_H

#include "redis_server.h"

/* What the server answers to a command, as text, in a static buffer: of an array the number that is
 * its second element. */
const char *redis_ask(int port, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A field of INFO SECTION, in a static buffer; "" if it is not there. */
const char *redis_field(int port, const char *section, const char *field);
long long   redis_number(int port, const char *section, const char *field);

/* One that replicates at once. */
redis_server *redis_one(void);
/* The second one has all that the first one has. */
void redis_pair(redis_server **primary, redis_server **replica);
/* Nothing that was acknowledged is missing at the one that is the primary now; the other one only
 * reads, and hears of nothing any more. */
void redis_pair_swap(const redis_server *primary, const redis_server *replica);

#endif
