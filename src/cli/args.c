/* The command line: finding the verb, its options and arguments, and reading values.
 *
 * Options stand anywhere (--name VALUE or --name=VALUE, -n VALUE for one of a single letter); "--"
 * ends them; "-" and negative numbers are arguments. Everything is checked against the verb's table
 * before its function runs, and a mistyped name is answered with the nearest one. */
#include "cli/cli.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const cli_option args_common[] = {
    { "db", "URL", "the store: a file, or an address (environment: STET_DB)" },
    { "json", NULL, "for programs: one JSON document; lists have one object a line" },
    { "no-color", NULL, "no colours (environment: NO_COLOR)" },
    { "help", NULL, "this help" },
    { 0 },
};

const cli_option *
stet__cli_common_options(void)
{
    return args_common;
}

const char *
stet__cli_dashes(const char *option)
{
    return option[1] == '\0' ? "-" : "--";
}

/* ---- the nearest name ----------------------------------------------------------------------- */

const char *
stet__cli_nearest(const char *typed, const char *(*at)(const void *arg, size_t i), const void *arg)
{
    const char *name, *nearest = NULL;
    size_t      best = SIZE_MAX;

    for (size_t i = 0; (name = at(arg, i)) != NULL; i++) {
        bool   is_beginning = *typed != '\0' && strncmp(name, typed, strlen(typed)) == 0;
        size_t distance = is_beginning ? 1 : stet__near_edits(typed, strlen(typed), name);

        if (distance < best) {
            best = distance;
            nearest = name;
        }
    }
    return best <= 1 + strlen(typed) / 4 ? nearest : NULL;
}

static const char *
args_verb_name(const void *arg, size_t i)
{
    const cli_verb *verb = stet__cli_verb_at(i);

    (void)arg;
    return verb ? verb->name : NULL;
}

/* The verb's own options, then the common ones. */
static const cli_option *
args_option_at(const cli_verb *verb, size_t i)
{
    size_t own = 0;

    while (verb != NULL && verb->options != NULL && verb->options[own].name != NULL)
        own++;
    if (i < own)
        return &verb->options[i];
    i -= own;
    return i < sizeof args_common / sizeof *args_common - 1 ? &args_common[i] : NULL;
}

static const char *
args_option_name(const void *arg, size_t i)
{
    const cli_option *option = args_option_at(arg, i);

    return option ? option->name : NULL;
}

static const cli_option *
args_option_called(const cli_verb *verb, const char *name, size_t len)
{
    const cli_option *option;

    for (size_t i = 0; (option = args_option_at(verb, i)) != NULL; i++)
        if (strlen(option->name) == len && memcmp(option->name, name, len) == 0)
            return option;
    return NULL;
}

/* Who decides leaves a note, who intervenes says why: either word is understood by both. */
static const cli_option *
args_option_find(const cli_verb *verb, const char *name, size_t len)
{
    const cli_option *option = args_option_called(verb, name, len);

    if (option == NULL && len == 4 && memcmp(name, "note", len) == 0)
        option = args_option_called(verb, "why", 3);
    if (option == NULL && len == 3 && memcmp(name, "why", len) == 0)
        option = args_option_called(verb, "note", 4);
    return option;
}

/* ---- parsing -------------------------------------------------------------------------------- */

static int
args_unknown_verb(cli *c, const char *typed, const char *second)
{
    const char     *both = second ? stet__cli_printf(c, "%s %s", typed, second) : typed;
    const char     *near = stet__cli_nearest(both, args_verb_name, NULL);
    const cli_verb *verb;
    stet__buf       family;

    if (near == NULL && second != NULL)
        near = stet__cli_nearest(typed, args_verb_name, NULL);
    stet__buf_init(&family, c->alloc);
    for (size_t i = 0; (verb = stet__cli_verb_at(i)) != NULL; i++)
        if (strncmp(verb->name, typed, strlen(typed)) == 0 && verb->name[strlen(typed)] == ' ')
            stet__buf_printf(&family, "%s%s", family.len ? ", " : "", verb->name);
    if (family.len > 0)
        stet__cli_fail(c, CLI_USAGE, "\"%s\" needs one more word: %s", typed,
                       stet__buf_cstr(&family));
    else if (near != NULL)
        stet__cli_fail(c, CLI_USAGE, "there is no verb \"%s\"; did you mean \"%s\"?", typed, near);
    else
        stet__cli_fail(c, CLI_USAGE, "there is no verb \"%s\"; \"%s help\" lists them", typed,
                       c->program);
    stet__buf_free(&family);
    return CLI_USAGE;
}

static int
args_unknown_option(cli *c, const char *typed, size_t len)
{
    const char *name = stet__cli_printf(c, "%.*s", (int)len, typed);
    const char *near = stet__cli_nearest(name, args_option_name, c->verb);
    const char *verb = c->verb ? c->verb->name : "";

    if (near != NULL)
        return stet__cli_fail(c, CLI_USAGE, "there is no option --%s%s%s; did you mean --%s?", name,
                              *verb ? " of " : "", verb, near);
    return stet__cli_fail(c, CLI_USAGE, "there is no option --%s%s%s; see \"%s help%s%s\"", name,
                          *verb ? " of " : "", verb, c->program, *verb ? " " : "", verb);
}

/* May this be the value of an option that can do without one? A unit or the word none, so that
 * `start h --wait 7` still passes 7 as input. */
static bool
args_is_duration(const char *text)
{
    size_t  len = strlen(text);
    int64_t ms;

    if (strcmp(text, "none") == 0)
        return true;
    return len > 1 && *text >= '0' && *text <= '9' &&
           (text[len - 1] < '0' || text[len - 1] > '9') &&
           stet_duration_parse(&ms, text) == STET_OK;
}

static void
args_give(cli *c, const cli_option *option, const char *value)
{
    c->given[c->n_given].option = option;
    c->given[c->n_given++].value = value;
    if (strcmp(option->name, "json") == 0)
        c->json = true;
    else if (strcmp(option->name, "help") == 0)
        c->is_help = true;
    else if (strcmp(option->name, "no-color") == 0)
        c->has_color = false;
    else if (strcmp(option->name, "db") == 0)
        c->db = value;
}

/* One option at argv[*i]; moves *i to its last word. */
static int
args_option(cli *c, int argc, char **argv, int *i)
{
    const char       *name = argv[*i] + (argv[*i][1] == '-' ? 2 : 1), *equals = strchr(name, '=');
    size_t            len = equals ? (size_t)(equals - name) : strlen(name);
    const cli_option *option = args_option_find(c->verb, name, len);
    const char       *next = *i + 1 < argc ? argv[*i + 1] : NULL;

    if (option == NULL)
        return args_unknown_option(c, name, len);
    if (option->value == NULL && equals != NULL)
        return stet__cli_fail(c, CLI_USAGE, "--%s takes no value", option->name);
    if (option->value == NULL || equals != NULL) {
        args_give(c, option, equals ? equals + 1 : NULL);
        return CLI_OK;
    }
    if (*option->value == '[') {
        bool is_value = next != NULL && args_is_duration(next);

        args_give(c, option, is_value ? next : NULL);
        *i += is_value;
        return CLI_OK;
    }
    /* A forgotten value must not swallow the option behind it. */
    if (next == NULL || (strncmp(next, "--", 2) == 0 &&
                         args_option_find(c->verb, next + 2, strcspn(next + 2, "=")) != NULL))
        return stet__cli_fail(c, CLI_USAGE, "%s%s needs a value: %s%s %s",
                              stet__cli_dashes(option->name), option->name,
                              stet__cli_dashes(option->name), option->name, option->value);
    args_give(c, option, next);
    (*i)++;
    return CLI_OK;
}

static bool
args_is_option(const char *word)
{
    return word[0] == '-' && word[1] != '\0' && !(word[1] >= '0' && word[1] <= '9');
}

/* "-n" or "-n=10", if the verb has an option of that one letter. */
static bool
args_is_short(const cli_verb *verb, const char *word)
{
    return word[0] == '-' && word[1] != '\0' && (word[2] == '\0' || word[2] == '=') &&
           args_option_find(verb, word + 1, 1) != NULL;
}

/* Find the verb of one or two words at argv[*i]; moves *i to its last word. */
static int
args_verb(cli *c, int argc, char **argv, int *i)
{
    const char     *second = *i + 1 < argc && !args_is_option(argv[*i + 1]) ? argv[*i + 1] : NULL;
    const char     *both = second ? stet__cli_printf(c, "%s %s", argv[*i], second) : NULL;
    const cli_verb *verb;

    for (size_t v = 0; (verb = stet__cli_verb_at(v)) != NULL; v++) {
        bool is_both = both != NULL && strcmp(verb->name, both) == 0;

        if (is_both || strcmp(verb->name, argv[*i]) == 0) {
            c->verb = verb;
            *i += is_both;
            return CLI_OK;
        }
    }
    return args_unknown_verb(c, argv[*i], second);
}

static int
args_word(cli *c, int argc, char **argv, int *i)
{
    const char *word = argv[*i];

    if (strcmp(word, "-h") == 0) {
        c->is_help = true;
        return CLI_OK;
    }
    if (c->verb == NULL && strcmp(word, "--version") == 0) {
        c->is_version = true;
        return CLI_OK;
    }
    if ((word[0] == '-' && word[1] == '-') || args_is_short(c->verb, word))
        return args_option(c, argc, argv, i);
    if (args_is_option(word))
        return stet__cli_fail(
            c, CLI_USAGE,
            "there is no option %s; options have long names; behind -- everything is "
            "an argument",
            word);
    if (c->verb == NULL)
        return args_verb(c, argc, argv, i);
    c->args[c->n_args++] = word;
    return CLI_OK;
}

static int
args_count(cli *c)
{
    if (c->verb == NULL || c->is_help)
        return CLI_OK;
    if (c->n_args < c->verb->args_min)
        return stet__cli_fail(c, CLI_USAGE, "something is missing: %s %s %s", c->program,
                              c->verb->name, c->verb->args);
    if (c->n_args > c->verb->args_max)
        return stet__cli_fail(c, CLI_USAGE, "\"%s\" is too much: %s %s %s",
                              c->args[c->verb->args_max], c->program, c->verb->name, c->verb->args);
    return CLI_OK;
}

int
stet__cli_parse(cli *c, int argc, char **argv)
{
    size_t room = (size_t)(argc > 0 ? argc : 1);
    int    exit = CLI_OK;

    c->args = stet__arena_get0(c->arena, room * sizeof *c->args);
    c->given = stet__arena_get0(c->arena, room * sizeof *c->given);
    /* Errors of the parser itself must be readable for programs, too. */
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        c->json = c->json || strcmp(argv[i], "--json") == 0;
    for (int i = 1; i < argc && exit == CLI_OK; i++) {
        if (strcmp(argv[i], "--") == 0) {
            while (++i < argc && c->verb != NULL)
                c->args[c->n_args++] = argv[i];
            break;
        }
        exit = args_word(c, argc, argv, &i);
    }
    return exit == CLI_OK ? args_count(c) : exit;
}

/* ---- reading values ------------------------------------------------------------------------- */

const char *
stet__cli_arg(const cli *c, size_t i)
{
    return i < c->n_args ? c->args[i] : NULL;
}

static const cli_given *
args_given(const cli *c, const char *name, size_t nth)
{
    /* Asking for an option the verb does not declare would silently never find it. */
    assert(args_option_find(c->verb, name, strlen(name)) != NULL);
    for (size_t i = 0; i < c->n_given; i++)
        if (strcmp(c->given[i].option->name, name) == 0 && nth-- == 0)
            return &c->given[i];
    return NULL;
}

bool
stet__cli_offers(const cli *c, const char *option)
{
    return args_option_find(c->verb, option, strlen(option)) != NULL;
}

bool
stet__cli_has(const cli *c, const char *option)
{
    return args_given(c, option, 0) != NULL;
}

const char *
stet__cli_value_at(const cli *c, const char *option, size_t i)
{
    const cli_given *given = args_given(c, option, i);

    return given ? given->value : NULL;
}

const char *
stet__cli_value(const cli *c, const char *option)
{
    const cli_given *given, *last = NULL;

    for (size_t i = 0; (given = args_given(c, option, i)) != NULL; i++)
        last = given;
    return last ? last->value : NULL;
}

int
stet__cli_number(cli *c, const char *option, int64_t *out, int64_t least, int64_t most)
{
    const char *text = stet__cli_value(c, option);
    char       *end;
    long long   value;

    if (text == NULL)
        return CLI_OK;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (*text == '\0' || *end != '\0' || errno != 0 || value < least || value > most)
        return stet__cli_fail(c, CLI_USAGE, "%s%s %s: expected a number from %lld to %lld",
                              stet__cli_dashes(option), option, text, (long long)least,
                              (long long)most);
    *out = value;
    return CLI_OK;
}

int
stet__cli_duration(cli *c, const char *option, int64_t *ms)
{
    const char *text = stet__cli_value(c, option);

    if (text == NULL || stet_duration_parse(ms, text) == STET_OK)
        return CLI_OK;
    return stet__cli_fail(c, CLI_USAGE, "--%s: %s", option, stet_last_error());
}

int
stet__cli_time(cli *c, const char *option, int64_t *ms)
{
    const char *text = stet__cli_value(c, option);

    if (text == NULL || stet__cli_time_parse(ms, text))
        return CLI_OK;
    return stet__cli_fail(
        c, CLI_USAGE,
        "--%s %s: expected a time such as 2030-01-31T12:00:00Z (without a zone it is "
        "local), or milliseconds since 1970",
        option, text);
}

int
stet__cli_run_id(cli *c, const char *text, stet_run_id *run)
{
    int err = stet_run_id_parse(run, text);

    return err == STET_OK ? CLI_OK : stet__cli_fail_code(c, err);
}

static int
args_read_file(cli *c, const char *path, stet__buf *out)
{
    FILE  *file = path ? fopen(path, "rb") : stdin;
    size_t n = 1;
    int    problem;

    if (file == NULL)
        return stet__cli_fail(c, CLI_USAGE, "cannot read %s: %s", path, strerror(errno));
    while (n > 0) {
        stet__buf_reserve(out, 65536);
        n = fread(out->data + out->len, 1, 65536, file);
        out->len += n;
    }
    problem = ferror(file) ? errno : 0;
    if (path != NULL)
        fclose(file);
    if (problem != 0)
        return stet__cli_fail(c, CLI_USAGE, "cannot read %s: %s", path ? path : "standard input",
                              strerror(problem));
    return CLI_OK;
}

static int
args_check_json(cli *c, stet_bytes text)
{
    size_t at = 0, rest;

    if (text.len == 0 || stet__json_valid(text, &at))
        return CLI_OK;
    rest = at < text.len ? text.len - at : 0;
    return stet__cli_fail(
        c, CLI_USAGE,
        "the value is not JSON: wrong at byte %zu%s%s; text needs quotes ('\"text\"'), "
        "and --raw passes anything as it is",
        at + 1, rest ? ", before: " : ", its end",
        stet__cli_clean(c, (stet_bytes){ (const char *)text.data + at, rest < 20 ? rest : 20 }));
}

int
stet__cli_payload(cli *c, const char *text, stet_bytes *out)
{
    bool      is_raw = stet__cli_has(c, "raw");
    stet__buf content;
    int       exit = CLI_OK;

    *out = (stet_bytes){ NULL, 0 };
    if (text == NULL)
        return CLI_OK;
    stet__buf_init(&content, c->alloc);
    if (strcmp(text, "-") == 0 || *text == '@')
        exit = args_read_file(c, *text == '@' ? text + 1 : NULL, &content);
    else
        stet__buf_str(&content, text);
    /* The line end of a file is no part of the JSON in it. */
    while (!is_raw && content.len > 0 &&
           memchr(" \t\r\n", content.data[content.len - 1], 4) != NULL)
        content.len--;
    if (exit == CLI_OK && !is_raw)
        exit = args_check_json(c, stet__buf_bytes(&content));
    if (exit == CLI_OK && content.len > 0) {
        out->data = stet__arena_copy(c->arena, content.data, content.len);
        out->len = content.len;
    }
    stet__buf_free(&content);
    return exit;
}
