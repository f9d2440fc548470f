/* Rows of rings and of their states, which wait for room in a batch; and the end of all. */
#include "rings/rings.h"

/* No machine has so many; what never ends (its end was lost) must not fill the memory. */
enum { MOST_ALIVE = 1 << 16, MOST_ENDED = 1 << 10 };

void ring_row_queue(engine *e, const ring *r)
{
    ring_set *set = e->rings;
    if (VEC_ROOM(&set->ring_queue, set->ring_queue.count + 1))
        set->ring_queue.at[set->ring_queue.count++] = *r;
    else
        e->out_of_memory = true;
}

static uint32_t at_most(uint64_t n) { return n < NONE ? (uint32_t)n : NONE; }

void ring_state_queue(engine *e, const ring *r, int64_t time)
{
    ring_set *set = e->rings;
    if (!r->recorded)
        return;
    if (!VEC_ROOM(&set->state_queue, set->state_queue.count + 1)) {
        e->out_of_memory = true;
        return;
    }
    set->state_queue.at[set->state_queue.count++] =
        (ring_state_row){r->number, r->process_number, r->in_flight, r->punted, r->workers, at_most(r->cq_least),
                         at_most(r->cq_most), time};
}

static bool flush_states(engine *e)
{
    ring_set *set = e->rings;
    lo2_ring_state_columns *c = &e->batch->ring_states;
    for (; set->states_out < set->state_queue.count; set->states_out++) {
        const ring_state_row *s = &set->state_queue.at[set->states_out];
        uint32_t row = e->batch->nr_ring_states;
        if (row == e->batch->capacity)
            return false;
        c->time_ns[row] = s->time;
        c->ring[row] = s->ring;
        c->process[row] = s->process;
        c->in_flight[row] = s->in_flight;
        c->punted[row] = s->punted;
        c->workers[row] = s->workers;
        c->cq_least[row] = s->cq_least;
        c->cq_most[row] = s->cq_most;
        e->batch->nr_ring_states++;
    }
    set->state_queue.count = set->states_out = 0;
    return true;
}

static bool flush_ring_rows(engine *e)
{
    ring_set *set = e->rings;
    lo2_ring_columns *c = &e->batch->rings;
    for (; set->rings_out < set->ring_queue.count; set->rings_out++) {
        const ring *r = &set->ring_queue.at[set->rings_out];
        uint32_t row = e->batch->nr_rings;
        if (row == e->batch->capacity)
            return false;
        c->ring[row] = r->number;
        c->kind[row] = r->kind;
        c->context[row] = r->context;
        c->process[row] = r->process_number;
        c->task[row] = r->task;
        c->pid[row] = r->pid;
        c->fd[row] = r->fd;
        c->handle[row] = r->handle;
        c->sq_entries[row] = r->sq_entries;
        c->cq_entries[row] = r->cq_entries;
        c->flags[row] = r->flags;
        c->create_time_ns[row] = r->create_time;
        c->end_time_ns[row] = r->end_time;
        c->poller[row] = r->poller;
        c->nr_files[row] = r->nr_files;
        c->nr_buffers[row] = r->nr_buffers;
        c->nr_requests[row] = r->nr_requests;
        c->nr_completions[row] = r->nr_completions;
        c->nr_overflows[row] = r->nr_overflows;
        c->nr_messages[row] = r->nr_messages;
        c->nr_orphans[row] = r->nr_orphans;
        c->nr_batches[row] = r->nr_batches;
        c->nr_punts[row] = r->nr_punts;
        c->most_in_flight[row] = r->most_in_flight;
        c->nr_workers[row] = r->nr_workers;
        e->batch->nr_rings++;
    }
    set->ring_queue.count = set->rings_out = 0;
    return true;
}

bool rings_flush(engine *e)
{
    ring_set *set = e->rings;
    if (!set)
        return true;
    while (set->ended.count > MOST_ENDED || set->alive.count > MOST_ALIVE)
        ring_give_up(e, set->ended.count > MOST_ENDED ? set->ended.oldest : set->alive.oldest);
    return (!set->state_queue.count || flush_states(e)) && (!set->ring_queue.count || flush_ring_rows(e));
}

bool rings_finish(engine *e)
{
    ring_set *set = e->rings;
    while (set && (set->alive.count || set->ended.count)) {
        if (!rings_flush(e) || !ring_requests_flush(e))
            return false;
        ring_give_up(e, set->alive.count ? set->alive.oldest : set->ended.oldest);
    }
    return rings_flush(e);
}

void rings_free(engine *e)
{
    ring_set *set = e->rings;
    if (!set)
        return;
    for (uint32_t i = 0; i < set->rings.count; i++)
        free(set->rings.at[i].registered.at);
    void *owned[] = {set->rings.at, set->free_rings.at, set->buckets, set->uses.at, set->free_uses.at, set->facts.at,
                     set->free_facts.at, set->state_queue.at, set->ring_queue.at, set};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    e->rings = NULL;
}
