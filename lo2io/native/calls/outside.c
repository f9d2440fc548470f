/*
 * Stretches and filled pages of threads outside of calls. They may belong to a page fault, whose record comes only when the
 * fault is over. So they wait here.
 */
#include "calls/outside.h"
#include "tables/tasks.h"

enum { MOST_SLEEPS = 4 };   /* of a fault: no record may give more rows */
enum { MOST_FILLS = 1024 };

void outside_forget_sleep(engine *e, task *t)
{
    uint32_t index = t->fault_sleeps - 1;
    t->fault_sleeps = e->held_sleeps.at[index].next;
    t->nr_fault_sleeps--;
    GIVE_BACK(e, free_held_sleeps, index);
}

void outside_slept(engine *e, task *t, const lo2_kernel_sleep *sleep)
{
    uint32_t index, *last = &t->fault_sleeps;
    if (t->nr_fault_sleeps == MOST_SLEEPS)
        outside_forget_sleep(e, t);
    TAKE(e, free_held_sleeps, held_sleeps, index);
    if (index == NONE)
        return;
    e->held_sleeps.at[index] = (held_sleep){.told = *sleep};
    while (*last)
        last = &e->held_sleeps.at[*last - 1].next;
    *last = index + 1;
    t->nr_fault_sleeps++;
}

cache_cause outside_cause(const engine *e, const task *t)
{
    return (cache_cause){.task = is_recorded(e, t) ? t->number : NONE, .tid = t->tid, .offset = UNKNOWN, .bytes = UNKNOWN};
}

void outside_settle(engine *e, const task *t, cache_deeds *deeds)
{
    cache_cause cause = outside_cause(e, t);
    cache_file none = {.file = NONE};
    if (deeds->first)
        cache_settle(e, deeds, &none, &cause);
}

void outside_fills(engine *e, task *t, const page_run *run)
{
    if (t->fault_deeds.count == MOST_FILLS) {
        t->fault_deeds_from = run->time;
        outside_settle(e, t, &t->fault_deeds);
    }
    t->fault_deeds.apart = true; /* runs from before a fault must stay apart from the fault's own */
    cache_hold(e, &t->fault_deeds, run);
}

void outside_drop(engine *e, task *t)
{
    while (t->fault_sleeps)
        outside_forget_sleep(e, t);
    outside_settle(e, t, &t->fault_deeds);
}

void outside_free(engine *e)
{
    free(e->held_sleeps.at);
    free(e->free_held_sleeps.at);
}
