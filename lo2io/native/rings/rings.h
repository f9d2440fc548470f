/*
 * io_uring and libaio in the engine. rings/requests.h has the part that knows requests; rings/rings.c, rings/states.c
 * and rings/batches.c know rings. This header has what each does for the other and for the engine.
 */
#ifndef LO2IO_RINGS_H
#define LO2IO_RINGS_H

#include "rings/state.h"

/* ---- rings/rings.c, rings/states.c, rings/batches.c: for requests ---- */

/*
 * The ring at this address: its index, or NONE if memory is short. A ring whose creation was not seen is made: it is
 * older than the trace. `t` is the thread that submits to it (submit, refuse), waits on it or registers with it, so the
 * ring belongs to t's process. NULL for all other events, which happen in any context. For an event of a thread that is
 * not recorded, use ring_known.
 */
uint32_t ring_of(engine *e, uint64_t ctx, task *t);
void ring_belongs(engine *e, uint32_t index, const task *t); /* to t's process, unless its process is known already */
uint32_t ring_known(engine *e, uint64_t ctx);  /* NONE: none is known at this address */
ring *ring_at(engine *e, uint32_t index);      /* valid until the next ring_of */
/*
 * Changes of a ring's state. Each may queue a row of ring_states. They count in the ring's nr_requests, nr_punts,
 * nr_completions (including overflows), nr_overflows and totals.nr_ring_requests; ring_orphan in nr_orphans and
 * totals.nr_orphan_cqes. The files about requests count nr_messages and the other totals.
 */
void ring_request_began(engine *e, uint32_t index, int64_t time, bool skips); /* skips: the request may end without a CQE */
void ring_request_ended(engine *e, uint32_t index, int64_t time, bool was_punted, bool skips);
void ring_request_punted(engine *e, uint32_t index, int64_t time, bool again);
void ring_orphan(engine *e, uint32_t index);   /* call besides ring_cqe_posted */
void ring_cqe_posted(engine *e, uint32_t index, int64_t time, uint32_t tid);   /* counts for the ring and for the pending batch */
void ring_cqe_overflowed(engine *e, uint32_t index, int64_t time);
/* A request that begins inside a thread's io_uring_enter counts for that batch. */
void ring_batch_request(engine *e, uint32_t index, task *t);
bool ring_is_chosen(const engine *e, uint64_t id); /* true if the sample rate keeps the request */
/* Effects of requests on the descriptors of their process. `surely`: the number is a descriptor's. */
void ring_opened(engine *e, task *t, uint32_t ring_index, int32_t fd, uint32_t open_flags, bool surely, int64_t time);
void ring_closed_some_fd(engine *e, task *t, int64_t time);
/* Events about rings alone: create, register, wait. */
void on_ring_only(engine *e, const lo2_event *event, const ring_sample *s);
void ring_abandon_all(engine *e, uint32_t process_index, int64_t time); /* the last task of a process has exited */
bool rings_finish(engine *e);                  /* writes the rows of all that is left; false: the batch is full */
bool rings_flush(engine *e);                   /* writes the rows that wait; true: none waits any more */
void rings_free(engine *e);

/* ---- for rings/rings.c, rings/states.c, rings/threads.c, rings/descriptors.c, rings/batches.c and the engine ---- */

ring_set *rings_needed(engine *e);              /* NULL: memory is short */
uint32_t ring_find(engine *e, uint8_t kind, uint64_t context, uint32_t process_number);
uint32_t ring_new(engine *e, uint8_t kind, uint64_t context, const task *t); /* t NULL: its process is not known */
void ring_end(engine *e, uint32_t index, int64_t time);
void ring_revive(engine *e, uint32_t index);   /* its descriptor was closed, but the ring is used again: something else holds it */
void rings_exec(engine *e, uint32_t process_index, int64_t time);

void ring_give_up(engine *e, uint32_t index);  /* no later event can be about it: ends its requests and writes its row */
void ring_row_queue(engine *e, const ring *r);
void ring_state_queue(engine *e, const ring *r, int64_t time); /* a row: the ring's state from `time` on */

void ring_state_settle(engine *e, ring *r);    /* writes the row of a change that has none yet */
void ring_state_began(engine *e, ring *r, int64_t time, bool skips);
void ring_state_ended(engine *e, ring *r);     /* the ring has ended, at a known time */
void ring_waited(engine *e, uint32_t index, task *t, int64_t time, uint32_t wanted);
void ring_watch(engine *e, ring *r, const task *t);
void ring_unwatch(engine *e, ring *r, const task *t, int64_t time);
void ring_workers_changed(engine *e, ring *r, int change, int64_t time);
void ring_collected(engine *e, ring *r, uint64_t submitted, uint64_t collected, int64_t time); /* libaio */

void ring_thread_named(engine *e, task *t, int64_t time, bool born); /* t has a name now, perhaps one of a ring's thread */
void ring_thread_born(engine *e, task *t, task *parent, int64_t time);
void ring_thread_ended(engine *e, task *t, int64_t time);
void ring_used_by(engine *e, uint32_t index, task *t, int64_t time);
uint8_t task_kind(const task *t);

void ring_bind(engine *e, uint32_t index, uint32_t handle_index); /* the handle is a descriptor of the ring */
uint32_t ring_of_handle(engine *e, uint32_t handle_index); /* NONE: not a ring, or not known */
void ring_polled(engine *e, uint32_t index, const task *poller); /* the poller submits to this ring */
void ring_uses_forget(engine *e, task *t);
void on_ring_fact(engine *e, const uint8_t *body);
void ring_descriptor_ended(engine *e, const description *d, bool surely);
void ring_description_gone(engine *e, uint32_t description_index);

uint32_t aio_ring_of_call(engine *e, task *t); /* the context that the thread's call names */
void ring_call_named(engine *e, uint32_t index, task *t); /* the thread's call is about this ring */
void ring_call_entered(engine *e, task *t, const lo2_event *event, const uint8_t *raw);
/* result NULL: the exit was not seen. row: the operation's; NONE: it has none. */
void ring_call_left(engine *e, task *t, const int64_t *result, int64_t time, uint32_t row);
void ring_installed(engine *e, task *t, uint32_t handle_index); /* by io_uring_setup */
bool ring_has_no_descriptor(engine *e, const task *t); /* what io_uring_setup returns is no descriptor */

/* ---- rings/sqes.c: registered files ---- */

void registered_end_all(engine *e, uint32_t ring_index, int64_t time);
/* A fact about a registered file. The thread's next SQE names the file. */
void ring_slot_fact(engine *e, task *t, const uint8_t *record, uint32_t size);
void on_kernel_sqe(engine *e, task *t, const uint8_t *record, uint32_t size);

/* ---- rings/request_events.c and its kin: for rings and the engine ---- */

void on_ring(engine *e, const lo2_event *event, const uint8_t *raw, uint32_t tid, uint16_t cpu, int64_t time);
/*
 * The thread does something other than io_uring's events, which settles the paths of its last completions. Call at the
 * entry and exit of its calls, and at its own exit.
 */
void ring_thread_moved_on(engine *e, task *t, int64_t time);
/* A ring is gone, because its address belongs to another or the trace ends: its requests are torn down or in flight. */
void ring_requests_abandon(engine *e, uint32_t ring_index, bool torn_down);
void ring_worker_exited(engine *e, task *t); /* its execution, if any, has no end */
/* sched_switch of a worker bounds begins and ends of executions */
void ring_worker_switched(engine *e, task *t, bool leaves, int64_t time);
/* A stretch of a worker without a CPU. Returns the id of the request that it executed; 0: not known, or it is over. */
uint64_t ring_worker_slept(engine *e, const lo2_kernel_sleep *sleep);
/*
 * The thread sends a block request, `ahead` if that reads ahead. Returns the id of the ring's request for which it does
 * so, or 0 if none is proven.
 */
uint64_t ring_request_sends(engine *e, task *t, bool ahead);
bool ring_requests_finish(engine *e);
bool ring_requests_flush(engine *e);
void ring_requests_free(engine *e);

/* rings/request_cache.c */
cache_deeds *ring_deeds(engine *e, const task *t, const page_run *run); /* of the request for which t did it; NULL: of none */
cache_deeds *ring_waiting(engine *e, const task *t); /* of the request that worker t executes; NULL: none */

#endif
