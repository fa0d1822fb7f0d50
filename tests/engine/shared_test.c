/* Shared handlers of objects (A3). tsan: yes */
#include "engine/engine.h"
#include "fixture.h"

/* Writes, waits with the key in its hands, writes again. */
static int
h_write(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes word;

    STET_TRY(stet_state_set(ctx, "balance", input));
    STET_TRY(stet_step(ctx, NULL, "told", body_effect, "first write", NULL));
    STET_TRY(stet_await_signal(ctx, &word, "go", NULL));
    STET_TRY(stet_state_set(ctx, "balance", word));
    return stet_return(ctx, word);
}

static int
h_read(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes balance;

    (void)input;
    STET_TRY(stet_state_get(ctx, &balance, "balance"));
    return stet_return(ctx, balance.data != NULL ? balance : stet_text("none"));
}

/* Reads, waits, and reads once more: what it read it has read. */
static int
h_read_twice(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes one, two;

    (void)input;
    STET_TRY(stet_state_get(ctx, &one, "balance"));
    STET_TRY(fixture_pause(ctx));
    STET_TRY(stet_state_get(ctx, &two, "balance"));
    return stet_return(ctx, stet_text(stet_ctx_printf(ctx, "%.*s %.*s", (int)one.len,
                                                      (const char *)one.data, (int)two.len,
                                                      (const char *)two.data)));
}

static int
h_wrong(stet_ctx *ctx, stet_bytes input)
{
    CHECK_CODE(stet_state_set(ctx, "balance", input), STET_EUSAGE);
    CHECK_HAS(stet_failure_get(ctx)->text, "o.wrong is shared");
    return stet_state_clear(ctx, "balance");
}

/* Has the key, and asks a shared handler of the same key. */
static int
h_asks_itself(stet_ctx *ctx, stet_bytes input)
{
    stet_bytes got;

    (void)input;
    STET_TRY(stet_call(ctx, &got, "o.read", stet_text(""), STET_START(.key = "k")));
    return stet_return(ctx, got);
}

static const stet_handler_options shared = { .shared = true };
static const stet_handler         objects[] = { { "write", h_write, NULL },
                                                { "read", h_read, &shared },
                                                { "twice", h_read_twice, &shared },
                                                { "wrong", h_wrong, &shared },
                                                { "asks", h_asks_itself, NULL },
                                                { 0 } };
static const fixture_service      services[] = { { "o", objects, true, NULL }, { 0 } };

static stet_run_id
writer(fixture *f)
{
    stet_run_id run = fixture_start(f->engine, "o.write", "1", STET_START(.key = "k"));

    fixture_await_status(f->engine, &run, STET_STATUS_SUSPENDED);
    return run;
}

TEST(A3_a_shared_handler_reads_beside_the_writer_that_holds_the_key)
{
    fixture    *f = fixture_begin();
    stet_run_id write, read, twice;

    fixture_up(f, services);
    write = writer(f);
    read = fixture_start(f->engine, "o.read", "", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &read, "1");
    twice = fixture_start(f->engine, "o.twice", "", STET_START(.key = "k"));
    fixture_paused(f->engine, &twice);
    read = fixture_start(f->engine, "o.read", "", STET_START(.key = "k", .delay = "50ms"));
    CHECK_INT((int)fixture_sound(f->engine), 4);
    EXPECT_RESULT(f->engine, &read, "1");
    CHECK_INT(fixture_look(f->engine, &write).status, STET_STATUS_SUSPENDED);
    CHECK_OK(stet_signal(f->engine, &write, "go", stet_text("2"), NULL));
    EXPECT_RESULT(f->engine, &write, "2");
    read = fixture_start(f->engine, "o.read", "", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &read, "2");
    fixture_down(f);
    fixture_up(f, services);
    fixture_go_on(f->engine, &twice);
    EXPECT_RESULT(f->engine, &twice, "1 1");
    read = fixture_start(f->engine, "o.read", "", STET_START(.key = "nobody"));
    EXPECT_RESULT(f->engine, &read, "none");
    fixture_end(f);
}

TEST(A3_a_shared_handler_cannot_write_state)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up(f, services);
    run = fixture_start(f->engine, "o.wrong", "9", STET_START(.key = "k"));
    EXPECT_ANSWER(f->engine, &run, STET_ERUN);
    run = fixture_start(f->engine, "o.read", "", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &run, "none");
    fixture_end(f);
}

TEST(A3_who_holds_the_key_may_call_a_shared_handler_of_it)
{
    fixture    *f = fixture_begin();
    stet_run_id run;

    fixture_up(f, services);
    run = fixture_start(f->engine, "o.asks", "", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &run, "none");
    fixture_end(f);
}

TEST(A3_a_node_that_does_not_serve_it_learns_that_it_is_shared)
{
    fixture     *f = fixture_begin();
    stet_engine *client;
    stet_run_id  write, read;

    fixture_up(f, services);
    write = writer(f);
    f->options.roles = STET_ROLE_CLIENT;
    client = fixture_open(f);
    read = fixture_start(client, "o.read", "", STET_START(.key = "k"));
    EXPECT_RESULT(f->engine, &read, "1");
    read = fixture_start(client, "o.read", "", STET_START(.key = "k"));
    EXPECT_RESULT(client, &read, "1");
    CHECK_OK(stet_signal(client, &write, "go", stet_text("2"), NULL));
    EXPECT_RESULT(client, &write, "2");
    stet_close(client);
    fixture_end(f);
}

TEST(A3_a_handler_of_a_service_cannot_be_shared)
{
    fixture     *f = fixture_begin();
    stet_engine *e = fixture_open(f);

    CHECK_CODE(stet_register(e, "t", (stet_handler[]){ { "read", h_read, &shared }, { 0 } }),
               STET_EINVAL);
    CHECK_HAS(stet_last_error(), "only a handler of an object");
    stet_close(e);
    fixture_end(f);
}
