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
    /* the store */                                                                                \
    X(fence_dropped, "whoever records for a run need not hold its claim")                          \
    X(lease_unjudged, "a worker whose lease has ended can still record")                           \
    X(epoch_kept, "a run that is granted keeps its epoch")                                         \
    X(repeat_applied, "a unit that is submitted again is applied again")                           \
    X(unit_torn, "a refused unit leaves behind what it did before it was refused")                 \
    X(reap_by_id, "a session is taken for dead a second early, and reaped without asking again")   \
    X(parked_unchecked, "a timer resumes a run whatever has become of it")                         \
    X(lane_asleep, "a run that leaves its lane does not wake the next")                            \
    X(lane_shared, "a run enters its lane and executes though another holds it")                   \
    X(due_early, "delays and backoffs are not waited for")                                         \
    /* the store in a file: crash everywhere finds these */                                        \
    X(file_unsynced, "commits to a file are not flushed")                                          \
    X(file_fence_dropped, "in a file whoever records for a run need not hold its claim")           \
    X(file_repeat_applied, "a unit that is submitted to a file again is applied again")            \
    X(file_lane_shared, "in a file a run in a lane is woken though another holds it")              \
    X(file_lane_asleep, "in a file a run that leaves its lane does not wake the next")             \
    X(file_lane_order, "in a file places in a lane count from its length when it is read again")   \
    X(file_lane_stale, "in a file lanes are as they were when this process looked last")           \
    X(file_lane_end, "in a file a lane ends with the runs that were read at once")                 \
    X(file_lane_gap, "in a file who enters a long lane stands behind those that were read")        \
    X(file_lane_middle, "in a file who left a lane from its middle comes to its front")            \
    X(file_inbox_row, "in a file a row does not tell how far its inbox came")                      \
    /* the stores on servers: crash everywhere on that server and its cuts find these */           \
    X(postgres_fence_dropped, "on PostgreSQL whoever records need not hold the claim")             \
    X(postgres_repeat_applied, "after a lost connection a handle is another one to PostgreSQL")    \
    X(postgres_lost_failed, "a commit whose answer is lost counts as not made, on PostgreSQL")     \
    X(redis_fence_dropped, "on Redis whoever records need not hold the claim")                     \
    X(redis_repeat_applied, "after a lost connection a handle is somebody else to Redis")          \
    X(redis_lost_failed, "a commit whose answer is lost counts as not made, on Redis")             \
    /* the engine */                                                                               \
    X(suspend_blind, "a run suspends whatever has come into its inbox meanwhile")                  \
    X(end_blind, "a run ends whatever has come into its inbox meanwhile")                          \
    X(timer_stays, "a timer that fired is not removed")                                            \
    X(timer_early, "timers fire a millisecond early")                                              \
    X(timer_own_clock, "timers are judged by the worker's clock, not the store's")                 \
    X(timer_after, "a timer is written after the wait for it, not with it")                        \
    X(parent_early, "a parent is told of a child's failed attempt as if it were its end")          \
    X(parent_untold, "a parent is not told of its child's end")                                    \
    X(idem_unchecked, "an idempotency key is looked up first, and then written unconditionally")   \
    X(idem_apart, "an idempotency key is written in a unit of its own, after the start")           \
    X(journal_short, "recovery reads the journal up to the fact before the last")                  \
    X(inbox_short, "recovery applies one entry of the inbox fewer than was taken")                 \
    X(step_before, "a step is recorded before its body is executed")                               \
    X(step_once_more, "a step is tried once more than its policy says")                            \
    X(retry_uncounted, "a failed attempt of a step is recorded with the number before its own")    \
    X(trouble_counted, "a read that the store refuses uses an attempt of the run")                 \
    X(attempt_uncounted, "the second failed attempt of a run does not count")                      \
    X(effect_first, "a body begins before what it depends on is durable")                          \
    X(answer_early, "waiters are answered before the end of their run is durable")                 \
    X(death_untold, "what a dead worker was executing is not told to who takes over")              \
    X(release_untold, "a run that is given back does not say which bodies were entered")           \
    X(risk_recorded, "a run that is given back calls bodies at risk whose records come with it")   \
    X(risk_once, "a step at risk is told once, also if that gives no result")                      \
    X(crumb_early, "the note of an entered body goes before its record is durable")                \
    X(ahead_unchecked, "a run that works ahead does not say which state it relies on")             \
    X(refused_durable, "a unit that was refused counts as durable")                                \
    X(unknown_renumbered, "a batch of unknown outcome is submitted again under new numbers")       \
    X(deadline_ignored, "a deadline passes and nothing happens")                                   \
    X(cancel_asleep, "a cancel that comes while a run is suspended is not taken in")               \
    X(children_go_on, "a run that is cancelled does not cancel the children it waits for")         \
    X(choice_unrecorded, "which of several futures came first is not recorded")                    \
    X(now_unrecorded, "the time a run saw is not recorded")                                        \
    X(random_anew, "random numbers differ from one execution to the next")                         \
    X(turn_letters, "signals nobody took are lost when a run begins anew")                         \
    X(turn_timers, "timers of a generation are left behind when the next begins")                  \
    X(turn_baseless, "what a generation wrote is nowhere on record when the next begins")          \
    X(failure_inherited, "a retried dead letter inherits the step that failed")                    \
    X(child_apart, "a child is started in another unit than its parent's record of it")            \
    X(settle_unchecked, "an awakeable is settled without asking whether it still is open")         \
    X(signal_unheard, "a signal that comes while nobody waits for it is dropped")                  \
    X(signal_late, "a signal is given to a wait whose time was up")                                \
    X(signal_repeated, "a signal that was sent again with the same key counts twice")              \
    X(timer_spared, "the timer of what was settled before it fired stays")                         \
    X(update_repeated, "an update that is asked for again with the same key is made twice")        \
    X(update_unwoken, "an update does not wake the run that waits")                                \
    X(update_passed, "an update is made at a wait that another attempt had left")                  \
    X(update_anew, "an update that is made again after a rewind is answered anew")                 \
    X(query_behind, "a query does not know the last fact")                                         \
    X(shared_ahead, "a shared handler reads what is on its way, or was, and does not say so")      \
    X(shared_writes, "a shared handler may write state")                                           \
    X(hold_unlearnt, "an engine that serves everything does not look for pauses any more")         \
    X(hold_passed, "a run that was asked for before its handler was paused is begun behind that")  \
    X(hold_late, "an engine takes runs before it has looked which handlers are paused")            \
    X(hold_split, "a run whose handler is paused while its timer fires is resumed and not taken")  \
    X(classify_passed, "who says that a failure is to be retried has no opinion of it")            \
    X(classify_undone, "what a classifier said is forgotten if the rollback is interrupted")       \
    X(audit_refused, "an entry that the audit hook refused counts as told")                        \
    X(audit_purged, "retention does not wait for the audit hook")                                  \
    X(turn_untold, "what was not told of a generation goes with it")                               \
    X(heal_unwoken, "polled, what could not end waits on when the store is well again")            \
    X(undo_partial, "a rollback is taken up before the handler came to all that was done")         \
    X(rewind_riskless, "after a rewind only the next body is told of a death without a trace")     \
    X(rewind_unlisted, "a rewind that is taken leaves the attempt in the run's row")               \
    X(stop_unmade, "a retry that is stopped at a wait has not the updates it inherits there")      \
    X(audit_midway, "what an entry says of the status depends on where the telling begins")        \
    X(reread_spared, "the retry of a retry does not read where that read anew")                    \
    X(once_unchecked, "whether a key was given out before is looked at, and not a condition")      \
    X(event_unchecked, "an event is given to a wait without asking whether it goes on")            \
    X(event_unwoken, "an event does not wake those who wait for it")                               \
    X(decision_unchecked, "a decision is made without asking whether somebody was faster")         \
    X(decision_late, "a decision is taken for one that the run asked for meanwhile")               \
    X(decision_kind, "a resume decides an approval, and an approval a pause")                      \
    X(told_unguarded, "a stop that comes while an undo fails changes what waiters were told")      \
    X(told_stopped, "a caller that is rewound stops what has told that its undo failed")           \
    X(undone_inherited, "a retried dead letter inherits steps that were undone")                   \
    X(undo_forward, "undos run in the order of their steps")                                       \
    X(undo_late, "the replay of a rollback undoes what was done behind it")                        \
    X(helped_unowned, "an operator does not ask whether the run is still with who had it")         \
    X(pause_unheld, "a run that is paused is executed when its turn comes")                        \
    X(rewind_deaf, "signals consumed behind the step of a rewind are gone")                        \
    X(rewind_token, "a step that is done again after a rewind has the token it had")               \
    X(rewind_children, "runs that were called behind the step of a rewind go on")                  \
    X(decision_yes, "a rejection is taken for an approval")                                        \
    X(rewind_half, "a rewind forgets what came behind the step, and not the step")                 \
    X(rewind_choice, "a wait that ended behind the step of a rewind stays ended")                  \
    X(wait_misplaced, "a wait made anew stands on record where the one stood that was inherited")  \
    X(rewritten_recorded, "a body that ends after its step was skipped or forgotten is recorded")  \
    X(skip_executed, "a step that was skipped while it was tried again is executed")               \
    X(edit_dropped, "the result of a step that was tried several times is not replaced")           \
    X(fork_stale, "a fork inherits what was read for a write that it does not inherit")            \
    X(fork_behind, "a fork inherits the step it is forked from")                                   \
    X(helped_early, "a run that waits for its time is woken by what operators do to it")           \
    X(signal_unwoken, "a signal to a run that began just now does not wake it")                    \
    X(gather_stuck, "a run that was waited for with a commit is waited for ever after")            \
    X(sched_unchecked, "a schedule is written without asking whether somebody else wrote it")      \
    X(sched_versioned, "one that was removed and made anew is taken for the one that was seen")    \
    X(sched_apart, "a schedule's run is started in a unit of its own, before the record")          \
    X(sched_unasked, "a schedule is not looked at when its run ends")                              \
    X(sched_same_key, "a look at an open run removes what its end asks for in that millisecond")   \
    X(sched_unlooked, "a new time replaces the look that the end of a run waits for")              \
    X(sched_unplaced, "a schedule is gone if the clock is set back while it is looked at")         \
    X(sched_own_clock, "schedules are judged by the worker's clock, not the store's")              \
    X(sched_in_pause, "a run that ends lets its schedule fire in a pause")                         \
    X(sched_pause_untold, "times that came in a pause are in no ledger")                           \
    X(sched_uncancelled, "a schedule that is to cancel its last run lets it go on")                \
    X(sched_too_many, "of times that were missed one more is fired than may be")                   \
    X(hints_trusted, "without a hint nobody looks for work")                                       \
    X(orphan_left, "a granted run that found no memory is never taken up")                         \
    X(refused_adopted, "a run whose records were refused goes on as if not executed")              \
    X(replaced_unknown, "a state write does not say which one it replaced")                        \
    X(base_kept, "the baseline that a removed write had replaced stays")                           \
    X(visible_forgotten,                                                                           \
      "a delayed run is forgotten if its row cannot be read when its time comes")                  \
    X(lease_unasked, "a body begins without a look at the lease")                                  \
    X(renewed_late, "a lease counts from when its renewal was answered")                           \
    X(poll_by_anybody, "a wait on a polled engine executes runs, whatever thread it is on")        \
    X(purge_by_age, "retention counts from a run's start, not from its end")                       \
    X(retention_forgotten, "a run's own retention does not count")                                 \
    X(returned_durable, "what came back because of news counts as recorded")                       \
    X(reap_unburied, "who reaps a session that looks dead does not see to it that it stays so")    \
    X(death_late, "a death is told to a run that somebody else has executed since")                \
    X(undo_disinherited, "a rollback is taken up by who did not come to what was inherited")       \
    X(undo_hasty, "a last attempt that fails before it comes to what was done leaves it")          \
    X(undo_beside, "what was done when a rollback began is not looked for to be undone")           \
    X(undone_goes_on, "a handler whose failure is rolled back goes on with what came since")       \
    X(turn_held, "a generation does not know which keys its callers hold")                         \
    X(emit_conflict_last, "an event whose last lot is refused is done")                            \
    X(event_edge, "an event passes over who waits since the millisecond of its begin")             \
    X(retry_deadline, "a retry has the deadline that has passed")                                  \
    X(retry_untaken, "a retry does not get signals that came last")                                \
    X(retry_old_inbox, "a retry gets what a generation before the last had taken")                 \
    X(fail_children, "a run that is failed by hand leaves the runs it called")                     \
    X(cancel_hasten, "a cancel of a run that is being given back does not hasten it")              \
    X(fail_orphans, "a run that is failed by hand leaves those that an untaken rewind forgot")     \
    X(emit_cursor, "who is in a lot that was refused is passed over")                              \
    X(emit_recount, "who is in a lot that was refused is counted")                                 \
    X(emit_uncounted, "who was told in a lot before is not counted")                               \
    X(emit_since, "who begins to wait between two lots of an event is told")                       \
    X(emit_left, "an event that was told to some when its emitter died is forgotten")              \
    X(retry_apart, "a retry is started in a unit of its own, before the record")                   \
    X(retry_unchecked, "a dead letter is retried without asking whether it was")                   \
    X(retry_unlisted, "a dead letter does not say as what it was retried")                         \
    X(discard_unchecked, "a discard does not ask whether it is retried, nor a retry the other")    \
    X(retry_labels, "a retry does not have the labels")                                            \
    X(retry_priority, "a retry does not have the priority")                                        \
    X(retry_hasty, "a step between two attempts is tried at once when its run is taken over")      \
    X(turn_labels, "a generation does not have the labels of its run")                             \
    X(turn_priority, "a generation does not have the priority of its run")                         \
    X(turn_retention, "a generation does not have the retention of its run")                       \
    X(lost_kept, "a run that was helped is still blamed for its dead workers")                     \
    X(settle_order, "of several that are settled the first in the list is taken")                  \
    X(settle_apart, "a settlement is told in a unit of its own")

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
