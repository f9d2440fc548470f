/* Switches: who got which CPU, and the stretches of a call during which its thread had none. */
#include "calls/off_cpu.h"
#include "rings/rings.h"
#include "tables/tasks.h"

/* Why a thread left its CPU. For a runnable thread, the kernel gives 0 or a bit that is not one of those for waiting. */
static uint8_t state_of(const engine *e, const task *t, uint32_t state)
{
    if (!(state & e->config.sched_waiting))
        return LO2_OFF_PREEMPTED;
    if (t && t->nr_requests)
        return LO2_OFF_DEVICE;
    return state & e->config.sched_blocked ? LO2_OFF_BLOCKED : LO2_OFF_SLEEPING;
}

void off_cpu_end(engine *e, task *t, int64_t end_time)
{
    pending_call *p = &t->pending;
    if (is_recorded(e, t)) {
        lo2_off_cpu_columns *c = &e->batch->off_cpu;
        uint32_t row = e->batch->nr_off_cpu++;
        c->before[row] = e->nr_operations;
        c->task[row] = t->number;
        c->begin_time_ns[row] = p->off_begin;
        c->end_time_ns[row] = end_time;
        c->state[row] = p->off_state;
    }
    p->off_begin = UNKNOWN;
}

static uint32_t number_of(const engine *e, const task *t) { return t && is_recorded(e, t) ? t->number : NONE; }

void on_switch(engine *e, const lo2_event *event, const uint8_t *raw, uint32_t cpu, int64_t time)
{
    const lo2_field *f = event->fields;
    uint32_t prev = (uint32_t)load_unsigned(raw, f[LO2_FIELD_PREV_TID]);
    uint32_t next = (uint32_t)load_unsigned(raw, f[LO2_FIELD_NEXT_TID]);
    task *leaves = prev ? task_of(e, prev) : NULL, *comes = next ? task_of(e, next) : NULL; /* 0: the idle thread */
    uint8_t state = state_of(e, leaves, (uint32_t)load_unsigned(raw, f[LO2_FIELD_PREV_STATE]));
    lo2_switch_columns *c = &e->batch->switches;
    uint32_t row = e->batch->nr_switches++;
    c->time_ns[row] = time;
    c->cpu[row] = cpu;
    c->prev_task[row] = number_of(e, leaves);
    c->prev_tid[row] = prev;
    c->next_task[row] = number_of(e, comes);
    c->next_tid[row] = next;
    c->state[row] = state;
    if (leaves && leaves->ring_worker)
        ring_worker_switched(e, leaves, true, time);
    if (comes && comes->ring_worker)
        ring_worker_switched(e, comes, false, time);
    if (leaves && leaves->pending.active) {
        if (leaves->pending.off_begin != UNKNOWN)
            off_cpu_end(e, leaves, UNKNOWN); /* the switch back was lost */
        leaves->pending.off_begin = time;
        leaves->pending.off_state = state;
    }
    if (comes && comes->pending.active && comes->pending.off_begin != UNKNOWN)
        off_cpu_end(e, comes, time);
}
