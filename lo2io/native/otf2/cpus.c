/*
 * Block requests, on their device and as samples on CPUs; and which thread each CPU runs.
 *
 * The calling context of a sample is the operation on the device, inside the thread on the CPU, if that is known. A
 * thread's context is entered when it gets the CPU, and left when it loses the CPU. An idle CPU is in no context, nor
 * is one before its first switch.
 */
#include "otf2/otf2_writer.h"

/* ---- CPUs ---- */

enum { IDLE_TID = 0, INTERRUPT_GENERATOR = 0 };

/*
 * True if a CPU saw the event, which then becomes a sample. No CPU saw an inferred end, the insert of a request that
 * bypassed the scheduler, or the issue of a merged one.
 */
static bool was_seen(const lo2_request_event_columns *e, uint32_t row)
{
    switch (e->kind[row]) {
    case 0: return e->insert_time_ns[row] != UNKNOWN;
    case 1: return e->issue_time_ns[row] != UNKNOWN;
    default: return e->kind[row] != LO2_RQ_ENDED;
    }
}

static void add_latencies(lo2_otf2_writer *w, const lo2_request_event_columns *e, uint32_t row)
{
    const lo2_otf2_attributes *a = &w->config.attributes;
    int64_t insert = e->insert_time_ns[row], issue = e->issue_time_ns[row], complete = e->time_ns[row];
    if (issue == UNKNOWN)
        return;
    if (insert != UNKNOWN && insert <= issue)
        otf2_add_uint64(w, a->queue_latency, otf2_between(insert, issue));
    if (issue <= complete)
        otf2_add_uint64(w, a->device_latency, otf2_between(issue, complete));
}

/* Why, and for whom, the request writes. Of the latter only its completion knows. */
static int add_write_back(lo2_otf2_writer *w, const lo2_request_event_columns *e, uint32_t row)
{
    if (e->reason[row])
        TRY(otf2_add_text(w, w->config.attributes.reason, LO2_OTF2_TEXT_REASON, e->reason[row]));
    if (e->charged[row])
        otf2_add_uint64(w, w->config.attributes.charged_to, e->charged[row]);
    w->view.has_write_backs |= e->reason[row] || e->charged[row];
    return 0;
}

static int add_attributes(lo2_otf2_writer *w, lo2_otf2_device *device, const lo2_request_event_columns *e, uint32_t row)
{
    const lo2_otf2_attributes *a = &w->config.attributes;
    bool flush = e->operation[row] == LO2_RQ_FLUSH;
    TRY(otf2_add_string(w, a->event, w->config.event_strings + e->kind[row]));
    TRY(otf2_add_string(w, a->device, otf2_string_of_device(w, device)));
    TRY(otf2_add_string(w, a->operation, otf2_string_of(w, e->operation[row], e->flags[row])));
    otf2_add_uint64(w, a->request_id, e->id[row]);
    if (!flush)
        otf2_add_uint64(w, a->sector, e->sector[row]);
    if (!flush && e->bytes[row] != UNKNOWN)
        otf2_add_uint64(w, a->bytes, (uint64_t)e->bytes[row]);
    if (e->pid[row] != NONE)
        otf2_add_uint64(w, a->process_id, e->pid[row]);
    if (e->tid[row] != NONE)
        otf2_add_uint64(w, a->thread_id, e->tid[row]);
    if (e->ring_request[row]) {
        otf2_add_uint64(w, a->ring_request, e->ring_request[row]);
        w->view.uses_rings = 1;
    }
    if (e->error[row])
        otf2_add_uint32(w, a->error, (uint32_t)e->error[row]);
    TRY(add_write_back(w, e, row));
    if (e->kind[row] == LO2_RQ_COMPLETE)
        add_latencies(w, e, row);
    return 0;
}

int otf2_write_sample(lo2_otf2_writer *w, const lo2_request_event_columns *e, uint32_t row)
{
    if (e->kind[row] > LO2_RQ_ENDED)
        return otf2_fail(w, "unknown request event");
    if (!was_seen(e, row))
        return 0;
    lo2_otf2_location *location = otf2_location_of_cpu(w, e->cpu[row]);
    lo2_otf2_device *device = otf2_device_at(w, e->device[row]);
    if (!location || !device)
        return -1;
    uint32_t context = otf2_ref_inside(w, location->open_region, LO2_OTF2_REQUEST, e->device[row], e->operation[row]);
    if (context == NONE)
        return -1;
    TRY(add_attributes(w, device, e, row));
    EVENT(w, CONTEXT, otf2_put_sample, location, otf2_advance(w, location, e->time_ns[row]), context, UNWIND_DISTANCE,
         INTERRUPT_GENERATOR);
    return 0;
}

int otf2_write_switch(lo2_otf2_writer *w, const lo2_switch_columns *s, uint32_t row)
{
    lo2_otf2_location *location = otf2_location_of_cpu(w, s->cpu[row]);
    if (!location)
        return -1;
    uint64_t time = otf2_advance(w, location, s->time_ns[row]);
    if (location->open_region != NONE && location->tid == s->prev_tid[row]) {
        TRY(otf2_leave(w, location, time, location->open_region));
        location->open_region = NONE;
    } else if (location->open_region != NONE) { /* the switch to the thread that leaves was lost */
        TRY(otf2_leave_open_region(w, location, time));
    }
    location->tid = s->next_tid[row];
    if (s->next_tid[row] == IDLE_TID)
        return 0;
    uint32_t task = s->next_task[row];
    uint32_t ref = task == NONE ? otf2_ref_inside(w, NONE, LO2_OTF2_STRANGER, s->next_tid[row], 0)
                                : otf2_ref_inside(w, NONE, LO2_OTF2_RUNNING, task, 0);
    if (ref == NONE)
        return -1;
    location->open_region = ref;
    return otf2_enter(w, location, time, ref);
}

/* ---- devices: non-blocking operations on the location of the device ---- */

/* Reads and writes alone carry data. OTF2 has the mode FLUSH for all others: readers would add their bytes to the writes'. */
static uint8_t mode_of(const lo2_otf2_writer *w, uint8_t operation)
{
    const lo2_otf2_values *v = &w->config.values;
    return operation == LO2_RQ_READ ? v->mode_read : operation == LO2_RQ_WRITE ? v->mode_write : v->mode_flush;
}

/* The bytes that the event's operation carries. A discard, or another one with a range, has them as an attribute. */
static uint64_t bytes_of(lo2_otf2_writer *w, const lo2_request_event_columns *e, uint32_t row)
{
    uint8_t operation = e->operation[row];
    bool carries = mode_of(w, operation) != w->config.values.mode_flush;
    bool known = e->bytes[row] != UNKNOWN && operation != LO2_RQ_FLUSH;
    if (!carries && known)
        otf2_add_uint64(w, w->config.attributes.bytes, (uint64_t)e->bytes[row]);
    return carries && known ? (uint64_t)e->bytes[row] : UNDEFINED;
}

static int begin_request(lo2_otf2_writer *w, lo2_otf2_location *location, const lo2_request_event_columns *e, uint32_t row,
                         uint64_t time)
{
    const lo2_otf2_attributes *a = &w->config.attributes;
    uint64_t bytes = bytes_of(w, e, row);
    if (e->operation[row] != LO2_RQ_FLUSH)
        otf2_add_uint64(w, a->sector, e->sector[row]);
    if (e->pid[row] != NONE)
        otf2_add_uint64(w, a->process_id, e->pid[row]);
    if (e->tid[row] != NONE)
        otf2_add_uint64(w, a->thread_id, e->tid[row]);
    if (e->ring_request[row]) {
        otf2_add_uint64(w, a->ring_request, e->ring_request[row]);
        w->view.uses_rings = 1;
    }
    TRY(add_write_back(w, e, row));
    TRY(otf2_add_string(w, a->operation, otf2_string_of(w, e->operation[row], e->flags[row])));
    EVENT(w, HANDLE, otf2_put_operation_begin, location, time, location->handle, mode_of(w, e->operation[row]),
         w->config.values.non_blocking, bytes, e->id[row]);
    return 0;
}

static int complete_request(lo2_otf2_writer *w, lo2_otf2_location *location, const lo2_request_event_columns *e,
                            uint32_t row, uint64_t time)
{
    uint64_t bytes = UNDEFINED;
    if (e->error[row])
        otf2_add_uint32(w, w->config.attributes.error, (uint32_t)e->error[row]);
    else
        bytes = bytes_of(w, e, row);
    if (e->inode[row]) {
        otf2_add_uint64(w, w->config.attributes.inode, e->inode[row]);
        w->view.uses_parts = 1;
    }
    if (e->charged[row]) {
        otf2_add_uint64(w, w->config.attributes.charged_to, e->charged[row]);
        w->view.has_write_backs = 1;
    }
    EVENT(w, HANDLE, otf2_put_operation_complete, location, time, location->handle, bytes, e->id[row]);
    return 0;
}

/* This end was not seen: it stands at the latest possible moment and names the earliest. Result and bytes are unknown. */
static int end_unseen(lo2_otf2_writer *w, lo2_otf2_location *location, const lo2_request_event_columns *e, uint32_t row,
                      uint64_t time)
{
    w->view.has_unseen_ends = 1;
    otf2_add_uint8(w, w->config.attributes.end_inferred, 1);
    otf2_add_uint64(w, w->config.attributes.end_earliest, (uint64_t)e->issue_time_ns[row]);
    EVENT(w, HANDLE, otf2_put_operation_complete, location, time, location->handle, UNDEFINED, e->id[row]);
    return 0;
}

int otf2_write_request_event(lo2_otf2_writer *w, const lo2_request_event_columns *e, uint32_t row)
{
    lo2_otf2_device *device = otf2_device_at(w, e->device[row]);
    lo2_otf2_location *location = device ? otf2_location_of_device(w, device) : NULL;
    if (!location)
        return -1;
    uint64_t time = otf2_advance(w, location, e->time_ns[row]);
    switch (e->kind[row]) {
    case LO2_RQ_BEGIN: return begin_request(w, location, e, row, time);
    case LO2_RQ_ISSUED: EVENT(w, HANDLE, otf2_put_operation_issued, location, time, location->handle, e->id[row]); break;
    case LO2_RQ_COMPLETE: return complete_request(w, location, e, row, time);
    case LO2_RQ_CANCELLED: EVENT(w, HANDLE, otf2_put_operation_cancelled, location, time, location->handle, e->id[row]); break;
    case LO2_RQ_ENDED: return end_unseen(w, location, e, row, time);
    default: return otf2_fail(w, "unknown request event");
    }
    return 0;
}
