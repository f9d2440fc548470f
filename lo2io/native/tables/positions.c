/*
 * File positions: followed from call to call, and told by BPF programs (docs/explanation/rules/calls.md).
 *
 * A followed position is unknown
 * - if nobody saw the open, until a fact gives the position at a moment when no pending call moves, or has discovered, the
 *   description;
 * - after a write that appends or may append (the write itself has no offset), after a call in flight, and after a copy
 *   that moved bytes, on both sides;
 * - for calls that overlap another call which moves the position. The other call is on the same description or, if the
 *   handle was not known yet, on the same descriptor. The results of such calls still add up. The result of an
 *   overlapping seek does not count;
 * - for good, after a fact of a quiet moment contradicts it: somebody outside of the trace moves it;
 * - for calls of which no fact tells the file, if some calls that end descriptors were not recorded: the position may be
 *   that of a file which the descriptor no longer has;
 * - always for pipes, sockets, character devices and message queues, and if a call of the default set that moves
 *   positions was not recorded on every CPU.
 *
 * An explicit offset is unknown if it is invalid. -1 means the position to preadv2 and pwritev2.
 */
#include <fcntl.h>

#include "tables/descriptors.h"
#include "tables/positions.h"

/* calls on higher descriptors count only if their slots exist, so that no call can ask for more memory */
enum { FDS_COUNTED = 1 << 10 };

static bool moves_position(const lo2_call *call, const pending_call *p)
{
    switch (call->kind) {
    case LO2_CALL_READ:
    case LO2_CALL_WRITE: return !p->positioned;
    case LO2_CALL_SEEK:
    case LO2_CALL_COPY: return true;
    default: return false;
    }
}

/* True if the copy may move a second description. Whether it does depends on pointers in user memory. */
static bool second_moves(engine *e, const pending_call *p)
{
    return p->handle2 != NONE &&
           (p->handle == NONE || e->handles.at[p->handle].description != e->handles.at[p->handle2].description);
}

static void start_moving(description *d, pending_call *p)
{
    p->position = d->position;
    if (d->moving++)
        d->overlapped = 1;
}

/*
 * Counts the call in its slot. The call may move the position of a file that another thread puts there meanwhile. It
 * also moves the position of the slot's file if that file was unknown when the call began.
 */
static void count_in_slot(engine *e, task *t, int32_t fd, uint32_t held, uint8_t bit)
{
    fd_table *f = &e->tables.at[t->table];
    slot *s = (uint32_t)fd < f->slots.count ? &f->slots.at[fd] : slot_at(e, t->table, fd, fd < FDS_COUNTED);
    if (s && held != NONE && others_move(t, s, fd))
        description_of(e, held)->overlapped = 1;
    if (s && s->movers < UINT16_MAX) {
        s->movers++;
        t->pending.moves |= bit;
    }
}

bool others_move(const task *t, const slot *s, int32_t fd)
{
    const pending_call *p = &t->pending;
    int own = p->active ? ((p->moves & 4) && p->fd == fd) + ((p->moves & 8) && p->fd2 == fd) : 0;
    return s->movers > own;
}

void position_entered(engine *e, task *t)
{
    pending_call *p = &t->pending;
    if (!moves_position(&e->calls[p->call], p))
        return;
    p->moves = (uint8_t)((p->handle != NONE) | (second_moves(e, p) << 1));
    if (p->moves & 1)
        start_moving(description_of(e, p->handle), p);
    if (p->moves & 2)
        start_moving(description_of(e, p->handle2), p);
    if (e->tables.at[t->table].refs < 2)
        return;
    count_in_slot(e, t, p->fd, p->handle, 4);
    if (e->calls[p->call].kind == LO2_CALL_COPY)
        count_in_slot(e, t, p->fd2, p->handle2, 8);
}

static void move_to(description *d, int64_t position) { d->position = d->foreign ? UNKNOWN : position; }

/* enum appends. Of the calls that write at an offset, pwritev2 alone has flags. */
static uint8_t appends_to(const engine *e, const pending_call *p, const description *d)
{
    return e->calls[p->call].kind == LO2_CALL_WRITE ? write_appends(p->flags, d->append) : APPENDS_NOT;
}

/* `known`: the call's exit was seen. */
static void stop_moving(engine *e, uint32_t index, const pending_call *p, int64_t result, bool known, int64_t time)
{
    description *d = description_of(e, index);
    const lo2_call *call = &e->calls[p->call];
    if (!known)
        move_to(d, UNKNOWN);
    else if (result >= 0 && call->kind == LO2_CALL_SEEK)
        move_to(d, d->overlapped ? UNKNOWN : result);
    else if (result > 0 && (call->kind == LO2_CALL_COPY || appends_to(e, p, d)))
        move_to(d, UNKNOWN);
    else if (result > 0 && d->position != UNKNOWN)
        move_to(d, d->position > INT64_MAX - result ? UNKNOWN : d->position + result);
    if (--d->moving == 0)
        d->overlapped = 0;
    d->last_moved = time;
}

static inline void leave_slot(engine *e, const task *t, int32_t fd)
{
    fd_table *f = &e->tables.at[t->table];
    if ((uint32_t)fd < f->slots.count)
        f->slots.at[fd].movers -= f->slots.at[fd].movers > 0;
}

void position_left(engine *e, task *t, int64_t result, bool known, int64_t time)
{
    pending_call *p = &t->pending;
    if (p->moves & 1)
        stop_moving(e, p->handle, p, result, known, time);
    if (p->moves & 2)
        stop_moving(e, p->handle2, p, result, known, time);
    if (p->moves & 4)
        leave_slot(e, t, p->fd);
    if (p->moves & 8)
        leave_slot(e, t, p->fd2);
    p->moves = 0;
}

void position_parted(engine *e, task *t)
{
    pending_call *p = &t->pending;
    if (p->active && (p->moves & 4))
        leave_slot(e, t, p->fd);
    if (p->active && (p->moves & 8))
        leave_slot(e, t, p->fd2);
    p->moves &= 3;
}

void position_doubtful(engine *e, task *t, uint32_t handle_index, uint8_t bit, int64_t time)
{
    pending_call *p = &t->pending;
    const lo2_call *call = &e->calls[p->call];
    const slot *s = slot_at(e, t->table, bit == 1 ? p->fd : p->fd2, false);
    description *now = s && s->handle != NONE ? description_of(e, s->handle) : NULL;
    if (p->moves & bit) {
        stop_moving(e, handle_index, p, 0, false, time);
        p->moves &= (uint8_t)~bit;
        p->position = UNKNOWN;
    }
    if (now && moves_position(call, p)) {
        now->position = UNKNOWN;
        now->last_moved = time;
    }
    if (call->kind != LO2_CALL_FCNTL || p->flags != F_SETFL)
        return;
    if (now)
        now->append = APPENDS_MAYBE;
    if (handle_index != NONE)
        description_of(e, handle_index)->append = APPENDS_MAYBE;
}

/* True if the position is that of the file that the call met, and not of one that the descriptor had before. */
static bool is_of_its_file(const engine *e, const pending_call *p) { return !e->config.ends_unseen || (p->confirmed & 1); }

int64_t offset_of(engine *e, const pending_call *p, uint8_t *source)
{
    const lo2_call *call = &e->calls[p->call];
    const description *d = p->handle == NONE ? NULL : description_of(e, p->handle);
    bool data = call->kind == LO2_CALL_READ || call->kind == LO2_CALL_WRITE;
    *source = OFFSET_UNKNOWN;
    if (p->positioned) {
        bool appends = call->kind == LO2_CALL_WRITE && write_appends(p->flags, d ? d->append : APPENDS_NOT) == APPENDS;
        if (appends || (p->offset < 0 && data))
            return UNKNOWN;
        *source = OFFSET_EXPLICIT;
        return p->offset;
    }
    if (!data || !(p->moves & 1) || d->overlapped || p->position == UNKNOWN || appends_to(e, p, d) || !is_of_its_file(e, p))
        return UNKNOWN;
    *source = OFFSET_FOLLOWED;
    return p->position;
}

/* The position that the call must have left, by what was known before it; UNKNOWN if nothing was. */
static int64_t expected(const lo2_call *call, const pending_call *p, bool appends, int64_t result)
{
    if (call->kind == LO2_CALL_SEEK)
        return result >= 0 ? result : p->position;
    if (p->position == UNKNOWN || (appends && result > 0))
        return UNKNOWN;
    return result > 0 ? plus(p->position, result) : p->position;
}

bool position_told(engine *e, const pending_call *p, int64_t result, uint32_t row, int64_t *after)
{
    const lo2_call *call = &e->calls[p->call];
    const description *d = p->moves & 1 ? description_of(e, p->handle) : NULL;
    if (!d || d->foreign || d->overlapped || call->kind == LO2_CALL_COPY || p->told_position < 0)
        return false;
    lo2_operation_columns *o = &e->batch->operations;
    bool seeks = call->kind == LO2_CALL_SEEK, appends = appends_to(e, p, d);
    int64_t known = expected(call, p, appends, result), moved = result > 0 && !seeks ? result : 0;
    *after = p->told_position;
    if (known != UNKNOWN && known != p->told_position) { /* somebody else has moved it before, during or after the call */
        *after = UNKNOWN;
        if (o->offset_source[row] == OFFSET_FOLLOWED) {
            o->offset_source[row] = OFFSET_UNKNOWN;
            o->offset_bytes[row] = UNKNOWN;
        }
    } else if (!seeks && o->offset_source[row] == OFFSET_UNKNOWN && p->told_position >= moved && (moved || !appends)) {
        o->offset_source[row] = OFFSET_KERNEL;
        o->offset_bytes[row] = p->told_position - moved;
    }
    return true;
}

void position_set(engine *e, const pending_call *p, int64_t position) { move_to(description_of(e, p->handle), position); }
