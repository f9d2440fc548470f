/*
 * Finds out whether a tracepoint of the running kernel passes the arguments that its program expects. libbpf compares
 * the kernel's BTF of the tracepoint's function with the declaration here: number and kinds of the arguments (CO-RE,
 * existence of a type). If they differ, the program does nothing, and user space does not attach it, for lo2_fits says
 * so.
 */
#ifndef LO2IO_BPF_FITS_H
#define LO2IO_BPF_FITS_H

#include "block_types.h"
#include "folios.h"
#include "maps.h"
#include "ring_types.h"
#include "write_back_types.h"

typedef void (*btf_trace_io_uring_create)(void *, int, void *, __u32, __u32, __u32);
typedef void (*btf_trace_io_uring_register)(void *, void *, unsigned, unsigned, unsigned, long);
typedef void (*btf_trace_io_uring_submit_req)(void *, struct io_kiocb *);
typedef void (*btf_trace_io_uring_file_get)(void *, struct io_kiocb *, int);
typedef void (*btf_trace_io_uring_queue_async_work)(void *, struct io_kiocb *, int);
typedef void (*btf_trace_io_uring_poll_arm)(void *, struct io_kiocb *, int, int);
typedef void (*btf_trace_io_uring_task_add)(void *, struct io_kiocb *, int);
typedef void (*btf_trace_io_uring_task_work_run)(void *, void *, unsigned);
typedef void (*btf_trace_io_uring_local_work_run)(void *, void *, int, unsigned);
typedef void (*btf_trace_io_uring_link)(void *, struct io_kiocb *, struct io_kiocb *);
typedef void (*btf_trace_io_uring_fail_link)(void *, struct io_kiocb *, struct io_kiocb *);
typedef void (*btf_trace_io_uring_defer)(void *, struct io_kiocb *);
typedef void (*btf_trace_io_uring_cqring_wait)(void *, void *, int);
typedef void (*btf_trace_io_uring_cqe_overflow)(void *, void *, unsigned long long, __s32, __u32, void *);
typedef void (*btf_trace_io_uring_short_write)(void *, void *, __u64, __u64, __u64);
typedef void (*btf_trace_io_uring_complete)(void *, struct io_ring_ctx *, void *, struct io_uring_cqe *);
typedef void (*btf_trace_sched_switch)(void *, bool, struct task_struct *, struct task_struct *, unsigned);
typedef void (*btf_trace_sched_waking)(void *, struct task_struct *);
typedef void (*btf_trace_block_rq_insert)(void *, struct request *);
typedef void (*btf_trace_block_rq_issue)(void *, struct request *);
typedef void (*btf_trace_block_rq_merge)(void *, struct request *);
typedef void (*btf_trace_block_rq_complete)(void *, struct request *, __u8, unsigned);
typedef void (*btf_trace_block_rq_requeue)(void *, struct request *);
typedef void (*btf_trace_block_bio_frontmerge)(void *, struct bio *);
typedef void (*btf_trace_block_bio_queue)(void *, struct bio *);
typedef void (*btf_trace_mm_filemap_add_to_page_cache)(void *, struct folio *);
typedef void (*btf_trace_mm_filemap_delete_from_page_cache)(void *, struct folio *);
typedef void (*btf_trace_writeback_dirty_folio)(void *, struct folio *, struct address_space *);
typedef void (*btf_trace_writeback_start)(void *, struct bdi_writeback *, struct wb_writeback_work *);
typedef void (*btf_trace_writeback_pages_written)(void *, long);

#define LO2_HAS(name) bpf_core_type_exists(btf_trace_##name)
#define LO2_HAS_REQ(name) (LO2_HAS(name) && bpf_core_field_exists(struct io_kiocb, cqe))

#define LO2_FITS_io_uring_create LO2_HAS(io_uring_create)
#define LO2_FITS_io_uring_register LO2_HAS(io_uring_register)
#define LO2_FITS_io_uring_submit_req LO2_HAS_REQ(io_uring_submit_req)
#define LO2_FITS_io_uring_file_get LO2_HAS_REQ(io_uring_file_get)
#define LO2_FITS_io_uring_queue_async_work LO2_HAS_REQ(io_uring_queue_async_work)
#define LO2_FITS_io_uring_poll_arm LO2_HAS_REQ(io_uring_poll_arm)
#define LO2_FITS_io_uring_task_add LO2_HAS_REQ(io_uring_task_add)
#define LO2_FITS_io_uring_task_work_run LO2_HAS(io_uring_task_work_run)
#define LO2_FITS_io_uring_local_work_run LO2_HAS(io_uring_local_work_run)
#define LO2_FITS_io_uring_link LO2_HAS(io_uring_link)
#define LO2_FITS_io_uring_fail_link LO2_HAS_REQ(io_uring_fail_link)
#define LO2_FITS_io_uring_defer LO2_HAS_REQ(io_uring_defer)
#define LO2_FITS_io_uring_cqring_wait LO2_HAS(io_uring_cqring_wait)
#define LO2_FITS_io_uring_cqe_overflow LO2_HAS(io_uring_cqe_overflow)
#define LO2_FITS_io_uring_short_write LO2_HAS(io_uring_short_write)
#define LO2_FITS_io_uring_complete LO2_HAS(io_uring_complete)
#define LO2_FITS_sched_switch LO2_HAS(sched_switch)
#define LO2_HAS_RQ(name) (LO2_HAS(name) && bpf_core_type_exists(enum req_op) && bpf_core_field_exists(struct request_queue, disk))
#define LO2_FITS_block_rq_insert LO2_HAS_RQ(block_rq_insert)
#define LO2_FITS_block_rq_issue LO2_HAS_RQ(block_rq_issue)
#define LO2_FITS_block_rq_merge LO2_HAS_RQ(block_rq_merge)
#define LO2_FITS_block_rq_complete LO2_HAS_RQ(block_rq_complete)
#define LO2_FITS_block_rq_requeue LO2_HAS_RQ(block_rq_requeue)
#define LO2_FITS_block_bio_frontmerge LO2_HAS_RQ(block_bio_frontmerge)
#define LO2_FITS_block_bio_queue LO2_HAS_RQ(block_bio_queue)

/* User space runs this once. Bit i is set if the program of enum lo2_sampled i fits. */
#define LO2_BIT(name) ((__u32)(LO2_FITS_##name) << LO2_SAMPLED_##name)
SEC("raw_tp/sys_enter")
int lo2_fits(void *context)
{
    return LO2_BIT(io_uring_create) | LO2_BIT(io_uring_register) | LO2_BIT(io_uring_submit_req) |
           LO2_BIT(io_uring_file_get) | LO2_BIT(io_uring_queue_async_work) | LO2_BIT(io_uring_poll_arm) |
           LO2_BIT(io_uring_task_work_run) | LO2_BIT(io_uring_local_work_run) | LO2_BIT(io_uring_link) |
           LO2_BIT(io_uring_fail_link) | LO2_BIT(io_uring_defer) | LO2_BIT(io_uring_cqring_wait) |
           LO2_BIT(io_uring_cqe_overflow) | LO2_BIT(io_uring_short_write) | LO2_BIT(io_uring_complete) |
           LO2_BIT(sched_switch) | LO2_BIT(block_rq_insert) | LO2_BIT(block_rq_issue) | LO2_BIT(block_rq_merge) |
           LO2_BIT(block_rq_complete) | LO2_BIT(block_rq_requeue) | LO2_BIT(block_bio_frontmerge) |
           LO2_BIT(block_bio_queue) | LO2_BIT(io_uring_task_add);
}

#endif
