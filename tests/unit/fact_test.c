/* Facts as bytes: what is written is read back, what is damaged is noticed, and the format on disk
 * does not change by accident.
 */
#include "core/fact.h"
#include "platform/platform.h"
#include "test.h"

static stet__alloc *
fact_alloc(void)
{
    return &stet__platform_real()->alloc;
}

static bool
fact_bytes_equal(stet_bytes a, stet_bytes b)
{
    return a.len == b.len && (a.data == NULL) == (b.data == NULL) &&
           (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static void
fact_check_equal(const stet__fact *got, const stet__fact *want)
{
    CHECK_INT(got->kind, want->kind);
    CHECK_INT(got->time_ms, want->time_ms);
#define FACT_B(member, number) CHECK(fact_bytes_equal(got->member, want->member));
#define FACT_V(member, number) CHECK_INT(got->member, want->member);
    STET__FACT_FIELDS(FACT_B, FACT_V)
#undef FACT_B
#undef FACT_V
}

/* Encode, decode, compare; nothing may be left over. */
static void
fact_check_round_trip(const stet__fact *fact)
{
    stet__buf  b;
    stet_bytes in;
    stet__fact got;

    stet__buf_init(&b, fact_alloc());
    stet__fact_encode(&b, fact);
    CHECK(!b.failed);
    in = stet__buf_bytes(&b);
    CHECK_OK(stet__fact_decode(&got, &in));
    CHECK_INT(in.len, 0);
    fact_check_equal(&got, fact);
    CHECK_CODE(stet__fact_decode(&got, &in), STET_END);
    stet__buf_free(&b);
}

/* Every field has a value of its own. */
static stet__fact
fact_full(void)
{
    static const char texts[] =
        "0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJ"
        "KLMNOPQRSTUVWXYZ0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrst";
    stet__fact        fact = { 0 };

    fact.kind = STET__FACT_STARTED;
    fact.time_ms = 1700000000123;
#define FACT_B(member, number) fact.member = (stet_bytes){ texts + (number), (number) };
#define FACT_V(member, number) fact.member = (number)*1000003;
    STET__FACT_FIELDS(FACT_B, FACT_V)
#undef FACT_B
#undef FACT_V
    return fact;
}

TEST(F6_every_field_is_read_back)
{
    stet__fact full = fact_full();

    fact_check_round_trip(&full);
    /* And each alone, so that no field leans on another. */
#define FACT_B(member, number)                                                                     \
    {                                                                                              \
        stet__fact one = { .kind = STET__FACT_STEP, .member = full.member };                       \
        fact_check_round_trip(&one);                                                               \
    }
#define FACT_V(member, number) FACT_B(member, number)
    STET__FACT_FIELDS(FACT_B, FACT_V)
#undef FACT_B
#undef FACT_V
}

TEST(F6_every_kind_is_read_back_and_has_a_name)
{
#define FACT_KIND(name, number, text)                                                              \
    {                                                                                              \
        stet__fact fact = { .kind = STET__FACT_##name, .time_ms = number };                        \
        CHECK_INT(STET__FACT_##name, number);                                                      \
        CHECK_STR(stet__fact_kind_name(fact.kind), text);                                          \
        fact_check_round_trip(&fact);                                                              \
    }
    STET__FACT_LIST(FACT_KIND)
#undef FACT_KIND
    CHECK(stet__fact_kind_name((stet__fact_kind)0) == NULL);
    CHECK(stet__fact_kind_name((stet__fact_kind)255) == NULL);
}

TEST(F6_numbers_of_any_size_are_read_back)
{
    static const int64_t numbers[] = {
        1,    -1,        63,        64,        -64,           -65,       127,          8191,
        8192, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MAX - 1, INT64_MIN, INT64_MIN + 1
    };

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        stet__fact fact = {
            .kind = STET__FACT_NOW, .time_ms = numbers[i], .number = numbers[i], .code = numbers[i]
        };

        fact_check_round_trip(&fact);
    }
}

TEST(F6_empty_bytes_are_not_absent_bytes)
{
    stet__fact fact = { .kind = STET__FACT_STEP, .value = { "", 0 } };

    fact_check_round_trip(&fact);
}

TEST(F6_long_payloads_are_read_back)
{
    static const size_t sizes[] = { 126, 127, 128, 129, 16383, 16384, 1u << 21 };
    char               *payload = calloc(1, 1u << 21);

    CHECK(payload != NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        stet__fact fact = { .kind = STET__FACT_STEP, .value = { payload, sizes[i] } };

        fact_check_round_trip(&fact);
    }
    free(payload);
}

TEST(F6_facts_follow_each_other)
{
    stet__fact one = { .kind = STET__FACT_STEP, .name = { "a", 1 } },
               two = { .kind = STET__FACT_SLEEP, .until_ms = 7 }, got;
    stet__buf  b;
    stet_bytes in;

    stet__buf_init(&b, fact_alloc());
    stet__fact_encode(&b, &one);
    stet__fact_encode(&b, &two);
    in = stet__buf_bytes(&b);
    CHECK_OK(stet__fact_decode(&got, &in));
    fact_check_equal(&got, &one);
    CHECK_OK(stet__fact_decode(&got, &in));
    fact_check_equal(&got, &two);
    CHECK_CODE(stet__fact_decode(&got, &in), STET_END);
    stet__buf_free(&b);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void
fact_encode_full(stet__buf *b)
{
    stet__fact full = fact_full();

    stet__buf_init(b, fact_alloc());
    stet__fact_encode(b, &full);
    CHECK(!b->failed);
}

TEST(F6_every_flipped_bit_is_noticed)
{
    stet__buf  b;
    stet__fact got;
    size_t     tried = 0;

    fact_encode_full(&b);
    for (size_t i = 0; i < b.len; i++)
        for (int bit = 0; bit < 8; bit++, tried++) {
            stet_bytes in = stet__buf_bytes(&b);

            b.data[i] ^= (uint8_t)(1u << bit);
            if (stet__fact_decode(&got, &in) != STET_ECORRUPT)
                test_fail(__FILE__, __LINE__, "bit %d of byte %zu was flipped unnoticed", bit, i);
            b.data[i] ^= (uint8_t)(1u << bit);
        }
    test_note("%zu flips", tried);
    stet__buf_free(&b);
}

TEST(F6_every_other_byte_in_any_place_is_noticed)
{
    stet__fact fact = { .kind = STET__FACT_STEP,
                        .time_ms = 5,
                        .name = { "charge", 6 },
                        .occurrence = 1 },
               got;
    stet__buf  b;

    stet__buf_init(&b, fact_alloc());
    stet__fact_encode(&b, &fact);
    for (size_t i = 0; i < b.len; i++) {
        uint8_t was = b.data[i];

        for (unsigned v = 0; v < 256; v++) {
            stet_bytes in = stet__buf_bytes(&b);

            b.data[i] = (uint8_t)v;
            if (v != was)
                CHECK_CODE(stet__fact_decode(&got, &in), STET_ECORRUPT);
        }
        b.data[i] = was;
    }
    stet__buf_free(&b);
}

TEST(F6_cut_off_facts_are_noticed)
{
    stet__buf  b;
    stet__fact got;

    fact_encode_full(&b);
    for (size_t len = 1; len < b.len; len++) {
        /* Memory of its own, so that a sanitizer sees a read behind the end. */
        uint8_t   *cut = malloc(len);
        stet_bytes in = { cut, len };

        CHECK(cut != NULL);
        memcpy(cut, b.data, len);
        CHECK_CODE(stet__fact_decode(&got, &in), STET_ECORRUPT);
        CHECK_INT(in.len, 0);
        free(cut);
    }
    stet__buf_free(&b);
}

TEST(F7_a_bad_fact_does_not_hide_the_next_one)
{
    stet__fact one = { .kind = STET__FACT_STEP, .name = { "a", 1 } },
               two = { .kind = STET__FACT_SLEEP, .until_ms = 7 }, got;
    stet__buf  b;
    stet_bytes in;

    stet__buf_init(&b, fact_alloc());
    stet__fact_encode(&b, &one);
    b.data[b.len - 1] ^= 1; /* its checksum */
    stet__fact_encode(&b, &two);
    in = stet__buf_bytes(&b);
    CHECK_CODE(stet__fact_decode(&got, &in), STET_ECORRUPT);
    CHECK_OK(stet__fact_decode(&got, &in));
    fact_check_equal(&got, &two);
    stet__buf_free(&b);
}

/* ---- versions -------------------------------------------------------------------------------- */

/* A record with this body and a right checksum. */
static void
fact_record(stet__buf *b, const void *body, size_t len)
{
    uint32_t crc;

    stet__buf_init(b, fact_alloc());
    stet__buf_varint(b, len + 4);
    stet__buf_add(b, body, len);
    crc = stet__crc32c(0, b->data, b->len);
    stet__buf_u32(b, crc);
}

static int
fact_decode_body(stet__fact *fact, const void *body, size_t len)
{
    stet__buf  b;
    stet_bytes in;
    int        err;

    fact_record(&b, body, len);
    in = stet__buf_bytes(&b);
    err = stet__fact_decode(fact, &in);
    CHECK_INT(in.len, 0);
    stet__buf_free(&b);
    return err;
}

TEST(F6_unknown_fields_are_skipped)
{
    /* Field 120 as bytes "xyz", field 121 as a number, field 127 as a number, then occurrence 3. */
    static const uint8_t body[] = { 1,   STET__FACT_STEP, 0,    120 * 2 + 1, 3,       'x', 'y',
                                    'z', 121 * 2,         0x96, 1,           127 * 2, 7,   2 * 2,
                                    6 };
    stet__fact           got;

    CHECK_OK(fact_decode_body(&got, body, sizeof body));
    CHECK_INT(got.kind, STET__FACT_STEP);
    CHECK_INT(got.occurrence, 3);
}

/* Whichever numbers are left out between two fields. */
TEST(F6_a_number_between_two_fields_is_an_unknown_one)
{
    static const uint8_t known[] = {
#define KNOWN(member, number) [number] = 1,
        STET__FACT_FIELDS(KNOWN, KNOWN)
#undef KNOWN
    };
    int gaps = 0;

    for (uint8_t i = 1; i < sizeof known; i++) {
        uint8_t    body[] = { 1, STET__FACT_STEP, 0, (uint8_t)(i * 2), 8, 2 * 2, 6 };
        stet__fact got;

        if (known[i])
            continue;
        gaps++;
        CHECK_OK(fact_decode_body(&got, body, sizeof body));
        CHECK_INT(got.revision, 0);
        CHECK_INT(got.occurrence, 3);
        body[3]++; /* as bytes, eight of which are not there */
        CHECK_CODE(fact_decode_body(&got, body, sizeof body), STET_ECORRUPT);
    }
    CHECK(gaps > 0);
}

TEST(F6_field_zero_is_an_unknown_one)
{
    static const uint8_t body[] = { 1, STET__FACT_STEP, 0, 0, 9, 1, 1, 'x', 2 * 2, 6 };
    stet__fact           got;

    CHECK_OK(fact_decode_body(&got, body, sizeof body));
    CHECK_INT(got.occurrence, 3);
}

TEST(F6_a_fact_that_ends_in_its_time_is_refused)
{
    static const uint8_t body[] = { 1, STET__FACT_STEP, 0x80 };
    stet__fact           got;

    CHECK_CODE(fact_decode_body(&got, body, sizeof body), STET_ECORRUPT);
    CHECK_HAS(stet_last_error(), "cut off");
}

TEST(F6_a_later_field_of_the_same_number_counts)
{
    static const uint8_t body[] = { 1, STET__FACT_STEP, 0, 2 * 2, 6, 2 * 2, 8 };
    stet__fact           got;

    CHECK_OK(fact_decode_body(&got, body, sizeof body));
    CHECK_INT(got.occurrence, 4);
}

TEST(F6_another_version_is_refused)
{
    static const uint8_t body[] = { 2, STET__FACT_STEP, 0 };
    stet__fact           got;

    CHECK_CODE(fact_decode_body(&got, body, sizeof body), STET_ECORRUPT);
    CHECK_HAS(stet_last_error(), "format 2");
}

TEST(F6_an_unknown_kind_is_refused)
{
    static const uint8_t body[] = { 1, 200, 0 };
    stet__fact           got;

    CHECK_CODE(fact_decode_body(&got, body, sizeof body), STET_ECORRUPT);
    CHECK_HAS(stet_last_error(), "200");
}

TEST(F6_fields_of_the_wrong_type_and_length_are_refused)
{
    static const uint8_t number_as_bytes[] = { 1, STET__FACT_STEP, 0, 2 * 2 + 1, 1, 'x' };
    static const uint8_t bytes_as_number[] = { 1, STET__FACT_STEP, 0, 1 * 2, 5 };
    static const uint8_t too_long[] = { 1, STET__FACT_STEP, 0, 1 * 2 + 1, 9, 'x' };
    static const uint8_t huge[] = {
        1, STET__FACT_STEP, 0, 1 * 2 + 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1
    };
    static const uint8_t endless[] = {
        1, STET__FACT_STEP, 0, 2 * 2, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1
    };
    static const uint8_t lone_tag[] = { 1, STET__FACT_STEP, 0, 2 * 2 };
    stet__fact           got;

    CHECK_CODE(fact_decode_body(&got, number_as_bytes, sizeof number_as_bytes), STET_ECORRUPT);
    CHECK_CODE(fact_decode_body(&got, bytes_as_number, sizeof bytes_as_number), STET_ECORRUPT);
    CHECK_CODE(fact_decode_body(&got, too_long, sizeof too_long), STET_ECORRUPT);
    CHECK_CODE(fact_decode_body(&got, huge, sizeof huge), STET_ECORRUPT);
    CHECK_CODE(fact_decode_body(&got, endless, sizeof endless), STET_ECORRUPT);
    CHECK_CODE(fact_decode_body(&got, lone_tag, sizeof lone_tag), STET_ECORRUPT);
}

TEST(F6_ids_need_sixteen_bytes)
{
    static const uint8_t bytes[17] = { 1, 2, 3 };

    CHECK_INT(stet__fact_id((stet_bytes){ bytes, 16 }).bytes[2], 3);
    CHECK_INT(stet__fact_id((stet_bytes){ bytes, 15 }).bytes[2], 0);
    CHECK_INT(stet__fact_id((stet_bytes){ bytes, 17 }).bytes[2], 0);
    CHECK_INT(stet__fact_id((stet_bytes){ NULL, 0 }).bytes[0], 0);
}

/* ---- the format on disk ---------------------------------------------------------------------- */

static void
fact_hex(char *out, stet_bytes b)
{
    for (size_t i = 0; i < b.len; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", ((const uint8_t *)b.data)[i]);
    out[2 * b.len] = '\0';
}

/* These bytes are in people's files. If this test fails, the format has changed: raise the version
 * and read the old one, do not change the text here. */
TEST(F6_the_format_on_disk_stays)
{
    stet__fact step = { .kind = STET__FACT_STEP,
                        .time_ms = 1700000000123,
                        .name = { "charge", 6 },
                        .occurrence = 1,
                        .value = { "{\"n\":7}", 7 },
                        .attempt = 2,
                        .code = -21 };
    stet__fact full = fact_full();
    stet__buf  b;
    char       hex[4096];
    uint8_t    sum[32];

    stet__buf_init(&b, fact_alloc());
    stet__fact_encode(&b, &step);
    fact_hex(hex, stet__buf_bytes(&b));
    CHECK_STR(hex, "230114f6a1abfef962030663686172676504020a290e0415077b226e223a377d969fb1be");
    b.len = 0;
    full.traceparent = full.tracestate = full.topic = (stet_bytes){ NULL, 0 }; /* came later, */
    full.replaces = full.took_ms = full.inherited = 0; /* as did these, and what is of schedules */
    full.schedule = full.cron = full.zone = (stet_bytes){ NULL, 0 };
    full.planned_ms = full.every_ms = full.at_ms = full.after_ms = full.overlap = 0;
    full.missed = full.missed_max = full.grace_ms = full.look_ms = full.waiting_ms = 0;
    full.fired = full.skipped = full.logged = full.updated_ms = full.fired_ms = 0;
    full.generation = full.since = full.taken = full.epoch = full.created_ms = 0; /* … */
    stet__fact_encode(&b, &full);
    CHECK_INT(b.len, 510);
    stet__sha256(sum, b.data, b.len);
    fact_hex(hex, (stet_bytes){ sum, sizeof sum });
    CHECK_STR(hex, "b692e93ee849c67e0d0f5a8e4e9046195fea3f83d49b45a1ac90cd38c2c8e31b");
    stet__buf_free(&b);
}

/* A choice is the outcome of a wait, not a thing the handler asked for, though its number lies
 * among the commands. */
TEST(F6_commands_are_told_from_the_rest_by_their_kind)
{
    CHECK(!stet__fact_is_command(STET__FACT_COMPENSATION_FAILED));
    CHECK(stet__fact_is_command(STET__FACT_STEP));
    CHECK(!stet__fact_is_command(STET__FACT_CHOICE));
    CHECK(stet__fact_is_command(STET__FACT_BOUNDARY));
    CHECK(!stet__fact_is_command(STET__FACT_TIMER));
    CHECK(!stet__fact_is_command(STET__FACT_ROW));
}

TEST(F6_writers_differ_by_run_and_by_revision)
{
    stet_id one = { { 1 } }, other = { { 1 } };

    other.bytes[sizeof other.bytes - 8] = 4; /* the first byte that is used and kept is the next */
    other.bytes[sizeof other.bytes - 7] = 4;
    CHECK_INT(stet__fact_writer((stet_id){ { 0 } }, 7), 1); /* nobody */
    for (uint64_t revision = 0; revision < 100; revision++) {
        CHECK(stet__fact_writer(one, revision) > 1);
        CHECK(stet__fact_writer(one, revision) < INT64_C(1) << 56);
        CHECK(stet__fact_writer(one, revision) != stet__fact_writer(other, revision));
        CHECK(stet__fact_writer(one, revision) != stet__fact_writer(one, revision + 1));
    }
}
