/* Lists of runs by label: newest first, in pages, however many there are. Row C8. */
#include "fixture.h"

enum { LIST_MANY = 10500, LIST_AT_ONCE = 500, LIST_PAGE = 70 };

static const char *const red[] = { "colour=red", NULL };
static const char *const blue[] = { "colour=blue", NULL };

/* Of a service nobody serves: they are there, and that is all. */
static void
list_start(stet_engine *e, const char *handler, const char *const *labels, stet_run_id *ids,
           size_t n)
{
    stet_start_request requests[LIST_AT_ONCE];
    stet_start_options options = { .size = sizeof options, .labels = labels };

    for (size_t at = 0; at < n; at += LIST_AT_ONCE) {
        size_t some = n - at < LIST_AT_ONCE ? n - at : LIST_AT_ONCE;

        for (size_t i = 0; i < some; i++)
            requests[i] = (stet_start_request){ .handler = handler,
                                                .input = stet_text(""),
                                                .options = &options };
        CHECK_OK(stet_start_many(e, requests, some));
        for (size_t i = 0; i < some; i++)
            ids[at + i] = requests[i].run;
    }
}

static int
list_newest_first(const void *a, const void *b)
{
    return strcmp(((const stet_run_id *)b)->text, ((const stet_run_id *)a)->text);
}

typedef struct list_page {
    stet_run_id ids[LIST_PAGE];
    size_t      n;
} list_page;

static int
list_each(void *arg, const stet_run_info *info)
{
    list_page *p = arg;

    CHECK(p->n < LIST_PAGE);
    (void)snprintf(p->ids[p->n++].text, sizeof p->ids[0].text, "%s", info->id);
    return STET_OK;
}

TEST_LIMIT(C8_runs_are_listed_by_label_newest_first_in_pages, 120)
{
    enum { N = 1234 };
    static stet_run_id ids[N], others[N];
    fixture           *f = fixture_begin();
    stet_engine       *e = fixture_open(f);
    size_t             at = 0;
    list_page          p = { .n = 0 };

    for (size_t i = 0; i < N; i += N / 2) {
        list_start(e, "elsewhere.h", red, ids + i, N / 2);
        list_start(e, "elsewhere.h", blue, others + i, N / 2);
    }
    qsort(ids, N, sizeof *ids, list_newest_first);
    do {
        stet_run_id before = at > 0 ? ids[at - 1] : ids[0];

        p.n = 0;
        CHECK_OK(stet_run_list(e,
                               STET_FILTER(.label = "colour=red", .limit = LIST_PAGE,
                                           .before = at > 0 ? &before : NULL),
                               list_each, &p));
        for (size_t i = 0; i < p.n; i++)
            CHECK_STR(p.ids[i].text, ids[at + i].text);
        at += p.n;
    } while (p.n > 0);
    CHECK_INT(at, N);
    CHECK_INT(fixture_count(e, STET_FILTER(.label = "colour=red", .limit = 5000)), N);
    CHECK_INT(fixture_count(e, STET_FILTER(.label = "colour=green", .limit = 5000)), 0);
    CHECK_INT(fixture_count(e, STET_FILTER(.label = "colour=re", .limit = 5000)), 0);
    stet_close(e);
    fixture_end(f);
}

/* What else is asked for is looked for behind all that have the label. */
TEST_LIMIT(C8_an_old_run_is_found_by_label_behind_thousands_of_newer_ones, 120)
{
    static stet_run_id ids[LIST_MANY], old;
    fixture           *f = fixture_begin();
    stet_engine       *e = fixture_open(f);
    list_page          p = { .n = 0 };

    list_start(e, "elsewhere.old", red, &old, 1);
    list_start(e, "elsewhere.h", red, ids, LIST_MANY);
    CHECK_OK(stet_run_list(
        e, STET_FILTER(.label = "colour=red", .handler = "elsewhere.old", .limit = LIST_PAGE),
        list_each, &p));
    CHECK_INT(p.n, 1);
    CHECK_STR(p.ids[0].text, old.text);
    stet_close(e);
    fixture_end(f);
}

/* IDs somebody made before, all within one moment, now or years ahead: a place between them cannot
 * be found by time. */
TEST_LIMIT(C8_runs_whose_ids_begin_alike_are_listed_by_label, 120)
{
    enum { N = 900 };
    static stet_run_id        ids[2 * N];
    static stet_start_options options[N];
    static stet_start_request requests[N];
    fixture                  *f = fixture_begin();
    stet_engine              *e = fixture_open(f);
    stet_run_id               base;
    list_page                 p = { .n = 0 };
    size_t                    at = 0;

    for (size_t when = 0; when < 2; when++) {
        CHECK_OK(stet_run_id_make(e, &base));
        if (when == 0)
            base.text[strlen("run_") + 1] = 'z'; /* digits of the time */
        for (size_t i = 0; i < N; i++) {
            stet_run_id *id = &ids[when * N + i];

            (void)snprintf(id->text, sizeof id->text, "%.*s%04zu", (int)strlen(base.text) - 4,
                           base.text, N - i);
            options[i] =
                (stet_start_options){ .size = sizeof options[i], .labels = red, .run = id };
            requests[i] = (stet_start_request){ .handler = "elsewhere.h",
                                                .input = stet_text(""),
                                                .options = &options[i] };
        }
        CHECK_OK(stet_start_many(e, requests, N));
    }
    CHECK(strcmp(ids[0].text, ids[N].text) > 0);
    do {
        p.n = 0;
        CHECK_OK(stet_run_list(e,
                               STET_FILTER(.label = "colour=red", .limit = LIST_PAGE,
                                           .before = at > 0 ? &ids[at - 1] : NULL),
                               list_each, &p));
        for (size_t i = 0; i < p.n; i++)
            CHECK_STR(p.ids[i].text, ids[at + i].text);
        at += p.n;
    } while (p.n > 0);
    CHECK_INT(at, 2 * N);
    stet_close(e);
    fixture_end(f);
}
