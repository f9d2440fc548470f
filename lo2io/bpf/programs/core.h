/* Common parts of all programs: find the CPU's own part, decide who is recorded, write records, pair entry and exit. */
#ifndef LO2IO_BPF_CORE_H
#define LO2IO_BPF_CORE_H

#include "sleepers.h"

/* An entry or exit of a call, for the hooks of files.h, paths.h, values.h and iocbs.h. */
struct lo2_moment {
    struct lo2_bpf_cpu *cpu;
    struct lo2_bpf_buffer *ring;   /* NULL: this CPU has no buffer */
    struct task_struct *task;      /* the calling thread; its members may be read directly */
    const volatile struct lo2_bpf_call *call;
    __u64 time_ns;                 /* of this entry or exit */
    __s64 result;                  /* at the exit */
    bool compat;                   /* a call of a 32 bit program */
    __s64 position, value;         /* the hooks set them before CALL or EXIT is written */
    bool untold;                   /* nobody on this CPU has told of the file in the CPU's look */
};

/* The argument `number`, counted from 1. */
INLINE __u64 lo2_argument(const struct lo2_moment *moment, __u32 number)
{
    return moment->cpu->slot.record.args[(number - 1) & 7];
}

/* An address as a number, read back from memory. A function that the verifier checks on its own accepts only numbers. */
INLINE __u64 lo2_as_number(const void *pointer)
{
    __u64 number = 0;

    bpf_probe_read_kernel(&number, sizeof number, &pointer);
    return number;
}

/* The same by way of memory that nobody else writes meanwhile, without a call. */
INLINE __u64 lo2_number_by(__u64 *memory, const void *pointer)
{
    *(volatile __u64 *)memory = (__u64)pointer;
    return *(volatile __u64 *)memory;
}

INLINE struct lo2_bpf_cpu *lo2_this_cpu(__u32 *number)
{
    *number = bpf_get_smp_processor_id();
    return bpf_map_lookup_elem(&lo2_cpus, number);
}

/*
 * Makes the CPU's part the caller's own, until lo2_give_back(). False: another program has it, and was preempted while it
 * worked. This run is skipped then, and counted. The other program goes on on this CPU, so its work is safe:
 *
 *   program A   take ── write ─ ✗ preempted ─────────────── write ── give back
 *   program B                        take: false, skipped
 */
INLINE bool lo2_take_cpu(struct lo2_bpf_cpu *cpu)
{
    if (!__sync_lock_test_and_set(&cpu->busy, 1))
        return true;
    __sync_fetch_and_add(&cpu->misses.skipped, 1);
    return false;
}

INLINE void lo2_give_back(struct lo2_bpf_cpu *cpu)
{
    barrier();
    *(volatile __u64 *)&cpu->busy = 0;
}

INLINE struct lo2_bpf_buffer *lo2_ring(const __u32 *cpu) { return lo2_ring_for(*cpu, LO2_RING_CALLS); }

INLINE __u8 *lo2_selection(__u32 process)
{
    __u32 key = process >> LO2_SELECTED_SHIFT;
    struct lo2_bpf_selected *part = bpf_map_lookup_elem(&lo2_selected, &key);
    return part ? &part->process[process & ((1 << LO2_SELECTED_SHIFT) - 1)] : NULL;
}

/* True if the current task is recorded. */
INLINE bool lo2_is_recorded(struct task_struct *task)
{
    if (lo2.config.all_tasks) {
        if (task->tgid == (int)lo2.config.recorder)
            return false;
    } else {
        __u8 *selected = lo2_selection(task->tgid);
        if (!selected || !*selected)
            return false;
    }
    return !lo2.config.one_cgroup || bpf_current_task_under_cgroup(&lo2_cgroup, 0) == 1;
}

/* Writes the record of earlier losses, and wakes the reader, who is late. False: there is no room for it either. */
LO2_ONCE int lo2_tell_lost(void)
{
    __u32 number;
    struct lo2_bpf_cpu *cpu = lo2_this_cpu(&number);
    struct lo2_bpf_buffer *ring = lo2_ring(&number);
    lo2_kernel_lost record = { .head.type = LO2_KERNEL_LOST };

    if (!cpu || !ring)
        return false;
    record.head.time_ns = cpu->losing.end_ns;
    record.begin_ns = cpu->losing.begin_ns;
    record.lost = cpu->losing.lost;
    if (!lo2_put(ring, &record, sizeof record))
        return false;
    cpu->losing.lost = 0;
    lo2_ring_bell();
    return true;
}

/* Counts events between `begin_ns` and `end_ns` that found no room. */
INLINE void lo2_lose(struct lo2_bpf_cpu *cpu, __u32 events, __u64 begin_ns, __u64 end_ns)
{
    if (!cpu->losing.lost)
        cpu->losing.begin_ns = begin_ns;
    cpu->losing.lost += events;
    cpu->losing.end_ns = end_ns;
}

/* As lo2_begin(), but earlier losses are told first. */
INLINE void *lo2_begin_next(struct lo2_bpf_cpu *cpu, struct lo2_bpf_buffer *ring, __u64 most)
{
    return !cpu->losing.lost || lo2_tell_lost() ? lo2_begin(ring, most) : NULL;
}

/* Writes a record of `size` bytes. False: there was no room. */
INLINE bool lo2_write(struct lo2_bpf_cpu *cpu, struct lo2_bpf_buffer *ring, const void *record, __u64 size)
{
    return (!cpu->losing.lost || lo2_tell_lost()) && lo2_put(ring, record, size);
}

/* Like lo2_write, for facts. Counts a fact that finds no room. */
INLINE bool lo2_write_fact(struct lo2_bpf_cpu *cpu, struct lo2_bpf_buffer *ring, const void *record, __u64 size)
{
    bool written = lo2_write(cpu, ring, record, size);
    if (!written)
        cpu->misses.facts_lost++;
    return written;
}

INLINE void lo2_fill_head(lo2_kernel_head *head, const struct lo2_moment *moment, __u16 type, __u16 event)
{
    head->time_ns = moment->time_ns;
    head->tid = moment->task->pid;
    head->type = type;
    head->event = event;
}

/*
 * Writes the call in the slot as ENTER and empties the slot. Needed when its thread leaves the CPU, or before a record
 * with a later time is written during the call.
 */
INLINE void lo2_flush_slot(struct lo2_bpf_cpu *cpu, struct lo2_bpf_buffer *ring)
{
    const lo2_kernel_call *call = &cpu->slot.record;
    __u32 index = lo2.calls[cpu->slot.call % LO2_MAX_CALLS].enter_index % LO2_MAX_EVENTS;
    bool unfollowed = lo2_has_layer(LO2_LAYER_waits) && !lo2_claim_sleeper(call->head.tid);
    lo2_kernel_enter *enter;

    cpu->slot.occupied = 0;
    if (lo2_has_layer(LO2_LAYER_stacks))
        lo2_note_begin(call->head.tid, call->head.time_ns);
    enter = lo2_begin_next(cpu, ring, sizeof *enter);
    if (!enter) {
        cpu->counts[index].lost++;
        lo2_lose(cpu, 1, call->head.time_ns, call->head.time_ns);
        return;
    }
    lo2_copy(&enter->head, &call->head, sizeof enter->head);
    enter->head.type = LO2_KERNEL_ENTER;
    enter->nr_args = call->nr_args;
    enter->unfollowed = unfollowed;
    enter->reserved[0] = enter->reserved[1] = 0;
    lo2_copy(enter->args, call->args, sizeof enter->args); /* of which the record takes nr_args */
    lo2_finish(ring, __builtin_offsetof(lo2_kernel_enter, args) + (call->nr_args & 7) * sizeof(__u64));
}

/* The number of the call that returns. LO2_MAX_CALLS or more: none, for rt_sigreturn has overwritten it. */
INLINE __u64 lo2_call_number(const struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
    return regs->orig_ax;
#else
    return (__s64)regs->syscallno;
#endif
}

/* True for a 32 bit call, whose number means another call. perf leaves such calls out (trace_get_syscall_nr). */
INLINE bool lo2_is_compat(const struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
    return task->thread_info.status & 2; /* TS_COMPAT, arch/x86/include/asm/thread_info.h */
#else
    return task->thread_info.flags & 1 << 22; /* _TIF_32BIT, arch/arm64/include/asm/thread_info.h */
#endif
}

/* True for an x32 call. Most of its numbers are the 64 bit ones with this bit (arch/x86/include/uapi/asm/unistd.h). */
INLINE bool lo2_is_x32(__u64 number)
{
#if defined(__TARGET_ARCH_x86)
    return number >> 30 == 1;
#else
    return false;
#endif
}

/* Marks numbers of 32 bit calls, to tell them from 64 bit ones. */
#define LO2_COMPAT 0x10000u

/* The number of a 32 bit call in lo2.compat. For socketcall (net/socket.c) the number depends on the first argument. */
INLINE __u32 lo2_compat_number(const struct pt_regs *regs, __u64 number)
{
#if defined(__TARGET_ARCH_x86)
    if (number == LO2_SOCKETCALL)
        number = LO2_SOCKETCALLS + ((__u32)regs->bx & 31);
#endif
    return number;
}

/* Reads the registers of a 32 bit call into the CPU's `given`, in the order of the arguments. */
INLINE void lo2_read_given(struct lo2_bpf_cpu *cpu, const struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
    cpu->given[1] = regs->bx;
    cpu->given[2] = regs->cx;
    cpu->given[3] = regs->dx;
    cpu->given[4] = regs->si;
    cpu->given[5] = regs->di;
    cpu->given[6] = regs->bp;
#endif
}

INLINE __u64 lo2_compat_argument(const struct lo2_bpf_cpu *cpu, __u16 how)
{
    __u64 value = cpu->given[how & 7];

    if (how & LO2_COMPAT_SIGNED)
        value = (__s64)(__s32)value;
    if (how >> LO2_COMPAT_HIGH_SHIFT & 7)
        value |= (__u64)cpu->given[how >> LO2_COMPAT_HIGH_SHIFT & 7] << 32;
    if (how & LO2_COMPAT_PAGES)
        value <<= 12;
    /* F_GETLK64 and its neighbours become F_GETLK and so on, include/uapi/asm-generic/fcntl.h */
    if (how & LO2_COMPAT_LOCK && value - 12 < 3)
        value -= 7;
    return value;
}

/* Puts the arguments of the current task's 32 bit call into the slot, as a 64 bit program passes them. */
LO2_ONCE int lo2_read_compat(__u32 number)
{
    const volatile struct lo2_bpf_compat *plan = &lo2.compat[number % LO2_MAX_CALLS];
    struct task_struct *task = bpf_get_current_task_btf();
    __u32 cpu_number, size = plan->nr_given * sizeof(__u32), i;
    struct lo2_bpf_cpu *cpu = lo2_this_cpu(&cpu_number);

    if (!cpu)
        return 0;
    lo2_read_given(cpu, (const struct pt_regs *)bpf_task_pt_regs(task));
    cpu->given[0] = 0;
    if (plan->memory && size <= 6 * sizeof(__u32) &&
        bpf_probe_read_user(&cpu->given[1], size, (const void *)(__u64)cpu->given[plan->memory & 7])) {
        __builtin_memset(cpu->given, 0xff, sizeof cpu->given); /* -1 is no descriptor */
        cpu->misses.unreadable++;
    }
#pragma unroll
    for (i = 0; i < 6; i++)
        cpu->slot.record.args[i] = lo2_compat_argument(cpu, plan->args[i]);
    return 0;
}

/* The result of a 32 bit call, read from memory if the call returns it through a pointer. */
INLINE __s64 lo2_compat_result(struct lo2_bpf_cpu *cpu, __u32 number, __s64 result)
{
    const volatile struct lo2_bpf_compat *plan = &lo2.compat[number % LO2_MAX_CALLS];
    __s64 value;

    if (!(plan->args[3] & LO2_COMPAT_RESULT) || result)
        return result;
    if (!bpf_probe_read_user(&value, sizeof value, (const void *)cpu->slot.record.args[3]))
        return value;
    cpu->misses.unreadable++;
    return result;
}

/* Puts the arguments of the current task's call into the slot. */
INLINE void lo2_read_arguments(struct lo2_bpf_cpu *cpu, const struct pt_regs *regs, __u32 number)
{
    __u64 *args = cpu->slot.record.args;

    if (number & LO2_COMPAT) {
        lo2_read_compat(number & ~LO2_COMPAT);
        return;
    }

#if defined(__TARGET_ARCH_x86)
    args[0] = regs->di;
    args[1] = regs->si;
    args[2] = regs->dx;
    args[3] = regs->r10;
    args[4] = regs->r8;
    args[5] = regs->r9;
#else
    args[0] = regs->orig_x0;
    args[1] = regs->user_regs.regs[1];
    args[2] = regs->user_regs.regs[2];
    args[3] = regs->user_regs.regs[3];
    args[4] = regs->user_regs.regs[4];
    args[5] = regs->user_regs.regs[5];
#endif
}

#endif
