/* Switches: who got which CPU, and the stretches of a call during which its thread had none. */
#include "calls/off_cpu.h"
#include "calls/outside.h"
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

static uint32_t number_of(const engine *e, const task *t) { return t && is_recorded(e, t) ? t->number : NONE; }

static uint32_t emit_off_cpu(engine *e, const task *t, int64_t begin, int64_t end, uint8_t state)
{
    lo2_off_cpu_columns *c = &e->batch->off_cpu;
    uint32_t row = e->batch->nr_off_cpu++;
    c->before[row] = e->nr_operations;
    c->task[row] = t->number;
    c->begin_time_ns[row] = begin;
    c->end_time_ns[row] = end;
    c->state[row] = state;
    c->wake_time_ns[row] = UNKNOWN;
    c->reason[row] = state == LO2_OFF_PREEMPTED ? LO2_WAIT_NOTHING : LO2_WAIT_UNKNOWN;
    c->waker[row] = c->waker_tid[row] = c->stack[row] = c->holder[row] = c->holder_tid[row] = NONE;
    c->lock_inode[row] = c->lock_device[row] = c->request[row] = 0;
    return row;
}

void off_cpu_end(engine *e, task *t, int64_t end_time)
{
    pending_call *p = &t->pending;
    if (is_recorded(e, t))
        emit_off_cpu(e, t, p->off_begin, end_time, p->off_state);
    p->off_begin = UNKNOWN;
}

/* ---- the layer `waits`: a program has put the stretch together ---- */

/*
 * A sleeping thread sends no requests. So its requests that live now, or that have ended since `out_ns`, were under way
 * when the sleep began.
 */
static uint8_t state_of_sleep(const task *t, const lo2_kernel_sleep *sleep)
{
    if (sleep->state == LO2_SLEEP_PREEMPTED)
        return LO2_OFF_PREEMPTED;
    if (t->nr_requests || t->request_gone >= (int64_t)sleep->out_ns)
        return LO2_OFF_DEVICE;
    return sleep->state == LO2_SLEEP_BLOCKED ? LO2_OFF_BLOCKED : LO2_OFF_SLEEPING;
}

/*
 * A reason that stands before "lock" in tracepoints/waits.toml includes waits for locks: a wait for a lock amid a
 * commit counts as a wait for the journal.
 */
static uint8_t reason_of(const engine *e, const lo2_kernel_sleep *sleep)
{
    int64_t woken = (int64_t)(sleep->wake_ns ? sleep->wake_ns : sleep->head.time_ns);
    if (sleep->state == LO2_SLEEP_PREEMPTED)
        return LO2_WAIT_NOTHING;
    if (sleep->flags & LO2_SLEEP_LOCK) {
        uint8_t found = sleep->stack && sleep->stack <= e->config.nr_stacks ? e->config.stack_reasons[sleep->stack - 1] : 0;
        return found >= LO2_WAIT_FIRST_KNOWN && found < e->config.lock_reason ? found : e->config.lock_reason;
    }
    if (sleep->stack)
        return sleep->stack <= e->config.nr_stacks ? e->config.stack_reasons[sleep->stack - 1] : LO2_WAIT_UNKNOWN;
    if (sleep->flags & LO2_SLEEP_ENDLESS || woken - (int64_t)sleep->out_ns >= e->config.stack_from_ns)
        return LO2_WAIT_UNKNOWN;
    return sleep->flags & LO2_SLEEP_IOWAIT ? LO2_WAIT_SHORT_IO : LO2_WAIT_SHORT;
}

/* False for a record whose times contradict each other or the stretch before, as damaged ones do. */
static bool is_stretch(const pending_call *p, int64_t out, int64_t wake, int64_t in)
{
    return out >= p->off_end && out <= in && (!wake || (out <= wake && wake <= in));
}

uint32_t emit_sleep(engine *e, const task *t, const lo2_kernel_sleep *sleep)
{
    int64_t end = sleep->flags & LO2_SLEEP_ENDLESS ? UNKNOWN : (int64_t)sleep->head.time_ns;
    uint32_t row = emit_off_cpu(e, t, (int64_t)sleep->out_ns, end, state_of_sleep(t, sleep));
    lo2_off_cpu_columns *c = &e->batch->off_cpu;
    c->reason[row] = reason_of(e, sleep);
    c->stack[row] = sleep->stack && sleep->stack <= e->config.nr_stacks ? sleep->stack - 1 : NONE;
    if (sleep->flags & LO2_SLEEP_LOCK && sleep->holder) {
        c->holder_tid[row] = sleep->holder;
        c->holder[row] = number_of(e, task_of(e, sleep->holder));
    }
    if (sleep->flags & LO2_SLEEP_LOCK) {
        c->lock_inode[row] = sleep->lock_inode;
        c->lock_device[row] = sleep->lock_device;
    }
    if (sleep->wake_ns)
        c->wake_time_ns[row] = (int64_t)sleep->wake_ns;
    if (sleep->wake_ns && sleep->state != LO2_SLEEP_PREEMPTED) {
        c->waker_tid[row] = sleep->waker;
        c->waker[row] = number_of(e, sleep->waker ? task_of(e, sleep->waker) : NULL);
    }
    return row;
}

/* A worker makes no calls: its pending call keeps only the end of its last stretch. A stretch in a page fault is the fault's. */
static void worker_slept(engine *e, task *t, const lo2_kernel_sleep *sleep)
{
    int64_t out = (int64_t)sleep->out_ns, wake = (int64_t)sleep->wake_ns, in = (int64_t)sleep->head.time_ns;
    if (!is_stretch(&t->pending, out, wake, in)) {
        e->totals.nr_undecoded++;
        return;
    }
    t->pending.off_end = sleep->flags & LO2_SLEEP_ENDLESS ? out : in;
    uint64_t request = ring_worker_slept(e, sleep);
    if (!is_recorded(e, t))
        return;
    if (sleep->flags & LO2_SLEEP_FAULT && e->config.faults)
        outside_slept(e, t, sleep);
    else if (request)
        e->batch->off_cpu.request[emit_sleep(e, t, sleep)] = request;
}

/* Threads that are inside no recorded call may sleep, too: amid a page fault, or after a call whose exit was lost. */
void on_kernel_sleep(engine *e, task *t, const uint8_t *record)
{
    pending_call *p = &t->pending;
    lo2_kernel_sleep sleep;
    memcpy(&sleep, record, sizeof sleep);
    int64_t out = (int64_t)sleep.out_ns, wake = (int64_t)sleep.wake_ns, in = (int64_t)sleep.head.time_ns;
    bool endless = sleep.flags & LO2_SLEEP_ENDLESS;
    if (sleep.request && !p->active) {
        worker_slept(e, t, &sleep);
        return;
    }
    if (!p->active && e->config.faults && is_recorded(e, t))
        outside_slept(e, t, &sleep);
    if (!p->active || out < p->begin)
        return;
    if (!is_stretch(p, out, wake, in)) {
        p->unseen = true;
        e->totals.nr_undecoded++;
        return;
    }
    p->off_end = endless ? out : in;
    if (endless || sleep.flags & LO2_SLEEP_LOST || !wake) {
        p->unseen = true;
    } else {
        p->run_queue += in - wake;
        p->blocked += wake - out;
    }
    if (is_recorded(e, t))
        emit_sleep(e, t, &sleep);
}

/* ---- the events of the scheduler ---- */

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
    if (e->config.waits) /* SLEEP tells of the stretches */
        return;
    if (leaves && leaves->pending.active) {
        if (leaves->pending.off_begin != UNKNOWN)
            off_cpu_end(e, leaves, UNKNOWN); /* the switch back was lost */
        leaves->pending.off_begin = time;
        leaves->pending.off_state = state;
    }
    if (comes && comes->pending.active && comes->pending.off_begin != UNKNOWN)
        off_cpu_end(e, comes, time);
}
