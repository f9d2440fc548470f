/*
 * Finds the paths of requests, by the order of events in each thread.
 *
 * CQEs of requests that were done during their submission look like CQEs of requests that came back from a device. But
 * the former are posted all together at the end of a batch, the latter by task work. After each run of task work, the
 * kernel tells how many items the run had. So the path of a CQE after its own submission stays open until the thread's
 * next event of another kind. Until then, all that follows on the thread's location waits after it.
 *
 * The path is the first that holds:
 * 1. refused, cancelled: by status; cancelled only if the request was never executed (inferred, if punted).
 * 2. worker: punted, or executed by a worker. poll: poll_arm.
 * 3. device: a block request that is no readahead names the request as its cause.
 * 4. Older than the trace: with a wake device (POLL_ADD) or else poll (inferred); without a wake unknown.
 * 5. inline: the opcode cannot be queued (no trait `queues`, and not unknown).
 * 6. device: LINK_TIMEOUT; a wake; IOPOLL and an opcode that is polled or unknown; the CQE in another thread; or
 *    executed when submitted, and the thread entered or left a call, waited or ran task work before the CQE.
 * 7. Executed when submitted, and none of that before the CQE: the thread's next event decides, see below.
 * 8. Executed later, with file_get: inline if the CQE comes in the same thread and no run of task work ended between,
 *    else device.
 * 9. Executed later, without file_get (inferred): the request runs after its predecessor's CQE, in the same run of
 *    task work, or in the next run if that CQE came out of a run. inline if its CQE comes before that run ends, else
 *    device. The CQE of a predecessor that was executed when submitted and cannot be queued came out of a run only if
 *    its thread entered or left a call, waited or ran task work in between.
 *
 * What decides 7:
 * - task_work and local_work of n items: the last n items are device (inferred), the others inline. CQEs that workers
 *   posted for requests of this thread since its last run count off n.
 * - submit, refuse, wait, entry or exit of a call, the thread's exit, the trace's end: all are inline.
 * - Other events decide nothing.
 *
 * Items are, in the thread's order: CQEs with an address (all CQEs, if the format has none), overflows, cancellations
 * without a CQE, punts, poll_arms, and each file_get that begins an execution outside of workers, but the first when
 * submitted. After such a file_get the request is no further item until a run has ended.
 *
 * Without a last CQE: refused to poll as above. inline: silent, executed, and cannot be queued; or (inferred) executed
 * when submitted, and a later member of its chain shows its end in the same thread before a run ended. device
 * (inferred): in flight or torn down, executed when submitted, can be queued, and the thread has entered or left a
 * call, waited, run task work or ended since. Else unknown.
 */
#include "rings/requests.h"
#include "tables/descriptions.h"

/* ---- threads ---- */

static void thread_reset(engine *e, ring_thread *th, const task *t)
{
    if (th->number != NONE) { /* another thread had this place, and has ended */
        thread_advances(e, th, e->totals.last_time_ns);
        thread_decides(e, th, 0);
        work_ends(e, (uint32_t)(th - e->ring_requests->threads.at), UNKNOWN, true);
        if (th->registered != NONE)
            description_release(e, th->registered);
    }
    *th = (ring_thread){.number = t->number, .first_held = NONE, .last_held = NONE, .last_event = UNKNOWN,
                        .work_begin = UNKNOWN, .work_queue = UNKNOWN, .last_end = UNKNOWN, .first_in = UNKNOWN,
                        .left = UNKNOWN, .registered = NONE, .last_sample = UNKNOWN};
}

ring_thread *thread_of(engine *e, const task *t)
{
    ring_request_set *set = e->ring_requests;
    uint32_t index = t ? (uint32_t)(t - e->tasks.at) : NONE;
    if (!t)
        return NULL;
    if (index >= set->threads.count) {
        if (!VEC_ROOM(&set->threads, index + 1)) {
            e->out_of_memory = true;
            return NULL;
        }
        while (set->threads.count <= index)
            set->threads.at[set->threads.count++] = (ring_thread){.number = NONE, .first_held = NONE, .registered = NONE};
    }
    ring_thread *th = &set->threads.at[index];
    if (th->number != t->number)
        thread_reset(e, th, t);
    th->worker = t->ring_worker;
    return th;
}

ring_thread *location_of(engine *e, const ring_request *r)
{
    if (r->task == NONE || r->task_index >= e->ring_requests->threads.count)
        return NULL;
    ring_thread *th = &e->ring_requests->threads.at[r->task_index];
    return th->number == r->task ? th : NULL;
}

/* The thread's state if it has one; makes none. */
ring_thread *thread_known(engine *e, const task *t)
{
    uint32_t index = (uint32_t)(t - e->tasks.at);
    if (!e->ring_requests || index >= e->ring_requests->threads.count)
        return NULL;
    ring_thread *th = &e->ring_requests->threads.at[index];
    return th->number == t->number ? th : NULL;
}

/* The time of the thread's previous event. The kernel looks up the fd of the thread's new request after that time. */
int64_t thread_event(const task *t, ring_thread *th, int64_t time)
{
    int64_t call = t->pending.active ? t->pending.begin : t->left.completed ? t->left.end : UNKNOWN;
    int64_t before = later(later(th->last_sample, t->start), call);
    th->last_sample = time;
    return before;
}

void thread_advances(engine *e, ring_thread *th, int64_t time)
{
    ring_request *r = request_of(e, th->running);
    if (r) {
        r->executing = plus(r->executing, later(minus(time, th->running_since), 0));
        r->timed = true;
    }
    location_settle(e, th);
    th->running.id = 0;
    th->waits_fd = false;
}

void ring_thread_moved_on(engine *e, task *t, int64_t time)
{
    ring_thread *th = thread_known(e, t);
    if (!th)
        return;
    thread_advances(e, th, time);
    th->phase++;
    th->chain.id = 0;
    thread_decides(e, th, 0);
}

void thread_has_item(ring_thread *th, const ring_request *r) { th->items += !r || r->counted != th->runs + 1; }

/*
 * The thread's last n items came out of task work. Some of them may be requests that workers completed, and that task
 * work only frees.
 */
void thread_ran_task_work(engine *e, ring_thread *th, uint32_t n)
{
    uint64_t freed = th->freed < n ? th->freed : n;
    thread_decides(e, th, n - freed);
    th->freed = 0;
    th->runs++;
    th->phase++;
}

/* ---- paths ---- */

static bool queues(const engine *e, const ring_request *r)
{
    return opcode_has(e, r->opcode, LO2_OPCODE_QUEUES | LO2_OPCODE_UNKNOWN);
}

static bool is_polled(engine *e, const ring_request *r)
{
    uint32_t flags = ring_at(e, r->ring)->flags;
    return flags != NONE && (flags & SETUP_IOPOLL) && opcode_has(e, r->opcode, LO2_OPCODE_POLLED | LO2_OPCODE_UNKNOWN);
}

/* If a device served the request, its path is known and not inferred. */
static uint8_t infer(ring_request *r, uint8_t path)
{
    if (r->served)
        return LO2_PATH_DEVICE;
    r->inferred |= LO2_INFERRED_PATH;
    return path;
}

static uint8_t at_once(const ring_request *r) { return r->served ? LO2_PATH_DEVICE : LO2_PATH_INLINE; }

/* The path, if it follows without a look at other events of the thread. */
static uint8_t path_by_signs(ring_request *r)
{
    if (r->status == LO2_RING_REFUSED)
        return LO2_PATH_REFUSED;
    if (r->status == LO2_RING_CANCELLED && !r->executed)
        return r->nr_punts ? infer(r, LO2_PATH_CANCELLED) : LO2_PATH_CANCELLED;
    if (r->nr_punts || r->worker != NONE)
        return LO2_PATH_WORKER;
    return r->nr_polls ? LO2_PATH_POLL : LO2_PATH_UNKNOWN;
}

/* Neither its start nor the events after that were seen, or they were lost. */
static uint8_t path_of_older(const engine *e, ring_request *r)
{
    if (r->wake == UNKNOWN)
        return r->served ? LO2_PATH_DEVICE : LO2_PATH_UNKNOWN;
    return opcode_has(e, r->opcode, LO2_OPCODE_READINESS) ? LO2_PATH_DEVICE : infer(r, LO2_PATH_POLL);
}

bool path_is_open(engine *e, ring_request *r, const ring_thread *th, bool elsewhere)
{
    bool in_its_batch = th && !elsewhere && r->at_submission && th->phase == r->phase;
    r->path = path_by_signs(r);
    r->in_run = !in_its_batch;
    if (r->path != LO2_PATH_UNKNOWN)
        return false;
    if (r->traits & LO2_TRAIT_OLDER) {
        r->path = path_of_older(e, r);
        return false;
    }
    if (!queues(e, r))
        r->path = at_once(r);
    else if (!th || elsewhere || opcode_has(e, r->opcode, LO2_OPCODE_TIMES_OUT) || r->wake != UNKNOWN ||
             is_polled(e, r) || (r->at_submission && !in_its_batch))
        r->path = LO2_PATH_DEVICE;
    else if (!r->at_submission && r->seen_executed)
        r->path = th->number == r->runner && th->runs == r->runs ? at_once(r) : LO2_PATH_DEVICE;
    return r->path == LO2_PATH_UNKNOWN;
}

uint8_t path_without_end(engine *e, ring_request *r)
{
    uint8_t path = path_by_signs(r);
    if (path != LO2_PATH_UNKNOWN || !r->executed)
        return path;
    if (r->status == LO2_RING_SILENT && !queues(e, r))
        return at_once(r);
    if (r->shown_inline)
        return infer(r, LO2_PATH_INLINE);
    if (r->served)
        return LO2_PATH_DEVICE;
    if (r->status == LO2_RING_SILENT)
        return LO2_PATH_UNKNOWN;
    const ring_thread *th = location_of(e, r);
    if (!r->at_submission || !queues(e, r) || (th && th->phase == r->phase))
        return LO2_PATH_UNKNOWN;
    return infer(r, LO2_PATH_DEVICE);
}

static void decide(engine *e, ring_request *r, bool claimed)
{
    if (r->at_submission) {
        r->in_run = claimed;
        r->path = claimed ? infer(r, LO2_PATH_DEVICE) : at_once(r);
    } else { /* it runs after its predecessor: in the same run, or in the next one if the predecessor came out of a run */
        uint32_t run = r->before_runs + r->before_in_run;
        r->path = infer(r, !r->before_known || r->end_runs <= run ? LO2_PATH_INLINE : LO2_PATH_DEVICE);
    }
    chain_member_ended(e, r);
}

static void location_release(engine *e, ring_thread *th);

void thread_decides(engine *e, ring_thread *th, uint64_t claimed)
{
    ring_request_set *set = e->ring_requests;
    uint64_t unclaimed = th->items > claimed ? th->items - claimed : 0;
    if (th->first_held == NONE)
        return;
    for (uint32_t i = th->first_held; i != NONE; i = set->held.at[i].next) {
        const held_event *h = &set->held.at[i];
        if (h->undecided)
            decide(e, request_at(e, h->request), h->item > unclaimed);
    }
    location_release(e, th);
}

/* ---- events: those of one submitter, in the order of time ---- */

enum { EVENT_BEGIN = 0, EVENT_ISSUED = 1, EVENT_COMPLETE = 2, EVENT_CANCELLED = 3 };

static void write_event(engine *e, ring_thread *location, const ring_request *r, uint8_t kind, int64_t time, int64_t call)
{
    bool ends = kind >= EVENT_COMPLETE;
    time = later(time, location ? location->last_event : e->totals.last_time_ns); /* a late record must not turn the order */
    if (location)
        location->last_event = time;
    if (!r->written)
        return;
    ring_event_row row = {.id = r->id, .before = e->nr_operations, .user_data = request_data(r), .previous = r->previous_id,
                          .culprit = r->culprit, .call = call, .time = time, .bytes = ends ? r->bytes : r->length,
                          .queued = UNKNOWN, .executing = UNKNOWN, .waiting = UNKNOWN, .run_queue = UNKNOWN,
                          .blocked = UNKNOWN, .ring = r->ring_number, .task = r->task, .process = r->process, .pid = r->pid, .tid = r->tid,
                          .handle = request_handle(r), .worker_tid = r->worker_tid,
                          .waker_tid = ends ? r->waker_tid : NONE, .traits = r->traits,
                          .inferred = r->inferred, .kind = kind, .opcode = r->opcode, .sqe_flags = r->sqe_flags,
                          .found = {LO2_CACHE_NO_READ, NONE, NONE, UNKNOWN}};
    if (ends) {
        row.found = r->found;
        row.queued = r->queued;
        row.executing = r->executing;
        row.waiting = r->waiting;
        row.run_queue = part_of(r, r->run_queue);
        row.blocked = part_of(r, r->blocked);
        row.result = r->result;
        row.error = r->result < 0 && r->result >= -4095 ? (int16_t)-r->result : 0;
        row.path = r->path;
        row.status = r->status;
    }
    row_of_event(e, &row);
}

static int64_t call_of(engine *e, const ring_request *r)
{
    const task *t = request_task(e, r);
    return t && t->pending.active ? t->pending.begin : UNKNOWN;
}

static bool hold(engine *e, ring_thread *location, held_event event)
{
    ring_request_set *set = e->ring_requests;
    uint32_t index;
    if (set->free_held.count) {
        index = set->free_held.at[--set->free_held.count];
    } else if (VEC_ROOM(&set->held, set->held.count + 1)) {
        index = set->held.count++;
    } else {
        e->out_of_memory = true;
        return false;
    }
    event.next = NONE;
    set->held.at[index] = event;
    *(location->first_held == NONE ? &location->first_held : &set->held.at[location->last_held].next) = index;
    location->last_held = index;
    request_at(e, event.request)->held++;
    return true;
}

void event_begin(engine *e, ring_request *r, int64_t time, int64_t call)
{
    r->begun = true;
    write_event(e, location_of(e, r), r, EVENT_BEGIN, time, call);
}

void location_settle(engine *e, ring_thread *th)
{
    ring_request *r = request_of(e, th->fresh);
    th->fresh.id = 0;
    if (r && !r->begun)
        event_begin(e, r, r->submit, th->fresh_call);
    ring_request *running = request_of(e, th->running);
    if (running && running->begun && !running->issued)
        event_issued(e, running, running->issue);
}

void event_issued(engine *e, ring_request *r, int64_t time)
{
    ring_thread *location = location_of(e, r);
    if (r->issued || r->task == NONE)
        return;
    r->issued = true;
    if (!location || location->first_held == NONE)
        write_event(e, location, r, EVENT_ISSUED, time, call_of(e, r));
    else
        hold(e, location, (held_event){.request = index_of(e, r), .time = time, .call = call_of(e, r)});
}

static void write_end(engine *e, ring_thread *location, ring_request *r)
{
    request_phases(r);
    request_judged(e, r);
    if (!r->issued)
        write_event(e, location, r, EVENT_ISSUED, r->end, r->end_call);
    r->issued = true;
    write_event(e, location, r, r->status == LO2_RING_CANCELLED ? EVENT_CANCELLED : EVENT_COMPLETE, r->end, r->end_call);
    row_of_request(e, r);
}

void event_end(engine *e, ring_request *r, uint64_t item, bool undecided)
{
    ring_thread *location = location_of(e, r);
    r->end_call = call_of(e, r);
    if (location)
        location_settle(e, location);
    if (location && (undecided || location->first_held != NONE))
        hold(e, location, (held_event){.request = index_of(e, r), .time = r->end, .call = r->end_call, .item = item,
                                       .is_end = true, .undecided = undecided});
    else
        write_end(e, location, r);
}

/* No entry of the thread's queue is undecided any more: writes them all. */
static void location_release(engine *e, ring_thread *th)
{
    ring_request_set *set = e->ring_requests;
    while (th->first_held != NONE) {
        uint32_t index = th->first_held;
        held_event h = set->held.at[index];
        ring_request *r = request_at(e, h.request);
        th->first_held = h.next;
        GIVE_BACK(set, free_held, index);
        r->held--;
        if (h.is_end)
            write_end(e, th, r);
        else
            write_event(e, th, r, EVENT_ISSUED, h.time, h.call);
        request_let_go(e, r);
    }
}
