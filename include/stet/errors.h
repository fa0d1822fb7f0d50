/* Every result code of stet, once: name, number, class, text.
 *
 * A code is 0 or negative. Its class says what a caller does about it:
 *   STET_CLASS_RETRY      passing; the same call may work later
 *   STET_CLASS_PERMANENT  will fail the same way again; a run that returns it fails for good
 *   STET_CLASS_FENCED     another worker owns the run now; nothing was written
 *   STET_CLASS_UNKNOWN    the store did not answer; repeat with the same idempotency key, or look first
 *   STET_CLASS_USAGE      the program calls it wrongly; the error text names the right call
 */
#ifndef STET_ERRORS_H
#define STET_ERRORS_H

#define STET_ERROR_LIST(X)                                                                         \
    /* passing */                                                                                  \
    X(ERETRY, -1, RETRY, "failed, may be tried again")                                             \
    X(ENOMEM, -2, RETRY, "out of memory")                                                          \
    X(EBUSY, -3, RETRY, "busy")                                                                    \
    X(EIO, -4, RETRY, "input or output failed")                                                    \
    X(EFULL, -5, RETRY, "the disk is full")                                                        \
    X(ECONFLICT, -6, RETRY, "something else changed it first")                                     \
    X(ESTOPPED, -7, RETRY, "the engine is stopping or stopped")                                    \
    X(EDEFER, -8, RETRY, "asked to come back later")                                               \
    X(EUNSERVED, -9, RETRY, "no worker serves the handler")                                        \
    /* lasting */                                                                                  \
    X(EPERMANENT, -20, PERMANENT, "failed for good")                                               \
    X(ESTEP, -21, PERMANENT, "a step failed for good")                                             \
    X(ECHILD, -22, PERMANENT, "a called run did not complete")                                     \
    X(EATTEMPTS, -23, PERMANENT, "all attempts are used up")                                       \
    X(EREJECTED, -24, PERMANENT, "the awakeable was rejected")                                     \
    X(ETIMEOUT, -25, PERMANENT, "the time is up")                                                  \
    X(ECANCELLED, -26, PERMANENT, "cancelled")                                                     \
    X(EEXPIRED, -27, PERMANENT, "the deadline has passed")                                         \
    X(ERUN, -28, PERMANENT, "the run failed")                                                      \
    X(ESTUCK, -29, PERMANENT, "the run is stuck")                                                  \
    X(EREPLAY, -30, PERMANENT, "the code contradicts what was recorded")                           \
    X(ECORRUPT, -31, PERMANENT, "a stored record is damaged")                                      \
    X(EDEADLOCK, -32, PERMANENT, "would wait for a key its own callers hold")                      \
    X(EHANDLER, -33, PERMANENT, "the handler returned something that is no result")                \
    X(ELOST, -34, PERMANENT, "the worker died while executing it, too often")                      \
    X(ENOBRANCH, -35, PERMANENT, "no branch of a switch fits")                                     \
    X(ECOMPENSATION, -36, PERMANENT, "an undo failed for good")                                    \
    X(EROLLBACK, -37, PERMANENT, "the run is being rolled back")                                   \
    X(EFORCED, -38, PERMANENT, "failed by hand")                                                   \
    /* what was asked for is not so */                                                             \
    X(ENOTFOUND, -40, PERMANENT, "there is no such thing")                                         \
    X(EEXISTS, -41, PERMANENT, "it exists already")                                                \
    X(ESETTLED, -42, PERMANENT, "it was settled already")                                          \
    X(EENDED, -43, PERMANENT, "the run has ended")                                                 \
    X(EKIND, -44, PERMANENT, "the ID is of another kind")                                          \
    X(EMISMATCH, -45, PERMANENT, "it exists and differs")                                          \
    X(EOPEN, -46, PERMANENT, "the run has not ended")                                              \
    /* input */                                                                                    \
    X(EINVAL, -60, USAGE, "bad argument")                                                          \
    X(ENAME, -61, USAGE, "illegal name")                                                           \
    X(EDURATION, -62, USAGE, "bad duration")                                                       \
    X(EJSON, -63, USAGE, "not valid JSON")                                                         \
    X(ETOOBIG, -64, USAGE, "too large")                                                            \
    X(EKEY, -65, USAGE, "a key is missing or does not belong")                                     \
    X(ENOHANDLER, -66, USAGE, "no such handler")                                                   \
    X(ECONFIG, -67, USAGE, "bad configuration")                                                    \
    X(EURL, -68, USAGE, "no store for this address")                                               \
    X(ESTATE, -69, USAGE, "not allowed in this state")                                             \
    X(EUSAGE, -70, USAGE, "wrong call in this place")                                              \
    X(EFORKED, -71, USAGE, "this handle belongs to the parent process")                            \
    /* the store */                                                                                \
    X(ENOTDB, -80, PERMANENT, "the file is not a stet store")                                      \
    X(ENEWER, -81, PERMANENT, "the store was written by a newer stet")                             \
    X(EREADONLY, -82, PERMANENT, "the store cannot be written")                                    \
    X(EPOISONED, -83, RETRY, "a flush failed; the store must be reopened")                         \
    X(EMOVED, -84, PERMANENT, "the store is being moved, or was moved, to another one")            \
    X(EFENCED, -90, FENCED, "another worker owns the run now")                                     \
    X(EUNCERTAIN, -91, UNKNOWN, "the store did not answer; the outcome is not known")              \
    /* not failures */                                                                             \
    X(SUSPENDED, -100, RETRY, "the run is suspended; return at once")                              \
    X(END, -101, RETRY, "no more")                                                                 \
    X(CONTINUED, -102, RETRY, "the run begins anew; return this")

typedef enum stet_code {
    STET_OK = 0,
#define STET_ERROR_ENUM(name, number, class_, text) STET_##name = number,
    STET_ERROR_LIST(STET_ERROR_ENUM)
#undef STET_ERROR_ENUM
    STET_CODE_USER = -1000 /* codes at and below this are the application's own; class retry */
} stet_code;

typedef enum stet_class {
    STET_CLASS_OK,
    STET_CLASS_RETRY,
    STET_CLASS_PERMANENT,
    STET_CLASS_FENCED,
    STET_CLASS_UNKNOWN,
    STET_CLASS_USAGE
} stet_class;

#endif
