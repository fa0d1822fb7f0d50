/* A program of its own: services, then the whole command line. */
#ifndef STET_APP_H
#define STET_APP_H

#include <stet/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stet_app stet_app;

/** @param name  for help texts and as the default store ("shop" -> shop.db). Never fails: running out
 * of memory is reported by stet_main(). */
STET_API stet_app *stet_app_new(const char *name);
/** As stet_register(). Mistakes are kept and reported by stet_main(). */
STET_API void stet_app_service(stet_app *app, const char *service, const stet_handler *handlers);
STET_API void stet_app_object(stet_app *app, const char *service, const stet_handler *handlers,
                              const stet_entry *initial);
/** Defaults for `worker`; the command line and the environment go before them. Copied. */
STET_API void stet_app_options(stet_app *app, const stet_options *options);
/** A schedule of the program: ensured (stet_schedule_ensure()) whenever a worker of it starts. Taking
 * the line out of the program does not remove the schedule; `schedule rm` does. Copied. */
STET_API void stet_app_schedule(stet_app *app, const char *name, const char *handler,
                                stet_bytes input, const stet_schedule_options *options);
/** As stet_register_schedule(). */
STET_API void stet_app_schedule_fn(stet_app *app, const char *function, stet_schedule_fn fn,
                                   void *arg);
/** Run the command line and free the app. Returns the exit code for main(). */
STET_API int stet_main(int argc, char **argv, stet_app *app);

#ifdef __cplusplus
}
#endif
#endif
