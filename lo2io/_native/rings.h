/*
 * io_uring and libaio inside of the engine: the halves that know requests (ring_requests.c, ring_paths.c, ring_links.c,
 * ring_works.c) and rings (rings.c, ring_states.c, batches.c), and what each does for the other.
 */
#ifndef LO2IO_RINGS_H
#define LO2IO_RINGS_H

#include "engine.h"

#define NO_OPCODE 255

/* A sample of an io_uring tracepoint; what the kernel's format lacks is 0, and not in `has`. */
typedef struct {
    uint64_t ctx, req, user_data, other, flags;
    int64_t result, length, offset;
    uint32_t count, count2;
    int32_t fd;
    uint32_t tid;                 /* thread it happened in: common_pid */
    uint16_t has;                 /* bit i: the field with id i (LO2_FIELD_RING_...) */
    uint16_t cpu;
    uint8_t opcode;
    int64_t time;
} ring_sample;

static inline bool ring_has(const ring_sample *s, int field) { return (s->has >> field) & 1; }

typedef struct {
    uint32_t number;
    uint64_t context;             /* kernel address of the ring; aio_context_t */
    uint8_t kind;                 /* 0 io_uring, 1 libaio */
    bool alive, recorded;         /* recorded: its process is */
    uint32_t process, task, pid;  /* process: index, NONE if not known; task: number */
    uint32_t process_number;
    int32_t fd;
    uint32_t handle;              /* number */
    uint32_t sq_entries, cq_entries, flags;
    int64_t create_time, end_time;
    uint32_t poller;              /* task number */
    uint32_t nr_files, nr_buffers;
    uint64_t nr_requests, nr_completions, nr_overflows, nr_messages, nr_orphans, nr_batches, nr_punts;
    uint32_t most_in_flight, nr_workers;
    uint32_t in_flight, punted, workers;
    uint64_t cq_least, cq_most;
    int64_t state_time;           /* of the last change that has no row yet; UNKNOWN none */
    uint8_t state_direction;
} ring;

/* ---- rings.c, ring_states.c, batches.c: for requests ---- */

/* The ring at this address: index, or NONE if memory is short. One nobody saw created is made up: it is older than the
 * trace. `t`: the thread that named it; NULL: not known. */
uint32_t ring_of(engine *e, uint64_t ctx, task *t, int64_t time);
ring *ring_at(engine *e, uint32_t index);      /* valid until the next ring_of */
/* Changes of a ring's state; each may queue a row of ring_states. */
void ring_request_began(engine *e, uint32_t index, int64_t time);
void ring_request_ended(engine *e, uint32_t index, int64_t time, bool was_punted);
void ring_request_punted(engine *e, uint32_t index, int64_t time);
void ring_cqe_posted(engine *e, uint32_t index, int64_t time, uint32_t tid);   /* counts for the ring and for the batch under way */
void ring_cqe_overflowed(engine *e, uint32_t index, int64_t time);
/* A request that began in a thread which is inside of io_uring_enter counts for that batch. */
void ring_batch_request(engine *e, uint32_t index, task *t);
bool ring_is_chosen(const engine *e, uint64_t id); /* by the sample rate */
/* What a request opened or closed in its process' descriptor table. */
void ring_opened(engine *e, task *t, uint32_t ring_index, int32_t fd, int64_t time);
void ring_closed_some_fd(engine *e, task *t, int64_t time);
/* Events that are about rings alone: create, register, wait. */
void on_ring_only(engine *e, const lo2_event *event, const ring_sample *s);
void rings_task_exited(engine *e, task *t, int64_t time);  /* the last of its process ends the process' rings */
bool rings_finish(engine *e);                  /* rows of what is left; false: the batch is full */
bool rings_flush(engine *e);                   /* rows that wait; true: nothing waits any more */
void rings_free(engine *e);

/* ---- ring_requests.c and its kin: for rings and the engine ---- */

void on_ring(engine *e, const lo2_event *event, const uint8_t *raw, uint32_t tid, uint16_t cpu, int64_t time);
/* The thread does something else than io_uring's events: what its last completions were can be told now. To be called at
 * the entry and exit of its calls, and when it exits. */
void ring_thread_moved_on(engine *e, task *t, int64_t time);
/* A ring is no more (its address has been given to another, or the run ends): its requests are torn down or in flight. */
void ring_requests_abandon(engine *e, uint32_t ring_index, bool torn_down);
void ring_worker_exited(engine *e, task *t, int64_t time); /* an execution that was under way has no end */
void ring_worker_switched(engine *e, task *t, bool leaves, int64_t time); /* sched_switch of a worker: a bound for begins and ends */
/* The request that a block request inserted by this thread now belongs to: its id, or 0 where that is not proven. */
uint64_t ring_request_at(engine *e, task *t, int64_t time);
bool ring_requests_finish(engine *e);
bool ring_requests_flush(engine *e);
void ring_requests_free(engine *e);

#endif
