/*
 * Tracepoints whose events the programs record, and the fields that the programs write for each event. These are the
 * fields that the engine reads, at their places in the event's raw data. Members have the names of the kernel's format
 * files; a gap stays 0. The programs record an event only if its format has the same fields (lo2io/bpf/samples.py) and
 * the tracepoint passes the arguments that its program expects (fits.h).
 *
 * Where an event may happen in an interrupt, perf counts it, too: on some machines no program runs while the CPU is idle,
 * and the kernel does not start a program that already runs on that CPU.
 *
 * clang reads this file for the programs, cffi for Python (plain declarations, see build.py).
 */
#ifndef LO2IO_BPF_SAMPLES_H
#define LO2IO_BPF_SAMPLES_H

#include "records.h"

/* LO2_SAMPLED_X and lo2_fields_X belong to the tracepoint X, whose program is lo2_on_X. */
enum lo2_sampled {
    LO2_SAMPLED_io_uring_create = 0,
    LO2_SAMPLED_io_uring_register = 1,
    LO2_SAMPLED_io_uring_submit_req = 2,
    LO2_SAMPLED_io_uring_file_get = 3,
    LO2_SAMPLED_io_uring_queue_async_work = 4,
    LO2_SAMPLED_io_uring_poll_arm = 5,
    LO2_SAMPLED_io_uring_task_work_run = 6,
    LO2_SAMPLED_io_uring_local_work_run = 7,
    LO2_SAMPLED_io_uring_link = 8,
    LO2_SAMPLED_io_uring_fail_link = 9,
    LO2_SAMPLED_io_uring_defer = 10,
    LO2_SAMPLED_io_uring_cqring_wait = 11,
    LO2_SAMPLED_io_uring_cqe_overflow = 12,
    LO2_SAMPLED_io_uring_short_write = 13,
    LO2_SAMPLED_io_uring_complete = 14,
    LO2_SAMPLED_sched_switch = 15,
    LO2_SAMPLED_block_rq_insert = 16,
    LO2_SAMPLED_block_rq_issue = 17,
    LO2_SAMPLED_block_rq_merge = 18,
    LO2_SAMPLED_block_rq_complete = 19,
    LO2_SAMPLED_block_rq_requeue = 20,
    LO2_SAMPLED_block_bio_frontmerge = 21,
    LO2_SAMPLED_block_bio_queue = 22,
    LO2_SAMPLED_io_uring_task_add = 23
};
enum {
    LO2_MAX_SAMPLED = 32,
    LO2_FIELDS_AT = 8,               /* the common fields come first in raw data */
    LO2_LETTERS_END = 32             /* rwbs begins before this offset in the fields */
};

typedef struct { int32_t fd; uint32_t gap; uint64_t ctx; uint32_t sq_entries, cq_entries, flags; } lo2_fields_io_uring_create;
typedef struct { uint64_t ctx; uint32_t opcode, nr_files, nr_bufs, gap; int64_t ret; } lo2_fields_io_uring_register;
typedef struct {
    uint64_t ctx, req, user_data;
    uint8_t opcode, gap[7];
    uint64_t flags;
    uint8_t sq_thread;
} lo2_fields_io_uring_submit_req;
/*
 * A record of a submission. It ends before `asked` if the request's entry could not be read. Else it ends before asked.offset or
 * asked.buf_index if all that follows is 0, and `bytes` not known.
 */
typedef struct {
    lo2_kernel_head head;
    lo2_fields_io_uring_submit_req fields;
    lo2_asked asked;
} lo2_submitted;
typedef struct { uint64_t ctx, req, user_data; int32_t fd; } lo2_fields_io_uring_file_get;
typedef struct {
    uint64_t ctx, req, user_data;
    uint8_t opcode, gap[7];
    uint64_t flags, gap_work;
    int32_t rw;
} lo2_fields_io_uring_queue_async_work;
typedef struct {
    uint64_t ctx, req, user_data;
    uint8_t opcode, gap[3];
    int32_t mask, events;
} lo2_fields_io_uring_poll_arm;
typedef struct {
    uint64_t ctx, req, user_data;
    uint8_t opcode, gap[3];
    int32_t mask;
} lo2_fields_io_uring_task_add;
typedef struct { uint64_t tctx; uint32_t count; } lo2_fields_io_uring_task_work_run;
typedef struct { uint64_t ctx; int32_t count; } lo2_fields_io_uring_local_work_run;
typedef struct { uint64_t ctx, req, target_req; } lo2_fields_io_uring_link;
typedef struct {
    uint64_t ctx, req, user_data;
    uint8_t opcode, gap[7];
    uint64_t link;
} lo2_fields_io_uring_fail_link;
typedef struct { uint64_t ctx, req, data; uint8_t opcode; } lo2_fields_io_uring_defer;
typedef struct { uint64_t ctx; int32_t min_events; } lo2_fields_io_uring_cqring_wait;
typedef struct { uint64_t ctx, user_data; int32_t res; uint32_t cflags; } lo2_fields_io_uring_cqe_overflow;
typedef struct { uint64_t ctx, fpos, wanted, got; } lo2_fields_io_uring_short_write;
typedef struct { uint64_t ctx, req, user_data; int32_t res; uint32_t cflags; } lo2_fields_io_uring_complete;

typedef struct {
    char gap_comm[16];
    int32_t prev_pid, gap_prio;
    int64_t prev_state;
    char gap_next_comm[16];
    int32_t next_pid;
} lo2_fields_sched_switch;

/* The letters (rwbs) lie anywhere in gap_letters: kernels differ in the fields before. They take at most 8 bytes. */
typedef struct { uint32_t dev, gap; uint64_t sector; uint32_t nr_sector, bytes; char gap_letters[16]; } lo2_fields_block_rq_insert;
typedef lo2_fields_block_rq_insert lo2_fields_block_rq_issue;
typedef lo2_fields_block_rq_insert lo2_fields_block_rq_merge;
typedef struct { uint32_t dev, gap; uint64_t sector; uint32_t nr_sector; int32_t error; char gap_letters[16]; } lo2_fields_block_rq_complete;
typedef struct { uint32_t dev, gap; uint64_t sector; uint32_t nr_sector; char gap_letters[20]; } lo2_fields_block_rq_requeue;
typedef lo2_fields_block_rq_requeue lo2_fields_block_bio_frontmerge;
typedef lo2_fields_block_rq_requeue lo2_fields_block_bio_queue;

#endif
