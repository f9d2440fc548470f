/*
 * Gives threads their locations.
 *
 * The first config.most_own locations belong to one thread each. All further ones are shared: a thread has one from its
 * first event until its end, and then another thread of its process may get it. Likewise, the first most_own processes
 * have a location group each. All further ones share one group, and its locations.
 *
 *      location 900   |== thread 5012 ==|   |== thread 5047 ==||== thread 5051 =
 *      location 901      |====== thread 5013 ======|   |== thread 5049 ==|
 *
 * On a shared location, each thread's life is a region around all that the thread does, from its first event to its end.
 * Attributes at the start of the region name the thread.
 *
 * A thread's row in the tasks table says that it has ended. The row usually comes in the batch of its last event. A new
 * thread looks for a free location when its first event is written. So threads of this batch that ended before that event
 * give up their locations first.
 *
 * Events become known in the order of their ends, while a location wants them in the order of their starts. So a location
 * is not taken if it was written to after the start of the new thread's first event. Workers of rings have shared
 * locations of their own, for their events are written after all others of the batch.
 *
 * A thread keeps its location while a ring's request that it began is under way, or while a call waits for its paths.
 * If an event of a thread comes after its end all the same, the thread gets a location again.
 */
#include "otf2/otf2_writer.h"

enum { COMMON = 0 }; /* stands for all processes without a group; lo2_otf2_new makes it first */

static lo2_otf2_location *no_memory(lo2_otf2_writer *w)
{
    otf2_fail(w, "malloc");
    return NULL;
}

/* ---- processes ---- */

uint32_t otf2_process(lo2_otf2_writer *w, uint32_t number)
{
    uint32_t *known, index = w->view.nr_processes;
    bool found = number_map_at(&w->process_by_number, number, &known);
    if (found && *known != NONE)
        return *known;
    if (!found || !otf2_grow((void **)&w->processes, &w->processes_room, index + 1u, sizeof *w->processes)) {
        otf2_fail(w, "malloc");
        return NONE;
    }
    const lo2_otf2_pool empty = {NONE, NONE};
    w->processes[index] = (lo2_otf2_process){.handle = NONE, .meter = NONE, .batches = NONE, .threads = empty,
                                             .workers = empty, .rings = empty};
    w->view.processes = w->processes;
    w->view.nr_processes++;
    return *known = index;
}

uint32_t otf2_group(const lo2_otf2_writer *w, uint32_t process) { return w->processes[process].own ? process : COMMON; }

/* ---- free locations ---- */

uint32_t otf2_take_free(lo2_otf2_writer *w, lo2_otf2_pool *pool, uint64_t time)
{
    while (pool->first != NONE) {
        uint32_t id = pool->first;
        lo2_otf2_location *location = &w->locations[id];
        if (location->idle && location->last_time > time)
            return NONE;
        pool->first = location->next_free;
        if (pool->first == NONE)
            pool->last = NONE;
        location->queued = 0;
        if (location->idle)
            return id;
    }
    return NONE;
}

void otf2_put_free(lo2_otf2_writer *w, lo2_otf2_pool *pool, lo2_otf2_location *location)
{
    uint32_t id = (uint32_t)(location - w->locations);
    location->idle = 1;
    if (location->queued)
        return;
    location->queued = 1;
    location->next_free = NONE;
    *(pool->last == NONE ? &pool->first : &w->locations[pool->last].next_free) = id;
    pool->last = id;
}

/* ---- the end of a thread ---- */

static lo2_otf2_pool *pool_of(lo2_otf2_writer *w, const lo2_otf2_location *location)
{
    lo2_otf2_process *p = &w->processes[location->group];
    return location->worker ? &p->workers : &p->threads;
}

int otf2_leave_all(lo2_otf2_writer *w, lo2_otf2_location *location, int64_t end_ns, bool ended)
{
    if (location->held != NONE)
        TRY(otf2_leave_held(w, location));
    TRY(otf2_release_waiting(w, location, UINT64_MAX));
    if (location->open_region == NONE && location->life == NONE)
        return 0;
    int64_t last = (int64_t)location->last_time;
    uint64_t time = otf2_advance(w, location, end_ns > last ? end_ns : last);
    if (location->open_region != NONE)
        TRY(otf2_leave_open_region(w, location, time));
    uint32_t life = location->life;
    location->life = NONE;
    if (life == NONE)
        return 0;
    if (!ended)
        otf2_add_uint8(w, w->config.attributes.in_flight, 1);
    return otf2_leave(w, location, time, life);
}

/* Frees the thread's location for others, or closes its file. */
static int end_thread(lo2_otf2_writer *w, lo2_otf2_location *location, int64_t exit)
{
    TRY(otf2_leave_all(w, location, exit < w->config.stop_ns ? exit : w->config.stop_ns, true));
    w->location_by_task[location->user] = NO_MORE;
    location->user = NONE;
    if (location->shared) {
        otf2_put_free(w, pool_of(w, location), location);
        return 0;
    }
    return otf2_close_location(w, location);
}

static bool may_end(const lo2_otf2_location *location) { return !location->nr_open && location->held == NONE; }

/* Ends the threads of the batch that had ended by `time`. */
static int end_threads_until(lo2_otf2_writer *w, uint64_t time)
{
    const lo2_task_columns *t = &w->batch->tasks;
    for (; w->next_end < w->batch->nr_tasks; w->next_end++) {
        int64_t exit = t->exit_time_ns[w->next_end];
        if (exit == UNKNOWN)
            continue;
        if (exit < 0 || (uint64_t)exit > time)
            return 0;
        lo2_otf2_location *location = otf2_location_known(w, t->task[w->next_end]);
        if (location && location->shared && may_end(location))
            TRY(end_thread(w, location, exit));
    }
    return 0;
}

static int end_later(lo2_otf2_writer *w, uint32_t task, int64_t exit)
{
    if (!otf2_grow((void **)&w->ended, &w->ended_room, w->nr_ended + 1u, sizeof *w->ended))
        return otf2_fail(w, "malloc");
    w->ended[w->nr_ended++] = (ended_task){task, exit};
    return 0;
}

static int end_or_keep(lo2_otf2_writer *w, uint32_t task, int64_t exit)
{
    lo2_otf2_location *location = otf2_location_known(w, task);
    if (!location)
        return 0;
    return may_end(location) ? end_thread(w, location, exit) : end_later(w, task, exit);
}

/* Places a thread without calls, which may have waiting events only. */
static int place(lo2_otf2_writer *w, actor who)
{
    uint32_t *at;
    if (!w->nr_unplaced)
        return 0;
    if (!number_map_at(&w->unplaced_by_task, who.task, &at))
        return otf2_fail(w, "malloc");
    if (*at == NONE)
        return 0;
    uint64_t time = w->waiting[w->unplaced[*at].waiting].time;
    return otf2_location_of(w, who, (int64_t)time) ? 0 : -1;
}

int otf2_end_threads(lo2_otf2_writer *w)
{
    const lo2_task_columns *t = &w->batch->tasks;
    uint32_t before = w->nr_ended;
    w->nr_ended = 0;
    for (uint32_t i = 0; i < before; i++)
        TRY(end_or_keep(w, w->ended[i].task, w->ended[i].exit));
    for (uint32_t row = 0; row < w->batch->nr_tasks; row++) {
        TRY(place(w, (actor){t->task[row], t->process[row], t->pid[row], t->tid[row]}));
        if (t->exit_time_ns[row] != UNKNOWN)
            TRY(end_or_keep(w, t->task[row], t->exit_time_ns[row]));
    }
    return 0;
}

/* ---- the start of a thread ---- */

static lo2_otf2_location *new_location(lo2_otf2_writer *w, uint32_t task, uint32_t process, bool worker, uint64_t time)
{
    lo2_otf2_location *location;
    if (process != COMMON && !w->processes[process].own && w->nr_own_processes < w->config.most_own) {
        w->processes[process].own = 1;
        w->nr_own_processes++;
    }
    uint32_t group = otf2_group(w, process);
    if (w->view.nr_locations < w->config.most_own) {
        if ((location = otf2_location_new(w, LO2_OTF2_TASK, task)))
            location->group = group;
        return location;
    }
    if (w->batch && end_threads_until(w, time))
        return NULL;
    uint32_t id = otf2_take_free(w, worker ? &w->processes[group].workers : &w->processes[group].threads, time);
    if (id != NONE)
        return &w->locations[id];
    if ((location = otf2_location_new(w, LO2_OTF2_TASK, task))) {
        location->shared = 1;
        location->group = group;
        location->worker = worker;
    }
    return location;
}

/* Moves the thread's waiting events to its location. */
static bool take_waiting(lo2_otf2_writer *w, lo2_otf2_location *location, uint32_t task)
{
    uint32_t *at;
    if (!w->nr_unplaced)
        return true;
    if (!number_map_at(&w->unplaced_by_task, task, &at))
        return false;
    if (*at == NONE)
        return true;
    const lo2_otf2_location *from = &w->unplaced[*at];
    location->waiting = from->waiting;
    location->waiting_last = from->waiting_last;
    location->waiting_place = from->waiting_place;
    uint32_t *moved, last = --w->nr_unplaced;
    w->unplaced[*at] = w->unplaced[last];
    if (*at != last && number_map_at(&w->unplaced_by_task, w->unplaced[*at].key, &moved))
        *moved = *at;
    number_map_forget(&w->unplaced_by_task, task);
    return true;
}

static int enter_life(lo2_otf2_writer *w, lo2_otf2_location *location, const actor *who, uint64_t time)
{
    const lo2_otf2_attributes *a = &w->config.attributes;
    uint32_t ref = otf2_ref_inside(w, NONE, LO2_OTF2_LIFE, who->task, 0);
    if (ref == NONE)
        return -1;
    if (who->pid != NONE)
        otf2_add_uint64(w, a->life_process, who->pid);
    if (who->tid != NONE)
        otf2_add_uint64(w, a->life_thread, who->tid);
    otf2_add_uint64(w, a->life_task, who->task);
    w->view.shares_threads = 1;
    location->life = ref;
    return otf2_enter(w, location, otf2_advance(w, location, (int64_t)time), ref);
}

static lo2_otf2_location *begin(lo2_otf2_writer *w, const actor *who, bool worker, int64_t time)
{
    if (who->task >= NO_MORE) {
        otf2_fail(w, "no task");
        return NULL;
    }
    if (!otf2_grow_filled((void **)&w->location_by_task, &w->tasks_room, who->task + 1, sizeof *w->location_by_task))
        return no_memory(w);
    bool again = w->location_by_task[who->task] == NO_MORE;
    lo2_otf2_location first = {.waiting = NONE, .waiting_last = NONE, .waiting_place = NONE};
    uint32_t process = otf2_process(w, who->process);
    if (process == NONE)
        return NULL;
    if (!take_waiting(w, &first, who->task))
        return no_memory(w);
    uint64_t from = time < 0 ? 0 : (uint64_t)time;
    if (first.waiting != NONE && w->waiting[first.waiting].time < from)
        from = w->waiting[first.waiting].time;
    lo2_otf2_location *location = new_location(w, who->task, process, worker, from);
    if (!location)
        return NULL;
    location->user = who->task;
    location->nr_users++;
    location->idle = 0;
    location->process = process;
    location->pid = who->pid;
    location->tid = who->tid;
    location->waiting = first.waiting;
    location->waiting_last = first.waiting_last;
    location->waiting_place = first.waiting_place;
    w->location_by_task[who->task] = (uint32_t)(location - w->locations);
    if ((location->shared && enter_life(w, location, who, from)) || (again && end_later(w, who->task, (int64_t)from)))
        return NULL;
    return location;
}

lo2_otf2_location *otf2_location_of(lo2_otf2_writer *w, actor who, int64_t time)
{
    lo2_otf2_location *location = otf2_location_known(w, who.task);
    return __builtin_expect(location != NULL, 1) ? location : begin(w, &who, false, time);
}

lo2_otf2_location *otf2_location_of_worker(lo2_otf2_writer *w, actor who, int64_t time)
{
    lo2_otf2_location *location = otf2_location_known(w, who.task);
    return location ? location : begin(w, &who, true, time);
}
