/* Rings: their processes, begins and ends. docs/explanation/rules/rings.md has the rules. */
#include "hash/hash.h"
#include "rings/rings.h"
#include "tables/tasks.h"

enum { REGISTER_RESIZE = 33 }; /* include/uapi/linux/io_uring.h */

ring *ring_at(engine *e, uint32_t index) { return &e->rings->rings.at[index]; }

/* ---- the set: found by kind, context and process; two lists, of the living and the ended, each in order ---- */

ring_set *rings_needed(engine *e)
{
    if (!e->rings && (e->rings = calloc(1, sizeof *e->rings))) {
        const ring_list empty = {NONE, NONE, 0};
        e->rings->last = NONE;
        e->rings->alive = e->rings->ended = empty;
    }
    e->out_of_memory |= !e->rings;
    return e->rings;
}

/* A libaio context is an address in the memory of its process. An io_uring's kernel address is unique. */
static bool is_ring(const ring *r, uint8_t kind, uint64_t context, uint32_t process_number)
{
    return r->context == context && r->kind == kind && (kind == RING_URING || r->process_number == process_number);
}

static uint32_t *bucket_of(ring_set *set, uint8_t kind, uint64_t context, uint32_t process_number)
{
    uint64_t whose = kind == RING_URING ? 0 : process_number; /* a kernel address is unique */
    return &set->buckets[HASH_WORDS(kind, context, whose) & (set->nr_buckets - 1)];
}

uint32_t ring_find(engine *e, uint8_t kind, uint64_t context, uint32_t process_number)
{
    ring_set *set = e->rings;
    if (!set || !set->nr_buckets)
        return NONE;
    if (set->last != NONE && is_ring(&set->rings.at[set->last], kind, context, process_number))
        return set->last;
    for (uint32_t at = *bucket_of(set, kind, context, process_number); at; at = set->rings.at[at - 1].chain)
        if (is_ring(&set->rings.at[at - 1], kind, context, process_number))
            return set->last = at - 1;
    return NONE;
}

uint32_t ring_known(engine *e, uint64_t ctx) { return ring_find(e, RING_URING, ctx, NONE); }

static void link_key(ring_set *set, uint32_t index)
{
    ring *r = &set->rings.at[index];
    uint32_t *bucket = bucket_of(set, r->kind, r->context, r->process_number);
    r->chain = *bucket;
    *bucket = index + 1;
}

static void unlink_key(ring_set *set, uint32_t index)
{
    const ring *r = &set->rings.at[index];
    uint32_t *at = bucket_of(set, r->kind, r->context, r->process_number);
    while (*at && *at != index + 1)
        at = &set->rings.at[*at - 1].chain;
    if (*at)
        *at = r->chain;
    if (set->last == index)
        set->last = NONE;
}

static void append(ring_set *set, ring_list *list, uint32_t index)
{
    ring *r = &set->rings.at[index];
    r->older = list->newest;
    r->newer = NONE;
    *(list->newest == NONE ? &list->oldest : &set->rings.at[list->newest].newer) = index;
    list->newest = index;
    list->count++;
}

static void take_out(ring_set *set, ring_list *list, uint32_t index)
{
    const ring *r = &set->rings.at[index];
    *(r->older == NONE ? &list->oldest : &set->rings.at[r->older].newer) = r->newer;
    *(r->newer == NONE ? &list->newest : &set->rings.at[r->newer].older) = r->older;
    list->count--;
}

static bool make_room(ring_set *set)
{
    if (set->alive.count + set->ended.count < set->nr_buckets)
        return true;
    uint32_t size = set->nr_buckets ? set->nr_buckets * 2 : 64;
    uint32_t *buckets = calloc(size, sizeof *buckets);
    if (!buckets)
        return false;
    free(set->buckets);
    set->buckets = buckets;
    set->nr_buckets = size;
    const ring_list *lists[] = {&set->alive, &set->ended};
    for (int l = 0; l < 2; l++)
        for (uint32_t i = lists[l]->oldest; i != NONE; i = set->rings.at[i].newer)
            if (!(set->rings.at[i].gone && set->rings.at[i].kind == RING_AIO))
                link_key(set, i);
    return true;
}

/* ---- the process ---- */

void ring_belongs(engine *e, uint32_t index, const task *t)
{
    ring *r = ring_at(e, index);
    process *p = &e->processes.at[t->process];
    if (r->process_number != NONE)
        return;
    r->process = t->process;
    r->process_number = p->number;
    r->pid = p->pid;
    r->recorded = is_followed(e, t);
    r->next_of_process = p->rings;
    if (p->rings)
        ring_at(e, p->rings - 1)->previous_of_process = index + 1;
    p->rings = index + 1;
}

static void leave_process(engine *e, uint32_t index)
{
    ring *r = ring_at(e, index);
    if (r->process == NONE)
        return;
    uint32_t previous = r->previous_of_process, next = r->next_of_process;
    *(previous ? &ring_at(e, previous - 1)->next_of_process : &e->processes.at[r->process].rings) = next;
    if (next)
        ring_at(e, next - 1)->previous_of_process = previous;
    r->next_of_process = r->previous_of_process = 0;
    r->process = NONE;
}

/* ---- begin ---- */

uint32_t ring_new(engine *e, uint8_t kind, uint64_t context, const task *t)
{
    ring_set *set = rings_needed(e);
    uint32_t index = NONE;
    if (set && make_room(set)) {
        if (set->free_rings.count)
            index = set->free_rings.at[--set->free_rings.count];
        else if (VEC_ROOM(&set->rings, set->rings.count + 1) && VEC_ROOM(&set->free_rings, set->rings.count + 1))
            index = set->rings.count++;
    }
    if (index == NONE) {
        e->out_of_memory = true;
        return NONE;
    }
    set->rings.at[index] = (ring){.number = set->next_number++, .context = context, .kind = kind, .alive = true,
                                  .process = NONE, .task = NONE, .pid = NONE, .process_number = NONE, .fd = -1,
                                  .handle = NONE, .flags = NONE, .create_time = UNKNOWN, .end_time = UNKNOWN,
                                  .poller = NONE, .nr_files = NONE, .nr_buffers = NONE, .cq_most = UINT64_MAX,
                                  .state_time = UNKNOWN, .watcher = NONE, .last_user = NONE};
    if (t)
        ring_belongs(e, index, t);
    link_key(set, index);
    append(set, &set->alive, index);
    e->rows_wait = true;
    return index;
}

/* No later event can be about the ring: ends its requests and writes its row. */
void ring_give_up(engine *e, uint32_t index)
{
    ring_set *set = e->rings;
    ring *r = ring_at(e, index);
    ring_state_settle(e, r); /* its requests end now, but that is no change of state */
    ring_requests_abandon(e, index, !r->alive);
    r = ring_at(e, index);
    leave_process(e, index);
    unlink_key(set, index);
    take_out(set, r->alive ? &set->alive : &set->ended, index);
    if (r->recorded)
        ring_row_queue(e, r);
    registered_end_all(e, index, UNKNOWN);
    r = ring_at(e, index);
    free(r->registered.at);
    r->registered.at = NULL;
    r->registered.count = r->registered.room = 0;
    r->context = 0;
    r->kind = RING_AIO; /* nothing finds a ring of context 0 and no process */
    r->process_number = NONE;
    r->number = NONE;
    set->free_rings.at[set->free_rings.count++] = index; /* ring_new made room for it */
}

uint32_t ring_of(engine *e, uint64_t ctx, task *t)
{
    uint32_t index = ring_find(e, RING_URING, ctx, NONE);
    if (index != NONE && t && ring_at(e, index)->gone) {
        ring_give_up(e, index); /* another ring is at this address, and its creation was lost */
        index = NONE;
    }
    if (index == NONE)
        return ring_new(e, RING_URING, ctx, t);
    if (t)
        ring_belongs(e, index, t);
    return index;
}

static void created(engine *e, const ring_sample *s, task *t)
{
    uint32_t index = ring_known(e, s->ctx);
    if (index != NONE) { /* no event tells that a ring is destroyed: this one was, before now */
        ring *old = ring_at(e, index);
        if (old->alive)
            ring_end(e, index, UNKNOWN);
        ring_give_up(e, index);
    }
    if (!is_followed(e, t) || (index = ring_new(e, RING_URING, s->ctx, t)) == NONE)
        return;
    ring *r = ring_at(e, index);
    r->task = t->number;
    r->create_time = s->time;
    r->sq_entries = s->count;
    r->cq_entries = r->cq_limit = s->count2;
    r->flags = ring_has(s, LO2_FIELD_RING_FLAGS) ? (uint32_t)s->flags : NONE;
    bool has_fd = ring_has(s, LO2_FIELD_RING_FD) && !(r->flags != NONE && (r->flags & SETUP_REGISTERED_FD_ONLY));
    r->fd = has_fd ? s->fd : -1;
    r->nr_files = r->nr_buffers = 0;
    r->files_known = true;
    r->nr_forks = e->processes.at[t->process].nr_forks;
    r->cq_most = 0;
    if (t->pending.active && e->calls[t->pending.call].kind == LO2_CALL_RING_SETUP) {
        t->ring_call.ring = index + 1;
        t->ring_call.ring_number = r->number;
        if (r->flags == NONE || (r->flags & SETUP_SQPOLL))
            r->poller = t->ring_call.poller;
    }
}

static void registered(engine *e, const ring_sample *s, task *t)
{
    uint32_t index = ring_of(e, s->ctx, t);
    if (index == NONE)
        return;
    ring *r = ring_at(e, index);
    if (t && t->pending.active && e->calls[t->pending.call].kind == LO2_CALL_RING_REGISTER) {
        t->ring_call.ring = index + 1;
        t->ring_call.ring_number = r->number;
    }
    if (ring_has(s, LO2_FIELD_RING_COUNT)) { /* the totals after the call */
        r->files_known = true;
        r->nr_files_now = s->count;
        if (r->nr_files == NONE || s->count > r->nr_files)
            r->nr_files = s->count;
        if (!s->count)
            registered_end_all(e, index, s->time);
    }
    if (ring_has(s, LO2_FIELD_RING_COUNT2) && (r->nr_buffers == NONE || s->count2 > r->nr_buffers))
        r->nr_buffers = s->count2;
    if (ring_has(s, LO2_FIELD_RING_OPCODE) && s->opcode == REGISTER_RESIZE && s->result >= 0) {
        ring_state_settle(e, r);
        r->cq_limit = 0; /* user memory has the new size */
        r->cq_most = UINT64_MAX;
    }
}

void on_ring_only(engine *e, const lo2_event *event, const ring_sample *s)
{
    task *t = task_for_sample(e, s->tid);
    if (event->role == LO2_ROLE_RING_CREATE) {
        created(e, s, t);
        return;
    }
    bool ours = is_followed(e, t);
    if (!ours && ring_known(e, s->ctx) == NONE)
        return;
    if (event->role == LO2_ROLE_RING_REGISTER) {
        registered(e, s, ours ? t : NULL);
    } else if (event->role == LO2_ROLE_RING_WAIT) {
        uint32_t index = ring_of(e, s->ctx, ours ? t : NULL);
        if (index != NONE && t)
            ring_waited(e, index, t, s->time, s->count);
    }
}

bool ring_is_chosen(const engine *e, uint64_t id)
{
    uint64_t h = id + 0x9e3779b97f4a7c15u; /* splitmix64 scatters ids that follow one another */
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    h ^= h >> 31;
    return e->config.sample_rate < 2 || h % e->config.sample_rate == 0;
}

/* ---- end ---- */

/* The ring has ended. Its row waits, for completions may still come: kernel threads end the requests that are left. */
void ring_end(engine *e, uint32_t index, int64_t time)
{
    ring *r = ring_at(e, index);
    if (!r->alive)
        return;
    r->alive = false;
    r->end_time = time;
    registered_end_all(e, index, time);
    r = ring_at(e, index);
    if (time != UNKNOWN)
        ring_state_ended(e, r);
    take_out(e->rings, &e->rings->alive, index);
    append(e->rings, &e->rings->ended, index);
    e->rows_wait = true;
    if (r->kind == RING_AIO) { /* the process may make the same context again */
        ring_requests_abandon(e, index, true);
        r->gone = true;
        unlink_key(e->rings, index);
        leave_process(e, index);
    }
}

void ring_revive(engine *e, uint32_t index)
{
    ring *r = ring_at(e, index);
    if (r->alive || r->gone)
        return;
    if (r->end_time != UNKNOWN)
        r->in_flight += r->nr_skipping;
    r->alive = true;
    r->end_time = UNKNOWN;
    take_out(e->rings, &e->rings->ended, index);
    append(e->rings, &e->rings->alive, index);
    e->rows_wait = true;
}

void ring_request_began(engine *e, uint32_t index, int64_t time, bool skips)
{
    ring *r = ring_at(e, index);
    r->nr_requests++;
    e->totals.nr_ring_requests++;
    ring_state_began(e, r, time, skips);
}

void ring_orphan(engine *e, uint32_t index)
{
    ring_at(e, index)->nr_orphans++;
    e->totals.nr_orphan_cqes++;
}

void ring_abandon_all(engine *e, uint32_t process_index, int64_t time)
{
    uint32_t next;
    for (uint32_t at = e->processes.at[process_index].rings; at; at = next) {
        ring *r = ring_at(e, at - 1);
        next = r->next_of_process;
        r->next_of_process = r->previous_of_process = 0;
        r->process = NONE;
        bool held = r->description && e->descriptions.at[r->description - 1].refs; /* another process has its descriptor */
        if (held || e->finishing)
            continue;
        ring_end(e, at - 1, time);
        r->gone = true;
    }
    e->processes.at[process_index].rings = 0;
}

/* exec destroys libaio's contexts with the address space (exit_aio, fs/aio.c). */
void rings_exec(engine *e, uint32_t process_index, int64_t time)
{
    uint32_t next;
    process *p = &e->processes.at[process_index];
    p->fresh = true;
    p->aio = (aio_setups){0};
    for (uint32_t at = p->rings; at; at = next) {
        next = ring_at(e, at - 1)->next_of_process;
        if (ring_at(e, at - 1)->kind == RING_AIO)
            ring_end(e, at - 1, time);
    }
}
