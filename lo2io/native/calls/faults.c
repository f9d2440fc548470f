/*
 * Page faults of mapped files that needed I/O. A fault outside of calls also gives a row of operations: a read of its
 * page. A fault inside a recorded call gives no such row, for its time is part of the call's time.
 */
#include "block/parts.h"
#include "calls/calls.h"
#include "calls/faults.h"
#include "calls/off_cpu.h"
#include "calls/outside.h"
#include "tables/inodes.h"
#include "tables/tasks.h"

enum { MOST_SLOTS = 4096 }; /* descriptors among which the mapping's own is sought */

/* A descriptor of the thread's that is open on the file; NONE: it was closed, as most programs do once the file is mapped. */
static uint32_t handle_on(engine *e, const task *t, const lo2_kernel_fault *fault)
{
    const fd_table *table = &e->tables.at[t->table];
    uint32_t count = table->slots.count < MOST_SLOTS ? table->slots.count : MOST_SLOTS;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t handle = table->slots.at[i].handle;
        const description *d = handle == NONE ? NULL : description_of(e, handle);
        if (d && d->has_identity && d->inode == fault->inode && d->device == fault->device &&
            d->generation == fault->generation)
            return handle;
    }
    return NONE;
}

/* ---- the stretches without a CPU and the runs of pages that belong to a fault ---- */

/* Sums over the thread's stretches without a CPU since the fault began. `known`: no stretch is missing from the sums. */
typedef struct { bool known, waited; int64_t run_queue, blocked, io_wait; } slept;

static slept take_sleeps(engine *e, task *t, const lo2_kernel_fault *fault, bool shown)
{
    slept found = {.known = e->config.waits && !fault->unseen};
    int64_t until = (int64_t)fault->begin_ns, end = (int64_t)fault->head.time_ns;
    uint32_t number = 0;
    for (; t->fault_sleeps; outside_forget_sleep(e, t)) {
        const lo2_kernel_sleep told = e->held_sleeps.at[t->fault_sleeps - 1].told;
        int64_t out = (int64_t)told.out_ns, wake = (int64_t)told.wake_ns, in = (int64_t)told.head.time_ns;
        if (!shown || out < until || in < out || in > end || (wake && (wake < out || wake > in)))
            continue;
        emit_sleep(e, t, &told);
        until = in;
        number++;
        found.run_queue += wake ? in - wake : 0;
        found.blocked += wake ? wake - out : 0;
        found.waited |= told.flags & LO2_SLEEP_IOWAIT;
        found.io_wait += told.flags & LO2_SLEEP_IOWAIT ? in - out : 0;
    }
    found.known &= number == fault->nr_sleeps && found.run_queue == (int64_t)fault->run_queue_ns &&
                   found.blocked == (int64_t)fault->blocked_ns;
    return found;
}

/* Removes the runs of pages from before the fault. They belong to no call and to no fault. */
static void settle_earlier(engine *e, task *t, int64_t begin)
{
    cache_deeds earlier = {0}, later = {0}, *all = &t->fault_deeds;
    for (uint32_t at = all->first, next; at; at = next) {
        page_run *run = &e->page_runs.at[at - 1];
        cache_deeds *to = run->time < begin ? &earlier : &later;
        next = run->next;
        run->next = 0;
        *(to->last ? &e->page_runs.at[to->last - 1].next : &to->first) = at;
        to->last = at;
        to->count++;
    }
    *all = later;
    outside_settle(e, t, &earlier);
}

static uint32_t pages_of_file(const engine *e, const cache_deeds *deeds, const lo2_kernel_fault *fault)
{
    uint32_t pages = 0;
    for (uint32_t at = deeds->first; at; at = e->page_runs.at[at - 1].next) {
        const page_run *run = &e->page_runs.at[at - 1];
        pages += run->device == fault->device && run->inode == fault->inode && run->generation == fault->generation ? run->pages : 0;
    }
    return pages;
}

/* The fault is the read of `row`. Returns how many pages of its file it filled; NONE: not known. */
static uint32_t settle_fills(engine *e, task *t, const lo2_kernel_fault *fault, uint32_t row, uint32_t file, const slept *s)
{
    lo2_operation_columns *o = &e->batch->operations;
    int64_t begin = (int64_t)fault->begin_ns;
    cache_file of = {.device = fault->device, .inode = fault->inode, .generation = fault->generation, .file = file,
                     .cached = CACHED_PAGES, .flags_known = true};
    cache_cause cause = outside_cause(e, t);
    cause.id = o->id[row];
    cause.act = ACT_READ;
    cause.certain = e->config.cache == LO2_CACHE_LAYER_ON && e->lost_until <= begin && t->fault_deeds_from < begin;
    cause.followed = s->known;
    cause.through_mapping = true;
    cause.offset = o->offset_bytes[row];
    cause.bytes = fault->page_bytes;
    settle_earlier(e, t, begin);
    t->fault_deeds.waited = s->waited;
    t->fault_deeds.wait_ns = s->io_wait;
    t->fault_deeds.unseen = !s->known;
    uint32_t filled = cause.certain && !t->fault_deeds.cut ? pages_of_file(e, &t->fault_deeds, fault) : NONE;
    cache_result result = cache_settle(e, &t->fault_deeds, &of, &cause);
    if (e->config.cache == LO2_CACHE_LAYER_ON) {
        o->cache[row] = result.verdict;
        o->cache_missed_pages[row] = result.missed;
        o->cache_ahead_pages[row] = result.ahead;
        o->cache_wait_ns[row] = result.wait_ns;
    }
    return filled;
}

/* ---- records ---- */

static void read_outside(engine *e, task *t, fault_row *row, uint16_t cpu)
{
    const lo2_kernel_fault *fault = &row->record;
    slept s = take_sleeps(e, t, fault, true);
    beside read = {
        .call = e->config.fault_call, .cpu = cpu, .begin = (int64_t)fault->begin_ns, .end = row->end,
        .offset = (int64_t)(fault->page * fault->page_bytes), .bytes = fault->page_bytes, .handle = handle_on(e, t, fault),
        .run_queue = s.known ? s.run_queue : UNKNOWN, .blocked = s.known ? s.blocked : UNKNOWN,
    };
    uint32_t at = call_beside(e, t, &read);
    row->operation = e->batch->operations.id[at];
    row->filled = settle_fills(e, t, fault, at, row->file, &s);
}

/* False: the parts of the fault's time exceed its duration, as in a damaged record. */
static bool is_whole(const lo2_kernel_fault *fault, int64_t time)
{
    uint64_t lasted = (uint64_t)time - fault->begin_ns;
    return !fault->begin_ns || (fault->begin_ns <= (uint64_t)time && fault->run_queue_ns <= lasted &&
                                fault->blocked_ns <= lasted - fault->run_queue_ns);
}

void on_kernel_fault(engine *e, const uint8_t *record, uint32_t length, uint16_t cpu, int64_t time)
{
    lo2_kernel_fault fault;
    if (length >= sizeof fault)
        memcpy(&fault, record, sizeof fault);
    if (length < sizeof fault || !is_whole(&fault, time)) {
        e->totals.nr_undecoded++;
        return;
    }
    task *t = task_for_sample(e, fault.head.tid);
    if (!t || !is_recorded(e, t))
        return;
    task_lives(t);
    if (!ROW_ROOM(e, e->fault_queue)) {
        e->out_of_memory = true;
        return;
    }
    bool known = fault.begin_ns && fault.mode, timed = known && e->config.waits && !fault.unseen;
    carried_part wanted = {.device = fault.device, .inode = fault.inode, .offset = (int64_t)(fault.page * fault.page_bytes),
                           .issue = (int64_t)fault.begin_ns, .generation = fault.generation, .bytes = fault.page_bytes,
                           .tid = fault.head.tid};
    fault_row *row = &e->fault_queue.at[e->fault_queue.count++];
    *row = (fault_row){
        .record = fault, .task = t->number, .end = time, .inside = t->pending.active, .known = known,
        .file = known ? inode_file(e, fault.device, fault.inode, fault.generation) : NONE,
        .request = known ? part_carrying(e, &wanted) : 0, .filled = NONE,
        .run_queue = timed ? (int64_t)fault.run_queue_ns : UNKNOWN, .blocked = timed ? (int64_t)fault.blocked_ns : UNKNOWN,
    };
    if (known && !row->inside)
        read_outside(e, t, row, cpu);
}

bool faults_flush(engine *e)
{
    lo2_fault_columns *c = &e->batch->faults;
    for (; e->faults_out < e->fault_queue.count; e->faults_out++) {
        const fault_row *f = &e->fault_queue.at[e->faults_out];
        uint32_t row = e->batch->nr_faults;
        if (row == e->batch->capacity)
            return false;
        c->operation[row] = f->operation;
        c->inside[row] = f->inside;
        c->task[row] = f->task;
        c->tid[row] = f->record.head.tid;
        c->begin_time_ns[row] = f->known ? (int64_t)f->record.begin_ns : UNKNOWN;
        c->end_time_ns[row] = f->end;
        c->address[row] = f->record.address;
        c->device[row] = f->record.device;
        c->inode[row] = f->record.inode;
        c->generation[row] = f->known ? (int64_t)f->record.generation : UNKNOWN;
        c->file[row] = f->file;
        c->offset_bytes[row] = f->known ? (int64_t)(f->record.page * f->record.page_bytes) : UNKNOWN;
        c->run_queue_ns[row] = f->run_queue;
        c->blocked_ns[row] = f->blocked;
        c->filled_pages[row] = f->filled;
        c->request[row] = f->request;
        e->batch->nr_faults++;
    }
    e->fault_queue.count = e->faults_out = 0;
    return true;
}

void faults_free(engine *e)
{
    free(e->fault_queue.at);
    outside_free(e);
}
