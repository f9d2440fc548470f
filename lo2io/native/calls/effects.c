/* What successful calls do to the table of descriptors. docs/explanation/rules/calls.md has the rules. */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>

#include "calls/effects.h"
#include "rings/rings.h"
#include "tables/descriptions.h"
#include "tables/descriptors.h"
#include "tables/rows.h"

enum {
    DUPFD_CLOEXEC = 1030,        /* F_DUPFD_CLOEXEC, F_LINUX_SPECIFIC_BASE + 6 */
    RANGE_UNSHARE = 2,           /* CLOSE_RANGE_UNSHARE */
    RANGE_CLOEXEC = 4,           /* CLOSE_RANGE_CLOEXEC */
    SHARE_FILES = 0x400,         /* CLONE_FILES */
    PATH_ONLY = 010000000        /* O_PATH, which <fcntl.h> keeps for _GNU_SOURCE */
};

/* O_PATH allows these calls, which use the descriptor alone (check_fcntl_cmd, fs/fcntl.c). */
static bool takes_paths(const pending_call *p, uint8_t kind)
{
    return kind == LO2_CALL_DUP || kind == LO2_CALL_DUP_TO ||
           (kind == LO2_CALL_FCNTL && (p->flags <= F_GETFL || p->flags == DUPFD_CLOEXEC));
}

/* True if the file is not open for this call: then EBADF does not mean that the slot is empty. */
bool is_open_otherwise(engine *e, const task *t, uint32_t handle_index, uint8_t bit)
{
    uint8_t kind = e->calls[t->pending.call].kind;
    uint32_t flags = description_of(e, handle_index)->open_flags, mode = flags & O_ACCMODE;
    bool reads = kind == LO2_CALL_READ || (kind == LO2_CALL_COPY && bit == 1);
    bool writes = kind == LO2_CALL_WRITE || (kind == LO2_CALL_COPY && bit == 2);
    bool path_only = (flags & PATH_ONLY) && !takes_paths(&t->pending, kind);
    bool neither = mode == O_ACCMODE; /* open for ioctl alone */
    return flags != NONE && (path_only || (reads && (mode == O_WRONLY || neither)) || (writes && (mode == O_RDONLY || neither)));
}

/*
 * True if EBADF of this call proves an empty slot, given that the file is open for the call. Calls that may fail so for
 * another reason (a message's content, a file that is no pipe) prove nothing.
 */
bool tells_by_ebadf(engine *e, const task *t, uint32_t handle_index)
{
    const pending_call *p = &t->pending;
    const lo2_call *call = &e->calls[p->call];
    bool moves_data = (call->kind == LO2_CALL_READ || call->kind == LO2_CALL_WRITE) && call->returns == LO2_RETURNS_BYTES;
    return moves_data && description_of(e, handle_index)->open_flags != NONE &&
           (call->vectored ? !call->has_flags || p->offset != UNKNOWN : p->counts_bytes);
}

static void opened(engine *e, task *t, const lo2_call *call, int32_t fd, int64_t time, uint32_t row)
{
    uint32_t flags = call->has_flags || t->pending.flags_told ? t->pending.flags : call->fixed_flags >= 0 ? (uint32_t)call->fixed_flags : NONE;
    uint32_t d = description_new(e);
    uint32_t index = d == NONE ? NONE : handle_new(e, t, fd, d, ORIGIN_OPENED);
    if (index == NONE)
        return;
    handle *h = &e->handles.at[index];
    h->open_flags = e->descriptions.at[d].open_flags = flags;
    h->open_time = time;
    h->used = is_recorded(e, t);
    if (flags != NONE) {
        e->descriptions.at[d].position = e->descriptions.at[d].foreign ? UNKNOWN : 0;
        e->descriptions.at[d].append = (flags & O_APPEND) ? APPENDS : APPENDS_NOT;
    }
    if (e->lost_until <= t->pending.begin) /* else entry and exit may be of two calls */
        name_from_call(e, &e->descriptions.at[d], t->path, t->path_length);
    t->path_length = 0;
    e->batch->operations.handle[row] = h->number;
    e->batch->operations.fd[row] = fd;
    handle_install(e, t, fd, index, flags != NONE && (flags & O_CLOEXEC), time);
    if (call->kind == LO2_CALL_RING_SETUP && e->rings)
        ring_installed(e, t, index);
}

static void duplicated(engine *e, task *t, int32_t fd, bool cloexec, int64_t time, uint32_t row)
{
    uint32_t source = t->pending.handle;
    if (source == NONE) { /* the source is unknown */
        slot *s = slot_at(e, t->table, fd, true);
        if (s)
            slot_clear(e, s, UNKNOWN, time);
        return;
    }
    uint32_t index = handle_new(e, t, fd, e->handles.at[source].description, ORIGIN_DUPLICATED);
    if (index == NONE)
        return;
    handle *h = &e->handles.at[index];
    h->parent = e->handles.at[source].number;
    h->open_flags = e->handles.at[source].open_flags;
    h->open_time = time;
    h->used = is_recorded(e, t);
    e->batch->operations.handle2[row] = h->number;
    handle_install(e, t, fd, index, cloexec, time);
}

static void duplicated_to(engine *e, task *t, int32_t fd, int64_t time, uint32_t row)
{
    if (fd == t->pending.fd) /* dup2 of an fd to itself changes nothing */
        return;
    slot *s = slot_at(e, t->table, fd, false);
    if (s && s->handle != NONE)
        slot_sweep(e, t, s, time);
    duplicated(e, t, fd, (t->pending.flags & O_CLOEXEC) != 0, time, row);
}

static void closed_range(engine *e, task *t, int64_t time)
{
    uint32_t first = (uint32_t)t->pending.fd, last = (uint32_t)t->pending.fd2, flags = t->pending.flags;
    if (flags & RANGE_UNSHARE)
        table_unshare(e, t, time);
    fd_table *f = &e->tables.at[t->table];
    for (uint32_t fd = first; fd <= last && fd < f->slots.count; fd++) {
        slot *s = &f->slots.at[fd];
        if (s->handle == NONE)
            continue;
        if (flags & RANGE_CLOEXEC)
            s->cloexec = 1;
        else
            slot_sweep(e, t, s, time);
    }
}

/* The slot that a call named, if the call's handle is still there. */
static slot *own_slot(engine *e, const task *t)
{
    slot *s = slot_at(e, t->table, t->pending.fd, false);
    return s && s->handle != NONE && s->handle == t->pending.handle ? s : NULL;
}

/* The call changed close-on-exec of an unknown handle: nobody knows whether the slot's file will outlive an exec. */
static void cloexec_doubtful(engine *e, task *t, int64_t time)
{
    slot *s = t->pending.doubtful ? slot_at(e, t->table, t->pending.fd, false) : NULL;
    if (s)
        slot_clear(e, s, UNKNOWN, time);
}

static void controlled(engine *e, task *t, int64_t result, int64_t time, uint32_t row)
{
    const pending_call *p = &t->pending;
    slot *s = own_slot(e, t);
    switch (p->flags) {
    case F_DUPFD:
    case DUPFD_CLOEXEC: duplicated(e, t, (int32_t)result, p->flags == DUPFD_CLOEXEC, time, row); break;
    case F_SETFD:
        if (s)
            s->cloexec = p->count & FD_CLOEXEC;
        else
            cloexec_doubtful(e, t, time);
        break;
    case F_SETFL:
        if (p->handle == NONE)
            break;
        description_of(e, p->handle)->append = (p->count & O_APPEND) ? APPENDS : APPENDS_NOT;
        if (is_recorded(e, t))
            emit_flags_event(e, time, t->number, e->handles.at[p->handle].number, (uint32_t)p->count);
        break;
    default: break;
    }
}

/*
 * During this close, another thread's dup2 has put a file into the slot. The close may have ended that file:
 *
 *   close(0)     |-------------------------|
 *   dup2(2, 0)         |-----------|
 *                   ^                  ^
 *         freed the older file,    or that of dup2
 */
static void closed_amid_dup2(engine *e, const task *t, int64_t time)
{
    if (t->pending.ends != ENDS_FD || close_is_spent(e, t))
        return;
    slot *s = slot_at(e, t->table, t->pending.fd, false);
    if (s && s->handle != NONE && s->handle != t->pending.handle)
        slot_clear(e, s, UNKNOWN, time);
}

static void closed(engine *e, task *t, int64_t result, int64_t time, uint32_t row)
{
    uint32_t index = t->pending.handle;
    bool was_open = result != -EBADF;
    if (was_open)
        closed_amid_dup2(e, t, time);
    if (index == NONE)
        return;
    e->batch->operations.closes[row] = was_open;
    if (!was_open)
        e->batch->operations.handle[row] = NONE;
    handle_end(e, index, t->pending.flags, was_open ? time : UNKNOWN);
}

void call_effects(engine *e, task *t, const lo2_call *call, int64_t result, int64_t time, uint32_t row)
{
    pending_call *p = &t->pending;
    if (call->kind == LO2_CALL_CLOSE) {
        closed(e, t, result, time, row);
        return;
    }
    if (result < 0)
        return;
    switch (call->kind) {
    case LO2_CALL_OPEN: opened(e, t, call, (int32_t)result, time, row); break;
    case LO2_CALL_RING_SETUP:
        if (!ring_has_no_descriptor(e, t))
            opened(e, t, call, (int32_t)result, time, row);
        break;
    case LO2_CALL_DUP: duplicated(e, t, (int32_t)result, false, time, row); break;
    case LO2_CALL_DUP_TO: duplicated_to(e, t, (int32_t)result, time, row); break;
    case LO2_CALL_FCNTL: controlled(e, t, result, time, row); break;
    case LO2_CALL_CLOSE_RANGE: closed_range(e, t, time); break;
    case LO2_CALL_UNSHARE:
        if (p->flags & SHARE_FILES)
            table_unshare(e, t, time);
        break;
    case LO2_CALL_IOCTL:
        if (p->flags != FIOCLEX && p->flags != FIONCLEX)
            break;
        if (own_slot(e, t))
            own_slot(e, t)->cloexec = p->flags == FIOCLEX;
        else
            cloexec_doubtful(e, t, time);
        break;
    default: break;
    }
}
