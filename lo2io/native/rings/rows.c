/*
 * Puts rows of rings, of their states and of their requests into a batch. If the batch is full, they wait for the next
 * one.
 */
#include "rings/requests.h"

/* ---- rings and their states ---- */

/* Bounds the memory, for a ring whose end was lost stays. No machine has so many rings. */
enum { MOST_RINGS_ALIVE = 1 << 16, MOST_RINGS_ENDED = 1 << 10 };

void ring_row_queue(engine *e, const ring *r)
{
    ring_set *set = e->rings;
    if (ROW_ROOM(e, set->ring_queue))
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
    if (!ROW_ROOM(e, set->state_queue)) {
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
    while (set->ended.count > MOST_RINGS_ENDED || set->alive.count > MOST_RINGS_ALIVE)
        ring_give_up(e, set->ended.count > MOST_RINGS_ENDED ? set->ended.oldest : set->alive.oldest);
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

/* ---- requests ---- */

static void write_event_row(lo2_batch *b, const ring_event_row *x)
{
    lo2_ring_event_columns *c = &b->ring_events;
    uint32_t row = b->nr_ring_events++;
    c->id[row] = x->id;
    c->before[row] = x->before;
    c->call_begin_time_ns[row] = x->call;
    c->time_ns[row] = x->time;
    c->ring[row] = x->ring;
    c->task[row] = x->task;
    c->process[row] = x->process;
    c->pid[row] = x->pid;
    c->tid[row] = x->tid;
    c->kind[row] = x->kind;
    c->opcode[row] = x->opcode;
    c->path[row] = x->path;
    c->status[row] = x->status;
    c->traits[row] = x->traits;
    c->inferred[row] = x->inferred;
    c->sqe_flags[row] = x->sqe_flags;
    c->handle[row] = x->handle;
    c->user_data[row] = x->user_data;
    c->bytes[row] = x->bytes;
    c->result[row] = x->result;
    c->error[row] = x->error;
    c->worker_tid[row] = x->worker_tid;
    c->waker_tid[row] = x->waker_tid;
    c->queued_ns[row] = x->queued;
    c->executing_ns[row] = x->executing;
    c->waiting_ns[row] = x->waiting;
    c->run_queue_ns[row] = x->run_queue;
    c->blocked_ns[row] = x->blocked;
    c->previous[row] = x->previous;
    c->culprit[row] = x->culprit;
    c->cache[row] = x->found.verdict;
    c->cache_missed_pages[row] = x->found.missed;
    c->cache_ahead_pages[row] = x->found.ahead;
}

static void write_identity(lo2_ring_request_columns *c, uint32_t row, const ring_request *r)
{
    c->id[row] = r->id;
    c->ring[row] = r->ring_number;
    c->task[row] = r->task;
    c->pid[row] = r->pid;
    c->tid[row] = r->tid;
    c->user_data[row] = request_data(r);
    c->opcode[row] = r->opcode;
    c->sqe_flags[row] = r->sqe_flags;
    c->status[row] = r->status;
    c->path[row] = r->path;
    c->traits[row] = r->traits;
    c->inferred[row] = r->inferred;
    c->fd[row] = r->fd;
    c->handle[row] = request_handle(r);
    c->handle2[row] = r->handle2;
    c->worker[row] = r->worker;
    c->waker[row] = r->waker;
    c->waker_tid[row] = r->waker_tid;
    c->previous[row] = r->previous_id;
    c->culprit[row] = r->culprit;
}

static void write_request_row(lo2_batch *b, const ring_request *r)
{
    lo2_ring_request_columns *c = &b->ring_requests;
    uint32_t row = b->nr_ring_requests++;
    write_identity(c, row, r);
    c->submit_time_ns[row] = r->submit;
    c->issue_time_ns[row] = r->issue;
    c->punt_time_ns[row] = r->punt;
    c->poll_arm_time_ns[row] = r->arm;
    c->wake_time_ns[row] = r->wake;
    c->work_begin_time_ns[row] = r->work_begin;
    c->work_end_time_ns[row] = r->work_end;
    c->complete_time_ns[row] = r->complete;
    c->notify_time_ns[row] = r->notify;
    c->end_before_time_ns[row] = r->end_before;
    c->queued_ns[row] = r->queued;
    c->executing_ns[row] = r->executing;
    c->waiting_ns[row] = r->waiting;
    c->offset_bytes[row] = r->offset;
    c->bytes_request[row] = r->length;
    c->bytes_result[row] = r->bytes;
    c->result[row] = r->result;
    c->error[row] = r->result < 0 && r->result >= -4095 ? (int16_t)-r->result : 0;
    c->cqe_flags[row] = r->cqe_flags;
    c->nr_completions[row] = r->nr_completions;
    c->nr_polls[row] = r->nr_polls;
    c->nr_punts[row] = r->nr_punts;
    c->op_flags[row] = r->op_flags;
    c->file_index[row] = r->file_index;
    c->buffer_index[row] = r->buffer_index;
    c->cache[row] = r->found.verdict;
    c->cache_missed_pages[row] = r->found.missed;
    c->cache_ahead_pages[row] = r->found.ahead;
    c->cache_wait_ns[row] = r->found.wait_ns;
    c->run_queue_ns[row] = part_of(r, r->run_queue);
    c->blocked_ns[row] = part_of(r, r->blocked);
}

static void write_work_row(lo2_batch *b, const ring_work_row *x)
{
    lo2_ring_work_columns *c = &b->ring_works;
    uint32_t row = b->nr_ring_works++;
    c->id[row] = x->id;
    c->ring[row] = x->ring;
    c->task[row] = x->task;
    c->process[row] = x->process;
    c->pid[row] = x->pid;
    c->tid[row] = x->tid;
    c->opcode[row] = x->opcode;
    c->inferred[row] = x->inferred;
    c->queue_time_ns[row] = x->queue;
    c->begin_time_ns[row] = x->begin;
    c->end_time_ns[row] = x->end;
}

/* Puts a row into the batch if none waits and there is room; else after those that wait. */
#define PUT(e, queue, nr, write, row)                                                       \
    do {                                                                                    \
        ring_request_set *set_ = (e)->ring_requests;                                        \
        if (!set_->queue.count && (e)->batch->nr < (e)->batch->capacity)                    \
            write((e)->batch, row);                                                         \
        else if (ROW_ROOM(e, set_->queue))                                                      \
            set_->queue.at[set_->queue.count++] = *(row);                                   \
        else                                                                                \
            (e)->out_of_memory = true;                                                      \
    } while (0)

void row_of_event(engine *e, const ring_event_row *row) { PUT(e, event_queue, nr_ring_events, write_event_row, row); }
void row_of_work(engine *e, const ring_work_row *row) { PUT(e, work_queue, nr_ring_works, write_work_row, row); }

void row_of_request(engine *e, ring_request *r)
{
    request_judged(e, r);
    if (r->written)
        PUT(e, row_queue, nr_ring_requests, write_request_row, r);
}

#define DRAIN(set, batch, queue, out, nr, write)                                            \
    do {                                                                                    \
        while ((set)->out < (set)->queue.count && (batch)->nr < (batch)->capacity)          \
            write(batch, &(set)->queue.at[(set)->out++]);                                   \
        if ((set)->out == (set)->queue.count)                                               \
            (set)->queue.count = (set)->out = 0;                                            \
    } while (0)

bool ring_requests_flush(engine *e)
{
    ring_request_set *set = e->ring_requests;
    if (!set)
        return true;
    DRAIN(set, e->batch, row_queue, rows_out, nr_ring_requests, write_request_row);
    DRAIN(set, e->batch, event_queue, events_out, nr_ring_events, write_event_row);
    DRAIN(set, e->batch, work_queue, works_out, nr_ring_works, write_work_row);
    return !set->row_queue.count && !set->event_queue.count && !set->work_queue.count;
}
