/*
 * The layer `faults`: page faults of mapped files that needed I/O.
 *
 *   thread      ── touches a page ── looks for it ┄┄ waits ┄┄ looks again ── has it ──
 *   place                            claim                    kept
 *   record                                                                   FAULT
 *
 * A look that finds its page needs no I/O, so no FAULT follows. It claims a place all the same. The thread's next look then
 * takes that place over.
 */
#ifndef LO2IO_BPF_FAULTS_H
#define LO2IO_BPF_FAULTS_H

#include "cache.h"

typedef void (*btf_trace_mm_filemap_fault)(void *, struct address_space *, unsigned long);

#define LO2_LAYER_FITS_faults LO2_HAS(mm_filemap_fault)

#if defined(__TARGET_ARCH_x86)
enum { LO2_REGISTERS = 21 };       /* of struct pt_regs, arch/x86/include/asm/ptrace.h */
#else
enum { LO2_REGISTERS = 34 };       /* of struct user_pt_regs, arch/arm64/include/uapi/asm/ptrace.h */
#endif

/* struct bpf_perf_event_data, include/uapi/linux/bpf_perf_event.h */
struct lo2_software_context {
    __u64 registers[LO2_REGISTERS];
    __u64 sample_period;
    __u64 address;
};

INLINE struct lo2_bpf_fault *lo2_fault_place(__u32 tid)
{
    __u32 place = tid & (LO2_MAX_FAULTS - 1);
    return bpf_map_lookup_elem(&lo2_faults, &place);
}

/* The number of the thread's faults that are over: mm_account_fault (mm/memory.c) counts a fault when the fault ends. */
INLINE __u64 lo2_faults_over(const struct task_struct *task) { return task->maj_flt + task->min_flt; }

/*
 * The look of the fault that the thread may still be in: no fault has been counted since. A fault that failed is not
 * counted, so it may be over.
 */
INLINE struct lo2_bpf_fault *lo2_fault_of(const struct task_struct *task)
{
    struct lo2_bpf_fault *fault = lo2_has_layer(LO2_LAYER_faults) ? lo2_fault_place(task->pid) : NULL;

    return fault && fault->tid == (__u32)task->pid && fault->over == lo2_faults_over(task) ? fault : NULL;
}

/*
 * filemap:mm_filemap_fault(struct address_space *, pgoff_t), in filemap_fault: the page is not mapped. The kernel may give up
 * its locks, wait, and look again: the first look has the start.
 */
SEC("tp_btf/mm_filemap_fault")
int lo2_faults_mm_filemap_fault(__u64 *context)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct lo2_bpf_fault *fault;
    struct lo2_bpf_cpu *cpu;
    __u32 number;
    __u64 over;

    if (!lo2_switch.on || !LO2_LAYER_FITS_faults || !lo2_is_recorded(task))
        return 0;
    fault = lo2_fault_place(task->pid);
    over = lo2_faults_over(task);
    if (!fault || (fault->tid == (__u32)task->pid && fault->over == over && fault->mapping == context[0] &&
                   fault->page == context[1]))
        return 0;
    cpu = lo2_this_cpu(&number);
    if (cpu)
        lo2_end_runs_of(cpu); /* pages that the thread filled before are not this fault's */
    fault->tid = 0;
    fault->nr_sleeps = fault->unseen = fault->run_queue_ns = fault->blocked_ns = 0;
    fault->over = over;
    fault->mapping = context[0];
    fault->page = context[1];
    fault->begin_ns = bpf_ktime_get_ns();
    fault->tid = task->pid;
    return 0;
}

/*
 * The software event PERF_COUNT_SW_PAGE_FAULTS_MAJ: the fault is over, but its file is still mapped at this moment. The start is
 * unknown if the fault looked for no page of a file, or if another thread took the place.
 */
SEC("perf_event")
int lo2_faults_over_event(struct lo2_software_context *context)
{
    struct task_struct *task = bpf_get_current_task_btf();
    lo2_kernel_fault record = { .head.type = LO2_KERNEL_FAULT, .address = context->address };
    struct lo2_bpf_fault *fault;
    lo2_kernel_pages of = {};
    struct lo2_bpf_cpu *cpu;
    __u32 number;

    if (!lo2_switch.on || !lo2_is_recorded(task))
        return 0;
    cpu = lo2_this_cpu(&number);
    fault = lo2_fault_place(task->pid);
    if (!cpu || !fault)
        return 0;
    record.head.tid = task->pid;
    record.page_bytes = lo2.config.page_bytes;
    if (fault->tid == (__u32)task->pid && fault->over + 1 == lo2_faults_over(task)) {
        lo2_describe(&of, (const struct address_space *)fault->mapping);
        record.begin_ns = fault->begin_ns;
        record.page = fault->page;
        record.unseen = fault->unseen;
        record.nr_sleeps = fault->nr_sleeps;
        record.run_queue_ns = fault->run_queue_ns;
        record.blocked_ns = fault->blocked_ns;
        record.device = of.device;
        record.inode = of.inode;
        record.generation = of.generation;
        record.mode = of.mode;
    }
    lo2_end_runs_of(cpu);
    lo2_write_event(cpu, lo2_ring_for(number, LO2_RING_EVENTS), &record.head, sizeof record);
    return 0;
}

#endif
