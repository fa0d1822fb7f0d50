/* wallet: an object. Every wallet has a name (its key), a balance (its state) and one writer at a time.
 *
 * Several threads pay into a few wallets at once. Reading the balance, adding and writing it back needs
 * no lock and loses no deposit, because runs of one key stand in line while runs of different keys go
 * side by side. What a run wrote becomes durable together with the run's own record.
 *
 *   ./wallet                      checks itself
 *   ./wallet worker               serves the handlers on wallet.db
 *   ./wallet start wallet.deposit 25 --key ann --wait
 *   ./wallet state get wallet ann
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stet.h>

/* ---- handlers ------------------------------------------------------------------------------- */

/* Numbers are kept as decimal text, which is also JSON. */
static long long
number_of(stet_bytes text)
{
    char digits[32];

    snprintf(digits, sizeof digits, "%.*s", (int)text.len, (const char *)text.data);
    return strtoll(digits, NULL, 10);
}

static int
balance_add(stet_ctx *ctx, long long amount)
{
    stet_bytes before;
    char      *after;

    STET_TRY(stet_state_get(ctx, &before, "balance"));
    if (number_of(before) + amount < 0)
        return stet_fail(ctx, STET_EPERMANENT, "%s has only %lld", stet_info(ctx)->key,
                         number_of(before));
    if ((after = stet_ctx_printf(ctx, "%lld", number_of(before) + amount)) == NULL)
        return STET_ENOMEM;
    STET_TRY(stet_state_set(ctx, "balance", stet_text(after)));
    return stet_return(ctx, stet_text(after));
}

static int
deposit(stet_ctx *ctx, stet_bytes input)
{
    return balance_add(ctx, number_of(input));
}

static int
withdraw(stet_ctx *ctx, stet_bytes input)
{
    return balance_add(ctx, -number_of(input));
}

/* Only looks, so it need not wait for those who pay: it is shared. */
static int
look(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes balance;

    (void)input;
    STET_TRY(stet_state_get(ctx, &balance, "balance"));
    return stet_return(ctx, balance);
}

static const stet_handler_options looks = { .shared = true };
static const stet_handler         wallet[] = { { "deposit", deposit, NULL },
                                               { "withdraw", withdraw, NULL },
                                               { "look", look, &looks },
                                               { 0 } };
static const stet_entry   empty[] = { { "balance", { "0", 1 } }, { 0 } };

/* ---- self-check ----------------------------------------------------------------------------- */

static void
must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "wallet: not so: %s (%s)\n", what, stet_last_error());
    exit(1);
}
#define MUST(cond) must((cond), #cond)

#define THREADS  4
#define DEPOSITS 30 /* of each thread, into each wallet */

static const char *const people[] = { "ann", "bob", "cem" };
#define PEOPLE (sizeof people / sizeof *people)

/* Start everything first and wait afterwards, so that deposits really meet. */
static void *
pay_in(void *engine)
{
    stet_run_id runs[PEOPLE * DEPOSITS];

    for (size_t i = 0; i < PEOPLE * DEPOSITS; i++)
        MUST(stet_start(engine, &runs[i], "wallet.deposit", stet_text("7"),
                        STET_START(.key = people[i % PEOPLE])) == STET_OK);
    for (size_t i = 0; i < PEOPLE * DEPOSITS; i++)
        MUST(stet_wait(engine, NULL, &runs[i], 0) == STET_OK);
    return NULL;
}

static void
check_balance(stet_engine *engine, const char *person, long long expected)
{
    stet_bytes  value;
    stet_result result;

    MUST(stet_state_read(engine, &value, "wallet", person, "balance") == STET_OK);
    printf("%s has %lld\n", person, number_of(value));
    MUST(number_of(value) == expected);
    stet_free((void *)(uintptr_t)value.data);
    MUST(stet_invoke(engine, &result, NULL, "wallet.look", stet_text(""), STET_START(.key = person), 0) == STET_OK);
    MUST(number_of(result.value) == expected);
    stet_result_free(&result);
}

static int
check(void)
{
    stet_engine *engine;
    stet_result  result;
    pthread_t    threads[THREADS];

    MUST(stet_open(&engine, "memory:", STET_OPTIONS(.log_level = STET_LOG_OFF)) == STET_OK);
    MUST(stet_register_object(engine, "wallet", wallet, empty) == STET_OK);
    MUST(stet_engine_start(engine) == STET_OK);

    for (size_t i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, pay_in, engine) == 0);
    for (size_t i = 0; i < THREADS; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    for (size_t i = 0; i < PEOPLE; i++)
        check_balance(engine, people[i], 7 * THREADS * DEPOSITS);

    MUST(stet_invoke(engine, &result, NULL, "wallet.withdraw", stet_text("1000000"),
                     STET_START(.key = "ann"), 0) == STET_ERUN);
    printf("refused: %s\n", result.error);
    stet_result_free(&result);
    check_balance(engine, "ann", 7 * THREADS * DEPOSITS);

    stet_close(engine);
    puts("ok");
    return 0;
}

int
main(int argc, char **argv)
{
    stet_app *app;

    if (argc < 2 || strcmp(argv[1], "--check") == 0)
        return check();
    app = stet_app_new("wallet");
    stet_app_object(app, "wallet", wallet, empty);
    return stet_main(argc, argv, app);
}
