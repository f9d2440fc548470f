/*
 * The layer `stacks`: where a program made a call that was slow. The stack is taken at the call's exit:
 *
 *   thread   entry ┄┄ switch away ┄┄ … ┄┄ exit
 *   place             begin_ns             long enough: STACK
 *
 * The stack is taken in two ways. By frame pointers: the kernel names each frame by the build id of its file and the
 * place in that file. And as a copy of registers and memory, in which user space finds the frames of programs without
 * frame pointers. A quick call costs two comparisons.
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
 * A C library's write() has no frame of its own, so the function that calls write() would be missing. The return address into
 * that function is the word at the end of the stack, unless write() has put something there. User space finds this out from
 * the library's .eh_frame.
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

/* 1 + the place of `stack`, which is written if it is new; 0: other stacks have all places where this one could stand. */
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

/* When the thread's call began, if the call has left its CPU's slot; 0: not known. Forgets the time. */
INLINE __u64 lo2_when_begun(__u32 tid)
{
    __u32 place = tid & (LO2_MAX_BEGUN - 1);
    struct lo2_bpf_begun *begun = bpf_map_lookup_elem(&lo2_begun, &place);

    if (!begun || begun->tid != tid)
        return 0;
    begun->tid = 0;
    return begun->begin_ns;
}

/* A record with a copy, as it lies in the buffer: at most this large. */
struct lo2_copied_stack {
    lo2_kernel_stack stack;
    lo2_kernel_stack_copy copy;
    __u8 bytes[LO2_STACK_COPY];
};

/* How many bytes of the stack are wanted, from `sp` on. Beyond the stack of the first thread lies the environment. */
INLINE __u32 lo2_stack_bytes(struct task_struct *task, __u64 sp)
{
    __u64 rest = BPF_CORE_READ(task, mm, start_stack) - sp;

    return rest && rest < LO2_STACK_COPY ? rest : LO2_STACK_COPY;
}

/* Copies page by page, so that a page that cannot be read costs only those after it. Returns the number of bytes. */
INLINE __u32 lo2_copy_stack(__u8 *to, __u64 from, __u32 wanted)
{
    enum { PAGE = 4096, PAGES = LO2_STACK_COPY / PAGE + 1 };
    __u32 done = 0, size, i;

#pragma unroll
    for (i = 0; i < PAGES; i++) {
        size = PAGE - ((from + done) & (PAGE - 1));
        if (size > wanted - done)
            size = wanted - done;
        if (!size || done >= LO2_STACK_COPY || size > PAGE)
            break;
        if (bpf_probe_read_user(to + (done & (LO2_STACK_COPY - 1)), size, (const void *)(from + done)))
            break;
        done += size;
    }
    return done & ~7u;
}

INLINE void lo2_copy_registers(__u64 *to, const struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
    to[0] = BPF_CORE_READ(regs, ax);
    to[1] = BPF_CORE_READ(regs, dx);
    to[2] = BPF_CORE_READ(regs, cx);
    to[3] = BPF_CORE_READ(regs, bx);
    to[4] = BPF_CORE_READ(regs, si);
    to[5] = BPF_CORE_READ(regs, di);
    to[6] = BPF_CORE_READ(regs, bp);
    to[7] = BPF_CORE_READ(regs, sp);
    to[8] = BPF_CORE_READ(regs, r8);
    to[9] = BPF_CORE_READ(regs, r9);
    to[10] = BPF_CORE_READ(regs, r10);
    to[11] = BPF_CORE_READ(regs, r11);
    to[12] = BPF_CORE_READ(regs, r12);
    to[13] = BPF_CORE_READ(regs, r13);
    to[14] = BPF_CORE_READ(regs, r14);
    to[15] = BPF_CORE_READ(regs, r15);
    to[16] = BPF_CORE_READ(regs, ip);
#endif
}

/*
 * Writes STACK with a copy. False: the buffer is half full. The other half is reserved for calls: a copy is a hundred
 * times as large as a call, and must not take the room of calls.
 */
LO2_ONCE int lo2_write_copy(__u64 time_ns, __u32 place)
{
    struct task_struct *task = bpf_get_current_task_btf();
    const struct pt_regs *regs = (const struct pt_regs *)bpf_task_pt_regs(task);
    __u64 sp = 0, size;
    struct lo2_bpf_buffer *ring;
    struct lo2_copied_stack *record;
    struct lo2_bpf_cpu *cpu;
    __u32 number;

    cpu = lo2_this_cpu(&number);
    ring = lo2_ring(&number);
    if (!cpu || !ring || (cpu->losing.lost && !lo2_tell_lost()))
        return false;
    if (!lo2_has_room(ring, ring->taken + lo2.config.ring_bytes / 2, lo2_framed(sizeof *record))) {
        lo2_ring_bell(); /* no record may come that makes the buffer half full, at which the reader is woken */
        return false;
    }
    record = lo2_record_at(ring, ring->taken);
    __builtin_memset(record, 0, __builtin_offsetof(struct lo2_copied_stack, bytes));
    record->stack.head.time_ns = time_ns;
    record->stack.head.tid = task->pid;
    record->stack.head.type = LO2_KERNEL_STACK;
    record->stack.stack = place - 1;
    record->copy.pid = task->tgid;
    record->copy.uid = bpf_get_current_uid_gid();
    lo2_copy_registers(record->copy.registers, regs);
#if defined(__TARGET_ARCH_x86)
    sp = BPF_CORE_READ(regs, sp);
#endif
    record->copy.asked = lo2_stack_bytes(task, sp);
    record->stack.copied = lo2_copy_stack(record->bytes, sp, record->copy.asked);
    size = __builtin_offsetof(struct lo2_copied_stack, bytes) + record->stack.copied;
    if (!record->stack.copied)
        size = sizeof record->stack;
    lo2_finish(ring, size);
    return true;
}

/* True if a copy of this call's stack can be unwound. */
INLINE bool lo2_is_unwound(const struct lo2_moment *moment)
{
#if defined(__TARGET_ARCH_x86)
    return !moment->compat;
#else
    return false;
#endif
}

/* The call has been written, and ends at the moment's time. begin_ns 0: not known. */
INLINE void lo2_stack_at_exit(struct lo2_moment *moment, __u64 begin_ns)
{
    struct lo2_bpf_cpu *cpu = moment->cpu;
    lo2_kernel_stack record = {};
    __u32 place;

    if (!begin_ns || moment->time_ns - begin_ns < lo2.slow_from_ns || cpu->slow_calls++ % lo2.slow_one_of)
        return;
    place = lo2_take_user_stack();
    if (lo2_is_unwound(moment)) {
        if (lo2_write_copy(moment->time_ns, place))
            return;
        cpu->misses.uncopied++;
    }
    if (!place) {
        cpu->misses.stackless++;
        return;
    }
    lo2_fill_head(&record.head, moment, LO2_KERNEL_STACK, 0);
    record.stack = place - 1;
    lo2_write_fact(cpu, moment->ring, &record, sizeof record);
}

#endif
