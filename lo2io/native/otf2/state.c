/* Locations, devices, handles and strings of the OTF2 event loop. */
#include "otf2/otf2_writer.h"

enum { MOST_CPUS = 0xffff };

bool otf2_grow(void **at, size_t *room, size_t need, size_t element)
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

bool otf2_grow_filled(void **at, uint32_t *room, uint32_t need, size_t element)
{
    size_t wide = *room, before = wide;
    if (!otf2_grow(at, &wide, need, element))
        return false;
    memset((char *)*at + before * element, 0xff, (wide - before) * element);
    *room = (uint32_t)wide;
    return true;
}

/* ---- locations ---- */

lo2_otf2_location *otf2_location_new(lo2_otf2_writer *w, uint8_t kind, uint32_t key)
{
    size_t room = w->locations_room;
    uint64_t id = w->view.nr_locations;
    if (!otf2_grow((void **)&w->locations, &room, id + 1, sizeof *w->locations)) {
        otf2_fail(w, "malloc");
        return NULL;
    }
    w->locations_room = room;
    event_file *file = otf2_open_events(w->config.files, id);
    if (!file) {
        otf2_fail(w, "malloc");
        return NULL;
    }
    w->view.locations = w->locations;
    w->view.nr_locations++;
    w->locations[id] = (lo2_otf2_location){.file = file, .kind = kind, .key = key, .user = NONE, .pid = NONE,
                                           .tid = NONE, .life = NONE, .curves = {NONE, NONE}, .open_region = NONE,
                                           .off_cpu = NONE, .metrics = NONE, .handle = NONE, .waiting = NONE,
                                           .waiting_last = NONE, .waiting_place = NONE, .held = NONE};
    memset(w->locations[id].last_used, 0xff, sizeof w->locations[id].last_used);
    return &w->locations[id];
}

int otf2_close_location(lo2_otf2_writer *w, lo2_otf2_location *location)
{
    event_file *file = location->file;
    if (!file)
        return 0;
    location->nr_events = file->nr_events;
    location->file = NULL;
    return otf2_close_events(w->config.files, file) ? 0 : otf2_fail(w, "writing events");
}

lo2_otf2_location *otf2_location_of_cpu(lo2_otf2_writer *w, uint32_t cpu)
{
    if (__builtin_expect(cpu < w->cpus_room, 1) && w->location_by_cpu[cpu] != NONE)
        return &w->locations[w->location_by_cpu[cpu]];
    if (cpu > MOST_CPUS) {
        otf2_fail(w, "no CPU");
        return NULL;
    }
    if (!otf2_grow_filled((void **)&w->location_by_cpu, &w->cpus_room, cpu + 1, sizeof *w->location_by_cpu)) {
        otf2_fail(w, "malloc");
        return NULL;
    }
    lo2_otf2_location *location = otf2_location_new(w, LO2_OTF2_CPU, cpu);
    if (location)
        w->location_by_cpu[cpu] = (uint32_t)(location - w->locations);
    return location;
}

lo2_otf2_device *otf2_device_at(lo2_otf2_writer *w, uint32_t number)
{
    size_t count = w->view.nr_devices;
    for (size_t i = 0; i < count; i++)
        if (w->devices[i].number == number)
            return &w->devices[i];
    if (!otf2_grow((void **)&w->devices, &w->devices_room, count + 1, sizeof *w->devices)) {
        otf2_fail(w, "malloc");
        return NULL;
    }
    w->devices[count] = (lo2_otf2_device){.number = number, .string = NONE, .meter = NONE, .location = UNDEFINED,
                                            .metrics_location = UNDEFINED};
    w->view.devices = w->devices;
    w->view.nr_devices++;
    return &w->devices[count];
}

lo2_otf2_location *otf2_location_of_device(lo2_otf2_writer *w, lo2_otf2_device *device)
{
    if (__builtin_expect(device->location != UNDEFINED, 1))
        return &w->locations[device->location];
    lo2_otf2_location *location = otf2_location_new(w, LO2_OTF2_DEVICE, device->number);
    if (location) {
        location->handle = lo2_otf2_new_handle(w);
        device->location = (uint64_t)(location - w->locations);
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

int lo2_otf2_name_handle(lo2_otf2_writer *w, uint32_t handle) { return otf2_handle_at(w, handle) ? 0 : -1; }

lo2_otf2_handle *otf2_handle_at(lo2_otf2_writer *w, uint32_t handle)
{
    if (__builtin_expect(handle >= w->view.nr_handles, 0)) {
        /* An eighth more at a time: of a trace with millions of opened files, these rows are the largest part in memory. */
        size_t room = (size_t)handle + handle / 8 + 64;
        lo2_otf2_handle *fresh = realloc(w->handles, room * sizeof *fresh);
        if (!fresh) {
            otf2_fail(w, "malloc");
            return NULL;
        }
        for (size_t i = w->view.nr_handles; i < room; i++)
            fresh[i] = (lo2_otf2_handle){.ref = NONE};
        w->view.handles = w->handles = fresh;
        w->view.nr_handles = (uint32_t)(room < UINT32_MAX ? room : UINT32_MAX);
    }
    lo2_otf2_handle *h = &w->handles[handle];
    if (h->ref == NONE)
        h->ref = lo2_otf2_new_handle(w);
    return h;
}

uint32_t otf2_string_of(lo2_otf2_writer *w, uint8_t operation, uint16_t flags)
{
    uint32_t *ref = &w->strings[(operation & 7) << 5 | (flags & 31)];
    if (*ref == NONE)
        *ref = w->config.first_string + w->view.nr_strings++;
    return *ref;
}

uint32_t otf2_string_of_device(lo2_otf2_writer *w, lo2_otf2_device *device)
{
    if (device->string == NONE)
        device->string = w->config.first_string + w->view.nr_strings++;
    return device->string;
}

/* sync(2) acts on no handle, so each process has one that stands for all. */
uint32_t otf2_sync_handle(lo2_otf2_writer *w, lo2_otf2_location *location)
{
    uint32_t *handle = &w->processes[location->process].handle;
    if (*handle == NONE)
        *handle = lo2_otf2_new_handle(w);
    return *handle;
}

void lo2_otf2_open_flags(const lo2_otf2_writer *w, uint32_t flags, uint8_t *access, uint32_t *creation, uint32_t *status)
{
    const lo2_otf2_values *v = &w->config.values;
    /* The two low bits are the access mode on every machine. 3 is for ioctl only, and gets the widest mode. */
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

int otf2_destroy(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint32_t handle)
{
    lo2_otf2_handle *h = otf2_handle_at(w, handle);
    if (!h)
        return -1;
    if (h->state & LO2_OTF2_DESTROYED)
        return 0;
    h->state |= LO2_OTF2_DESTROYED;
    EVENT(w, HANDLE, otf2_put_destroy_handle, location, time, h->ref);
    return 0;
}

/* ---- requests of rings that have begun and not ended, by id: open addressing, and a removal leaves no gap ---- */

static size_t home_of(const open_requests *map, uint64_t id)
{
    return (id * UINT64_C(0x9e3779b97f4a7c15)) >> 20 & (map->room - 1);
}

static size_t place_of(const open_requests *map, uint64_t id)
{
    size_t at = home_of(map, id);
    while (map->at[at].id && map->at[at].id != id)
        at = (at + 1) & (map->room - 1);
    return at;
}

static bool widen(open_requests *map)
{
    open_requests wide = {.room = map->room ? map->room * 2 : 64, .used = map->used};
    wide.at = calloc(wide.room, sizeof *wide.at);
    if (!wide.at)
        return false;
    for (size_t i = 0; i < map->room; i++)
        if (map->at[i].id)
            wide.at[place_of(&wide, map->at[i].id)] = map->at[i];
    free(map->at);
    *map = wide;
    return true;
}

open_request *open_request_find(open_requests *map, uint64_t id)
{
    if (!map->used)
        return NULL;
    open_request *found = &map->at[place_of(map, id)];
    return found->id ? found : NULL;
}

open_request *open_request_add(open_requests *map, uint64_t id)
{
    if (map->used * 2 >= map->room && !widen(map))
        return NULL;
    open_request *fresh = &map->at[place_of(map, id)];
    map->used += !fresh->id;
    *fresh = (open_request){.id = id, .handle = NONE, .ref = NONE};
    return fresh;
}

static void open_request_remove(open_requests *map, uint64_t id)
{
    open_request *found = open_request_find(map, id);
    if (!found)
        return;
    size_t gap = (size_t)(found - map->at), mask = map->room - 1;
    for (size_t at = (gap + 1) & mask; map->at[at].id; at = (at + 1) & mask) {
        /* Moves the entry up, unless its search begins after the free place. */
        if (((at - home_of(map, map->at[at].id)) & mask) < ((at - gap) & mask))
            continue;
        map->at[gap] = map->at[at];
        gap = at;
    }
    map->at[gap].id = 0;
    map->used--;
}

void otf2_request_ended(lo2_otf2_writer *w, uint64_t id)
{
    const open_request *r = open_request_find(&w->open, id);
    lo2_otf2_location *location = r ? otf2_location_known(w, r->task) : NULL;
    if (location)
        location->nr_open--;
    open_request_remove(&w->open, id);
}
