/*
 * Writes events of rings' requests, with the texts and handles that they name.
 *
 * The kernel names a request's file at the execution, which may come after the request's start. OTF2 wants the handle
 * in the begin event. A begin event that still waits gets the handle. So a begin event outside of any call waits for
 * one more event. A begin event without a known file is written on the ring itself, and so are the records that follow.
 * The last record tells the handle of the file.
 *
 * No function here looks up a location. A lookup may end another location, which then writes the events that wait there,
 * and one of these may be a request's.
 */
#include "otf2/otf2_writer.h"

/* ---- texts, and handles of the paradigm io_uring ---- */

enum { KEY_BITS = 32 };

static uint32_t no_memory(lo2_otf2_writer *w)
{
    otf2_fail(w, "malloc");
    return NONE;
}

uint32_t otf2_text(lo2_otf2_writer *w, uint8_t kind, uint32_t key)
{
    uint32_t *known, count = w->view.nr_texts;
    w->view.uses_rings |= kind < LO2_OTF2_TEXT_CACHE;
    if (!number_map_at(&w->text_by_key, (uint64_t)kind << KEY_BITS | key, &known))
        return no_memory(w);
    if (__builtin_expect(*known != NONE, 1))
        return *known;
    if (!otf2_grow((void **)&w->texts, &w->texts_room, count + 1u, sizeof *w->texts))
        return no_memory(w);
    uint32_t ref = w->config.first_string + w->view.nr_strings++;
    w->texts[count] = (lo2_otf2_text){.kind = kind, .key = key, .ref = ref};
    w->view.texts = w->texts;
    w->view.nr_texts++;
    return *known = ref;
}

static uint32_t handle_new(lo2_otf2_writer *w, uint32_t ring, uint32_t handle)
{
    uint32_t count = w->view.nr_ring_handles;
    if (!otf2_grow((void **)&w->ring_handles, &w->ring_handles_room, count + 1u, sizeof *w->ring_handles))
        return no_memory(w);
    uint32_t ref = lo2_otf2_new_handle(w);
    w->ring_handles[count] = (lo2_otf2_ring_handle){.ref = ref, .ring = ring, .handle = handle};
    w->view.ring_handles = w->ring_handles;
    w->view.nr_ring_handles++;
    return ref;
}

static uint32_t ring_handle(lo2_otf2_writer *w, lo2_otf2_location *location, uint32_t ring, uint32_t handle)
{
    uint32_t *known;
    uint64_t of_ring = (uint64_t)ring << KEY_BITS;
    /* Only threads of one process may share a handle. */
    bool found = handle != NONE ? number_map_at(&w->ring_handle_by_file, of_ring | handle, &known)
                                : number_map_at(&w->ring_handle_by_process, of_ring | location->process, &known);
    if (!found)
        return no_memory(w);
    return *known != NONE ? *known : (*known = handle_new(w, ring, handle));
}

/* ---- events ---- */

uint8_t otf2_mode_of(const lo2_otf2_writer *w, uint8_t opcode)
{
    return opcode < w->config.nr_opcodes ? w->config.opcodes[opcode].mode : w->config.values.mode_flush;
}

bool otf2_carries_no_data(const lo2_otf2_writer *w, uint8_t opcode)
{
    return opcode < w->config.nr_opcodes && w->config.opcodes[opcode].carries_no_data;
}

int otf2_add_text(lo2_otf2_writer *w, uint32_t attribute, uint8_t kind, uint32_t key)
{
    uint32_t ref = otf2_text(w, kind, key);
    if (ref == NONE)
        return -1;
    TRY(otf2_add_string(w, attribute, ref));
    return 0;
}

static void add_pages(lo2_otf2_writer *w, uint32_t attribute, uint32_t pages)
{
    if (pages && pages != NONE)
        otf2_add_uint64(w, attribute, pages);
}

int otf2_add_cache(lo2_otf2_writer *w, uint8_t verdict, uint32_t missed, uint32_t ahead)
{
    if (verdict <= LO2_CACHE_UNKNOWN)
        return 0;
    w->view.uses_cache = 1;
    TRY(otf2_add_text(w, w->config.attributes.cache, LO2_OTF2_TEXT_CACHE, verdict));
    add_pages(w, w->config.attributes.missed_pages, missed);
    add_pages(w, w->config.attributes.ahead_pages, ahead);
    return 0;
}

static int write_begin(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, const ring_event *event,
                       const open_request *r)
{
    const lo2_otf2_attributes *a = &w->config.attributes;
    uint8_t mode = otf2_mode_of(w, event->opcode);
    bool no_bytes = mode == w->config.values.mode_flush || event->bytes < 0;
    TRY(otf2_add_text(w, a->operation, LO2_OTF2_TEXT_OPCODE, event->opcode));
    TRY(otf2_add_text(w, a->ring, LO2_OTF2_TEXT_RING, event->ring));
    otf2_add_uint64(w, a->user_data, event->user_data);
    if (event->sqe_flags)
        TRY(otf2_add_text(w, a->sqe_flags, LO2_OTF2_TEXT_SQE_FLAGS, event->sqe_flags));
    if (r->previous)
        otf2_add_uint64(w, a->previous, r->previous);
    EVENT(w, HANDLE, otf2_put_operation_begin, location, time, r->ref, mode, w->config.values.non_blocking,
         no_bytes ? UNDEFINED : (uint64_t)event->bytes, event->id);
    return 0;
}

static void add_duration(lo2_otf2_writer *w, uint32_t attribute, int64_t duration_ns)
{
    if (duration_ns >= 0) /* unknown is negative */
        otf2_add_uint64(w, attribute, (uint64_t)duration_ns);
}

/* True if the kernel told the request's result. Else the time of its end is unknown. */
static bool has_result(const ring_event *event)
{
    return event->status == LO2_RING_COMPLETED || event->status == LO2_RING_CANCELLED || event->status == LO2_RING_REFUSED;
}

/* A request without a completion ended between its last record and this one. */
static void add_unseen_end(lo2_otf2_writer *w, uint64_t earliest)
{
    w->view.has_unseen_ends = 1;
    otf2_add_uint8(w, w->config.attributes.end_inferred, 1);
    otf2_add_uint64(w, w->config.attributes.end_earliest, earliest);
}

static int add_end(lo2_otf2_writer *w, const ring_event *event, uint64_t earliest)
{
    const lo2_otf2_attributes *a = &w->config.attributes;
    TRY(otf2_add_text(w, a->path, LO2_OTF2_TEXT_PATH, event->path));
    if (event->status != LO2_RING_COMPLETED)
        TRY(otf2_add_text(w, a->status, LO2_OTF2_TEXT_STATUS, event->status));
    if (event->traits)
        TRY(otf2_add_text(w, a->traits, LO2_OTF2_TEXT_TRAITS, event->traits));
    if (event->inferred)
        TRY(otf2_add_text(w, a->inferred, LO2_OTF2_TEXT_INFERRED, event->inferred));
    if (event->worker_tid != NONE && event->worker_tid)
        otf2_add_uint64(w, a->worker, event->worker_tid);
    if (event->waker_tid != NONE) /* 0: an interrupt on an idle CPU */
        otf2_add_uint64(w, a->waker, event->waker_tid);
    add_duration(w, a->queued, event->queued_ns);
    add_duration(w, a->executing, event->executing_ns);
    add_duration(w, a->waiting, event->waiting_ns);
    add_duration(w, a->work_run_queue, event->run_queue_ns);
    add_duration(w, a->work_blocked, event->blocked_ns);
    if (has_result(event))
        otf2_add_int32(w, a->result, event->result);
    else if (event->status == LO2_RING_SILENT)
        add_unseen_end(w, earliest);
    else
        otf2_add_uint8(w, a->in_flight, 1);
    if (event->error)
        otf2_add_uint32(w, a->error, (uint32_t)event->error);
    if (event->culprit)
        otf2_add_uint64(w, a->culprit, event->culprit);
    return otf2_add_cache(w, event->cache, event->missed_pages, event->ahead_pages);
}

static int write_end(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, const ring_event *event,
                     const open_request *r)
{
    bool no_bytes = otf2_mode_of(w, event->opcode) == w->config.values.mode_flush || event->bytes < 0;
    TRY(add_end(w, event, r->since));
    if (event->kind == RING_EVENT_CANCELLED)
        EVENT(w, HANDLE, otf2_put_operation_cancelled, location, time, r->ref, event->id);
    else
        EVENT(w, HANDLE, otf2_put_operation_complete, location, time, r->ref,
              no_bytes ? UNDEFINED : (uint64_t)event->bytes, event->id);
    return 0;
}

int otf2_write_ring_event(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, const ring_event *event)
{
    open_request *r = open_request_find(&w->open, event->id);
    /* it was given up, or never began: OTF2 has no record about it */
    if (!r || (r->ref == NONE && event->kind != RING_EVENT_BEGIN))
        return 0;
    if (event->kind == RING_EVENT_BEGIN) {
        r->ref = ring_handle(w, location, event->ring, r->handle);
        r->on_ring = r->handle == NONE;
        r->linked = r->previous != 0;
        r->since = time;
        return r->ref == NONE ? -1 : write_begin(w, location, time, event, r);
    }
    open_request request = *r;
    bool issues = !request.issued && event->status != LO2_RING_IN_FLIGHT;
    if (event->kind == RING_EVENT_ISSUED || issues) {
        r->issued = true;
        if (!request.issued)
            EVENT(w, HANDLE, otf2_put_operation_issued, location, time, request.ref, event->id);
    }
    if (event->kind == RING_EVENT_ISSUED) {
        r->since = time;
        return 0;
    }
    otf2_request_ended(w, event->id);
    if (event->status == LO2_RING_IN_FLIGHT) /* the trace ended first: no end to write */
        return 0;
    if (request.on_ring && request.handle != NONE) {
        uint32_t file = ring_handle(w, location, event->ring, request.handle);
        if (file == NONE)
            return -1;
        TRY(otf2_use(w, location, LO2_USED_HANDLE, file));
        otf2_add_ref(w, w->config.attributes.ring_handle, w->config.values.type_handle, file);
    }
    if (!request.linked && request.previous)
        otf2_add_uint64(w, w->config.attributes.previous, request.previous);
    return write_end(w, location, time, event, &request);
}

int otf2_write_waiting_ring_event(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, const ring_event *event)
{
    open_request *r = open_request_find(&w->open, event->id);
    if (r)
        r->nr_waiting--;
    TRY(otf2_write_ring_event(w, location, time, event));
    r = open_request_find(&w->open, event->id);
    if (r && r->given_up && !r->nr_waiting)
        otf2_request_ended(w, event->id);
    return 0;
}
