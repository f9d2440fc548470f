/* Locations, references and waiting handle events of the OTF2 event loop. */
#include "otf2_writer.h"

int otf2_fail(lo2_otf2_writer *w, const char *call, int code)
{
    w->view.failed = call;
    w->view.error_code = code;
    return -1;
}

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
        otf2_fail(w, "malloc", 0);
        return NULL;
    }
    w->locations_room = room;
    void *writer = w->get_evt_writer(w->config.archive, id);
    if (!writer) {
        otf2_fail(w, "OTF2_Archive_GetEvtWriter", 0);
        return NULL;
    }
    w->view.locations = w->locations;
    w->view.nr_locations++;
    w->locations[id] = (lo2_otf2_location){.writer = writer, .kind = kind, .key = key, .pid = NONE, .tid = NONE,
                                           .open_region = NONE, .handle = NONE, .waiting = NONE, .waiting_last = NONE};
    return &w->locations[id];
}

lo2_otf2_location *otf2_location_of_task(lo2_otf2_writer *w, uint32_t task)
{
    if (__builtin_expect(task < w->tasks_room, 1) && w->location_by_task[task] != NONE)
        return &w->locations[w->location_by_task[task]];
    if (task == NONE || !grow_filled((void **)&w->location_by_task, &w->tasks_room, task + 1, sizeof(uint32_t))) {
        otf2_fail(w, task == NONE ? "no task" : "malloc", 0);
        return NULL;
    }
    lo2_otf2_location *location = location_new(w, LO2_OTF2_TASK, task);
    if (location)
        w->location_by_task[task] = (uint32_t)(location - w->locations);
    return location;
}

lo2_otf2_location *otf2_location_of_device(lo2_otf2_writer *w, uint32_t device)
{
    for (size_t i = 0; i < w->nr_devices; i++)
        if (w->locations[w->devices[i]].key == device)
            return &w->locations[w->devices[i]];
    if (!grow((void **)&w->devices, &w->devices_room, w->nr_devices + 1, sizeof *w->devices)) {
        otf2_fail(w, "malloc", 0);
        return NULL;
    }
    lo2_otf2_location *location = location_new(w, LO2_OTF2_DEVICE, device);
    if (location) {
        location->handle = lo2_otf2_new_handle(w);
        w->devices[w->nr_devices++] = (uint64_t)(location - w->locations);
    }
    return location;
}

uint64_t otf2_advance(lo2_otf2_writer *w, lo2_otf2_location *location, int64_t time)
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

lo2_otf2_handle *otf2_handle_at(lo2_otf2_writer *w, uint32_t handle)
{
    if (__builtin_expect(handle >= w->view.nr_handles, 0)) {
        uint32_t room = w->view.nr_handles;
        if (!grow_filled((void **)&w->handles, &room, handle + 1, sizeof *w->handles)) {
            otf2_fail(w, "malloc", 0);
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

uint32_t otf2_region_of(lo2_otf2_writer *w, uint16_t call)
{
    if (w->regions[call] == NONE)
        w->regions[call] = w->view.nr_regions++;
    return w->regions[call];
}

uint32_t otf2_string_of(lo2_otf2_writer *w, uint8_t operation, uint16_t flags)
{
    uint32_t *ref = &w->strings[(operation & 7) << 5 | (flags & 31)];
    if (*ref == NONE)
        *ref = w->config.first_string + w->view.nr_strings++;
    return *ref;
}

/* sync(2) acts on no handle: one stands for all, per process. */
uint32_t otf2_sync_handle(lo2_otf2_writer *w, lo2_otf2_location *location)
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

int otf2_wait_for_time(lo2_otf2_writer *w, const lo2_handle_event_columns *e, uint32_t row)
{
    lo2_otf2_location *location = otf2_location_of_task(w, e->task[row]);
    if (!location || !otf2_handle_at(w, e->handle[row]))
        return -1;
    uint32_t index = w->waiting_free;
    if (index != NONE) {
        w->waiting_free = w->waiting[index].next;
    } else {
        size_t room = w->waiting_room;
        if (!grow((void **)&w->waiting, &room, w->nr_waiting + 1u, sizeof *w->waiting))
            return otf2_fail(w, "malloc", 0);
        w->waiting_room = (uint32_t)room;
        index = w->nr_waiting++;
    }
    int64_t time = e->time_ns[row];
    w->waiting[index] = (waiting_event){.time = time < 0 ? 0 : (uint64_t)time, .handle = e->handle[row], .next = NONE,
                                        .flags = e->flags[row], .sets_flags = e->kind[row] == 1};
    if (location->waiting == NONE)
        location->waiting = index;
    else
        w->waiting[location->waiting_last].next = index;
    location->waiting_last = index;
    return 0;
}

int otf2_destroy(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint32_t handle)
{
    lo2_otf2_handle *h = otf2_handle_at(w, handle);
    if (!h)
        return -1;
    if (h->state & LO2_OTF2_DESTROYED)
        return 0;
    h->state |= LO2_OTF2_DESTROYED;
    OTF2(w, destroy_handle, location->writer, NULL, time, h->ref);
    return 0;
}

static int set_flags(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, const waiting_event *event)
{
    lo2_otf2_handle *h = otf2_handle_at(w, event->handle);
    if (!h)
        return -1;
    uint32_t creation, status, bit = w->config.values.close_on_exec;
    uint8_t access;
    lo2_otf2_open_flags(w, event->flags, &access, &creation, &status);
    /* F_SETFL leaves close-on-exec, which is F_SETFD's. */
    h->status = (status & ~bit) | (h->state & LO2_OTF2_STATUS_KNOWN ? h->status & bit : 0);
    OTF2(w, change_status_flags, location->writer, NULL, time, h->ref, h->status);
    return 0;
}

int otf2_release_waiting(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t until)
{
    while (location->waiting != NONE && w->waiting[location->waiting].time <= until) {
        uint32_t index = location->waiting;
        waiting_event event = w->waiting[index];
        location->waiting = event.next;
        w->waiting[index].next = w->waiting_free;
        w->waiting_free = index;
        /* Before the last event here only by the delay of its report: not worth a count. */
        uint64_t time = event.time > location->last_time ? event.time : location->last_time;
        time = otf2_advance(w, location, (int64_t)time);
        TRY(event.sets_flags ? set_flags(w, location, time, &event) : otf2_destroy(w, location, time, event.handle));
    }
    return 0;
}
