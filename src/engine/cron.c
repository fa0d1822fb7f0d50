/* The public functions about cron: an expression (core/cron.h), and its zone from the tz database.
 *
 * Needs no engine and no store. A stet_cron is constant once it was parsed, so any thread may ask.
 */
#include <stet/schedule.h>

#include "core/cron.h"
#include "platform/platform.h"
#include "platform/tzdata.h"

/* The first and the last millisecond of the years 1 to 9999. */
#define CRON_FIRST_MS INT64_C(-62135596800000)
#define CRON_LAST_MS  INT64_C(253402300799999)

struct stet_cron {
    stet__cron  cron;
    stet__zone *zone; /* NULL: UTC */
};

/* UTC is known without a database. */
static bool
cron_is_utc(const char *zone)
{
    return zone == NULL || *zone == '\0' || strcmp(zone, "UTC") == 0 ||
           strcmp(zone, "Etc/UTC") == 0;
}

static int
cron_zone(stet__zone **out, stet__alloc *alloc, const char *name)
{
    stet__buf file;
    int       err;

    *out = NULL;
    if (cron_is_utc(name))
        return STET_OK;
    stet__buf_init(&file, alloc);
    if ((err = stet__tzdata_read(&file, name)) == STET_OK)
        err = stet__zone_decode(out, alloc, name, stet__buf_bytes(&file));
    stet__buf_free(&file);
    return err;
}

int
stet_cron_parse(stet_cron **cron, const char *expression, const char *zone)
{
    stet__alloc *alloc = &stet__platform_real()->alloc;
    stet_cron   *made = NULL, parsed = { .zone = NULL };
    int          err;

    if (cron != NULL)
        *cron = NULL;
    if ((err = stet__cron_parse(&parsed.cron, expression)) != STET_OK ||
        (err = cron_zone(&parsed.zone, alloc, zone)) != STET_OK || cron == NULL)
        goto done;
    if ((made = stet__get(alloc, sizeof *made)) == NULL) {
        err = stet__fail(STET_ENOMEM, "cron \"%.200s\": out of memory", expression);
        goto done;
    }
    *made = parsed;
    parsed.zone = NULL;
    *cron = made;
done:
    stet__zone_free(parsed.zone, alloc);
    return err;
}

void
stet_cron_free(stet_cron *cron)
{
    stet__alloc *alloc = &stet__platform_real()->alloc;

    if (cron == NULL)
        return;
    stet__zone_free(cron->zone, alloc);
    stet__free(alloc, cron);
}

int
stet_cron_next_time(const stet_cron *cron, stet_cron_time *next, int64_t after_ms)
{
    stet_cron_time found;

    if (after_ms < CRON_FIRST_MS || after_ms > CRON_LAST_MS)
        return stet__fail(STET_EINVAL,
                          "the time after which cron is asked for, %lld ms, is not in "
                          "the years 1 to 9999",
                          (long long)after_ms);
    stet__cron_next(&cron->cron, cron->zone, stet__floor_div(after_ms, 1000), &found);
    if (found.at_ms > CRON_LAST_MS)
        return stet__fail(STET_END, "the next time is not before the year 10000");
    *next = found;
    return STET_OK;
}

int
stet_cron_next(const stet_cron *cron, int64_t *next_ms, int64_t after_ms)
{
    stet_cron_time next;
    int            err = stet_cron_next_time(cron, &next, after_ms);

    if (err == STET_OK)
        *next_ms = next.at_ms;
    return err;
}
