/* Tables with aligned columns. Rows are gathered first, because a column is as wide as its widest
 * cell; if the terminal is too narrow, the widest cuttable column gives way, again and again. */
#include "cli/cli.h"

#include <string.h>

#define TABLE_GAP       2
#define TABLE_CUT_LEAST 6 /* narrower than this says nothing */

void
stet__cli_table_begin(cli_table *t, cli *c, const cli_column *columns, size_t n)
{
    t->c = c;
    t->columns = columns;
    t->n_columns = n;
    t->n_rows = 0;
    stet__buf_init(&t->cells, c->alloc);
}

void
stet__cli_table_row(cli_table *t, const char *const *cells)
{
    for (size_t i = 0; i < t->n_columns; i++) {
        const char *clean = cells[i] ? stet__cli_clean(t->c, stet_text(cells[i])) : "";

        stet__buf_add(&t->cells, &clean, sizeof clean);
    }
    t->n_rows++;
}

static const char *
table_cell(const cli_table *t, size_t row, size_t column)
{
    const char *cell;

    memcpy(&cell, t->cells.data + (row * t->n_columns + column) * sizeof cell, sizeof cell);
    return cell;
}

/* A column of which every cell is empty is left out: width 0. */
static void
table_measure(const cli_table *t, size_t *widths)
{
    for (size_t i = 0; i < t->n_columns; i++) {
        widths[i] = 0;
        for (size_t row = 0; row < t->n_rows; row++) {
            size_t columns = stet__cli_columns(table_cell(t, row, i));

            widths[i] = columns > widths[i] ? columns : widths[i];
        }
        if (widths[i] > 0 && widths[i] < strlen(t->columns[i].title))
            widths[i] = strlen(t->columns[i].title);
    }
}

static void
table_squeeze(const cli_table *t, size_t *widths)
{
    for (;;) {
        size_t total = 0, widest = t->n_columns;

        for (size_t i = 0; i < t->n_columns; i++) {
            total += widths[i] > 0 ? widths[i] + TABLE_GAP : 0;
            if (t->columns[i].cell == CLI_CELL_CUT && widths[i] > TABLE_CUT_LEAST &&
                (widest == t->n_columns || widths[i] > widths[widest]))
                widest = i;
        }
        total = total > TABLE_GAP ? total - TABLE_GAP : total;
        if (total <= t->c->width || widest == t->n_columns)
            return;
        widths[widest]--;
    }
}

static void
table_print_cell(const cli_table *t, cli_style style, const char *text, size_t width, bool is_last)
{
    size_t columns;

    text = stet__cli_cut(t->c, text, width);
    columns = stet__cli_columns(text);
    stet__cli_paint(t->c, style, text);
    if (!is_last)
        printf("%*s", (int)(width - (columns < width ? columns : width) + TABLE_GAP), "");
}

/* The last cell with text in this row: nothing is padded behind it. */
static size_t
table_last(const cli_table *t, size_t row, const size_t *widths)
{
    size_t last = 0;

    for (size_t i = 0; i < t->n_columns; i++)
        if (widths[i] > 0 && *table_cell(t, row, i) != '\0')
            last = i;
    return last;
}

static void
table_print_row(const cli_table *t, size_t row, const size_t *widths)
{
    size_t last = table_last(t, row, widths);

    for (size_t i = 0; i <= last; i++) {
        const char *cell = table_cell(t, row, i);
        cli_style   style = t->columns[i].cell == CLI_CELL_STATUS
                                ? stet__cli_status_style(stet_status_parse(cell))
                                : CLI_PLAIN;

        if (widths[i] > 0)
            table_print_cell(t, style, cell, widths[i], i == last);
    }
    putchar('\n');
}

static void
table_print_titles(const cli_table *t, const size_t *widths)
{
    size_t last = 0;

    for (size_t i = 0; i < t->n_columns; i++)
        last = widths[i] > 0 ? i : last;
    for (size_t i = 0; i <= last; i++)
        if (widths[i] > 0)
            table_print_cell(t, CLI_DIM, t->columns[i].title, widths[i], i == last);
    putchar('\n');
}

void
stet__cli_table_end(cli_table *t)
{
    size_t widths[CLI_COLUMNS_MAX];

    table_measure(t, widths);
    table_squeeze(t, widths);
    if (t->n_rows > 0)
        table_print_titles(t, widths);
    for (size_t row = 0; row < t->n_rows; row++)
        table_print_row(t, row, widths);
    stet__buf_free(&t->cells);
}
