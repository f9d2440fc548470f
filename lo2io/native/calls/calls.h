/* System calls: an entry waits for its exit; together they are one operation. */
#ifndef LO2IO_CALLS_H
#define LO2IO_CALLS_H

#include "rings/rings.h"
#include "tables/tasks.h"

/* The thread of a call's entry or exit; NULL if it is not followed. */
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

void on_enter(engine *e, task *t, const lo2_event *event, const uint8_t *raw, uint32_t raw_size,
              uint16_t cpu, int64_t time);
void on_exit_call(engine *e, task *t, const lo2_event *event, const uint8_t *raw, int64_t time);
void call_abandon(engine *e, task *t, int64_t end_time);

/* Something that a thread has just done outside of calls, and that gets a row as a call does: a read at an offset. */
typedef struct { uint16_t call, cpu; uint32_t handle; int64_t begin, end, offset, bytes, run_queue, blocked; } beside;
uint32_t call_beside(engine *e, task *t, const beside *read); /* the thread is in no call. Returns the row */

#endif
