/*
 * Rings and descriptors: which descriptor is a ring's, and what requests of rings do to descriptors.
 *
 * A RING fact adds what events did not tell about the ring behind its handle. The ring may also become known after the
 * fact. If the fact's poller submits to a ring without a handle, and no other such fact names this poller, the handle
 * belongs to that ring. The poller of a ring is the thread born inside io_uring_setup (SETUP_SQPOLL), else the first
 * `iou-sqp-` thread that submits to the ring, else the thread that the fact names.
 */
#include <fcntl.h>

#include "rings/rings.h"
#include "tables/descriptions.h"
#include "tables/descriptors.h"
#include "tables/tasks.h"

enum { MOST_KEPT = 1 << 12 };

/* ---- descriptors of rings ---- */

uint32_t ring_of_handle(engine *e, uint32_t handle_index)
{
    const description *d = description_of(e, handle_index);
    return d->ring && ring_at(e, d->ring - 1)->number == d->ring_number ? d->ring - 1 : NONE;
}

static uint32_t poller_of(engine *e, const lo2_fact_ring *fact)
{
    const task *t = fact->poller > 0 ? task_of(e, (uint32_t)fact->poller) : NULL;
    return t && is_recorded(e, t) ? t->number : NONE;
}

/* Takes from fdinfo what the events did not tell. */
static void learn(engine *e, ring *r, const lo2_fact_ring *fact)
{
    if (!r->sq_entries)
        r->sq_entries = fact->sq_entries;
    if (!r->cq_entries && fact->cq_entries) {
        ring_state_settle(e, r);
        r->cq_entries = r->cq_limit = fact->cq_entries;
        r->cq_most = r->cq_most < r->cq_limit ? r->cq_most : r->cq_limit;
    }
    if (r->poller == NONE)
        r->poller = poller_of(e, fact);
    if (!r->files_known && fact->nr_files != NONE) {
        r->files_known = true;
        r->nr_files = r->nr_files_now = fact->nr_files;
    }
    if (r->nr_buffers == NONE)
        r->nr_buffers = fact->nr_buffers;
}

void ring_bind(engine *e, uint32_t index, uint32_t handle_index)
{
    const handle *h = &e->handles.at[handle_index];
    description *d = description_of(e, handle_index);
    ring *r = ring_at(e, index);
    if (d->ring == index + 1 && d->ring_number == r->number)
        return;
    if (ring_of_handle(e, handle_index) != NONE) /* the events show that the descriptor is another ring now */
        ring_at(e, d->ring - 1)->description = 0;
    d->ring = index + 1;
    d->ring_number = r->number;
    r->description = h->description + 1;
    r->unsure = h->ended; /* the handle was found for one call only */
    if (r->handle == NONE) {
        r->handle = h->number;
        r->fd = h->fd;
    }
    if (d->ring_fact) {
        lo2_fact_ring *fact = &e->rings->facts.at[d->ring_fact - 1];
        learn(e, r, fact);
        e->rings->free_facts.at[e->rings->free_facts.count++] = d->ring_fact - 1;
        d->ring_fact = 0;
    }
}

void ring_installed(engine *e, task *t, uint32_t handle_index)
{
    uint32_t index = t->ring_call.ring;
    if (index && ring_at(e, index - 1)->number == t->ring_call.ring_number)
        ring_bind(e, index - 1, handle_index);
}

/* A handle of the description ended. If the time is unknown, so is the ring's end. */
void ring_descriptor_ended(engine *e, const description *d, bool surely)
{
    ring *r = ring_at(e, d->ring - 1);
    if (r->number == d->ring_number && !surely)
        r->unsure = true;
}

/* No process has a descriptor of the ring any more. */
void ring_description_gone(engine *e, uint32_t description_index)
{
    description *d = &e->descriptions.at[description_index];
    if (d->ring_fact)
        e->rings->free_facts.at[e->rings->free_facts.count++] = d->ring_fact - 1;
    ring *r = d->ring ? ring_at(e, d->ring - 1) : NULL;
    if (r && r->number == d->ring_number && r->description == description_index + 1) {
        r->description = 0;
        if (!r->unsure && !e->finishing) {
            ring_end(e, d->ring - 1, e->totals.last_time_ns);
            r = ring_at(e, d->ring - 1);
            r->gone |= r->process == NONE;
        }
    }
    d->ring = d->ring_fact = 0;
}

/* The handle whose fact names this thread as its poller, if exactly one does. */
static uint32_t handle_by_poller(engine *e, const task *poller)
{
    uint32_t found = NONE;
    for (uint32_t i = 0; i < e->rings->facts.count; i++) {
        const lo2_fact_ring *fact = &e->rings->facts.at[i];
        uint32_t index = fact->reserved; /* a kept fact has the handle's index here */
        bool kept = e->handles.at[index].refs && description_of(e, index)->ring_fact == i + 1;
        if (!kept || (uint32_t)fact->poller != poller->tid)
            continue;
        if (found != NONE)
            return NONE;
        found = index;
    }
    return found;
}

/*
 * A poller submits to a ring that is older than the trace. No thread needs to enter such a ring, so look for its
 * descriptor here.
 */
void ring_polled(engine *e, uint32_t index, const task *poller)
{
    uint32_t handle_index = ring_at(e, index)->handle == NONE ? handle_by_poller(e, poller) : NONE;
    if (handle_index != NONE)
        ring_bind(e, index, handle_index);
}

static bool keep_fact(engine *e, uint32_t handle_index, const lo2_fact_ring *fact)
{
    ring_set *set = rings_needed(e);
    description *d = description_of(e, handle_index);
    if (!set)
        return false;
    if (!d->ring_fact) {
        if (set->free_facts.count)
            d->ring_fact = set->free_facts.at[--set->free_facts.count] + 1;
        else if (VEC_ROOM(&set->facts, set->facts.count + 1) && VEC_ROOM(&set->free_facts, set->facts.count + 1))
            d->ring_fact = ++set->facts.count;
        else
            return false;
    }
    set->facts.at[d->ring_fact - 1] = *fact;
    set->facts.at[d->ring_fact - 1].reserved = handle_index;
    task *poller = fact->poller > 0 ? task_of(e, (uint32_t)fact->poller) : NULL;
    if (poller)
        ring_uses_forget(e, poller); /* its next submission may tell which ring the handle is */
    return true;
}

void on_ring_fact(engine *e, const uint8_t *body)
{
    lo2_fact_ring fact;
    memcpy(&fact, body, sizeof fact);
    fact_moment begin = fact_when(&e->clock, fact.begin_time_ns), end = fact_when(&e->clock, fact.time_ns);
    task *t = begin.doubt == JUMPED || end.doubt == JUMPED ? NULL : task_for_fact(e, fact.pid);
    const slot *s = t && !e->config.ends_unseen ? slot_at(e, t->table, fact.fd, false) : NULL;
    if (!s || s->handle == NONE || (s->since != UNKNOWN && s->since > not_before(begin)))
        return; /* neither did the fact of the descriptor prove anything */
    uint32_t index = ring_of_handle(e, s->handle);
    if (index != NONE)
        learn(e, ring_at(e, index), &fact);
    else if (!keep_fact(e, s->handle, &fact))
        e->out_of_memory = true;
}

/* ---- descriptors that requests open and close ---- */

void ring_opened(engine *e, task *t, uint32_t ring_index, int32_t fd, uint32_t open_flags, bool surely, int64_t time)
{
    const ring *r = ring_at(e, ring_index);
    slot *s = slot_at(e, t->table, fd, true);
    if (!s)
        return;
    if (!surely && (!r->files_known || r->nr_files_now)) { /* the result may be the place of a registered file */
        slot_clear(e, s, UNKNOWN, time);
        return;
    }
    uint32_t d = description_new(e);
    uint32_t index = d == NONE ? NONE : handle_new(e, t, fd, d, ORIGIN_OPENED_BY_RING);
    if (index == NONE)
        return;
    handle *h = &e->handles.at[index];
    h->open_time = time;
    if (open_flags != NONE) {
        h->open_flags = e->descriptions.at[d].open_flags = open_flags;
        e->descriptions.at[d].append = (open_flags & O_APPEND) ? APPENDS : APPENDS_NOT;
        e->descriptions.at[d].position = e->descriptions.at[d].foreign ? UNKNOWN : 0;
    }
    handle_install(e, t, fd, index, open_flags != NONE && (open_flags & O_CLOEXEC), time);
}

/*
 * CLOSE ended an unknown descriptor of the table, but not a ring's: io_close (io_uring/openclose.c) refuses those. Of
 * rings, the descriptors below MOST_KEPT are kept.
 */
void ring_closed_some_fd(engine *e, task *t, int64_t time)
{
    fd_table *f = &e->tables.at[t->table];
    uint32_t left = 0;
    f->since = time;
    for (uint32_t i = 0; i < f->slots.count; i++) {
        slot *s = &f->slots.at[i];
        if (i < MOST_KEPT && s->handle != NONE && ring_of_handle(e, s->handle) != NONE)
            left = i + 1;
        else
            slot_clear(e, s, UNKNOWN, time);
        if (s->movers || s->ending) /* a call on this number is under way */
            left = i + 1;
    }
    f->slots.count = left; /* the table's `since` covers slots beyond the count */
}
