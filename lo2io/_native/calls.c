/* System calls: an entry waits for its exit; together they are one operation. */
#include <errno.h>
#include <fcntl.h>

#include "engine.h"

enum { OFFSET_UNKNOWN = 0, OFFSET_EXPLICIT = 1, OFFSET_FOLLOWED = 2, ORIGIN_BEFORE = 3 };

static bool moves_position(const lo2_call *call, const pending_call *p)
{
    switch (call->kind) {
    case LO2_CALL_READ:
    case LO2_CALL_WRITE: return p->offset == UNKNOWN;
    case LO2_CALL_SEEK: return true;
    default: return false;
    }
}

/* Resolves an fd at entry and keeps the handle alive until the exit. */
static uint32_t resolve(engine *e, task *t, int32_t fd, uint8_t *unseen, uint8_t *first_use)
{
    if (fd < 0)
        return NONE;
    uint32_t index = handle_in_slot(e, t, fd);
    if (index == NONE) {
        *unseen = 1;
        return NONE;
    }
    handle *h = &e->handles.at[index];
    if (!h->used && h->origin >= 2)
        *first_use = 1;
    h->used |= e->processes.at[t->process].recorded;
    h->refs++;
    return index;
}

static void start_moving(engine *e, pending_call *p)
{
    description *d = &e->descriptions.at[e->handles.at[p->handle].description];
    p->moves = 1;
    if (d->moving++)
        d->overlapped = 1;
}

static void stop_moving(description *d, int64_t time)
{
    if (--d->moving == 0)
        d->overlapped = 0;
    d->last_moved = time;
}

/* The kernel's copy of a path: a dynamic string, cut off at the end of what there was room for. */
static void keep_path(task *t, const lo2_field *field, const uint8_t *raw, uint32_t raw_size)
{
    t->path_length = 0;
    if (field->size != 4)
        return;
    uint32_t where = (uint32_t)load_unsigned(raw, *field), offset = where & 0xffff, size = where >> 16;
    if (offset + size > raw_size || size == 0)
        return;
    uint32_t length = (uint32_t)strnlen((const char *)raw + offset, size);
    if (length < sizeof t->path - 1) { /* longer ones may have been cut: no name is better than half of one */
        memcpy(t->path, raw + offset, length);
        t->path_length = length;
    }
}

void on_enter(engine *e, task *t, const lo2_event *event, const uint8_t *raw, uint32_t raw_size, uint16_t cpu,
              int64_t time)
{
    const lo2_call *call = &e->calls[event->call];
    pending_call *p = &t->pending;
    if (p->active)
        call_abandon(e, t, UNKNOWN); /* its exit was lost */
    const lo2_field *f = event->fields;
    *p = (pending_call){.active = true, .call = event->call, .cpu = cpu, .begin = time, .offset = UNKNOWN,
                        .fd = -1, .fd2 = -1, .handle = NONE, .handle2 = NONE};
    p->count = load_unsigned(raw, f[LO2_FIELD_COUNT]);
    p->flags = (uint32_t)load_unsigned(raw, f[LO2_FIELD_FLAGS]);
    if (f[LO2_FIELD_OFFSET].size) {
        int64_t offset = (int64_t)load_unsigned(raw, f[LO2_FIELD_OFFSET]);
        /* -1 means "at the position" for preadv2 and pwritev2, and EINVAL for the others. */
        p->offset = offset == -1 && call->kind != LO2_CALL_SEEK ? UNKNOWN : offset;
    }
    uint8_t second_use = 0;
    if (f[LO2_FIELD_PATH].size)
        keep_path(t, &f[LO2_FIELD_PATH], raw, raw_size);
    if (f[LO2_FIELD_FD].size) {
        p->fd = (int32_t)load_unsigned(raw, f[LO2_FIELD_FD]);
        p->handle = resolve(e, t, p->fd, &p->unseen, &p->first_use);
    }
    if (f[LO2_FIELD_FD2].size) {
        p->fd2 = (int32_t)load_unsigned(raw, f[LO2_FIELD_FD2]);
        if (call->kind == LO2_CALL_COPY)
            p->handle2 = resolve(e, t, p->fd2, &p->unseen2, &second_use);
    }
    p->first_use |= (uint8_t)(second_use << 1);
    if (p->handle == NONE)
        return;
    if (moves_position(call, p))
        start_moving(e, p);
    if (call->kind == LO2_CALL_CLOSE) { /* the kernel frees the slot before anything else */
        slot *s = slot_at(e, e->processes.at[t->process].table, p->fd, false);
        bool cloexec = s->cloexec;
        *s = (slot){.since = time, .handle = NONE};
        p->flags = cloexec;
        /* the slot's reference stays with the handle until the exit ends it */
    }
}

static void fill_common(engine *e, const task *t, const pending_call *p, uint32_t row)
{
    lo2_operation_columns *o = &e->batch->operations;
    const lo2_call *call = &e->calls[p->call];
    bool is_data = call->kind == LO2_CALL_READ || call->kind == LO2_CALL_WRITE || call->kind == LO2_CALL_COPY ||
                   call->returns == LO2_RETURNS_BYTES;
    o->begin_time_ns[row] = p->begin;
    o->end_time_ns[row] = UNKNOWN;
    o->task[row] = t->number;
    o->pid[row] = e->processes.at[t->process].pid;
    o->tid[row] = t->tid;
    o->call[row] = p->call;
    o->status[row] = 1;
    o->offset_source[row] = p->offset == UNKNOWN ? OFFSET_UNKNOWN : OFFSET_EXPLICIT;
    o->first_use[row] = p->first_use;
    o->closes[row] = 0;
    o->cpu[row] = p->cpu;
    o->handle[row] = p->handle == NONE ? NONE : e->handles.at[p->handle].number;
    o->handle2[row] = p->handle2 == NONE ? NONE : e->handles.at[p->handle2].number;
    o->fd[row] = p->fd;
    o->flags[row] = call->kind == LO2_CALL_CLOSE ? 0 : p->flags;
    o->offset_bytes[row] = p->offset;
    o->bytes_request[row] = is_data && !call->vectored ? (int64_t)p->count : UNKNOWN;
    o->bytes_result[row] = UNKNOWN;
    o->result[row] = UNKNOWN;
    o->error[row] = 0;
    if (call->kind == LO2_CALL_COPY)
        e->next_id++; /* the written half's */
}

static void let_go(engine *e, task *t)
{
    pending_call *p = &t->pending;
    if (p->handle != NONE)
        handle_release(e, p->handle);
    if (p->handle2 != NONE)
        handle_release(e, p->handle2);
    p->active = false;
}

/* The exit never came: the call is in flight, what it did to the position is unknown. */
void call_abandon(engine *e, task *t, int64_t end_time)
{
    pending_call *p = &t->pending;
    if (!p->active)
        return;
    if (e->processes.at[t->process].recorded) {
        uint32_t row = emit_operation(e);
        fill_common(e, t, p, row);
        e->totals.nr_in_flight_calls++;
    }
    if (p->moves) {
        description *d = &e->descriptions.at[e->handles.at[p->handle].description];
        d->position = UNKNOWN;
        stop_moving(d, INT64_MAX); /* it may move at any time: facts cannot be compared any more */
    }
    if (p->handle != NONE && e->calls[p->call].kind == LO2_CALL_CLOSE)
        handle_end(e, p->handle, p->flags, end_time);
    let_go(e, t);
}

/* Where a call at the position began, and where the position is now. */
static void follow(engine *e, pending_call *p, const lo2_call *call, int64_t result, int64_t time, uint32_t row)
{
    description *d = &e->descriptions.at[e->handles.at[p->handle].description];
    lo2_operation_columns *o = &e->batch->operations;
    bool appends = call->kind == LO2_CALL_WRITE && d->append;
    if (call->kind == LO2_CALL_SEEK) {
        if (result >= 0 && !d->foreign)
            d->position = d->overlapped ? UNKNOWN : result;
    } else {
        if (d->position != UNKNOWN && !d->overlapped && !appends) {
            o->offset_bytes[row] = d->position;
            o->offset_source[row] = OFFSET_FOLLOWED;
        }
        if (result > 0)
            d->position = d->position == UNKNOWN || appends ? UNKNOWN : d->position + result;
    }
    stop_moving(d, time);
}

/* A call on an fd nobody saw opened succeeded: there is something in the slot after all. */
static uint32_t discover(engine *e, task *t, int32_t fd, bool closing, bool *transient)
{
    slot *s = slot_at(e, e->processes.at[t->process].table, fd, true);
    uint32_t d = s ? description_new(e) : NONE;
    if (d == NONE)
        return NONE;
    uint32_t index = handle_new(e, t, fd, d, 4);
    if (index == NONE)
        return NONE;
    handle *h = &e->handles.at[index];
    h->used = 1;
    h->refs++; /* the pending call's */
    *transient = closing || s->handle != NONE;
    if (!*transient) {
        s->handle = index;
        s->cloexec = s->inherited = 0;
    }
    return index;
}

void on_exit_call(engine *e, task *t, const lo2_event *event, const uint8_t *raw, int64_t time)
{
    pending_call *p = &t->pending;
    const lo2_call *call = &e->calls[event->call];
    int64_t result = (int64_t)load_unsigned(raw, event->fields[LO2_FIELD_RET]);
    if (!p->active && call->kind == LO2_CALL_CLONE && result == 0)
        return; /* a child leaves the call its parent entered */
    if (!p->active || p->call != event->call) {
        if (e->processes.at[t->process].recorded)
            e->totals.nr_orphan_exits++;
        call_abandon(e, t, UNKNOWN);
        return;
    }
    bool failed = result < 0 && result >= -4095;
    bool recorded = e->processes.at[t->process].recorded, transient = false, transient2 = false;
    if (p->unseen && result != -EBADF && call->kind != LO2_CALL_CLOSE_RANGE) {
        p->handle = discover(e, t, p->fd, call->kind == LO2_CALL_CLOSE, &transient);
        p->first_use |= 1;
    }
    if (p->unseen2 && result != -EBADF) {
        p->handle2 = discover(e, t, p->fd2, false, &transient2);
        p->first_use |= 2;
    }
    uint32_t row = e->batch->nr_operations; /* scratch row when not recorded */
    if (recorded)
        row = emit_operation(e);
    fill_common(e, t, p, row);
    lo2_operation_columns *o = &e->batch->operations;
    o->end_time_ns[row] = time;
    o->status[row] = 0;
    o->result[row] = result;
    o->error[row] = failed ? (int16_t)-result : 0;
    if (call->returns == LO2_RETURNS_BYTES && !failed)
        o->bytes_result[row] = result;
    if (p->moves)
        follow(e, p, call, result, time, row);
    call_effects(e, t, call, result, time, row);
    p = &t->pending;
    if (transient && call->kind != LO2_CALL_CLOSE)
        handle_end(e, p->handle, false, UNKNOWN);
    if (transient2)
        handle_end(e, p->handle2, false, UNKNOWN);
    let_go(e, t);
}
