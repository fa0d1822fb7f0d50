/* schedule preview: when a cron expression fires in a time zone, and what daylight saving does to
 * it. Needs no store. */
#include "cli/cli.h"

#include <stdlib.h>

#include "platform/platform.h"

#define SCHEDULE_PREVIEW_MAX 1000

static const cli_column schedule_columns[] = {
    { "LOCAL", CLI_CELL_FIXED },
    { "UTC", CLI_CELL_FIXED },
    { "DAYLIGHT SAVING", CLI_CELL_CUT },
};

static const char *
schedule_weekday(const stet_cron_time *t)
{
    static const char *const names[] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
    /* 1970 began on a Thursday; local days are counted like those of UTC. */
    int64_t local_s = t->at_ms / 1000 + t->offset_s, days = local_s / 86400;

    return names[((local_s % 86400 < 0 ? days - 1 : days) % 7 + 11) % 7];
}

/* "+02:00"; seconds only where there are some, in the nineteenth century. */
static const char *
schedule_offset(cli *c, int32_t offset_s)
{
    int s = abs(offset_s);

    if (s % 60 != 0)
        return stet__cli_printf(c, "%c%02d:%02d:%02d", offset_s < 0 ? '-' : '+', s / 3600,
                                s / 60 % 60, s % 60);
    return stet__cli_printf(c, "%c%02d:%02d", offset_s < 0 ? '-' : '+', s / 3600, s / 60 % 60);
}

static const char *
schedule_clock(cli *c, const stet_cron_time *t)
{
    if (t->second != 0)
        return stet__cli_printf(c, "%02d:%02d:%02d", t->hour, t->minute, t->second);
    return stet__cli_printf(c, "%02d:%02d", t->hour, t->minute);
}

static const char *
schedule_utc(cli *c, int64_t at_ms)
{
    const char *when = stet__cli_when(c, at_ms, at_ms); /* "2026-03-29T01:00:00.000Z (…" */

    return stet__cli_printf(c, "%.*sZ", (int)strcspn(when, "."), when);
}

/* "clocks go forward 1h; 02:30 does not exist: fires at 03:00" */
static const char *
schedule_note(cli *c, const stet_cron_time *t)
{
    char        span[32];
    const char *shift = "", *mark = "";

    if (t->shift_s != 0)
        shift = stet__cli_printf(
            c, "clocks go %s %s", t->shift_s > 0 ? "forward" : "back",
            stet_duration_text(span, sizeof span, (int64_t)abs(t->shift_s) * 1000));
    switch (t->mark) {
    case STET_CRON_MOVED:
        mark = stet__cli_printf(c, "%02d:%02d does not exist: fires at %s", t->asked_hour,
                                t->asked_minute, schedule_clock(c, t));
        break;
    case STET_CRON_FIRST:
        mark = stet__cli_printf(c, "repeated hour: the first %s", schedule_clock(c, t));
        break;
    case STET_CRON_SECOND:
        mark = stet__cli_printf(c, "repeated hour: the second %s", schedule_clock(c, t));
        break;
    case STET_CRON_PLAIN: break;
    }
    return stet__cli_printf(c, "%s%s%s", shift, *shift && *mark ? "; " : "", mark);
}

static void
schedule_json(cli *c, const stet_cron_time *t)
{
    static const char *const marks[] = {
        [STET_CRON_PLAIN] = "plain",
        [STET_CRON_MOVED] = "moved",
        [STET_CRON_FIRST] = "first",
        [STET_CRON_SECOND] = "second",
    };
    cli_json j;

    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_int(&j, "at_ms", t->at_ms);
    stet__cli_json_text(&j, "local",
                        stet__cli_printf(c, "%04d-%02d-%02dT%02d:%02d:%02d%s", t->year, t->month,
                                         t->day, t->hour, t->minute, t->second,
                                         schedule_offset(c, t->offset_s)));
    stet__cli_json_text(&j, "utc", schedule_utc(c, t->at_ms));
    stet__cli_json_int(&j, "offset_s", t->offset_s);
    stet__cli_json_int(&j, "shift_s", t->shift_s);
    stet__cli_json_text(&j, "mark", marks[t->mark]);
    stet__cli_json_text(&j, "asked",
                        stet__cli_printf(c, "%02d:%02d", t->asked_hour, t->asked_minute));
    stet__cli_json_text(&j, "note", schedule_note(c, t));
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

static void
schedule_row(cli *c, cli_table *table, const stet_cron_time *t)
{
    const char *cells[] = {
        stet__cli_printf(c, "%s %04d-%02d-%02d %s %s", schedule_weekday(t), t->year, t->month,
                         t->day, schedule_clock(c, t), schedule_offset(c, t->offset_s)),
        schedule_utc(c, t->at_ms),
        schedule_note(c, t),
    };

    if (c->json)
        schedule_json(c, t);
    else
        stet__cli_table_row(table, cells);
}

static int
schedule_list(cli *c, const stet_cron *cron, int64_t after_ms, int64_t n)
{
    cli_table      table;
    stet_cron_time t;
    int            err = STET_OK;

    stet__cli_table_begin(&table, c, schedule_columns,
                          sizeof schedule_columns / sizeof *schedule_columns);
    for (; n > 0 && (err = stet_cron_next_time(cron, &t, after_ms)) == STET_OK; n--) {
        schedule_row(c, &table, &t);
        after_ms = t.at_ms;
    }
    stet__cli_table_end(&table);
    return err == STET_OK || err == STET_END ? CLI_OK : stet__cli_fail_code(c, err);
}

static int
schedule_preview_run(cli *c)
{
    const char *zone = stet__cli_value(c, "tz");
    int64_t     n = 10, after_ms = stet__wall_ms(stet__platform_real());
    stet_cron  *cron;
    int         exit, err;

    if ((exit = stet__cli_number(c, "n", &n, 1, SCHEDULE_PREVIEW_MAX)) != CLI_OK ||
        (exit = stet__cli_time(c, "from", &after_ms)) != CLI_OK)
        return exit;
    err = stet_cron_parse(&cron, c->args[0], zone);
    if (err == STET_ENOTFOUND) /* a zone: a word of the command line, nothing of a store */
        return stet__cli_fail(c, CLI_USAGE, "%s", stet_last_error());
    if (err != STET_OK)
        return stet__cli_fail_code(c, err);
    exit = schedule_list(c, cron, after_ms, n);
    stet_cron_free(cron);
    return exit;
}

static const cli_option schedule_preview_options[] = {
    { "tz", "ZONE", "time zone, such as Europe/Berlin (UTC)" },
    { "n", "N", "how many (10)" },
    { "from", "TIME", "after this time: 2030-01-31T12:00:00Z (now)" },
    { 0 },
};

const cli_verb stet__cli_schedule_preview = {
    .name = "schedule preview",
    .args = "CRON",
    .summary = "when a cron expression fires next, with daylight saving",
    .details = "CRON has five fields: minute, hour, day of month, month, day of week; or it is "
               "@hourly, @daily,\n@weekly, @monthly, @yearly. Quote it. No store is needed.\n\n"
               "    stet schedule preview '0 9 * * MON-FRI' --tz Europe/Berlin -n 5",
    .args_min = 1,
    .args_max = 1,
    .options = schedule_preview_options,
    .fn = schedule_preview_run,
};
