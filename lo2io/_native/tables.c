/*
 * Who shares a table of descriptors, as the kernel's own programs have seen it: each fact bears the table's address.
 *
 * Births and unshare(2) tell it as well, but records may be lacking, and clone3 has its flags in the program's memory. A
 * table that turns out to be another one than was thought is one of which nothing is known until now. The address of a
 * table that is gone is used again: two of one address are taken for one too often rather than too rarely.
 */
#include "rings.h"

static uint32_t table_at(const engine *e, uint64_t address)
{
    for (uint32_t i = 0; i < e->tables.count; i++)
        if (e->tables.at[i].refs && e->tables.at[i].address == address)
            return i;
    return NONE;
}

/* Nothing is known of it, nor what calls that are under way have met. */
static void doubt(engine *e, uint32_t table)
{
    table_void(e, table, e->totals.last_time_ns);
    e->tables.at[table].ranges_settled = e->totals.last_time_ns;
}

static void move(engine *e, task *t, uint32_t to)
{
    int64_t now = e->totals.last_time_ns;
    if (t->pending.active && t->pending.ends)
        ends_over(e, t, now);
    position_parted(e, t);
    if (e->tables.at[t->table].refs == 1)
        table_void(e, t->table, now); /* its descriptors have not ended now */
    e->tables.at[to].refs++;
    table_release(e, t->table, now);
    t->table = to;
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
    } else if (other == NONE) { /* it has parted from those it shared one with */
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
    } else { /* and so do all who are thought to share its own */
        for (uint32_t i = 0; i < e->tasks.count; i++)
            if (e->tasks.at[i].alive && e->tasks.at[i].table == own)
                move(e, &e->tasks.at[i], other);
        doubt(e, other);
    }
}
