/*
 * Which open file a descriptor stands for, as BPF programs saw it. A fact states what the descriptor was shortly before
 * the call's exit. This file concludes whether the call itself met the same file. docs/explanation/rules/names.md has
 * the rules, and what other threads of the table may do meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "calls/kernel_files.h"
#include "rings/rings.h"
#include "tables/descriptions.h"
#include "tables/descriptors.h"
#include "tables/positions.h"
#include "tables/sharing.h"

static const uint32_t MQUEUE = 0x19800202; /* ipc/mqueue.c */

typedef struct {
    lo2_kernel_file of;
    const char *names;
    int64_t time, begin;          /* of the fact, and of the entry of its call: `time` if no call is known */
    bool matched;                 /* the fact's call is known: the thread is leaving it, or left it last */
    bool result;                  /* the fact is about what the call returned */
} sight;

/* ---- could the descriptor have been exchanged during the call? ---- */

/*
 * True if the slot held its file when the call looked the descriptor up. If closes are not recorded, another thread may
 * have exchanged the file unseen.
 */
static bool is_constant(const engine *e, const task *t, const slot *s, int32_t fd, int64_t begin)
{
    return s->since <= begin && slot_is_steady(e, t, s, fd, begin) && (!e->config.ends_unseen || has_no_rivals(e, t));
}

/* True if the slot still holds the call's result. */
static bool is_result(const engine *e, const task *t, const slot *s, const sight *at)
{
    const pending_call *p = &t->pending;
    if (slot_is_disturbed(e, t, s, at->of.fd, at->begin))
        return false;
    if (!at->matched)
        return s->since <= at->time;
    if (e->calls[p->call].kind == LO2_CALL_DUP_TO && !slot_is_steady(e, t, s, at->of.fd, at->begin))
        return false; /* dup2's target need not have been free: a close may follow dup2 within this call */
    if (t->left.result != at->of.fd || (p->found_since != UNKNOWN && p->found_since > at->begin))
        return false; /* another thread filled the slot during the call: who came last is unknown */
    return p->made == NONE || s->handle == p->made;
}

/* Of a dup: true if the source's slot surely held the copied descriptor. */
static bool source_is_constant(engine *e, const task *t, int64_t begin)
{
    const pending_call *p = &t->pending;
    uint8_t kind = e->calls[p->call].kind;
    if (kind != LO2_CALL_DUP && kind != LO2_CALL_DUP_TO && kind != LO2_CALL_FCNTL)
        return true;
    const slot *s = slot_at(e, t->table, p->fd, false);
    return s && is_constant(e, t, s, p->fd, begin);
}

/* ---- which description is it? ---- */

static bool is_same(const description *d, const lo2_kernel_file *of)
{
    return d->address == of->file && d->inode == of->inode && d->device == of->device && d->generation == of->generation;
}

/* If records are lacking, a description that was used before, without a fact, may be another one. */
static bool is_used_before(const engine *e, const description *d, int64_t begin)
{
    return (e->config.ends_unseen || e->config.records_lost) && d->first_use != UNKNOWN && d->first_use < begin;
}

static uint32_t new_handle(engine *e, task *t, const sight *at)
{
    uint32_t d = description_new(e);
    uint8_t origin = at->time <= e->config.start_ns ? ORIGIN_BEFORE : ORIGIN_UNSEEN;
    return d == NONE ? NONE : handle_new(e, t, at->of.fd, d, origin);
}

/* A duplicate's description turned out to differ from its source's: corrects the row that the call just got. */
static void mend_row(engine *e, const task *t, uint32_t old, uint32_t index)
{
    lo2_operation_columns *o = &e->batch->operations;
    uint32_t row = e->batch->nr_operations - 1;
    if (!e->batch->nr_operations || !t->left.operation || o->id[row] != t->left.operation ||
        o->handle2[row] != e->handles.at[old].number)
        return;
    o->handle[row] = NONE;
    o->handle2[row] = e->handles.at[index].number;
    o->first_use[row] = 2;
    if (t->pending.active && (t->pending.claimed & 1))
        e->handles.at[t->pending.handle].used = 0;
    e->handles.at[old].used = 0;
    e->handles.at[index].used = 1;
}

/* The slot's file came unseen: gives the slot a new handle. The old handle ended at an unknown time. */
static bool replace(engine *e, task *t, slot *s, const sight *at)
{
    uint32_t index = new_handle(e, t, at);
    if (index == NONE)
        return false;
    if (s->handle == NONE) {
        slot_set(s, s->since, index, false);
        return true;
    }
    if (at->result && at->matched)
        mend_row(e, t, s->handle, index);
    slot_clear(e, s, UNKNOWN, at->begin);
    slot_set(s, at->begin, index, false);
    return true;
}

/* Settles which handle the slot holds after the fact; false if the fact proves nothing. */
static bool settle(engine *e, task *t, slot *s, const sight *at)
{
    if (s->handle == NONE)
        return replace(e, t, s, at);
    const description *d = description_of(e, s->handle);
    if (d->has_identity)
        return is_same(d, &at->of) || replace(e, t, s, at);
    if (at->result ? !at->matched || s->handle != t->pending.made : is_used_before(e, d, at->begin))
        return replace(e, t, s, at);
    if (at->result && is_used_before(e, d, at->begin)) /* a copy of a description without facts */
        return replace(e, t, s, at);
    return !at->result || source_is_constant(e, t, at->begin);
}

/* ---- what the fact adds ---- */

static void learn(engine *e, const task *t, slot *s, const sight *at)
{
    description *d = description_of(e, s->handle);
    bool moved = at->matched ? others_move(t, s, at->of.fd) : s->movers;
    if (d->open_flags == NONE)
        s->cloexec = (at->of.open_flags & O_CLOEXEC) != 0;
    learn_flags(e, s, d, at->of.open_flags);
    uint32_t mode = at->of.magic == MQUEUE ? S_IFIFO : at->of.mode; /* looks like a regular file, but messages have no offset */
    compare_position(d, mode, moved ? UNKNOWN : at->of.position, at->time);
    description_learns(e, e->handles.at[s->handle].description, &at->of, at->names);
}

/* The call is about to get its row. Makes the row name this handle, whatever the call's slot seemed to hold at the entry. */
static void point_to(engine *e, task *t, uint32_t *held, uint8_t bit, uint32_t index)
{
    pending_call *p = &t->pending;
    if (*held == NONE || *held == index)
        return; /* the slot was empty: calls/calls.c finds the handle there */
    if (p->moves & bit) {
        description *d = description_of(e, *held);
        if (--d->moving == 0)
            d->overlapped = 0;
        p->moves &= (uint8_t)~bit;
        p->position = UNKNOWN;
    }
    handle_release(e, *held);
    *held = index;
    e->handles.at[index].refs++;
}

void on_kernel_file(engine *e, task *t, const uint8_t *record, uint32_t size)
{
    sight at = {.names = (const char *)record + sizeof at.of};
    memcpy(&at.of, record, sizeof at.of);
    if (at.of.flags & LO2_FILE_SLOT) {
        ring_slot_fact(e, t, record, size);
        return;
    }
    table_told(e, t, at.of.table);
    const left_call *left = &t->left;
    at.time = (int64_t)at.of.head.time_ns;
    at.matched = at.of.of != LO2_FILE_OF_REQUEST && left->completed && left->begin != UNKNOWN && at.time >= left->begin &&
                 at.time <= left->end;
    at.begin = at.matched ? left->begin : at.time;
    at.result = at.of.of == LO2_FILE_OF_RESULT;
    slot *s = slot_at(e, t->table, at.of.fd, true);
    bool refused = at.matched && !at.result && left->result == -EBADF;
    if (!s || refused || !(at.result ? is_result(e, t, s, &at) : is_constant(e, t, s, at.of.fd, at.begin)) ||
        !settle(e, t, s, &at)) {
        e->totals.nr_files_refused++;
        if (at.of.of == LO2_FILE_OF_REQUEST)
            t->told = 0;
        return;
    }
    e->totals.nr_files_told++;
    learn(e, t, s, &at);
    if (at.of.of == LO2_FILE_OF_REQUEST)
        t->told = description_of(e, s->handle)->number + 1;
    pending_call *p = &t->pending;
    if (at.result || !at.matched || !p->active)
        return;
    p->confirmed |= (uint8_t)((p->fd == at.of.fd) | ((p->fd2 == at.of.fd) << 1));
    if (p->fd == at.of.fd)
        point_to(e, t, &p->handle, 1, s->handle);
    if (p->fd2 == at.of.fd && e->calls[p->call].kind == LO2_CALL_COPY)
        point_to(e, t, &p->handle2, 2, s->handle);
}
