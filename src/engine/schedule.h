/* What the files of schedules share: schedule.c keeps records, index and ledger, schedule_edit.c
 * changes them for callers, schedule_look.c shows them, schedule_fire.c fires what is due.
 *
 * A schedule is one value; whoever writes it has read it, and its unit is conditional on the writer
 * it saw: an ID made with the schedule and an edition that grows. (The version would begin again
 * with 1 when a schedule is removed and made anew, and an old look would fire the new one.) So one
 * planned time is dealt with by one unit, however many engines look.
 *
 * The index says at which time to look at which schedule. Each active schedule stands in it once
 * with its own time, look_ms; each run of a schedule adds an entry when it ends, because something
 * may wait for that. A look removes the entry that led to it. An entry that is too much costs a
 * look; one that is missing is found by verify. The entry of a run has its ID: who came by an entry
 * of the same millisecond, and saw the run open, would remove it otherwise, unseen.
 */
#ifndef STET__ENGINE_SCHEDULE_H
#define STET__ENGINE_SCHEDULE_H

#include "core/schedule.h"
#include "engine/engine.h"

typedef struct stet__sched {
    const char *name;
    stet_id     id;      /* this schedule of that name */
    uint64_t    edition; /* 0: it is not there yet */
    stet__fact  f;
} stet__sched;

/* Bytes are in the arena. STET_ENOTFOUND, no text is left; STET_ECORRUPT. */
int stet__sched_read(stet_engine *e, stet__arena *arena, const char *name, stet__sched *s);
int stet__sched_decode(stet__arena *arena, const char *name, const stet_value *value,
                       stet__sched *s);
/* STET_ENOTFOUND with the sentence for it. */
int stet__sched_no_such(stet_engine *e, const char *name);

/* The condition that it is as it was read, the record anew, its place in the index. False: out of
 * memory. */
bool stet__sched_is_as_read(stet__work *w, const stet__sched *s);
bool stet__sched_write(stet__work *w, const stet__sched *was, const stet__fact *now);
/* The entry of the index that a schedule has of its own (NULL: of none). */
const char *stet__sched_index(stet__arena *arena, const stet__sched *s, const stet__fact *f,
                              stet_bytes *key);
/* … and the one a run of it adds when it ends. data NULL: out of memory. */
stet_bytes  stet__sched_asked(stet__arena *arena, const char *name, int64_t at_ms, stet_id run);
bool        stet__sched_place(stet__work *w, const stet__sched *s, const stet__fact *f);
bool        stet__sched_unask(stet__work *w, const char *space, stet_bytes key);
stet_bytes  stet__sched_log_key(stet__arena *arena, const char *name, int64_t planned_ms);
/* An entry of the ledger, and the end of the oldest if there are too many; f->logged follows. */
int stet__sched_log(stet_engine *e, stet__work *w, const stet__sched *s, stet__fact *f,
                    const stet__sched_act *act, const stet_id *run, int64_t now_ms);

/* How its next times are found: by cron, by a function, not at all. */
typedef struct stet__sched_clock {
    const stet__sched          *s;
    stet_cron                  *cron;
    const stet__sched_function *function;
} stet__sched_clock;
/* Fills `next` and `arg` of `now`. A function that is not here is no error. */
int  stet__sched_clock_open(stet_engine *e, stet__sched_clock *clock, const stet__sched *s,
                            stet__sched_now *now);
void stet__sched_clock_close(stet__sched_clock *clock);
const stet__sched_function *stet__sched_function_find(const stet_engine *e, const char *name);

#endif
