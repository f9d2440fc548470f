/* Shared by the files that follow system calls. */
#ifndef LO2IO_CALLS_H
#define LO2IO_CALLS_H

#include "rings/rings.h"

enum { OFFSET_UNKNOWN = 0, OFFSET_EXPLICIT = 1, OFFSET_FOLLOWED = 2, OFFSET_KERNEL = 3 };

/* The thread that a call's entry or exit is of; NULL: it is not followed. */
static inline task *caller_of(engine *e, uint32_t tid, bool enters, int64_t time)
{
    task *t = task_for_sample(e, tid);
    if (!t)
        return NULL;
    task_lives(t);
    const process *p = &e->processes.at[t->process];
    e->totals.nr_selected += p->recorded;
    if (!p->recorded && !p->from_exec) {
        e->totals.nr_own_calls += e->config.all_tasks && enters;
        return NULL;
    }
    if (e->rings)
        ring_thread_moved_on(e, t, time);
    return t;
}

/* tables/positions.c */
void position_entered(engine *e, task *t);
void position_left(engine *e, task *t, int64_t result, bool known, int64_t time);
/* Its call may have moved, or made append, what is in the slot now, and what was thought to be: `bit` says which of both slots. */
void position_doubtful(engine *e, task *t, uint32_t handle_index, uint8_t bit, int64_t time);
int64_t offset_of(engine *e, const pending_call *p, uint8_t *source);
/* What the kernel told of the position settles the row's offset, or refutes it; true: `after` is the position behind the call. */
bool position_told(engine *e, const pending_call *p, int64_t result, uint32_t row, int64_t *after);
void position_set(engine *e, const pending_call *p, int64_t position);

#endif
