/*
 * Requests of io_uring as OTF2 events: non-blocking operations on the location of the thread that submitted them.
 * Executions by workers are regions on the workers' locations.
 *
 * An event inside a call is known before the call's row, which comes at the exit. So the event waits for that row
 * (otf2/waiting.c). All others are written at once: an SQ thread makes no calls, so its events would wait until the end
 * of the trace. What waits is bounded by what a thread can submit and have under way during one call.
 */
#include "otf2/otf2_writer.h"

/* ---- requests ---- */

static ring_event load(const lo2_ring_event_columns *e, uint32_t row)
{
    return (ring_event){
        .id = e->id[row], .kind = e->kind[row], .ring = e->ring[row], .opcode = e->opcode[row],
        .path = e->path[row], .status = e->status[row], .traits = e->traits[row], .inferred = e->inferred[row],
        .sqe_flags = e->sqe_flags[row], .handle = e->handle[row], .user_data = e->user_data[row],
        .bytes = e->bytes[row], .result = e->result[row], .error = e->error[row], .worker_tid = e->worker_tid[row],
        .waker_tid = e->waker_tid[row], .queued_ns = e->queued_ns[row], .executing_ns = e->executing_ns[row],
        .waiting_ns = e->waiting_ns[row], .run_queue_ns = e->run_queue_ns[row], .blocked_ns = e->blocked_ns[row],
        .previous = e->previous[row], .culprit = e->culprit[row],
        .cache = e->cache[row], .missed_pages = e->cache_missed_pages[row], .ahead_pages = e->cache_ahead_pages[row],
    };
}

/* Keeps what the event tells about the request. */
static int follow(lo2_otf2_writer *w, lo2_otf2_location *location, const ring_event *event)
{
    open_request *r = open_request_find(&w->open, event->id);
    if (event->kind == RING_EVENT_BEGIN && !r) {
        if (!(r = open_request_add(&w->open, event->id)))
            return otf2_fail(w, "malloc");
        r->task = location->user;
        location->nr_open++;
    }
    if (!r)
        return 0;
    if (r->handle == NONE)
        r->handle = event->handle;
    if (!r->previous)
        r->previous = event->previous;
    return 0;
}

/* The bytes of a request count for its process, like those of calls. If requests are sampled, no sum would be true. */
static int measure(lo2_otf2_writer *w, lo2_otf2_location *location, const ring_event *event, int64_t time)
{
    const lo2_otf2_values *v = &w->config.values;
    uint8_t mode = otf2_mode_of(w, event->opcode);
    if (w->config.sampled || event->kind != RING_EVENT_COMPLETE || event->bytes <= 0 || mode == v->mode_flush)
        return 0;
    uint64_t bytes = (uint64_t)event->bytes;
    bool both = w->config.opcodes[event->opcode].copies;
    return otf2_measure_transfer(w, location, time, both || mode == v->mode_read ? bytes : 0,
                                 both || mode == v->mode_write ? bytes : 0);
}

int otf2_ring_event_arrives(lo2_otf2_writer *w, const lo2_ring_event_columns *e, uint32_t row)
{
    if (otf2_carries_no_data(w, e->opcode[row]))
        return 0;
    const actor who = {e->task[row], e->process[row], e->pid[row], e->tid[row]};
    int64_t time = e->time_ns[row], call_begin = e->call_begin_time_ns[row];
    bool inside = call_begin != UNKNOWN && call_begin <= time;
    lo2_otf2_location *location = otf2_location_of(w, who, inside ? call_begin : time);
    if (!location)
        return -1;
    if (e->kind[row] > RING_EVENT_CANCELLED)
        return otf2_fail(w, "unknown event of a ring's request");
    ring_event event = load(e, row);
    TRY(follow(w, location, &event));
    if (w->config.metrics)
        TRY(measure(w, location, &event, time));
    location = otf2_location_of(w, who, time); /* measuring may have moved it */
    if (location->held != NONE)
        TRY(otf2_leave_held(w, location));
    int64_t until = inside ? call_begin - 1 : time;
    if (location->waiting != NONE && until >= 0)
        TRY(otf2_release_waiting(w, location, (uint64_t)until));
    if (inside || (event.kind == RING_EVENT_BEGIN && event.handle == NONE)) {
        open_request *r = open_request_find(&w->open, event.id);
        if (r)
            r->nr_waiting++;
        return otf2_ring_event_waits(w, location, time < 0 ? 0 : (uint64_t)time, &event);
    }
    uint64_t at = otf2_advance(w, location, time);
    if (location->open_region != NONE) /* the thread is in no call */
        TRY(otf2_leave_open_region(w, location, at));
    return otf2_write_ring_event(w, location, at, &event);
}

int otf2_give_up_ring_requests(lo2_otf2_writer *w, const lo2_ring_request_columns *c, uint32_t count)
{
    for (uint32_t i = 0; i < w->nr_to_give_up; i++) {
        open_request *r = open_request_find(&w->open, w->to_give_up[i]);
        if (!r)
            continue;
        r->given_up = true;
        if (!r->nr_waiting)
            otf2_request_ended(w, r->id);
    }
    w->nr_to_give_up = 0;
    if (!otf2_grow((void **)&w->to_give_up, &w->to_give_up_room, count, sizeof *w->to_give_up))
        return otf2_fail(w, "malloc");
    for (uint32_t row = 0; row < count; row++) {
        uint8_t status = c->status[row];
        if (status == LO2_RING_IN_FLIGHT || status == LO2_RING_TORN_DOWN || status == LO2_RING_SILENT ||
            status == LO2_RING_UNSEEN)
            w->to_give_up[w->nr_to_give_up++] = c->id[row];
    }
    return 0;
}

/* ---- workers ---- */

int otf2_write_ring_work(lo2_otf2_writer *w, const lo2_ring_work_columns *c, uint32_t row)
{
    const lo2_otf2_attributes *a = &w->config.attributes;
    const actor who = {c->task[row], c->process[row], c->pid[row], c->tid[row]};
    int64_t begin = c->begin_time_ns[row], end = c->end_time_ns[row], queue = c->queue_time_ns[row];
    if (begin == UNKNOWN)
        begin = end;
    lo2_otf2_location *location = otf2_location_of_worker(w, who, begin);
    if (!location)
        return -1;
    if (begin == UNKNOWN)
        return 0;
    if (location->held != NONE)
        TRY(otf2_leave_held(w, location));
    uint64_t time = otf2_advance(w, location, begin);
    if (location->open_region != NONE)
        TRY(otf2_leave_open_region(w, location, time));
    uint32_t ref = otf2_ref_inside(w, location->life, LO2_OTF2_RING_WORK, c->opcode[row], 0);
    if (ref == NONE)
        return -1;
    TRY(otf2_add_text(w, a->ring, LO2_OTF2_TEXT_RING, c->ring[row]));
    otf2_add_uint64(w, a->ring_request, c->id[row]);
    if (queue != UNKNOWN && queue <= begin)
        otf2_add_uint64(w, a->queue_delay, otf2_between(queue, begin));
    if (c->inferred[row])
        TRY(otf2_add_text(w, a->inferred, LO2_OTF2_TEXT_INFERRED, c->inferred[row]));
    TRY(otf2_enter(w, location, time, ref));
    if (end == UNKNOWN) {
        location->open_region = ref;
        return 0;
    }
    return otf2_leave(w, location, otf2_advance(w, location, end), ref);
}

/* ---- calls ---- */

void otf2_load_batch(const lo2_otf2_writer *w, const lo2_batch *b, uint32_t row, uint16_t call, batch_counts *counts)
{
    const lo2_batch_columns *c = &b->batches;
    uint8_t kind = call < w->config.nr_calls ? w->config.calls[call].kind : LO2_CALL_META;
    *counts = (batch_counts){.ring = c->ring[row], .asked = c->asked[row], .wanted = c->wanted[row],
                             .submitted = kind == LO2_CALL_AIO_COLLECT ? -1 : c->submitted[row],
                             .completed = kind == LO2_CALL_RING_ENTER ? (int64_t)c->nr_completions[row]
                                                                       : c->collected[row]};
}
