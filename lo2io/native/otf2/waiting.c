/*
 * Events that have their own time, and become known before or after the row to which they belong: handles that exec,
 * close_range or dup2 ended, flags that were set, stretches off the CPU, requests of rings. Each event waits on its
 * location, in the order of time, for the first row that ends after it.
 */
#include "otf2/otf2_writer.h"

/*
 * The last waiting event that is not later than `time`, after which an event of that time belongs. Nearly always this
 * is the last of all. But stretches off the CPU come after many completions inside them. Since the stretches are in
 * order among themselves, the search goes on at the last place found.
 */
static uint32_t place_before(const lo2_otf2_writer *w, const lo2_otf2_location *location, uint64_t time)
{
    const waiting_event *all = w->waiting;
    uint32_t before = location->waiting_last;
    if (location->waiting == NONE || all[location->waiting].time > time)
        return NONE;
    if (all[before].time <= time)
        return before;
    before = location->waiting_place;
    if (before == NONE || all[before].time > time)
        before = location->waiting;
    while (all[all[before].next].time <= time) /* ends, for the last event is later */
        before = all[before].next;
    return before;
}

static int waits(lo2_otf2_writer *w, lo2_otf2_location *location, waiting_event event)
{
    uint32_t index = w->waiting_free;
    if (index != NONE) {
        w->waiting_free = w->waiting[index].next;
    } else {
        size_t room = w->waiting_room;
        if (!otf2_grow((void **)&w->waiting, &room, w->nr_waiting + 1u, sizeof *w->waiting))
            return otf2_fail(w, "malloc");
        w->waiting_room = (uint32_t)room;
        index = w->nr_waiting++;
    }
    uint32_t before = place_before(w, location, event.time);
    uint32_t after = before == NONE ? location->waiting : w->waiting[before].next;
    event.next = after;
    w->waiting[index] = event;
    if (before == NONE)
        location->waiting = index;
    else
        w->waiting[before].next = index;
    if (after == NONE)
        location->waiting_last = index;
    else
        location->waiting_place = index;
    return 0;
}

/* The thread's location, or a stand-in if it has none yet. */
static lo2_otf2_location *waiting_place(lo2_otf2_writer *w, uint32_t task)
{
    uint32_t *at, count = w->nr_unplaced;
    lo2_otf2_location *location = otf2_location_known(w, task);
    if (location)
        return location;
    if (!number_map_at(&w->unplaced_by_task, task, &at) ||
        !otf2_grow((void **)&w->unplaced, &w->unplaced_room, count + 1u, sizeof *w->unplaced)) {
        otf2_fail(w, "malloc");
        return NULL;
    }
    if (*at != NONE)
        return &w->unplaced[*at];
    w->unplaced[count] = (lo2_otf2_location){.key = task, .waiting = NONE, .waiting_last = NONE, .waiting_place = NONE};
    w->nr_unplaced++;
    return &w->unplaced[*at = count];
}

static int wait_for_time(lo2_otf2_writer *w, uint32_t task, waiting_event event)
{
    lo2_otf2_location *location = waiting_place(w, task);
    return location ? waits(w, location, event) : -1;
}

int otf2_handle_event_waits(lo2_otf2_writer *w, const lo2_handle_event_columns *e, uint32_t row)
{
    if (!otf2_handle_at(w, e->handle[row]))
        return -1;
    int64_t time = e->time_ns[row];
    return wait_for_time(w, e->task[row], (waiting_event){.time = time < 0 ? 0 : (uint64_t)time, .key = e->handle[row],
                                                          .flags = e->flags[row],
                                                          .kind = e->kind[row] == 1 ? WAIT_SET_FLAGS : WAIT_DESTROY});
}

int otf2_off_cpu_waits(lo2_otf2_writer *w, const lo2_off_cpu_columns *o, uint32_t row)
{
    int64_t begin = o->begin_time_ns[row], end = o->end_time_ns[row], wake = o->wake_time_ns[row];
    uint32_t task = o->task[row], key = o->state[row];
    if (begin < 0 || o->request[row]) /* a worker's location has no region that would enclose it */
        return 0;
    if (wake < begin)
        wake = UNKNOWN;
    if (o->reason[row] > LO2_WAIT_UNKNOWN)
        key = LO2_OTF2_REASONS + o->reason[row];
    if (wake == UNKNOWN || wake > begin || key == LO2_OFF_PREEMPTED)
        TRY(wait_for_time(w, task, (waiting_event){.time = (uint64_t)begin, .key = key, .kind = WAIT_OFF_CPU}));
    if (end == UNKNOWN) /* the next stretch leaves it, or the end of the call does */
        return 0;
    uint64_t until = (uint64_t)(end < begin ? begin : end);
    waiting_event back = {.time = until, .flags = NONE, .kind = WAIT_ON_CPU};
    if (wake == UNKNOWN || key == LO2_OFF_PREEMPTED)
        return wait_for_time(w, task, back);
    if (wake > begin)
        TRY(wait_for_time(w, task, (waiting_event){.time = (uint64_t)wake, .flags = o->waker_tid[row], .kind = WAIT_ON_CPU}));
    if (end <= wake)
        return 0;
    TRY(wait_for_time(w, task, (waiting_event){.time = (uint64_t)wake, .key = LO2_OTF2_RUN_QUEUE, .kind = WAIT_OFF_CPU}));
    return wait_for_time(w, task, back);
}

int otf2_ring_event_waits(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, const ring_event *event)
{
    uint32_t index = w->ring_events_free;
    if (index != NONE) {
        w->ring_events_free = w->ring_events[index].next;
    } else {
        if (!otf2_grow((void **)&w->ring_events, &w->ring_events_room, w->nr_ring_events + 1u, sizeof *w->ring_events))
            return otf2_fail(w, "malloc");
        index = w->nr_ring_events++;
    }
    w->ring_events[index] = *event;
    return waits(w, location, (waiting_event){.time = time, .key = index, .kind = WAIT_RING});
}

static int release_ring_event(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint32_t index)
{
    ring_event event = w->ring_events[index];
    w->ring_events[index].next = w->ring_events_free;
    w->ring_events_free = index;
    return otf2_write_waiting_ring_event(w, location, time, &event);
}

static int set_flags(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, const waiting_event *event)
{
    lo2_otf2_handle *h = otf2_handle_at(w, event->key);
    if (!h)
        return -1;
    uint32_t creation, status, bit = w->config.values.close_on_exec;
    uint8_t access;
    lo2_otf2_open_flags(w, event->flags, &access, &creation, &status);
    /* F_SETFL does not change close-on-exec, F_SETFD does. */
    h->status = (status & ~bit) | (h->state & LO2_OTF2_STATUS_KNOWN ? h->status & bit : 0);
    EVENT(w, HANDLE, otf2_put_change_status_flags, location, time, h->ref, h->status);
    return 0;
}

/* A stretch ends, or its wait does; then `waker_tid` is known. */
static int on_cpu(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint32_t waker_tid)
{
    uint32_t ref = location->off_cpu;
    location->off_cpu = NONE;
    if (ref == NONE)
        return 0;
    if (waker_tid != NONE) {
        w->view.has_wakers = 1;
        otf2_add_uint64(w, w->config.attributes.woken_by, waker_tid);
    }
    return otf2_leave(w, location, time, ref);
}

static int off_cpu(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint32_t state)
{
    TRY(otf2_leave_off_cpu(w, location, time)); /* the switch back was lost */
    if (location->open_region == NONE) /* outside of a call, nothing would enclose it */
        return 0;
    uint32_t ref = otf2_ref_inside(w, location->open_region, LO2_OTF2_OFF_CPU, state, 0);
    if (ref == NONE)
        return -1;
    location->off_cpu = ref;
    return otf2_enter(w, location, time, ref);
}

static int release(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, const waiting_event *event)
{
    switch ((enum waiting_kind)event->kind) {
    case WAIT_SET_FLAGS: return set_flags(w, location, time, event);
    case WAIT_OFF_CPU: return off_cpu(w, location, time, event->key);
    case WAIT_ON_CPU: return on_cpu(w, location, time, event->flags);
    case WAIT_RING: return release_ring_event(w, location, time, event->key);
    case WAIT_DESTROY: break;
    }
    return otf2_destroy(w, location, time, event->key);
}

int otf2_release_waiting(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t until)
{
    while (location->waiting != NONE && w->waiting[location->waiting].time <= until) {
        uint32_t index = location->waiting;
        waiting_event event = w->waiting[index];
        location->waiting = event.next;
        if (location->waiting_place == index)
            location->waiting_place = NONE;
        w->waiting[index].next = w->waiting_free;
        w->waiting_free = index;
        /* The event was reported late, which is normal and not counted. */
        uint64_t time = event.time > location->last_time ? event.time : location->last_time;
        time = otf2_advance(w, location, (int64_t)time);
        TRY(release(w, location, time, &event));
    }
    return 0;
}
