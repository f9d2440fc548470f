/*
 * The life of an io_uring request: when it is executed, which descriptors it looks up, its place in a chain, its
 * executions in workers, and its end with or without a CQE.
 */
#include <errno.h>

#include "cache/cache.h"
#include "rings/iocbs.h"
#include "rings/requests.h"
#include "tables/descriptions.h"
#include "tables/descriptors.h"

/*
 * ==== when it is executed ====
 *
 * A thread executes a request until the first of these: the thread's next event (except wake, short_write and a
 * file_get of the same request), the thread's next call entry or exit, the thread's exit, the trace's end. A file_get
 * outside of workers begins another execution, unless the thread is executing the request already. The time at which a
 * request goes on after a wake is not known.
 *
 * The first execution (`issue`) is
 * - for a free request: the file_get, if that is the thread's next event, else the submission (inferred). A request is
 *   free without LINK, HARDLINK, DRAIN and ASYNC, if it is no LINK_TIMEOUT, and if it does not come right after a
 *   request of this thread and ring with LINK or HARDLINK (link events in between do not count). A link or defer right
 *   after the submission takes `issue` back;
 * - for the head of a chain, without DRAIN and ASYNC: the same, as soon as a member without LINK and HARDLINK is linked.
 *   A chain with a refused member never runs;
 * - for a LINK_TIMEOUT that was not cancelled: its predecessor's first execution (inferred);
 * - for others: the first file_get, or the start in a worker. If poll_arm or a CQE (not -ECANCELED) comes first, `issue`
 *   is the predecessor's completion, if that is known and after the submission, else that event (inferred). The length
 *   of this execution is unknown;
 * - unknown for requests that were never executed: refused ones, and those with -ECANCELED and no sign of an execution. A
 *   request older than the trace has an issue only if a file_get or a worker tells it, and nothing showed an earlier
 *   execution.
 */

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

/* The request is executed in its turn, not at once. */
void request_take_back(ring_request *r, ring_thread *th)
{
    if (!th || !is_ref_to(th->running, r) || !r->at_submission || r->looked != UNKNOWN)
        return;
    th->running.id = 0;
    r->executed = r->at_submission = false;
    r->issue = UNKNOWN;
    r->inferred &= (uint16_t)~LO2_INFERRED_ISSUE;
}

/* A chain's member runs when its predecessor is done. A linked timeout is armed when its predecessor is executed. */
void request_shown_executed(engine *e, ring_request *r, int64_t time)
{
    if (r->executed || r->refused)
        return;
    r->executed = true;
    const ring_request *before = request_of(e, r->previous);
    if (!(r->traits & LO2_TRAIT_OLDER)) {
        int64_t since = r->before_known ? r->before_time : time;
        if (opcode_has(e, r->opcode, LO2_OPCODE_TIMES_OUT) && before && before->issue != UNKNOWN)
            since = before->issue;
        r->issue = since < r->submit ? time : since;
        r->inferred |= LO2_INFERRED_ISSUE;
    }
    if (r->begun)
        event_issued(e, r, r->issue == UNKNOWN ? time : r->issue);
}

/*
 * ---- descriptors ----
 *
 * If the thread is not recorded, the slot must be constant since the submission; without one, it must never have
 * changed. SPLICE and TEE look up handle2 (written) first, then handle (read). A fact of the time before file_get gives
 * the handle of an empty slot. If the slot was not constant since, the handle lives for this request.
 */

/* A thread with the request's table of descriptors: the submitter, or, if it has ended, another thread of its process. */
static task *with_its_table(engine *e, const ring_request *r, task *where)
{
    task *t = request_task(e, r);
    if (t || !where)
        return t;
    return e->processes.at[where->process].pid == r->pid ? where : NULL;
}

static uint32_t claim(engine *e, ring_request *r, uint32_t handle_index)
{
    handle *h = &e->handles.at[handle_index];
    r->cached = cache_file_of(&e->descriptions.at[h->description]);
    h->used |= r->written;
    return h->number;
}

static void forget_closed(engine *e)
{
    ring_request_set *set = e->ring_requests;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < set->closing.count; i++) {
        const ring_request *r = request_of(e, set->closing.at[i]);
        if (r && r->alive)
            set->closing.at[kept++] = set->closing.at[i];
    }
    set->closing.count = kept;
}

void request_closes(engine *e, const ring_request *r)
{
    ring_request_set *set = e->ring_requests;
    if (set->closing.count == set->closing.room) {
        forget_closed(e);
        if (!VEC_ROOM(&set->closing, 2 * set->closing.count + 1)) {
            e->out_of_memory = true;
            return;
        }
    }
    set->closing.at[set->closing.count++] = ref_to(e, r);
}

/*
 * True if another request is to close fd. The kernel may have done so, and given the number to another file, long before the CQE
 * that ends the handle here: with DEFER_TASKRUN, a CQE waits until the submitter asks for it.
 */
static bool is_being_closed(engine *e, const ring_request *r, const task *t, int32_t fd)
{
    const ring_request_set *set = e->ring_requests;
    if (!set->closing.count)
        return false;
    forget_closed(e);
    for (uint32_t i = 0; i < set->closing.count; i++) {
        const ring_request *other = request_of(e, set->closing.at[i]);
        const task *by = request_task(e, other);
        if (other != r && other->fd == fd && (by ? by->table == t->table : other->pid == r->pid))
            return true;
    }
    return false;
}

/*
 * The kernel looked fd up after the thread's last event, at `since`. The handle is known if the slot was constant from
 * then on. `bit` says whether it is the request's handle or handle2.
 */
static uint32_t look_up(engine *e, ring_request *r, task *t, int32_t fd, int64_t since, uint8_t bit)
{
    uint32_t index = t && fd >= 0 ? handle_in_slot(e, t, fd) : NONE;
    if (index == NONE) {
        r->opens_late |= fd >= 0;
        return NONE;
    }
    if (slot_kept(e, t, slot_at(e, t->table, fd, false), index, since) && is_told(e, t, index) && !is_being_closed(e, r, t, fd))
        return claim(e, r, index);
    r->doubtful |= bit;
    return NONE;
}

void request_looks_up(engine *e, ring_request *r, int32_t fd, int64_t time, int64_t since, task *where)
{
    bool two = opcode_has(e, r->opcode, LO2_OPCODE_TWO_FILES), second = r->looked != UNKNOWN;
    if (second && (!two || r->fd2 >= 0))
        return;
    bool written_registered = two && r->asked && (r->sqe_flags & SQE_FIXED_FILE); /* a registered file has no file_get */
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

/* A file was found through a slot that seemed empty. */
static uint32_t discover(engine *e, ring_request *r, task *t, int32_t fd)
{
    slot *s = slot_at(e, t->table, fd, true);
    bool since_then = s && (s->since > r->looked_since || !slot_is_steady(e, t, s, -1, r->looked_since));
    if (s && s->handle != NONE && !since_then) { /* a fact has filled the slot meanwhile */
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
    else /* the slot may hold another file by now */
        handle_end(e, index, false, UNKNOWN);
    return number;
}

void request_proves_fd(engine *e, ring_request *r, task *where)
{
    task *t = r->opens_late ? with_its_table(e, r, where) : NULL;
    bool two = opcode_has(e, r->opcode, LO2_OPCODE_TWO_FILES);
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

/*
 * ---- phases ----
 *
 * Without a CQE, `waiting` is unknown, `executing` is unknown if no execution ended, and `queued` if there is none. With a
 * CQE, an execution of unknown length counts as 0. For a request older than the trace, `queued` and `waiting` are unknown.
 */

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
    bool late = r->complete != UNKNOWN && r->issue > r->complete; /* records out of order: no kernel does that */
    int64_t issue = late ? r->complete : r->issue;
    r->queued = later(minus(issue, r->submit), 0);
    if (r->complete == UNKNOWN || r->aio) /* nothing tells how long the kernel worked on a libaio request */
        return;
    int64_t rest = later(minus(r->complete, issue), 0);
    r->executing = executing < rest ? executing : rest;
    r->waiting = minus(rest, r->executing);
}

static void request_ends(engine *e, ring_request *r, uint8_t status, int64_t time, const ring_thread *th, bool by_cqe);

/* ==== chains ==== */

/*
 * A chain is a sequence of linked requests that one thread submits at once. Its head waits until the last member is
 * there.
 * - link(request, other): `previous` is the last member of other's chain, for older kernels name the head. If the
 *   head's place is another request's by now, `previous` is `other`.
 * - refuse right after a request of this thread and ring with LINK or HARDLINK (link events in between do not count):
 *   the refused request is a member, though no event says so, and the culprit of the chain's head, unless there is one
 *   (inferred).
 * - fail_link(request, victim): the culprit is the request, or that one's culprit (inferred). The first stays. Refused
 *   victims have none.
 */

static bool goes_on(const ring_request *r) { return (r->sqe_flags & SQE_CHAINS) != 0; }

static void append(engine *e, ring_request *before, ring_request *r)
{
    ring_request *head = request_of(e, before->head);
    if (!head)
        head = before;
    ring_request *last = request_of(e, head->tail); /* older kernels name the head, not the last member */
    if (last && last != r)
        before = last;
    if (before == r)
        return;
    r->head = ref_to(e, head);
    r->previous = ref_to(e, before);
    r->previous_id = before->id;
    before->next = head->tail = ref_to(e, r);
}

/* The chain is complete, so its head is executed now. */
static void close_chain(engine *e, ring_thread *th, const ring_request *last, int64_t time)
{
    ring_request *head = request_of(e, last->head);
    th->chain.id = 0;
    if (!head || !head->alive || (head->traits & LO2_TRAIT_OLDER) || head->executed || head->refused || head->culprit || head->punt != UNKNOWN ||
        (head->sqe_flags & (SQE_DRAIN | SQE_ASYNC)) || opcode_has(e, head->opcode, LO2_OPCODE_TIMES_OUT) || location_of(e, head) != th)
        return;
    th->running = ref_to(e, head);
    th->running_since = time;
    request_executed(e, head, th, time, true);
}

/* True if the request is executed at once. */
static bool is_free(const engine *e, const ring_request *r)
{
    return !(r->sqe_flags & (SQE_CHAINS | SQE_DRAIN | SQE_ASYNC)) && !opcode_has(e, r->opcode, LO2_OPCODE_TIMES_OUT);
}

static ring_request *open_chain(engine *e, ring_thread *th, const ring_request *r)
{
    ring_request *last = request_of(e, th->chain);
    return last && last != r && last->ring == r->ring ? last : NULL;
}

void chain_submitted(engine *e, ring_thread *th, ring_request *r)
{
    const ring_request *last = open_chain(e, th, r);
    if (!last && is_free(e, r)) {
        th->running = ref_to(e, r);
        th->running_since = r->submit;
        request_executed(e, r, th, r->submit, true);
    }
    if (!last) /* else it is a member, as the link event after this one will say */
        th->chain = goes_on(r) ? ref_to(e, r) : (request_ref){0, 0};
}

void chain_refused(engine *e, ring_thread *th, ring_request *r)
{
    ring_request *last = open_chain(e, th, r);
    if (last) {
        append(e, last, r);
        ring_request *head = request_of(e, r->head);
        if (head && !head->culprit && !head->refused) {
            head->culprit = r->id;
            head->inferred |= LO2_INFERRED_CULPRIT;
        }
    }
    th->chain = goes_on(r) ? ref_to(e, r) : (request_ref){0, 0};
}

void on_link(engine *e, ring_thread *th, const ring_sample *s)
{
    ring_request *r = request_by_address(e, s->req, s->ctx, ring_has(s, LO2_FIELD_RING_CTX));
    ring_request *before = request_by_address(e, s->other, s->ctx, ring_has(s, LO2_FIELD_RING_CTX));
    if (!r || !before || !r->alive || r == before || r->previous_id) {
        e->totals.nr_ring_unclear += th != NULL;
        return;
    }
    append(e, before, r);
    if (!th)
        return;
    if (goes_on(r))
        th->chain = ref_to(e, r);
    else
        close_chain(e, th, r, s->time);
}

static void request_passed_over(engine *e, ring_request *r, int64_t time);

/*
 * As the culprit, the kernel names the request that it is ending. That request may itself be a victim, namely of a
 * refused member of the chain.
 */
void on_fail_link(engine *e, const ring_sample *s)
{
    bool has_ctx = ring_has(s, LO2_FIELD_RING_CTX);
    const ring_request *culprit = request_by_address(e, s->req, s->ctx, has_ctx);
    ring_request *victim = request_by_address(e, s->other, s->ctx, has_ctx);
    if (!culprit || !victim || !victim->alive) {
        e->totals.nr_ring_unclear += culprit || victim;
        return;
    }
    if (victim == culprit)
        return;
    if (!victim->refused && !victim->culprit) {
        victim->culprit = culprit->culprit ? culprit->culprit : culprit->id;
        if (culprit->culprit)
            victim->inferred |= LO2_INFERRED_CULPRIT;
    }
    if (culprit->sqe_flags & SQE_SKIP)
        request_passed_over(e, victim, s->time);
}

void chain_member_ended(engine *e, ring_request *r)
{
    ring_request *next = request_of(e, r->next);
    if (!next || next == r)
        return;
    next->before_known = r->complete != UNKNOWN;
    next->before_time = r->complete;
    next->before_runs = r->end_runs;
    next->before_in_run = r->in_run;
    next->before_traits = r->traits;
}

static bool is_silent(const ring_request *r)
{
    return r->alive && (r->sqe_flags & SQE_SKIP) && !r->nr_completions && !r->refused;
}

/* A request with CQE_SKIP has ended by `time`. */
static void ended_silently(engine *e, ring_request *r, int64_t time)
{
    r->end_before = time;
    r->inferred |= LO2_INFERRED_END;
    if (r->worker_index != NONE)
        work_ends(e, r->worker_index, UNKNOWN, true);
    request_ends(e, r, LO2_RING_SILENT, time, NULL, false);
}

/*
 * r is executed, so the requests before it in the chain have ended. A linked timeout proves nothing: it starts while its
 * predecessor runs. Without task work in between, no device has completed the predecessor.
 */
void chain_shows_ended(engine *e, const ring_request *r, const ring_thread *th, int64_t time)
{
    ring_request *first = NULL, *next;
    uint64_t id = r->id;
    if (!r->previous_id || opcode_has(e, r->opcode, LO2_OPCODE_TIMES_OUT))
        return;
    for (ring_request *b = request_of(e, r->previous); b && b->id < id; b = request_of(e, b->previous)) {
        if (is_silent(b))
            first = b;
        else if (!opcode_has(e, b->opcode, LO2_OPCODE_TIMES_OUT))
            break;
        id = b->id;
    }
    for (ring_request *b = first; b && b != r; b = next) {
        next = request_of(e, b->next);
        next = next && next->id > b->id ? next : NULL;
        if (!is_silent(b))
            continue;
        b->shown_inline = b->at_submission && th && th == location_of(e, b) && th->runs == b->runs;
        ended_silently(e, b, time);
    }
}

/*
 * ==== what workers execute ====
 *
 * A row of ring_works is one execution.
 * - Begin: file_get in the worker. Else, at a CQE or poll_arm, the latest of these (inferred): the punt, or without one
 *   the predecessor's completion; the end (else the start) of what the worker did before; the worker's start; the first
 *   time it got a CPU since; the submission.
 * - End: a CQE or poll_arm in this worker. Else the worker's next event with another request, or the CQE in another
 *   thread, or when the worker last left its CPU before that CQE (inferred). Unknown if the worker exits or the trace
 *   ends.
 * - queue_time: the last punt, unless an execution began since. Then the request is continued, if it has a predecessor,
 *   and bounded or unbounded as that one.
 * - Bounded or not: hashed requests are bounded. Others (inferred) are bounded without the trait `unbounded`. With it
 *   they are unbounded if they armed a poll, or have ASYNC and no file_get before the punt; else unknown. Unknown
 *   opcodes are unknown. A later punt changes nothing, unless it is hashed.
 *
 * O_DIRECT, errors and all requests with DEFER_TASKRUN complete in the submitter. Then only file_get names the worker.
 */

/* Without a file, the kernel assumes that the request may block for long (io_prep_async_work, io_uring/io_uring.c). */
void request_bound(engine *e, ring_request *r, bool hashed)
{
    if (hashed) {
        r->traits &= (uint16_t)~LO2_TRAIT_UNBOUNDED;
        r->traits |= LO2_TRAIT_HASHED | LO2_TRAIT_BOUNDED;
        r->inferred &= (uint16_t)~LO2_INFERRED_BOUND;
        return;
    }
    if (r->traits & (LO2_TRAIT_BOUNDED | LO2_TRAIT_UNBOUNDED)) /* the file is still the same */
        return;
    bool may_block = opcode_has(e, r->opcode, LO2_OPCODE_UNBOUNDED);
    bool no_file_yet = r->looked == UNKNOWN && (r->sqe_flags & SQE_ASYNC); /* the kernel does not look at the mode without a file */
    if (opcode_has(e, r->opcode, LO2_OPCODE_UNKNOWN) || (may_block && !no_file_yet && !r->nr_polls))
        return;
    r->traits |= may_block ? LO2_TRAIT_UNBOUNDED : LO2_TRAIT_BOUNDED;
    r->inferred |= LO2_INFERRED_BOUND;
}

void request_may_begin_unheard(engine *e, ring_request *r, bool may)
{
    bool looks_up = opcode_has(e, r->opcode, LO2_OPCODE_LOOKS_UP);
    may = may && (r->looked != UNKNOWN || (r->traits & LO2_TRAIT_OLDER) || (r->sqe_flags & SQE_FIXED_FILE) || !looks_up);
    e->ring_requests->nr_unheard += may - r->unheard;
    r->unheard = may;
}

static ring_thread *worker_at(engine *e, uint32_t task_index)
{
    return task_index < e->ring_requests->threads.count ? &e->ring_requests->threads.at[task_index] : NULL;
}

/* The request runs in the worker in which its predecessor ran. */
static void continues(engine *e, ring_request *r)
{
    const ring_request *before = request_of(e, r->previous);
    uint16_t kinds = LO2_TRAIT_BOUNDED | LO2_TRAIT_UNBOUNDED, kind = (before ? before->traits : r->before_traits) & kinds;
    r->traits |= LO2_TRAIT_CONTINUED;
    if (!kind || (r->traits & kinds))
        return;
    r->traits |= kind;
    r->inferred |= LO2_INFERRED_BOUND;
}

static void start_work(engine *e, task *t, ring_request *r, int64_t time, bool inferred)
{
    uint32_t index = (uint32_t)(t - e->tasks.at);
    ring_thread *th = worker_at(e, index);
    if (th->work.id)
        work_ends(e, index, time, false);
    if (r->worker_index != NONE) /* seen on another worker last */
        work_ends(e, r->worker_index, time, false);
    th->work = ref_to(e, r);
    th->work_begin = time;
    if (!inferred) /* earlier stretches belong to the worker's way to the request */
        r->slept = (worker_sleeps){0};
    th->work_queue = r->punt_open ? r->punt : UNKNOWN;
    th->work_inferred = inferred ? LO2_INFERRED_WORK_BEGIN : 0;
    if (!r->punt_open && r->previous_id)
        continues(e, r);
    r->punt_open = false;
    request_may_begin_unheard(e, r, false);
    r->inferred &= (uint16_t)~(LO2_INFERRED_WORK_BEGIN | LO2_INFERRED_WORK_END);
    r->inferred |= th->work_inferred;
    r->work_begin = time;
    r->work_end = UNKNOWN;
    r->worker = t->number;
    r->worker_tid = t->tid;
    r->worker_index = index;
    if (inferred && !r->executed)
        r->inferred |= LO2_INFERRED_ISSUE;
    request_executed(e, r, NULL, time, false);
}

void work_begins(engine *e, task *t, ring_request *r, int64_t time)
{
    const ring_thread *th = thread_of(e, t);
    if (th && !is_ref_to(th->work, r))
        start_work(e, t, r, th->last_end > time ? th->last_end : time, false);
}

void work_shown(engine *e, task *t, ring_request *r, int64_t time)
{
    ring_thread *th = thread_of(e, t);
    if (!th || is_ref_to(th->work, r))
        return;
    int64_t queued = r->punt_open ? r->punt : r->before_known ? r->before_time : r->submit;
    queued = later(queued, r->submit);
    int64_t begin = later(queued, th->work.id ? time : th->last_end);
    begin = later(begin, t->start);
    begin = later(begin, th->first_in);
    start_work(e, t, r, begin == UNKNOWN || begin > time ? time : begin, true);
}

/* The parts of an execution. They are known if each stretch lies in it, and has an end and a wakeup. */
static void split_work(const engine *e, const ring_thread *th, ring_request *r, int64_t end)
{
    const worker_sleeps *slept = &r->slept;
    bool known = e->config.workers && end != UNKNOWN && !(r->traits & LO2_TRAIT_OLDER);
    if (slept->any && (slept->unseen || slept->from < th->work_begin || slept->until > end))
        known = false;
    r->split = known && r->split != SPLIT_UNKNOWN ? SPLIT_KNOWN : SPLIT_UNKNOWN;
    r->run_queue = plus(r->run_queue, slept->run_queue);
    r->blocked = plus(r->blocked, slept->blocked);
    r->slept = (worker_sleeps){0};
}

/* A worker keeps the address of an ended request until it takes up another. A new request may have that address. */
uint64_t ring_worker_slept(engine *e, const lo2_kernel_sleep *sleep)
{
    ring_request *r = e->ring_requests ? request_by_address(e, sleep->request, 0, false) : NULL;
    int64_t out = (int64_t)sleep->out_ns, wake = (int64_t)sleep->wake_ns, in = (int64_t)sleep->head.time_ns;
    if (!r || !r->alive || r->aio || (r->submit != UNKNOWN && out < r->submit))
        return 0;
    worker_sleeps *slept = &r->slept;
    if (!slept->any)
        *slept = (worker_sleeps){.any = true, .from = out};
    slept->until = in;
    if (!wake || sleep->flags & (LO2_SLEEP_ENDLESS | LO2_SLEEP_LOST | LO2_SLEEP_FAULT)) {
        slept->unseen = true;
    } else {
        slept->run_queue = plus(slept->run_queue, in - wake);
        slept->blocked = plus(slept->blocked, wake - out);
    }
    return r->id;
}

static void finish_work(engine *e, ring_thread *th, int64_t time, uint16_t inferred)
{
    ring_request *r = request_of(e, th->work);
    uint32_t task_number = th->number;
    th->work.id = 0;
    th->first_in = UNKNOWN;
    if (time != UNKNOWN)
        time = later(time, th->work_begin);
    th->last_end = later(time, th->work_begin);
    if (!r)
        return;
    r->worker_index = NONE;
    r->work_end = time;
    r->inferred |= inferred;
    split_work(e, th, r, time);
    if (time != UNKNOWN) {
        r->executing = plus(r->executing, minus(time, th->work_begin));
        r->timed = true;
    }
    if (!r->written)
        return;
    const task *worker = &e->tasks.at[th - e->ring_requests->threads.at];
    const process *p = &e->processes.at[worker->process];
    row_of_work(e, &(ring_work_row){.id = r->id, .queue = th->work_queue, .begin = th->work_begin, .end = time,
                                    .ring = r->ring_number, .task = task_number, .process = p->number, .pid = p->pid,
                                    .tid = worker->tid, .opcode = r->opcode,
                                    .inferred = th->work_inferred | inferred});
}

void work_ends(engine *e, uint32_t task_index, int64_t time, bool known)
{
    ring_thread *th = worker_at(e, task_index);
    if (th && th->work.id)
        finish_work(e, th, time, known ? 0 : LO2_INFERRED_WORK_END);
}

/* The CQE came in another thread. So the worker was done by then; if it has no CPU now, already when it left it. */
static void work_ended_elsewhere(engine *e, ring_request *r, int64_t time)
{
    ring_thread *th = r->worker_index == NONE ? NULL : worker_at(e, r->worker_index);
    if (th && is_ref_to(th->work, r))
        finish_work(e, th, th->is_off && th->left != UNKNOWN && th->left >= th->work_begin ? th->left : time,
               LO2_INFERRED_WORK_END);
    r->worker_index = NONE;
}

void ring_worker_exited(engine *e, task *t)
{
    ring_thread *th = e->ring_requests ? worker_at(e, (uint32_t)(t - e->tasks.at)) : NULL;
    if (th && th->number == t->number && th->work.id)
        finish_work(e, th, UNKNOWN, 0);
}

void ring_worker_switched(engine *e, task *t, bool leaves, int64_t time)
{
    ring_thread *th = e->ring_requests ? thread_of(e, t) : NULL;
    if (!th)
        return;
    th->is_off = leaves;
    if (leaves)
        th->left = time;
    else if (!th->work.id && th->first_in == UNKNOWN)
        th->first_in = time;
}

static uint64_t sends(ring_request *r, bool ahead)
{
    r->served |= !ahead;
    return r->id;
}

/*
 * In a worker, and outside of batches, I/O goes to the device during the execution. A batch of more than two requests
 * gathers it first (IO_PLUG_THRESHOLD, io_uring/io_uring.h), and sends it when all have been executed.
 *
 * A block request is a ring request's if it begins
 * - in a worker, from a file_get to the end of that execution. Not while a punted request exists that can begin without
 *   a file_get: its file was got before (perhaps before the trace) or is registered, or its opcode has none;
 * - inside an io_submit of one request;
 * - inside another call, in no SQ thread, while it executes a request, but not in an io_uring_enter that submits
 *   more than two.
 */
uint64_t ring_request_sends(engine *e, task *t, bool ahead)
{
    ring_thread *th = e->ring_requests ? worker_at(e, (uint32_t)(t - e->tasks.at)) : NULL;
    if (t->iocbs)
        return iocb_sending(e, t, ahead);
    if (!th || th->number != t->number)
        return 0;
    if (t->ring_worker) { /* unless the worker may have begun another request unseen */
        ring_request *work = request_of(e, th->work);
        return work && !e->ring_requests->nr_unheard ? sends(work, ahead) : 0;
    }
    ring_request *r = request_of(e, th->running);
    const pending_call *p = &t->pending;
    bool in_batch = !p->active || (e->calls[p->call].kind == LO2_CALL_RING_ENTER && p->count > 2);
    return r && r->alive && !in_batch ? sends(r, ahead) : 0;
}

/* ==== the end ==== */

/* ---- ends ---- */

/* th: the thread of the CQE; NULL: there is no CQE, or its thread is not followed. */
static void request_ends(engine *e, ring_request *r, uint8_t status, int64_t time, const ring_thread *th, bool by_cqe)
{
    ring_thread *location = location_of(e, r);
    bool open = false;
    r->status = status;
    r->end = time;
    if (r->moving)
        request_moved(e, r, time);
    if (by_cqe)
        open = path_is_open(e, r, th, !th || th != location);
    else
        r->path = path_without_end(e, r);
    if (location && is_ref_to(location->running, r)) { /* it ends in another thread, or with its ring */
        location_settle(e, location);
        location->running.id = 0;
    }
    ring_request_ended(e, r->ring, time, r->nr_punts > 0, r->sqe_flags & SQE_SKIP);
    chain_member_ended(e, r);
    if (r->task == NONE) {
        request_judged(e, r);
        if (by_cqe)
            ring_orphan(e, r->ring);
    } else if ((r->complete == UNKNOWN && r->end_before == UNKNOWN) || status == LO2_RING_IN_FLIGHT ||
               status == LO2_RING_TORN_DOWN) {
        if (location)
            location_settle(e, location);
        request_phases(r);
        row_of_request(e, r);
    } else {
        event_end(e, r, th ? th->items : 0, open);
    }
    request_retire(e, r);
}

void request_end_unseen(engine *e, ring_request *r, bool torn_down, int64_t time)
{
    if (r->aio) {
        aio_end_unseen(e, r, torn_down);
        return;
    }
    bool waits = r->data_class == DATA_NOTIFIES;
    bool silent = (r->sqe_flags & SQE_SKIP) && !r->nr_completions;
    uint8_t status = r->refused ? LO2_RING_REFUSED : waits ? LO2_RING_COMPLETED : silent ? LO2_RING_SILENT
                     : torn_down ? LO2_RING_TORN_DOWN : LO2_RING_IN_FLIGHT;
    e->totals.nr_in_flight_ring_requests += status == LO2_RING_IN_FLIGHT;
    if (r->worker_index != NONE)
        work_ends(e, r->worker_index, UNKNOWN, true);
    r->status = status;
    if (status == LO2_RING_SILENT && torn_down && path_without_end(e, r) == LO2_PATH_INLINE) { /* it was done at once */
        r->end_before = time;
        r->inferred |= LO2_INFERRED_END;
    }
    request_ends(e, r, status, time, NULL, waits);
}

void request_replaced(engine *e, ring_request *r, int64_t time)
{
    if (is_silent(r))
        ended_silently(e, r, time);
    else
        request_end_unseen(e, r, false, time);
}

/*
 * The request's predecessor broke their chain and has CQE_SKIP. Then the kernel cancels the rest without CQEs
 * (req_set_fail, io_uring/io_uring.h, and io_fail_links, io_uring/io_uring.c).
 */
static void request_passed_over(engine *e, ring_request *r, int64_t time)
{
    ring_thread *location = location_of(e, r);
    if (!r->refused) {
        r->result = -ECANCELED;
        r->complete = time;
    }
    if (location) /* task work frees it */
        thread_has_item(location, NULL);
    if (r->worker_index != NONE)
        work_ends(e, r->worker_index, UNKNOWN, true);
    request_ends(e, r, r->refused ? LO2_RING_REFUSED : LO2_RING_CANCELLED, time, NULL, false);
}

void ring_requests_abandon(engine *e, uint32_t ring_index, bool torn_down)
{
    ring_request_set *set = e->ring_requests;
    while (set && ring_index < set->of_ring.count && set->of_ring.at[ring_index] != NONE)
        request_end_unseen(e, &set->requests.at[set->of_ring.at[ring_index]], torn_down, e->totals.last_time_ns);
}

/* ---- CQEs ---- */

const lo2_opcode *opcode_meaning(const engine *e, uint8_t opcode)
{
    static const lo2_opcode nothing = {LO2_CALL_META, LO2_RETURNS_VALUE, 0, LO2_OPCODE_UNKNOWN};
    return opcode < e->config.nr_opcodes ? &e->config.opcodes[opcode] : &nothing;
}

static void take_result(engine *e, ring_request *r, const ring_sample *s)
{
    const lo2_opcode *meaning = opcode_meaning(e, r->opcode);
    task *submitter = request_task(e, r);
    r->result = (int32_t)s->result;
    r->cqe_flags = (uint32_t)s->flags;
    r->complete = s->time;
    if (submitter && meaning->kind == LO2_CALL_CLOSE)
        request_closed(e, r, submitter, s->time);
    if (r->result < 0)
        return;
    if (meaning->returns == LO2_RETURNS_BYTES)
        r->bytes = plus(r->bytes == UNKNOWN ? 0 : r->bytes, r->result);
    if (submitter && meaning->kind == LO2_CALL_OPEN && meaning->returns == LO2_RETURNS_FD)
        request_opened(e, r, submitter, s->time);
}

/* Takes over what the CQE proves about the request's execution. */
static void take_execution(engine *e, ring_request *r, const ring_sample *s, task *t, ring_thread *th)
{
    if (th && th->worker) {
        work_shown(e, t, r, s->time);
        work_ends(e, r->worker_index, s->time, true);
        ring_thread *location = location_of(e, r);
        if (location)
            location->freed++;
    } else {
        work_ended_elsewhere(e, r, s->time);
        if (r->result != -ECANCELED && !r->refused)
            request_shown_executed(e, r, s->time);
    }
    if (!th)
        return;
    r->end_runs = th->runs;
    if (th->waits_short && th->short_ctx == s->ctx) {
        request_short(r, th->short_offset, th->short_length);
        th->waits_short = false;
    }
}

static void take_cqe(engine *e, ring_request *r, const ring_sample *s, task *t, ring_thread *th)
{
    bool notifies = opcode_has(e, r->opcode, LO2_OPCODE_NOTIFIES);
    r->nr_completions += r->nr_completions < UINT32_MAX;
    if (s->flags & CQE_NOTIF) {
        r->notify = s->time;
        r->traits |= LO2_TRAIT_NOTIFIED;
    } else {
        request_adopt(e, r, t, s->time);
        if ((int32_t)s->result != -EBADF)
            request_proves_fd(e, r, t); /* before the result itself changes the slot */
        take_result(e, r, s);
        take_execution(e, r, s, t, th);
        if (r->result != -ECANCELED && !r->refused)
            chain_shows_ended(e, r, th, s->time);
        if (s->flags & CQE_MORE) {
            if (!notifies)
                r->traits |= LO2_TRAIT_MULTISHOT;
            request_change_class(e, r, notifies ? DATA_NOTIFIES : DATA_REPEATS);
            return;
        }
    }
    e->tell.ring_request_completed(e, r->id, r->submit, s->time);
    uint8_t status = r->refused ? LO2_RING_REFUSED : r->result == -ECANCELED ? LO2_RING_CANCELLED : LO2_RING_COMPLETED;
    request_ends(e, r, status, s->time, th, true);
}

/*
 * The request that the CQE names by address, or by order. `passes`: the CQE is a torn down request's, so it is no
 * orphan.
 */
static ring_request *answers_to(engine *e, const ring_sample *s, bool *passes)
{
    bool several = false;
    ring_request *r = NULL;
    if (s->flags & CQE_NOTIF)
        r = request_by_data(e, s->ctx, s->user_data, DATA_NOTIFIES, &several);
    else if (!ring_has(s, LO2_FIELD_RING_REQ))
        return request_by_order(e, s, (s->flags & CQE_MORE) != 0);
    else if (s->req)
        r = request_at_address(e, s);
    else if (s->flags & CQE_MORE)
        r = request_by_data(e, s->ctx, s->user_data, DATA_REPEATS, &several);
    if (r && !r->alive) {
        *passes = r->status == LO2_RING_TORN_DOWN;
        return NULL;
    }
    if (r && several)
        r->inferred |= LO2_INFERRED_IDENTITY;
    return r;
}

void on_complete(engine *e, const ring_sample *s, task *t, ring_thread *th)
{
    bool passes = false;
    bool is_message = ring_has(s, LO2_FIELD_RING_REQ) && !s->req && !(s->flags & CQE_NOTIF);
    if (th) {
        thread_advances(e, th, s->time);
        th->chain.id = 0;
    }
    ring_request *r = answers_to(e, s, &passes);
    if (th && (s->req || !ring_has(s, LO2_FIELD_RING_REQ)))
        thread_has_item(th, r);
    uint32_t ring_index = passes ? NONE : r ? r->ring : ring_of_stranger(e, s, th);
    if (ring_index == NONE)
        return;
    ring_cqe_posted(e, ring_index, s->time, s->tid);
    if (r)
        take_cqe(e, r, s, t, th);
    else if (is_message)
        ring_at(e, ring_index)->nr_messages++;
    else
        ring_orphan(e, ring_index);
}

void on_overflow(engine *e, const ring_sample *s, task *t, ring_thread *th)
{
    bool several = false;
    if (th) {
        thread_advances(e, th, s->time);
        th->chain.id = 0;
    }
    ring_request *r = s->flags & CQE_NOTIF ? request_by_data(e, s->ctx, s->user_data, DATA_NOTIFIES, &several)
                                           : request_by_order(e, s, (s->flags & CQE_MORE) != 0);
    if (th)
        thread_has_item(th, r);
    uint32_t ring_index = r ? r->ring : ring_of_stranger(e, s, th);
    if (ring_index == NONE)
        return;
    ring_cqe_overflowed(e, ring_index, s->time);
    if (!r) {
        ring_orphan(e, ring_index);
        return;
    }
    r->inferred |= LO2_INFERRED_IDENTITY;
    r->traits |= LO2_TRAIT_OVERFLOWED;
    take_cqe(e, r, s, t, th);
}

/* ---- the end of the trace: all threads have ended, which settled what their last events left open ---- */

bool ring_requests_finish(engine *e)
{
    ring_request_set *set = e->ring_requests;
    while (set && set->alive.count) {
        if (!ring_requests_flush(e))
            return false;
        request_end_unseen(e, &set->requests.at[set->alive.first], false, e->totals.last_time_ns);
    }
    return ring_requests_flush(e);
}

void ring_requests_free(engine *e)
{
    ring_request_set *set = e->ring_requests;
    if (!set)
        return;
    void *owned[] = {set->requests.at, set->free_requests.at, set->addresses, set->data, set->of_ring.at, set->threads.at,
                     set->held.at, set->free_held.at, set->closing.at, set->row_queue.at, set->event_queue.at, set->work_queue.at, set};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    e->ring_requests = NULL;
}
