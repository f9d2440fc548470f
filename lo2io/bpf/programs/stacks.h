/*
 * The layer `stacks`: where a program made a call that was slow. The stack is taken at the call's exit, by frame pointers:
 *
 *   thread   entry ┄┄ switch away ┄┄ … ┄┄ exit
 *   place             begin_ns             long enough: STACK
 *
 * A quick call costs two comparisons. The kernel names each frame by the build id of its file and the place in that file.
 */
#ifndef LO2IO_BPF_STACKS_H
#define LO2IO_BPF_STACKS_H

#include "core.h"

#define LO2_LAYER_FITS_stacks 1

enum {
    LO2_USER_STACK = 1 << 8,       /* BPF_F_USER_STACK, BPF_F_USER_BUILD_ID: include/uapi/linux/bpf.h */
    LO2_USER_BUILD_ID = 1 << 11,
    LO2_NEAR = 1 << 24             /* two addresses so near each other are probably in one file */
};

/*
 * A C library's write() has no frame of its own: its caller would be missing. Its return address is the word at the end of the
 * stack, if write() has put nothing there. Whether this is so, user space finds in the library's .eh_frame.
 */
INLINE void lo2_take_top(struct lo2_bpf_cpu *cpu, const struct pt_regs *regs, __u32 frames)
{
#if defined(__TARGET_ARCH_x86)
    __u64 word = 0, sp = BPF_CORE_READ(regs, sp);
    __s64 distance;
    __u32 i;

    if (bpf_probe_read_user(&word, sizeof word, (const void *)sp))
        return;
    for (i = 1; i < LO2_USER_FRAMES && i < frames; i++) {
        distance = word - cpu->user_addresses[i];
        if (distance < LO2_NEAR && distance > -LO2_NEAR) {
            cpu->user_stack.top = distance;
            cpu->user_stack.beside = i;
            return;
        }
    }
#endif
}

INLINE __u64 lo2_sum_of_frames(const struct lo2_bpf_user_stack *stack)
{
    __u64 sum = stack->frames ^ (__u64)stack->top;
    const __u64 *words;
    __u32 i;

    for (i = 0; i < LO2_USER_FRAMES && i < stack->frames; i++) {
        words = (const __u64 *)&stack->at[i];
        sum = (sum ^ words[0]) * 0x9e3779b97f4a7c15ull;
        sum = (sum ^ words[1]) * 0x9e3779b97f4a7c15ull;
        sum = (sum ^ words[2]) * 0x9e3779b97f4a7c15ull;
        sum = (sum ^ words[3] ^ sum >> 32) * 0x9e3779b97f4a7c15ull;
    }
    return (sum ^ sum >> 32) | 1;
}

/* 1 + the place of this CPU's stack, which is written if it is new; 0: others have all its places. */
INLINE __u32 lo2_place_of_user_stack(const struct lo2_bpf_user_stack *stack)
{
    enum { PROBES = 4 };
    struct lo2_bpf_user_stack *found;
    __u64 owner;
    __u32 i, place;

    for (i = 0; i < PROBES; i++) {
        place = (stack->sum + i) & (LO2_MAX_USER_STACKS - 1);
        found = bpf_map_lookup_elem(&lo2_user_stacks, &place);
        if (!found)
            return 0;
        owner = found->sum;
        if (!owner)
            owner = __sync_val_compare_and_swap(&found->sum, 0, stack->sum);
        if (owner == stack->sum)
            return place + 1;
        if (!owner) {
            found->top = stack->top;
            found->beside = stack->beside;
            bpf_probe_read_kernel(found->at, sizeof found->at, stack->at);
            barrier();
            *(volatile __u64 *)&found->frames = stack->frames;
            return place + 1;
        }
    }
    return 0;
}

/* 1 + the place of the current task's stack; 0: there is none, or no place. */
LO2_ONCE int lo2_take_user_stack(void)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct lo2_bpf_user_stack *stack;
    struct lo2_bpf_cpu *cpu;
    __u32 number;
    long bytes;

    cpu = lo2_this_cpu(&number);
    if (!cpu)
        return 0;
    stack = &cpu->user_stack;
    stack->top = stack->beside = 0;
    bytes = bpf_get_task_stack(task, stack->at, sizeof stack->at, LO2_USER_STACK | LO2_USER_BUILD_ID);
    if (bytes <= 0)
        return 0;
    stack->frames = bytes / sizeof stack->at[0];
    bytes = bpf_get_task_stack(task, cpu->user_addresses, sizeof cpu->user_addresses, LO2_USER_STACK);
    if (bytes > 0)
        lo2_take_top(cpu, (const struct pt_regs *)bpf_task_pt_regs(task), bytes / sizeof(__u64));
    stack->sum = lo2_sum_of_frames(stack);
    return lo2_place_of_user_stack(stack);
}

/* When the thread's call began, which had left its CPU's slot; 0: not known. Forgets it. */
INLINE __u64 lo2_when_begun(__u32 tid)
{
    __u32 place = tid & (LO2_MAX_BEGUN - 1);
    struct lo2_bpf_begun *begun = bpf_map_lookup_elem(&lo2_begun, &place);

    if (!begun || begun->tid != tid)
        return 0;
    begun->tid = 0;
    return begun->begin_ns;
}

/* The call has been written, and ends at the moment's time. begin_ns 0: not known. */
INLINE void lo2_stack_at_exit(struct lo2_moment *moment, __u64 begin_ns)
{
    lo2_kernel_stack record = {};
    __u32 place;

    if (!begin_ns || moment->time_ns - begin_ns < lo2.slow_from_ns)
        return;
    place = lo2_take_user_stack();
    if (!place) {
        moment->cpu->misses.stackless++;
        return;
    }
    lo2_fill_head(&record.head, moment, LO2_KERNEL_STACK, 0);
    record.stack = place - 1;
    lo2_write_fact(moment->cpu, moment->ring, &record, sizeof record);
}

#endif
