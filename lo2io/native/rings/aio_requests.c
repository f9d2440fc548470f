/*
 * Requests of libaio: each from the io_submit that took it to the call that returned its event. The kernel has no tracepoint
 * for either, so all of it is what its own programs read in the program's memory.
 *
 * An event names the request by the address of its iocb and its aio_data. A program may read events from memory without
 * a call: then the request's end is not seen. That it has ended is concluded when its iocb is submitted anew; the
 * program may do so earlier, for the kernel keeps a copy. So an event belongs to the newest that fits, and the older ones go on
 * living until nobody can speak of them any more.
 */
#include <errno.h>
#include <linux/aio_abi.h>

#include "rings/requests.h"

enum { AS_NOP = 0, AS_READV = 1, AS_WRITEV = 2, AS_FSYNC = 3, AS_READ = 22, AS_WRITE = 23 }; /* include/uapi/linux/io_uring.h */
enum { FSYNC_DATASYNC = 1 };
enum { MOST_LOOKED_AT = 4096 };

static uint8_t opcode_of(uint16_t command)
{
    switch (command) {
    case IOCB_CMD_PREAD: return AS_READ;
    case IOCB_CMD_PWRITE: return AS_WRITE;
    case IOCB_CMD_PREADV: return AS_READV;
    case IOCB_CMD_PWRITEV: return AS_WRITEV;
    case IOCB_CMD_FSYNC:
    case IOCB_CMD_FDSYNC: return AS_FSYNC;
    case IOCB_CMD_POLL: return OP_POLL_ADD;
    case IOCB_CMD_NOOP: return AS_NOP;
    default: return NO_OPCODE;
    }
}

static uint32_t flags_of(const lo2_kernel_iocb *q)
{
    switch (q->opcode) {
    case IOCB_CMD_FDSYNC: return FSYNC_DATASYNC;
    case IOCB_CMD_FSYNC: return 0;
    case IOCB_CMD_POLL: return NONE; /* what it polls for stands in a field of its own */
    default: return q->rw_flags;
    }
}

/* ---- ends ---- */

static void ends(engine *e, ring_request *r, uint8_t status, int64_t time)
{
    r->status = status;
    r->end = time;
    if (r->complete != UNKNOWN) {
        event_end(e, r, 0, false);
    } else {
        request_phases(r);
        row_of_request(e, r);
    }
    request_retire(e, r);
}

void aio_end_unseen(engine *e, ring_request *r, bool torn_down)
{
    uint8_t status = r->end_before != UNKNOWN ? LO2_RING_UNSEEN : torn_down ? LO2_RING_TORN_DOWN : LO2_RING_IN_FLIGHT;
    if (status == LO2_RING_UNSEEN)
        r->inferred |= LO2_INFERRED_END;
    else if (torn_down)
        r->end_before = ring_at(e, r->ring)->end_time;
    e->totals.nr_in_flight_ring_requests += status == LO2_RING_IN_FLIGHT;
    ends(e, r, status, e->totals.last_time_ns);
}

static void completes(engine *e, ring_request *r, int64_t result, int64_t time)
{
    r->result = (int32_t)result;
    r->complete = time;
    r->end_before = UNKNOWN;
    r->nr_completions = 1;
    r->inferred |= LO2_INFERRED_END;
    if (r->result >= 0 && request_meaning(e, r)->returns == LO2_RETURNS_BYTES)
        r->bytes = r->result;
    requests_end_with_ring_request(e, r->id, r->submit, time);
    ends(e, r, r->result == -ECANCELED ? LO2_RING_CANCELLED : LO2_RING_COMPLETED, time);
}

/* ---- begins ---- */

/* The same iocb is submitted again, by a later call. */
static void begins_anew(engine *e, ring_request *before, int64_t time)
{
    if (before->submit < time && before->end_before == UNKNOWN)
        before->end_before = time;
    bool several = false;
    if (e->ring_requests->alive.count >= MOST_ALIVE / 2) /* the oldest of this iocb makes room */
        request_end_unseen(e, request_by_data(e, before->ctx, before->user_data, DATA_SINGLE, &several), false, time);
}

uint64_t aio_request_begins(engine *e, task *t, uint32_t ring_index, const iocb_row *row, const asked_iocb *asked)
{
    ring_request_set *set = ring_requests_needed(e);
    uint64_t key = ring_at(e, ring_index)->number + 1ull;
    int64_t time = t->pending.begin;
    ring_request *before = set ? request_newest(e, key, row->iocb) : NULL;
    if (!set || !thread_of(e, t))
        return 0;
    if (before)
        begins_anew(e, before, time);
    if (set->alive.count >= MOST_ALIVE)
        request_end_unseen(e, &set->requests.at[set->alive.first], false, time);
    ring_request *r = request_new(e, ring_index, key, 0, row->iocb, DATA_SINGLE);
    if (!r)
        return 0;
    if (asked->request)
        r->id = asked->request;
    r->aio = true;
    r->data = row->data;
    r->opcode = opcode_of(asked->iocb.opcode);
    r->ring_number = ring_at(e, ring_index)->number;
    r->submit = r->issue = time;
    r->executed = r->at_submission = true;
    r->inferred = LO2_INFERRED_ISSUE;
    r->served = asked->served;
    r->path = r->served ? LO2_PATH_DEVICE : LO2_PATH_UNKNOWN;
    r->fd = row->fd;
    r->handle = row->handle;
    r->offset = row->offset;
    r->length = row->bytes;
    r->op_flags = flags_of(&asked->iocb);
    request_give_to(e, r, t);
    e->totals.nr_ring_requests++;
    uint64_t id = r->id;
    event_begin(e, r, time, time);
    event_issued(e, r, time);
    if (asked->collected)
        completes(e, r, asked->result, asked->collect_time);
    return id;
}

/* ---- what calls have collected ---- */

/* The newest; NULL: it began before the trace, or was lost. */
static ring_request *answers_to(engine *e, uint32_t ring_index, const lo2_kernel_event *event)
{
    uint64_t key = ring_at(e, ring_index)->number + 1ull;
    ring_request *r = request_newest(e, key, event->iocb);
    for (int left = MOST_LOOKED_AT; r && left--; r = r->data_older == NONE ? NULL : request_at(e, r->data_older)) {
        if (r->data != event->data)
            continue;
        if (r->data_older != NONE && request_at(e, r->data_older)->data == event->data)
            r->inferred |= LO2_INFERRED_IDENTITY;
        return r;
    }
    return NULL;
}

static bool is_being_submitted(engine *e, const task *t, uint64_t context, const lo2_kernel_event *event, int64_t time)
{
    for (uint32_t i = e->processes.at[t->process].oldest; i != NONE; i = e->tasks.at[i].newer)
        if (iocb_collected(e, &e->tasks.at[i], context, event, time))
            return true;
    return false;
}

void on_kernel_events(engine *e, task *t, const uint8_t *record, uint32_t size)
{
    lo2_kernel_events told;
    memcpy(&told, record, sizeof told);
    if (!is_followed(e, t) || !rings_needed(e) || !ring_requests_needed(e))
        return;
    uint32_t ring_index = ring_find(e, RING_AIO, told.context, e->processes.at[t->process].number);
    for (uint32_t i = 0; i < told.count; i++) {
        lo2_kernel_event event;
        memcpy(&event, record + sizeof told + i * sizeof event, sizeof event);
        ring_request *r = ring_index == NONE ? NULL : answers_to(e, ring_index, &event);
        if (r)
            completes(e, r, event.result, (int64_t)told.head.time_ns);
        else if (!is_being_submitted(e, t, told.context, &event, (int64_t)told.head.time_ns) && ring_index != NONE)
            ring_orphan(e, ring_index);
    }
}
