/*
 * The pages that requests of rings use in the page cache. A thread works for the request that it executes, or for an earlier request that
 * task work continues. The pages tell which request it is, if some request asks for them. Other pages were read ahead.
 */
#include "cache/cache.h"
#include "rings/requests.h"

enum { MOST_COMPARED = 1024 };

static bool is_read(const engine *e, const ring_request *r) { return opcode_meaning(e, r->opcode)->kind == LO2_CALL_READ; }

static bool asks_for(const engine *e, const ring_request *r, const page_run *run)
{
    return is_read(e, r) && cache_is_within(e, run, &r->cached, r->offset, r->length);
}

static ring_request *request_that_asks(engine *e, const task *t, const page_run *run)
{
    ring_request_set *set = e->ring_requests;
    uint32_t pid = e->processes.at[t->process].pid, compared = 0;
    for (uint32_t at = set->alive.last; at != NONE && compared < MOST_COMPARED; at = set->requests.at[at].older, compared++)
        if (set->requests.at[at].pid == pid && asks_for(e, &set->requests.at[at], run))
            return &set->requests.at[at];
    return NULL;
}

cache_deeds *ring_deeds(engine *e, const task *t, const page_run *run)
{
    ring_thread *th = e->ring_requests && t ? thread_known(e, t) : NULL;
    if (!th)
        return NULL;
    ring_request *r = request_of(e, th->worker ? th->work : th->running);
    if (r && asks_for(e, r, run))
        return &r->deeds;
    ring_request *other = run->evicts ? NULL : request_that_asks(e, t, run);
    if (other)
        return &other->deeds;
    return r && (th->worker || is_read(e, r)) ? &r->deeds : NULL;
}

cache_deeds *ring_waiting(engine *e, const task *t)
{
    ring_thread *th = e->ring_requests ? thread_known(e, t) : NULL;
    ring_request *r = th && th->worker ? request_of(e, th->work) : NULL;
    return r ? &r->deeds : NULL;
}

/*
 * True if a wait would have been seen. A worker waits as calls do. A request that was executed once, by its submitter, did not
 * wait, for the kernel does not let it wait there. If the start of a worker's execution is inferred, the worker may have waited
 * for another request.
 */
static bool shows_waits(const ring_request *r)
{
    if (r->aio || (r->inferred & (LO2_INFERRED_PATH | LO2_INFERRED_IDENTITY | LO2_INFERRED_WORKER | LO2_INFERRED_WORK_BEGIN)))
        return false;
    return r->path == LO2_PATH_INLINE || (r->path == LO2_PATH_WORKER && r->work_begin != UNKNOWN && r->nr_punts == 1);
}

void request_judged(engine *e, ring_request *r)
{
    if (r->judged)
        return;
    r->judged = true;
    r->found = (cache_result){LO2_CACHE_NO_READ, NONE, NONE, UNKNOWN};
    bool reads = is_read(e, r);
    if (!e->config.cache || (!r->deeds.first && !reads))
        return;
    cache_cause cause = {
        .id = r->written ? r->id : 0, .task = r->task, .tid = r->tid, .offset = r->offset,
        .bytes = r->complete == UNKNOWN ? UNKNOWN : r->bytes,
        .act = reads ? ACT_READ : opcode_meaning(e, r->opcode)->kind == LO2_CALL_WRITE ? ACT_WRITE : ACT_OTHER,
        .certain = e->config.cache == LO2_CACHE_LAYER_ON && r->submit != UNKNOWN && e->lost_until <= r->submit,
        .followed = shows_waits(r),
    };
    r->found = cache_settle(e, &r->deeds, &r->cached, &cause);
}
