/* Any command line into the parser, and every option it found read as a number, a duration, a time: no
 * crash. No verb is executed. Arguments are separated by NUL bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "platform/platform.h"

enum { FUZZ_ARGS_MAX = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
fuzz_values(cli *c)
{
    stet_run_id run;
    int64_t     number;

    for (size_t i = 0; i < c->n_given; i++) {
        const char *name = c->given[i].option->name;

        if (!stet__cli_has(c, name) || (stet__cli_value_at(c, name, 0) == NULL) != (c->given[i].value == NULL && i == 0))
            (void)stet__cli_value(c, name);
        if (c->given[i].value == NULL)
            continue;
        (void)stet__cli_number(c, name, &number, 0, 1000);
        (void)stet__cli_duration(c, name, &number);
        (void)stet__cli_time(c, name, &number);
    }
    for (size_t i = 0; i < c->n_args; i++)
        (void)stet__cli_run_id(c, stet__cli_arg(c, i), &run);
    if (stet__cli_arg(c, c->n_args) != NULL)
        abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char program[] = "shop";
    stet__arena arena;
    stet_app    app = { .alloc = stet__platform_real()->alloc, .name = "shop" };
    cli         c = { .app = &app, .alloc = &app.alloc, .arena = &arena, .name = "shop", .program = "./shop", .width = 80 };
    char       *argv[FUZZ_ARGS_MAX + 1] = { program };
    char       *text = malloc(size + 1);
    int         argc = 1;

    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    for (size_t at = 0; at < size && argc < FUZZ_ARGS_MAX; at += strlen(text + at) + 1)
        argv[argc++] = text + at;
    stet__arena_init(&arena, &app.alloc);
    stet__arena_init(&app.arena, &app.alloc);
    if (stet__cli_parse(&c, argc, argv) == CLI_OK)
        fuzz_values(&c);
    stet__arena_free(&app.arena);
    stet__arena_free(&arena);
    free(text);
    return 0;
}
