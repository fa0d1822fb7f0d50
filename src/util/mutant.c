/* Which mutant is alive (mutant.h). Compiled only with -DSTET_MUTANTS=ON. */
#include "util/mutant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/util.h"

stet__mutant_name stet__mutant;

static const char *const mutant_names[STET__MUTANTS] = {
    "none",
#define MUTANT_NAME(name, text) #name,
    STET__MUTANT_LIST(MUTANT_NAME)
#undef MUTANT_NAME
};

/* Before main(): programs that know nothing of mutants have them too. */
__attribute__((constructor)) static void
mutant_choose(void)
{
    const char *name = getenv("STET_MUTANT");

    for (int i = 0; name != NULL && i < STET__MUTANTS; i++)
        if (strcmp(name, mutant_names[i]) == 0) {
            stet__mutant = (stet__mutant_name)i;
            return;
        }
    if (name != NULL) {
        fprintf(stderr, "STET_MUTANT=%s: there is no such mutant\n", name);
        _Exit(2);
    }
}
