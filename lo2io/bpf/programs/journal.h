/*
 * The layer `journal`: in which phase a commit of ext4's journal is. The journal's own thread commits (jbd2_journal_commit_transaction,
 * fs/jbd2/commit.c), and wakes the threads that wait for it.
 *
 *   thread      start ── locking ── flushing ── logging ── end ── wakes
 *   record      COMMIT   COMMIT     COMMIT      COMMIT     COMMIT
 *
 * jbd2 may be a module, so these programs are not typed. Each commit is told, for a recorded thread may wait for any.
 */
#ifndef LO2IO_BPF_JOURNAL_H
#define LO2IO_BPF_JOURNAL_H

#include "block_types.h"
#include "events.h"

struct journal_s {
    struct block_device *j_fs_dev;
} KERNEL_TYPE;

struct transaction_s {
    __u32 t_tid;
} KERNEL_TYPE;

typedef void (*btf_trace_jbd2_start_commit)(void *, struct journal_s *, struct transaction_s *);
typedef void (*btf_trace_jbd2_commit_locking)(void *, struct journal_s *, struct transaction_s *);
typedef void (*btf_trace_jbd2_commit_flushing)(void *, struct journal_s *, struct transaction_s *);
typedef void (*btf_trace_jbd2_commit_logging)(void *, struct journal_s *, struct transaction_s *);
typedef void (*btf_trace_jbd2_end_commit)(void *, struct journal_s *, struct transaction_s *);

#define LO2_LAYER_FITS_journal                                                                                              \
    (LO2_HAS(jbd2_start_commit) && LO2_HAS(jbd2_commit_locking) && LO2_HAS(jbd2_commit_flushing) &&                         \
     LO2_HAS(jbd2_commit_logging) && LO2_HAS(jbd2_end_commit))

struct lo2_raw_commit_context {
    __u64 args[2];
};

INLINE int lo2_tell_commit(const struct lo2_raw_commit_context *context, enum lo2_commit_moment moment)
{
    const struct journal_s *journal = (const struct journal_s *)context->args[0];
    const struct transaction_s *transaction = (const struct transaction_s *)context->args[1];
    lo2_kernel_commit record = { .head.type = LO2_KERNEL_COMMIT, .moment = moment };
    struct lo2_bpf_cpu *cpu;
    __u32 number;

    if (!lo2_switch.on || !LO2_LAYER_FITS_journal)
        return 0;
    cpu = lo2_this_cpu(&number);
    if (!cpu)
        return 0;
    record.head.tid = bpf_get_current_task_btf()->pid;
    record.device = BPF_CORE_READ(journal, j_fs_dev, bd_dev);
    record.transaction = BPF_CORE_READ(transaction, t_tid);
    lo2_write_event(cpu, lo2_ring_for(number, LO2_RING_EVENTS), &record.head, sizeof record);
    return 0;
}

SEC("raw_tp/jbd2_start_commit")
int lo2_journal_jbd2_start_commit(struct lo2_raw_commit_context *context) { return lo2_tell_commit(context, LO2_COMMIT_STARTS); }

SEC("raw_tp/jbd2_commit_locking")
int lo2_journal_jbd2_commit_locking(struct lo2_raw_commit_context *context) { return lo2_tell_commit(context, LO2_COMMIT_LOCKS); }

SEC("raw_tp/jbd2_commit_flushing")
int lo2_journal_jbd2_commit_flushing(struct lo2_raw_commit_context *context) { return lo2_tell_commit(context, LO2_COMMIT_FLUSHES); }

SEC("raw_tp/jbd2_commit_logging")
int lo2_journal_jbd2_commit_logging(struct lo2_raw_commit_context *context) { return lo2_tell_commit(context, LO2_COMMIT_LOGS); }

SEC("raw_tp/jbd2_end_commit")
int lo2_journal_jbd2_end_commit(struct lo2_raw_commit_context *context) { return lo2_tell_commit(context, LO2_COMMIT_ENDS); }

#endif
