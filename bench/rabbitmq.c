/* Hints through RabbitMQ (queue=amqp://…): a broker of the benchmark's own, which goes with it. */
#include "bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "rabbit_server.h"
#include "test.h"

/* What the broker's support asks of a test program. */
static _Noreturn void
rabbit_gone(const char *fmt, va_list args)
{
    char text[512];

    (void)vsnprintf(text, sizeof text, fmt, args);
    bench_fail("%s", text);
    abort();
}

_Noreturn void
test_skip(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    rabbit_gone(fmt, args);
}

_Noreturn void
test_fail(const char *file, int line, const char *fmt, ...)
{
    va_list args;

    (void)file;
    (void)line;
    va_start(args, fmt);
    rabbit_gone(fmt, args);
}

const char *
bench_rabbit_url(const char *name)
{
    rabbit_server_share();
    rabbit_server_need();
    return rabbit_url(0, name);
}
