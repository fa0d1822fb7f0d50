/* Which kind of server is at a port: for who connected there and was not understood.
 *
 * Asked only when opening failed. Nobody is told a name or a password: the question is eight bytes
 * that Redis answers, RabbitMQ refuses in its own words and PostgreSQL refuses without a word.
 */
#ifndef STET__PEER_H
#define STET__PEER_H

typedef struct stet__peer {
    const char *what;   /* "store" or "queue" */
    const char *name;   /* its address as it may be told */
    const char *scheme; /* what was looked for: "postgres", "redis" or "amqp" */
    const char *host;   /* a name or an address; a path: nothing is asked */
    int         port;
    int         code;   /* if it is another kind */
} stet__peer;

/* `err` and its text stay, unless a server of another kind is there: then peer->code, and what to
 * do. Takes a second at most, where there is nobody who says anything. */
int stet__peer_judge(const stet__peer *peer, int err);

#endif
