/* Any bytes as a file of the tz database, any text as its rule and as a zone's name: no crash; a
 * refusal has a sentence; the spans of what is accepted follow each other without a hole, and
 * cron finds its way through them.
 */
#include <stdlib.h>
#include <string.h>

#include "core/cron.h"
#include "platform/platform.h"
#include "platform/tzdata.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
fuzz_spans(const stet__zone *zone, int64_t at_s)
{
    stet__zone_span span = stet__zone_span_at(zone, at_s), next;

    for (int i = 0; i < 50 && span.until_s < STET__ZONE_LAST_S; i++, span = next) {
        if (span.from_s >= span.until_s || span.offset_s < -90000 || span.offset_s > 93600)
            abort();
        next = stet__zone_span_at(zone, span.until_s);
        if (next.from_s != span.until_s)
            abort();
        if (stet__zone_span_at(zone, span.until_s - 1).from_s != span.from_s)
            abort();
    }
}

static void
fuzz_cron(const stet__zone *zone, const char *text, int64_t after_s)
{
    stet__cron     cron;
    stet_cron_time t;

    if (stet__cron_parse(&cron, text) != STET_OK)
        abort();
    for (int i = 0; i < 20; i++, after_s = t.at_ms / 1000) {
        stet__cron_next(&cron, zone, after_s, &t);
        if (t.at_ms <= after_s * 1000)
            abort();
    }
}

static void
fuzz_file(stet_bytes file)
{
    stet__alloc *alloc = &stet__platform_real()->alloc;
    stet__zone  *zone = NULL;

    if (stet__zone_decode(&zone, alloc, "Fuzz", file) != STET_OK) {
        if (zone != NULL || stet_last_error()[0] == '\0')
            abort();
        return;
    }
    for (int64_t at_s = -4000000000; at_s <= 8000000000; at_s += 4000000000) {
        fuzz_spans(zone, at_s);
        fuzz_cron(zone, "30 2 * * *", at_s);
        fuzz_cron(zone, "*/30 * * * *", at_s);
        fuzz_cron(zone, "0 0 29 2 1", at_s);
    }
    stet__zone_free(zone, alloc);
}

/* The rest is the rule of a file without changes. */
static void
fuzz_rule(const uint8_t *data, size_t size)
{
    uint8_t file[88 + 6 + 2 + 200] = "TZif2";
    size_t  len = 88 + 6;

    if (size > 200)
        return;
    memcpy(file + 44, "TZif2", 5);
    file[44 + 39] = 1;
    file[len++] = '\n';
    memcpy(file + len, data, size);
    len += size;
    file[len++] = '\n';
    fuzz_file((stet_bytes){ file, len });
}

static void
fuzz_name(const uint8_t *data, size_t size)
{
    char      name[100];
    stet__buf out;

    if (size >= sizeof name)
        return;
    memcpy(name, data, size);
    name[size] = '\0';
    stet__buf_init(&out, &stet__platform_real()->alloc);
    if (stet__tzdata_read(&out, name) != STET_OK && stet_last_error()[0] == '\0')
        abort();
    stet__buf_free(&out);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *exact;

    if (size < 1 || (exact = malloc(size)) == NULL) /* so that a read behind the end is seen */
        return 0;
    memcpy(exact, data, size);
    if (exact[0] == 'r')
        fuzz_rule(exact + 1, size - 1);
    else if (exact[0] == 'n')
        fuzz_name(exact + 1, size - 1);
    else
        fuzz_file((stet_bytes){ exact + 1, size - 1 });
    free(exact);
    return 0;
}
