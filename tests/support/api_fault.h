/* Allocations of this thread fail to order, whoever asks for them: stet by the real platform and by
 * the command line (the program is linked with --wrap=realloc), SQLite by its own allocator. For
 * tests that use nothing but the public API, as a program does.
 */
#ifndef STET_API_FAULT_H
#define STET_API_FAULT_H

#include <stdbool.h>

/* Before SQLite is used for the first time. */
void api_fault_init(void);
/* Plan: the allocation numbered `at` of the next armed window fails, or with is_for_good it and all
 * after it. The window opens at the first api_fault_arm() after this. */
void api_fault_plan(long at, bool is_for_good);
/* From the next plan on it is calls of a store that count and fail, no allocations: those that ask
 * api_fault_store_fails(). */
void api_fault_of_store(bool is_of_store);
bool api_fault_store_fails(void);
/* From the next plan on nothing fails in child processes: what their parent does with what they
 * send comes behind that, and would never see a failure. */
void api_fault_spare_children(bool is_spared);
/* This thread's allocations count from here; only the first window after a plan does anything. */
void api_fault_arm(void);
void api_fault_disarm(void);
/* How many failed since the plan; how many were asked for in its window. */
long api_fault_failed(void);
long api_fault_asked(void);
/* All clocks go on by so much (the program is linked with --wrap=clock_gettime as well). Nobody may
 * be waiting for a time. 0: back to the real ones. */
void api_fault_skip(long ms);

#endif
