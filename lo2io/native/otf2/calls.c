/* System calls as OTF2 events: Enter, effects, Leave. The head of otf2/writer.c has the layout. */
#include "otf2/otf2_writer.h"

enum { F_DUPFD_CLOEXEC_CMD = 1030 }; /* linux/fcntl.h */

typedef struct { uint32_t handle; uint64_t id; uint8_t mode; } transfer;

/* The operations of the row, up to two. */
static int transfers_of(lo2_otf2_writer *w, lo2_otf2_location *location, const lo2_operation_columns *o, uint32_t row,
                        transfer *t, int *count)
{
    const lo2_otf2_values *v = &w->config.values;
    uint8_t kind = w->config.calls[o->call[row]].kind;
    const uint32_t handles[2] = {o->handle[row], kind == LO2_CALL_COPY ? o->handle2[row] : NONE};
    uint8_t mode = v->mode_read;
    *count = 0;
    switch (kind) {
    case LO2_CALL_READ:
    case LO2_CALL_COPY: break;
    case LO2_CALL_WRITE: mode = v->mode_write; break;
    case LO2_CALL_SYNC:
        mode = v->mode_flush;
        if (handles[0] == NONE && o->fd[row] < 0 && o->error[row] == 0) {
            uint32_t all = otf2_sync_handle(w, location);
            t[(*count)++] = (transfer){all, o->id[row], mode};
            return all == NONE ? -1 : 0;
        }
        break;
    default: return 0;
    }
    for (int i = 0; i < 2; i++) {
        if (handles[i] == NONE)
            continue;
        lo2_otf2_handle *h = otf2_handle_at(w, handles[i]);
        if (!h)
            return -1;
        t[(*count)++] = (transfer){h->ref, o->id[row] + (uint64_t)i, i ? v->mode_write : mode};
    }
    return 0;
}

static int begin_transfers(lo2_otf2_writer *w, lo2_otf2_location *location, const lo2_operation_columns *o, uint32_t row,
                           const transfer *t, int count, uint64_t time)
{
    for (int i = 0; i < count; i++) {
        bool flush = t[i].mode == w->config.values.mode_flush;
        uint64_t bytes = flush || o->bytes_request[row] == UNKNOWN ? UNDEFINED : (uint64_t)o->bytes_request[row];
        /* In a copy, the offset argument is that of the read side. */
        if (o->offset_source[row] && o->offset_bytes[row] >= 0 && t[i].id == o->id[row]) {
            otf2_add_uint64(w, w->config.attributes.offset, (uint64_t)o->offset_bytes[row]);
        }
        EVENT(w, HANDLE, otf2_put_operation_begin, location, time, t[i].handle, t[i].mode, w->config.values.blocking, bytes,
             t[i].id);
    }
    return 0;
}

static int complete_transfers(lo2_otf2_writer *w, lo2_otf2_location *location, const lo2_operation_columns *o,
                              uint32_t row, const transfer *t, int count, uint64_t time)
{
    int64_t result = o->bytes_result[row];
    for (int i = 0; i < count; i++) {
        bool no_bytes = t[i].mode == w->config.values.mode_flush || o->error[row] || result == UNKNOWN;
        otf2_add_error(w, o->error[row]);
        TRY(otf2_add_cache(w, o->cache[row], o->cache_missed_pages[row], o->cache_ahead_pages[row]));
        EVENT(w, HANDLE, otf2_put_operation_complete, location, time, t[i].handle,
             no_bytes ? UNDEFINED : (uint64_t)result, t[i].id);
    }
    return 0;
}

static int created(lo2_otf2_writer *w, lo2_otf2_location *location, const lo2_operation_columns *o, uint32_t row,
                   uint64_t time)
{
    if (o->handle[row] == NONE)
        return 0;
    const lo2_otf2_call *call = &w->config.calls[o->call[row]];
    lo2_otf2_handle *h = otf2_handle_at(w, o->handle[row]);
    if (!h)
        return -1;
    uint8_t access = w->config.values.access_read_write; /* the widest; an attribute says that the mode is unknown */
    uint32_t creation = 0, status = 0;
    if (call->has_flags || call->fixed_flags >= 0) {
        uint32_t flags = call->has_flags ? o->flags[row] : (uint32_t)call->fixed_flags;
        lo2_otf2_open_flags(w, flags, &access, &creation, &status);
        h->status = (uint16_t)status;
        h->state |= LO2_OTF2_STATUS_KNOWN;
    } else {
        otf2_add_uint8(w, w->config.attributes.access_unknown, 1);
    }
    h->state |= LO2_OTF2_CREATED;
    EVENT(w, HANDLE, otf2_put_create_handle, location, time, h->ref, access, creation, status);
    return 0;
}

/* The new handle shares the known flags of the description, but not close-on-exec. */
static int duplicated(lo2_otf2_writer *w, lo2_otf2_location *location, const lo2_operation_columns *o, uint32_t row,
                      bool close_on_exec, uint64_t time)
{
    if (o->handle[row] == NONE || o->handle2[row] == NONE)
        return 0;
    /* Both first: a new handle may move the others. */
    if (!otf2_handle_at(w, o->handle[row]) || !otf2_handle_at(w, o->handle2[row]))
        return -1;
    const lo2_otf2_handle *old = &w->handles[o->handle[row]];
    lo2_otf2_handle *fresh = &w->handles[o->handle2[row]];
    uint32_t bit = w->config.values.close_on_exec;
    fresh->status = (uint16_t)(((old->state & LO2_OTF2_STATUS_KNOWN ? old->status : 0) & ~bit) | (close_on_exec ? bit : 0));
    fresh->state |= LO2_OTF2_CREATED | (old->state & LO2_OTF2_STATUS_KNOWN);
    TRY(otf2_use(w, location, LO2_USED_HANDLE, fresh->ref));
    EVENT(w, HANDLE, otf2_put_duplicate_handle, location, time, old->ref, fresh->ref, fresh->status);
    return 0;
}

static int effects(lo2_otf2_writer *w, lo2_otf2_location *location, const lo2_operation_columns *o, uint32_t row,
                   uint64_t time)
{
    uint8_t kind = w->config.calls[o->call[row]].kind;
    uint32_t flags = o->flags[row];
    if (kind == LO2_CALL_CLOSE)
        return o->closes[row] && o->handle[row] != NONE ? otf2_destroy(w, location, time, o->handle[row]) : 0;
    if (o->error[row])
        return 0;
    switch (kind) {
    case LO2_CALL_OPEN:
    case LO2_CALL_RING_SETUP: return created(w, location, o, row, time);
    case LO2_CALL_SEEK: {
        if (o->handle[row] == NONE || flags > 4 || o->offset_bytes[row] == UNKNOWN)
            return 0;
        lo2_otf2_handle *h = otf2_handle_at(w, o->handle[row]);
        if (!h)
            return -1;
        EVENT(w, HANDLE, otf2_put_seek, location, time, h->ref, o->offset_bytes[row], w->config.values.whence[flags],
             (uint64_t)o->result[row]);
        return 0;
    }
    case LO2_CALL_DUP: return duplicated(w, location, o, row, false, time);
    case LO2_CALL_DUP_TO: return duplicated(w, location, o, row, (flags & w->config.close_on_exec) != 0, time);
    case LO2_CALL_FCNTL: return duplicated(w, location, o, row, flags == F_DUPFD_CLOEXEC_CMD, time);
    default: return 0;
    }
}

/* The rows that may follow the call's own. An open that succeeded needs no path, for the file has a name. */
static uint8_t lacks_of(const lo2_otf2_writer *w, const lo2_operation_columns *o, uint32_t row)
{
    const lo2_otf2_call *call = &w->config.calls[o->call[row]];
    uint32_t nr_paths = call->kind == LO2_CALL_OPEN && !o->error[row] ? 0 : call->nr_paths;
    uint8_t lacks = (uint8_t)((1u << nr_paths) - 1u);
    int64_t begin = o->begin_time_ns[row], end = o->end_time_ns[row];
    bool slow = begin != UNKNOWN && end >= begin && otf2_between(begin, end) >= (uint64_t)w->config.slow_from_ns;
    return slow ? lacks | LACKS_STACK : lacks;
}

int otf2_write_operation(lo2_otf2_writer *w, const lo2_operation_columns *o, uint32_t row, const batch_counts *batch)
{
    if (o->call[row] >= w->config.nr_calls)
        return otf2_fail(w, "unknown call");
    const actor who = {o->task[row], o->process[row], o->pid[row], o->tid[row]};
    lo2_otf2_location *location = otf2_location_of(w, who, o->begin_time_ns[row]);
    if (!location)
        return -1;
    if (__builtin_expect(location->held != NONE, 0))
        TRY(otf2_leave_held(w, location));
    int64_t begin = o->begin_time_ns[row], end = o->end_time_ns[row];
    if (__builtin_expect(location->waiting != NONE, 0) && begin > 0)
        TRY(otf2_release_waiting(w, location, (uint64_t)begin - 1));
    uint64_t time = otf2_advance(w, location, begin);
    if (__builtin_expect(location->open_region != NONE, 0))
        TRY(otf2_leave_open_region(w, location, time));
    uint32_t ref = otf2_ref_of_call(w, location->life, o->call[row]);
    if (ref == NONE)
        return -1;
    transfer t[2];
    int count;
    TRY(otf2_enter(w, location, time, ref));
    location->open_region = ref;
    TRY(transfers_of(w, location, o, row, t, &count));
    TRY(begin_transfers(w, location, o, row, t, count, time));
    if (__builtin_expect(end == UNKNOWN, 0)) /* left at the thread's next event: that is no measured time */
        return 0;
    if (__builtin_expect(location->waiting != NONE, 0))
        TRY(otf2_release_waiting(w, location, end < 0 ? 0 : (uint64_t)end));
    time = otf2_advance(w, location, end);
    if (__builtin_expect(o->status[row] != 0, 0))
        return otf2_leave_open_region(w, location, time);
    if (__builtin_expect(location->off_cpu != NONE, 0))
        TRY(otf2_leave_off_cpu(w, location, time));
    TRY(complete_transfers(w, location, o, row, t, count, time));
    TRY(effects(w, location, o, row, time));
    location->open_region = NONE;
    told_call told;
    otf2_tell_call(w, o, row, &told);
    uint32_t process = location->process;
    uint8_t lacks = lacks_of(w, o, row);
    if (__builtin_expect(lacks || batch, 0)) {
        held_call call = {.told = told, .time = time, .location = (uint64_t)(location - w->locations), .ref = ref,
                          .path = {NONE, NONE}, .error = o->error[row], .lacks = lacks, .has_batch = batch != NULL};
        if (batch)
            call.batch = *batch;
        TRY(otf2_leave_call(w, location, &call));
    } else {
        otf2_add_error(w, o->error[row]);
        TRY(otf2_add_told(w, &told));
        TRY(otf2_leave(w, location, time, ref));
    }
    if (w->config.metrics)
        TRY(otf2_measure_operation(w, location, o, row));
    return __builtin_expect(batch != NULL, 0) ? otf2_measure_batch(w, process, batch, o->call[row], end) : 0;
}
