/* Connections: made within a bounded time, made again after they were lost, not too often; and what
 * went wrong, in words that say what to change.
 *
 * libpq's own messages are kept as the reason; they name hosts, users and databases, never a
 * password.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/postgres.h"

#define CONN_WAIT_FIRST_US 50000
#define CONN_WAIT_MAX_US   2000000
#define CONN_PARAMS_MAX    96

bool
stet__pg_conn_wait(pg_store *st, PGconn *db, bool for_write, int64_t until_us)
{
    struct pollfd at = { .fd = PQsocket(db),
                         .events = (short)(POLLIN | (for_write ? POLLOUT : 0)) };
    int64_t       left_us;
    int           got;

    do {
        left_us = until_us - stet__mono_us(st->base.platform);
        if (at.fd < 0 || left_us <= 0)
            return false;
        got = poll(&at, 1, (int)((left_us + 999) / 1000));
    } while (got == 0 || (got < 0 && errno == EINTR));
    return got > 0;
}

/* ---- texts ----------------------------------------------------------------------------------- */

void
stet__pg_reason(char *out, size_t size, const char *text)
{
    size_t n = 0;

    for (; *text != '\0' && n + 1 < size; text++)
        out[n++] = *text == '\n' || *text == '\t' ? ' ' : *text;
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
}

typedef struct conn_advice {
    const char *said; /* part of the server's or libpq's message */
    int         code;
    const char *advice;
} conn_advice;

static const conn_advice conn_advices[] = {
    { "password authentication failed", STET_ECONFIG,
      "check the user and the password of the address" },
    { "no password supplied", STET_ECONFIG,
      "the server wants a password: give one in the address, or in PGPASSWORD" },
    { "Peer authentication failed", STET_ECONFIG,
      "the server lets only the user of that name in by its socket" },
    { "no pg_hba.conf entry", STET_ECONFIG,
      "the server's pg_hba.conf does not let this user in from here" },
    { "does not support SSL", STET_ECONFIG,
      "the address asks for TLS (sslmode) and the server offers none" },
    { "SSL error", STET_ECONFIG,
      "the TLS connection failed: check sslmode, sslrootcert and the server's certificate" },
    { "certificate", STET_ECONFIG,
      "the server's certificate was not accepted: check sslmode and sslrootcert" },
    { "could not translate host name", STET_EIO, "check the host of the address" },
    { "Connection refused", STET_EIO, "is the server running, and is the port right?" },
    { "No such file or directory", STET_EIO, "is the server running, and is its socket there?" },
    { "received invalid response", STET_ENOTDB,
      "what answers there is no PostgreSQL server: check host and port" },
    { "expected authentication request", STET_ENOTDB,
      "what answers there is no PostgreSQL server: check host and port" },
    { "unsupported frontend protocol", STET_ENOTDB,
      "the server is no PostgreSQL this stet can talk to" },
    { "too many clients", STET_EBUSY,
      "raise max_connections of the server, or put a pooler before it" },
    { "too many connections", STET_EBUSY,
      "raise the connection limit of the role or the database" },
    { "starting up", STET_EIO, "the server is starting up; it is tried again" },
    { "session is read-only", STET_EREADONLY, "only a standby answered: name the primary" },
};

static int
conn_refused(pg_store *st, PGconn *db, bool is_late)
{
    const char *text = PQerrorMessage(db);
    char        reason[600];

    if (is_late)
        return stet__fail(STET_EIO,
                          "store %s: the server did not answer as PostgreSQL in %lld ms; check "
                          "host and port, or raise "
                          "connect_timeout",
                          st->name, (long long)st->connect_ms);
    stet__pg_reason(reason, sizeof reason, text);
    for (size_t i = 0; i < sizeof conn_advices / sizeof *conn_advices; i++)
        if (strstr(text, conn_advices[i].said) != NULL)
            return stet__fail(conn_advices[i].code, "store %s: cannot connect: %s; %s", st->name,
                              reason, conn_advices[i].advice);
    if (strstr(text, "database \"") != NULL && strstr(text, "does not exist") != NULL)
        return stet__fail(STET_ENOTFOUND, "store %s: cannot connect: %s; make it first (createdb)",
                          st->name, reason);
    return stet__fail(STET_EIO, "store %s: cannot connect: %s", st->name, reason);
}

/* By class of SQLSTATE where the class says enough. */
static int
conn_code(const char *state)
{
    if (strcmp(state, "53100") == 0)
        return STET_EFULL;
    if (strcmp(state, "53200") == 0)
        return STET_ENOMEM;
    if (strcmp(state, "42501") == 0 || strcmp(state, "25006") == 0)
        return STET_EREADONLY;
    if (strncmp(state, "40", 2) == 0 || strncmp(state, "55", 2) == 0 ||
        strncmp(state, "53", 2) == 0 || strcmp(state, "57014") == 0)
        return STET_EBUSY;
    if (strncmp(state, "XX", 2) == 0)
        return STET_ECORRUPT;
    return STET_EIO;
}

int
stet__pg_fail(pg_store *st, pg_link *c, const PGresult *res, const char *what)
{
    const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);
    char        reason[600];

    (void)c;
    state = state != NULL ? state : "?";
    stet__pg_reason(reason, sizeof reason, text != NULL ? text : PQresultErrorMessage(res));
    if (strcmp(state, "42P01") == 0 || strcmp(state, "3F000") == 0 || strcmp(state, "42883") == 0)
        return stet__fail(
            STET_EIO, "store %s: cannot %s: %s (%s); was the schema removed? open the store again",
            st->name, what, reason, state);
    if (strcmp(state, "25006") == 0)
        return stet__fail(STET_EREADONLY,
                          "store %s: cannot %s: the server is read-only (a standby?): %s", st->name,
                          what, reason);
    if (strcmp(state, PG_STATE_OLD) == 0)
        return stet__fail(STET_ECONFIG,
                          "store %s: cannot %s: %s, and stet needs READ COMMITTED: set "
                          "default_transaction_isolation of the database and the user to it (%s)",
                          st->name, what, reason, state);
    return stet__fail(conn_code(state), "store %s: cannot %s: %s (%s)", st->name, what, reason,
                      state);
}

/* ---- connecting ------------------------------------------------------------------------------ */

static void
conn_ignore(void *arg, const PGresult *res)
{
    (void)arg;
    (void)res; /* notices belong into the server's log */
}

static PGconn *
conn_start(pg_store *st)
{
    const char *keys[CONN_PARAMS_MAX + 4], *values[CONN_PARAMS_MAX + 4];
    size_t      n = 0;

    for (const PQconninfoOption *o = st->options; o->keyword != NULL && n < CONN_PARAMS_MAX; o++)
        if (o->val != NULL && o->val[0] != '\0') {
            keys[n] = o->keyword;
            values[n++] = o->val;
        }
    if (stet__pg_url_option(st, "tcp_user_timeout")[0] == '\0') {
        keys[n] = "tcp_user_timeout"; /* a peer that is gone without a word */
        values[n++] = "30000";
    }
    keys[n] = "fallback_application_name";
    values[n++] = "stet";
    keys[n] = values[n] = NULL;
    return PQconnectStartParams(keys, values, 0);
}

static int
conn_make(pg_store *st, pg_link *c)
{
    int64_t                   until_us = stet__mono_us(st->base.platform) + st->connect_ms * 1000;
    PostgresPollingStatusType is = PGRES_POLLING_WRITING;
    bool                      is_late = false;

    if ((c->db = conn_start(st)) == NULL)
        return stet__fail(STET_ENOMEM, "store %s: out of memory", st->name);
    PQsetNoticeReceiver(c->db, conn_ignore, NULL);
    if (PQstatus(c->db) == CONNECTION_BAD)
        return conn_refused(st, c->db, false);
    while (is != PGRES_POLLING_OK && is != PGRES_POLLING_FAILED && !is_late) {
        struct pollfd at = { .fd = PQsocket(c->db),
                             .events = is == PGRES_POLLING_READING ? POLLIN : POLLOUT };
        int64_t       left_us = until_us - stet__mono_us(st->base.platform);

        if (left_us <= 0 || (poll(&at, 1, (int)((left_us + 999) / 1000)) == 0))
            is_late = true;
        else
            is = PQconnectPoll(c->db);
    }
    if (is != PGRES_POLLING_OK)
        return conn_refused(st, c->db, is_late);
    if (PQserverVersion(c->db) < PG_SERVER_MIN)
        return stet__fail(STET_ECONFIG,
                          "store %s: the server is PostgreSQL %s; stet needs %d or newer", st->name,
                          PQparameterStatus(c->db, "server_version") != NULL
                              ? PQparameterStatus(c->db, "server_version")
                              : "of unknown version",
                          PG_SERVER_MIN / 10000);
    if (PQsetnonblocking(c->db, 1) != 0)
        return stet__fail(STET_EIO, "store %s: %s", st->name, PQerrorMessage(c->db));
    return STET_OK;
}

/* A pooler answers with a process number of its own. Then the server process is another one with
 * every statement, and nothing that belongs to it can be used: prepared statements, settings,
 * LISTEN. Commits are transactions that say themselves what they are, there; on a connection of our
 * own each is what the session says, whatever server, database and user were told to be. */
static int
conn_greet(pg_store *st, pg_link *c)
{
    PGresult *res;
    char      text[32], sql[200];
    int       err;

    (void)snprintf(text, sizeof text, "%d", PQbackendPID(c->db));
    (void)snprintf(
        sql, sizeof sql,
        "SELECT p,(SELECT set_config('default_transaction_isolation','read committed',false) "
        "WHERE p=%s) FROM pg_backend_pid() p",
        text);
    if ((err = stet__pg_exec(st, c, sql, &res, "greet the server")) != STET_OK)
        return err;
    if (PQntuples(res) != 1 || strcmp(PQgetvalue(res, 0, 0), text) != 0)
        atomic_store(&st->is_pooled, true);
    PQclear(res);
    if (atomic_load(&st->is_pooled) || PQserverVersion(c->db) < 140000)
        return STET_OK;
    /* A statement of a client that is gone ends, instead of holding its locks; and what the commit function asks for
     * depends on no value, so it is planned once. Not everywhere allowed, not needed. */
    if (stet__pg_exec(
            st, c,
            "SET client_connection_check_interval=5000; SET plan_cache_mode=force_generic_plan",
            NULL, "set it up") != STET_OK &&
        c->db == NULL)
        return STET_EIO;
    return STET_OK;
}

void
stet__pg_conn_close(pg_link *c)
{
    if (!c->is_guest)
        PQfinish(c->db);
    c->db = NULL;
    c->is_set = c->is_behind = c->is_listening = false;
    memset(c->is_prepared, 0, sizeof c->is_prepared);
}

void
stet__pg_conn_read_only(pg_store *st, pg_link *c)
{
    int64_t now_us = stet__mono_us(st->base.platform), began_us = atomic_load(&st->era_us);

    if (c->is_guest)
        return;
    /* Not all connections with every try, while there is nobody else. */
    if (c->era == atomic_load(&st->era) && now_us >= began_us + CONN_WAIT_MAX_US &&
        atomic_compare_exchange_strong(&st->era_us, &began_us, now_us)) {
        atomic_fetch_add(&st->era, 1);
        stet__pg_hint_renew(st);
    }
    stet__pg_conn_close(c);
}

int
stet__pg_conn_need(pg_store *st, pg_link *c)
{
    int64_t now_us = stet__mono_us(st->base.platform);
    bool    was_listening = c->is_listening;
    int     err, era = atomic_load(&st->era);

    if (c->db != NULL && !stet__pg_query_rest(st, c))
        stet__pg_conn_close(c);
    /* Never another one in the middle of a transaction: what it did would be missing. */
    if (c->db != NULL && PQstatus(c->db) == CONNECTION_OK &&
        (c->is_guest || c->era == era || PQtransactionStatus(c->db) != PQTRANS_IDLE))
        return STET_OK;
    if (c->is_guest)
        return stet__fail(STET_EIO, "store %s: the connection is lost", st->name);
    if (c->db != NULL)
        stet__pg_conn_close(c);
    if (was_listening)
        return stet__fail(STET_EIO, "store %s: the connection that listens is lost", st->name);
    if (now_us < c->retry_us)
        return stet__fail(STET_EIO, "%s; it is tried again in %lld ms", c->reason,
                          (long long)(c->retry_us - now_us) / 1000 + 1);
    c->era = era;
    if ((err = conn_make(st, c)) == STET_OK && (err = conn_greet(st, c)) == STET_OK) {
        c->wait_us = 0;
        return STET_OK;
    }
    stet__pg_conn_close(c);
    (void)snprintf(c->reason, sizeof c->reason, "%s", stet_last_error());
    /* Each waits a bit longer than the last, and not all the same time: a server that comes back is
     * not run over. */
    c->wait_us = c->wait_us == 0 ? CONN_WAIT_FIRST_US : c->wait_us * 2;
    if (c->wait_us > CONN_WAIT_MAX_US)
        c->wait_us = CONN_WAIT_MAX_US;
    c->retry_us = stet__mono_us(st->base.platform) + c->wait_us / 2 +
                  stet__mono_us(st->base.platform) % (c->wait_us / 2);
    return err;
}
