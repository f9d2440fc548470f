/*
 * Requests of libaio, each from its io_submit to the call that returned its event. The kernel has no tracepoint for a
 * request's submission or its event. So BPF programs read both in the memory of the recorded program.
 *
 * An event names its request by the address of the iocb and aio_data. A program may also read events from memory
 * without a call, which lo2io does not see. When an iocb is submitted again, its former request need not have ended:
 * the kernel keeps a copy of the iocb, so the program may use the iocb again early. So an event belongs to the newest
 * request that fits, and older requests stay alive until no event can be about them.
 */
#include <errno.h>
#include <linux/aio_abi.h>

#include "cache/cache.h"
#include "rings/iocbs.h"
#include "rings/requests.h"
#include "tables/descriptors.h"

enum { COMMAND_UNKNOWN = 9 };
enum { FSYNC_DATASYNC = 1 };
enum { MOST_LOOKED_AT = 4096 };

/* An iocb that an io_submit was given. Whether the call took it is not known yet. */
typedef struct {
    lo2_kernel_iocb iocb;
    uint32_t handle, next;        /* handle: index, with a reference; next: index + 1 */
    uint64_t request;             /* its id as a request; 0: not chosen yet */
    bool served;                  /* it sent a block request that does not read ahead */
    bool collected;               /* another thread collected its event before io_submit returned, with these: */
    int64_t collect_time, result;
} asked_iocb;

/* What is known of a libaio request when it begins. */
typedef struct {
    uint64_t operation, request, data, iocb;
    int64_t offset, bytes;
    uint32_t place, handle;
    int32_t fd;
    uint8_t opcode;
} iocb_row;

typedef struct iocb_set {
    VEC(asked_iocb) asked;
    VEC(uint32_t) free_asked;
    VEC(iocb_row) queue;
    uint32_t out;
} iocb_set;

/* The io_uring opcode that does the same as a libaio command. */
static uint8_t opcode_of(const engine *e, uint16_t command)
{
    for (uint32_t opcode = 0; command < 16 && opcode < e->config.nr_opcodes; opcode++)
        if (e->config.opcodes[opcode].iocbs >> command & 1)
            return (uint8_t)opcode;
    return NO_OPCODE;
}

static uint32_t flags_of(const lo2_kernel_iocb *q)
{
    switch (q->opcode) {
    case IOCB_CMD_FDSYNC: return FSYNC_DATASYNC;
    case IOCB_CMD_FSYNC: return 0;
    case IOCB_CMD_POLL: return NONE; /* a field of its own says for what it polls */
    default: return q->rw_flags;
    }
}

/* ---- ends ---- */

static void ends(engine *e, ring_request *r, uint8_t status, int64_t time)
{
    r->status = status;
    r->end = time;
    if (r->complete != UNKNOWN) {
        event_end(e, r, 0, false);
    } else {
        request_phases(r);
        row_of_request(e, r);
    }
    request_retire(e, r);
}

void aio_end_unseen(engine *e, ring_request *r, bool torn_down)
{
    uint8_t status = r->end_before != UNKNOWN ? LO2_RING_UNSEEN : torn_down ? LO2_RING_TORN_DOWN : LO2_RING_IN_FLIGHT;
    if (status == LO2_RING_UNSEEN)
        r->inferred |= LO2_INFERRED_END;
    else if (torn_down)
        r->end_before = ring_at(e, r->ring)->end_time;
    e->totals.nr_in_flight_ring_requests += status == LO2_RING_IN_FLIGHT;
    ends(e, r, status, e->totals.last_time_ns);
}

static void completes(engine *e, ring_request *r, int64_t result, int64_t time)
{
    r->result = (int32_t)result;
    r->complete = time;
    r->end_before = UNKNOWN;
    r->nr_completions = 1;
    r->inferred |= LO2_INFERRED_END;
    if (r->result >= 0 && opcode_meaning(e, r->opcode)->returns == LO2_RETURNS_BYTES)
        r->bytes = r->result;
    e->tell.ring_request_completed(e, r->id, r->submit, time);
    ends(e, r, r->result == -ECANCELED ? LO2_RING_CANCELLED : LO2_RING_COMPLETED, time);
}

/* ---- begins ---- */

/* A later call submits the same iocb again. */
static void begins_anew(engine *e, ring_request *before, int64_t time)
{
    if (before->submit < time && before->end_before == UNKNOWN)
        before->end_before = time;
    bool several = false;
    if (e->ring_requests->alive.count >= MOST_ALIVE / 2) /* ends the oldest request of this iocb to make room */
        request_end_unseen(e, request_by_data(e, before->ctx, before->user_data, DATA_SINGLE, &several), false, time);
}

/* A request begins, at the entry of its thread's io_submit. Returns its id, or 0. */
static uint64_t begins(engine *e, task *t, uint32_t ring_index, const iocb_row *row, const asked_iocb *asked)
{
    ring_request_set *set = ring_requests_needed(e);
    uint64_t key = ring_at(e, ring_index)->number + 1ull;
    int64_t time = t->pending.begin;
    ring_request *before = set ? request_newest(e, key, row->iocb) : NULL;
    if (!set || !thread_of(e, t))
        return 0;
    if (before)
        begins_anew(e, before, time);
    if (set->alive.count >= MOST_ALIVE)
        request_end_unseen(e, &set->requests.at[set->alive.first], false, time);
    ring_request *r = request_new(e, ring_index, key, 0, row->iocb, DATA_SINGLE);
    if (!r)
        return 0;
    if (asked->request)
        r->id = asked->request;
    r->aio = true;
    r->data = row->data;
    r->opcode = opcode_of(e, asked->iocb.opcode);
    r->ring_number = ring_at(e, ring_index)->number;
    r->submit = r->issue = time;
    r->executed = r->at_submission = true;
    r->inferred = LO2_INFERRED_ISSUE;
    r->served = asked->served;
    r->path = r->served ? LO2_PATH_DEVICE : LO2_PATH_UNKNOWN;
    r->fd = row->fd;
    r->handle = row->handle;
    if (row->handle != NONE)
        r->cached = cache_file_of(description_of(e, asked->handle));
    r->offset = row->offset;
    r->length = row->bytes;
    r->op_flags = flags_of(&asked->iocb);
    request_give_to(e, r, t);
    e->totals.nr_ring_requests++;
    uint64_t id = r->id;
    event_begin(e, r, time, time);
    event_issued(e, r, time);
    if (asked->collected)
        completes(e, r, asked->result, asked->collect_time);
    return id;
}

/* ---- what an io_submit was given: waits for the exit, for the call may take only the first iocbs, or none ---- */

static asked_iocb *asked_at(engine *e, uint32_t place) { return &e->iocbs->asked.at[place - 1]; }

void iocbs_drop(engine *e, task *t)
{
    for (uint32_t at = t->iocbs, next; at; at = next) {
        asked_iocb *a = asked_at(e, at);
        next = a->next;
        if (a->handle != NONE)
            handle_release(e, a->handle);
        GIVE_BACK(e->iocbs, free_asked, at - 1);
    }
    t->iocbs = t->last_iocb = 0;
}

void on_kernel_iocb(engine *e, task *t, const uint8_t *record, uint32_t size)
{
    asked_iocb asked = {.handle = NONE};
    uint32_t index;
    memcpy(&asked.iocb, record, sizeof asked.iocb);
    if (!rings_needed(e) || (!e->iocbs && !(e->iocbs = calloc(1, sizeof *e->iocbs)))) {
        e->out_of_memory = true;
        return;
    }
    if (t->iocbs && asked_at(e, t->iocbs)->iocb.head.time_ns != asked.iocb.head.time_ns)
        iocbs_drop(e, t); /* their call was lost */
    iocb_set *set = e->iocbs;
    if (set->free_asked.count) {
        index = set->free_asked.at[--set->free_asked.count];
    } else if (VEC_ROOM(&set->asked, set->asked.count + 1)) {
        index = set->asked.count++;
    } else {
        e->out_of_memory = true;
        return;
    }
    asked.handle = asked.iocb.fd < 0 ? NONE : handle_in_slot(e, t, asked.iocb.fd);
    if (asked.handle != NONE && !is_told(e, t, asked.handle))
        asked.handle = NONE;
    if (asked.handle != NONE)
        e->handles.at[asked.handle].refs++;
    set->asked.at[index] = asked;
    *(t->iocbs ? &asked_at(e, t->last_iocb)->next : &t->iocbs) = index + 1;
    t->last_iocb = index + 1;
}

/* The handle that the call met. The kernel looked it up before the exit, so the slot must be constant until then. */
static uint32_t handle_met(engine *e, const task *t, const asked_iocb *a)
{
    const slot *s = a->handle == NONE ? NULL : slot_at(e, t->table, a->iocb.fd, false);
    return s && slot_kept(e, t, s, a->handle, (int64_t)a->iocb.head.time_ns) ? a->handle : NONE;
}

static iocb_row row_of(engine *e, const task *t, const asked_iocb *a)
{
    const lo2_kernel_iocb *q = &a->iocb;
    uint32_t handle_index = handle_met(e, t, a);
    const description *d = a->handle == NONE ? NULL : description_of(e, a->handle);
    bool writes = q->opcode == IOCB_CMD_PWRITE || q->opcode == IOCB_CMD_PWRITEV;
    bool vectored = q->opcode == IOCB_CMD_PREADV || q->opcode == IOCB_CMD_PWRITEV;
    bool data = writes || vectored || q->opcode == IOCB_CMD_PREAD;
    bool file_appends = d && (d->append == APPENDS || handle_index == NONE);
    bool appends = writes && write_appends(q->rw_flags, file_appends ? APPENDS : APPENDS_NOT) == APPENDS;
    iocb_row made = {.data = q->data, .iocb = q->iocb, .offset = UNKNOWN, .bytes = UNKNOWN, .place = q->place,
                     .handle = NONE, .fd = q->fd,
                     .opcode = q->opcode <= IOCB_CMD_PWRITEV ? (uint8_t)q->opcode : COMMAND_UNKNOWN};
    if (data && !appends && q->offset >= 0)
        made.offset = q->offset;
    if (data && !vectored && q->length <= INT64_MAX)
        made.bytes = (int64_t)q->length;
    if (handle_index != NONE) {
        e->handles.at[handle_index].used = 1;
        made.handle = e->handles.at[handle_index].number;
    }
    return made;
}

static bool are_of_call(engine *e, const task *t)
{
    /* else they are of the next call, and this one's record was lost */
    return asked_at(e, t->iocbs)->iocb.head.time_ns <= (uint64_t)t->pending.begin;
}

/* Begins the requests that records tell of. Returns their number. */
static uint32_t begin_told(engine *e, task *t, int64_t result)
{
    iocb_set *set = e->iocbs;
    uint32_t place = 0, first = set->queue.count;
    uint32_t ring_index = result > 0 && is_followed(e, t) ? aio_ring_of_call(e, t) : NONE;
    for (uint32_t at = t->iocbs; at && ring_index != NONE && place < result; at = asked_at(e, at)->next, place++) {
        const asked_iocb *a = asked_at(e, at);
        if (a->iocb.place != place) /* one was lost: those after it may be another call's */
            break;
        if (!ROW_ROOM(e, set->queue)) {
            e->out_of_memory = true;
            break;
        }
        iocb_row row = row_of(e, t, a);
        row.request = begins(e, t, ring_index, &row, a);
        set->queue.at[set->queue.count++] = row;
    }
    while (first < set->queue.count) /* the call's row comes next */
        set->queue.at[first++].operation = e->next_id;
    iocbs_drop(e, t);
    return place;
}

void iocbs_submitted(engine *e, task *t, int64_t result)
{
    int64_t told = t->iocbs && are_of_call(e, t) ? begin_told(e, t, result) : 0;
    /* Programs write no record of an entry before the recording, and a window has none of an entry before it. */
    if (result > told && is_recorded(e, t) && t->pending.begin >= e->config.start_ns)
        e->totals.nr_untold_iocbs += (uint64_t)(result - told);
}

void iocbs_unclaimed(engine *e, task *t)
{
    if (are_of_call(e, t))
        iocbs_drop(e, t);
}

/* If the call has several iocbs, nothing tells which one sends. */
uint64_t iocb_sending(engine *e, task *t, bool ahead)
{
    const pending_call *p = &t->pending;
    if (!p->active || e->calls[p->call].kind != LO2_CALL_AIO_SUBMIT || p->count != 1 || !are_of_call(e, t))
        return 0;
    asked_iocb *a = asked_at(e, t->iocbs);
    if (!a->request)
        a->request = e->next_id++;
    a->served |= !ahead;
    return a->request;
}

/* Looks for the event's iocb among those that a call may not have taken yet. */
static bool iocb_collected(engine *e, const task *t, uint64_t context, const lo2_kernel_event *event, int64_t time)
{
    const pending_call *p = &t->pending;
    if (!t->iocbs || !p->active || e->calls[p->call].kind != LO2_CALL_AIO_SUBMIT || t->ring_call.context != context)
        return false;
    for (uint32_t at = t->iocbs; at; at = asked_at(e, at)->next) {
        asked_iocb *a = asked_at(e, at);
        if (a->collected || a->iocb.iocb != event->iocb || a->iocb.data != event->data)
            continue;
        a->collected = true;
        a->collect_time = time;
        a->result = event->result;
        return true;
    }
    return false;
}

bool iocbs_flush(engine *e)
{
    iocb_set *set = e->iocbs;
    lo2_iocb_columns *c = &e->batch->iocbs;
    for (; set && set->out < set->queue.count; set->out++) {
        const iocb_row *x = &set->queue.at[set->out];
        uint32_t row = e->batch->nr_iocbs;
        if (row == e->batch->capacity)
            return false;
        c->operation[row] = x->operation;
        c->request[row] = x->request;
        c->place[row] = x->place;
        c->opcode[row] = x->opcode;
        c->fd[row] = x->fd;
        c->handle[row] = x->handle;
        c->offset_bytes[row] = x->offset;
        c->bytes_request[row] = x->bytes;
        c->data[row] = x->data;
        c->iocb[row] = x->iocb;
        e->batch->nr_iocbs++;
    }
    if (set)
        set->queue.count = set->out = 0;
    return true;
}

void iocbs_free(engine *e)
{
    if (!e->iocbs)
        return;
    free(e->iocbs->asked.at);
    free(e->iocbs->free_asked.at);
    free(e->iocbs->queue.at);
    free(e->iocbs);
    e->iocbs = NULL;
}

/* ---- events that calls have collected ---- */

/* The newest request that fits the event. NULL: it began before the trace, or was lost. */
static ring_request *answers_to(engine *e, uint32_t ring_index, const lo2_kernel_event *event)
{
    uint64_t key = ring_at(e, ring_index)->number + 1ull;
    ring_request *r = request_newest(e, key, event->iocb);
    for (int left = MOST_LOOKED_AT; r && left--; r = r->data_older == NONE ? NULL : request_at(e, r->data_older)) {
        if (r->data != event->data)
            continue;
        if (r->data_older != NONE && request_at(e, r->data_older)->data == event->data)
            r->inferred |= LO2_INFERRED_IDENTITY;
        return r;
    }
    return NULL;
}

static bool is_being_submitted(engine *e, const task *t, uint64_t context, const lo2_kernel_event *event, int64_t time)
{
    for (uint32_t i = e->processes.at[t->process].oldest; i != NONE; i = e->tasks.at[i].newer)
        if (iocb_collected(e, &e->tasks.at[i], context, event, time))
            return true;
    return false;
}

void on_kernel_events(engine *e, task *t, const uint8_t *record, uint32_t size)
{
    lo2_kernel_events told;
    memcpy(&told, record, sizeof told);
    if (!is_followed(e, t) || !rings_needed(e) || !ring_requests_needed(e))
        return;
    uint32_t ring_index = ring_find(e, RING_AIO, told.context, e->processes.at[t->process].number);
    for (uint32_t i = 0; i < told.count; i++) {
        lo2_kernel_event event;
        memcpy(&event, record + sizeof told + i * sizeof event, sizeof event);
        ring_request *r = ring_index == NONE ? NULL : answers_to(e, ring_index, &event);
        if (r)
            completes(e, r, event.result, (int64_t)told.head.time_ns);
        else if (!is_being_submitted(e, t, told.context, &event, (int64_t)told.head.time_ns) && ring_index != NONE)
            ring_orphan(e, ring_index);
    }
}
