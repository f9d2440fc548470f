/* Block requests: insert, issue, complete, and what happens to them in between. */
#include "block/completions.h"
#include "block/dirty.h"
#include "block/flushes.h"
#include "block/parts.h"
#include "block/requests.h"
#include "hash/hash.h"
#include "input/block_sample.h"
#include "rings/rings.h"
#include "tables/rows.h"

/* ---- the set of live requests: by (device, sector), and in order of birth ---- */

static request **bucket_of(request_set *set, uint32_t device, uint64_t sector)
{
    return &set->buckets[HASH_WORDS(device, sector) & (set->nr_buckets - 1)];
}

static void link_key(request_set *set, request *r)
{
    request **bucket = bucket_of(set, r->device, r->sector);
    r->chain = *bucket;
    *bucket = r;
}

static void unlink_key(request_set *set, request *r)
{
    request **at = bucket_of(set, r->device, r->sector);
    while (*at != r)
        at = &(*at)->chain;
    *at = r->chain;
}

static bool make_room(request_set *set)
{
    if (set->nr_live < set->nr_buckets)
        return true;
    uint32_t size = set->nr_buckets ? set->nr_buckets * 2 : 1024;
    request **buckets = calloc(size, sizeof *buckets);
    if (!buckets)
        return false;
    free(set->buckets);
    set->buckets = buckets;
    set->nr_buckets = size;
    for (request *r = set->oldest; r; r = r->newer)
        link_key(set, r);
    return true;
}

/* Takes a request out of the living. Its memory stays. */
static void request_leave(engine *e, request *r)
{
    request_set *set = &e->requests;
    task *t = r->task == NONE ? NULL : &e->tasks.at[r->task_index];
    if (t && t->number == r->task) { /* else the thread has ended, and another is in its place */
        t->nr_requests--;
        t->request_gone = e->totals.last_time_ns;
    }
    unlink_key(set, r);
    *(r->older ? &r->older->newer : &set->oldest) = r->newer;
    *(r->newer ? &r->newer->older : &set->newest) = r->older;
    set->nr_live--;
    set->nr_of_rings -= r->ring_request != 0;
}

static void request_spare(engine *e, request *r)
{
    parts_end(e, r);
    r->chain = e->requests.spare;
    e->requests.spare = r;
}

static void request_drop(engine *e, request *r)
{
    request_leave(e, r);
    request_spare(e, r);
}

void requests_free(request_set *set)
{
    for (request *r = set->oldest, *next; r; r = next) {
        next = r->newer;
        free(r);
    }
    for (request *r = set->ended, *next; r; r = next) {
        next = r->newer;
        free(r);
    }
    for (request *r = set->spare, *next; r; r = next) {
        next = r->chain;
        free(r);
    }
    free(set->buckets);
    free(set->flush_bios.at);
}

/*
 * To which of two twins a sample belongs. Twins have the same device, sector and operation, and are under way at the
 * same time. find() prefers the twin of the sample's size. If sizes do not decide, the oldest twin goes first. But if
 * counts show that completions are missing, the newest goes first: most likely, the older twin's completion
 * is a missing one.
 */
static bool goes_before(engine *e, const request *r, const request *other)
{
    return completions_missing(e) ? r->id > other->id : r->id < other->id;
}

static request *find(engine *e, const block_sample *s, bool requeued)
{
    if (!e->requests.nr_buckets)
        return NULL;
    request *best = NULL;
    bool best_fits = false;
    for (request *r = *bucket_of(&e->requests, s->device, s->sector); r; r = r->chain) {
        if (r->device != s->device || r->sector != s->sector || r->operation != s->operation ||
            r->issued != s->started || (requeued && !r->was_requeued))
            continue;
        bool fits = r->rest == s->nr_sectors;
        if (!best || (fits && !best_fits) || (fits == best_fits && goes_before(e, r, best))) {
            best = r;
            best_fits = fits;
        }
    }
    return best;
}

/* ---- rows ---- */

static void write_event(engine *e, const request *r, uint8_t kind, int64_t time, uint16_t cpu, int64_t bytes)
{
    if (!r->written)
        return;
    lo2_request_event_columns *c = &e->batch->request_events;
    uint32_t row = e->batch->nr_request_events++;
    c->id[row] = r->id;
    c->time_ns[row] = time;
    c->device[row] = r->device;
    c->task[row] = r->task;
    c->pid[row] = r->pid;
    c->tid[row] = r->tid;
    c->kind[row] = kind;
    c->operation[row] = r->operation;
    c->flags[row] = r->flags;
    c->sector[row] = r->issued ? r->issued_sector : r->sector;
    c->bytes[row] = bytes;
    c->error[row] = r->error;
    c->cpu[row] = cpu;
    c->insert_time_ns[row] = r->insert;
    c->issue_time_ns[row] = r->issue;
    c->ring_request[row] = r->ring_request;
    c->reason[row] = r->reason;
    c->inode[row] = r->inode;
    c->charged[row] = r->charged;
}

static void write_row(engine *e, const request *r, uint8_t status, int64_t complete)
{
    if (!r->written)
        return;
    lo2_request_columns *c = &e->batch->requests;
    uint32_t row = e->batch->nr_requests++;
    c->id[row] = r->id;
    c->device[row] = r->device;
    c->task[row] = r->task;
    c->tid[row] = r->tid;
    c->insert_time_ns[row] = r->insert;
    c->issue_time_ns[row] = r->issue;
    c->complete_time_ns[row] = complete;
    c->end_earliest_ns[row] = r->end_proof ? r->issue : UNKNOWN;
    c->end_latest_ns[row] = r->end_proof ? r->end_latest : UNKNOWN;
    c->end_proof[row] = r->end_proof;
    c->sector[row] = r->issue == UNKNOWN ? r->sector : r->issued_sector;
    c->bytes_request[row] = r->bytes_request;
    c->bytes_issued[row] = r->bytes_issued;
    c->bytes_result[row] = r->bytes_result;
    c->error[row] = r->error;
    c->operation[row] = r->operation;
    c->status[row] = status;
    c->flags[row] = r->flags;
    c->nr_requeues[row] = r->nr_requeues;
    c->nr_merges[row] = r->nr_merges;
    c->nr_completions[row] = r->nr_completions;
    c->ring_request[row] = r->ring_request;
    c->reason[row] = r->reason;
}

/* Bounds the memory, for a request whose completion was lost stays alive. No machine has so many in flight. */
enum { MOST_LIVE = 1 << 17 };

/* A request without a completion is in flight. But if completions are missing, its own may be one of them. */
static void give_up_oldest(engine *e)
{
    request *r = e->requests.oldest;
    bool unknown = completions_missing(e);
    *(unknown ? &e->totals.nr_unknown_ends : &e->totals.nr_in_flight_requests) += r->written;
    write_row(e, r, unknown ? LO2_RQ_END_UNKNOWN : LO2_RQ_IN_FLIGHT, UNKNOWN);
    request_drop(e, r);
}

/* ---- ends that were not seen: docs/explanation/rules/block.md has the rules ---- */

/* Queues the request: so many may end at once that their rows must wait for room. */
static void ended_unseen(engine *e, request *r, int64_t latest, uint8_t proof)
{
    request_set *set = &e->requests;
    r->end_latest = latest;
    r->end_proof = proof;
    e->totals.nr_inferred_ends += r->written;
    request_leave(e, r);
    r->newer = NULL;
    *(set->ended ? &set->last_ended->newer : &set->ended) = r;
    set->last_ended = r;
}

bool requests_flush(engine *e)
{
    request_set *set = &e->requests;
    while (set->ended) {
        if (!batch_has_room(e))
            return false;
        request *r = set->ended;
        set->ended = r->newer;
        parts_end(e, r);
        write_event(e, r, LO2_RQ_ENDED, r->end_latest, UINT16_MAX, UNKNOWN);
        write_row(e, r, LO2_RQ_INFERRED, UNKNOWN);
        request_spare(e, r);
    }
    return true;
}

/*
 * True if a thread waits for the request's end. The kernel marks reads for which no thread waits (readahead), and
 * writes for which a thread waits (sync).
 */
static bool is_waited_for(const request *r)
{
    if (!r->issued || (r->flags & LO2_RQ_READAHEAD))
        return false;
    return r->operation == LO2_RQ_READ || r->operation == LO2_RQ_FLUSH || (r->flags & LO2_RQ_SYNC);
}

void requests_end_with_call(engine *e, const task *t, int64_t time)
{
    if (e->calls[t->pending.call].kind >= LO2_CALL_RING_SETUP)
        return;
    for (request *r = e->requests.newest, *older; r && r->begin >= t->pending.begin; r = older) {
        older = r->older;
        if (r->task != t->number || r->ring_request || !is_waited_for(r))
            continue;
        if (!completions_missing(e))
            return;
        ended_unseen(e, r, time, LO2_RQ_BY_CALL);
    }
}

void requests_end_with_ring_request(engine *e, uint64_t id, int64_t submit, int64_t time)
{
    if (!e->requests.nr_of_rings)
        return;
    for (request *r = e->requests.newest, *older; r && r->begin >= submit; r = older) {
        older = r->older;
        if (r->ring_request != id || !is_waited_for(r))
            continue;
        if (!completions_missing(e))
            return;
        ended_unseen(e, r, time, LO2_RQ_BY_RING_REQUEST);
    }
}

/*
 * True if the operation has its sectors to itself. A flush has none, and others may share one: zone appends name the
 * start of their zone.
 */
static bool has_place(uint8_t operation)
{
    return operation == LO2_RQ_READ || operation == LO2_RQ_WRITE || operation == LO2_RQ_DISCARD ||
           operation == LO2_RQ_SECURE_ERASE || operation == LO2_RQ_WRITE_ZEROES;
}

/* The newest request that must have ended when another one begins at its sector. */
static request *in_the_way(engine *e, const block_sample *s)
{
    request *newest = NULL;
    for (request *r = *bucket_of(&e->requests, s->device, s->sector); r; r = r->chain) {
        bool same = r->device == s->device && r->sector == s->sector && r->issued && has_place(r->operation);
        bool may_share = r->operation == LO2_RQ_READ && s->operation == LO2_RQ_READ;
        if (same && !may_share && (!newest || r->id > newest->id))
            newest = r;
    }
    return newest;
}

/*
 * A request begins, so older requests at its sector have ended. The kernel does not write sectors while they are being
 * read or written. A program that cares about the result does not do so either. But two reads may overlap.
 */
static void make_way(engine *e, const block_sample *s, int64_t time)
{
    if (!e->requests.nr_buckets || !has_place(s->operation))
        return;
    for (request *r; (r = in_the_way(e, s)) && completions_missing(e);)
        ended_unseen(e, r, time, LO2_RQ_BY_LATER_REQUEST);
}

static request *request_new(engine *e)
{
    request_set *set = &e->requests;
    if (set->nr_live == MOST_LIVE)
        give_up_oldest(e);
    request *r = set->spare;
    if (!make_room(set) || (!r && !(r = malloc(sizeof *r)))) {
        e->out_of_memory = true;
        return NULL;
    }
    if (r == set->spare)
        set->spare = r->chain;
    *r = (request){.older = set->newest, .insert = UNKNOWN, .issue = UNKNOWN, .complete = UNKNOWN, .bytes_issued = UNKNOWN,
                   .bytes_result = UNKNOWN, .id = e->next_id++};
    *(set->newest ? &set->newest->newer : &set->oldest) = r;
    set->newest = r;
    set->nr_live++;
    return r;
}

/* ---- the life of a request ---- */

static request *begin(engine *e, const block_sample *s, uint32_t tid, int64_t time, bool queued)
{
    make_way(e, s, time);
    submitter who = submitter_of(e, tid);
    if (s->operation == LO2_RQ_FLUSH)
        who = flush_owner(e, s->device, who);
    bool ours = submitter_is_recorded(e, &who);
    request *r = request_new(e);
    if (!r)
        return NULL;
    r->device = s->device;
    r->sector = r->issued_sector = s->sector;
    r->rest = s->nr_sectors;
    r->bytes_request = s->bytes;
    r->flags = s->flags;
    r->operation = s->operation;
    r->task = ours ? who.task : NONE;
    r->pid = ours ? who.pid : NONE;
    r->tid = who.tid;
    r->task_index = who.task_index;
    task *t = ours ? submitter_alive(e, &who) : NULL;
    if (t)
        t->nr_requests++;
    bool own = who.task != NONE && !ours && e->config.all_tasks;
    r->written = ours || (e->config.all_tasks && !own);
    e->totals.nr_own_requests += own;
    if (t && t->tid == tid && e->rings)
        r->ring_request = ring_request_sends(e, t, s->flags & LO2_RQ_READAHEAD);
    e->requests.nr_of_rings += r->ring_request != 0;
    r->call = t && t->tid == tid && t->pending.active ? t->pending.begin : UNKNOWN;
    r->reason = s->operation == LO2_RQ_WRITE ? write_back_reason(e, tid) : LO2_WRITE_BACK_NONE;
    r->begin = time;
    r->insert = queued ? time : UNKNOWN;
    link_key(&e->requests, r);
    write_event(e, r, LO2_RQ_BEGIN, time, s->cpu, s->bytes);
    return r;
}

static void inserted(engine *e, block_sample *s, uint32_t tid, int64_t time)
{
    request *r = find(e, s, true);
    if (r) {
        r->was_requeued = false;
        return;
    }
    begin(e, s, tid, time, true);
}

static void issued(engine *e, block_sample *s, uint32_t tid, int64_t time)
{
    request *r = find(e, s, false);
    if (!r)
        r = begin(e, s, tid, time, false);
    if (!r)
        return;
    r->issued = true;
    r->was_requeued = false;
    r->issue = time;
    r->issued_sector = s->sector;
    r->rest = s->nr_sectors;
    r->bytes_issued = s->bytes;
    r->flags = s->flags;
    if (!r->nr_requeues) /* OTF2 knows one issue per operation, here the first; the table has the last */
        write_event(e, r, LO2_RQ_ISSUED, time, s->cpu, s->bytes);
}

static void requeued(engine *e, block_sample *s)
{
    s->started = true;
    request *r = find(e, s, false);
    if (!r)
        return;
    r->issued = false;
    r->was_requeued = true;
    r->nr_requeues++;
}

static void front_merged(engine *e, const block_sample *s)
{
    block_sample behind = *s; /* the bio still names its partition, but its sector counts from the disk's start already */
    behind.device = disk_of(e, s->device);
    behind.sector += s->nr_sectors;
    request *r = find(e, &behind, false);
    if (!r)
        return;
    unlink_key(&e->requests, r);
    r->sector = s->sector;
    r->rest += s->nr_sectors;
    link_key(&e->requests, r);
}

static void merged(engine *e, const block_sample *s, int64_t time)
{
    request *r = find(e, s, false);
    if (!r)
        return;
    for (request *other = e->requests.oldest; other; other = other->newer) {
        if (other != r && !other->issued && other->device == r->device && other->operation == r->operation &&
            other->sector + other->rest == r->sector) {
            other->nr_merges++;
            other->rest += r->rest;
            break;
        }
    }
    if (!r->nr_requeues) /* OTF2: only an issued operation can be cancelled */
        write_event(e, r, LO2_RQ_ISSUED, time, s->cpu, r->bytes_request);
    write_event(e, r, LO2_RQ_CANCELLED, time, s->cpu, UNKNOWN);
    write_row(e, r, LO2_RQ_MERGED, UNKNOWN);
    request_drop(e, r);
}

/* True if the completion ends the request. An unknown request counts as ended. */
static bool completed(engine *e, block_sample *s, int64_t time)
{
    s->started = true;
    request *r = find(e, s, false);
    if (!r) {
        e->totals.nr_orphan_completions += !s->wants_flush;
        return true;
    }
    r->nr_completions++;
    r->error = s->error;
    if (s->bytes != UNKNOWN && !s->error)
        r->bytes_result = (r->bytes_result == UNKNOWN ? 0 : r->bytes_result) + s->bytes;
    if (!s->error && s->nr_sectors < r->rest) { /* a part: the rest goes on, with its own first sector as key */
        unlink_key(&e->requests, r);
        r->sector += s->nr_sectors;
        r->rest -= s->nr_sectors;
        link_key(&e->requests, r);
        return false;
    }
    r->complete = time;
    parts_end(e, r);
    write_event(e, r, LO2_RQ_COMPLETE, time, s->cpu, r->bytes_result);
    write_row(e, r, LO2_RQ_COMPLETED, time);
    request_drop(e, r);
    return true;
}

/* The programs make no other kinds. */
static bool are_parts(const lo2_kernel_parts *record, uint32_t length)
{
    if (record->count > LO2_PARTS_ROOM || length < offsetof(lo2_kernel_parts, parts) + record->count * sizeof(lo2_kernel_part))
        return false;
    for (uint8_t i = 0; i < record->count; i++)
        if (record->parts[i].kind > LO2_PART_SWAP)
            return false;
    return true;
}

void on_kernel_parts(engine *e, const uint8_t *content, uint32_t length)
{
    lo2_kernel_parts record = {0};
    request *newest = NULL;
    if (length < offsetof(lo2_kernel_parts, parts)) {
        e->totals.nr_undecoded++;
        return;
    }
    memcpy(&record, content, length < sizeof record ? length : sizeof record);
    if (!are_parts(&record, length)) {
        e->totals.nr_undecoded++;
        return;
    }
    if (!e->requests.nr_buckets)
        return;
    for (request *r = *bucket_of(&e->requests, record.disk, record.sector); r; r = r->chain)
        if (r->device == record.disk && r->sector == record.sector && r->issued && (!newest || r->issue > newest->issue))
            newest = r;
    if (newest)
        parts_add(e, newest, &record);
}

static void write_completion(engine *e, const block_sample *s, uint64_t sector, int64_t time, bool ends)
{
    lo2_completion_columns *c = &e->batch->completions;
    uint32_t row = e->batch->nr_completions++;
    c->time_ns[row] = time;
    c->device[row] = s->device;
    c->sector[row] = sector;
    c->bytes[row] = s->bytes == UNKNOWN ? 0 : s->bytes;
    c->operation[row] = s->operation;
    c->asked_flush[row] = s->wants_flush;
    c->ends[row] = ends;
}

void on_block(engine *e, const lo2_event *event, const uint8_t *raw, uint32_t tid, uint16_t cpu, int64_t time)
{
    block_sample s = {.cpu = cpu};
    block_sample_read(event, raw, &s);
    switch (event->role) {
    case LO2_ROLE_RQ_INSERT: inserted(e, &s, tid, time); break;
    case LO2_ROLE_RQ_ISSUE: issued(e, &s, tid, time); break;
    case LO2_ROLE_RQ_COMPLETE:
        write_completion(e, &s, load_unsigned(raw, event->fields[LO2_FIELD_SECTOR]), time, completed(e, &s, time));
        break;
    case LO2_ROLE_RQ_REQUEUE: requeued(e, &s); break;
    case LO2_ROLE_RQ_MERGE: merged(e, &s, time); break;
    case LO2_ROLE_BIO_FRONTMERGE: front_merged(e, &s); break;
    case LO2_ROLE_BIO_FLUSH: flush_wanted(e, &s, tid); break;
    default: break;
    }
}

bool requests_finish(engine *e)
{
    while (e->requests.oldest) {
        if (!batch_has_room(e))
            return false;
        give_up_oldest(e);
    }
    return true;
}
