/*
 * What requests of libaio ask for, as the kernel's own programs read it at the entry of io_submit. They wait for its exit,
 * for the call may take but the first of them, or none.
 */
#include <linux/aio_abi.h>

#include "rings/rings.h"

enum { COMMAND_UNKNOWN = 9 };

typedef struct iocb_set {
    VEC(asked_iocb) asked;
    VEC(uint32_t) free_asked;
    VEC(iocb_row) queue;
    uint32_t out;
} iocb_set;

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
        iocbs_drop(e, t); /* of a call that was lost */
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

/* What was in the slot when the call was entered was there when it looked it up, whenever that was: until its exit. */
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
    bool appends = writes && d && (d->append == APPENDS || handle_index == NONE); /* Linux appends whatever the offset says */
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
    return asked_at(e, t->iocbs)->iocb.head.time_ns <= (uint64_t)t->pending.begin; /* else of the next one: this one's end was lost */
}

void iocbs_submitted(engine *e, task *t, int64_t result)
{
    iocb_set *set = e->iocbs;
    uint32_t place = 0, first = set->queue.count;
    if (!are_of_call(e, t))
        return;
    uint32_t ring_index = result > 0 && is_followed(e, t) ? aio_ring_of_call(e, t) : NONE;
    for (uint32_t at = t->iocbs; at && ring_index != NONE && place < result; at = asked_at(e, at)->next, place++) {
        const asked_iocb *a = asked_at(e, at);
        if (a->iocb.place != place) /* one that was lost: what follows may be another call's */
            break;
        if (!VEC_ROOM(&set->queue, set->queue.count + 1)) {
            e->out_of_memory = true;
            break;
        }
        iocb_row row = row_of(e, t, a);
        row.request = aio_request_begins(e, t, ring_index, &row, a);
        set->queue.at[set->queue.count++] = row;
    }
    while (first < set->queue.count) /* the row of the call comes next */
        set->queue.at[first++].operation = e->next_id;
    iocbs_drop(e, t);
}

void iocbs_unclaimed(engine *e, task *t)
{
    if (are_of_call(e, t))
        iocbs_drop(e, t);
}

/* Of several in one call nothing tells which it is. */
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

bool iocb_collected(engine *e, const task *t, uint64_t context, const lo2_kernel_event *event, int64_t time)
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
