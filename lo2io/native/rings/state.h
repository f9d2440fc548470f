/* The state of rings, and the fields of their samples. */
#ifndef LO2IO_RINGS_STATE_H
#define LO2IO_RINGS_STATE_H

#include "tables/cgroups.h"

#define NO_OPCODE 255

enum { /* flags of io_uring_setup: include/uapi/linux/io_uring.h */
    SETUP_SQPOLL = 1 << 1,
    SETUP_REGISTERED_FD_ONLY = 1 << 15,
    SETUP_CQE_MIXED = 1 << 18     /* a CQE takes one entry or two */
};

/* A sample of an io_uring tracepoint. Fields that the kernel's format lacks are not in `has`. */
typedef struct {
    uint64_t ctx, req, user_data, other, flags;
    int64_t result, length, offset;
    uint32_t count, count2;
    int32_t fd;
    uint32_t tid;                 /* common_pid: the thread in which the event happened */
    uint16_t has;                 /* bit i: the field with id i (LO2_FIELD_RING_...) */
    uint16_t cpu;
    uint8_t opcode;
    int64_t time;
    int64_t before;               /* time of the thread's event before; UNKNOWN: not known */
} ring_sample;

static inline bool ring_has(const ring_sample *s, int field) { return (s->has >> field) & 1; }

/* What a ring has registered in one place; handle NONE: nothing, or not known. */
typedef struct { uint64_t file, device, inode; uint32_t handle; } registered_file;

typedef struct {
    uint32_t number;
    uint64_t context;             /* kernel address of the ring; aio_context_t */
    uint8_t kind;                 /* 0 io_uring, 1 libaio */
    bool alive, recorded;         /* recorded: its process is recorded */
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
    uint32_t nr_skipping;         /* those of in_flight that may end without a CQE; they leave in_flight when the ring ends */
    uint64_t cq_least, cq_most;
    int64_t state_time;           /* of the last change without a row; UNKNOWN: each has its row */
    uint8_t state_direction;
    /* for rings/rings.c and its kin only */
    bool gone;                    /* its process has ended and no other holds it: a submission at its address is to another ring */
    bool overflowing;             /* CQEs wait for room, as far as is known */
    bool unsure;                  /* one of its descriptors ended at an unknown time */
    bool files_known;             /* nr_files_now is known */
    uint32_t nr_files_now;        /* registered at the moment */
    uint32_t cq_limit;            /* room for CQEs; 0 unknown */
    uint32_t nr_forks;            /* of its process, when the ring was made */
    uint32_t watcher;             /* number of the only thread that can collect CQEs, while it is inside an io_uring_enter */
    uint32_t description;         /* index + 1 */
    uint32_t last_user;           /* number of the last thread that submitted */
    uint32_t chain;               /* of its bucket: index + 1 */
    uint32_t older, newer;        /* neighbours among the living rings, or among those that have ended */
    uint32_t next_of_process, previous_of_process; /* index + 1 */
    VEC(registered_file) registered; /* by place, as far as requests have named places */
} ring;

typedef struct { uint32_t ring, process, in_flight, punted, workers, cq_least, cq_most; int64_t time; } ring_state_row;
typedef struct { uint32_t ring, ring_number, next; } ring_use; /* a ring to which a thread submits */
typedef struct { uint32_t oldest, newest, count; } ring_list;

typedef struct ring_set {
    VEC(ring) rings;
    VEC(uint32_t) free_rings;
    uint32_t *buckets;            /* by kind, context and, for libaio, process: index + 1 */
    uint32_t nr_buckets, next_number;
    uint32_t last;                /* the ring found last */
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

/* Is it recorded what this thread does with rings? */
static inline bool is_followed(engine *e, const task *t)
{
    return t && is_recorded(e, t) && cgroup_is_recorded(e, &e->processes.at[t->process]);
}

#endif
