/*
 * Calls of rings and of libaio: each that submits or collects is a batch, with a row beside its operation's.
 *
 * For io_uring, the descriptor at the entry identifies the batch's ring. If the descriptor is not known, requests or a
 * wait inside the call identify the ring. For libaio, the context identifies the ring. `asked` and `wanted` are the
 * call's arguments, whatever its flags. nr_completions counts CQEs since the entry, or since the ring became known,
 * without overflows. nr_requests and nr_completions are 0 for libaio.
 *
 * Which io_setup made a context: if a process began or did its exec in the trace, its successful io_setups are kept,
 * and each new context uses up one. If only one was kept, it gives the context's time and thread. If several were kept,
 * the right one is unknown until all are used up. If they all asked for the same number of events, this number is the
 * context's size.
 */
#include "rings/iocbs.h"
#include "rings/rings.h"
#include "tables/descriptors.h"

static uint32_t saturate(uint64_t n) { return n < NONE ? (uint32_t)n : NONE; }

static bool is_aio(uint8_t kind)
{
    return kind == LO2_CALL_AIO_SUBMIT || kind == LO2_CALL_AIO_COLLECT || kind == LO2_CALL_AIO_DESTROY;
}

static bool is_batch(uint8_t kind)
{
    return kind == LO2_CALL_RING_ENTER || kind == LO2_CALL_AIO_SUBMIT || kind == LO2_CALL_AIO_COLLECT;
}

/* The ring of the call; NONE: not known, or gone. */
static uint32_t ring_of_call(engine *e, const task *t)
{
    const ring_call *c = &t->ring_call;
    return c->ring && ring_at(e, c->ring - 1)->number == c->ring_number ? c->ring - 1 : NONE;
}

void ring_call_named(engine *e, uint32_t index, task *t)
{
    ring *r = ring_at(e, index);
    ring_call *c = &t->ring_call;
    c->ring = index + 1;
    c->ring_number = r->number;
    c->posted = r->nr_completions - r->nr_overflows;
    c->others = c->posted - c->own;
    if (r->kind == RING_URING)
        ring_watch(e, r, t);
    const pending_call *p = &t->pending;
    if (p->handle == NONE || r->kind != RING_URING)
        return;
    if (slot_kept(e, t, slot_at(e, t->table, p->fd, false), p->handle, p->begin)) /* else the call may have met another ring */
        ring_bind(e, index, p->handle);
}

void ring_call_entered(engine *e, task *t, const lo2_event *event, const uint8_t *raw)
{
    pending_call *p = &t->pending;
    uint8_t kind = e->calls[p->call].kind;
    t->ring_call = (ring_call){.sleep_time = UNKNOWN, .poller = NONE,
                               .wanted = saturate(load_unsigned(raw, event->fields[LO2_FIELD_WANTED])),
                               .context = load_unsigned(raw, event->fields[LO2_FIELD_CONTEXT])};
    uint32_t index = NONE;
    if (kind == LO2_CALL_RING_ENTER && p->handle != NONE && e->rings)
        index = ring_of_handle(e, p->handle);
    else if (is_aio(kind))
        index = ring_find(e, RING_AIO, t->ring_call.context, e->processes.at[t->process].number);
    if (index != NONE)
        ring_call_named(e, index, t);
}

void ring_batch_request(engine *e, uint32_t index, task *t)
{
    ring_revive(e, index);
    ring_used_by(e, index, t, e->totals.last_time_ns);
    if (!t->pending.active || e->calls[t->pending.call].kind != LO2_CALL_RING_ENTER)
        return;
    ring_call *c = &t->ring_call;
    if (ring_of_call(e, t) != index) /* a call submits to the ring that it names only */
        ring_call_named(e, index, t);
    c->nr_requests++;
    const ring *r = ring_at(e, index);
    c->others = r->nr_completions - r->nr_overflows - c->own;
}

bool ring_has_no_descriptor(engine *e, const task *t)
{
    uint32_t index = ring_of_call(e, t);
    return index != NONE && ring_at(e, index)->flags != NONE && (ring_at(e, index)->flags & SETUP_REGISTERED_FD_ONLY);
}

/* ---- libaio ---- */

static void aio_set_up(engine *e, const task *t, int64_t time)
{
    aio_setups *s = &e->processes.at[t->process].aio;
    uint32_t nr_events = saturate(t->pending.count);
    if (s->nr == 0)
        *s = (aio_setups){.nr_events = nr_events};
    s->differ |= s->nr_events != nr_events;
    s->nr += s->nr < NONE;
    s->time = time;
    s->task = t->number;
}

/* Makes the ring of a context that is used for the first time. */
static uint32_t aio_new(engine *e, const task *t)
{
    uint32_t index = ring_new(e, RING_AIO, t->ring_call.context, t);
    if (index == NONE)
        return NONE;
    ring *r = ring_at(e, index);
    process *p = &e->processes.at[t->process];
    aio_setups *s = &p->aio;
    if (!s->nr)
        return index;
    if (p->fresh && !s->differ) /* else the context may be older than the trace, or any of several */
        r->sq_entries = s->nr_events;
    if (p->fresh && s->nr == 1 && !s->unsure) {
        r->create_time = s->time;
        r->task = s->task;
    }
    s->nr--;
    s->unsure = true; /* which contexts are left is unknown, until none is */
    return index;
}

uint32_t aio_ring_of_call(engine *e, task *t)
{
    uint32_t index = ring_of_call(e, t);
    if (index == NONE && (index = aio_new(e, t)) != NONE)
        ring_call_named(e, index, t);
    return index;
}

static void aio_called(engine *e, task *t, uint8_t kind, int64_t result, int64_t time)
{
    if (kind == LO2_CALL_AIO_SETUP) {
        aio_set_up(e, t, time);
        return;
    }
    uint32_t index = aio_ring_of_call(e, t);
    if (index == NONE)
        return;
    ring *r = ring_at(e, index);
    uint64_t nr = (uint64_t)result;
    if (kind == LO2_CALL_AIO_SUBMIT) {
        r->nr_requests += nr;
        ring_collected(e, r, nr, 0, time);
    } else if (kind == LO2_CALL_AIO_COLLECT) {
        r->nr_completions += nr;
        ring_collected(e, r, 0, nr, time);
    } else {
        ring_end(e, index, time);
    }
}

/* ---- rows ---- */

static void write_row(engine *e, const task *t, uint8_t kind, int64_t result, uint32_t row)
{
    lo2_batch_columns *c = &e->batch->batches;
    const ring_call *call = &t->ring_call;
    uint32_t index = ring_of_call(e, t), at = e->batch->nr_batches++;
    ring *r = index == NONE ? NULL : ring_at(e, index);
    int32_t nr = result < 0 ? -1 : result < INT32_MAX ? (int32_t)result : INT32_MAX;
    c->id[at] = e->batch->operations.id[row];
    c->ring[at] = call->ring ? call->ring_number : NONE;
    c->asked[at] = saturate(t->pending.count);
    c->wanted[at] = call->wanted;
    c->submitted[at] = kind == LO2_CALL_AIO_COLLECT ? -1 : nr;
    c->collected[at] = kind == LO2_CALL_AIO_COLLECT ? nr : -1;
    c->nr_requests[at] = call->nr_requests;
    c->nr_completions[at] =
        r && r->kind == RING_URING ? saturate(r->nr_completions - r->nr_overflows - call->posted) : 0;
    c->sleep_time_ns[at] = call->sleep_time;
    if (r)
        r->nr_batches++;
}

void ring_call_left(engine *e, task *t, const int64_t *result, int64_t time, uint32_t row)
{
    const pending_call *p = &t->pending;
    uint8_t kind = e->calls[p->call].kind;
    if (kind == LO2_CALL_RING_SETUP)
        return;
    uint32_t index = ring_of_call(e, t);
    if (kind == LO2_CALL_RING_ENTER || kind == LO2_CALL_RING_REGISTER) {
        bool paired = e->lost_until <= p->begin; /* else entry and exit may be of two calls */
        if (index != NONE && p->handle != NONE && paired) /* the descriptor may have been discovered at this exit */
            ring_bind(e, index, p->handle);
        if (index != NONE && !e->finishing)
            ring_unwatch(e, ring_at(e, index), t, time);
    } else if (result && *result >= 0) {
        aio_called(e, t, kind, *result, time);
    }
    if (row != NONE && is_batch(kind))
        write_row(e, t, kind, result ? *result : -1, row);
    if (t->iocbs && kind == LO2_CALL_AIO_SUBMIT)
        iocbs_unclaimed(e, t);
}
