/* A log line as people read it: the engine's to standard error, and the command line's. */
#include <stdio.h>

#include <stet/engine.h>

#include "util/util.h"

const char *
stet__level_name(stet_level level)
{
    static const char *const names[] = { "debug", "info", "warn", "error", "off" };

    return level <= STET_LOG_OFF ? names[level] : "?";
}

const char *
stet__code_text(char room[STET__CODE_TEXT_MAX], int code)
{
    if (stet_code_name(code) != NULL)
        return stet_code_name(code);
    (void)snprintf(room, STET__CODE_TEXT_MAX, "%d", code);
    return room;
}

void
stet__log_print(const stet_log_record *r)
{
    char code[STET__CODE_TEXT_MAX];

    (void)fprintf(stderr, "stet %s: %s%s%s%s%s%s%s%s%s%s%s%s%s\n", stet__level_name(r->level),
                  r->message, r->run ? " run=" : "", r->run ? r->run : "",
                  r->handler ? " handler=" : "", r->handler ? r->handler : "",
                  r->step ? " step=" : "", r->step ? r->step : "", r->code ? " code=" : "",
                  r->code ? stet__code_text(code, r->code) : "",
                  r->traceparent ? " traceparent=" : "", r->traceparent ? r->traceparent : "",
                  r->fields ? " " : "", r->fields ? r->fields : "");
}
