/*
 * Requests of io_uring: each from its submission to its last CQE (docs/explanation/rules/ring-requests.md). on_ring
 * takes every sample of the ring's tracepoints; those about rings alone go to rings/rings.c.
 *
 * Which request an event is about. "By order" means the oldest living request of this ring and user_data (identity
 * inferred).
 * - submit, refuse: a new request of this thread. One that lives at its address has ended unseen.
 * - An event with an address: the request that lives there. link and fail_link may name one that has ended there, too;
 *   fail_link without a ring looks in all rings.
 * - ... with other user_data, of file_get, punt, poll_arm, wake, defer or complete: the request there has ended unseen,
 *   and the start of this one was lost. Not so for POLL_ADD, whose user_data POLL_REMOVE can change, and for unknown
 *   opcodes.
 * - An unknown address: the request that this thread executes, if it has no address yet, and ring and user_data agree.
 *   Else the oldest without an address among the first 16 of a class. It gets the address (identity inferred).
 * - No such request: file_get, punt, poll_arm, wake and defer with user_data, of a recorded ring or thread, make one
 *   that is older than the trace. It belongs to the first thread seen with it, a worker's request to the worker's
 *   owner, but never to a waker. Without a thread it has no row. A wake needs a recorded ring, and no request that has
 *   ended there. All other events are counted (nr_ring_unclear).
 * - user_data without an address: by order. file_get without an address: the request that this thread submits with its
 *   next event.
 *
 * Which request a CQE is about (answers_to, on_overflow in rings/request_life.c):
 * - A known address: the request there. A CQE of a request that was torn down is skipped.
 * - No address (0): with F_MORE by order, of those that can repeat themselves (inferred only if several can). Else it
 *   is a message of another ring or of the kernel, counted for the ring.
 * - F_NOTIF: by order, of those that wait for a notification (inferred only if several do). It says nothing about an
 *   execution.
 * - An overflow, or a format without an address: by order. With F_MORE only those that can repeat themselves; those
 *   with CQE_SKIP last.
 * - A CQE without a match is an orphan. So is the last CQE of a request without a thread, for the request has no row.
 */
#include "rings/requests.h"
#include "tables/tasks.h"

/* ---- fields of a sample ---- */

static void sample_read(const lo2_event *event, const uint8_t *raw, ring_sample *s)
{
    const lo2_field *f = event->fields;
    for (int i = 0; i < LO2_NR_FIELDS; i++)
        s->has |= (uint16_t)((f[i].size != 0) << i);
    s->ctx = load_unsigned(raw, f[LO2_FIELD_RING_CTX]);
    s->req = load_unsigned(raw, f[LO2_FIELD_RING_REQ]);
    s->user_data = load_unsigned(raw, f[LO2_FIELD_RING_USER_DATA]);
    s->opcode = f[LO2_FIELD_RING_OPCODE].size ? (uint8_t)load_unsigned(raw, f[LO2_FIELD_RING_OPCODE]) : NO_OPCODE;
    s->flags = load_unsigned(raw, f[LO2_FIELD_RING_FLAGS]);
    s->fd = f[LO2_FIELD_RING_FD].size ? (int32_t)load_unsigned(raw, f[LO2_FIELD_RING_FD]) : -1;
    s->result = (int64_t)load_unsigned(raw, f[LO2_FIELD_RING_RESULT]);
    s->other = load_unsigned(raw, f[LO2_FIELD_RING_OTHER]);
    s->count = (uint32_t)load_unsigned(raw, f[LO2_FIELD_RING_COUNT]);
    s->count2 = (uint32_t)load_unsigned(raw, f[LO2_FIELD_RING_COUNT2]);
    s->length = (int64_t)load_unsigned(raw, f[LO2_FIELD_RING_LENGTH]);
    s->offset = (int64_t)load_unsigned(raw, f[LO2_FIELD_RING_OFFSET]);
}

ring_request_set *ring_requests_needed(engine *e)
{
    if (!e->ring_requests && (e->ring_requests = calloc(1, sizeof *e->ring_requests)))
        e->ring_requests->alive = e->ring_requests->ended = (request_list){NONE, NONE, 0};
    e->out_of_memory |= !e->ring_requests;
    return e->ring_requests;
}

/* ---- the submitter ---- */

task *request_task(engine *e, const ring_request *r)
{
    task *t = r->task == NONE || r->task_index >= e->tasks.count ? NULL : &e->tasks.at[r->task_index];
    return t && t->alive && t->number == r->task ? t : NULL;
}

/* The submitter of what this thread works on: the thread itself, or a worker's owner. */
static task *submitter_behind(engine *e, task *t)
{
    if (!t || !t->ring_worker)
        return t;
    task *owner = task_of(e, t->owner);
    return owner && owner->number == t->owner_number ? owner : NULL;
}

void request_give_to(engine *e, ring_request *r, task *t)
{
    r->task = t->number;
    r->task_index = (uint32_t)(t - e->tasks.at);
    r->process = e->processes.at[t->process].number;
    r->pid = e->processes.at[t->process].pid;
    r->tid = t->tid;
    r->written = ring_is_chosen(e, r->id);
}

/* A request older than the trace belongs to the first thread seen with it. */
void request_adopt(engine *e, ring_request *r, task *t, int64_t time)
{
    t = submitter_behind(e, t);
    if (r->task != NONE || !is_followed(e, t))
        return;
    request_give_to(e, r, t);
    ring_belongs(e, r->ring, t);
    ring_thread *location = location_of(e, r);
    if (location)
        location_settle(e, location);
    event_begin(e, r, time, t->pending.active ? t->pending.begin : UNKNOWN);
    if (r->executed)
        event_issued(e, r, time);
}

/* ---- beginnings ---- */

static uint8_t class_of(const engine *e, uint8_t opcode, uint8_t sqe_flags)
{
    if (sqe_flags & SQE_SKIP)
        return DATA_SILENT;
    return opcode_has(e, opcode, LO2_OPCODE_REPEATS | LO2_OPCODE_UNKNOWN) ? DATA_REPEATS : DATA_SINGLE;
}

static ring_request *begin(engine *e, const ring_sample *s, uint32_t ring_index, uint8_t sqe_flags)
{
    ring_request_set *set = e->ring_requests;
    ring_request *old = request_by_address(e, s->req, 0, false);
    if (old && old->alive)
        request_replaced(e, old, s->time);
    if (set->alive.count >= MOST_ALIVE)
        request_end_unseen(e, &set->requests.at[set->alive.first], false, s->time);
    ring_request *r = request_new(e, ring_index, s->ctx, s->req, s->user_data, class_of(e, s->opcode, sqe_flags));
    if (!r)
        return NULL;
    r->opcode = s->opcode;
    r->sqe_flags = sqe_flags;
    r->ring_number = ring_at(e, ring_index)->number;
    ring_request_began(e, ring_index, s->time, sqe_flags & SQE_SKIP);
    return r;
}

static void on_submit(engine *e, const ring_sample *s, task *t, ring_thread *th, bool refused)
{
    if (!th) {
        e->totals.nr_own_requests += t && is_own(e, t);
        return;
    }
    bool has_fd = th->waits_fd && th->fd_ctx == s->ctx;
    thread_advances(e, th, s->time);
    thread_decides(e, th, 0);
    uint32_t ring_index = ring_of(e, s->ctx, t);
    ring_request *r = ring_index == NONE ? NULL : begin(e, s, ring_index, s->flags & SQE_FLAGS);
    if (!r)
        return;
    ring_batch_request(e, ring_index, t);
    request_give_to(e, r, t);
    r->submit = s->time;
    r->refused = refused;
    if ((!refused && s->count2) || task_kind(t) == LO2_TASK_RING_POLLER)
        r->traits |= LO2_TRAIT_SQPOLL;
    if (r->sqe_flags & SQE_DRAIN)
        r->traits |= LO2_TRAIT_DRAINED;
    if (has_fd)
        request_looks_up(e, r, th->fd, s->time, th->fd_before, t);
    if (!refused && th->has_sqe && request_asks(e, r, th, t))
        e->ring_requests->sqes_precede = true;
    else if (!refused)
        th->unasked = ref_to(e, r);
    th->fresh = ref_to(e, r);
    th->fresh_call = t->pending.active ? t->pending.begin : UNKNOWN;
    if (refused) {
        r->result = (int32_t)s->result;
        r->offset = ring_has(s, LO2_FIELD_RING_OFFSET) ? s->offset : UNKNOWN;
        r->length = ring_has(s, LO2_FIELD_RING_LENGTH) ? s->length : UNKNOWN;
        chain_refused(e, th, r);
    } else {
        chain_submitted(e, th, r);
    }
}

/* ---- which request an event is about ---- */

ring_request *request_by_order(engine *e, const ring_sample *s, bool more)
{
    bool several = false;
    ring_request *r = request_by_data(e, s->ctx, s->user_data, DATA_REPEATS, &several);
    ring_request *single = more ? NULL : request_by_data(e, s->ctx, s->user_data, DATA_SINGLE, &several);
    if (single && (!r || single->id < r->id))
        r = single;
    if (!r && !more)
        r = request_by_data(e, s->ctx, s->user_data, DATA_SILENT, &several);
    if (r)
        r->inferred |= LO2_INFERRED_IDENTITY;
    return r;
}

/* The oldest request without a known address among the first few of a class, in the first class that has one. */
static ring_request *without_known_address(engine *e, const ring_sample *s)
{
    for (uint8_t data_class = 0; data_class <= DATA_SILENT; data_class++) {
        bool several = false;
        ring_request *r = request_by_data(e, s->ctx, s->user_data, data_class, &several);
        for (int left = 16; r && left--; r = r->data_next == NONE ? NULL : request_at(e, r->data_next))
            if (!r->address)
                return r;
    }
    return NULL;
}

/* The format has no address at the submission. A later event may tell it. */
static ring_request *without_address(engine *e, const ring_sample *s, const ring_thread *th)
{
    ring_request *r = th ? request_of(e, th->running) : NULL;
    bool has_data = ring_has(s, LO2_FIELD_RING_USER_DATA);
    if (has_data && !ring_has(s, LO2_FIELD_RING_REQ))
        return request_by_order(e, s, false);
    if (!r || !r->alive || r->address || r->ctx != s->ctx || (has_data && r->user_data != s->user_data))
        r = has_data ? without_known_address(e, s) : NULL;
    if (r) {
        r->inferred |= LO2_INFERRED_IDENTITY;
        if (s->req)
            request_learn_address(e, r, s->req);
    }
    return r;
}

/* The ring of an event that fits no request. */
uint32_t ring_of_stranger(engine *e, const ring_sample *s, const ring_thread *th)
{
    uint32_t index = ring_known(e, s->ctx);
    if (index == NONE)
        return th ? ring_of(e, s->ctx, NULL) : NONE;
    return th || ring_at(e, index)->recorded ? index : NONE;
}

/* The request of an event; made if it began before the trace. */
static ring_request *request_named(engine *e, const ring_sample *s, task *t, const ring_thread *th, bool wakes)
{
    ring_request *r = request_at_address(e, s);
    if (r && !r->alive && wakes)
        return NULL;
    if (!r || !r->alive)
        r = without_address(e, s, th);
    if (!r) {
        bool submits = !wakes && th && !th->worker;
        uint32_t ring_index = submits ? ring_of(e, s->ctx, t) : ring_of_stranger(e, s, wakes ? NULL : th);
        bool has_data = ring_has(s, LO2_FIELD_RING_USER_DATA);
        e->totals.nr_ring_unclear += ring_index != NONE && !has_data;
        r = ring_index == NONE || !has_data ? NULL : begin(e, s, ring_index, 0);
        if (!r)
            return NULL;
        r->traits |= LO2_TRAIT_OLDER;
    }
    if (r->opcode == NO_OPCODE && s->opcode != NO_OPCODE) {
        r->opcode = s->opcode;
        if (r->data_class == DATA_REPEATS && !(r->traits & LO2_TRAIT_MULTISHOT))
            request_change_class(e, r, class_of(e, r->opcode, r->sqe_flags));
    }
    if (!wakes)
        request_adopt(e, r, t, s->time);
    return r;
}

/* ---- between submission and CQE ---- */

/* A thread that is no worker looked up the request's file. */
static void begins_to_execute(engine *e, ring_request *r, ring_thread *th, int64_t time)
{
    if (is_ref_to(th->running, r)) {
        if (r->inferred & LO2_INFERRED_ISSUE && r->at_submission && th->running_since == r->issue) {
            r->inferred &= (uint16_t)~LO2_INFERRED_ISSUE;
            r->issue = th->running_since = time;
        }
        return;
    }
    thread_advances(e, th, time);
    th->chain.id = 0;
    th->running = ref_to(e, r);
    th->running_since = time;
    thread_has_item(th, r);
    r->counted = th->runs + 1;
    request_executed(e, r, th, time, false);
}

static void on_file_get(engine *e, const ring_sample *s, task *t, ring_thread *th)
{
    if (!ring_has(s, LO2_FIELD_RING_REQ)) { /* these kernels look the file up before the submission */
        if (th) {
            thread_advances(e, th, s->time);
            th->waits_fd = true;
            th->fd = s->fd;
            th->fd_ctx = s->ctx;
            th->fd_before = s->before;
        }
        return;
    }
    ring_request *r = request_named(e, s, t, th, false);
    if (!r)
        return;
    request_looks_up(e, r, s->fd, s->time, later(s->before, r->submit), t);
    if (th && t->ring_worker)
        work_begins(e, t, r, s->time);
    else if (th)
        begins_to_execute(e, r, th, s->time);
    chain_shows_ended(e, r, th, s->time);
}

static void on_poll_arm(engine *e, ring_request *r, task *t, const ring_thread *th, int64_t time)
{
    if (th && th->worker) {
        work_shown(e, t, r, time);
        work_ends(e, r->worker_index, time, true);
    } else {
        request_shown_executed(e, r, time);
    }
    request_proves_fd(e, r, t);
    r->nr_polls += r->nr_polls < UINT16_MAX;
    if (r->arm == UNKNOWN)
        r->arm = time;
}

static void on_punt(engine *e, ring_request *r, task *t, const ring_sample *s)
{
    request_proves_fd(e, r, t);
    ring_request_punted(e, r->ring, s->time, r->nr_punts > 0);
    r->nr_punts += r->nr_punts < UINT16_MAX;
    r->punt = s->time;
    r->punt_open = true;
    request_may_begin_unheard(e, r, true);
    request_bound(e, r, s->count != 0);
    if (r->begun)
        event_issued(e, r, s->time);
}

static void on_progress(engine *e, uint16_t role, const ring_sample *s, task *t, ring_thread *th)
{
    ring_request *r = request_named(e, s, t, th, false);
    if (r && role == LO2_ROLE_RING_DEFER) {
        r->traits |= LO2_TRAIT_DRAINED;
        request_take_back(r, th);
    }
    if (th) {
        thread_advances(e, th, s->time);
        th->chain.id = 0;
        if (role != LO2_ROLE_RING_DEFER)
            thread_has_item(th, r);
    }
    if (r && role == LO2_ROLE_RING_POLL_ARM)
        on_poll_arm(e, r, t, th, s->time);
    else if (r && role == LO2_ROLE_RING_PUNT)
        on_punt(e, r, t, s);
    if (r && role != LO2_ROLE_RING_DEFER)
        chain_shows_ended(e, r, th, s->time);
}

static void on_wake(engine *e, const ring_sample *s, task *t)
{
    bool cancels = ring_has(s, LO2_FIELD_RING_COUNT) && !s->count;
    ring_request *r = cancels ? NULL : request_named(e, s, t, NULL, true);
    if (!r)
        return;
    r->wake = s->time;
    r->waker_tid = s->tid;
    r->waker = t && is_recorded(e, t) ? t->number : NONE;
}

static void on_short_write(engine *e, const ring_sample *s, ring_thread *th)
{
    ring_request *r = !th ? NULL : request_of(e, th->worker ? th->work : th->running);
    if (r && r->ctx == s->ctx) {
        request_short(r, s->offset, s->length);
    } else if (th) {
        e->totals.nr_ring_unclear += th->waits_short;
        th->waits_short = true;
        th->short_ctx = s->ctx;
        th->short_offset = s->offset;
        th->short_length = s->length;
    }
}

/* ---- all events ---- */

/* Events that end what their thread executed, and make no request: links, ends of task work, events of rings alone. */
static void on_others(engine *e, const lo2_event *event, const ring_sample *s, ring_thread *th)
{
    ring_request *member = event->role == LO2_ROLE_RING_LINK ? request_by_address(e, s->req, s->ctx, true) : NULL;
    if (member)
        request_take_back(member, th);
    if (th)
        thread_advances(e, th, s->time);
    if (th && event->role != LO2_ROLE_RING_LINK)
        th->chain.id = 0;
    switch (event->role) {
    case LO2_ROLE_RING_LINK: on_link(e, th, s); break;
    case LO2_ROLE_RING_FAIL_LINK: on_fail_link(e, s); break;
    case LO2_ROLE_RING_TASK_WORK:
    case LO2_ROLE_RING_LOCAL_WORK:
        if (th)
            thread_ran_task_work(e, th, s->count);
        break;
    default: /* create, register, wait */
        if (th && event->role == LO2_ROLE_RING_WAIT) {
            thread_decides(e, th, 0);
            th->phase++;
        }
        on_ring_only(e, event, s);
        break;
    }
}

void on_ring(engine *e, const lo2_event *event, const uint8_t *raw, uint32_t tid, uint16_t cpu, int64_t time)
{
    ring_sample s = {.tid = tid, .cpu = cpu, .time = time};
    if (!ring_requests_needed(e))
        return;
    sample_read(event, raw, &s);
    task *t = task_for_sample(e, tid);
    if (t && t->ring_worker)
        thread_of(e, submitter_behind(e, t)); /* makes the location first, for doing so moves the others in memory */
    ring_thread *th = is_followed(e, t) ? thread_of(e, t) : NULL;
    s.before = th ? thread_event(t, th, time) : UNKNOWN;
    if (th)
        th->unasked.id = 0;
    switch (event->role) {
    case LO2_ROLE_RING_SUBMIT: on_submit(e, &s, t, th, false); break;
    case LO2_ROLE_RING_REFUSE: on_submit(e, &s, t, th, true); break;
    case LO2_ROLE_RING_FILE_GET: on_file_get(e, &s, t, th); break;
    case LO2_ROLE_RING_PUNT:
    case LO2_ROLE_RING_POLL_ARM:
    case LO2_ROLE_RING_DEFER: on_progress(e, event->role, &s, t, th); break;
    case LO2_ROLE_RING_WAKE: on_wake(e, &s, t); break;
    case LO2_ROLE_RING_SHORT_WRITE: on_short_write(e, &s, th); break;
    case LO2_ROLE_RING_COMPLETE: on_complete(e, &s, t, th); break;
    case LO2_ROLE_RING_OVERFLOW: on_overflow(e, &s, t, th); break;
    default: on_others(e, event, &s, th); break;
    }
}
