/*
 * What the Leave of a call tells of it: its time without a CPU, the stack of its program, what it asked servers of FUSE file
 * systems, its counts if it is about a ring, and the block requests that its thread submitted meanwhile.
 *
 * A request stands before the row of its call, for that row comes when the call has ended. So each thread has a list of
 * the requests that it has begun since its last call:
 *
 *   requests        1        2  3                4
 *   calls      ├──────────┤    ├───────────┤   ├─────┤
 *              row: 1 of 1     row: 3 of 1     row: 4 of 1; 2 belongs to no call
 *
 * A list keeps only the newest requests. A call that began before the last dropped request gets no requests at all.
 */
#include "otf2/otf2_writer.h"

enum { MOST_SUBMISSIONS = 1 << 16 };

static submitter *submitter_of(lo2_otf2_writer *w, uint32_t task)
{
    size_t before = w->submitters_room;
    if (!otf2_grow((void **)&w->submitters, &w->submitters_room, task + 1ull, sizeof *w->submitters))
        return NULL;
    if (before < w->submitters_room)
        memset(w->submitters + before, 0, (w->submitters_room - before) * sizeof *w->submitters);
    return &w->submitters[task];
}

static void drop_first(lo2_otf2_writer *w, submitter *s)
{
    uint32_t index = s->first;
    s->first = w->submissions[index].next;
    s->count--;
    w->submissions[index].next = w->submissions_free;
    w->submissions_free = index;
}

int otf2_submits(lo2_otf2_writer *w, const lo2_request_event_columns *e, uint32_t row)
{
    if (e->kind[row] != LO2_RQ_BEGIN || e->task[row] == NONE)
        return 0;
    submitter *s = submitter_of(w, e->task[row]);
    if (!s)
        return otf2_fail(w, "malloc");
    if (s->count == MOST_SUBMISSIONS) {
        s->dropped_until = w->submissions[s->first].time;
        drop_first(w, s);
    }
    uint32_t index = w->submissions_free;
    if (index != NONE) {
        w->submissions_free = w->submissions[index].next;
    } else {
        if (!otf2_grow((void **)&w->submissions, &w->submissions_room, w->nr_submissions + 1u, sizeof *w->submissions))
            return otf2_fail(w, "malloc");
        index = w->nr_submissions++;
    }
    w->submissions[index] = (submission){e->time_ns[row], e->id[row], NONE};
    if (!s->count)
        s->first = index;
    else
        w->submissions[s->last].next = index;
    s->last = index;
    s->count++;
    return 0;
}

void otf2_tell_call(lo2_otf2_writer *w, const lo2_operation_columns *o, uint32_t row, told_call *told)
{
    int64_t begin = o->begin_time_ns[row], end = o->end_time_ns[row];
    *told = (told_call){.id = o->id[row], .stack = NONE};
    if (o->run_queue_ns[row] != UNKNOWN && o->blocked_ns[row] != UNKNOWN) {
        told->run_queue = (uint64_t)o->run_queue_ns[row];
        told->blocked = (uint64_t)o->blocked_ns[row];
    }
    told->fuse_requests = o->fuse_requests[row];
    told->fuse_ns = (uint64_t)o->fuse_ns[row];
    if (o->task[row] >= w->submitters_room)
        return;
    submitter *s = &w->submitters[o->task[row]];
    bool whole = !s->dropped_until || begin > s->dropped_until;
    while (s->count && w->submissions[s->first].time <= end) {
        const submission *each = &w->submissions[s->first];
        if (each->time >= begin && whole) {
            told->first_request = told->nr_requests++ ? told->first_request : each->id;
            told->last_request = each->id;
        }
        drop_first(w, s);
    }
}

int otf2_add_told(lo2_otf2_writer *w, const told_call *told)
{
    const lo2_otf2_attributes *a = &w->config.attributes;
    if (!told->run_queue && !told->blocked && !told->nr_requests && !told->fuse_requests &&
        told->stack == NONE)
        return 0;
    w->view.tells_calls = 1;
    otf2_add_uint64(w, a->call_id, told->id);
    if (told->run_queue)
        otf2_add_uint64(w, a->run_queue, told->run_queue);
    if (told->blocked)
        otf2_add_uint64(w, a->blocked, told->blocked);
    if (told->fuse_requests) {
        otf2_add_uint64(w, a->fuse_requests, told->fuse_requests);
        otf2_add_uint64(w, a->fuse_time, told->fuse_ns);
    }
    if (told->nr_requests) {
        otf2_add_uint64(w, a->nr_requests, told->nr_requests);
        otf2_add_uint64(w, a->first_request, told->first_request);
        otf2_add_uint64(w, a->last_request, told->last_request);
    }
    if (told->stack != NONE) {
        w->view.has_stacks = 1;
        TRY(otf2_add_text(w, a->call_stack, LO2_OTF2_TEXT_STACK, told->stack));
    }
    return 0;
}

int otf2_add_batch(lo2_otf2_writer *w, const batch_counts *counts)
{
    const lo2_otf2_attributes *a = &w->config.attributes;
    if (counts->ring != NONE)
        TRY(otf2_add_text(w, a->ring, LO2_OTF2_TEXT_RING, counts->ring));
    otf2_add_uint32(w, a->asked, counts->asked);
    otf2_add_uint32(w, a->wanted, counts->wanted);
    if (counts->submitted >= 0)
        otf2_add_uint32(w, a->submitted, (uint32_t)counts->submitted);
    if (counts->completed >= 0)
        otf2_add_uint32(w, a->completed, (uint32_t)counts->completed);
    w->view.uses_rings = 1;
    return 0;
}

void otf2_free_submissions(lo2_otf2_writer *w)
{
    free(w->submissions);
    free(w->submitters);
}
