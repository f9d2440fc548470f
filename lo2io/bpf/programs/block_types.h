/* The block layer's requests and bios: the members that the programs read. See kernel_types.h. */
#ifndef LO2IO_BPF_BLOCK_TYPES_H
#define LO2IO_BPF_BLOCK_TYPES_H

#include "kernel_types.h"

struct bio;
struct bio_vec;

struct gendisk {
    int major, first_minor;
} KERNEL_TYPE;

struct request_queue {
    struct gendisk *disk;
} KERNEL_TYPE;

struct request {
    struct request_queue *q;
    __u32 cmd_flags;               /* enum req_op, and bits of enum req_flag_bits */
    __u32 __data_len;
    __u64 __sector;
    struct bio *bio;
} KERNEL_TYPE;

struct bvec_iter {
    __u64 bi_sector;
    __u32 bi_size, bi_idx, bi_bvec_done;
} KERNEL_TYPE;

struct block_device {
    __u32 bd_dev;
    __u64 bd_start_sect;
    void *bd_holder;               /* a mounted file system, or a program with O_EXCL */
} KERNEL_TYPE;

struct bio {
    struct block_device *bi_bdev;
    __u32 bi_opf;                  /* as cmd_flags */
    struct bvec_iter bi_iter;
    struct bio *bi_next;
    struct bio_vec *bi_io_vec;
    void *bi_end_io, *bi_private;
} KERNEL_TYPE;

/* Their values differ between kernels: libbpf puts in those of the running one. */
enum req_op {
    REQ_OP_READ, REQ_OP_WRITE, REQ_OP_FLUSH, REQ_OP_DISCARD, REQ_OP_SECURE_ERASE, REQ_OP_WRITE_ZEROES, REQ_OP_ZONE_APPEND,
    REQ_OP_ZONE_RESET, REQ_OP_ZONE_RESET_ALL, REQ_OP_ZONE_OPEN, REQ_OP_ZONE_CLOSE, REQ_OP_ZONE_FINISH, REQ_OP_DRV_IN,
    REQ_OP_DRV_OUT
};
enum req_flag_bits { __REQ_SYNC, __REQ_META, __REQ_FUA, __REQ_PREFLUSH, __REQ_RAHEAD };

#endif
