/* Bugs on purpose: does any test notice?
 *
 * A mutant is a small realistic bug, planted where it could have been made. Only a build with
 * -DSTET_MUTANTS=ON has them, all of them, and one of them at most is alive: the one that the
 * environment variable STET_MUTANT names, or that the test program chose. In every other build
 * STET__MUTANT() is the constant 0, and nothing of this is in the object code; tests/tidy checks.
 *
 * `make mutants` proves that each is found. To plant one: a row here, and STET__MUTANT(name) at its
 * place. One that survives is a hole in the tests.
 */
#ifndef STET__MUTANT_H
#define STET__MUTANT_H

#ifdef STET_MUTANTS

/* Name, what is wrong with it. */
#define STET__MUTANT_LIST(X)                                                                       \
    X(fence_dropped, "whoever records for a run need not hold its claim")                          \
    X(epoch_kept, "a run that is granted keeps its epoch")                                         \
    X(repeat_applied, "a unit that is submitted again is applied again")                           \
    X(suspend_blind, "a run suspends whatever has come into its inbox meanwhile")                  \
    X(timer_stays, "a timer that fired is not removed")

typedef enum stet__mutant_name {
    STET__MUTANT_none,
#define STET__MUTANT_ENUM(name, text) STET__MUTANT_##name,
    STET__MUTANT_LIST(STET__MUTANT_ENUM)
#undef STET__MUTANT_ENUM
    STET__MUTANTS
} stet__mutant_name;

extern stet__mutant_name stet__mutant;

#define STET__MUTANT(name) (stet__mutant == STET__MUTANT_##name)

#else

#define STET__MUTANT(name) 0

#endif
#endif
