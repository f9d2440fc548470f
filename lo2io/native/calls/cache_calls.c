/* Hands what threads did in the page cache to the call, or the request of a ring, in which they did it. */
#include "cache/cache.h"
#include "calls/cache_calls.h"
#include "calls/outside.h"
#include "rings/rings.h"
#include "tables/tasks.h"

static const cache_file NO_FILE = {.file = NONE};

static cache_cause cause_of(const engine *e, const task *t, uint32_t tid)
{
    bool recorded = t && is_recorded(e, t);
    return (cache_cause){.task = recorded ? t->number : NONE, .tid = tid, .offset = UNKNOWN, .bytes = UNKNOWN};
}

/* ---- records ---- */

void on_kernel_pages(engine *e, const uint8_t *record, uint32_t length, int64_t time)
{
    lo2_kernel_pages told;
    if (length < sizeof told) {
        e->totals.nr_undecoded++;
        return;
    }
    memcpy(&told, record, sizeof told);
    if (!are_pages(&told)) {
        e->totals.nr_undecoded++;
        return;
    }
    page_run run = {
        .device = told.device, .inode = told.inode, .first = told.first_page, .time = (int64_t)told.begin_ns, .pages = told.pages,
        .page_bytes = told.page_bytes, .generation = told.generation, .mode = told.mode,
        .evicts = told.head.type == LO2_KERNEL_EVICT,
    };
    e->page_bytes = told.page_bytes;
    task *t = run.evicts ? task_of(e, told.head.tid) : task_for_sample(e, told.head.tid);
    cache_deeds *of_ring = ring_deeds(e, t, &run);
    if (of_ring) {
        cache_hold(e, of_ring, &run);
        return;
    }
    if (t && t->pending.active && run.time >= t->pending.begin) {
        cache_hold(e, &t->pending.deeds, &run);
        return;
    }
    cache_deeds deeds = {0};
    cache_cause cause = cause_of(e, t, told.head.tid);
    if (!run.evicts && cause.task == NONE)
        return;
    if (!run.evicts && e->config.faults) {
        outside_fills(e, t, &run);
        return;
    }
    cache_hold(e, &deeds, &run);
    cache_settle(e, &deeds, &NO_FILE, &cause);
}

static void add_wait(cache_deeds *deeds, const task *t, int64_t begin, int64_t time)
{
    if (!t->io_wait || t->io_wait < begin)
        deeds->unseen = true;
    else
        deeds->wait_ns += time - t->io_wait;
}

void on_kernel_io_wait(engine *e, const uint8_t *record, uint32_t length, int64_t time)
{
    lo2_kernel_iowait told;
    if (length < sizeof told) {
        e->totals.nr_undecoded++;
        return;
    }
    memcpy(&told, record, sizeof told);
    task *t = task_of(e, told.head.tid);
    if (!t)
        return;
    cache_deeds *of_ring = ring_waiting(e, t), *deeds = of_ring ? of_ring : t->pending.active ? &t->pending.deeds : NULL;
    int64_t begin = of_ring ? 0 : t->pending.begin;
    if (deeds) {
        deeds->waited = true;
        if (told.ends)
            add_wait(deeds, t, begin, time);
        else if (t->io_wait && t->io_wait >= begin)
            deeds->unseen = true; /* the end of the wait before was lost */
    }
    t->io_wait = told.ends ? 0 : time;
}

/* ---- the end of a call ---- */

static uint8_t act_of(const lo2_call *call)
{
    switch (call->kind) {
    case LO2_CALL_READ: return ACT_READ;
    case LO2_CALL_WRITE: return ACT_WRITE;
    default: return call->advises ? ACT_ADVICE : ACT_OTHER;
    }
}

void cache_call_left(engine *e, task *t, uint32_t row, bool completed)
{
    pending_call *p = &t->pending;
    lo2_operation_columns *o = &e->batch->operations;
    cache_cause cause = cause_of(e, t, t->tid);
    cause.act = act_of(&e->calls[p->call]);
    if (t->io_wait && t->io_wait >= p->begin)
        p->deeds.unseen = true; /* the end of its last wait was not seen */
    if (!p->deeds.first && cause.act != ACT_READ)
        return;
    cache_file file = p->handle == NONE ? NO_FILE : cache_file_of(description_of(e, p->handle));
    cause.id = is_recorded(e, t) ? o->id[row] : 0;
    cause.certain = e->config.cache == LO2_CACHE_LAYER_ON && e->lost_until <= p->begin;
    cause.followed = true;
    cause.offset = o->offset_bytes[row];
    cause.bytes = completed ? o->bytes_result[row] : UNKNOWN;
    cache_result result = cache_settle(e, &p->deeds, &file, &cause);
    o->cache[row] = result.verdict;
    o->cache_missed_pages[row] = result.missed;
    o->cache_ahead_pages[row] = result.ahead;
    o->cache_wait_ns[row] = result.wait_ns;
}

void cache_call_dropped(engine *e, task *t)
{
    cache_cause cause = cause_of(e, t, t->tid);
    cause.act = ACT_OTHER;
    cache_settle(e, &t->pending.deeds, &NO_FILE, &cause);
}
