/* CQEs, and how requests end, with one or without. */
#include <errno.h>

#include "rings/requests.h"

/* ---- ends ---- */

/* th: where the CQE came; NULL: there is none, or in a thread that is not followed. */
static void request_ends(engine *e, ring_request *r, uint8_t status, int64_t time, const ring_thread *th, bool by_cqe)
{
    ring_thread *location = location_of(e, r);
    bool open = false;
    r->status = status;
    r->end = time;
    if (r->moving)
        request_moved(e, r, time);
    if (by_cqe)
        open = path_is_open(e, r, th, !th || th != location);
    else
        r->path = path_without_end(e, r);
    if (location && is_ref_to(location->running, r)) { /* it ends elsewhere, or with its ring */
        location_settle(e, location);
        location->running.id = 0;
    }
    ring_request_ended(e, r->ring, time, r->nr_punts > 0, r->sqe_flags & SQE_SKIP);
    chain_member_ended(e, r);
    if (r->task == NONE) {
        if (by_cqe)
            ring_orphan(e, r->ring);
    } else if (r->complete == UNKNOWN || status == LO2_RING_IN_FLIGHT || status == LO2_RING_TORN_DOWN) {
        if (location)
            location_settle(e, location);
        request_phases(r);
        row_of_request(e, r);
    } else {
        event_end(e, r, th ? th->items : 0, open);
    }
    request_retire(e, r);
}

void request_end_unseen(engine *e, ring_request *r, bool torn_down, int64_t time)
{
    if (r->aio) {
        aio_end_unseen(e, r, torn_down);
        return;
    }
    bool waits = r->data_class == DATA_NOTIFIES;
    bool silent = (r->sqe_flags & SQE_SKIP) && !r->nr_completions;
    uint8_t status = r->refused ? LO2_RING_REFUSED : waits ? LO2_RING_COMPLETED : silent ? LO2_RING_SILENT
                     : torn_down ? LO2_RING_TORN_DOWN : LO2_RING_IN_FLIGHT;
    e->totals.nr_in_flight_ring_requests += status == LO2_RING_IN_FLIGHT;
    if (r->worker_index != NONE)
        work_ends(e, r->worker_index, UNKNOWN, true);
    request_ends(e, r, status, time, NULL, waits);
}

/* The request before it broke their chain, and had CQE_SKIP set: then the kernel cancels the rest without a CQE
 * (req_set_fail, io_uring/io_uring.h, and io_fail_links, io_uring/io_uring.c). */
void request_passed_over(engine *e, ring_request *r, int64_t time)
{
    ring_thread *location = location_of(e, r);
    if (!r->refused) {
        r->result = -ECANCELED;
        r->complete = time;
    }
    if (location) /* task work frees it */
        thread_has_item(location, NULL);
    if (r->worker_index != NONE)
        work_ends(e, r->worker_index, UNKNOWN, true);
    request_ends(e, r, r->refused ? LO2_RING_REFUSED : LO2_RING_CANCELLED, time, NULL, false);
}

void ring_requests_abandon(engine *e, uint32_t ring_index, bool torn_down)
{
    ring_request_set *set = e->ring_requests;
    while (set && ring_index < set->of_ring.count && set->of_ring.at[ring_index] != NONE)
        request_end_unseen(e, &set->requests.at[set->of_ring.at[ring_index]], torn_down, e->totals.last_time_ns);
}

/* ---- CQEs ---- */

const lo2_opcode *request_meaning(const engine *e, const ring_request *r)
{
    static const lo2_opcode nothing = {LO2_CALL_META, LO2_RETURNS_VALUE};
    return r->opcode < e->config.nr_opcodes ? &e->config.opcodes[r->opcode] : &nothing;
}

static void take_result(engine *e, ring_request *r, const ring_sample *s)
{
    const lo2_opcode *meaning = request_meaning(e, r);
    task *submitter = request_task(e, r);
    r->result = (int32_t)s->result;
    r->cqe_flags = (uint32_t)s->flags;
    r->complete = s->time;
    if (submitter && meaning->kind == LO2_CALL_CLOSE)
        request_closed(e, r, submitter, s->time);
    if (r->result < 0)
        return;
    if (meaning->returns == LO2_RETURNS_BYTES)
        r->bytes = plus(r->bytes == UNKNOWN ? 0 : r->bytes, r->result);
    if (submitter && meaning->kind == LO2_CALL_OPEN && meaning->returns == LO2_RETURNS_FD)
        request_opened(e, r, submitter, s->time);
}

/* What this CQE says of the request's execution. */
static void take_execution(engine *e, ring_request *r, const ring_sample *s, task *t, ring_thread *th)
{
    if (th && th->worker) {
        work_shown(e, t, r, s->time);
        work_ends(e, r->worker_index, s->time, true);
        ring_thread *location = location_of(e, r);
        if (location)
            location->freed++;
    } else {
        work_ended_elsewhere(e, r, s->time);
        if (r->result != -ECANCELED && !r->refused)
            request_shown_executed(e, r, s->time);
    }
    if (!th)
        return;
    r->end_runs = th->runs;
    chain_shows_silent(e, r, th);
    if (th->waits_short && th->short_ctx == s->ctx) {
        request_short(r, th->short_offset, th->short_length);
        th->waits_short = false;
    }
}

static void take_cqe(engine *e, ring_request *r, const ring_sample *s, task *t, ring_thread *th)
{
    bool notifies = r->opcode == OP_SEND_ZC || r->opcode == OP_SENDMSG_ZC;
    r->nr_completions += r->nr_completions < UINT32_MAX;
    if (s->flags & CQE_NOTIF) {
        r->notify = s->time;
        r->traits |= LO2_TRAIT_NOTIFIED;
    } else {
        request_adopt(e, r, t, s->time);
        if ((int32_t)s->result != -EBADF)
            request_proves_fd(e, r, t); /* before it changes anything itself */
        take_result(e, r, s);
        take_execution(e, r, s, t, th);
        if (s->flags & CQE_MORE) {
            if (!notifies)
                r->traits |= LO2_TRAIT_MULTISHOT;
            request_change_class(e, r, notifies ? DATA_NOTIFIES : DATA_REPEATS);
            return;
        }
    }
    requests_end_with_ring_request(e, r->id, r->submit, s->time);
    uint8_t status = r->refused ? LO2_RING_REFUSED : r->result == -ECANCELED ? LO2_RING_CANCELLED : LO2_RING_COMPLETED;
    request_ends(e, r, status, s->time, th, true);
}

/* One that says it is of a request with an address, or of none. */
static ring_request *answers_to(engine *e, const ring_sample *s, bool *passes)
{
    bool several = false;
    ring_request *r = NULL;
    if (s->flags & CQE_NOTIF)
        r = request_by_data(e, s->ctx, s->user_data, DATA_NOTIFIES, &several);
    else if (!ring_has(s, LO2_FIELD_RING_REQ))
        return request_by_order(e, s, (s->flags & CQE_MORE) != 0);
    else if (s->req)
        r = request_at_address(e, s);
    else if (s->flags & CQE_MORE)
        r = request_by_data(e, s->ctx, s->user_data, DATA_REPEATS, &several);
    if (r && !r->alive) {
        *passes = r->status == LO2_RING_TORN_DOWN;
        return NULL;
    }
    if (r && several)
        r->inferred |= LO2_INFERRED_IDENTITY;
    return r;
}

void on_complete(engine *e, const ring_sample *s, task *t, ring_thread *th)
{
    bool passes = false;
    bool is_message = ring_has(s, LO2_FIELD_RING_REQ) && !s->req && !(s->flags & CQE_NOTIF);
    if (th) {
        thread_advances(e, th, s->time);
        th->chain.id = 0;
    }
    ring_request *r = answers_to(e, s, &passes);
    if (th && (s->req || !ring_has(s, LO2_FIELD_RING_REQ)))
        thread_has_item(th, r);
    uint32_t ring_index = passes ? NONE : r ? r->ring : ring_of_stranger(e, s, th);
    if (ring_index == NONE)
        return;
    ring_cqe_posted(e, ring_index, s->time, s->tid);
    if (r)
        take_cqe(e, r, s, t, th);
    else if (is_message)
        ring_at(e, ring_index)->nr_messages++;
    else
        ring_orphan(e, ring_index);
}

void on_overflow(engine *e, const ring_sample *s, task *t, ring_thread *th)
{
    bool several = false;
    if (th) {
        thread_advances(e, th, s->time);
        th->chain.id = 0;
    }
    ring_request *r = s->flags & CQE_NOTIF ? request_by_data(e, s->ctx, s->user_data, DATA_NOTIFIES, &several)
                                           : request_by_order(e, s, (s->flags & CQE_MORE) != 0);
    if (th)
        thread_has_item(th, r);
    uint32_t ring_index = r ? r->ring : ring_of_stranger(e, s, th);
    if (ring_index == NONE)
        return;
    ring_cqe_overflowed(e, ring_index, s->time);
    if (!r) {
        ring_orphan(e, ring_index);
        return;
    }
    r->inferred |= LO2_INFERRED_IDENTITY;
    r->traits |= LO2_TRAIT_OVERFLOWED;
    take_cqe(e, r, s, t, th);
}

/* ---- the end of the trace: all threads have ended, and with them what their last events left open ---- */

bool ring_requests_finish(engine *e)
{
    ring_request_set *set = e->ring_requests;
    while (set && set->alive.count) {
        if (!ring_requests_flush(e))
            return false;
        request_end_unseen(e, &set->requests.at[set->alive.first], false, e->totals.last_time_ns);
    }
    return ring_requests_flush(e);
}

void ring_requests_free(engine *e)
{
    ring_request_set *set = e->ring_requests;
    if (!set)
        return;
    void *owned[] = {set->requests.at, set->free_requests.at, set->addresses, set->data, set->of_ring.at, set->threads.at,
                     set->held.at, set->free_held.at, set->row_queue.at, set->event_queue.at, set->work_queue.at, set};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    e->ring_requests = NULL;
}
