/* help: made from the tables of verbs, options, configuration and exit codes, so it cannot lag. */
#include "cli/cli.h"

#include <ctype.h>
#include <string.h>

static void
help_options(const cli_option *options)
{
    for (; options != NULL && options->name != NULL; options++) {
        char left[64];

        snprintf(left, sizeof left, "%s%s%s%s", stet__cli_dashes(options->name), options->name,
                 options->value ? " " : "", options->value ? options->value : "");
        printf("  %-26s %s\n", left, options->text);
    }
}

static void
help_options_json(cli *c, cli_json *j, const char *name, const cli_option *options)
{
    stet__cli_json_open(j, name, '[');
    for (; options != NULL && options->name != NULL; options++) {
        stet__cli_json_open(j, NULL, '{');
        stet__cli_json_text(
            j, "option",
            stet__cli_printf(c, "%s%s", stet__cli_dashes(options->name), options->name));
        stet__cli_json_text(j, "value", options->value);
        stet__cli_json_text(j, "text", options->text);
        stet__cli_json_close(j, '}');
    }
    stet__cli_json_close(j, ']');
}

static void
help_verb_json(cli *c, const cli_verb *verb)
{
    cli_json j;

    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "verb", verb->name);
    stet__cli_json_text(&j, "arguments", verb->args);
    stet__cli_json_text(&j, "summary", verb->summary);
    stet__cli_json_text(&j, "details", verb->details);
    help_options_json(c, &j, "options", verb->options);
    help_options_json(c, &j, "common_options", stet__cli_common_options());
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

/* A line of a list of verbs. */
static void
help_line(cli *c, const cli_verb *verb)
{
    if (c->json)
        help_verb_json(c, verb);
    else
        printf("  %-17s %s\n", verb->name, verb->summary);
}

static int
help_verb(cli *c, const cli_verb *verb)
{
    if (c->json) {
        help_verb_json(c, verb);
        return CLI_OK;
    }
    printf("%s %s%s%s [options]\n\n%s\n", c->program, verb->name, *verb->args ? " " : "",
           verb->args, verb->summary);
    if (verb->needs_handlers && c->app->n_services == 0)
        printf(
            "\nThis command has no handlers and cannot do it; programs that call stet_main() with "
            "theirs can.\n");
    if (verb->details != NULL)
        printf("\n%s\n", verb->details);
    if (verb->options != NULL)
        printf("\nOptions:\n");
    help_options(verb->options);
    printf("\nOptions of every verb:\n");
    help_options(stet__cli_common_options());
    return CLI_OK;
}

/* What this command would refuse is named with who does it. */
static void
help_elsewhere(void)
{
    const cli_verb *verb;
    const char     *comma = "\nPrograms that call stet_main() with their handlers have also: ";

    for (size_t i = 0; (verb = stet__cli_verb_at(i)) != NULL; i++)
        if (verb->needs_handlers) {
            printf("%s%s", comma, verb->name);
            comma = ", ";
        }
    printf(".\n");
}

static int
help_all(cli *c)
{
    const cli_verb *verb;

    if (!c->json)
        printf("%s VERB [arguments] [options]\n\n", c->program);
    for (size_t i = 0; (verb = stet__cli_own_verb_at(c, i)) != NULL; i++)
        help_line(c, verb);
    if (c->json)
        return CLI_OK;
    if (c->app->n_services == 0)
        help_elsewhere();
    printf("\nOptions of every verb:\n");
    help_options(stet__cli_common_options());
    if (c->app->name != NULL)
        printf("\nThe store is %s.db if neither --db nor STET_DB says otherwise.\n", c->app->name);
    printf("\n\"help VERB\" tells more; \"help config\" lists the settings, \"help exit-codes\" "
           "the exit codes.\n");
    return CLI_OK;
}

static void
help_setting_json(cli *c, const stet_config_item *item, const char *variable)
{
    cli_json j;

    stet__cli_json_begin(&j, c);
    stet__cli_json_open(&j, NULL, '{');
    stet__cli_json_text(&j, "name", item->name);
    stet__cli_json_int(&j, "default", item->normal);
    stet__cli_json_int(&j, "least", item->least);
    stet__cli_json_int(&j, "most", item->most);
    stet__cli_json_text(&j, "unit", item->unit);
    stet__cli_json_text(&j, "text", item->text);
    stet__cli_json_text(&j, "environment", variable);
    stet__cli_json_close(&j, '}');
    stet__cli_json_end(&j, stdout);
}

static int
help_config(cli *c)
{
    static const cli_column columns[] = {
        { "SETTING", CLI_CELL_FIXED }, { "DEFAULT", CLI_CELL_FIXED }, { "LEAST", CLI_CELL_FIXED },
        { "MOST", CLI_CELL_FIXED },    { "UNIT", CLI_CELL_FIXED },    { "MEANING", CLI_CELL_CUT },
    };
    const stet_config_item *item;
    cli_table               table;

    stet__cli_table_begin(&table, c, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; (item = stet_config_at(i)) != NULL; i++) {
        char        variable[64];
        const char *cells[] = { item->name,
                                stet__cli_printf(c, "%lld", (long long)item->normal),
                                stet__cli_printf(c, "%lld", (long long)item->least),
                                stet__cli_printf(c, "%lld", (long long)item->most),
                                item->unit,
                                item->text };

        snprintf(variable, sizeof variable, "STET_%s", item->name);
        for (char *p = variable; *p != '\0'; p++)
            *p = (char)toupper((unsigned char)*p);
        if (c->json)
            help_setting_json(c, item, variable);
        else
            stet__cli_table_row(&table, cells);
    }
    stet__cli_table_end(&table);
    if (!c->json)
        printf("\nworker --set concurrency=4, or STET_CONCURRENCY=4 in the environment. Times may "
               "have a "
               "unit: 30s.\n");
    return CLI_OK;
}

static int
help_exit_codes(cli *c)
{
    static const struct {
        int         number;
        const char *name, *text;
    } codes[] = {
#define HELP_EXIT(name, number, text) { number, #name, text },
        CLI_EXIT_LIST(HELP_EXIT)
#undef HELP_EXIT
    };

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        cli_json j;

        if (!c->json) {
            printf("%4d  %s\n", codes[i].number, codes[i].text);
            continue;
        }
        stet__cli_json_begin(&j, c);
        stet__cli_json_open(&j, NULL, '{');
        stet__cli_json_int(&j, "exit", codes[i].number);
        stet__cli_json_text(&j, "name", codes[i].name);
        stet__cli_json_text(&j, "text", codes[i].text);
        stet__cli_json_close(&j, '}');
        stet__cli_json_end(&j, stdout);
    }
    return CLI_OK;
}

static const char *
help_topic_name(const void *arg, size_t i)
{
    static const char *const topics[] = { "config", "exit-codes" };
    const cli_verb          *verb;
    size_t                   n = 0;

    (void)arg;
    while ((verb = stet__cli_verb_at(n)) != NULL)
        if (n++ == i)
            return verb->name;
    return i - n < sizeof topics / sizeof *topics ? topics[i - n] : NULL;
}

static int
help_topic(cli *c, const char *topic)
{
    const cli_verb *verb;
    const char     *near;
    size_t          n = 0, len = strlen(topic);

    if (strcmp(topic, "config") == 0)
        return help_config(c);
    if (strcmp(topic, "exit-codes") == 0)
        return help_exit_codes(c);
    for (size_t i = 0; (verb = stet__cli_verb_at(i)) != NULL; i++)
        if (strcmp(verb->name, topic) == 0)
            return help_verb(c, verb);
    /* "help dlq" is about all verbs of that family. */
    for (size_t i = 0; (verb = stet__cli_verb_at(i)) != NULL; i++)
        if (strncmp(verb->name, topic, len) == 0 && verb->name[len] == ' ' && ++n > 0)
            help_line(c, verb);
    if (n > 0)
        return CLI_OK;
    near = stet__cli_nearest(topic, help_topic_name, NULL);
    return stet__cli_fail(c, CLI_USAGE, "no help about \"%s\"; %s%s%s", topic,
                          near ? "did you mean \"" : "\"help\" lists the verbs", near ? near : "",
                          near ? "\"?" : "");
}

/* Also what -h and --help of any verb do. */
static int
help_run(cli *c)
{
    if (c->verb != NULL && c->verb != &stet__cli_help)
        return help_verb(c, c->verb);
    if (c->n_args == 0)
        return help_all(c);
    return help_topic(c, c->n_args == 2 ? stet__cli_printf(c, "%s %s", c->args[0], c->args[1])
                                        : c->args[0]);
}

const cli_verb stet__cli_help = {
    .name = "help",
    .args = "[VERB|config|exit-codes]",
    .summary = "tell about verbs, settings and exit codes",
    .details = "    stet help start",
    .args_max = 2,
    .fn = help_run,
};
