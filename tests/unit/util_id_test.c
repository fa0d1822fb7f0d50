/* IDs as bytes and text (A9). */
#include "util_fault.h"

static stet_id
id_random(stet__rng *r, int64_t now_ms)
{
    uint8_t  raw[10];
    uint64_t a = stet__rng_next(r), b = stet__rng_next(r);

    memcpy(raw, &a, 8);
    memcpy(raw + 8, &b, 2);
    return stet__id_make(now_ms, raw);
}

TEST(A9_ids_sort_by_time)
{
    stet__rng r;
    stet_id   before, id;
    char      text_before[STET_ID_TEXT_MAX], text[STET_ID_TEXT_MAX];
    int64_t   now = 1;

    stet__rng_seed(&r, 1);
    before = id_random(&r, 0);
    for (; now < (INT64_C(1) << 47); now += 1 + now / 3) {
        id = id_random(&r, now);
        CHECK_INT(stet__id_time_ms(id), now);
        CHECK(memcmp(before.bytes, id.bytes, 16) < 0);
        stet__id_text(text_before, STET__ID_RUN, before);
        stet__id_text(text, STET__ID_RUN, id);
        CHECK(strcmp(text_before, text) < 0);
        before = id;
    }
}

TEST(A9_ids_text_order_is_byte_order)
{
    stet__rng r;
    stet_id   a, b;
    char      ta[STET_ID_TEXT_MAX], tb[STET_ID_TEXT_MAX];
    int       i;

    stet__rng_seed(&r, 2);
    for (i = 0; i < 2000; i++) {
        a = id_random(&r, (int64_t)(stet__rng_next(&r) >> 16));
        b = a;
        b.bytes[stet__rng_next(&r) % 16] ^= (uint8_t)(1u << stet__rng_next(&r) % 8);
        stet__id_text(ta, STET__ID_RUN, a);
        stet__id_text(tb, STET__ID_RUN, b);
        CHECK((strcmp(ta, tb) < 0) == (memcmp(a.bytes, b.bytes, 16) < 0));
        CHECK(!stet__id_equal(a, b));
    }
}

TEST(A9_ids_come_back_from_text)
{
    stet__rng r;
    stet_id   id, parsed;
    char      text[STET_ID_TEXT_MAX];
    int       i;

    stet__rng_seed(&r, 3);
    for (i = 0; i < 2000; i++) {
        id = id_random(&r, (int64_t)(stet__rng_next(&r) >> 16));
        stet__id_text(text, STET__ID_AWAKEABLE, id);
        CHECK_INT(strlen(text), 30);
        CHECK_INT(strspn(text + 4, "0123456789abcdefghjkmnpqrstvwxyz"), 26);
        CHECK_OK(stet__id_parse(&parsed, STET__ID_AWAKEABLE, text));
        CHECK(stet__id_equal(id, parsed));
    }
}

TEST(A9_ids_have_the_documented_form)
{
    stet_id zero = { { 0 } }, ones;
    char    text[STET_ID_TEXT_MAX];

    stet__id_text(text, STET__ID_RUN, zero);
    CHECK_STR(text, "run_00000000000000000000000000");
    CHECK(stet__id_is_zero(zero));
    memset(ones.bytes, 0xFF, 16);
    stet__id_text(text, STET__ID_WORKER, ones);
    CHECK_STR(text, "wrk_7zzzzzzzzzzzzzzzzzzzzzzzzz");
    CHECK(!stet__id_is_zero(ones));
    CHECK_INT(stet__id_time_ms(stet__id_make(-5, zero.bytes)), 0);
}

TEST(A9_ids_of_another_kind_are_refused_by_name)
{
    stet_run_id run;

    (void)snprintf(run.text, sizeof run.text, "untouched");
    CHECK_CODE(stet_run_id_parse(&run, "awk_01h00000000000000000000000"), STET_EKIND);
    CHECK_HAS(stet_last_error(), "is an awakeable, a run ID begins with run_");
    CHECK_CODE(stet_run_id_parse(&run, "wrk_01h00000000000000000000000"), STET_EKIND);
    CHECK_HAS(stet_last_error(), "a worker");
    CHECK_CODE(stet_run_id_parse(&run, "runs_01h00000000000000000000000"), STET_EKIND);
    CHECK_STR(run.text, "untouched");
}

TEST(A9_ids_what_is_no_id_is_refused)
{
    static const char *const bad[] = {
        NULL,
        "",
        "_",
        "run",
        "run_",
        "run_01h0000000000000000000000",
        "run_01h000000000000000000000000",
        "run_81h00000000000000000000000",
        "run_01h0000000000000000000000u",
        "run_01h0000000000000000000000 ",
        " run_01h00000000000000000000000",
        "run-01h00000000000000000000000",
        "01h00000000000000000000000",
        "_01h00000000000000000000000",
        "r\xC3\xBCn_01h00000000000000000000000",
        "run_01h0000000000000000000000\xFF",
        "averyverylongkind_01h00000000000000000000000",
        "hello",
    };
    stet_run_id run;
    size_t      i;

    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_CODE(stet_run_id_parse(&run, bad[i]), STET_EINVAL);
        CHECK_HAS(stet_last_error(), "expected run_");
    }
}

TEST(A9_ids_read_aloud_are_understood)
{
    stet_run_id run;

    CHECK_OK(stet_run_id_parse(&run, "RUN_O1HABCDEFGHJKMNPQRSTVWXYZI"));
    CHECK_STR(run.text, "run_01habcdefghjkmnpqrstvwxyz1");
    CHECK_OK(stet_run_id_parse(&run, run.text));
    CHECK_STR(run.text, "run_01habcdefghjkmnpqrstvwxyz1");
}
