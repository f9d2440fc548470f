/*
 * The layer `cache`: who puts which pages into the page cache, who takes them out, and who waits for I/O.
 *
 * A read that finds its pages does nothing here. A thread adds pages in the order of the file, so its adds form one run. The run
 * ends when the thread adds a page of another file or place, or loses its CPU, or when a call or a ring's request begins or ends:
 *
 *   call        entry ──────────────── switch ┄┄┄┄ switch ─────── exit
 *   adds              0 1 2 3   64 65                    66 67
 *   records                   FILL  FILL, IOWAIT   IOWAIT        FILL
 */
#ifndef LO2IO_BPF_CACHE_H
#define LO2IO_BPF_CACHE_H

#include "events.h"
#include "fits.h"
#include "folios.h"

#define LO2_LAYER_FITS_cache \
    (LO2_HAS(mm_filemap_add_to_page_cache) && LO2_HAS(mm_filemap_delete_from_page_cache) && LO2_KNOWS_FOLIOS)

/* ---- runs ---- */

enum { LO2_MOST_DIRTY = 64 }; /* pages of a run: a long call's first pages may be written back while the call goes on */

INLINE void lo2_write_run(struct lo2_bpf_cpu *cpu, struct lo2_bpf_run *run)
{
    __u32 number = bpf_get_smp_processor_id();
    lo2_kernel_pages record;

    if (!run->record.pages)
        return;
    lo2_copy(&record, &run->record, sizeof record);
    run->record.pages = 0;
    lo2_write_event(cpu, lo2_ring_for(number, LO2_RING_EVENTS), &record.head, sizeof record);
}

LO2_ONCE int lo2_write_runs(void)
{
    __u32 number;
    struct lo2_bpf_cpu *cpu = lo2_this_cpu(&number);

    if (!cpu || cpu->cache.busy)
        return 0;
    cpu->cache.open = 0;
    lo2_write_run(cpu, &cpu->cache.runs[LO2_RUN_FILLS]);
    lo2_write_run(cpu, &cpu->cache.runs[LO2_RUN_EVICTIONS]);
    lo2_write_run(cpu, &cpu->cache.runs[LO2_RUN_DIRTY]);
    return 0;
}

INLINE bool lo2_has_runs(void) { return lo2_has_layer(LO2_LAYER_cache) || lo2_has_layer(LO2_LAYER_dirty); }

/* No run goes on beyond this moment. */
INLINE void lo2_end_runs_of(const struct lo2_bpf_cpu *cpu)
{
    if (lo2_has_runs() && cpu->cache.open)
        lo2_write_runs();
}

INLINE void lo2_describe(lo2_kernel_pages *record, const struct address_space *mapping)
{
    const struct inode *inode = LO2_READ(mapping, struct address_space, host);

    record->mode = lo2_has_trees(inode) ? 0 : LO2_READ(inode, struct inode, i_mode);
    record->generation = LO2_READ(inode, struct inode, i_generation);
    if ((record->mode & LO2_TYPE_BITS) == LO2_BLOCK_DEVICE) {
        record->device = LO2_READ(inode, struct inode, i_rdev);
        record->inode = 0;
    } else {
        record->device = LO2_READ(LO2_READ(inode, struct inode, i_sb), struct super_block, s_dev);
        record->inode = LO2_READ(inode, struct inode, i_ino);
    }
}

INLINE __u8 *lo2_filled_place(__u64 mapping)
{
    return &lo2_filled[mapping * 0x9e3779b97f4a7c15ull >> 48 & (LO2_FILLED - 1)];
}

/* Joins a folio to the run, or begins a new run. */
INLINE void lo2_run_on(struct lo2_bpf_cpu *cpu, struct lo2_bpf_run *run, const struct folio *folio, __u16 type)
{
    struct task_struct *task = bpf_get_current_task_btf();
    const struct address_space *mapping = LO2_READ(folio, struct folio, mapping);
    __u64 index = LO2_READ(folio, struct folio, index);
    __u32 pages = lo2_pages_of_folio(folio);
    lo2_kernel_pages *record = &run->record;

    if (record->pages && run->mapping == (__u64)mapping && record->head.tid == (__u32)task->pid &&
        record->first_page + record->pages == index && (type != LO2_KERNEL_DIRTY || record->pages < LO2_MOST_DIRTY)) {
        record->pages += pages;
        return;
    }
    lo2_write_run(cpu, run);
    lo2_number_by(&run->mapping, mapping);
    if (type == LO2_KERNEL_EVICT ? !*lo2_filled_place(run->mapping) : type == LO2_KERNEL_FILL && !lo2_is_recorded(task))
        return;
    if (type == LO2_KERNEL_FILL)
        *lo2_filled_place(run->mapping) = 1;
    record->head.tid = task->pid;
    record->head.type = type;
    record->begin_ns = bpf_ktime_get_ns();
    record->first_page = index;
    record->page_bytes = lo2.config.page_bytes;
    lo2_describe(record, mapping);
    record->pages = pages;
    cpu->cache.open = 1;
}

INLINE int lo2_on_folio(const struct folio *folio, enum lo2_run kind, __u16 type)
{
    __u32 number;
    struct lo2_bpf_cpu *cpu;

    if (!lo2_switch.on)
        return 0;
    cpu = lo2_this_cpu(&number);
    if (!cpu)
        return 0;
    if (cpu->cache.busy) {
        lo2_lose_event(&cpu->sampling.of_layers, bpf_ktime_get_ns());
        return 0;
    }
    cpu->cache.busy = 1;
    lo2_run_on(cpu, &cpu->cache.runs[kind], folio, type);
    barrier();
    *(volatile __u32 *)&cpu->cache.busy = 0;
    return 0;
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int lo2_cache_mm_filemap_add_to_page_cache(__u64 *context)
{
    if (!LO2_LAYER_FITS_cache)
        return 0;
    return lo2_on_folio((const struct folio *)context[0], LO2_RUN_FILLS, LO2_KERNEL_FILL);
}

SEC("tp_btf/mm_filemap_delete_from_page_cache")
int lo2_cache_mm_filemap_delete_from_page_cache(__u64 *context)
{
    if (!LO2_LAYER_FITS_cache)
        return 0;
    return lo2_on_folio((const struct folio *)context[0], LO2_RUN_EVICTIONS, LO2_KERNEL_EVICT);
}

/* ---- waits ---- */

/* True while the thread waits for I/O: io_schedule sets it before the switch away, and clears it after the switch back. */
INLINE bool lo2_waits_for_io(const struct task_struct *task)
{
    if (LO2_CAN_CAST) {
        task = bpf_rdonly_cast(task, bpf_core_type_id_kernel(struct task_struct));
        return BPF_CORE_READ_BITFIELD(task, in_iowait);
    }
    return BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait);
}

/* Programs' threads alone, for those of the kernel make no calls. */
INLINE void lo2_note_wait(struct lo2_bpf_cpu *cpu, __u32 number, const struct task_struct *task, bool ends)
{
    lo2_kernel_iowait record = { .head.type = LO2_KERNEL_IOWAIT, .ends = ends };
    __u32 process = LO2_READ(task, struct task_struct, tgid);
    __u8 *selected;

    if (!LO2_READ(task, struct task_struct, mm))
        return;
    if (lo2.config.all_tasks) {
        if (process == lo2.config.recorder)
            return;
    } else {
        selected = lo2_selection(process);
        if (!selected || !*selected)
            return;
    }
    record.head.tid = LO2_READ(task, struct task_struct, pid);
    lo2_write_event(cpu, lo2_ring_for(number, LO2_RING_EVENTS), &record.head, sizeof record);
}

INLINE void lo2_cache_switches(struct lo2_bpf_cpu *cpu, __u32 number, const struct task_struct *next)
{
    const struct task_struct *prev = bpf_get_current_task_btf();

    lo2_end_runs_of(cpu);
    if (!lo2_has_layer(LO2_LAYER_cache))
        return;
    if (lo2_waits_for_io(prev))
        lo2_note_wait(cpu, number, prev, false);
    if (lo2_waits_for_io(next))
        lo2_note_wait(cpu, number, next, true);
}

/*
 * The current task leaves its CPU (kernel/sched/core.c: the tracepoint precedes context_switch). If a program is at work
 * here, the slot belongs to its thread. The slot stays, for the thread comes back to this CPU.
 */
INLINE void lo2_leave_cpu(struct lo2_bpf_cpu *cpu, __u32 number)
{
    if (cpu->slot.occupied && !cpu->busy)
        lo2_flush_slot(cpu, lo2_ring(&number));
}

#endif
