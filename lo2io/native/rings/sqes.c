/*
 * The arguments of requests of rings, as BPF programs read them off the submission queue. An SQE record belongs to the next
 * submission in its thread. If the submission comes first, the record belongs to the submission right before the record
 * (on_kernel_sqe). Files that a ring has registered are handles, too, each from the first request that names its place.
 * docs/explanation/rules/ring-requests.md has the rules.
 */
#include <errno.h>
#include <fcntl.h>

#include "cache/cache.h"
#include "rings/requests.h"
#include "tables/descriptions.h"
#include "tables/descriptors.h"

enum { MOST_REGISTERED = 1 << 15 };
enum { /* include/uapi/linux/io_uring.h */
    BUFFER_SELECT = 32, SEND_VECTORIZED = 32
};
#define PLACE_CHOSEN UINT32_MAX /* IORING_FILE_INDEX_ALLOC: the kernel chooses */
#define SPLICE_FIXED (1u << 31) /* splice, tee: the file that is read is a registered one, too */

/*
 * ---- registered files ----
 *
 * A registered file is a handle without an fd. The handle begins with the first request that names the file's place, if a
 * program told the file. A program tells it only for a request that runs at once: no LINK, HARDLINK, DRAIN or ASYNC, and
 * no link before. Other requests have no handle. The handle shares a description of the process with the same open file.
 * The handle ends when a request closes or fills the place, when no files are registered any more, and with the ring. If
 * a request meets another file in the place, the handle has ended at an unknown time.
 */

static void registered_clear(engine *e, registered_file *f, int64_t time)
{
    uint32_t index = f->handle;
    *f = (registered_file){.handle = NONE};
    if (index != NONE)
        handle_end(e, index, false, time);
}

static void registered_end(engine *e, uint32_t ring_index, uint32_t place, int64_t time)
{
    ring *r = ring_at(e, ring_index);
    if (place < r->registered.count)
        registered_clear(e, &r->registered.at[place], time);
}

void registered_end_all(engine *e, uint32_t ring_index, int64_t time)
{
    for (uint32_t place = 0; place < ring_at(e, ring_index)->registered.count; place++)
        registered_end(e, ring_index, place, time);
}

/* Drops a fact that no SQE will name. */
static void let_registered_go(engine *e, ring_thread *th)
{
    if (th->registered != NONE)
        description_release(e, th->registered);
    th->registered = NONE;
}

void ring_slot_fact(engine *e, task *t, const uint8_t *record, uint32_t size)
{
    lo2_kernel_file fact;
    ring_thread *th = is_followed(e, t) && ring_requests_needed(e) ? thread_of(e, t) : NULL;
    memcpy(&fact, record, sizeof fact);
    if (!th)
        return;
    let_registered_go(e, th);
    uint32_t index = description_new(e);
    if (index == NONE)
        return;
    description *d = &e->descriptions.at[index];
    d->refs++;
    d->open_flags = fact.open_flags;
    d->append = (fact.open_flags & O_APPEND) ? APPENDS : APPENDS_NOT;
    description_learns(e, index, &fact, (const char *)record + sizeof fact);
    th->registered = index;
}

static registered_file *registered_at(engine *e, uint32_t ring_index, uint32_t place)
{
    ring *r = ring_at(e, ring_index);
    if (place >= MOST_REGISTERED || !VEC_ROOM(&r->registered, place + 1))
        return NULL;
    while (r->registered.count <= place)
        r->registered.at[r->registered.count++] = (registered_file){.handle = NONE};
    return &r->registered.at[place];
}

/* A descriptor of the submitter's table with the same open file: both share the description. */
static uint32_t same_description(engine *e, const task *t, const description *told)
{
    const fd_table *f = &e->tables.at[t->table];
    for (uint32_t i = 0; i < f->slots.count; i++) {
        const description *d = f->slots.at[i].handle == NONE ? NULL : description_of(e, f->slots.at[i].handle);
        if (d && d->has_identity && d->address == told->address && d->inode == told->inode && d->device == told->device &&
            d->generation == told->generation && !d->ring)
            return e->handles.at[f->slots.at[i].handle].description;
    }
    return NONE;
}

/* The handle's number of a registered file at this place, or NONE. `file`: address of its description. */
static uint32_t registered_in(engine *e, ring_request *r, ring_thread *th, task *t, uint32_t place, uint64_t file)
{
    registered_file *f = file && r->ring != NONE ? registered_at(e, r->ring, place) : NULL;
    const description *told = th->registered == NONE ? NULL : &e->descriptions.at[th->registered];
    if (told && (!told->has_identity || told->address != file))
        told = NULL;
    if (!f)
        return NONE;
    bool same = f->handle != NONE && f->file == file &&
                (!told || (f->inode == told->inode && f->device == told->device));
    if (!same) {
        registered_clear(e, f, UNKNOWN); /* it was exchanged at an unknown time */
        uint32_t shared = told ? same_description(e, t, told) : NONE;
        uint32_t d = shared != NONE ? shared : told ? th->registered : description_new(e);
        uint32_t index = d == NONE ? NONE : handle_new(e, t, -1, d, ORIGIN_REGISTERED);
        if (index == NONE)
            return NONE;
        f = registered_at(e, r->ring, place);
        *f = (registered_file){file, told ? told->device : 0, told ? told->inode : 0, index};
    }
    handle *h = &e->handles.at[f->handle];
    r->cached = cache_file_of(&e->descriptions.at[h->description]);
    h->used |= r->written;
    return h->number;
}

/* ---- what a request asks for ---- */

/* The description on which the request works. */
static description *description_asked(engine *e, const ring_request *r, const task *t, const lo2_asked *q)
{
    const slot *s = q->flags & SQE_FIXED_FILE ? NULL : slot_at(e, t->table, q->fd, false);
    if (!(q->flags & SQE_FIXED_FILE))
        return s && s->handle != NONE ? description_of(e, s->handle) : NULL;
    const ring *on = r->ring == NONE ? NULL : ring_at(e, r->ring);
    bool known = on && r->file_index < on->registered.count && on->registered.at[r->file_index].handle != NONE;
    return known ? description_of(e, on->registered.at[r->file_index].handle) : NULL;
}

static bool appends(const lo2_opcode *meaning, const lo2_asked *q, const description *d)
{
    bool writes = (meaning->traits & LO2_OPCODE_OFFSET) && meaning->kind == LO2_CALL_WRITE;
    return writes && write_appends(q->op_flags, d ? d->append : APPENDS_NOT) == APPENDS;
}

/* The request reads or writes at the file's position, which is unknown from now on, also after its end. */
static void begins_moving(engine *e, ring_request *r, description *d)
{
    if (d->moving++)
        d->overlapped = 1;
    d->position = UNKNOWN;
    d->refs++;
    r->moving = (uint32_t)(d - e->descriptions.at) + 1;
}

static void asks_where(engine *e, ring_request *r, const lo2_asked *q, description *d)
{
    const lo2_opcode *meaning = opcode_meaning(e, q->opcode);
    bool ranged = (meaning->traits & LO2_OPCODE_RANGE) && (q->offset || q->length); /* else the whole file */
    if (!(meaning->traits & LO2_OPCODE_OFFSET) && !ranged)
        return;
    if (q->offset <= INT64_MAX && !appends(meaning, q, d))
        r->offset = (int64_t)q->offset;
    if (q->offset == UINT64_MAX && d && (meaning->kind == LO2_CALL_READ || meaning->kind == LO2_CALL_WRITE))
        begins_moving(e, r, d);
}

/*
 * The bytes: the sum of the vectors as the kernel imported them (Linux 6.10 and later, not in registered buffers), the
 * range of FALLOCATE and FADVISE, or the new length of FTRUNCATE.
 */
static void asks_how_much(const engine *e, ring_request *r, const lo2_asked *q)
{
    uint64_t bytes = UINT64_MAX;
    uint32_t traits = opcode_meaning(e, q->opcode)->traits;
    bool vectored = (traits & LO2_OPCODE_MAY_VECTOR) && (q->ioprio & SEND_VECTORIZED); /* Linux 6.17 */
    if (vectored || (traits & LO2_OPCODE_COUNTED))
        bytes = q->bytes;
    else if (traits & LO2_OPCODE_NEW_SIZE)
        bytes = q->offset;
    else if ((traits & LO2_OPCODE_LENGTH) || ((traits & LO2_OPCODE_RANGE) && q->length))
        bytes = q->length;
    if (bytes == 0 && (q->flags & BUFFER_SELECT)) /* the kernel will choose a buffer, and fill it */
        bytes = UINT64_MAX;
    if (bytes <= INT64_MAX)
        r->length = (int64_t)bytes;
}

/* Descriptors and places. file_get tells which file a descriptor is, when the kernel looks it up. */
static void asks_on_what(engine *e, ring_request *r, ring_thread *th, task *t, const lo2_asked *q)
{
    const lo2_opcode *meaning = opcode_meaning(e, q->opcode);
    bool two = meaning->traits & LO2_OPCODE_TWO_FILES, on_file = meaning->traits & LO2_OPCODE_FILE;
    if (on_file && (q->flags & SQE_FIXED_FILE)) {
        r->file_index = (uint32_t)q->fd;
        uint32_t number = registered_in(e, r, th, t, r->file_index, q->file);
        *(two ? &r->handle2 : &r->handle) = number;
    } else if (on_file) {
        r->fd = q->fd;
    }
    if (meaning->kind == LO2_CALL_OPEN) {
        r->opens_place = q->file_index;
        if (q->file_index && q->file_index != PLACE_CHOSEN && r->file_index == NONE)
            r->file_index = q->file_index - 1;
    /* a program told what the place holds, as if the request worked on that file */
    } else if (meaning->kind == LO2_CALL_CLOSE && q->file_index) {
        r->file_index = q->file_index - 1;
        r->handle = registered_in(e, r, th, t, r->file_index, q->file);
    }
    if (two && (q->op_flags & SPLICE_FIXED))
        r->handle = registered_in(e, r, th, t, q->file_index, q->file2);
    if (meaning->kind == LO2_CALL_CLOSE && !q->file_index) {
        uint32_t index = handle_in_slot(e, t, q->fd);
        r->fd = q->fd;
        r->looked = r->looked_since = r->submit;
        r->doubtful = has_no_rivals(e, t) && !t->serves ? 0 : 4;
        request_closes(e, r);
        if (index != NONE && !is_told(e, t, index)) {
            r->doubtful = 1;
        } else if (index != NONE) {
            e->handles.at[index].used |= r->written;
            r->handle = e->handles.at[index].number;
        }
    }
}

bool request_asks(engine *e, ring_request *r, ring_thread *th, task *t)
{
    const lo2_kernel_sqe *sqe = &th->sqe;
    const lo2_asked *q = &sqe->asked;
    bool own = sqe->request == r->address && sqe->ring == r->ctx && sqe->user_data == r->user_data &&
               q->opcode == r->opcode;
    th->has_sqe = false;
    if (own) {
        r->asked = true;
        r->op_flags = q->op_flags;
        r->buffer_index = opcode_has(e, q->opcode, LO2_OPCODE_FIXED_BUFFER) ? q->buf_index : -1;
        asks_on_what(e, r, th, t, q);
        asks_where(e, r, q, description_asked(e, r, t, q));
        asks_how_much(e, r, q);
        let_registered_go(e, th);
    }
    return own;
}

/* True if requests are recorded, not only what programs tell of them. */
static bool requests_are_recorded(engine *e)
{
    ring_request_set *set = e->ring_requests;
    bool submit = false, complete = false;
    for (uint32_t type = 0; !set->looked_for_events && type < e->config.nr_types; type++) {
        submit |= e->events[type].event != NONE && e->events[type].role == LO2_ROLE_RING_SUBMIT;
        complete |= e->events[type].event != NONE && e->events[type].role == LO2_ROLE_RING_COMPLETE;
    }
    if (!set->looked_for_events)
        set->has_events = submit && complete;
    set->looked_for_events = true;
    return set->has_events;
}

/*
 * No completion will tell when CLOSE ends the descriptor. So it ends at an unknown time, and the slot is unknown from
 * now on.
 */
static void closes_unrecorded(engine *e, task *t, const lo2_kernel_sqe *sqe)
{
    const lo2_asked *q = &sqe->asked;
    bool closes = opcode_meaning(e, q->opcode)->kind == LO2_CALL_CLOSE && !q->file_index;
    slot *s = closes ? slot_at(e, t->table, q->fd, false) : NULL;
    if (s && (s->handle == NONE || ring_of_handle(e, s->handle) == NONE))
        slot_clear(e, s, UNKNOWN, (int64_t)sqe->head.time_ns);
}

/*
 * The kernel calls the BPF program and perf's sample one right after the other, in the order in which they attached to
 * the tracepoint. That order is the same for the whole recording. perf is first if somebody records the event already.
 */
void on_kernel_sqe(engine *e, task *t, const uint8_t *record, uint32_t size)
{
    ring_thread *th = is_followed(e, t) && ring_requests_needed(e) ? thread_of(e, t) : NULL;
    if (!th)
        return;
    ring_request_set *set = e->ring_requests;
    ring_request *submitted = set->sqes_precede ? NULL : request_of(e, th->unasked);
    memcpy(&th->sqe, record, sizeof th->sqe);
    if (!requests_are_recorded(e)) {
        closes_unrecorded(e, t, &th->sqe);
        return;
    }
    th->has_sqe = !set->sqes_follow;
    th->unasked.id = 0;
    if (!submitted || !submitted->alive)
        return;
    bool waits = th->has_sqe;
    if (request_asks(e, submitted, th, t))
        set->sqes_follow = true;
    else
        th->has_sqe = waits;
}

/* ---- results ---- */

void request_moved(engine *e, ring_request *r, int64_t time)
{
    description *d = &e->descriptions.at[r->moving - 1];
    if (--d->moving == 0)
        d->overlapped = 0;
    d->position = UNKNOWN;
    d->last_moved = time;
    description_release(e, r->moving - 1);
    r->moving = 0;
}

void request_opened(engine *e, ring_request *r, task *t, int64_t time)
{
    if (!r->opens_place) {
        bool knows_flags = r->asked && opcode_has(e, r->opcode, LO2_OPCODE_OPEN_FLAGS);
        ring_opened(e, t, r->ring, r->result, knows_flags ? r->op_flags : NONE, r->asked, time);
        return;
    }
    uint32_t place = r->opens_place == PLACE_CHOSEN ? (uint32_t)r->result : r->opens_place - 1;
    if (!(r->sqe_flags & SQE_FIXED_FILE)) /* else file_index is the file on which the request works, as for ACCEPT */
        r->file_index = place;
    registered_end(e, r->ring, place, time); /* a request that names the place will tell what it holds now */
}

/* True if the request was executed before its thread did anything else, so that the slot was as at the submission. */
static bool closed_at_once(const ring_request *r) { return r->executed && r->at_submission && !r->nr_punts; }

/* With any other error, the descriptor is gone already (io_close, io_uring/openclose.c). */
static bool has_closed(const ring_request *r)
{
    return !r->refused && r->result != -EBADF && r->result != -ECANCELED && r->result != -EINVAL && r->result != -ENXIO;
}

void request_closed(engine *e, ring_request *r, task *t, int64_t time)
{
    if (!r->asked) {
        if (r->result >= 0)
            ring_closed_some_fd(e, t, time);
        return;
    }
    if (r->file_index != NONE) {
        if (r->result >= 0)
            registered_end(e, r->ring, r->file_index, time);
        return;
    }
    r->doubtful &= 1;
    if (has_closed(r) && r->handle == NONE) {
        r->opens_late = true; /* the slot was not empty after all */
        request_proves_fd(e, r, t);
    }
    slot *s = slot_at(e, t->table, r->fd, false);
    bool same = s && s->handle != NONE && e->handles.at[s->handle].number == r->handle;
    bool steady = s && slot_is_steady(e, t, s, -1, r->looked_since); /* no other call has ended what the slot held */
    if (!has_closed(r)) {
        bool kept = same && steady && (r->result != -EBADF || ring_of_handle(e, s->handle) != NONE);
        r->handle = kept ? r->handle : NONE;
        return;
    }
    if (same && steady) {
        slot_clear(e, s, r->result < 0 ? UNKNOWN : time, time);
        return;
    }
    if (closed_at_once(r) && steady && r->handle != NONE) /* the slot's file came after the close */
        return;
    r->handle = NONE; /* which of the two files the request closed is unknown */
    if (s)
        slot_clear(e, s, UNKNOWN, time);
}
