/*
 * Threads that the kernel makes for rings: workers, and those that poll submission queues; and whom they serve.
 *
 * A thread named `iou-wrk-N` is a worker, and a thread named `iou-sqp-N` is a poller, unless the thread has entered a
 * recorded call. Workers and pollers never run in user mode. The same holds for a thread of their process that one of
 * them creates, or that a thread creates inside another call than clone. A worker's owner is the thread N of its
 * process that lives when the worker gets the name. The worker
 * serves the rings that thread N submits to. nr_workers of a ring counts births that were seen: the COMM with the name,
 * or a worker's FORK. `workers` of a state counts the living workers of the ring's living submitters, also those that
 * facts tell of.
 */
#include "rings/rings.h"
#include "tables/tasks.h"

/* Bounds the rings that a worker's birth is counted for. */
enum { MOST_USES = 64 };

static const char WORKER[] = "iou-wrk-", POLLER[] = "iou-sqp-"; /* io_uring/io-wq.c, sqpoll.c */

static bool is_named(const task *t, const char *prefix) { return !memcmp(t->comm, prefix, sizeof WORKER - 1); }

/* A thread that has entered a call is a program's, whatever its name is. */
uint8_t task_kind(const task *t)
{
    bool calls = t->pending.begin != 0;
    return calls ? LO2_TASK_THREAD : is_named(t, WORKER) ? LO2_TASK_RING_WORKER
                                   : is_named(t, POLLER) ? LO2_TASK_RING_POLLER : LO2_TASK_THREAD;
}

static uint32_t owner_in_name(const task *t)
{
    uint32_t tid = 0;
    for (size_t i = sizeof WORKER - 1; i < sizeof t->comm && t->comm[i]; i++) {
        if (t->comm[i] < '0' || t->comm[i] > '9' || tid >= TID_LIMIT)
            return 0;
        tid = tid * 10 + (uint32_t)(t->comm[i] - '0');
    }
    return tid;
}

/* ---- which threads submit to which rings ---- */

static bool is_current(engine *e, const ring_use *u) { return ring_at(e, u->ring)->number == u->ring_number; }

/* The link in the thread's list that points to the ring, or the list's end. Removes uses of rings that are gone. */
static uint32_t *find_use(engine *e, task *t, uint32_t index, uint32_t *nr)
{
    ring_set *set = e->rings;
    uint32_t *at = &t->ring_uses;
    *nr = 0;
    while (*at) {
        ring_use *u = &set->uses.at[*at - 1];
        if (!is_current(e, u)) {
            set->free_uses.at[set->free_uses.count++] = *at - 1;
            *at = u->next;
            continue;
        }
        if (u->ring == index)
            break;
        ++*nr;
        at = &u->next;
    }
    return at;
}

void ring_used_by(engine *e, uint32_t index, task *t, int64_t time)
{
    ring_set *set = e->rings;
    ring *r = ring_at(e, index);
    if (r->last_user == t->number)
        return;
    r->last_user = t->number;
    if (is_named(t, POLLER)) {
        r->poller = r->poller == NONE ? t->number : r->poller;
        ring_polled(e, index, t);
    }
    uint32_t nr, place;
    if (*find_use(e, t, index, &nr) || nr >= MOST_USES)
        return;
    if (set->free_uses.count) {
        place = set->free_uses.at[--set->free_uses.count];
    } else if (VEC_ROOM(&set->uses, set->uses.count + 1) && VEC_ROOM(&set->free_uses, set->uses.count + 1)) {
        place = set->uses.count++;
    } else {
        e->out_of_memory = true;
        return;
    }
    set->uses.at[place] = (ring_use){index, r->number, t->ring_uses};
    t->ring_uses = place + 1;
    if (t->nr_workers)
        ring_workers_changed(e, r, (int)t->nr_workers, time);
}

/* The thread's next submission to any ring counts as its first. */
void ring_uses_forget(engine *e, task *t)
{
    uint32_t nr;
    find_use(e, t, NONE, &nr);
    for (uint32_t at = t->ring_uses; at; at = e->rings->uses.at[at - 1].next)
        ring_at(e, e->rings->uses.at[at - 1].ring)->last_user = NONE;
}

/* ---- workers ---- */

static task *owner_of(engine *e, const task *worker)
{
    task *owner = worker->owner ? task_of(e, worker->owner) : NULL;
    return owner && owner->number == worker->owner_number ? owner : NULL;
}

static void tell_rings(engine *e, task *owner, int change, bool born, int64_t time)
{
    uint32_t nr;
    if (!e->rings || e->finishing)
        return;
    find_use(e, owner, NONE, &nr);
    for (uint32_t at = owner->ring_uses; at; at = e->rings->uses.at[at - 1].next) {
        ring *r = ring_at(e, e->rings->uses.at[at - 1].ring);
        if (!r->alive)
            continue;
        r->nr_workers += born;
        ring_workers_changed(e, r, change, time);
    }
}

static void serve(engine *e, task *t)
{
    if (!t->serves)
        e->processes.at[t->process].nr_serving++;
    t->serves = true;
}

void ring_thread_named(engine *e, task *t, int64_t time, bool born)
{
    if (t->comm[0] != 'i' || t->pending.begin || (!is_named(t, WORKER) && !is_named(t, POLLER)))
        return;
    serve(e, t);
    if (t->ring_worker || !is_named(t, WORKER))
        return;
    t->ring_worker = true;
    task *owner = task_of(e, owner_in_name(t));
    if (!owner || owner == t || owner->process != t->process)
        return;
    t->owner = owner->tid;
    t->owner_number = owner->number;
    owner->nr_workers++;
    tell_rings(e, owner, 1, born, time);
}

/* A thread was born in its parent's process. If the parent is in another call than clone, the kernel made it. */
void ring_thread_born(engine *e, task *t, task *parent, int64_t time)
{
    const pending_call *call = &parent->pending;
    if (parent->serves || (call->active && e->calls[call->call].kind != LO2_CALL_CLONE))
        serve(e, t);
    if (call->active && e->calls[call->call].kind == LO2_CALL_RING_SETUP)
        parent->ring_call.poller = t->number;
    if (parent->ring_worker) /* it has its name from its parent, so no COMM will come */
        ring_thread_named(e, t, time, true);
}

void ring_thread_ended(engine *e, task *t, int64_t time)
{
    task *owner = t->ring_worker ? owner_of(e, t) : NULL;
    if (owner && owner->nr_workers) {
        owner->nr_workers--;
        tell_rings(e, owner, -1, false, time);
    }
    if (t->nr_workers)
        tell_rings(e, t, -(int)t->nr_workers, false, time);
    e->processes.at[t->process].nr_serving -= t->serves;
    for (uint32_t at = t->ring_uses, next; at; at = next) {
        next = e->rings->uses.at[at - 1].next;
        e->rings->free_uses.at[e->rings->free_uses.count++] = at - 1;
    }
    t->ring_uses = 0;
}
