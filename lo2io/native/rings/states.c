/*
 * What a ring looks like: requests in flight, workers, and how many CQEs may lie in its completion queue
 * (docs/explanation/rules/rings.md). A row of ring_states is written
 * - for the last of several changes up (a request begins or is first punted) or down (a CQE or overflow, and the end
 *   after it), when the direction turns or another row comes;
 * - at overflows that prove a full queue, waits, births and deaths of workers, a submitter's exit, the first submission
 *   of a thread with workers, and exits of an io_uring_enter that had proven cq_least > 0;
 * - at the ring's known end, if that changes anything: cq_least 0, no workers, no requests that may end without a CQE.
 * `punted` counts a request until it ends, even after its worker is done.
 *
 * cq_most is 0 for a new ring, and grows by each CQE up to the queue's size. An overflow sets it to the size, or adds 1
 * if the size is unknown. UINT32_MAX is unknown: of a ring older than the trace, or resized, until a wait or a
 * RING fact bounds it.
 *
 * cq_least counts CQEs posted while the only user is inside an io_uring_enter on the ring, until its exit (a lost
 * exit: until that is noticed; in flight: never ends). It is never above cq_most. The only user is inferred: the ring
 * was created in the trace; its process has one thread in user mode, which is in the call; and the process has not
 * forked since. This is checked at the entry (or when the call's ring becomes known) and at each CQE. Not seen are a
 * process that got the descriptor over a socket, and CQEs that were announced and are not visible yet.
 *
 * An overflow proves a full queue if no earlier CQE waits for room. That is so before the first overflow of the ring, and
 * again when a CQE has been posted, or a wait has shown room, since the last overflow. With CQE_MIXED, an overflow proves
 * nothing. A full queue sets cq_least to the queue's size until the only user's exit. Without an only user, cq_least has
 * that value at that moment only: a second row resets it.
 */
#include "rings/rings.h"
#include "tables/tasks.h"

enum { UP = 1, DOWN = 2 }; /* 0: the state has its row */

void ring_state_settle(engine *e, ring *r)
{
    if (r->state_time != UNKNOWN)
        ring_state_queue(e, r, r->state_time);
    r->state_time = UNKNOWN;
    r->state_direction = 0;
}

/* Call before the change. */
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
        return; /* the ring's end has counted it already */
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

/* True if the process has one thread in user mode only. If that thread is in the kernel, nobody can collect CQEs. */
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
    if (r->watcher != NONE && !is_alone(e, r)) { /* an unknown thread turned up */
        r->watcher = NONE;
        r->cq_least = 0;
    }
    return r->watcher != NONE;
}

/* The thread's pending io_uring_enter, if it is about this ring. */
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
    r->overflowing = false; /* the kernel posts no CQE while others wait for room */
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

/* True if the queue has no room. Otherwise the CQE may only wait after others, although there is room again. */
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
        r->cq_most++; /* the kernel will move it into the queue without an event */
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
        /* The waiter has looked since its own last act. Others' CQEs since then may have come after that look. */
        uint64_t posted = r->nr_completions - r->nr_overflows, later = posted - c->own - c->others;
        if (wanted && (r->cq_most == UINT64_MAX || wanted - 1 + later < r->cq_most)) {
            r->cq_most = wanted - 1 + later;
            r->overflowing &= later != 0; /* the kernel moves in what waits for room before it looks */
        }
        r->cq_least = r->cq_least < r->cq_most ? r->cq_least : r->cq_most;
    }
    ring_state_queue(e, r, time);
}
