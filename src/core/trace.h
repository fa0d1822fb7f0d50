/* Trace context as W3C has it: to which trace a run belongs, and which span what it starts has as its
 * parent. Pure.
 *
 * A run is one span; its ID follows from the run's, so it is the same on every replay and in every process.
 */
#ifndef STET__TRACE_H
#define STET__TRACE_H

#include "util/util.h"

#define STET__TRACEPARENT_LEN  55u  /* 00-(32 digits)-(16 digits)-(2 digits) */
#define STET__TRACEPARENT_MAX  256u /* of a later version, which may have more fields */
#define STET__TRACESTATE_MAX   512u

bool stet__traceparent_is_legal(const char *text);
bool stet__tracestate_is_legal(const char *text);
/* What `run`, which was started with `given`, hands on: the same trace, itself as the parent. */
void stet__traceparent_of(char out[STET__TRACEPARENT_LEN + 1], const char *given, stet_id run);

#endif
