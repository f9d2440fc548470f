/*
 * Who shares a table of descriptors, as BPF programs saw it: each fact bears the address of its thread's table. Births
 * and unshare(2) tell the same, but their records may be missing, and the flags of clone3 lie in the program's memory.
 *
 *   the thread's table    the fact's address    then
 *   has no address        of no table           the address is the table's
 *   has no address        of another table      The supposed copy does not exist: its threads share the other table. A
 *                                               slot that is the same in both (description, close-on-exec) stays, for
 *                                               every change of either was seen. All other slots are unknown
 *   has another address   any                   The thread has left its table. It has the table of this address. If no
 *                                               table has this address, a thread that was alone keeps its table, and
 *                                               any other gets a new one. In each case all slots are unknown then
 *
 * In the last two cases the handles of calls under way are unknown, too. The kernel uses addresses again. If the exit
 * of a table's last thread was not seen, two tables may be taken for one. Names then become unknown, but never wrong.
 */
#include "tables/descriptors.h"
#include "tables/positions.h"
#include "tables/sharing.h"

static uint32_t table_at(const engine *e, uint64_t address)
{
    for (uint32_t i = 0; i < e->tables.count; i++)
        if (e->tables.at[i].refs && e->tables.at[i].address == address)
            return i;
    return NONE;
}

/*
 * The supposed copy does not exist. A descriptor that is the same in both tables was never changed, or was put back. All other
 * slots are unknown. If one of the two handles is inherited from the other, the original handle stays.
 */
static void agree(engine *e, uint32_t own, uint32_t with)
{
    const fd_table *copy = &e->tables.at[own];
    fd_table *f = &e->tables.at[with];
    int64_t now = e->totals.last_time_ns;
    f->since = now;
    for (uint32_t i = 0; i < f->slots.count; i++) {
        slot *s = &f->slots.at[i], *other = i < copy->slots.count ? &copy->slots.at[i] : NULL;
        bool same = other && s->handle != NONE && other->handle != NONE && s->cloexec == other->cloexec &&
                    e->handles.at[s->handle].description == e->handles.at[other->handle].description;
        if (!same) {
            slot_clear(e, s, UNKNOWN, now);
            continue;
        }
        if (other->since > s->since)
            s->since = other->since;
        if (!other->inherited && (s->inherited || e->handles.at[s->handle].parent == e->handles.at[other->handle].number)) {
            uint32_t handle = s->handle;
            bool inherited = s->inherited;
            s->handle = other->handle;
            s->inherited = false;
            other->handle = handle;
            other->inherited = inherited;
        }
    }
}

/* Makes the table's slots unknown, and also the files that calls under way in the table have met. */
static void doubt(engine *e, uint32_t table)
{
    table_void(e, table, e->totals.last_time_ns);
    e->tables.at[table].ranges_settled = e->totals.last_time_ns;
}

static void move(engine *e, task *t, uint32_t to)
{
    int64_t now = e->totals.last_time_ns;
    uint8_t ends = t->pending.active ? t->pending.ends : ENDS_NOTHING;
    if (ends != ENDS_NOTHING)
        ends_over(e, t, now);
    position_parted(e, t);
    if (e->tables.at[t->table].refs == 1)
        table_void(e, t->table, now); /* the table's descriptors did not end at this moment */
    e->tables.at[to].refs++;
    table_release(e, t->table, now);
    t->table = to;
    if (ends != ENDS_NOTHING) /* the thread's call may still end a descriptor in the new table */
        ends_begin(e, t);
}

void table_told(engine *e, task *t, uint64_t address)
{
    uint32_t own = t->table, other;
    uint64_t known = e->tables.at[own].address;
    if (!address || known == address)
        return;
    other = table_at(e, address);
    if (other == NONE && (!known || e->tables.at[own].refs == 1)) {
        e->tables.at[own].address = address;
        if (known)
            doubt(e, own);
    } else if (other == NONE) { /* the thread has left those with whom it shared a table */
        uint32_t fresh = table_new(e, e->totals.last_time_ns);
        if (fresh == NONE)
            return;
        e->tables.at[fresh].address = address;
        move(e, t, fresh);
        e->tables.at[fresh].refs--;
        doubt(e, fresh);
    } else if (known) {
        move(e, t, other);
        doubt(e, other);
    } else { /* all threads that seem to share the supposed copy have the other table */
        agree(e, own, other);
        for (uint32_t i = 0; i < e->tasks.count; i++)
            if (e->tasks.at[i].alive && e->tasks.at[i].table == own)
                move(e, &e->tasks.at[i], other);
        e->tables.at[other].ranges_settled = e->totals.last_time_ns; /* what calls under way have met is unknown */
    }
}
