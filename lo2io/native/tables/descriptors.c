/* File descriptors: tables of slots, and the handles in them. */
#include "tables/descriptions.h"
#include "tables/descriptors.h"
#include "tables/rows.h"

/*
 * FD_LIMIT is the default of fs.nr_open (fs/file.c). A table has a slot for every number up to its highest fd. Damaged
 * records must not take unlimited memory. So all tables together may have SLOTS_FREE slots, and SLOTS_EACH more for
 * each record read so far. A descriptor that finds no slot stays unknown.
 */
enum { FD_LIMIT = 1 << 20, SLOTS_KEPT = 1 << 10, SLOTS_FREE = 1 << 21, SLOTS_EACH = 64 };
enum { RANGE_UNSHARE = 2, RANGE_CLOEXEC = 4 }; /* CLOSE_RANGE_*, linux/close_range.h */

/* ---- handles ---- */

uint32_t handle_new(engine *e, task *t, int32_t fd, uint32_t description_index, uint8_t origin)
{
    uint32_t index;
    TAKE(e, free_handles, handles, index);
    if (index == NONE)
        return NONE;
    e->descriptions.at[description_index].refs++;
    if (origin != ORIGIN_BEFORE)
        description_used(e, &e->descriptions.at[description_index]);
    e->handles.at[index] = (handle){.refs = 1, .number = e->next_handle++, .description = description_index,
                                    .parent = NONE, .process = e->processes.at[t->process].number,
                                    .task = t->number, .fd = fd,
                                    .open_flags = e->descriptions.at[description_index].open_flags, .open_time = UNKNOWN,
                                    .origin = origin};
    return index;
}

void handle_release(engine *e, uint32_t index)
{
    if (--e->handles.at[index].refs == 0) {
        description_release(e, e->handles.at[index].description);
        GIVE_BACK(e, free_handles, index);
    }
}

/* Writes the row of a handle when nothing more can become known of its life. The struct stays while others refer to it. */
void handle_end(engine *e, uint32_t index, bool cloexec, int64_t time)
{
    handle *h = &e->handles.at[index];
    if (!h->ended) {
        const description *d = &e->descriptions.at[h->description];
        h->ended = 1;
        if (d->ring)
            e->tell.descriptor_ended(e, d, time != UNKNOWN);
        if (ROW_ROOM(e, e->handle_queue))
            e->handle_queue.at[e->handle_queue.count++] =
                (handle_row){h->number, h->process, h->task, h->parent, d->number, d->file, h->open_flags, h->fd,
                             h->origin, d->name_source, cloexec, h->used, h->open_time, time};
        else
            e->out_of_memory = true;
    }
    handle_release(e, index);
}

/* ---- tables ---- */

uint32_t table_new(engine *e, int64_t since)
{
    uint32_t index;
    TAKE(e, free_tables, tables, index);
    if (index != NONE) {
        e->tables.at[index].refs = 1;
        e->tables.at[index].address = 0;
        e->tables.at[index].since = since;
        e->tables.at[index].ranges = 0;
        e->tables.at[index].ranges_settled = UNKNOWN;
        e->tables.at[index].slots.count = 0;
    }
    return index;
}

/* Makes room for `need` slots. False if there is none, or if the records read so far do not justify so many. */
static bool slots_room(engine *e, fd_table *f, uint32_t need)
{
    uint32_t before = f->slots.room;
    if (need <= before)
        return true;
    if (e->slots_room + (need - before) > SLOTS_FREE + SLOTS_EACH * e->nr_records)
        return false;
    if (!VEC_ROOM(&f->slots, need)) {
        e->out_of_memory = true;
        return false;
    }
    e->slots_room += f->slots.room - before;
    return true;
}

slot *slot_at(engine *e, uint32_t table, int32_t fd, bool grow)
{
    fd_table *f = &e->tables.at[table];
    if (fd < 0 || fd >= FD_LIMIT)
        return NULL;
    if ((uint32_t)fd >= f->slots.count) {
        if (!grow || !slots_room(e, f, (uint32_t)fd + 1))
            return NULL;
        for (uint32_t i = f->slots.count; i <= (uint32_t)fd; i++)
            f->slots.at[i] = (slot){.since = f->since, .handle = NONE, .settled = UNKNOWN, .blind_settled = UNKNOWN};
        f->slots.count = (uint32_t)fd + 1;
    }
    return &f->slots.at[fd];
}

/* Leaves `ending` and the other counts as they are: a call under way ends the slot, whatever the slot holds by then. */
void slot_set(slot *s, int64_t since, uint32_t handle_index, bool cloexec)
{
    s->since = since;
    s->handle = handle_index;
    s->cloexec = cloexec;
    s->inherited = 0;
}

/*
 * Makes a child's copy, whose slots refer to the parent's handles until the child uses them. The kernel makes the copy
 * at an unknown moment of the call. If other tasks share the parent's table, the slots that they may have changed since
 * the call's start are unknown in the copy. If the call's entry was not seen either, all slots of the copy are unknown.
 */
uint32_t table_copy(engine *e, uint32_t table, int64_t begin)
{
    uint32_t copy = table_new(e, e->tables.at[table].since);
    if (copy == NONE)
        return NONE;
    fd_table *from = &e->tables.at[table], *to = &e->tables.at[copy];
    bool shared = from->refs > 1;
    if (shared && (begin == UNKNOWN || from->ranges || from->ranges_settled > begin)) {
        to->since = e->totals.last_time_ns;
        return copy;
    }
    if (!slots_room(e, to, from->slots.count)) {
        to->since = e->totals.last_time_ns;
        return copy;
    }
    to->slots.count = from->slots.count;
    for (uint32_t i = 0; i < from->slots.count; i++) {
        const slot *s = &from->slots.at[i];
        to->slots.at[i] = *s;
        /* calls under way end and move what the parent's table holds */
        to->slots.at[i].ending = to->slots.at[i].blind = to->slots.at[i].spent = 0;
        to->slots.at[i].movers = to->slots.at[i].tainted = 0;
        if (shared && (s->since > begin || s->ending > s->spent || s->settled > begin)) {
            slot_set(&to->slots.at[i], e->totals.last_time_ns, NONE, false);
        } else if (s->handle != NONE) {
            to->slots.at[i].inherited = 1;
            e->handles.at[s->handle].refs++;
        }
    }
    return copy;
}

void slot_clear(engine *e, slot *s, int64_t end_time, int64_t now)
{
    uint32_t index = s->handle;
    bool inherited = s->inherited, cloexec = s->cloexec;
    slot_set(s, now, NONE, false);
    if (index == NONE)
        return;
    if (inherited)
        handle_release(e, index);
    else
        handle_end(e, index, cloexec, end_time);
}

/* Makes all slots unknown: what happened to the table until now was not seen. */
void table_void(engine *e, uint32_t table, int64_t time)
{
    fd_table *f = &e->tables.at[table];
    f->since = time;
    for (uint32_t i = 0; i < f->slots.count; i++)
        slot_clear(e, &f->slots.at[i], UNKNOWN, time);
}

void table_release(engine *e, uint32_t table, int64_t time)
{
    fd_table *f = &e->tables.at[table];
    if (--f->refs)
        return;
    for (uint32_t i = 0; i < f->slots.count; i++)
        slot_clear(e, &f->slots.at[i], time, time);
    f->slots.count = 0;
    if (f->slots.room > SLOTS_KEPT) { /* else every table would stay as long as the longest ever */
        free(f->slots.at);
        e->slots_room -= f->slots.room;
        f->slots.at = NULL;
        f->slots.room = 0;
    }
    GIVE_BACK(e, free_tables, table);
}

/*
 * Ends the handle in a slot, for a call that does not name the slot's fd as its own (close_range, dup2 for its target,
 * exec). If a call has named the handle before, a handle event states the end. When the last thread of a table exits,
 * the table's handles end without events.
 */
void slot_sweep(engine *e, const task *t, slot *s, int64_t time)
{
    if (s->handle != NONE && !s->inherited && is_recorded(e, t) && e->handles.at[s->handle].used)
        emit_handle_event(e, time, t->number, e->handles.at[s->handle].number);
    slot_clear(e, s, time, time);
}

void table_unshare(engine *e, task *t, int64_t time)
{
    if (e->tables.at[t->table].refs < 2)
        return;
    uint32_t copy = table_copy(e, t->table, t->pending.active ? t->pending.begin : UNKNOWN);
    if (copy == NONE)
        return;
    table_release(e, t->table, time);
    t->table = copy;
}

/* exec copies a shared table and ends the handles that are close-on-exec (begin_new_exec, fs/exec.c). */
void table_exec(engine *e, task *t, int64_t time)
{
    table_unshare(e, t, time);
    fd_table *f = &e->tables.at[t->table];
    for (uint32_t i = 0; i < f->slots.count; i++)
        if (f->slots.at[i].handle != NONE && f->slots.at[i].cloexec)
            slot_sweep(e, t, &f->slots.at[i], time);
}

/* The handle in a slot, made the process' own if it was inherited; NONE: it is empty, or what it holds is unknown. */
uint32_t handle_in_slot(engine *e, task *t, int32_t fd)
{
    slot *s = slot_at(e, t->table, fd, false);
    if (!s || s->handle == NONE)
        return NONE;
    if (s->inherited) {
        uint32_t parent = s->handle;
        uint32_t own = handle_new(e, t, fd, e->handles.at[parent].description, ORIGIN_INHERITED);
        if (own == NONE)
            return NONE;
        e->handles.at[own].parent = e->handles.at[parent].number;
        e->handles.at[own].open_flags = e->handles.at[parent].open_flags;
        s->handle = own;
        s->inherited = 0;
        handle_release(e, parent);
    }
    description_used(e, description_of(e, s->handle));
    return s->handle;
}

void handle_install(engine *e, task *t, int32_t fd, uint32_t index, bool cloexec, int64_t time)
{
    slot *s = slot_at(e, t->table, fd, true);
    if (!s) {
        handle_end(e, index, cloexec, UNKNOWN);
        return;
    }
    if (t->pending.active && s->handle != NONE)
        t->pending.found_since = s->since;
    t->pending.made = index;
    if (s->movers) { /* a call under way on this number may move the new file's position, or already has */
        description *d = &e->descriptions.at[e->handles.at[index].description];
        d->position = UNKNOWN;
        d->last_moved = time;
    }
    slot_clear(e, s, UNKNOWN, time); /* the slot's old handle ended unseen */
    slot_set(s, time, index, cloexec);
    if (e->calls[t->pending.call].kind != LO2_CALL_DUP_TO && !s->tainted) { /* the number was free */
        s->spent = s->ending - s->blind;
        s->installs++;
    }
}

/* ---- ends under way, by threads that share the table ---- */

bool has_no_rivals(const engine *e, const task *t)
{
    const process *p = &e->processes.at[t->process];
    return e->tables.at[t->table].refs == p->nr_tasks && p->nr_tasks == p->nr_serving + 1;
}

/* How the thread's own call is counted in the slot (enum ends). ENDS_NOTHING: the call does not end this slot's file. */
static uint8_t own_end(const engine *e, const task *t, int32_t fd)
{
    const pending_call *p = &t->pending;
    bool own = p->active && (p->ends == ENDS_FD || p->ends == ENDS_FD_BLINDLY) &&
               fd == (e->calls[p->call].kind == LO2_CALL_DUP_TO ? p->fd2 : p->fd);
    return own ? p->ends : ENDS_NOTHING;
}

/* True if other calls may end whatever the slot holds, or may have done so after `begin`; also if a gap may hide that. */
bool slot_is_disturbed(const engine *e, const task *t, const slot *s, int32_t fd, int64_t begin)
{
    const fd_table *f = &e->tables.at[t->table];
    return e->lost_until > begin || f->ranges || f->ranges_settled > begin || s->blind_settled > begin || s->tainted ||
           s->blind > (s->blind && own_end(e, t, fd) == ENDS_FD_BLINDLY);
}

/* True if no other call can have ended what the slot holds since `begin`. */
bool slot_is_steady(const engine *e, const task *t, const slot *s, int32_t fd, int64_t begin)
{
    uint16_t harmful = s->ending - s->spent;
    return s->settled <= begin && harmful <= (harmful && own_end(e, t, fd) != ENDS_NOTHING) &&
           !slot_is_disturbed(e, t, s, fd, begin);
}

bool slot_kept(const engine *e, const task *t, const slot *s, uint32_t index, int64_t since)
{
    return s && s->handle == index && s->since <= since && slot_is_steady(e, t, s, -1, since);
}

/*
 * True if one of these holds: no thread can have replaced the descriptor unseen; nothing is recorded of the descriptor's
 * file, so no name can be an older file's; a fact about the request confirms the descriptor.
 */
bool is_told(const engine *e, const task *t, uint32_t index)
{
    const description *d = &e->descriptions.at[e->handles.at[index].description];
    return !e->config.ends_unseen || (d->file == NONE && !d->has_identity) || t->told == d->number + 1;
}

static slot *slot_it_ends(engine *e, const task *t)
{
    const pending_call *p = &t->pending;
    return slot_at(e, t->table, e->calls[p->call].kind == LO2_CALL_DUP_TO ? p->fd2 : p->fd, true);
}

void perhaps_replaced(engine *e, const task *t)
{
    const pending_call *p = &t->pending;
    if (e->calls[p->call].kind != LO2_CALL_DUP_TO || p->fd == p->fd2) /* dup2 of an fd to itself changes nothing */
        return;
    slot *s = slot_it_ends(e, t);
    if (s)
        slot_clear(e, s, UNKNOWN, e->totals.last_time_ns);
}

bool close_is_spent(engine *e, const task *t)
{
    const slot *s = t->pending.ends == ENDS_FD ? slot_it_ends(e, t) : NULL;
    return s && s->installs != t->pending.installs;
}

void ends_begin(engine *e, task *t)
{
    pending_call *p = &t->pending;
    uint8_t kind = e->calls[p->call].kind;
    if (kind != LO2_CALL_CLOSE && kind != LO2_CALL_DUP_TO && kind != LO2_CALL_CLOSE_RANGE)
        return;
    fd_table *f = &e->tables.at[t->table];
    if (kind == LO2_CALL_CLOSE_RANGE && (p->flags & (RANGE_UNSHARE | RANGE_CLOEXEC)))
        return; /* it ends no other thread's descriptors */
    if (kind == LO2_CALL_CLOSE_RANGE) {
        p->ends = ENDS_RANGE;
        f->ranges++;
        return;
    }
    slot *s = slot_it_ends(e, t);
    if (!s || s->ending == UINT16_MAX)
        return;
    uint16_t harmful = s->ending - s->spent;
    bool blind = kind == LO2_CALL_DUP_TO || p->handle == NONE || harmful;
    s->tainted |= blind && harmful > s->blind;
    p->ends = blind ? ENDS_FD_BLINDLY : ENDS_FD;
    p->installs = s->installs;
    s->ending++;
    s->blind += blind;
}

void ends_over(engine *e, task *t, int64_t time)
{
    pending_call *p = &t->pending;
    uint8_t ends = p->ends;
    p->ends = ENDS_NOTHING;
    if (ends == ENDS_RANGE) {
        e->tables.at[t->table].ranges--;
        e->tables.at[t->table].ranges_settled = time;
        return;
    }
    slot *s = ends == ENDS_NOTHING ? NULL : slot_it_ends(e, t);
    if (!s)
        return;
    bool blindly = ends == ENDS_FD_BLINDLY;
    if (!blindly && s->installs != p->installs) { /* the close freed the slot before the number was given again */
        s->spent -= s->spent > 0;
    } else {
        s->settled = time;
        if (blindly || s->tainted)
            s->blind_settled = time;
        if (!blindly)
            s->tainted = false;
    }
    s->ending -= s->ending > 0; /* the table may have been cut short meanwhile */
    s->blind -= blindly && s->blind > 0;
    if (s->spent > s->ending - s->blind) /* `installs` has come round to its old value */
        s->spent = s->ending - s->blind;
}
