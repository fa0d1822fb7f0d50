/* The list of verbs. A new verb is its row in a file of its own and one line here; help, parsing
 * and suggestions follow. The order is the order of `help`. */
#include "cli/cli.h"

static const cli_verb *const verbs[] = {
    &stet__cli_worker,      &stet__cli_start,
    &stet__cli_send,        &stet__cli_wait,
    &stet__cli_ls,          &stet__cli_show,
    &stet__cli_why,         &stet__cli_cancel,
    &stet__cli_notes,       &stet__cli_audit,
    &stet__cli_waits,       &stet__cli_query,
    &stet__cli_update,
    &stet__cli_signal,      &stet__cli_emit,
    &stet__cli_approve,     &stet__cli_pause,
    &stet__cli_resume,      &stet__cli_skip,
    &stet__cli_edit,        &stet__cli_rewind,
    &stet__cli_fork,        &stet__cli_fail_verb,
    &stet__cli_retry,
    &stet__cli_resolve,     &stet__cli_reject,
    &stet__cli_rollback,    &stet__cli_unstick,
    &stet__cli_dlq_ls,      &stet__cli_dlq_retry,
    &stet__cli_dlq_discard, &stet__cli_state_get,
    &stet__cli_handlers,    &stet__cli_workers,
    &stet__cli_health,      &stet__cli_verify,
    &stet__cli_check,       &stet__cli_describe,
    &stet__cli_export,      &stet__cli_replay,
    &stet__cli_move,        &stet__cli_schedule_ls,
    &stet__cli_schedule_show,   &stet__cli_schedule_history,
    &stet__cli_schedule_ensure, &stet__cli_schedule_update,
    &stet__cli_schedule_pause,  &stet__cli_schedule_resume,
    &stet__cli_schedule_rm,     &stet__cli_schedule_preview,
    &stet__cli_completion,  &stet__cli_man,
    &stet__cli_help,
};

const cli_verb *
stet__cli_verb_at(size_t index)
{
    return index < sizeof verbs / sizeof *verbs ? verbs[index] : NULL;
}

const cli_verb *
stet__cli_own_verb_at(const cli *c, size_t index)
{
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if ((c->app->n_services > 0 || !verbs[i]->needs_handlers) && index-- == 0)
            return verbs[i];
    return NULL;
}
