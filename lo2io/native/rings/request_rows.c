/* Rows about requests of rings on their way into a batch; where it is full, they wait for the next one. */
#include "rings/requests.h"

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
    c->previous[row] = x->previous;
    c->culprit[row] = x->culprit;
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

/* Into the batch, if nothing waits and it has room; else behind what waits. */
#define PUT(e, queue, nr, write, row)                                                       \
    do {                                                                                    \
        ring_request_set *set_ = (e)->ring_requests;                                        \
        if (!set_->queue.count && (e)->batch->nr < (e)->batch->capacity)                    \
            write((e)->batch, row);                                                         \
        else if (VEC_ROOM(&set_->queue, set_->queue.count + 1))                             \
            set_->queue.at[set_->queue.count++] = *(row);                                   \
        else                                                                                \
            (e)->out_of_memory = true;                                                      \
    } while (0)

void row_of_event(engine *e, const ring_event_row *row) { PUT(e, event_queue, nr_ring_events, write_event_row, row); }
void row_of_work(engine *e, const ring_work_row *row) { PUT(e, work_queue, nr_ring_works, write_work_row, row); }

void row_of_request(engine *e, ring_request *r)
{
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
