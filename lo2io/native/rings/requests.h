/*
 * Requests of rings, for the files that follow them: request_store.c, request_events.c, request_life.c, request_paths.c,
 * request_cache.c, sqes.c and rows.c for io_uring; iocbs.c for libaio, whose requests share the store and the rows.
 */
#ifndef LO2IO_RING_REQUESTS_H
#define LO2IO_RING_REQUESTS_H

#include "rings/rings.h"

enum { /* include/uapi/linux/io_uring.h */
    SQE_FIXED_FILE = 1, SQE_DRAIN = 2, SQE_LINK = 4, SQE_HARDLINK = 8, SQE_ASYNC = 16, SQE_SKIP = 64, SQE_FLAGS = 127,
    SQE_CHAINS = SQE_LINK | SQE_HARDLINK,
    CQE_MORE = 2, CQE_NOTIF = 8,
    SETUP_IOPOLL = 1
};

enum { MOST_ALIVE = 1 << 17 }; /* bounds the memory, for a request whose end was lost stays alive */

/* A request that somebody took note of. Its place may hold another one by now, with another id. */
typedef struct { uint64_t id; uint32_t at; } request_ref;

/* Classes of requests with one ring and user_data. A CQE without an address can be about some classes only. */
enum data_class { DATA_SINGLE = 0, DATA_REPEATS = 1, DATA_NOTIFIES = 2, DATA_SILENT = 3 };

/*
 * Stretches without a CPU of the worker that executes a request, since the execution began. The request has them, not the worker:
 * the worker may already execute the next request before an event tells that this request is over.
 */
typedef struct { bool any, unseen; int64_t from, until, run_queue, blocked; } worker_sleeps;

typedef struct {
    uint64_t id;                  /* 0: the place is free */
    uint64_t ctx, address, user_data; /* address 0: not known */
    uint32_t next_address;        /* in its bucket */
    uint32_t data_chain, data_next, data_older, data_last; /* rings/request_store.c explains them */
    uint32_t older, newer;        /* neighbours among the living, or among the ended that keep their address */
    uint32_t ring_older, ring_newer;
    uint32_t ring, ring_number;
    uint32_t task_index, task, process, pid, tid; /* of the submitter; task NONE: not known yet */
    uint32_t held;                /* entries in a location's queue that refer to this request */
    uint64_t data;                /* libaio: aio_data. There, `ctx` is the ring's number + 1, `user_data` the address of the iocb */
    int64_t end_before;           /* its end was not seen, but came before this time */
    bool aio;
    uint8_t opcode, sqe_flags, status, path, data_class;
    bool alive, refused, known;   /* known: found by its address */
    bool executed, at_submission, seen_executed; /* seen: file_get or a worker tells the moment of execution */
    bool punt_open;               /* no execution has followed the last punt yet */
    bool unheard;                 /* a worker may begin to execute it without an event */
    bool begun, issued;           /* the event begin or issued is written, or waits in the queue */
    bool written;                 /* chosen by the sample rate */
    bool timed;                   /* `executing` is known */
    bool opens_late;              /* its fd was looked up in an empty slot */
    uint8_t doubtful;             /* bit 0, 1: handle, handle2 is unknown; bit 2: handle is a guess until the request ends */
    bool served;                  /* it sent a block request that does not read ahead: a device served it */
    bool in_run;                  /* task work posted its CQE */
    bool shown_inline;            /* its successor ran so early that this one was done at once */
    bool before_known, before_in_run; /* of its predecessor: its completion is known; task work posted its CQE */
    bool asked;                   /* an SQE record told what it asks for: op_flags, file_index, buffer_index */
    uint16_t traits, inferred, nr_polls, nr_punts, before_traits;
    uint32_t phase, runs;         /* of its thread, when the request was executed */
    uint32_t runner;              /* number of that thread */
    uint32_t end_runs;            /* `runs` of the thread at the request's last CQE */
    uint32_t before_runs;         /* `runs` at the last CQE of its predecessor */
    uint32_t counted;             /* `runs` + 1 when it was counted as an item, for each run counts it once */
    int64_t submit, seen, issue, punt, arm, wake, work_begin, work_end, complete, notify, end;
    int64_t end_call;             /* start of the call in which its submitter was at the end */
    int64_t before_time;          /* completion of its predecessor */
    int64_t executing, queued, waiting;
    int64_t looked, offset, length, bytes;
    int64_t looked_since;         /* the kernel looked the fd up after that */
    int32_t fd, fd2, result;
    uint32_t handle, handle2, worker, worker_tid, waker, waker_tid, cqe_flags, nr_completions;
    uint32_t op_flags, file_index;
    /*
     * place + 1 of the registered file that it opens; UINT32_MAX: the kernel chooses; 0: it opens a descriptor, or
     * nothing
     */
    uint32_t opens_place;
    int32_t buffer_index;
    uint32_t moving;              /* index + 1 of the description at whose position it reads or writes, with a reference */
    uint32_t worker_index;        /* index of the worker's task that executes it now; NONE: none does */
    cache_file cached;            /* the file of `handle`, if that is known */
    cache_deeds deeds;
    cache_result found;           /* in the page cache, if `judged` */
    bool judged;
    worker_sleeps slept;
    uint8_t split;                /* of its executions by workers: enum work_split */
    int64_t run_queue, blocked;   /* parts of these executions, if `split` is known */
    request_ref head, tail, previous, next; /* of its chain; `tail` holds in the head only */
    uint64_t previous_id, culprit;
} ring_request;

enum work_split { SPLIT_NONE = 0, SPLIT_KNOWN = 1, SPLIT_UNKNOWN = 2 };

/* An event that waits for its turn on a location. */
typedef struct { uint32_t request, next; int64_t time, call; uint64_t item; bool is_end, undecided; } held_event;

/* What is known of a thread. The index is its task's. */
typedef struct {
    uint32_t number;              /* of the task; NONE: the place is free */
    bool worker;
    request_ref running;          /* the request that it executes, unless it is a worker */
    int64_t running_since;
    request_ref fresh;            /* the request whose start waits for the thread's next event */
    int64_t fresh_call;
    request_ref chain;            /* the last member of the chain that it submits */
    uint32_t phase, runs;         /* phase: counts calls, waits and runs of task work */
    uint64_t items, freed;
    uint32_t first_held, last_held;
    int64_t last_event;           /* the last one on its location */
    bool waits_short, waits_fd;   /* a short write, or a file_get, belongs to the next request */
    uint64_t short_ctx, fd_ctx;
    int64_t fd_before;            /* time of the event before that file_get */
    int64_t last_sample;          /* the thread's last sample */
    int64_t short_offset, short_length;
    int32_t fd;
    request_ref work;             /* of a worker: the request that it executes */
    int64_t work_begin, work_queue, last_end, first_in, left;
    uint16_t work_inferred;
    bool is_off;
    bool has_sqe;                 /* an SQE record waits for the next submission */
    request_ref unasked;          /* the request that it just submitted: the SQE record may follow */
    lo2_kernel_sqe sqe;
    uint32_t registered;          /* description of a registered file that the next SQE names, with a reference; or NONE */
} ring_thread;

typedef struct {
    uint64_t id, before, user_data, previous, culprit;
    int64_t call, time, bytes, queued, executing, waiting, run_queue, blocked;
    uint32_t ring, task, process, pid, tid, handle, worker_tid, waker_tid;
    int32_t result;
    int16_t error;
    uint16_t traits, inferred;
    uint8_t kind, opcode, path, status, sqe_flags;
    cache_result found;
} ring_event_row;
typedef struct {
    uint64_t id;
    int64_t queue, begin, end;
    uint32_t ring, task, process, pid, tid;
    uint16_t inferred;
    uint8_t opcode;
} ring_work_row;

typedef struct { uint32_t first, last, count; } request_list;

typedef struct ring_request_set {
    VEC(ring_request) requests;
    VEC(uint32_t) free_requests;
    uint32_t *addresses, *data;   /* buckets */
    uint32_t nr_buckets, nr_used;
    request_list alive, ended;
    uint32_t nr_unheard;
    VEC(uint32_t) of_ring;        /* by the ring's index: its newest living request */
    VEC(ring_thread) threads;
    VEC(held_event) held;
    VEC(uint32_t) free_held;
    VEC(request_ref) closing;     /* that close a descriptor; also some that have ended */
    VEC(ring_request) row_queue;
    VEC(ring_event_row) event_queue;
    VEC(ring_work_row) work_queue;
    uint32_t rows_out, events_out, works_out;
    bool sqes_precede, sqes_follow; /* SQE records come before (after) the samples of their submissions, as has been seen */
    bool looked_for_events, has_events; /* has_events: submissions and completions are recorded */
} ring_request_set;

ring_request_set *ring_requests_needed(engine *e); /* NULL: memory is short */
static inline ring_request *request_at(engine *e, uint32_t index) { return &e->ring_requests->requests.at[index]; }
static inline uint32_t index_of(engine *e, const ring_request *r)
{
    return (uint32_t)(r - e->ring_requests->requests.at);
}
static inline request_ref ref_to(engine *e, const ring_request *r) { return (request_ref){r->id, index_of(e, r)}; }
static inline bool is_ref_to(request_ref ref, const ring_request *r) { return ref.id && ref.id == r->id; }
static inline ring_request *request_of(engine *e, request_ref ref) /* NULL: the request is gone */
{
    ring_request *r = ref.id ? request_at(e, ref.at) : NULL;
    return r && r->id == ref.id ? r : NULL;
}
static inline uint32_t request_handle(const ring_request *r) { return r->doubtful & 4 ? NONE : r->handle; }
static inline uint64_t request_data(const ring_request *r) { return r->aio ? r->data : r->user_data; }
static inline int64_t part_of(const ring_request *r, int64_t time) { return r->split == SPLIT_KNOWN ? time : UNKNOWN; }
static inline int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }
const lo2_opcode *opcode_meaning(const engine *e, uint8_t opcode); /* rings/request_life.c */
static inline bool opcode_has(const engine *e, uint8_t opcode, uint32_t any_trait)
{
    return (opcode_meaning(e, opcode)->traits & any_trait) != 0;
}

/* rings/request_store.c */
ring_request *request_by_address(engine *e, uint64_t address, uint64_t ctx, bool has_ctx);
ring_request *request_at_address(engine *e, const ring_sample *s); /* its request, unless that one's start was lost */
ring_request *request_by_data(engine *e, uint64_t ctx, uint64_t user_data, uint8_t data_class, bool *several);
ring_request *request_newest(engine *e, uint64_t ctx, uint64_t user_data); /* the newest that completes once; NULL: none lives */
/* Makes a request in all lists. Pointers to requests are no longer valid. NULL: memory is short. */
ring_request *request_new(engine *e, uint32_t ring_index, uint64_t ctx, uint64_t address, uint64_t user_data,
                          uint8_t data_class);
void request_learn_address(engine *e, ring_request *r, uint64_t address);
void request_change_class(engine *e, ring_request *r, uint8_t data_class);
void request_retire(engine *e, ring_request *r); /* the request has ended, but may still be found by its address */
void request_let_go(engine *e, ring_request *r); /* frees its place if nothing refers to it any more */

/* rings/iocbs.c */
void aio_end_unseen(engine *e, ring_request *r, bool torn_down);

/* rings/request_life.c */
void request_executed(engine *e, ring_request *r, const ring_thread *th, int64_t time, bool at_submission);
void request_take_back(ring_request *r, ring_thread *th); /* it was not executed at once */
void request_shown_executed(engine *e, ring_request *r, int64_t time); /* it has been executed at an unseen moment */
/* the kernel looked the fd up after `since` */
void request_looks_up(engine *e, ring_request *r, int32_t fd, int64_t time, int64_t since, task *where);
void request_proves_fd(engine *e, ring_request *r, task *where);
void request_short(ring_request *r, int64_t offset, int64_t length);
void request_phases(ring_request *r);
void chain_submitted(engine *e, ring_thread *th, ring_request *r);
void chain_refused(engine *e, ring_thread *th, ring_request *r);
void on_link(engine *e, ring_thread *th, const ring_sample *s);
void on_fail_link(engine *e, const ring_sample *s);
/* ends members before it that have CQE_SKIP */
void chain_shows_ended(engine *e, const ring_request *r, const ring_thread *th, int64_t time);
void chain_member_ended(engine *e, ring_request *r);  /* its successor may begin */
void work_begins(engine *e, task *t, ring_request *r, int64_t time);
/* an event of a worker shows that it executes r, whose start in this worker was not seen */
void work_shown(engine *e, task *t, ring_request *r, int64_t time);
void work_ends(engine *e, uint32_t task_index, int64_t time, bool known);
void request_bound(engine *e, ring_request *r, bool hashed);
void request_may_begin_unheard(engine *e, ring_request *r, bool may);
void on_complete(engine *e, const ring_sample *s, task *t, ring_thread *th);
void on_overflow(engine *e, const ring_sample *s, task *t, ring_thread *th);
void request_end_unseen(engine *e, ring_request *r, bool torn_down, int64_t time);
void request_replaced(engine *e, ring_request *r, int64_t time); /* another request has its address, so it has ended */

/* rings/request_cache.c */
void request_judged(engine *e, ring_request *r); /* it has ended: what it found in the page cache */

/* rings/request_events.c */
uint32_t ring_of_stranger(engine *e, const ring_sample *s, const ring_thread *th);
ring_request *request_by_order(engine *e, const ring_sample *s, bool more);
void request_give_to(engine *e, ring_request *r, task *t); /* t is its submitter */
void request_adopt(engine *e, ring_request *r, task *t, int64_t time);
task *request_task(engine *e, const ring_request *r); /* its submitter; NULL: the thread has ended */
void request_closes(engine *e, const ring_request *r); /* it will close the descriptor fd of its submitter's table */

/* rings/sqes.c */
/* uses the SQE record of its thread; false: that is another request's */
bool request_asks(engine *e, ring_request *r, ring_thread *th, task *t);
void request_opened(engine *e, ring_request *r, task *t, int64_t time);  /* a descriptor, or a registered file's place */
void request_closed(engine *e, ring_request *r, task *t, int64_t time);
void request_moved(engine *e, ring_request *r, int64_t time); /* it has ended, and moved its file's position */

/* rings/request_paths.c */
ring_thread *thread_of(engine *e, const task *t);  /* NULL if t is, or if memory is short */
ring_thread *thread_known(engine *e, const task *t); /* NULL: it has none; makes none */
ring_thread *location_of(engine *e, const ring_request *r); /* its submitter's; NULL: not known, or another thread has its place */
int64_t thread_event(const task *t, ring_thread *th, int64_t time); /* time of its last event before this one */
void thread_advances(engine *e, ring_thread *th, int64_t time); /* ends what the thread executed */
void thread_decides(engine *e, ring_thread *th, uint64_t claimed); /* `claimed`: so many of the last items came out of task work */
void thread_has_item(ring_thread *th, const ring_request *r); /* r NULL: not known */
void thread_ran_task_work(engine *e, ring_thread *th, uint32_t n);
bool path_is_open(engine *e, ring_request *r, const ring_thread *th, bool elsewhere);
uint8_t path_without_end(engine *e, ring_request *r);
void event_begin(engine *e, ring_request *r, int64_t time, int64_t call);
void event_issued(engine *e, ring_request *r, int64_t time);
void event_end(engine *e, ring_request *r, uint64_t item, bool undecided);
void location_settle(engine *e, ring_thread *th); /* writes events that waited for the thread's next one */

/* rings/rows.c */
void row_of_event(engine *e, const ring_event_row *row);
void row_of_request(engine *e, ring_request *r);
void row_of_work(engine *e, const ring_work_row *row);

#endif
