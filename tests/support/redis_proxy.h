/* Between a client and a Redis server of the tests: forwards, and cuts one connection at the nth
 * piece a client sends, counted over all connections. Runs on: a thread of its own. */
#ifndef STET_REDIS_PROXY_H
#define STET_REDIS_PROXY_H

#include <stdbool.h>

typedef enum redis_cut {
    REDIS_CUT_REQUEST, /* it does not reach the server */
    REDIS_CUT_ANSWER   /* the server has done it; the answer is lost */
} redis_cut;

typedef struct redis_proxy redis_proxy;

redis_proxy *redis_proxy_new(int server_port);
void         redis_proxy_free(redis_proxy *p);
int          redis_proxy_port(const redis_proxy *p);
/* Counting begins anew; the nth (from 1) is cut. */
void redis_proxy_arm(redis_proxy *p, redis_cut cut, int n);
bool redis_proxy_is_hit(const redis_proxy *p); /* was it? */

#endif
