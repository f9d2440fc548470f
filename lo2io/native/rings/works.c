/* What worker threads execute: one row per execution. */
#include "rings/requests.h"

/* READV, WRITEV, READ_FIXED, WRITE_FIXED, POLL_ADD, SENDMSG, RECVMSG, ACCEPT, CONNECT, READ, WRITE, SEND, RECV, EPOLL_CTL,
 * SPLICE, TEE, SEND_ZC, SENDMSG_ZC, READ_MULTISHOT, RECV_ZC, READV_FIXED, WRITEV_FIXED: unbound_nonreg_file,
 * io_uring/opdef.c */
#define UNBOUNDED_OPCODES 0x340380026cc12676ull
enum { FIRST_UNKNOWN_OPCODE = 62 };

/* Without a file at hand the kernel takes it for one that may block for long (io_prep_async_work, io_uring/io_uring.c). */
void request_bound(ring_request *r, bool hashed)
{
    if (hashed) {
        r->traits &= (uint16_t)~LO2_TRAIT_UNBOUNDED;
        r->traits |= LO2_TRAIT_HASHED | LO2_TRAIT_BOUNDED;
        r->inferred &= (uint16_t)~LO2_INFERRED_BOUND;
        return;
    }
    if (r->traits & (LO2_TRAIT_BOUNDED | LO2_TRAIT_UNBOUNDED)) /* it is the same file still */
        return;
    bool may_block = has_opcode(UNBOUNDED_OPCODES, r->opcode);
    bool no_file_yet = r->looked == UNKNOWN && (r->sqe_flags & SQE_ASYNC); /* nor does it ask for the mode then */
    if (r->opcode >= FIRST_UNKNOWN_OPCODE || (may_block && !no_file_yet && !r->nr_polls))
        return;
    r->traits |= may_block ? LO2_TRAIT_UNBOUNDED : LO2_TRAIT_BOUNDED;
    r->inferred |= LO2_INFERRED_BOUND;
}

/* FSYNC, SYNC_FILE_RANGE, FALLOCATE, FADVISE; EPOLL_CTL looks nothing up while it is executed */
#define LOOKS_UP ((UNBOUNDED_OPCODES | 1ull << 3 | 1ull << 8 | 1ull << 17 | 1ull << 24) & ~(1ull << 29))

void request_may_begin_unheard(engine *e, ring_request *r, bool may)
{
    may = may && (r->looked != UNKNOWN || (r->traits & LO2_TRAIT_OLDER) || (r->sqe_flags & SQE_FIXED_FILE) || !has_opcode(LOOKS_UP, r->opcode));
    e->ring_requests->nr_unheard += may - r->unheard;
    r->unheard = may;
}

static ring_thread *worker_at(engine *e, uint32_t task_index)
{
    return task_index < e->ring_requests->threads.count ? &e->ring_requests->threads.at[task_index] : NULL;
}

/* It runs where the request before it ran. */
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

static void start(engine *e, task *t, ring_request *r, int64_t time, bool inferred)
{
    uint32_t index = (uint32_t)(t - e->tasks.at);
    ring_thread *th = worker_at(e, index);
    if (th->work.id)
        work_ends(e, index, time, false);
    if (r->worker_index != NONE) /* on another worker, as far as was seen */
        work_ends(e, r->worker_index, time, false);
    th->work = ref_to(e, r);
    th->work_begin = time;
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
        start(e, t, r, th->last_end > time ? th->last_end : time, false);
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
    start(e, t, r, begin == UNKNOWN || begin > time ? time : begin, true);
}

static void finish(engine *e, ring_thread *th, int64_t time, uint16_t inferred)
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
        finish(e, th, time, known ? 0 : LO2_INFERRED_WORK_END);
}

/* Its CQE came in another thread: by then the worker was done, at the latest when it last went to sleep. */
void work_ended_elsewhere(engine *e, ring_request *r, int64_t time)
{
    ring_thread *th = r->worker_index == NONE ? NULL : worker_at(e, r->worker_index);
    if (th && is_ref_to(th->work, r))
        finish(e, th, th->is_off && th->left != UNKNOWN && th->left >= th->work_begin ? th->left : time,
               LO2_INFERRED_WORK_END);
    r->worker_index = NONE;
}

void ring_worker_exited(engine *e, task *t)
{
    ring_thread *th = e->ring_requests ? worker_at(e, (uint32_t)(t - e->tasks.at)) : NULL;
    if (th && th->number == t->number && th->work.id)
        finish(e, th, UNKNOWN, 0);
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

/* In a worker, and outside of batches, I/O goes to the device while the request is executed. In a batch of more than two
 * requests it is gathered first (IO_PLUG_THRESHOLD, io_uring/io_uring.h), and goes when all have been executed. */
uint64_t ring_request_sends(engine *e, task *t, bool ahead)
{
    ring_thread *th = e->ring_requests ? worker_at(e, (uint32_t)(t - e->tasks.at)) : NULL;
    if (t->iocbs)
        return iocb_sending(e, t, ahead);
    if (!th || th->number != t->number)
        return 0;
    if (t->ring_worker) { /* unless it has gone on to another one that nobody saw begin */
        ring_request *work = request_of(e, th->work);
        return work && !e->ring_requests->nr_unheard ? sends(work, ahead) : 0;
    }
    ring_request *r = request_of(e, th->running);
    const pending_call *p = &t->pending;
    bool in_batch = !p->active || (e->calls[p->call].kind == LO2_CALL_RING_ENTER && p->count > 2);
    return r && r->alive && !in_batch ? sends(r, ahead) : 0;
}
