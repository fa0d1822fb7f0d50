/* What every other header of stet needs: visibility, bytes, codes, IDs, durations. */
#ifndef STET_BASE_H
#define STET_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stet/errors.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
#define STET_API __attribute__((visibility("default")))
#define STET_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define STET_MUST_USE __attribute__((warn_unused_result))
#else
#define STET_API
#define STET_PRINTF(fmt, args)
#define STET_MUST_USE
#endif

#define STET_VERSION "0.1.0"

/** Explicitly none, where 0 means "not set, use the default". */
#define STET_NONE (-1)

/** Bytes somebody else owns. `data` may be NULL only if `len` is 0. Payloads are opaque to stet. */
typedef struct stet_bytes {
    const void *data;
    size_t      len;
} stet_bytes;

/** The bytes of a NUL-terminated text, without the NUL. */
STET_API stet_bytes stet_text(const char *text);

/** "STET_ETIMEOUT"; NULL for a number that is no code. Any thread. */
STET_API const char *stet_code_name(int code);
/** One line about a code in general; never NULL. */
STET_API const char *stet_code_text(int code);
/** What to do about a code; codes nobody defined are of class retry. */
STET_API stet_class stet_code_class(int code);

/** The full sentence of this thread's last failed stet call: what failed, on what, what to do.
 * Valid until the thread's next stet call. "" if none failed. */
STET_API const char *stet_last_error(void);

/* ---- IDs ---------------------------------------------------------------------------------- */

/** Room for any ID as text: kind, '_', 26 characters, NUL. IDs are URL-safe, unguessable and sort
 * by the time they were made. */
#define STET_ID_TEXT_MAX 40

/** An ID as the stores see it: 6 bytes of milliseconds since 1970, big endian, then 10 random ones. */
typedef struct stet_id {
    uint8_t bytes[16];
} stet_id;

typedef struct stet_run_id {
    char text[STET_ID_TEXT_MAX];
} stet_run_id;

typedef struct stet_awakeable_id {
    char text[STET_ID_TEXT_MAX];
} stet_awakeable_id;

/** Parse a run ID. @return STET_OK; STET_EKIND, an ID of another kind; STET_EINVAL, no ID at all. */
STET_API int stet_run_id_parse(stet_run_id *run, const char *text);

/* ---- durations ---------------------------------------------------------------------------- */

/** Parse "500ms", "5s", "1.5h", "2 d", any case, or a plain number of milliseconds.
 * @return STET_OK; STET_EDURATION with what was expected. Nothing is written on failure. */
STET_API int stet_duration_parse(int64_t *ms, const char *text);
/** Write a duration as people read it ("1h30m"). Returns `text`. */
STET_API const char *stet_duration_text(char *text, size_t size, int64_t ms);

#ifdef __cplusplus
}
#endif
#endif
