/* io_uring's rings and libaio's iocbs: the members that the programs read. See kernel_types.h. */
#ifndef LO2IO_BPF_RING_TYPES_H
#define LO2IO_BPF_RING_TYPES_H

#include "kernel_types.h"

struct io_rsrc_node {
    __u64 file_ptr;                /* the lowest bits are flags */
} KERNEL_TYPE;

struct io_rsrc_data {
    __u32 nr;
    struct io_rsrc_node **nodes;
} KERNEL_TYPE;

struct io_fixed_file {             /* until 6.12 */
    __u64 file_ptr;
} KERNEL_TYPE;

struct io_file_table {
    struct io_rsrc_data data;      /* since 6.13 */
} KERNEL_TYPE;

struct io_file_table___before {
    struct io_fixed_file *files;
} KERNEL_TYPE;

struct io_submit_link {
    struct io_kiocb *head;
} KERNEL_TYPE;

struct io_submit_state {
    struct io_submit_link link;
} KERNEL_TYPE;

struct io_ring_ctx {
    __u32 flags;                   /* IORING_SETUP_* */
    __u32 *sq_array;
    void *sq_sqes;                 /* void *, for CO-RE would take lo2_sqe as a type of the kernel */
    __u32 cached_sq_head;
    __u32 sq_entries;
    struct io_file_table file_table;
    struct io_submit_state submit_state;
} KERNEL_TYPE;

struct io_ring_ctx___before {
    __u32 nr_user_files;
    struct io_file_table___before file_table;
} KERNEL_TYPE;

struct io_cqe {
    __u64 user_data;
} KERNEL_TYPE;

struct io_wq_work {
    int cancel_seq;
} KERNEL_TYPE;

struct io_worker {                 /* io_uring/io-wq.c */
    struct io_wq_work *cur_work;   /* NULL: it waits for work */
} KERNEL_TYPE;

struct io_kiocb {
    __u8 opcode;
    __u64 flags;                   /* the lowest bits are IOSQE_* */
    struct io_cqe cqe;
    struct io_ring_ctx *ctx;
    void *async_data;
    struct file *file;
    struct io_wq_work work;
} KERNEL_TYPE;

struct io_uring_cqe {
    __u64 user_data;
    __s32 res;
    __u32 flags;
} KERNEL_TYPE;

struct iov_iter {
    __u64 count;
} KERNEL_TYPE;

struct io_async_rw {
    struct iov_iter iter;
} KERNEL_TYPE;

struct msghdr {
    struct iov_iter msg_iter;
} KERNEL_TYPE;

struct io_async_msghdr {
    struct msghdr msg;
} KERNEL_TYPE;

struct io_close {                  /* lies at the start of its request */
    int fd;
} KERNEL_TYPE;

/* A single number, as in the array of the submission queue. */
struct io_uring {
    __u32 head;
} KERNEL_TYPE;

struct io_uring_sqe {
    __u8 opcode;
} KERNEL_TYPE;

/*
 * The first words of an entry of the submission queue, which are the same in all kernels (include/uapi/linux/io_uring.h, struct
 * io_uring_sqe).
 */
struct lo2_sqe {
    __u64 begin;                   /* opcode, flags, ioprio, fd */
    __u64 offset;
    __u64 address;
    __u64 length;                  /* and op_flags */
    __u64 user_data;
    __u64 end;                     /* buf_index, personality, file_index */
};

/* Three words of 64 bits (include/uapi/linux/bpf.h). The verifier demands that a load has the size of a member. */
struct bpf_perf_event_value {
    __u64 counter, enabled, running;
} KERNEL_TYPE;

/* include/uapi/linux/aio_abi.h: struct iocb. */
struct lo2_iocb {
    __u64 data;
    __u32 key, rw_flags;           /* in the other order on big-endian machines */
    __u16 opcode;
    __s16 priority;
    __s32 fd;
    __u64 buffer, length;
    __s64 offset;
    __u64 rest[2];
};

#endif
