/* Any text as a cron expression, behind a byte that chooses a zone and four that are a time: no
 * crash; a refusal has a sentence and leaves the output alone; what is accepted fires after the
 * time at an hour and minute it allows, and whoever asks in between is told the same.
 */
#include <stdlib.h>
#include <string.h>

#include "core/cron.h"
#include "platform/platform.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file that is all rule: Berlin, Lord Howe, daylight saving that never ends; NULL: UTC. */
static stet__zone *
fuzz_zone(unsigned which)
{
    static const char *const rules[] = { "CET-1CEST,M3.5.0,M10.5.0/3",
                                         "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0",
                                         "XXX3EDT4,0/0,J365/23" };
    uint8_t                  file[256] = "TZif2";
    stet__zone              *zone = NULL;
    size_t                   len = 88;

    if (which > 2)
        return NULL;
    memcpy(file + 44, "TZif2", 5);
    file[44 + 39] = 1;
    len += 6; /* one kind of time: UTC */
    file[len++] = '\n';
    memcpy(file + len, rules[which], strlen(rules[which]));
    len += strlen(rules[which]);
    file[len++] = '\n';
    if (stet__zone_decode(&zone, &stet__platform_real()->alloc, "Fuzz",
                          (stet_bytes){ file, len }) != STET_OK)
        abort();
    return zone;
}

static void
fuzz_next(const stet__cron *cron, const stet__zone *zone, int64_t after_s)
{
    stet_cron_time t, again;

    for (int i = 0; i < 5; i++, after_s = t.at_ms / 1000) {
        stet__cron_next(cron, zone, after_s, &t);
        if (t.at_ms <= after_s * 1000 || t.at_ms % 1000 != 0 ||
            t.at_ms / 1000 - after_s > INT64_C(41) * 366 * 86400)
            abort();
        if ((cron->hours >> t.asked_hour & 1) == 0 || (cron->minutes >> t.asked_minute & 1) == 0)
            abort();
        if (t.mark != STET_CRON_MOVED && (t.hour != t.asked_hour || t.minute != t.asked_minute))
            abort();
        stet__cron_next(cron, zone, after_s + (t.at_ms / 1000 - after_s - 1) / 2, &again);
        if (again.at_ms != t.at_ms || again.mark != t.mark)
            abort();
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stet__cron  cron;
    stet__zone *zone;
    char       *text;
    int64_t     after_s;

    if (size < 5 || (text = malloc(size - 4)) == NULL)
        return 0;
    after_s = (int64_t)stet__load_u32(data + 1) * 4 - INT64_C(4000000000);
    memcpy(text, data + 5, size - 5);
    text[size - 5] = '\0';
    memset(&cron, 0xa5, sizeof cron);
    if (stet__cron_parse(&cron, text) == STET_OK) {
        zone = fuzz_zone(data[0] % 4);
        fuzz_next(&cron, zone, after_s);
        stet__zone_free(zone, &stet__platform_real()->alloc);
    } else if (stet_last_error()[0] == '\0' || cron.minutes != UINT64_C(0xa5a5a5a5a5a5a5a5)) {
        abort();
    }
    free(text);
    return 0;
}
