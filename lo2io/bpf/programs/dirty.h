/*
 * The layer `dirty`: which thread made which pages of the page cache dirty, by calls, rings and mappings alike; and why workers of
 * the kernel write them back.
 *
 * The tracepoint fires where a clean folio becomes dirty, in the thread that writes (filemap_dirty_folio, mm/page-writeback.c): there
 * the kernel counts write_bytes of /proc/PID/io, too. Folios are joined to runs as in cache.h. DIRTY is written for all
 * threads, recorded or not: if an unrecorded thread dirtied a page last, no recorded thread may be taken for its
 * dirtier.
 *
 * Before each round of writing, a worker states its reason. The block layer may hold the worker's requests back until the worker
 * ends (fs/fs-writeback.c, wb_workfn, wb_writeback):
 *
 *   worker      writeback_start (sync) ── requests ── writeback_written ── requests held back ── writeback_pages_written
 *   records     WRITEBACK sync                                                                   WRITEBACK none
 */
#ifndef LO2IO_BPF_DIRTY_H
#define LO2IO_BPF_DIRTY_H

#include "cache.h"

#define LO2_LAYER_FITS_dirty (LO2_HAS(writeback_dirty_folio) && LO2_KNOWS_FOLIOS)

#define LO2_IS_REASON(reason, name) \
    (bpf_core_enum_value_exists(enum wb_reason, WB_REASON_##name) && (reason) == bpf_core_enum_value(enum wb_reason, WB_REASON_##name))

SEC("tp_btf/writeback_dirty_folio")
int lo2_dirty_writeback_dirty_folio(__u64 *context)
{
    if (!LO2_LAYER_FITS_dirty)
        return 0;
    return lo2_on_folio((const struct folio *)context[0], LO2_RUN_DIRTY, LO2_KERNEL_DIRTY);
}

/* Only a recording of the machine has requests of workers. */
INLINE int lo2_write_reason(enum lo2_write_back_reason reason)
{
    lo2_kernel_writeback record = { .head.type = LO2_KERNEL_WRITEBACK, .reason = reason };
    struct lo2_bpf_cpu *cpu;
    __u32 number;

    if (!lo2_switch.on || !lo2.config.all_tasks)
        return 0;
    cpu = lo2_this_cpu(&number);
    if (!cpu)
        return 0;
    record.head.tid = bpf_get_current_task_btf()->pid;
    lo2_write_event(cpu, lo2_ring_for(number, LO2_RING_EVENTS), &record.head, sizeof record);
    return 0;
}

INLINE enum lo2_write_back_reason lo2_reason_of(const struct wb_writeback_work *work)
{
    enum wb_reason reason = LO2_READ(work, struct wb_writeback_work, reason);

    return LO2_IS_REASON(reason, BACKGROUND)      ? LO2_WRITE_BACK_BACKGROUND
           : LO2_IS_REASON(reason, VMSCAN)        ? LO2_WRITE_BACK_VMSCAN
           : LO2_IS_REASON(reason, SYNC)          ? LO2_WRITE_BACK_SYNC
           : LO2_IS_REASON(reason, PERIODIC)      ? LO2_WRITE_BACK_PERIODIC
           : LO2_IS_REASON(reason, LAPTOP_TIMER)  ? LO2_WRITE_BACK_LAPTOP_TIMER
           : LO2_IS_REASON(reason, FS_FREE_SPACE) ? LO2_WRITE_BACK_FS_FREE_SPACE
           : LO2_IS_REASON(reason, FORKER_THREAD) ? LO2_WRITE_BACK_FORKER_THREAD
           : LO2_IS_REASON(reason, FOREIGN_FLUSH) ? LO2_WRITE_BACK_FOREIGN_FLUSH
                                                  : LO2_WRITE_BACK_OTHER;
}

SEC("tp_btf/writeback_start")
int lo2_dirty_writeback_start(__u64 *context)
{
    if (!LO2_HAS(writeback_start) || !bpf_core_field_exists(struct wb_writeback_work, reason))
        return 0;
    return lo2_write_reason(lo2_reason_of((const struct wb_writeback_work *)context[1]));
}

SEC("tp_btf/writeback_pages_written")
int lo2_dirty_writeback_pages_written(void *context)
{
    return lo2_write_reason(LO2_WRITE_BACK_NONE);
}

#endif
