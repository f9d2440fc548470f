/* The state of rings, and what a sample of one says. */
#ifndef LO2IO_RINGS_STATE_H
#define LO2IO_RINGS_STATE_H

#include "tables/cgroups.h"

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
    int64_t before;               /* of the thread's last event before; UNKNOWN: not known */
} ring_sample;

static inline bool ring_has(const ring_sample *s, int field) { return (s->has >> field) & 1; }

/* What a ring has registered in one place; handle NONE: nothing, or not known. */
typedef struct { uint64_t file, device, inode; uint32_t handle; } registered_file;

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
    uint32_t nr_skipping;         /* in flight that may end without a CQE; with the ring's end they are in_flight no more */
    uint64_t cq_least, cq_most;
    int64_t state_time;           /* of the last change that has no row yet; UNKNOWN none */
    uint8_t state_direction;
    /* rings/rings.c and its kin only */
    bool gone;                    /* its process has ended and nobody else holds it: a submission is another ring's */
    bool overflowing;             /* CQEs wait for room, as far as is known */
    bool unsure;                  /* a descriptor of it ended at a time nobody knows */
    bool files_known;             /* nr_files_now is */
    uint32_t nr_files_now;        /* registered at the moment */
    uint32_t cq_limit;            /* room for CQEs; 0 unknown */
    uint32_t nr_forks;            /* of its process, when it was made */
    uint32_t watcher;             /* number of the thread without which nobody can collect, while it is in the kernel */
    uint32_t description;         /* index + 1 */
    uint32_t last_user;           /* number of the thread that submitted last */
    uint32_t chain;               /* of its bucket: index + 1 */
    uint32_t older, newer;        /* of the rings alive, or of those that have ended */
    uint32_t next_of_process, previous_of_process; /* index + 1 */
    VEC(registered_file) registered; /* by place, as far as requests have named them */
} ring;

typedef struct { uint32_t ring, process, in_flight, punted, workers, cq_least, cq_most; int64_t time; } ring_state_row;
typedef struct { uint32_t ring, ring_number, next; } ring_use; /* a thread submits to a ring */
typedef struct { uint32_t oldest, newest, count; } ring_list;

typedef struct ring_set {
    VEC(ring) rings;
    VEC(uint32_t) free_rings;
    uint32_t *buckets;            /* by kind, context and, of libaio, process: index + 1 */
    uint32_t nr_buckets, next_number;
    uint32_t last;                /* named last */
    ring_list alive, ended;
    VEC(ring_use) uses;
    VEC(uint32_t) free_uses;
    VEC(lo2_fact_ring) facts;
    VEC(uint32_t) free_facts;
    VEC(ring_state_row) state_queue;
    VEC(ring) ring_queue;
    uint32_t states_out, rings_out;
} ring_set;

enum { RING_URING = 0, RING_AIO = 1 }; /* kind */

/* Whether what this thread does with rings is told. */
static inline bool is_followed(engine *e, const task *t)
{
    return t && is_recorded(e, t) && cgroup_is_recorded(e, &e->processes.at[t->process]);
}

#endif
