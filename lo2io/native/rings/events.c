/*
 * What happens to requests as events: each submitter's in time order. Behind a CQE whose path is not decided yet, those of
 * its submitter wait.
 */
#include "rings/requests.h"

enum { EVENT_BEGIN = 0, EVENT_ISSUED = 1, EVENT_COMPLETE = 2, EVENT_CANCELLED = 3 };

static void write_event(engine *e, ring_thread *location, const ring_request *r, uint8_t kind, int64_t time, int64_t call)
{
    bool ends = kind >= EVENT_COMPLETE;
    time = later(time, location ? location->last_event : e->totals.last_time_ns); /* late records must not turn the order */
    if (location)
        location->last_event = time;
    if (!r->written)
        return;
    ring_event_row row = {.id = r->id, .before = e->nr_operations, .user_data = request_data(r), .previous = r->previous_id,
                          .culprit = r->culprit, .call = call, .time = time, .bytes = ends ? r->bytes : r->length,
                          .queued = UNKNOWN, .executing = UNKNOWN, .waiting = UNKNOWN, .ring = r->ring_number,
                          .task = r->task, .process = r->process, .pid = r->pid, .tid = r->tid,
                          .handle = request_handle(r), .worker_tid = r->worker_tid,
                          .waker_tid = ends ? r->waker_tid : NONE, .traits = r->traits,
                          .inferred = r->inferred, .kind = kind, .opcode = r->opcode, .sqe_flags = r->sqe_flags};
    if (ends) {
        row.queued = r->queued;
        row.executing = r->executing;
        row.waiting = r->waiting;
        row.result = r->result;
        row.error = r->result < 0 && r->result >= -4095 ? (int16_t)-r->result : 0;
        row.path = r->path;
        row.status = r->status;
    }
    row_of_event(e, &row);
}

static int64_t call_of(engine *e, const ring_request *r)
{
    const task *t = request_task(e, r);
    return t && t->pending.active ? t->pending.begin : UNKNOWN;
}

static bool hold(engine *e, ring_thread *location, held_event event)
{
    ring_request_set *set = e->ring_requests;
    uint32_t index;
    if (set->free_held.count) {
        index = set->free_held.at[--set->free_held.count];
    } else if (VEC_ROOM(&set->held, set->held.count + 1)) {
        index = set->held.count++;
    } else {
        e->out_of_memory = true;
        return false;
    }
    event.next = NONE;
    set->held.at[index] = event;
    *(location->first_held == NONE ? &location->first_held : &set->held.at[location->last_held].next) = index;
    location->last_held = index;
    request_at(e, event.request)->held++;
    return true;
}

void event_begin(engine *e, ring_request *r, int64_t time, int64_t call)
{
    r->begun = true;
    write_event(e, location_of(e, r), r, EVENT_BEGIN, time, call);
}

void location_settle(engine *e, ring_thread *th)
{
    ring_request *r = request_of(e, th->fresh);
    th->fresh.id = 0;
    if (r && !r->begun)
        event_begin(e, r, r->submit, th->fresh_call);
    ring_request *running = request_of(e, th->running);
    if (running && running->begun && !running->issued)
        event_issued(e, running, running->issue);
}

void event_issued(engine *e, ring_request *r, int64_t time)
{
    ring_thread *location = location_of(e, r);
    if (r->issued || r->task == NONE)
        return;
    r->issued = true;
    if (!location || location->first_held == NONE)
        write_event(e, location, r, EVENT_ISSUED, time, call_of(e, r));
    else
        hold(e, location, (held_event){.request = index_of(e, r), .time = time, .call = call_of(e, r)});
}

static void write_end(engine *e, ring_thread *location, ring_request *r)
{
    request_phases(r);
    if (!r->issued)
        write_event(e, location, r, EVENT_ISSUED, r->end, r->end_call);
    r->issued = true;
    write_event(e, location, r, r->status == LO2_RING_CANCELLED ? EVENT_CANCELLED : EVENT_COMPLETE, r->end, r->end_call);
    row_of_request(e, r);
}

void event_end(engine *e, ring_request *r, uint64_t item, bool undecided)
{
    ring_thread *location = location_of(e, r);
    r->end_call = call_of(e, r);
    if (location)
        location_settle(e, location);
    if (location && (undecided || location->first_held != NONE))
        hold(e, location, (held_event){.request = index_of(e, r), .time = r->end, .call = r->end_call, .item = item,
                                       .is_end = true, .undecided = undecided});
    else
        write_end(e, location, r);
}

/* Nothing in its queue is undecided any more. */
void location_release(engine *e, ring_thread *th)
{
    ring_request_set *set = e->ring_requests;
    while (th->first_held != NONE) {
        uint32_t index = th->first_held;
        held_event h = set->held.at[index];
        ring_request *r = request_at(e, h.request);
        th->first_held = h.next;
        GIVE_BACK(set, free_held, index);
        r->held--;
        if (h.is_end)
            write_end(e, th, r);
        else
            write_event(e, th, r, EVENT_ISSUED, h.time, h.call);
        request_let_go(e, r);
    }
}
