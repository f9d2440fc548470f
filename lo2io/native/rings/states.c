/*
 * What a ring looks like: requests in flight, workers, and how many CQEs may lie in its completion queue. A row of
 * changes in one direction (submissions, completions) gets one row, at its last. The rules stand in
 * docs/explanation/rules/rings.md.
 */
#include "rings/rings.h"
#include "tables/tasks.h"

enum { UP = 1, DOWN = 2 }; /* 0: a state that has its row */
enum { SETUP_CQE_MIXED = 1 << 18 }; /* include/uapi/linux/io_uring.h: a CQE takes one entry or two */

void ring_state_settle(engine *e, ring *r)
{
    if (r->state_time != UNKNOWN)
        ring_state_queue(e, r, r->state_time);
    r->state_time = UNKNOWN;
    r->state_direction = 0;
}

/* To be called before the change. */
static void turn(engine *e, ring *r, int64_t time, uint8_t direction)
{
    if (r->state_time != UNKNOWN && r->state_direction != direction)
        ring_state_queue(e, r, r->state_time);
    r->state_time = time;
    r->state_direction = direction;
}

/* ---- requests ---- */

void ring_state_began(engine *e, ring *r, int64_t time, bool skips)
{
    turn(e, r, time, UP);
    r->nr_skipping += skips;
    if (++r->in_flight > r->most_in_flight)
        r->most_in_flight = r->in_flight;
}

void ring_request_ended(engine *e, uint32_t index, int64_t time, bool was_punted, bool skips)
{
    ring *r = ring_at(e, index);
    r->nr_skipping -= skips && r->nr_skipping > 0;
    if (skips && r->end_time != UNKNOWN)
        return; /* it has left already */
    turn(e, r, time, DOWN);
    r->in_flight -= r->in_flight > 0;
    r->punted -= was_punted && r->punted > 0;
}

void ring_state_ended(engine *e, ring *r)
{
    ring_state_settle(e, r);
    bool changes = r->workers || r->nr_skipping || r->cq_least;
    r->workers = 0;
    r->in_flight -= r->nr_skipping < r->in_flight ? r->nr_skipping : r->in_flight;
    r->punted = r->punted < r->in_flight ? r->punted : r->in_flight;
    r->cq_least = 0;
    r->watcher = NONE;
    if (changes)
        ring_state_queue(e, r, r->end_time);
}

void ring_request_punted(engine *e, uint32_t index, int64_t time, bool again)
{
    ring *r = ring_at(e, index);
    r->nr_punts++;
    if (again)
        return;
    turn(e, r, time, UP);
    r->punted++;
}

void ring_collected(engine *e, ring *r, uint64_t submitted, uint64_t collected, int64_t time)
{
    if (submitted) {
        turn(e, r, time, UP);
        uint64_t sum = r->in_flight + submitted;
        r->in_flight = sum < NONE ? (uint32_t)sum : NONE - 1;
        r->most_in_flight = r->in_flight > r->most_in_flight ? r->in_flight : r->most_in_flight;
    }
    if (collected) {
        turn(e, r, time, DOWN);
        r->in_flight -= collected < r->in_flight ? (uint32_t)collected : r->in_flight;
    }
    r->cq_most = r->in_flight;
}

/* ---- workers ---- */

void ring_workers_changed(engine *e, ring *r, int change, int64_t time)
{
    ring_state_settle(e, r);
    if (change > 0)
        r->workers += (uint32_t)change;
    else
        r->workers -= (uint32_t)-change < r->workers ? (uint32_t)-change : r->workers;
    ring_state_queue(e, r, time);
}

/* ---- the completion queue ---- */

/* The process' only thread that runs in user mode is known to be in the kernel: nobody can collect. */
static bool is_alone(const engine *e, const ring *r)
{
    if (r->process == NONE || r->create_time == UNKNOWN)
        return false;
    const process *p = &e->processes.at[r->process];
    return p->nr_tasks - p->nr_serving == 1 && p->nr_forks == r->nr_forks;
}

void ring_watch(engine *e, ring *r, const task *t)
{
    if (t->process == r->process && !t->serves && is_alone(e, r))
        r->watcher = t->number;
}

void ring_unwatch(engine *e, ring *r, const task *t, int64_t time)
{
    if (r->watcher != t->number)
        return;
    r->watcher = NONE;
    if (!r->cq_least)
        return;
    ring_state_settle(e, r);
    r->cq_least = 0;
    ring_state_queue(e, r, time);
}

static bool is_watched(engine *e, ring *r)
{
    if (r->watcher != NONE && !is_alone(e, r)) { /* a thread turned up of which nobody knew */
        r->watcher = NONE;
        r->cq_least = 0;
    }
    return r->watcher != NONE;
}

/* The call of a ring that this thread is inside of, if it is about this ring. */
static ring_call *call_on(engine *e, const ring *r, uint32_t index, task *t)
{
    bool inside = t && t->pending.active && e->calls[t->pending.call].kind == LO2_CALL_RING_ENTER &&
                  t->ring_call.ring == index + 1 && t->ring_call.ring_number == r->number;
    return inside ? &t->ring_call : NULL;
}

void ring_cqe_posted(engine *e, uint32_t index, int64_t time, uint32_t tid)
{
    ring *r = ring_at(e, index);
    turn(e, r, time, DOWN);
    r->nr_completions++;
    r->overflowing = false; /* the kernel fills none while others wait for room */
    if (r->cq_most != UINT64_MAX && (!r->cq_limit || r->cq_most < r->cq_limit))
        r->cq_most++;
    if (is_watched(e, r) && r->cq_least < r->cq_most)
        r->cq_least++;
    ring_call *c = call_on(e, r, index, task_of(e, tid));
    if (c) {
        c->own++;
        c->others = r->nr_completions - r->nr_overflows - c->own;
    }
}

/* Whether there was no room for it; else it may wait behind others although there is room again. */
static bool proves_full(const ring *r)
{
    return !r->overflowing && r->cq_limit && !(r->flags != NONE && (r->flags & SETUP_CQE_MIXED));
}

void ring_cqe_overflowed(engine *e, uint32_t index, int64_t time)
{
    ring *r = ring_at(e, index);
    bool full = proves_full(r);
    r->nr_completions++;
    r->nr_overflows++;
    r->overflowing = true;
    if (full)
        ring_state_settle(e, r);
    else
        turn(e, r, time, DOWN);
    if (r->cq_limit)
        r->cq_most = r->cq_limit;
    else if (r->cq_most != UINT64_MAX)
        r->cq_most++; /* it will be moved in without a word */
    if (!full)
        return;
    r->cq_least = r->cq_limit;
    ring_state_queue(e, r, time);
    if (is_watched(e, r))
        return;
    r->cq_least = 0; /* true at that moment only */
    ring_state_queue(e, r, time);
}

void ring_waited(engine *e, uint32_t index, task *t, int64_t time, uint32_t wanted)
{
    ring *r = ring_at(e, index);
    ring_call *c = call_on(e, r, index, t);
    if (!c && t->pending.active && e->calls[t->pending.call].kind == LO2_CALL_RING_ENTER) {
        ring_call_named(e, index, t);
        c = call_on(e, r, index, t);
    }
    ring_state_settle(e, r);
    if (c) {
        if (c->sleep_time == UNKNOWN)
            c->sleep_time = time;
        /* It has looked since it last did anything itself; what others have posted since may have come behind that look. */
        uint64_t posted = r->nr_completions - r->nr_overflows, later = posted - c->own - c->others;
        if (wanted && (r->cq_most == UINT64_MAX || wanted - 1 + later < r->cq_most)) {
            r->cq_most = wanted - 1 + later;
            r->overflowing &= later != 0; /* before it looks, the kernel moves in what waits for room */
        }
        r->cq_least = r->cq_least < r->cq_most ? r->cq_least : r->cq_most;
    }
    ring_state_queue(e, r, time);
}
