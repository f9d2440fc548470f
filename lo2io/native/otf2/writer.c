/*
 * Takes batches and writes OTF2 events.
 *
 * A thread has a location, its own or one that several threads use in turn (otf2/threads.c). A call is Enter .. Leave of
 * its region. At the entry's time follows IoOperationBegin, for calls that transfer or flush. At the exit's time stand the
 * call's effects: handles that it destroyed, Complete, and the handle that it created, duplicated, destroyed or moved. A
 * call in flight has no Complete. Its region is left when the thread's next call begins, or at the end. Stretches off the
 * CPU are regions inside the call's.
 *
 * Requests of rings are operations on the location of the thread that submitted them, inside its call at that time or
 * outside of any. An execution by a worker is a region on the worker's location (otf2/rings.c).
 *
 * A block device has a location if requests are written as operations: begin, issued, complete or cancelled of each
 * request, in the engine's order. A CPU has one if requests are written as samples or switches are known (otf2/cpus.c).
 * Each device and process has a metric location, each ring two (otf2/metrics.c).
 *
 * Handle events (close-on-exec, close_range, dup2's target) have their own time, perhaps inside a call whose row comes
 * later (execve). They wait for that row (otf2/waiting.c).
 *
 * In OTF2, no time is before the location's last one. The engine's order excludes such times. If one comes all the same,
 * the event gets the location's last time, and is counted (nr_clamped).
 */
#include "otf2/otf2_writer.h"

lo2_otf2_writer *lo2_otf2_new(const lo2_otf2_config *config)
{
    lo2_otf2_writer *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->config = *config;
    w->waiting_free = w->ring_events_free = w->submissions_free = NONE;
    memset(w->metric_classes, 0xff, sizeof w->metric_classes);
    w->view.first_time_ns = INT64_MAX;
    w->view.last_time_ns = INT64_MIN;
    w->calls = malloc((config->nr_calls + 1u) * sizeof *w->calls);
    if (!w->calls || otf2_process(w, NONE) == NONE) {
        lo2_otf2_free(w);
        return NULL;
    }
    memset(w->calls, 0xff, (config->nr_calls + 1u) * sizeof *w->calls);
    memset(w->strings, 0xff, sizeof w->strings);
    w->view.strings = w->strings;
    return w;
}

/* Writes a call, with its batch if it is about a ring: both tables have the same order. */
static int write_call(lo2_otf2_writer *w, const lo2_batch *b, uint32_t row, uint32_t *batch)
{
    const lo2_operation_columns *o = &b->operations;
    if (*batch == b->nr_batches || b->batches.id[*batch] != o->id[row])
        return otf2_write_operation(w, o, row, NULL);
    batch_counts counts;
    otf2_load_batch(w, b, (*batch)++, o->call[row], &counts);
    return otf2_write_operation(w, o, row, &counts);
}

static int write_operations(lo2_otf2_writer *w, const lo2_batch *b)
{
    uint32_t event = 0, off = 0, ring = 0, batch = 0;
    for (uint32_t row = 0; row < b->nr_operations; row++) {
        while (ring < b->nr_ring_events && b->ring_events.before[ring] <= b->first_operation + row)
            TRY(otf2_ring_event_arrives(w, &b->ring_events, ring++));
        while (off < b->nr_off_cpu && b->off_cpu.before[off] <= b->first_operation + row)
            TRY(otf2_off_cpu_waits(w, &b->off_cpu, off++));
        /* + 1: handles that the call itself destroyed come after its row. */
        while (event < b->nr_handle_events && b->handle_events.before[event] <= b->first_operation + row + 1)
            TRY(otf2_handle_event_waits(w, &b->handle_events, event++));
        TRY(write_call(w, b, row, &batch));
    }
    while (ring < b->nr_ring_events)
        TRY(otf2_ring_event_arrives(w, &b->ring_events, ring++));
    while (off < b->nr_off_cpu)
        TRY(otf2_off_cpu_waits(w, &b->off_cpu, off++));
    while (event < b->nr_handle_events)
        TRY(otf2_handle_event_waits(w, &b->handle_events, event++));
    return 0;
}

/* Block events and switches, each in order, are merged into one order for the locations of CPUs. */
static int write_machine(lo2_otf2_writer *w, const lo2_batch *b)
{
    const lo2_otf2_config *c = &w->config;
    const lo2_request_event_columns *e = &b->request_events;
    uint32_t change = 0, nr_switches = c->contexts ? b->nr_switches : 0;
    uint32_t nr_events = c->begin_end || c->samples || c->metrics ? b->nr_request_events : 0;
    for (uint32_t row = 0; row < nr_events; row++) {
        while (change < nr_switches && b->switches.time_ns[change] < e->time_ns[row])
            TRY(otf2_write_switch(w, &b->switches, change++));
        if (c->begin_end)
            TRY(otf2_write_request_event(w, e, row));
        if (c->samples)
            TRY(otf2_write_sample(w, e, row));
        if (c->metrics)
            TRY(otf2_measure_request(w, e, row));
    }
    while (change < nr_switches)
        TRY(otf2_write_switch(w, &b->switches, change++));
    return 0;
}

int lo2_otf2_write(lo2_otf2_writer *w, const lo2_batch *b)
{
    TRY(otf2_take_late(w, b));
    uint32_t nr_begun = w->config.begin_end || w->config.samples ? b->nr_request_events : 0;
    for (uint32_t row = 0; row < nr_begun; row++)
        TRY(otf2_submits(w, &b->request_events, row));
    w->next_end = 0;
    TRY(write_operations(w, b));
    w->next_end = 0; /* workers do not make calls */
    for (uint32_t row = 0; row < b->nr_ring_works; row++)
        TRY(otf2_write_ring_work(w, &b->ring_works, row));
    for (uint32_t row = 0; row < b->nr_ring_states; row++)
        TRY(otf2_measure_ring_state(w, &b->ring_states, row));
    TRY(write_machine(w, b));
    TRY(otf2_give_up_ring_requests(w, &b->ring_requests, b->nr_ring_requests));
    TRY(otf2_end_threads(w));
    w->batch = NULL;
    return 0;
}

int lo2_otf2_relieve(lo2_otf2_writer *w)
{
    for (uint64_t id = 0; id < w->view.nr_locations; id++)
        if (w->locations[id].file && !otf2_relieve(w->config.files, w->locations[id].file))
            return otf2_fail(w, "writing events");
    return 0;
}

int lo2_otf2_add_task(lo2_otf2_writer *w, uint32_t task)
{
    return otf2_location_of(w, (actor){task, NONE, NONE, NONE}, 0) ? 0 : -1;
}

int lo2_otf2_add_waiting(lo2_otf2_writer *w)
{
    while (w->nr_unplaced)
        TRY(lo2_otf2_add_task(w, w->unplaced[0].key));
    return 0;
}

int lo2_otf2_add_cpu(lo2_otf2_writer *w, uint32_t cpu)
{
    return otf2_location_of_cpu(w, cpu) ? 0 : -1;
}

int lo2_otf2_end_location(lo2_otf2_writer *w, uint64_t id, int64_t end_ns, uint8_t ended)
{
    if (id >= w->view.nr_locations)
        return otf2_fail(w, "unknown location");
    lo2_otf2_location *location = &w->locations[id];
    if (location->kind == LO2_OTF2_DEVICE_METRICS || location->kind == LO2_OTF2_PROCESS_METRICS)
        return otf2_finish_metrics(w, location, end_ns);
    return otf2_leave_all(w, location, end_ns, ended);
}

int lo2_otf2_finish(lo2_otf2_writer *w)
{
    for (uint64_t id = w->view.nr_locations; id-- > 0;)
        TRY(otf2_close_location(w, &w->locations[id]));
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
    for (uint64_t id = 0; id < w->view.nr_locations; id++)
        otf2_drop_events(w->config.files, w->locations[id].file);
    free(w->locations);
    free(w->location_by_task);
    free(w->location_by_cpu);
    free(w->devices);
    free(w->handles);
    free(w->calls);
    free(w->regions);
    free(w->contexts);
    free(w->metrics);
    free(w->meters);
    number_map_free(&w->region_by_key);
    number_map_free(&w->context_by_key);
    number_map_free(&w->process_by_number);
    free(w->processes);
    free(w->unplaced);
    number_map_free(&w->unplaced_by_task);
    free(w->ended);
    free(w->waiting);
    free(w->ring_events);
    free(w->open.at);
    free(w->to_give_up);
    free(w->texts);
    free(w->ring_handles);
    number_map_free(&w->text_by_key);
    number_map_free(&w->ring_handle_by_file);
    number_map_free(&w->ring_handle_by_process);
    number_map_free(&w->ring_locations);
    number_map_free(&w->used);
    otf2_free_paths(w);
    otf2_free_held(w);
    otf2_free_submissions(w);
    free(w);
}
