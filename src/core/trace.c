/* Trace context; see trace.h. Pure. */
#include "core/trace.h"

#include <stdio.h>
#include <string.h>

/* Where the fields begin. */
#define TRACE_ID_AT    3
#define TRACE_ID_LEN   32
#define TRACE_SPAN_AT  36
#define TRACE_SPAN_LEN 16
#define TRACE_FLAGS_AT 53

static bool
trace_is_hex(const char *text, size_t at, size_t len)
{
    return strspn(text + at, "0123456789abcdef") >= len;
}

static bool
trace_is_zero(const char *text, size_t at, size_t len)
{
    return strspn(text + at, "0") >= len;
}

/* Version 00 has these four fields; a later one may have more behind a dash, which are not handed on. */
bool
stet__traceparent_is_legal(const char *text)
{
    size_t len = strnlen(text, STET__TRACEPARENT_MAX + 1);

    if (len < STET__TRACEPARENT_LEN || len > STET__TRACEPARENT_MAX || text[TRACE_ID_AT - 1] != '-' ||
        text[TRACE_SPAN_AT - 1] != '-' || text[TRACE_FLAGS_AT - 1] != '-' || !trace_is_hex(text, 0, 2) ||
        !trace_is_hex(text, TRACE_ID_AT, TRACE_ID_LEN) ||
        !trace_is_hex(text, TRACE_SPAN_AT, TRACE_SPAN_LEN) || !trace_is_hex(text, TRACE_FLAGS_AT, 2))
        return false;
    if (strncmp(text, "ff", 2) == 0 || trace_is_zero(text, TRACE_ID_AT, TRACE_ID_LEN) ||
        trace_is_zero(text, TRACE_SPAN_AT, TRACE_SPAN_LEN))
        return false;
    return len == STET__TRACEPARENT_LEN ||
           (strncmp(text, "00", 2) != 0 && text[STET__TRACEPARENT_LEN] == '-');
}

/* What is in it is the vendors' business; it only has to fit into a header. */
bool
stet__tracestate_is_legal(const char *text)
{
    size_t len = strnlen(text, STET__TRACESTATE_MAX + 1), i;

    for (i = 0; i < len; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    return len > 0 && len <= STET__TRACESTATE_MAX;
}

void
stet__traceparent_of(char out[STET__TRACEPARENT_LEN + 1], const char *given, stet_id run)
{
    uint64_t span = stet__hash64(run.bytes, sizeof run.bytes, 11);

    (void)snprintf(out, STET__TRACEPARENT_LEN + 1, "00-%.32s-%016llx-%.2s", given + TRACE_ID_AT,
                   (unsigned long long)(span + (span == 0)), given + TRACE_FLAGS_AT);
}
