/* reports: schedules that are part of a program. Start its worker in as many processes and as often
 * as you like: each planned time is one report. `./reports schedule ls` shows them. */
#include <stdio.h>
#include <stet.h>

static int
print(stet_attempt *attempt, void *title)
{
    (void)attempt;
    return printf("report: %s\n", (const char *)title) < 0 || fflush(stdout) != 0 ? STET_EIO
                                                                                   : STET_OK;
}

static int
write_report(stet_ctx *ctx, stet_bytes input)
{
    char *title = stet_ctx_printf(ctx, "%.*s", (int)input.len, (const char *)input.data);

    return stet_step(ctx, NULL, "print", print, title, NULL);
}

/* The last day of each month at 18:00 UTC, which cron has no word for: of the days that it can
 * name, the first one behind which another month begins. */
static int
month_end(void *arg, int64_t *next_ms, const char *schedule, int64_t after_ms)
{
    stet_cron     *cron;
    stet_cron_time day = { .at_ms = after_ms }, next;
    int            err = stet_cron_parse(&cron, "0 18 28-31 * *", "UTC");

    (void)arg;
    (void)schedule;
    if (err != STET_OK)
        return err;
    err = stet_cron_next_time(cron, &day, after_ms);
    while (err == STET_OK && (err = stet_cron_next_time(cron, &next, day.at_ms)) == STET_OK &&
           next.month == day.month)
        day = next;
    stet_cron_free(cron);
    *next_ms = day.at_ms;
    return err;
}

static const stet_handler reports[] = { { "write", write_report, NULL }, { 0 } };

int
main(int argc, char **argv)
{
    stet_app *app = stet_app_new("reports");

    stet_app_service(app, "reports", reports);
    stet_app_schedule(app, "workday", "reports.write", stet_text("\"the day\""),
                      STET_SCHEDULE(.cron = "0 9 * * MON-FRI", .zone = "Europe/Berlin"));
    stet_app_schedule(app, "pulse", "reports.write", stet_text("\"alive\""),
                      STET_SCHEDULE(.every = "1s", .missed = STET_MISSED_SKIP));
    stet_app_schedule_fn(app, "month end", month_end, NULL);
    stet_app_schedule(app, "payday", "reports.write", stet_text("\"the month\""),
                      STET_SCHEDULE(.function = "month end"));
    return stet_main(argc, argv, app);
}
