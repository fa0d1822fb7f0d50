/* How near a mistyped name is to a right one, so that an error can say what was meant.
 *
 * Names are short: what has 40 bytes or more is near to nothing, which bounds stack and time.
 */
#include "util/util.h"

#define NEAR_NAME_MAX 40

size_t
stet__near_edits(const char *typed, size_t len, const char *name)
{
    size_t rows[3][NEAR_NAME_MAX], m = strlen(name);

    if (len >= NEAR_NAME_MAX || m >= NEAR_NAME_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= len; i++) {
        size_t *now = rows[i % 3], *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];

        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = up[j - 1] + (typed[i - 1] != name[j - 1]);

            best = up[j] + 1 < best ? up[j] + 1 : best;
            best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
            if (i > 1 && j > 1 && typed[i - 1] == name[j - 2] && typed[i - 2] == name[j - 1] &&
                up2[j - 2] + 1 < best)
                best = up2[j - 2] + 1;
            now[j] = best;
        }
    }
    return rows[len % 3][m];
}

void
stet__near_begin(stet__near *n, const char *typed, size_t len)
{
    n->typed = typed;
    n->len = len;
    n->edits = 2 + len / 3;
    n->name = NULL;
}

void
stet__near_offer(stet__near *n, const char *name)
{
    size_t edits = stet__near_edits(n->typed, n->len, name);

    if (edits < n->edits) {
        n->edits = edits;
        n->name = name;
    }
}
