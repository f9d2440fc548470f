/*
 * Requests to the servers of FUSE file systems. A request lives until its end is known and its call has a row:
 *
 *   call        enter ──────────────────────────────── exit     row: the request has its operation
 *   request            send ───────────── end                   row
 *   read ahead               send ─────────────────────────────────── end   row
 *
 * A program can have thousands of living requests, so no search goes over all of them. All living requests are in one
 * list, the oldest first. Requests whose end is not known are also in chains by number, the newest first. Requests of a
 * pending call are in a list of the call's thread, the oldest first.
 */
#include "calls/fuse.h"
#include "hash/hash.h"
#include "tables/tasks.h"

enum { MOST_LIVE = 1 << 14 }; /* no server has so many in its queue. There are as many buckets. */

static uint32_t *bucket_of(engine *e, uint32_t connection, uint64_t unique)
{
    return &e->fuse_buckets[HASH_WORDS(connection, unique) % MOST_LIVE];
}

static void unchain(engine *e, uint32_t place)
{
    fuse_row *live = e->fuse_live.at;
    uint32_t *at = bucket_of(e, live[place].connection, live[place].unique);
    while (*at && *at != place + 1)
        at = &live[*at - 1].chain;
    if (*at) /* else damage gave it the end UNKNOWN, and it left its chain then */
        *at = live[place].chain;
}

/* Adds the newest request to the living. */
static void enter(engine *e, uint32_t place, task *t)
{
    fuse_row *live = e->fuse_live.at, *r = &live[place];
    uint32_t *bucket = bucket_of(e, r->connection, r->unique);
    r->chain = *bucket;
    r->older = e->fuse_newest;
    *bucket = e->fuse_newest = place + 1;
    *(r->older ? &live[r->older - 1].newer : &e->fuse_oldest) = place + 1;
    e->nr_fuse_live++;
    if (!r->in_call)
        return;
    *(t->fuse_first ? &live[t->fuse_last - 1].next_of_call : &t->fuse_first) = place + 1;
    t->fuse_last = place + 1;
}

/* Removes a living request, and queues its row. A request of a pending call must be the oldest of the call's thread. */
static void leave(engine *e, uint32_t place)
{
    if (!ROW_ROOM(e, e->fuse_queue)) {
        e->out_of_memory = true;
        return;
    }
    fuse_row *live = e->fuse_live.at, *r = &live[place];
    task *t = &e->tasks.at[r->task_index];
    if (r->end == UNKNOWN)
        unchain(e, place);
    if (r->in_call && t->number == r->task)
        t->fuse_first = r->next_of_call;
    *(r->older ? &live[r->older - 1].newer : &e->fuse_oldest) = r->newer;
    *(r->newer ? &live[r->newer - 1].older : &e->fuse_newest) = r->older;
    e->fuse_queue.at[e->fuse_queue.count++] = *r;
    e->nr_fuse_live--;
    GIVE_BACK(e, free_fuse_live, place);
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
    if (e->nr_fuse_live == MOST_LIVE)
        leave(e, e->fuse_oldest - 1);
    if (!e->fuse_buckets && !(e->fuse_buckets = calloc(MOST_LIVE, sizeof *e->fuse_buckets))) {
        e->out_of_memory = true;
        return;
    }
    uint32_t place;
    TAKE(e, free_fuse_live, fuse_live, place);
    if (place == NONE)
        return;
    e->fuse_live.at[place] = (fuse_row){
        .unique = sent.unique, .connection = sent.connection, .opcode = sent.opcode < 255 ? (uint8_t)sent.opcode : 255, .sent = sent.bytes, .task = t->number,
        .tid = t->tid, .begin = time, .end = UNKNOWN, .in_call = t->pending.active, .task_index = (uint32_t)(t - e->tasks.at),
    };
    enter(e, place, t);
}

void on_kernel_fuse_end(engine *e, const uint8_t *record, uint32_t length, int64_t time)
{
    lo2_kernel_fuse_end ended;
    if (length < sizeof ended) {
        e->totals.nr_undecoded++;
        return;
    }
    memcpy(&ended, record, sizeof ended);
    if (!e->fuse_buckets)
        return;
    for (uint32_t at = *bucket_of(e, ended.connection, ended.unique); at; at = e->fuse_live.at[at - 1].chain) {
        fuse_row *r = &e->fuse_live.at[at - 1];
        if (r->unique != ended.unique || r->connection != ended.connection)
            continue;
        unchain(e, at - 1);
        r->end = time;
        r->replied = ended.bytes;
        r->error = ended.error < 0 ? (uint32_t)-ended.error : 0;
        if (!r->in_call)
            leave(e, at - 1);
        return;
    }
}

void fuse_call_left(engine *e, task *t, uint32_t row)
{
    lo2_operation_columns *o = &e->batch->operations;
    for (uint32_t at = t->fuse_first, next; at && !e->out_of_memory; at = next) {
        fuse_row *r = &e->fuse_live.at[at - 1];
        next = r->next_of_call;
        r->in_call = false;
        bool of_call = row != NONE && r->begin >= t->pending.begin;
        if (of_call) {
            r->operation = o->id[row];
            o->fuse_requests[row]++;
            o->fuse_ns[row] += r->end == UNKNOWN ? 0 : r->end - r->begin;
        }
        if (r->end != UNKNOWN)
            leave(e, at - 1);
    }
    t->fuse_first = 0;
}

void fuse_taken_over(engine *e, task *heir)
{
    for (uint32_t at = heir->fuse_first; at; at = e->fuse_live.at[at - 1].next_of_call) {
        e->fuse_live.at[at - 1].task = heir->number;
        e->fuse_live.at[at - 1].task_index = (uint32_t)(heir - e->tasks.at);
    }
}

void fuse_finish(engine *e)
{
    while (e->fuse_oldest && !e->out_of_memory)
        leave(e, e->fuse_oldest - 1);
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
    free(e->free_fuse_live.at);
    free(e->fuse_buckets);
    free(e->fuse_queue.at);
}
