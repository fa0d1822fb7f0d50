/* Errors: every code, and what is stored of a failure. Row H9. tsan: yes */
#include "fixture.h"

TEST(H9_every_code_has_its_own_number_name_text_and_class)
{
    static const int codes[] = {
#define LOOK_CODE(name, number, class_, text) STET_##name,
        STET_ERROR_LIST(LOOK_CODE)
#undef LOOK_CODE
    };
    const size_t n = sizeof codes / sizeof codes[0];

    for (size_t i = 0; i < n; i++) {
        CHECK(codes[i] < 0 && codes[i] > STET_CODE_USER);
        CHECK(stet_code_name(codes[i]) != NULL &&
              strncmp(stet_code_name(codes[i]), "STET_", 5) == 0);
        CHECK(stet_code_text(codes[i])[0] != '\0');
        CHECK(stet_code_class(codes[i]) != STET_CLASS_OK);
        for (size_t k = 0; k < i; k++) {
            CHECK(codes[i] != codes[k]);
            CHECK(strcmp(stet_code_name(codes[i]), stet_code_name(codes[k])) != 0);
            CHECK(strcmp(stet_code_text(codes[i]), stet_code_text(codes[k])) != 0);
        }
    }
    CHECK_INT(stet_code_class(STET_OK), STET_CLASS_OK);
    CHECK_INT(stet_code_class(STET_CODE_USER - 5), STET_CLASS_RETRY);
}

#define H9_MINE (STET_CODE_USER - 42)

static int
body_says(stet_attempt *a, void *arg)
{
    return stet_attempt_fail(a, *(const int *)arg, "the body says %d", *(const int *)arg);
}

static int
body_slow(stet_attempt *a, void *arg)
{
    (void)arg;
    while (stet_attempt_deadline_ms(a) >= stet_engine_now_ms(arg))
        fixture_breathe();
    return STET_OK;
}

static stet_engine *h9_engine;

static int
h_h9(stet_ctx *ctx, stet_bytes input)
{
    static const int  permanent = STET_ENOTFOUND, mine = H9_MINE;
    stet_awakeable_id id;
    stet_future      *future;
    stet_bytes        out;
    char              what[32];

    (void)snprintf(what, sizeof what, "%.*s", (int)input.len, (const char *)input.data);
    if (strcmp(what, "step") == 0)
        return stet_step(ctx, NULL, "charge", body_says, (void *)(uintptr_t)&permanent, NULL);
    if (strcmp(what, "exhausted step") == 0)
        return stet_step(ctx, NULL, "charge", body_says, (void *)(uintptr_t)&mine,
                         STET_STEP(.attempts = 2, .first_ms = 1, .max_ms = 2));
    if (strcmp(what, "timeout of step") == 0)
        return stet_step(ctx, NULL, "charge", body_slow, h9_engine,
                         STET_STEP(.attempts = 1, .timeout = "5ms"));
    if (strcmp(what, "broken step") == 0)
        return stet_step(ctx, NULL, "charge", body_says, (void *)(uintptr_t)&mine, NULL);
    if (strcmp(what, "child") == 0)
        return stet_call(ctx, NULL, "t.permanent", stet_text(""), NULL);
    if (strcmp(what, "grandchild") == 0)
        return stet_call(ctx, NULL, "t.h9", stet_text("step"), NULL);
    if (strcmp(what, "attempts") == 0)
        return stet_fail(ctx, H9_MINE, "my own trouble");
    if (strcmp(what, "positive") == 0)
        return 7;
    if (strcmp(what, "name") == 0)
        return stet_step(ctx, NULL, "__mine", body_effect, NULL, NULL);
    STET_TRY(stet_awakeable(ctx, &id, &future, "approval"));
    STET_TRY(stet_step(ctx, NULL, "hand out", body_hand_out, id.text, NULL));
    if (strcmp(what, "rejected") == 0)
        return stet_await(ctx, &out, future);
    return stet_await_for(ctx, &out, future, "5ms");
}

static const stet_handler h9_handlers[] = {
    { "h9", h_h9, NULL }, { "permanent", h_no_account, NULL }, { "nap", h_hour, NULL }, { 0 }
};

typedef struct h9_case {
    const char *input;
    int         code, cause;
    const char *text, *origin; /* parts; NULL: any */
} h9_case;

static const h9_case h9_cases[] = {
    { "step", STET_ESTEP, STET_ENOTFOUND, "the body says -40", "step charge#1" },
    { "exhausted step", STET_ESTEP, H9_MINE, "the body says", "step charge#1" },
    { "timeout of step", STET_ESTEP, STET_ETIMEOUT, "timeout", "step charge#1" },
    { "broken step", STET_EATTEMPTS, H9_MINE, "the body says", "step charge#1" },
    { "child", STET_ECHILD, STET_EPERMANENT, "no such account", "child run_" },
    { "grandchild", STET_ECHILD, STET_ESTEP, "the body says -40", "child run_" },
    { "attempts", STET_EATTEMPTS, H9_MINE, "my own trouble", NULL },
    { "positive", STET_EHANDLER, 0, "returned 7", NULL },
    { "name", STET_ENAME, 0, "__", NULL },
    { "rejected", STET_EREJECTED, 0, "no way", "awakeable" },
    { "timeout", STET_ETIMEOUT, 0, "time", NULL },
};
#define H9_N (sizeof h9_cases / sizeof h9_cases[0])

static void
h9_compare(const h9_case *c, int code, int cause, const char *error, const char *origin)
{
    CHECK_INT(code, c->code);
    CHECK_INT(cause, c->cause);
    CHECK_HAS(error, c->text);
    if (c->origin != NULL)
        CHECK_HAS(origin, c->origin);
}

TEST(H9_each_failure_has_its_code_and_what_is_stored_keeps_text_origin_and_cause)
{
    fixture    *f = fixture_begin();
    stet_run_id runs[H9_N];

    f->engine = fixture_open(f);
    h9_engine = f->engine;
    CHECK_OK(stet_register(f->engine, "t", h9_handlers));
    CHECK_OK(stet_engine_start(f->engine));
    for (size_t i = 0; i < H9_N; i++) {
        stet_result r;

        runs[i] = fixture_start(f->engine, "t.h9", h9_cases[i].input,
                                STET_START(.retry = { .attempts = 2 }));
        if (strcmp(h9_cases[i].input, "rejected") == 0) {
            effects_await("handed out", 1);
            CHECK_OK(stet_reject(f->engine, handed_out, "no way"));
        }
        r = EXPECT_END(f->engine, &runs[i], STET_ERUN);
        h9_compare(&h9_cases[i], r.code, r.cause, r.error, r.origin);
        stet_result_free(&r);
    }
    fixture_down(f);
    f->engine = fixture_open(f); /* only what was stored */
    for (size_t i = 0; i < H9_N; i++) {
        fixture_run look = fixture_look(f->engine, &runs[i]);
        stet_result r;

        h9_compare(&h9_cases[i], look.code, look.cause, look.error, look.origin);
        CHECK_CODE(stet_result_get(f->engine, &r, &runs[i]), STET_ERUN);
        h9_compare(&h9_cases[i], r.code, r.cause, r.error, r.origin);
        stet_result_free(&r);
    }
    fixture_end(f);
}

TEST(H9_the_kinds_a_caller_sees_differ)
{
    fixture          *f = fixture_begin();
    stet_run_id       run, other, parent;
    stet_awakeable_id nobody;

    fixture_up(f, common_services);
    CHECK_CODE(stet_start(f->engine, NULL, "t.quick", stet_text(""), STET_START(.key = "k")),
               STET_EKEY);
    CHECK_CODE(stet_start(f->engine, NULL, "o.quick", stet_text(""), NULL), STET_EKEY);
    CHECK_CODE(stet_start(f->engine, NULL, "t.none", stet_text(""), NULL), STET_ENOHANDLER);
    CHECK_HAS(stet_last_error(), "quick");
    CHECK_CODE(stet_start(f->engine, NULL, "", stet_text(""), NULL), STET_ENAME);
    CHECK_CODE(stet_start(f->engine, NULL, "t.quick", stet_text(""), STET_START(.delay = "soon")),
               STET_EDURATION);
    CHECK_CODE(stet_start(f->engine, NULL, "t.quick", stet_text(""), STET_START(.timeout = "0s")),
               STET_EDURATION);
    CHECK_HAS(stet_last_error(), "t.quick: timeout");
    CHECK_CODE(stet_start(f->engine, NULL, "t.quick", stet_text(""), STET_START(.retention = "0")),
               STET_EDURATION);
    CHECK_CODE(stet_start(f->engine, NULL, "t.quick", (stet_bytes){ NULL, 5 }, NULL), STET_EINVAL);
    parent = fixture_start(f->engine, "t.nap", "", NULL);
    fixture_await_status(f->engine, &parent, STET_STATUS_SUSPENDED);
    run = fixture_start(f->engine, "t.quick", "",
                        STET_START(.parent = &parent, .parent_step = "s", .child_key = "c"));
    CHECK_CODE(stet_start(f->engine, &other, "t.nap", stet_text(""),
                          STET_START(.parent = &parent, .parent_step = "s", .child_key = "c")),
               STET_EMISMATCH);
    EXPECT_RESULT(f->engine, &run, "");
    CHECK_CODE(stet_start(f->engine, &other, "t.quick", stet_text(""), STET_START(.run = &run)),
               STET_EEXISTS);
    CHECK_CODE(stet_wait(f->engine, NULL, &parent, 20), STET_ETIMEOUT);
    CHECK_HAS(stet_last_error(), parent.text);
    CHECK_HAS(stet_last_error(), "cool down");
    CHECK_CODE(stet_result_get(f->engine, NULL, &parent), STET_EOPEN);
    CHECK_CODE(stet_unstick(f->engine, &parent, "ann"), STET_ESTATE);
    CHECK_CODE(stet_run_id_parse(&other, "nonsense"), STET_EINVAL);
    CHECK_OK(stet_run_id_make(f->engine, &other));
    CHECK_CODE(stet_wait(f->engine, NULL, &other, 20), STET_ENOTFOUND);
    CHECK_CODE(stet_resolve(f->engine, run.text, stet_text("")), STET_EKIND);
    (void)snprintf(nobody.text, sizeof nobody.text, "%s", other.text);
    memcpy(nobody.text, "awk", 3);
    CHECK_CODE(stet_resolve(f->engine, nobody.text, stet_text("")), STET_ENOTFOUND);
    CHECK_CODE(stet_cancel(f->engine, &run, NULL, NULL), STET_EENDED);
    fixture_end(f);
}
