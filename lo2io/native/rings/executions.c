/* When a request of a ring is executed, which descriptors it looks up, and how its life divides into phases. */
#include "rings/requests.h"

enum { ORIGIN_UNSEEN = 4 };

/* ---- the first execution ---- */

void request_executed(engine *e, ring_request *r, const ring_thread *th, int64_t time, bool at_submission)
{
    if (r->executed || r->refused)
        return;
    r->executed = true;
    r->at_submission = at_submission;
    r->seen_executed = !at_submission;
    r->issue = time;
    if (at_submission)
        r->inferred |= LO2_INFERRED_ISSUE; /* unless its file_get comes next */
    if (th) {
        r->phase = th->phase;
        r->runs = th->runs;
        r->runner = th->number;
    }
    if (!at_submission && r->begun)
        event_issued(e, r, time);
}

/* It is executed in its turn, not at once. */
void request_take_back(ring_request *r, ring_thread *th)
{
    if (!th || !is_ref_to(th->running, r) || !r->at_submission || r->looked != UNKNOWN)
        return;
    th->running.id = 0;
    r->executed = r->at_submission = false;
    r->issue = UNKNOWN;
    r->inferred &= (uint16_t)~LO2_INFERRED_ISSUE;
}

/* A chain's member runs when the one before it is done; a linked timeout is armed when that one is executed. */
void request_shown_executed(engine *e, ring_request *r, int64_t time)
{
    if (r->executed || r->refused)
        return;
    r->executed = true;
    const ring_request *before = request_of(e, r->previous);
    if (!(r->traits & LO2_TRAIT_OLDER)) {
        int64_t since = r->before_known ? r->before_time : time;
        if (r->opcode == OP_LINK_TIMEOUT && before && before->issue != UNKNOWN)
            since = before->issue;
        r->issue = since < r->submit ? time : since;
        r->inferred |= LO2_INFERRED_ISSUE;
    }
    if (r->begun)
        event_issued(e, r, r->issue == UNKNOWN ? time : r->issue);
}

/* ---- descriptors ---- */

/* A thread with the descriptors that the request sees: its submitter, or where that one has ended, one of its process. */
static task *with_its_table(engine *e, const ring_request *r, task *where)
{
    task *t = request_task(e, r);
    if (t || !where)
        return t;
    return e->processes.at[where->process].pid == r->pid ? where : NULL;
}

static uint32_t claim(engine *e, const ring_request *r, uint32_t handle_index)
{
    handle *h = &e->handles.at[handle_index];
    h->used |= r->written;
    return h->number;
}

/* What the slot has held since the thread's last event is what the kernel has met. `bit`: of the handle that it is. */
static uint32_t look_up(engine *e, ring_request *r, task *t, int32_t fd, int64_t since, uint8_t bit)
{
    uint32_t index = t && fd >= 0 ? handle_in_slot(e, t, fd) : NONE;
    if (index == NONE) {
        r->opens_late |= fd >= 0;
        return NONE;
    }
    if (slot_kept(e, t, slot_at(e, t->table, fd, false), index, since) && is_told(e, t, index))
        return claim(e, r, index);
    r->doubtful |= bit;
    return NONE;
}

void request_looks_up(engine *e, ring_request *r, int32_t fd, int64_t time, int64_t since, task *where)
{
    bool two = r->opcode == OP_SPLICE || r->opcode == OP_TEE, second = r->looked != UNKNOWN;
    if (second && (!two || r->fd2 >= 0))
        return;
    bool written_registered = two && r->asked && (r->sqe_flags & SQE_FIXED_FILE); /* of which there is no file_get */
    uint8_t bit = two && !second && !written_registered ? 2 : 1;
    uint32_t number = look_up(e, r, with_its_table(e, r, where), fd, since, bit);
    if (!second)
        r->looked_since = since;
    if (second || written_registered) {
        r->looked = second ? r->looked : time;
        r->fd2 = fd;
        r->handle = number;
        return;
    }
    r->looked = time;
    r->fd = fd;
    *(two ? &r->handle2 : &r->handle) = number;
}

/* There is something in a slot that was thought to be empty. */
static uint32_t discover(engine *e, ring_request *r, task *t, int32_t fd)
{
    slot *s = slot_at(e, t->table, fd, true);
    bool since_then = s && (s->since > r->looked_since || !slot_is_steady(e, t, s, -1, r->looked_since));
    if (s && s->handle != NONE && !since_then) { /* a fact has filled it meanwhile */
        uint32_t found = handle_in_slot(e, t, fd);
        return found == NONE ? NONE : claim(e, r, found);
    }
    uint32_t d = s ? description_new(e) : NONE;
    uint32_t index = d == NONE ? NONE : handle_new(e, t, fd, d, ORIGIN_UNSEEN);
    if (index == NONE)
        return NONE;
    uint32_t number = claim(e, r, index);
    if (s->handle == NONE && !since_then)
        slot_set(s, s->since, index, false);
    else /* the slot is another's by now */
        handle_end(e, index, false, UNKNOWN);
    return number;
}

void request_proves_fd(engine *e, ring_request *r, task *where)
{
    task *t = r->opens_late ? with_its_table(e, r, where) : NULL;
    bool two = r->opcode == OP_SPLICE || r->opcode == OP_TEE;
    if (!t)
        return;
    r->opens_late = false;
    int32_t fds[2] = {two ? r->fd2 : r->fd, two ? r->fd : -1}; /* of handle, of handle2 */
    if (fds[0] >= 0 && r->handle == NONE && !(r->doubtful & 1))
        r->handle = discover(e, r, t, fds[0]);
    if (fds[1] >= 0 && r->handle2 == NONE && !(r->doubtful & 2))
        r->handle2 = discover(e, r, t, fds[1]);
}

void request_short(ring_request *r, int64_t offset, int64_t length)
{
    bool known = (r->traits & LO2_TRAIT_SHORT) || r->asked;
    r->traits |= LO2_TRAIT_SHORT;
    if (known)
        return;
    r->inferred |= LO2_INFERRED_SIZE;
    r->offset = offset;
    r->length = length;
}

/* ---- phases ---- */

void request_phases(ring_request *r)
{
    int64_t executing = r->executing;
    r->queued = r->waiting = UNKNOWN;
    r->executing = r->timed ? executing : UNKNOWN;
    if (r->submit == UNKNOWN)
        return;
    if (!r->executed) {
        if (r->complete == UNKNOWN)
            return;
        r->queued = later(minus(r->complete, r->submit), 0);
        r->executing = r->waiting = 0;
        return;
    }
    bool late = r->complete != UNKNOWN && r->issue > r->complete; /* no kernel does that */
    int64_t issue = late ? r->complete : r->issue;
    r->queued = later(minus(issue, r->submit), 0);
    if (r->complete == UNKNOWN || r->aio) /* how long the kernel worked on a request of libaio nobody tells */
        return;
    int64_t rest = later(minus(r->complete, issue), 0);
    r->executing = executing < rest ? executing : rest;
    r->waiting = minus(rest, r->executing);
}
