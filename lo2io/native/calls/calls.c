/* System calls: an entry waits for its exit; together they are one operation. */
#include <errno.h>
#include <fcntl.h>

#include "block/requests.h"
#include "calls/cache_calls.h"
#include "calls/calls.h"
#include "calls/effects.h"
#include "calls/fuse.h"
#include "calls/futexes.h"
#include "calls/kernel_facts.h"
#include "calls/off_cpu.h"
#include "rings/iocbs.h"
#include "rings/rings.h"
#include "tables/descriptions.h"
#include "tables/descriptors.h"
#include "tables/positions.h"
#include "tables/rows.h"

enum { STATUS_COMPLETED = 0, STATUS_IN_FLIGHT = 1 };
enum { ENTER_REGISTERED_RING = 1u << 4, USE_REGISTERED_RING = 1u << 31 }; /* include/uapi/linux/io_uring.h */

/* ---- entry ---- */

/* Resolves an fd at entry and keeps the handle alive until the exit. */
static uint32_t resolve(engine *e, task *t, int32_t fd)
{
    uint32_t index = fd < 0 ? NONE : handle_in_slot(e, t, fd);
    if (index != NONE)
        e->handles.at[index].refs++;
    return index;
}

/* Keeps the path that the event holds: a dynamic string, which the kernel cuts where its room ends. */
static void keep_path(task *t, const lo2_field *field, const uint8_t *raw, uint32_t raw_size)
{
    t->path_length = 0;
    if (field->size != 4 || field->offset + 4u > raw_size) /* entries that BPF programs wrote have no string here */
        return;
    uint32_t where = (uint32_t)load_unsigned(raw, *field), offset = where & 0xffff, size = where >> 16;
    if (offset + size > raw_size || size == 0)
        return;
    uint32_t length = (uint32_t)strnlen((const char *)raw + offset, size);
    bool cut = length > 3 && !memcmp(raw + offset + length - 3, "...", 3); /* the kernel marks a cut string so */
    if (!cut && length < sizeof t->path - 1) { /* half a name is worse than none */
        memcpy(t->path, raw + offset, length);
        t->path_length = length;
    }
}

static void read_arguments(pending_call *p, const lo2_call *call, const lo2_event *event, const uint8_t *raw)
{
    const lo2_field *f = event->fields;
    p->count = load_unsigned(raw, f[LO2_FIELD_COUNT]);
    p->flags = (uint32_t)load_unsigned(raw, f[LO2_FIELD_FLAGS]);
    if (f[LO2_FIELD_ADDRESS].size)
        p->address = load_unsigned(raw, f[LO2_FIELD_ADDRESS]);
    if (f[LO2_FIELD_OFFSET].size) {
        p->offset = (int64_t)load_unsigned(raw, f[LO2_FIELD_OFFSET]);
        bool data = call->kind == LO2_CALL_READ || call->kind == LO2_CALL_WRITE;
        p->positioned = !(data && call->has_flags && p->offset == -1); /* -1 in preadv2, pwritev2: at the position */
    }
    p->counts_bytes = f[LO2_FIELD_COUNT].size && !call->vectored && call->kind != LO2_CALL_FCNTL;
    bool by_index = (call->kind == LO2_CALL_RING_ENTER && (p->flags & ENTER_REGISTERED_RING)) ||
                    (call->kind == LO2_CALL_RING_REGISTER && (p->flags & USE_REGISTERED_RING));
    bool unseen = by_index || (call->fd_unless & p->flags); /* a ring that its thread has registered, or no file at all */
    p->has_fd = f[LO2_FIELD_FD].size != 0 && !unseen;
    if (p->has_fd)
        p->fd = (int32_t)load_unsigned(raw, f[LO2_FIELD_FD]);
    if (f[LO2_FIELD_FD2].size)
        p->fd2 = (int32_t)load_unsigned(raw, f[LO2_FIELD_FD2]);
}

static bool names_handle(const lo2_call *call)
{
    return call->kind != LO2_CALL_OPEN && call->kind != LO2_CALL_RING_SETUP && call->kind != LO2_CALL_CLOSE_RANGE && call->kind != LO2_CALL_CLONE &&
           call->kind != LO2_CALL_UNSHARE;
}

static bool may_end_others(const lo2_call *call)
{
    return call->kind == LO2_CALL_CLOSE || call->kind == LO2_CALL_DUP_TO || call->kind == LO2_CALL_CLOSE_RANGE;
}

static const pending_call FRESH = {
    .active = true, .offset = UNKNOWN, .position = UNKNOWN, .told_position = UNKNOWN, .told_value = UNKNOWN, .off_begin = UNKNOWN,
    .off_end = UNKNOWN, .found_since = UNKNOWN, .fd = -1, .fd2 = -1, .handle = NONE, .handle2 = NONE, .made = NONE,
};

void on_enter(engine *e, task *t, const lo2_event *event, const uint8_t *raw, uint32_t raw_size, uint16_t cpu,
              int64_t time)
{
    const lo2_call *call = &e->calls[event->call];
    pending_call *p = &t->pending;
    if (p->active)
        call_abandon(e, t, UNKNOWN); /* its exit was lost */
    /* memcpy, for an assignment compiles to `rep stos`, which takes longer than the rest of an entry */
    memcpy(p, &FRESH, sizeof FRESH);
    p->call = event->call;
    p->cpu = cpu;
    p->begin = time;
    p->unseen = !e->config.waits;
    read_arguments(p, call, event, raw);
    if (event->fields[LO2_FIELD_PATH].size)
        keep_path(t, &event->fields[LO2_FIELD_PATH], raw, raw_size);
    if (call->kind == LO2_CALL_RING_SETUP)
        ring_call_entered(e, t, event, raw);
    if (!names_handle(call)) {
        if (may_end_others(call))
            ends_begin(e, t);
        return;
    }
    p->handle = resolve(e, t, p->fd);
    if (call->kind == LO2_CALL_COPY)
        p->handle2 = resolve(e, t, p->fd2);
    position_entered(e, t);
    if (call->kind == LO2_CALL_CLOSE && p->handle != NONE) { /* the kernel frees the slot first */
        slot *s = slot_at(e, t->table, p->fd, false);
        p->flags = s->cloexec;
        slot_set(s, time, NONE, false);
        /* The slot's reference now keeps the handle alive until the exit ends it. */
    }
    if (may_end_others(call))
        ends_begin(e, t);
    if (call->kind >= LO2_CALL_RING_ENTER)
        ring_call_entered(e, t, event, raw);
}

/* ---- exit ---- */

static void fill_row(engine *e, const task *t, uint32_t row)
{
    lo2_operation_columns *o = &e->batch->operations;
    const pending_call *p = &t->pending;
    const lo2_call *call = &e->calls[p->call];
    o->begin_time_ns[row] = p->begin;
    o->end_time_ns[row] = UNKNOWN;
    o->task[row] = t->number;
    o->process[row] = e->processes.at[t->process].number;
    o->pid[row] = e->processes.at[t->process].pid;
    o->tid[row] = t->tid;
    o->call[row] = p->call;
    o->status[row] = STATUS_IN_FLIGHT;
    o->offset_bytes[row] = offset_of(e, p, &o->offset_source[row]);
    o->first_use[row] = p->first_use;
    o->closes[row] = 0;
    o->cpu[row] = p->cpu;
    o->handle[row] = p->handle == NONE ? NONE : e->handles.at[p->handle].number;
    o->handle2[row] = p->handle2 == NONE ? NONE : e->handles.at[p->handle2].number;
    o->fd[row] = p->fd;
    o->flags[row] = call->kind == LO2_CALL_CLOSE ? 0 : p->flags;
    o->bytes_request[row] = p->counts_bytes ? (int64_t)p->count : UNKNOWN;
    o->bytes_result[row] = UNKNOWN;
    o->result[row] = UNKNOWN;
    o->error[row] = 0;
    o->cache[row] = LO2_CACHE_NO_READ;
    o->cache_missed_pages[row] = o->cache_ahead_pages[row] = NONE;
    o->cache_wait_ns[row] = UNKNOWN;
    o->run_queue_ns[row] = o->blocked_ns[row] = UNKNOWN;
    o->fuse_requests[row] = 0;
    o->fuse_ns[row] = 0;
    if (call->kind == LO2_CALL_COPY)
        e->next_id++; /* the id of the copy's written half */
}

/* Marks the handle as used if this row is the first of a recorded thread that names it. */
static void claim(engine *e, task *t, uint32_t index, uint8_t bit)
{
    handle *h = &e->handles.at[index];
    if (h->used || !is_recorded(e, t))
        return;
    h->used = 1;
    t->pending.claimed |= bit;
    if (h->origin >= ORIGIN_INHERITED) /* no recorded call opened it */
        t->pending.first_use |= bit;
}

uint32_t call_beside(engine *e, task *t, const beside *read)
{
    lo2_operation_columns *o = &e->batch->operations;
    pending_call *p = &t->pending;
    memcpy(p, &FRESH, sizeof FRESH);
    p->call = read->call;
    p->cpu = read->cpu;
    p->begin = read->begin;
    p->offset = read->offset;
    p->positioned = p->counts_bytes = true;
    p->count = (uint64_t)read->bytes;
    p->handle = read->handle;
    if (p->handle != NONE)
        claim(e, t, p->handle, 1);
    uint32_t row = emit_operation(e);
    fill_row(e, t, row);
    p->active = false;
    o->end_time_ns[row] = read->end;
    o->status[row] = STATUS_COMPLETED;
    o->bytes_result[row] = o->result[row] = read->bytes;
    o->run_queue_ns[row] = read->run_queue;
    o->blocked_ns[row] = read->blocked;
    return row;
}

/*
 * True if the slot held the same handle from the call's entry on. Then the kernel met this handle's file, whenever it looked
 * the descriptor up. A close empties the slot itself: for a close, true if no other thread was about to end the slot's file.
 */
static bool is_certain(engine *e, const task *t, const slot *s, uint32_t held, int32_t fd)
{
    const pending_call *p = &t->pending;
    if (!s)
        return false;
    if (e->calls[p->call].kind == LO2_CALL_CLOSE)
        return close_is_spent(e, t) ? !slot_is_disturbed(e, t, s, fd, p->begin) : slot_is_steady(e, t, s, fd, p->begin);
    return s->handle == held && s->since <= p->begin && slot_is_steady(e, t, s, fd, p->begin);
}

/* A fast path for nearly all calls. True: nobody touched the slot, so is_certain() is true as well. */
static inline bool is_at_peace(const engine *e, const task *t, const slot *s, uint32_t held)
{
    const fd_table *f = &e->tables.at[t->table];
    int64_t begin = t->pending.begin;
    return s && s->handle == held && s->since <= begin && s->ending == s->spent && s->settled <= begin && !f->ranges &&
           f->ranges_settled <= begin && s->blind_settled <= begin && !s->tainted && e->lost_until <= begin && !e->config.ends_unseen;
}

/*
 * True if the handle is only believed: another thread could have replaced the descriptor unseen, the recorded name may
 * belong to the old file, and no BPF fact of this call confirms the handle. The fact about a close comes before the
 * call. So the handle of a close counts as confirmed if the close met a file and no other thread could interfere.
 */
static bool is_believed(const engine *e, const task *t, uint32_t held, uint8_t bit, bool met)
{
    const description *d = &e->descriptions.at[e->handles.at[held].description];
    if (!e->config.ends_unseen || (d->file == NONE && !d->has_identity))
        return false;
    bool closes = e->calls[t->pending.call].kind == LO2_CALL_CLOSE;
    return closes ? !met || !has_no_rivals(e, t) : !(t->pending.confirmed & bit);
}

/* Keeps the call's handle if the kernel met the file that the slot held at the entry. Else takes the handle away. */
static void confirm(engine *e, task *t, uint32_t *held, int32_t fd, uint8_t bit, bool met, int64_t time)
{
    pending_call *p = &t->pending;
    uint32_t index = *held;
    fd_table *f = &e->tables.at[t->table];
    slot *s = (uint32_t)fd < f->slots.count ? &f->slots.at[fd] : NULL;
    bool missed = !met && e->calls[p->call].kind != LO2_CALL_CLOSE && !is_open_otherwise(e, t, index, bit);
    if (!missed && is_at_peace(e, t, s, index)) {
        claim(e, t, index, bit);
        return;
    }
    bool certain = !missed && is_certain(e, t, s, index, fd), believed = is_believed(e, t, index, bit, met);
    if (certain && !believed) {
        if (met || e->calls[p->call].kind != LO2_CALL_CLOSE) /* a failed close closed nothing */
            claim(e, t, index, bit);
        return;
    }
    p->doubtful |= certain ? 0 : bit;
    position_doubtful(e, t, index, bit, time);
    if (e->calls[p->call].kind == LO2_CALL_CLOSE)
        handle_end(e, index, p->flags, UNKNOWN);
    else if (certain)
        slot_clear(e, s, UNKNOWN, s->since); /* the slot now holds an unknown file */
    else if (missed && s && s->handle == index && tells_by_ebadf(e, t, index))
        slot_clear(e, s, UNKNOWN, time);
    handle_release(e, index);
    *held = NONE;
}

static void confirm_both(engine *e, task *t, bool met, int64_t time)
{
    pending_call *p = &t->pending;
    if (p->handle != NONE)
        confirm(e, t, &p->handle, p->fd, 1, met, time);
    if (p->handle2 == NONE)
        return;
    if (p->handle == NONE && p->fd == p->fd2) {
        handle_release(e, p->handle2);
        p->handle2 = NONE;
        p->doubtful |= (uint8_t)(p->doubtful << 1);
    } else {
        confirm(e, t, &p->handle2, p->fd2, 2, met, time);
    }
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

/* The exit never came: the call is in flight, and its effect on the position is unknown. */
void call_abandon(engine *e, task *t, int64_t end_time)
{
    pending_call *p = &t->pending;
    if (!p->active)
        return;
    if (p->off_begin != UNKNOWN)
        off_cpu_end(e, t, UNKNOWN);
    confirm_both(e, t, true, e->totals.last_time_ns);
    uint32_t row = NONE;
    if (is_recorded(e, t)) {
        fill_row(e, t, row = emit_operation(e));
        e->totals.nr_in_flight_calls++;
        if (p->address)
            futex_called(e, e->batch->operations.id[row], p->address);
    } else {
        e->totals.nr_own_calls += e->config.all_tasks;
    }
    if (t->fuse_first)
        fuse_call_left(e, t, row);
    if (e->calls[p->call].kind >= LO2_CALL_RING_SETUP)
        ring_call_left(e, t, NULL, e->totals.last_time_ns, row);
    position_left(e, t, 0, false, e->totals.last_time_ns);
    if (p->handle != NONE && e->calls[p->call].kind == LO2_CALL_CLOSE)
        handle_end(e, p->handle, p->flags, end_time);
    if (p->ends && !e->finishing)
        perhaps_replaced(e, t);
    if (p->ends) /* a call in flight at the end of the trace may go on */
        ends_over(e, t, e->finishing ? INT64_MAX : e->totals.last_time_ns);
    if (e->config.cache && row != NONE)
        cache_call_left(e, t, row, false);
    else
        cache_call_dropped(e, t);
    let_go(e, t);
    t->left = (left_call){p->begin, e->totals.last_time_ns, 0, p->call, false, row == NONE ? 0 : e->batch->operations.id[row]};
    if (t->held)
        kernel_facts_due(e, t);
}

/* Since the entry, a fact has filled the slot with a file that was there before the entry. */
static bool found_meanwhile(const slot *s, const pending_call *p)
{
    return s && s->handle != NONE && (s->since == UNKNOWN || s->since <= p->begin);
}

/*
 * Makes a handle for an fd whose opening was not seen. `proven`: the call met a file there, so the slot is not empty.
 * A fact about the time before the entry may have filled the slot meanwhile. The call then takes over the slot's
 * handle, if no call that could end that handle was under way. If the slot was not constant, a new handle lives for
 * this call only.
 */
static uint32_t discover(engine *e, task *t, int32_t fd, bool closing, bool proven, int64_t time, uint8_t bit)
{
    slot *s = slot_at(e, t->table, fd, true);
    bool steady = s && slot_is_steady(e, t, s, fd, t->pending.begin), found = found_meanwhile(s, &t->pending);
    if (found && steady) {
        uint32_t index = resolve(e, t, fd);
        if (index != NONE)
            claim(e, t, index, bit);
        if (closing && index != NONE) /* the slot's reference keeps the handle alive until the close ends it */
            slot_set(s, time, NONE, false);
        return index;
    }
    if (!proven)
        return NONE;
    if (found && closing)
        slot_clear(e, s, UNKNOWN, time); /* this call has ended the slot's file, or another one has */
    uint32_t d = s ? description_new(e) : NONE;
    uint32_t index = d == NONE ? NONE : handle_new(e, t, fd, d, ORIGIN_UNSEEN);
    if (index == NONE)
        return NONE;
    e->handles.at[index].refs++; /* the pending call's reference */
    claim(e, t, index, bit);
    if (closing)
        return index;
    if (s->handle == NONE && steady && s->since <= t->pending.begin)
        slot_set(s, s->since, index, false);
    else /* another thread may have opened the number meanwhile: the handle lives for this call alone */
        handle_end(e, index, false, UNKNOWN);
    return index;
}

/*
 * Only success proves that the kernel looked the descriptor up, for many calls check other arguments first. Success of
 * a copy of no bytes proves nothing (splice and tee return at once). A close has looked its descriptor up, whatever
 * error it returns.
 */
static void discover_all(engine *e, task *t, const lo2_call *call, int64_t result, int64_t time)
{
    pending_call *p = &t->pending;
    bool closes = call->kind == LO2_CALL_CLOSE, proven = closes || (result >= 0 && (call->kind != LO2_CALL_COPY || p->count));
    if (p->has_fd && p->fd >= 0 && p->handle == NONE && !(p->doubtful & 1)) {
        p->handle = discover(e, t, p->fd, closes, proven, time, 1);
        position_doubtful(e, t, NONE, 1, time); /* the handle found there, and any that came into the slot meanwhile */
    }
    if (call->kind == LO2_CALL_COPY && p->fd2 >= 0 && p->handle2 == NONE && !(p->doubtful & 2)) {
        bool same = p->fd2 == p->fd; /* compared by fd, for the slot may hold another handle at the exit */
        p->handle2 = same ? p->handle : discover(e, t, p->fd2, false, proven, time, 2);
        if (same && p->handle != NONE)
            e->handles.at[p->handle].refs++;
        position_doubtful(e, t, NONE, 2, time);
    }
}

/* Uses what BPF programs read behind the call's pointers. */
static void use_value(engine *e, pending_call *p, const lo2_call *call, uint32_t row)
{
    lo2_operation_columns *o = &e->batch->operations;
    if (call->vectored && p->told_value >= 0) {
        o->bytes_request[row] = p->told_value;
    } else if (call->kind == LO2_CALL_OPEN && !call->has_flags && call->fixed_flags < 0) {
        o->flags[row] = p->flags = (uint32_t)p->told_value;
        p->flags_told = true;
    }
}

void on_exit_call(engine *e, task *t, const lo2_event *event, const uint8_t *raw, int64_t time)
{
    pending_call *p = &t->pending;
    const lo2_call *call = &e->calls[event->call];
    int64_t result = (int64_t)load_unsigned(raw, event->fields[LO2_FIELD_RET]);
    if (!p->active && call->kind == LO2_CALL_CLONE && result == 0)
        return; /* a clone's child leaves the call that its parent entered */
    if (!p->active || p->call != event->call) {
        e->totals.nr_orphan_exits += is_recorded(e, t);
        call_abandon(e, t, UNKNOWN);
        t->left = (left_call){UNKNOWN, time, result, event->call, true, 0};
        return;
    }
    bool failed = result < 0 && result >= -4095;
    t->left = (left_call){p->begin, time, result, p->call, true, 0};
    if (t->held)
        kernel_arguments_due(e, t);
    confirm_both(e, t, result != -EBADF, time);
    if (result != -EBADF && names_handle(call))
        discover_all(e, t, call, result, time);
    if (p->off_begin != UNKNOWN)
        off_cpu_end(e, t, time); /* the switch back was lost */
    if (call->kind == LO2_CALL_AIO_SUBMIT)
        iocbs_submitted(e, t, result);
    /* The row of a task that is not recorded yet is filled all the same: the next row overwrites it. */
    uint32_t row = e->batch->nr_operations;
    if (is_recorded(e, t))
        emit_operation(e);
    else
        e->totals.nr_own_calls += e->config.all_tasks;
    fill_row(e, t, row);
    lo2_operation_columns *o = &e->batch->operations;
    o->end_time_ns[row] = time;
    o->status[row] = STATUS_COMPLETED;
    o->result[row] = result;
    o->error[row] = failed ? (int16_t)-result : 0;
    if (!p->unseen) {
        o->run_queue_ns[row] = p->run_queue;
        o->blocked_ns[row] = p->blocked;
    }
    if (call->returns == LO2_RETURNS_BYTES && !failed)
        o->bytes_result[row] = result;
    int64_t position;
    bool told = p->told_position != UNKNOWN && position_told(e, p, result, row, &position);
    position_left(e, t, result, true, time);
    if (told)
        position_set(e, p, position);
    if (p->told_value != UNKNOWN)
        use_value(e, p, call, row);
    if (e->config.cache)
        cache_call_left(e, t, row, true);
    if (call->kind >= LO2_CALL_RING_SETUP)
        ring_call_left(e, t, &result, time, is_recorded(e, t) ? row : NONE);
    call_effects(e, t, call, result, time, row);
    t->left.operation = is_recorded(e, t) ? o->id[row] : 0;
    if (p->address && t->left.operation)
        futex_called(e, t->left.operation, p->address);
    if (t->fuse_first)
        fuse_call_left(e, t, t->left.operation ? row : NONE);
    if (t->held)
        kernel_facts_due(e, t);
    if (p->ends)
        ends_over(e, t, time);
    if (t->nr_requests)
        requests_end_with_call(e, t, time);
    let_go(e, t);
}
