/* Block requests as OTF2 events: non-blocking operations on the location of their device. */
#include "otf2/otf2_writer.h"

static int begin_request(lo2_otf2_writer *w, lo2_otf2_location *location, const lo2_request_event_columns *e, uint32_t row,
                         uint64_t time)
{
    const lo2_otf2_values *v = &w->config.values;
    const lo2_otf2_attributes *a = &w->config.attributes;
    bool flush = e->operation[row] == LO2_RQ_FLUSH;
    uint8_t mode = flush ? v->mode_flush : e->operation[row] == LO2_RQ_READ ? v->mode_read : v->mode_write;
    uint64_t bytes = flush || e->bytes[row] == UNKNOWN ? UNDEFINED : (uint64_t)e->bytes[row];
    if (!flush)
        OTF2(w, add_uint64, w->list, a->sector, e->sector[row]);
    if (e->pid[row] != NONE)
        OTF2(w, add_uint64, w->list, a->process_id, e->pid[row]);
    if (e->tid[row] != NONE)
        OTF2(w, add_uint64, w->list, a->thread_id, e->tid[row]);
    if (e->ring_request[row]) {
        OTF2(w, add_uint64, w->list, a->ring_request, e->ring_request[row]);
        w->view.uses_rings = 1;
    }
    OTF2(w, add_string, w->list, a->operation, otf2_string_of(w, e->operation[row], e->flags[row]));
    OTF2(w, operation_begin, location->writer, w->list, time, location->handle, mode, v->non_blocking, bytes, e->id[row]);
    return 0;
}

/* An end that nobody saw: at its latest moment, with the earliest. Whether it failed, and what it moved, is not known. */
static int end_unseen(lo2_otf2_writer *w, lo2_otf2_location *location, const lo2_request_event_columns *e, uint32_t row,
                      uint64_t time)
{
    w->view.has_unseen_ends = 1;
    OTF2(w, add_uint8, w->list, w->config.attributes.end_inferred, 1);
    OTF2(w, add_uint64, w->list, w->config.attributes.end_earliest, (uint64_t)e->issue_time_ns[row]);
    OTF2(w, operation_complete, location->writer, w->list, time, location->handle, UNDEFINED, e->id[row]);
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
    case LO2_RQ_ISSUED: OTF2(w, operation_issued, location->writer, NULL, time, location->handle, e->id[row]); return 0;
    case LO2_RQ_COMPLETE: {
        bool no_bytes = e->operation[row] == LO2_RQ_FLUSH || e->error[row] || e->bytes[row] == UNKNOWN;
        OTF2(w, operation_complete, location->writer, otf2_error_list(w, e->error[row]), time, location->handle,
             no_bytes ? UNDEFINED : (uint64_t)e->bytes[row], e->id[row]);
        return 0;
    }
    case LO2_RQ_CANCELLED: OTF2(w, operation_cancelled, location->writer, NULL, time, location->handle, e->id[row]); return 0;
    case LO2_RQ_ENDED: return end_unseen(w, location, e, row, time);
    default: return otf2_fail(w, "unknown request event", 0);
    }
}
