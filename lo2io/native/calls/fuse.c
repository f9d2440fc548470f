/*
 * Requests to the servers of FUSE file systems. A request lives until its end is known, and the row of the call in which it was sent:
 *
 *   call        enter ──────────────────────────────── exit     row: the request has its operation
 *   request            send ───────────── end                   row
 *   read ahead               send ─────────────────────────────────── end   row
 */
#include "calls/fuse.h"
#include "tables/tasks.h"

enum { MOST_LIVE = 1 << 14 }; /* no server has so many in its queue */

/* Takes a request out of the living, and writes its row. */
static void leave(engine *e, uint32_t place)
{
    if (!ROW_ROOM(e, e->fuse_queue)) {
        e->out_of_memory = true;
        return;
    }
    fuse_row *live = e->fuse_live.at;
    e->fuse_queue.at[e->fuse_queue.count++] = live[place];
    memmove(&live[place], &live[place + 1], (--e->fuse_live.count - place) * sizeof *live);
}

void on_kernel_fuse_send(engine *e, const uint8_t *record, uint32_t length, int64_t time)
{
    lo2_kernel_fuse_send sent;
    if (length < sizeof sent) {
        e->totals.nr_undecoded++;
        return;
    }
    memcpy(&sent, record, sizeof sent);
    task *t = task_for_sample(e, sent.head.tid);
    if (!t || !is_recorded(e, t))
        return;
    task_lives(t);
    if (e->fuse_live.count == MOST_LIVE)
        leave(e, 0);
    if (!VEC_ROOM(&e->fuse_live, e->fuse_live.count + 1)) {
        e->out_of_memory = true;
        return;
    }
    e->fuse_live.at[e->fuse_live.count++] = (fuse_row){
        .unique = sent.unique, .connection = sent.connection, .opcode = sent.opcode < 255 ? (uint8_t)sent.opcode : 255, .sent = sent.bytes, .task = t->number,
        .tid = t->tid, .begin = time, .end = UNKNOWN, .in_call = t->pending.active,
    };
}

void on_kernel_fuse_end(engine *e, const uint8_t *record, uint32_t length, int64_t time)
{
    lo2_kernel_fuse_end ended;
    if (length < sizeof ended) {
        e->totals.nr_undecoded++;
        return;
    }
    memcpy(&ended, record, sizeof ended);
    for (uint32_t place = e->fuse_live.count; place-- > 0;) {
        fuse_row *r = &e->fuse_live.at[place];
        if (r->unique != ended.unique || r->connection != ended.connection || r->end != UNKNOWN)
            continue;
        r->end = time;
        r->replied = ended.bytes;
        r->error = ended.error < 0 ? (uint32_t)-ended.error : 0;
        if (!r->in_call)
            leave(e, place);
        return;
    }
}

void fuse_call_left(engine *e, const task *t, uint32_t row)
{
    lo2_operation_columns *o = &e->batch->operations;
    for (uint32_t place = 0; place < e->fuse_live.count && !e->out_of_memory;) {
        fuse_row *r = &e->fuse_live.at[place];
        if (!r->in_call || r->task != t->number) {
            place++;
            continue;
        }
        r->in_call = false;
        bool of_call = row != NONE && r->begin >= t->pending.begin;
        if (of_call) {
            r->operation = o->id[row];
            o->fuse_requests[row]++;
            o->fuse_ns[row] += r->end == UNKNOWN ? 0 : r->end - r->begin;
        }
        if (r->end != UNKNOWN)
            leave(e, place);
        else
            place++;
    }
}

void fuse_finish(engine *e)
{
    while (e->fuse_live.count && !e->out_of_memory)
        leave(e, 0);
}

bool fuse_flush(engine *e)
{
    lo2_fuse_request_columns *c = &e->batch->fuse_requests;
    for (; e->fuse_out < e->fuse_queue.count; e->fuse_out++) {
        const fuse_row *r = &e->fuse_queue.at[e->fuse_out];
        uint32_t row = e->batch->nr_fuse_requests;
        if (row == e->batch->capacity)
            return false;
        bool ended = r->end != UNKNOWN;
        c->connection[row] = r->connection;
        c->unique[row] = r->unique;
        c->opcode[row] = r->opcode;
        c->operation[row] = r->operation;
        c->task[row] = r->task;
        c->tid[row] = r->tid;
        c->begin_time_ns[row] = r->begin;
        c->end_time_ns[row] = r->end;
        c->bytes_sent[row] = r->sent;
        c->bytes_replied[row] = ended ? (int64_t)r->replied : UNKNOWN;
        c->error[row] = (int32_t)r->error;
        e->batch->nr_fuse_requests++;
    }
    e->fuse_queue.count = e->fuse_out = 0;
    return true;
}

void fuse_free(engine *e)
{
    free(e->fuse_live.at);
    free(e->fuse_queue.at);
}
