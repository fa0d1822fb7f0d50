/* completion, man: what a shell and `man` want to know, made from the tables of verbs, so it cannot
 * lag. */
#include "cli/cli.h"

#include <ctype.h>
#include <string.h>

/* ---- completion ------------------------------------------------------------------------------ */

static void
completion_options(const cli_option *options)
{
    for (; options != NULL && options->name != NULL; options++)
        printf(" %s%s", stet__cli_dashes(options->name), options->name);
}

/* The first words of verbs, or behind `group` the second ones; each once. */
static void
completion_words(cli *c, const char *group)
{
    const cli_verb *verb, *before;
    size_t          skip = group != NULL ? strlen(group) + 1 : 0;

    for (size_t i = 0; (verb = stet__cli_own_verb_at(c, i)) != NULL; i++) {
        bool   is_first = true;
        size_t len;

        if (group != NULL && (strlen(verb->name) <= skip || verb->name[skip - 1] != ' ' ||
                              strncmp(verb->name, group, skip - 1) != 0))
            continue;
        len = strcspn(verb->name + skip, " ");
        for (size_t k = 0; k < i && group == NULL && (before = stet__cli_own_verb_at(c, k)) != NULL;
             k++)
            is_first = is_first && (strncmp(before->name, verb->name, len) != 0 ||
                                    (before->name[len] != ' ' && before->name[len] != '\0'));
        if (is_first)
            printf(" %.*s", (int)len, verb->name + skip);
    }
}

/* Options behind which a value stands, of all verbs, each once; as a pattern of the shell. */
static void
completion_valued(cli *c)
{
    const cli_verb *verb;
    bool            is_first = true;

    for (size_t i = 0; (verb = stet__cli_own_verb_at(c, i)) != NULL; i++)
        for (const cli_option *o = verb->options; o != NULL && o->name != NULL; o++) {
            bool is_new = o->value != NULL && *o->value != '[';

            for (size_t k = 0; is_new && k <= i; k++)
                for (const cli_option *before = stet__cli_own_verb_at(c, k)->options;
                     before != NULL && before->name != NULL && before != o; before++)
                    is_new = is_new && strcmp(before->name, o->name) != 0;
            if (is_new)
                printf("%s%s%s", is_first ? "" : "|", stet__cli_dashes(o->name), o->name);
            is_first = is_first && !is_new;
        }
    for (const cli_option *o = stet__cli_common_options(); o->name != NULL; o++)
        if (o->value != NULL)
            printf("|%s%s", stet__cli_dashes(o->name), o->name);
}

/* Behind a first word of verbs of two words: their second ones. */
static void
completion_families(cli *c, const char *before_it)
{
    const cli_verb *verb;

    for (size_t i = 0; (verb = stet__cli_own_verb_at(c, i)) != NULL; i++) {
        size_t          len = strcspn(verb->name, " ");
        const cli_verb *before = i > 0 ? stet__cli_own_verb_at(c, i - 1) : NULL;

        if (verb->name[len] == '\0' ||
            (before != NULL && strncmp(before->name, verb->name, len + 1) == 0))
            continue;
        printf("    '%s%.*s ') words=\"", before_it, (int)len, verb->name);
        completion_words(c, stet__cli_printf(c, "%.*s", (int)len, verb->name));
        printf("\" ;;\n");
    }
}

static int
completion_run(cli *c)
{
    const cli_verb *verb;
    const char *name = strrchr(c->program, '/') != NULL ? strrchr(c->program, '/') + 1 : c->program;
    char       *function = stet__arena_str(c->arena, name);

    if (strcmp(c->args[0], "bash") != 0)
        return stet__cli_fail(c, CLI_USAGE, "completion %s: only bash is known", c->args[0]);
    for (char *p = function; *p != '\0'; p++)
        *p = isalnum((unsigned char)*p) ? *p : '_';
    printf("# %s completion bash > ~/.local/share/bash-completion/completions/%s\n"
           "_stet_%s() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} verb= words= value= w\n"
           "    for w in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
           "        [ \"$w\" = = ] && value=1 && continue\n"
           "        [ -n \"$value\" ] && value= && continue\n"
           "        case $w in\n"
           "        ",
           name, name, function);
    completion_valued(c);
    printf(") value=1 ;;\n"
           "        -*) ;;\n"
           "        *) verb=\"$verb${verb:+ }$w\" ;;\n"
           "        esac\n"
           "    done\n"
           "    COMPREPLY=()\n"
           "    [ -n \"$value\" ] && return\n"
           "    case \"$verb \" in\n"
           "    ' ') words=\"");
    completion_words(c, NULL);
    printf("\" ;;\n    'help ') words=\"config exit-codes");
    completion_words(c, NULL);
    printf("\" ;;\n");
    completion_families(c, "help ");
    for (size_t i = 0; (verb = stet__cli_own_verb_at(c, i)) != NULL; i++) {
        printf("    '%s '*) words=\"", verb->name);
        completion_options(verb->options);
        completion_options(stet__cli_common_options());
        printf("\" ;;\n");
    }
    completion_families(c, "");
    printf("    esac\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
           "}\n"
           "complete -o default -F _stet_%s %s\n",
           function, name);
    return CLI_OK;
}

const cli_verb stet__cli_completion = {
    .name = "completion",
    .args = "bash",
    .summary = "print a script that completes this command in a shell",
    .details = "    source <(stet completion bash)",
    .args_min = 1,
    .args_max = 1,
    .fn = completion_run,
};

/* ---- man ------------------------------------------------------------------------------------- */

/* Text for roff: a line must not begin with what it takes for a request. */
static void
man_text(const char *text)
{
    bool is_start = true;

    for (; *text != '\0'; text++) {
        if (is_start && (*text == '.' || *text == '\''))
            printf("\\&");
        is_start = *text == '\n';
        if (*text == '\\')
            printf("\\e");
        else if (*text == '-')
            printf("\\-");
        else
            putchar(*text);
    }
}

static void
man_options(const cli_option *options)
{
    for (; options != NULL && options->name != NULL; options++) {
        printf(".TP\n\\fB");
        man_text(stet__cli_dashes(options->name));
        man_text(options->name);
        printf("\\fR%s", options->value != NULL ? " " : "");
        man_text(options->value != NULL ? options->value : "");
        printf("\n");
        man_text(options->text);
        printf("\n");
    }
}

static void
man_verb(const cli_verb *verb)
{
    printf(".SS ");
    man_text(verb->name);
    printf(" ");
    man_text(verb->args);
    printf("\n");
    man_text(verb->summary);
    printf("\n");
    if (verb->details != NULL) {
        printf(".PP\n.nf\n");
        man_text(verb->details);
        printf("\n.fi\n");
    }
    man_options(verb->options);
}

static void
man_elsewhere(void)
{
    const cli_verb *verb;

    printf(".PP\nPrograms that call stet_main() with their handlers have also:");
    for (size_t i = 0; (verb = stet__cli_verb_at(i)) != NULL; i++)
        if (verb->needs_handlers) {
            printf("\n\\fB");
            man_text(verb->name);
            printf("\\fR");
        }
    printf("\n");
}

static int
man_run(cli *c)
{
    static const struct {
        int         number;
        const char *text;
    } codes[] = {
#define MAN_EXIT(name, number, text) { number, text },
        CLI_EXIT_LIST(MAN_EXIT)
#undef MAN_EXIT
    };
    const cli_verb *verb;
    const char *name = strrchr(c->program, '/') != NULL ? strrchr(c->program, '/') + 1 : c->program;

    printf(".TH \"%s\" 1 \"\" \"stet %s\"\n.SH NAME\n%s \\- durable runs: start, look, help\n"
           ".SH SYNOPSIS\n.B %s\nVERB [arguments] [options]\n.SH VERBS\n",
           name, STET_VERSION, name, name);
    for (size_t i = 0; (verb = stet__cli_own_verb_at(c, i)) != NULL; i++)
        man_verb(verb);
    if (c->app->n_services == 0)
        man_elsewhere();
    printf(".SH OPTIONS OF EVERY VERB\n");
    man_options(stet__cli_common_options());
    printf(".SH ENVIRONMENT\n.TP\nSTET_DB\nthe store, if \\-\\-db does not name one\n"
           ".TP\nSTET_\\fISETTING\\fR\na setting of the worker; \"%s help config\" lists them\n"
           ".SH EXIT STATUS\n",
           name);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        printf(".TP\n%d\n", codes[i].number);
        man_text(codes[i].text);
        printf("\n");
    }
    return CLI_OK;
}

const cli_verb stet__cli_man = {
    .name = "man",
    .args = "",
    .summary = "print the manual page of this command",
    .details = "    stet man | man -l -",
    .fn = man_run,
};
