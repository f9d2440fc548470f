/*
 * Batches in, OTF2 events out.
 *
 * A location per thread: each call is Enter .. Leave of its region. Between the two, at the entry's time, the
 * IoOperationBegin of calls that transfer or flush; at the exit's time what the call did: handles destroyed on its
 * way, Complete, handle created, duplicated, destroyed, moved. A call in flight has no Complete; its region is left
 * when the thread's next call begins, or at the end.
 *
 * A location per block device: begin, issued, complete or cancelled of each request, in the engine's order.
 *
 * Handle events (close-on-exec, close_range, dup2's target) carry their own time, which may lie inside a call that
 * becomes a row only later (execve): each waits on its location for the first row that ends after it.
 *
 * OTF2 refuses a time before the location's last one (error 78) and drops the event. The engine's order rules that
 * out; should it happen all the same, the event is moved to the last time and counted.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "all.h"

#define UNKNOWN INT64_MIN
#define NONE UINT32_MAX
#define UNDEFINED UINT64_MAX /* OTF2_UNDEFINED_UINT64: bytes nobody knows */
#define NR_STRINGS 256       /* 8 operations, 5 flag bits */

enum { F_SETFL_CMD = 4, F_DUPFD_CMD = 0, F_DUPFD_CLOEXEC_CMD = 1030 }; /* asm-generic/fcntl.h, linux/fcntl.h */

/* Prototypes as in OTF2 3's headers: OTF2_EvtWriter.h, OTF2_Archive.h, OTF2_AttributeList.h. */
typedef int (*plain_fn)(void *, void *, uint64_t, uint32_t);
typedef int (*create_fn)(void *, void *, uint64_t, uint32_t, uint8_t, uint32_t, uint32_t);
typedef int (*duplicate_fn)(void *, void *, uint64_t, uint32_t, uint32_t, uint32_t);
typedef int (*seek_fn)(void *, void *, uint64_t, uint32_t, int64_t, uint8_t, uint64_t);
typedef int (*status_fn)(void *, void *, uint64_t, uint32_t, uint32_t);
typedef int (*begin_fn)(void *, void *, uint64_t, uint32_t, uint8_t, uint32_t, uint64_t, uint64_t);
typedef int (*match_fn)(void *, void *, uint64_t, uint32_t, uint64_t);
typedef int (*complete_fn)(void *, void *, uint64_t, uint32_t, uint64_t, uint64_t);
typedef void *(*get_writer_fn)(void *, uint64_t);
typedef int (*close_writer_fn)(void *, void *);
typedef int (*count_fn)(void *, uint64_t *);
typedef void *(*list_new_fn)(void);
typedef int (*list_delete_fn)(void *);
typedef int (*add_uint8_fn)(void *, uint32_t, uint8_t);
typedef int (*add_uint32_fn)(void *, uint32_t, uint32_t);
typedef int (*add_uint64_fn)(void *, uint32_t, uint64_t);

typedef struct { uint64_t time; uint32_t handle, next; } waiting_event;

struct lo2_otf2_writer {
    lo2_otf2_config config;
    get_writer_fn get_evt_writer;
    close_writer_fn close_evt_writer;
    count_fn get_number_of_events;
    plain_fn enter, leave, destroy_handle;
    create_fn create_handle;
    duplicate_fn duplicate_handle;
    seek_fn seek;
    status_fn change_status_flags;
    begin_fn operation_begin;
    match_fn operation_issued, operation_cancelled;
    complete_fn operation_complete;
    list_delete_fn list_delete;
    add_uint8_fn add_uint8;
    add_uint32_fn add_uint32, add_string;
    add_uint64_fn add_uint64;

    void *list; /* OTF2 empties it with each event written */
    lo2_otf2_location *locations;
    uint64_t locations_room;
    uint32_t *location_by_task; /* location id, NONE */
    uint32_t tasks_room;
    lo2_otf2_handle *handles;
    uint32_t *regions;
    uint32_t strings[NR_STRINGS];
    waiting_event *waiting;
    uint32_t nr_waiting, waiting_room, waiting_free;
    lo2_otf2_view view;
};

static int fail(lo2_otf2_writer *w, const char *call, int code)
{
    w->view.failed = call;
    w->view.error_code = code;
    return -1;
}

/* Calls libotf2 and leaves the function if it refuses. */
#define OTF2(w, function, ...)                                        \
    do {                                                              \
        int code_ = (w)->function(__VA_ARGS__);                       \
        if (__builtin_expect(code_ != 0, 0))                          \
            return fail((w), #function, code_);                       \
    } while (0)
#define TRY(expression)                                               \
    do {                                                              \
        if (__builtin_expect((expression) != 0, 0))                   \
            return -1;                                                \
    } while (0)

static bool grow(void **at, size_t *room, size_t need, size_t element)
{
    if (need <= *room)
        return true;
    size_t more = *room ? *room * 2 : 64;
    if (more < need)
        more = need;
    void *fresh = realloc(*at, more * element);
    if (!fresh)
        return false;
    *at = fresh;
    *room = more;
    return true;
}

static bool grow_filled(void **at, uint32_t *room, uint32_t need, size_t element)
{
    size_t wide = *room, before = wide;
    if (!grow(at, &wide, need, element))
        return false;
    memset((char *)*at + before * element, 0xff, (wide - before) * element);
    *room = (uint32_t)wide;
    return true;
}

/* ---- locations ---- */

static lo2_otf2_location *location_new(lo2_otf2_writer *w, uint8_t kind, uint32_t key)
{
    size_t room = w->locations_room;
    uint64_t id = w->view.nr_locations;
    if (!grow((void **)&w->locations, &room, id + 1, sizeof *w->locations)) {
        fail(w, "malloc", 0);
        return NULL;
    }
    w->locations_room = room;
    void *writer = w->get_evt_writer(w->config.archive, id);
    if (!writer) {
        fail(w, "OTF2_Archive_GetEvtWriter", 0);
        return NULL;
    }
    w->view.locations = w->locations;
    w->view.nr_locations++;
    w->locations[id] = (lo2_otf2_location){.writer = writer, .kind = kind, .key = key, .pid = NONE, .tid = NONE,
                                           .open_region = NONE, .handle = NONE, .waiting = NONE, .waiting_last = NONE};
    return &w->locations[id];
}

static lo2_otf2_location *location_of_task(lo2_otf2_writer *w, uint32_t task)
{
    if (__builtin_expect(task < w->tasks_room, 1) && w->location_by_task[task] != NONE)
        return &w->locations[w->location_by_task[task]];
    if (task == NONE || !grow_filled((void **)&w->location_by_task, &w->tasks_room, task + 1, sizeof(uint32_t))) {
        fail(w, task == NONE ? "no task" : "malloc", 0);
        return NULL;
    }
    lo2_otf2_location *location = location_new(w, LO2_OTF2_TASK, task);
    if (location)
        w->location_by_task[task] = (uint32_t)(location - w->locations);
    return location;
}

static lo2_otf2_location *location_of_device(lo2_otf2_writer *w, uint32_t device)
{
    for (uint64_t i = 0; i < w->view.nr_locations; i++)
        if (w->locations[i].kind == LO2_OTF2_DEVICE && w->locations[i].key == device)
            return &w->locations[i];
    lo2_otf2_location *location = location_new(w, LO2_OTF2_DEVICE, device);
    if (location)
        location->handle = lo2_otf2_new_handle(w);
    return location;
}

/* The time of the next event there: never before the last one. */
static uint64_t advance(lo2_otf2_writer *w, lo2_otf2_location *location, int64_t time)
{
    uint64_t at = (uint64_t)time;
    if (__builtin_expect(time < 0 || at < location->last_time, 0)) {
        at = location->last_time;
        w->view.nr_clamped++;
    }
    location->last_time = at;
    if ((int64_t)at < w->view.first_time_ns)
        w->view.first_time_ns = (int64_t)at;
    if ((int64_t)at > w->view.last_time_ns)
        w->view.last_time_ns = (int64_t)at;
    return at;
}

/* ---- references ---- */

uint32_t lo2_otf2_new_handle(lo2_otf2_writer *w)
{
    return w->view.nr_handle_refs++;
}

static lo2_otf2_handle *handle_at(lo2_otf2_writer *w, uint32_t handle)
{
    if (__builtin_expect(handle >= w->view.nr_handles, 0)) {
        uint32_t room = w->view.nr_handles;
        if (!grow_filled((void **)&w->handles, &room, handle + 1, sizeof *w->handles)) {
            fail(w, "malloc", 0);
            return NULL;
        }
        for (uint32_t i = w->view.nr_handles; i < room; i++)
            w->handles[i] = (lo2_otf2_handle){.ref = NONE};
        w->view.handles = w->handles;
        w->view.nr_handles = room;
    }
    lo2_otf2_handle *h = &w->handles[handle];
    if (h->ref == NONE)
        h->ref = lo2_otf2_new_handle(w);
    return h;
}

static uint32_t region_of(lo2_otf2_writer *w, uint16_t call)
{
    if (w->regions[call] == NONE)
        w->regions[call] = w->view.nr_regions++;
    return w->regions[call];
}

static uint32_t string_of(lo2_otf2_writer *w, uint8_t operation, uint16_t flags)
{
    uint32_t *ref = &w->strings[(operation & 7) << 5 | (flags & 31)];
    if (*ref == NONE)
        *ref = w->config.first_string + w->view.nr_strings++;
    return *ref;
}

/* sync(2) acts on no handle: one stands for all, per process. */
static uint32_t sync_handle(lo2_otf2_writer *w, lo2_otf2_location *location)
{
    if (location->handle != NONE)
        return location->handle;
    for (uint64_t i = 0; i < w->view.nr_locations && location->handle == NONE; i++)
        if (w->locations[i].kind == LO2_OTF2_TASK && w->locations[i].pid == location->pid)
            location->handle = w->locations[i].handle;
    if (location->handle == NONE)
        location->handle = lo2_otf2_new_handle(w);
    return location->handle;
}

void lo2_otf2_open_flags(const lo2_otf2_writer *w, uint32_t flags, uint8_t *access, uint32_t *creation, uint32_t *status)
{
    const lo2_otf2_values *v = &w->config.values;
    /* The two low bits are the access mode on every machine; 3 is for ioctl only and gets the widest. */
    *access = (flags & 3) == 0 ? v->access_read_only : (flags & 3) == 1 ? v->access_write_only : v->access_read_write;
    *creation = *status = 0;
    for (uint32_t i = 0; i < w->config.nr_flags; i++) {
        const lo2_otf2_flag *f = &w->config.flags[i];
        if ((flags & f->mask) == f->value) {
            *creation |= f->creation;
            *status |= f->status;
        }
    }
}

/* ---- handle events that wait ---- */

static int wait_for_time(lo2_otf2_writer *w, const lo2_handle_event_columns *e, uint32_t row)
{
    if (e->kind[row] != 0)
        return 0;
    lo2_otf2_location *location = location_of_task(w, e->task[row]);
    if (!location || !handle_at(w, e->handle[row]))
        return -1;
    uint32_t index = w->waiting_free;
    if (index != NONE) {
        w->waiting_free = w->waiting[index].next;
    } else {
        size_t room = w->waiting_room;
        if (!grow((void **)&w->waiting, &room, w->nr_waiting + 1u, sizeof *w->waiting))
            return fail(w, "malloc", 0);
        w->waiting_room = (uint32_t)room;
        index = w->nr_waiting++;
    }
    int64_t time = e->time_ns[row];
    w->waiting[index] = (waiting_event){.time = time < 0 ? 0 : (uint64_t)time, .handle = e->handle[row], .next = NONE};
    if (location->waiting == NONE)
        location->waiting = index;
    else
        w->waiting[location->waiting_last].next = index;
    location->waiting_last = index;
    return 0;
}

static int destroy(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint32_t handle)
{
    lo2_otf2_handle *h = handle_at(w, handle);
    if (!h)
        return -1;
    if (h->state & LO2_OTF2_DESTROYED)
        return 0;
    h->state |= LO2_OTF2_DESTROYED;
    OTF2(w, destroy_handle, location->writer, NULL, time, h->ref);
    return 0;
}

static int release_waiting(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t until)
{
    while (location->waiting != NONE && w->waiting[location->waiting].time <= until) {
        uint32_t index = location->waiting;
        waiting_event event = w->waiting[index];
        location->waiting = event.next;
        w->waiting[index].next = w->waiting_free;
        w->waiting_free = index;
        /* Before the last event here only by the delay of its report: not worth a count. */
        uint64_t time = event.time > location->last_time ? event.time : location->last_time;
        TRY(destroy(w, location, advance(w, location, (int64_t)time), event.handle));
    }
    return 0;
}

/* ---- system calls ---- */

static void *error_list(lo2_otf2_writer *w, int error)
{
    if (__builtin_expect(error == 0, 1))
        return NULL;
    w->add_uint32(w->list, w->config.attributes.error, (uint32_t)error);
    return w->list;
}

typedef struct { uint32_t handle; uint64_t id; uint8_t mode; } transfer;

/* What the row reads, writes or flushes: up to two. */
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
            t[(*count)++] = (transfer){sync_handle(w, location), o->id[row], mode};
            return 0;
        }
        break;
    default: return 0;
    }
    for (int i = 0; i < 2; i++) {
        if (handles[i] == NONE)
            continue;
        lo2_otf2_handle *h = handle_at(w, handles[i]);
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
        void *list = NULL;
        /* A copy's offset argument is the read side's. */
        if (o->offset_source[row] && o->offset_bytes[row] >= 0 && t[i].id == o->id[row]) {
            list = w->list;
            OTF2(w, add_uint64, list, w->config.attributes.offset, (uint64_t)o->offset_bytes[row]);
        }
        OTF2(w, operation_begin, location->writer, list, time, t[i].handle, t[i].mode, w->config.values.blocking, bytes,
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
        OTF2(w, operation_complete, location->writer, error_list(w, o->error[row]), time, t[i].handle,
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
    lo2_otf2_handle *h = handle_at(w, o->handle[row]);
    if (!h)
        return -1;
    uint8_t access = w->config.values.access_read_write; /* excludes nothing; the attribute says it is not known */
    uint32_t creation = 0, status = 0;
    void *list = NULL;
    if (call->has_flags || call->fixed_flags >= 0) {
        uint32_t flags = call->has_flags ? o->flags[row] : (uint32_t)call->fixed_flags;
        lo2_otf2_open_flags(w, flags, &access, &creation, &status);
        h->status = status;
        h->state |= LO2_OTF2_STATUS_KNOWN;
    } else {
        list = w->list;
        OTF2(w, add_uint8, list, w->config.attributes.access_unknown, 1);
    }
    h->state |= LO2_OTF2_CREATED;
    OTF2(w, create_handle, location->writer, list, time, h->ref, access, creation, status);
    return 0;
}

/* The new handle shares the description's flags, as far as they are known, but never close-on-exec. */
static int duplicated(lo2_otf2_writer *w, lo2_otf2_location *location, const lo2_operation_columns *o, uint32_t row,
                      bool close_on_exec, uint64_t time)
{
    if (o->handle[row] == NONE || o->handle2[row] == NONE)
        return 0;
    /* The parent first: its reference has to be the lower one, the definition to come before. */
    if (!handle_at(w, o->handle[row]) || !handle_at(w, o->handle2[row]))
        return -1;
    const lo2_otf2_handle *old = &w->handles[o->handle[row]];
    lo2_otf2_handle *fresh = &w->handles[o->handle2[row]];
    uint32_t bit = w->config.values.close_on_exec;
    fresh->status = ((old->state & LO2_OTF2_STATUS_KNOWN ? old->status : 0) & ~bit) | (close_on_exec ? bit : 0);
    fresh->state |= LO2_OTF2_CREATED | (old->state & LO2_OTF2_STATUS_KNOWN);
    OTF2(w, duplicate_handle, location->writer, NULL, time, old->ref, fresh->ref, fresh->status);
    return 0;
}

static int status_changed(lo2_otf2_writer *w, lo2_otf2_location *location, const lo2_operation_columns *o, uint32_t row,
                          uint64_t time)
{
    if (o->handle[row] == NONE || o->bytes_request[row] == UNKNOWN)
        return 0;
    lo2_otf2_handle *h = handle_at(w, o->handle[row]);
    if (!h)
        return -1;
    uint32_t creation, status, bit = w->config.values.close_on_exec;
    uint8_t access;
    lo2_otf2_open_flags(w, (uint32_t)o->bytes_request[row], &access, &creation, &status);
    /* F_SETFL leaves close-on-exec, which is F_SETFD's. */
    h->status = (status & ~bit) | (h->state & LO2_OTF2_STATUS_KNOWN ? h->status & bit : 0);
    OTF2(w, change_status_flags, location->writer, NULL, time, h->ref, h->status);
    return 0;
}

static int effects(lo2_otf2_writer *w, lo2_otf2_location *location, const lo2_operation_columns *o, uint32_t row,
                   uint64_t time)
{
    uint8_t kind = w->config.calls[o->call[row]].kind;
    uint32_t flags = o->flags[row];
    if (kind == LO2_CALL_CLOSE)
        return o->closes[row] && o->handle[row] != NONE ? destroy(w, location, time, o->handle[row]) : 0;
    if (o->error[row])
        return 0;
    switch (kind) {
    case LO2_CALL_OPEN: return created(w, location, o, row, time);
    case LO2_CALL_SEEK: {
        if (o->handle[row] == NONE || flags > 4 || o->offset_bytes[row] == UNKNOWN)
            return 0;
        lo2_otf2_handle *h = handle_at(w, o->handle[row]);
        if (!h)
            return -1;
        OTF2(w, seek, location->writer, NULL, time, h->ref, o->offset_bytes[row], w->config.values.whence[flags],
             (uint64_t)o->result[row]);
        return 0;
    }
    case LO2_CALL_DUP: return duplicated(w, location, o, row, false, time);
    case LO2_CALL_DUP_TO: return duplicated(w, location, o, row, (flags & w->config.close_on_exec) != 0, time);
    case LO2_CALL_FCNTL:
        if (flags == F_SETFL_CMD)
            return status_changed(w, location, o, row, time);
        return duplicated(w, location, o, row, flags == F_DUPFD_CLOEXEC_CMD, time);
    default: return 0;
    }
}

/* A call in flight ends for its region when the thread does something else: not a measured time, and marked so. */
static int leave_open_region(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time)
{
    uint32_t region = location->open_region;
    location->open_region = NONE;
    OTF2(w, add_uint8, w->list, w->config.attributes.in_flight, 1);
    OTF2(w, leave, location->writer, w->list, time, region);
    return 0;
}

static int write_operation(lo2_otf2_writer *w, const lo2_operation_columns *o, uint32_t row)
{
    lo2_otf2_location *location = location_of_task(w, o->task[row]);
    if (!location)
        return -1;
    if (o->call[row] >= w->config.nr_calls)
        return fail(w, "unknown call", 0);
    if (location->pid == NONE) {
        location->pid = o->pid[row];
        location->tid = o->tid[row];
    }
    int64_t begin = o->begin_time_ns[row], end = o->end_time_ns[row];
    if (__builtin_expect(location->waiting != NONE, 0) && begin > 0)
        TRY(release_waiting(w, location, (uint64_t)begin - 1));
    uint64_t time = advance(w, location, begin);
    if (__builtin_expect(location->open_region != NONE, 0))
        TRY(leave_open_region(w, location, time));
    uint32_t region = region_of(w, o->call[row]);
    transfer t[2];
    int count;
    OTF2(w, enter, location->writer, NULL, time, region);
    TRY(transfers_of(w, location, o, row, t, &count));
    TRY(begin_transfers(w, location, o, row, t, count, time));
    if (__builtin_expect(end == UNKNOWN, 0)) {
        location->open_region = region;
        return 0;
    }
    if (__builtin_expect(location->waiting != NONE, 0))
        TRY(release_waiting(w, location, end < 0 ? 0 : (uint64_t)end));
    time = advance(w, location, end);
    if (__builtin_expect(o->status[row] != 0, 0)) {
        location->open_region = region;
        return leave_open_region(w, location, time);
    }
    TRY(complete_transfers(w, location, o, row, t, count, time));
    TRY(effects(w, location, o, row, time));
    OTF2(w, leave, location->writer, error_list(w, o->error[row]), time, region);
    return 0;
}

/* ---- block requests ---- */

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
    OTF2(w, add_string, w->list, a->operation, string_of(w, e->operation[row], e->flags[row]));
    OTF2(w, operation_begin, location->writer, w->list, time, location->handle, mode, v->non_blocking, bytes, e->id[row]);
    return 0;
}

static int write_request_event(lo2_otf2_writer *w, const lo2_request_event_columns *e, uint32_t row)
{
    lo2_otf2_location *location = location_of_device(w, e->device[row]);
    if (!location)
        return -1;
    uint64_t time = advance(w, location, e->time_ns[row]);
    switch (e->kind[row]) {
    case 0: return begin_request(w, location, e, row, time);
    case 1: OTF2(w, operation_issued, location->writer, NULL, time, location->handle, e->id[row]); return 0;
    case 2: {
        bool no_bytes = e->operation[row] == LO2_RQ_FLUSH || e->error[row] || e->bytes[row] == UNKNOWN;
        OTF2(w, operation_complete, location->writer, error_list(w, e->error[row]), time, location->handle,
             no_bytes ? UNDEFINED : (uint64_t)e->bytes[row], e->id[row]);
        return 0;
    }
    case 3: OTF2(w, operation_cancelled, location->writer, NULL, time, location->handle, e->id[row]); return 0;
    default: return fail(w, "unknown request event", 0);
    }
}

/* ---- the surface ---- */

static bool bind(lo2_otf2_writer *w)
{
    const lo2_otf2_functions *f = &w->config.functions;
    w->get_evt_writer = (get_writer_fn)f->get_evt_writer;
    w->close_evt_writer = (close_writer_fn)f->close_evt_writer;
    w->get_number_of_events = (count_fn)f->get_number_of_events;
    w->enter = (plain_fn)f->enter;
    w->leave = (plain_fn)f->leave;
    w->destroy_handle = (plain_fn)f->destroy_handle;
    w->create_handle = (create_fn)f->create_handle;
    w->duplicate_handle = (duplicate_fn)f->duplicate_handle;
    w->seek = (seek_fn)f->seek;
    w->change_status_flags = (status_fn)f->change_status_flags;
    w->operation_begin = (begin_fn)f->operation_begin;
    w->operation_issued = (match_fn)f->operation_issued;
    w->operation_complete = (complete_fn)f->operation_complete;
    w->operation_cancelled = (match_fn)f->operation_cancelled;
    w->list_delete = (list_delete_fn)f->list_delete;
    w->add_uint8 = (add_uint8_fn)f->list_add_uint8;
    w->add_uint32 = (add_uint32_fn)f->list_add_uint32;
    w->add_uint64 = (add_uint64_fn)f->list_add_uint64;
    w->add_string = (add_uint32_fn)f->list_add_string;
    w->list = ((list_new_fn)f->list_new)();
    return w->list != NULL;
}

lo2_otf2_writer *lo2_otf2_new(const lo2_otf2_config *config)
{
    lo2_otf2_writer *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->config = *config;
    w->waiting_free = NONE;
    w->view.first_time_ns = INT64_MAX;
    w->view.last_time_ns = INT64_MIN;
    w->regions = malloc((config->nr_calls + 1u) * sizeof *w->regions);
    if (!w->regions || !bind(w)) {
        lo2_otf2_free(w);
        return NULL;
    }
    memset(w->regions, 0xff, (config->nr_calls + 1u) * sizeof *w->regions);
    memset(w->strings, 0xff, sizeof w->strings);
    w->view.regions = w->regions;
    w->view.strings = w->strings;
    return w;
}

int lo2_otf2_write(lo2_otf2_writer *w, const lo2_batch *b)
{
    uint32_t event = 0;
    for (uint32_t row = 0; row < b->nr_operations; row++) {
        /* What the call itself destroyed is ordered behind its row: + 1. */
        while (event < b->nr_handle_events && b->handle_events.before[event] <= b->first_operation + row + 1)
            TRY(wait_for_time(w, &b->handle_events, event++));
        TRY(write_operation(w, &b->operations, row));
    }
    while (event < b->nr_handle_events)
        TRY(wait_for_time(w, &b->handle_events, event++));
    for (uint32_t row = 0; w->config.block_records && row < b->nr_request_events; row++)
        TRY(write_request_event(w, &b->request_events, row));
    return 0;
}

int lo2_otf2_end_location(lo2_otf2_writer *w, uint64_t id, int64_t end_ns)
{
    if (id >= w->view.nr_locations)
        return fail(w, "unknown location", 0);
    lo2_otf2_location *location = &w->locations[id];
    TRY(release_waiting(w, location, UINT64_MAX));
    if (location->open_region == NONE)
        return 0;
    int64_t last = (int64_t)location->last_time;
    return leave_open_region(w, location, advance(w, location, end_ns > last ? end_ns : last));
}

int lo2_otf2_finish(lo2_otf2_writer *w)
{
    for (uint64_t id = w->view.nr_locations; id-- > 0;) {
        lo2_otf2_location *location = &w->locations[id];
        void *writer = location->writer;
        if (!writer)
            continue;
        OTF2(w, get_number_of_events, writer, &location->nr_events);
        location->writer = NULL;
        OTF2(w, close_evt_writer, w->config.archive, writer);
    }
    return 0;
}

const lo2_otf2_view *lo2_otf2_state(lo2_otf2_writer *w)
{
    return &w->view;
}

void lo2_otf2_free(lo2_otf2_writer *w)
{
    if (!w)
        return;
    if (w->list)
        w->list_delete(w->list);
    free(w->locations);
    free(w->location_by_task);
    free(w->handles);
    free(w->regions);
    free(w->waiting);
    free(w);
}
