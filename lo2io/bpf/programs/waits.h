/*
 * The layer `waits`: when the thread of a recorded call has no CPU, who wakes it up, and where in the kernel it slept. With the layer
 * `workers`, the same of io_uring's workers while they execute requests.
 *
 *   thread      ── call ── switch away ┄┄┄┄┄┄┄┄┄┄┄┄┄┄ switch to ── exit
 *   waker                                 wakeup
 *   place           claim, out_ns         wake_ns     SLEEP, 0     free
 *
 * A call that keeps its CPU costs nothing here.
 */
#ifndef LO2IO_BPF_WAITS_H
#define LO2IO_BPF_WAITS_H

#include "cache.h"
#include "core.h"
#include "faults.h"
#include "fits.h"
#include "vfs_types.h"

#define LO2_LAYER_FITS_waits (LO2_HAS(sched_switch) && LO2_HAS(sched_waking))
#define LO2_LAYER_FITS_workers                                                                                                \
    (LO2_LAYER_FITS_waits && bpf_core_field_exists(struct task_struct, worker_private) &&                                     \
     bpf_core_field_exists(struct io_worker, cur_work) && bpf_core_field_exists(struct io_kiocb, work))

enum {
    LO2_TASK_UNINTERRUPTIBLE = 2,  /* include/linux/sched.h */
    LO2_PF_IO_WORKER = 0x10,       /* the same */
    LO2_STACK_PROBES = 4,
    LO2_STACK_BYTES = 16384,       /* THREAD_SIZE, except on kernels with KASAN, where deep stacks are unwound each time */
    LO2_EARLY_WAKEUP_NS = 100000,
    /* enum lcb_flags, include/trace/events/lock.h: readers and writers of semaphores */
    LO2_CONTENDS_SPINNING = 1,
    LO2_CONTENDS_SEMAPHORE = 2 | 4,
    LO2_CONTENDS_OTHERWISE = 8 | 16, /* real-time mutexes, semaphores per CPU */
    LO2_CONTENDS_MUTEX = 32
};

/* ---- stacks ---- */

INLINE __u64 lo2_sum_of_stack(const __u64 *stack, __u32 frames)
{
    __u64 sum = frames;
    __u32 i;

#pragma unroll
    for (i = 0; i < LO2_STACK_FRAMES; i++)
        sum = (sum ^ (i < frames ? stack[i] : 0)) * 0x9e3779b97f4a7c15ull;
    return (sum ^ sum >> 32) | 1;
}

/* 1 + the place of the stack, which is written if it is new; 0: other stacks have all places where this one could stand. */
INLINE __u32 lo2_place_of_stack(const __u64 *stack, __u32 frames, __u64 sum)
{
    struct lo2_bpf_stack *found;
    __u64 owner;
    __u32 i, place;

#pragma unroll
    for (i = 0; i < LO2_STACK_PROBES; i++) {
        place = (sum + i) & (LO2_MAX_STACKS - 1);
        found = bpf_map_lookup_elem(&lo2_stacks, &place);
        if (!found)
            return 0;
        owner = found->sum;
        if (!owner)
            owner = __sync_val_compare_and_swap(&found->sum, 0, sum);
        if (owner == sum)
            return place + 1;
        if (!owner) {
            bpf_probe_read_kernel(found->addresses, sizeof found->addresses, stack);
            barrier();
            *(volatile __u64 *)&found->frames = frames;
            return place + 1;
        }
    }
    return 0;
}

/*
 * Unwinding a stack takes 5 us. A stack that was unwound before is recognized by its return addresses. If they lie at
 * the same distances from the stack pointer, the frames are the same: the place of a return address depends only on the
 * address before it.
 *
 *   sp ┄ scheduler ┄ address 0 ┄┄┄ address 1 ┄┄ … ┄┄ address n - 1 ┄┄ (random gap) ┄┄ address n ┄ registers of the program
 *                    └ distances[0]                  └ distances[n - 1]
 *
 * Beyond the gap (CONFIG_RANDOMIZE_KSTACK_OFFSET), distances change with each call. So the LO2_BEYOND_GAP addresses
 * there are not compared. Every system call has the same ones.
 */
INLINE bool lo2_read_words(struct lo2_bpf_cpu *cpu, struct task_struct *sleeper)
{
    __u64 sp = BPF_CORE_READ(sleeper, LO2_THREAD_SP), base = (__u64)BPF_CORE_READ(sleeper, stack);
    __u64 words = (base + LO2_STACK_BYTES - sp) / sizeof(__u64);

    if (sp < base || sp > base + LO2_STACK_BYTES)
        return false;
    if (words > LO2_STACK_WORDS)
        words = LO2_STACK_WORDS;
    cpu->search.nr_words = words;
    return !bpf_probe_read_kernel(cpu->search.words, words * sizeof(__u64), (const void *)sp);
}

/* For bpf_loop: searches for the next address, from the stack pointer on. */
static int lo2_find_forward(__u32 i, struct lo2_bpf_cpu **frame)
{
    struct lo2_bpf_cpu *cpu = *frame;
    __u32 next = cpu->search.found & (LO2_STACK_FRAMES - 1);

    if (next < cpu->search.fixed && cpu->search.words[i & (LO2_STACK_WORDS - 1)] == cpu->stack[next]) {
        cpu->search.distances[next] = i;
        cpu->search.found = next + 1;
    }
    return 0;
}

/*
 * For bpf_loop: searches from the other end on for the last address that is not found yet. 1 ends the loop: all
 * addresses are found, or the address may be at two distances.
 */
static int lo2_find_backward(__u32 i, struct lo2_bpf_cpu **frame)
{
    struct lo2_bpf_cpu *cpu = *frame;
    __u32 at = cpu->search.nr_words - 1 - i, last = (cpu->search.found - 1) & (LO2_STACK_FRAMES - 1);

    if (!cpu->search.found)
        return 1;
    if (cpu->search.words[at & (LO2_STACK_WORDS - 1)] != cpu->stack[last])
        return 0;
    if (cpu->search.distances[last] != at)
        return 1;
    cpu->search.found = last;
    return 0;
}

/*
 * A stale word on the stack may look like a return address. So the addresses are searched in their order from both ends. If they
 * can be found in two ways, the two searches find different words.
 */
INLINE void lo2_learn_stack(struct lo2_bpf_cpu *cpu, struct lo2_bpf_stack *stack)
{
    if (stack->frames <= LO2_BEYOND_GAP)
        return;
    cpu->search.fixed = stack->frames - LO2_BEYOND_GAP;
    cpu->search.found = 0;
    bpf_loop(cpu->search.nr_words, lo2_find_forward, &cpu, 0);
    if (cpu->search.found != cpu->search.fixed)
        return;
    bpf_loop(cpu->search.nr_words, lo2_find_backward, &cpu, 0);
    if (cpu->search.found)
        return;
    bpf_probe_read_kernel(stack->distances, sizeof stack->distances, cpu->search.distances);
    barrier();
    *(volatile __u64 *)&stack->fixed = cpu->search.fixed;
}

INLINE bool lo2_is_stack(const struct lo2_bpf_cpu *cpu, __u32 place)
{
    const struct lo2_bpf_stack *stack;
    __u32 i;

    place--;
    stack = bpf_map_lookup_elem(&lo2_stacks, &place);
    if (!stack || !stack->fixed)
        return false;
    for (i = 0; i < LO2_STACK_FRAMES && i < stack->fixed; i++)
        if (cpu->search.words[stack->distances[i]] != stack->addresses[i])
            return false;
    return true;
}

/* 1 + the place of a stack with which the thread slept before, if this CPU's words match that stack; else 0. */
LO2_ONCE int lo2_stack_again(__u32 tid)
{
    struct lo2_bpf_sleeper *sleeper = lo2_sleeper(tid);
    struct lo2_bpf_cpu *cpu;
    __u32 cpu_number, i;

    cpu = lo2_this_cpu(&cpu_number);
    if (!cpu || !sleeper)
        return 0;
    for (i = 0; i < LO2_SLEEPERS_STACKS; i++)
        if (sleeper->stacks[i] && lo2_is_stack(cpu, sleeper->stacks[i]))
            return sleeper->stacks[i];
    return 0;
}

/*
 * 1 + the place of the stack that this CPU has just unwound for the thread; 0: others have all its places. `words`: this CPU has the
 * words of that stack, too.
 */
LO2_ONCE int lo2_keep_stack(__u32 tid, __u32 frames, bool words)
{
    struct lo2_bpf_sleeper *sleeper = lo2_sleeper(tid);
    struct lo2_bpf_stack *stack;
    struct lo2_bpf_cpu *cpu;
    __u32 cpu_number, place, i;

    cpu = lo2_this_cpu(&cpu_number);
    if (!cpu || !sleeper)
        return 0;
    place = lo2_place_of_stack(cpu->stack, frames, lo2_sum_of_stack(cpu->stack, frames));
    if (!place)
        return 0;
    i = place - 1;
    stack = bpf_map_lookup_elem(&lo2_stacks, &i);
    if (stack && !stack->fixed && words)
        lo2_learn_stack(cpu, stack);
    if (stack && stack->fixed)
        sleeper->stacks[sleeper->turn++ & (LO2_SLEEPERS_STACKS - 1)] = place;
    return place;
}

/* 1 + the place of the sleeper's stack. The sleeper does not run yet, so its stack is still that of the sleep. */
INLINE __u32 lo2_stack_of(struct lo2_bpf_cpu *cpu, struct task_struct *task)
{
    bool words = lo2_read_words(cpu, task);
    __u32 place = words ? lo2_stack_again(task->pid) : 0;
    long bytes;

    if (place)
        return place;
    bytes = bpf_get_task_stack(task, cpu->stack, sizeof cpu->stack, 0);
    return bytes <= 0 ? 0 : lo2_keep_stack(task->pid, bytes / sizeof(__u64), words);
}

/* ---- stretches ---- */

/* If SLEEP finds no room, the call's next SLEEP says so (LO2_SLEEP_LOST). */
INLINE bool lo2_write_sleep(struct lo2_bpf_cpu *cpu, struct lo2_bpf_buffer *ring, struct lo2_bpf_sleeper *sleeper,
                            lo2_kernel_sleep *record)
{
    record->head.tid = sleeper->owner;
    record->head.type = LO2_KERNEL_SLEEP;
    record->out_ns = sleeper->out_ns;
    record->state = sleeper->state;
    record->request = sleeper->request;
    record->flags |= sleeper->lost ? LO2_SLEEP_LOST : 0;
    sleeper->out_ns = 0;
    sleeper->lost = !lo2_write_fact(cpu, ring, record, sizeof *record);
    return !sleeper->lost;
}

INLINE bool lo2_is_worker(const struct task_struct *task)
{
    return lo2_has_layer(LO2_LAYER_workers) && LO2_LAYER_FITS_workers && task->flags & LO2_PF_IO_WORKER;
}

/* The request that a worker executes, by its work, which is a part of it. 0: the worker waits for work. */
INLINE __u64 lo2_request_of(const struct task_struct *worker)
{
    const struct io_worker *self = (const struct io_worker *)worker->worker_private;
    __u64 work = (__u64)BPF_CORE_READ(self, cur_work);

    return work ? work - bpf_core_field_offset(struct io_kiocb, work) : 0;
}

/* Another thread has the worker's place: the stretch is told at its start, without an end. */
INLINE void lo2_write_unfollowed(struct lo2_bpf_cpu *cpu, struct lo2_bpf_buffer *ring, __u32 tid, __u64 request, __u64 time_ns)
{
    lo2_kernel_sleep record = { .head.time_ns = time_ns, .head.tid = tid, .head.type = LO2_KERNEL_SLEEP, .out_ns = time_ns,
                                .state = LO2_SLEEP_SLEEPING, .flags = LO2_SLEEP_ENDLESS, .request = request };

    lo2_write_fact(cpu, ring, &record, sizeof record);
}

/*
 * The place of the current task, which leaves its CPU. Outside of calls, a page fault claims the place anew for each
 * stretch. NULL: the thread is neither in a call nor in a fault, or another thread has the place.
 */
INLINE struct lo2_bpf_sleeper *lo2_sleeper_leaving(const struct task_struct *task, struct lo2_bpf_fault *fault)
{
    struct lo2_bpf_sleeper *sleeper = lo2_sleeper_in_call(task->pid);

    if (sleeper && sleeper->faulting && !fault) { /* the end of a stretch was not seen; the fault is over since */
        lo2_free_sleeper(task->pid);
        return NULL;
    }
    if (sleeper || !fault)
        return sleeper;
    if (!lo2_claim_sleeper(task->pid)) {
        fault->unseen = 1;
        return NULL;
    }
    sleeper = lo2_sleeper_in_call(task->pid);
    if (sleeper)
        sleeper->faulting = 1;
    return sleeper;
}

/*
 * The current task is a worker, and leaves its CPU. True: it has a place, for the request that it executes. False: it is not recorded,
 * or executes none, or another thread has its place.
 */
LO2_ONCE int lo2_worker_leaves(__u64 time_ns)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct lo2_bpf_sleeper *sleeper = lo2_sleeper_in_call(task->pid);
    lo2_kernel_sleep record = { .head.time_ns = time_ns, .flags = LO2_SLEEP_ENDLESS };
    struct lo2_bpf_fault *fault;
    __u64 request = lo2_request_of(task);
    struct lo2_bpf_buffer *ring;
    struct lo2_bpf_cpu *cpu;
    __u32 cpu_number;

    cpu = lo2_this_cpu(&cpu_number);
    if (!cpu || !request || (!sleeper && !lo2_is_recorded(task)))
        return false;
    ring = lo2_ring(&cpu_number);
    if (!sleeper && !lo2_claim_sleeper(task->pid)) {
        lo2_write_unfollowed(cpu, ring, task->pid, request, time_ns);
        return false;
    }
    sleeper = lo2_sleeper_in_call(task->pid);
    if (!sleeper)
        return false;
    if (sleeper->out_ns) { /* it had a CPU meanwhile, unseen */
        lo2_write_sleep(cpu, ring, sleeper, &record);
        fault = lo2_fault_of(task);
        if (fault)
            fault->unseen = 1;
    }
    sleeper->request = request;
    return true;
}

/* The current task leaves its CPU. */
LO2_ONCE int lo2_leaves(bool runnable, __u32 state, __u64 time_ns)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct lo2_bpf_fault *fault = lo2_fault_of(task);
    lo2_kernel_sleep record = { .head.time_ns = time_ns, .flags = LO2_SLEEP_ENDLESS };
    struct lo2_bpf_sleeper *sleeper;
    struct lo2_bpf_cpu *cpu;
    __u32 cpu_number, tid = task->pid;

    cpu = lo2_this_cpu(&cpu_number);
    if (!cpu)
        return 0;
    if (lo2_is_worker(task))
        sleeper = lo2_worker_leaves(time_ns) ? lo2_sleeper_in_call(tid) : NULL;
    else
        sleeper = lo2_sleeper_leaving(task, fault);
    if (!sleeper)
        return 0;
    if (sleeper->out_ns) { /* it had a CPU meanwhile, unseen */
        lo2_write_sleep(cpu, lo2_ring(&cpu_number), sleeper, &record);
        if (fault)
            fault->unseen = 1;
    }
    sleeper->state = runnable                           ? LO2_SLEEP_PREEMPTED
                     : state & LO2_TASK_UNINTERRUPTIBLE ? LO2_SLEEP_BLOCKED
                                                        : LO2_SLEEP_SLEEPING;
    sleeper->out_ns = time_ns;
    if (cpu->lock.waiter == tid) {
        sleeper->lock = cpu->lock;
        cpu->lock.waiter = 0;
    }
    return 0;
}

/*
 * When the sleep ended by a wakeup, 0: not seen. A wakeup may come while the thread is still on its way to sleep. Then it
 * only waits for a CPU, from the switch away on:
 *
 *   thread   wants to sleep ──────── switch away ── switch to
 *   waker                    wakeup
 *
 * An older wakeup is one that the thread noticed before it slept.
 */
INLINE __u64 lo2_wakeup_of(const struct lo2_bpf_sleeper *sleeper)
{
    if (sleeper->wake_ns >= sleeper->out_ns)
        return sleeper->wake_ns;
    return sleeper->wake_ns + LO2_EARLY_WAKEUP_NS > sleeper->out_ns ? sleeper->out_ns : 0;
}

INLINE void lo2_add_to_fault(struct lo2_bpf_fault *fault, const struct lo2_bpf_sleeper *sleeper, const lo2_kernel_sleep *record)
{
    if (sleeper->out_ns < fault->begin_ns)
        return;
    fault->nr_sleeps++;
    if (!record->wake_ns) {
        fault->unseen = 1;
        return;
    }
    fault->blocked_ns += record->wake_ns - sleeper->out_ns;
    fault->run_queue_ns += record->head.time_ns - record->wake_ns;
}

INLINE void lo2_comes_back(struct lo2_bpf_cpu *cpu, struct lo2_bpf_buffer *ring, struct task_struct *task, __u64 time_ns)
{
    struct lo2_bpf_sleeper *sleeper = lo2_sleeper_in_call(task->pid);
    lo2_kernel_sleep record = { .head.time_ns = time_ns };
    struct lo2_bpf_fault *fault;

    if (!sleeper || !sleeper->out_ns)
        return;
    fault = lo2_fault_of(task);
    if (sleeper->state == LO2_SLEEP_PREEMPTED) {
        record.wake_ns = sleeper->out_ns;
    } else {
        record.wake_ns = lo2_wakeup_of(sleeper);
        record.waker = record.wake_ns ? sleeper->waker : 0;
        record.flags = BPF_CORE_READ_BITFIELD(task, in_iowait) ? LO2_SLEEP_IOWAIT : 0;
        if (sleeper->lock.waiter) {
            record.flags |= LO2_SLEEP_LOCK;
            record.holder = sleeper->lock.holder;
            record.lock_inode = sleeper->lock.inode;
            record.lock_device = sleeper->lock.device;
        }
        if ((record.wake_ns ? record.wake_ns : time_ns) - sleeper->out_ns >= lo2.stack_from_ns) {
            record.stack = lo2_stack_of(cpu, task);
            record.head.time_ns = bpf_ktime_get_ns(); /* the thread has waited for this, too */
        }
    }
    sleeper->wake_ns = 0;
    if (fault) {
        record.flags |= sleeper->request ? LO2_SLEEP_FAULT : 0;
        lo2_add_to_fault(fault, sleeper, &record);
    }
    if (!lo2_write_sleep(cpu, ring, sleeper, &record) && fault)
        fault->unseen = 1;
    if (sleeper->faulting)
        lo2_free_sleeper(task->pid);
}

/*
 * The CPU turns to another thread, at `time_ns`. The tracepoint precedes the switch: the current task is `prev`. If a program is at
 * work here, it goes on as soon as its thread is back, on this CPU.
 */
INLINE void lo2_follow_switch(struct lo2_bpf_cpu *cpu, __u32 cpu_number, const __u64 *context, __u64 time_ns)
{
    struct task_struct *prev = (struct task_struct *)context[1], *next = (struct task_struct *)context[2];
    struct lo2_bpf_buffer *ring;

    if (cpu->busy) {
        __sync_fetch_and_add(&cpu->misses.skipped, 1);
        return;
    }
    ring = lo2_ring(&cpu_number);
    if (cpu->slot.occupied)
        lo2_flush_slot(cpu, ring);
    if (prev->pid)
        lo2_leaves(context[0] || !context[3], context[3], time_ns);
    if (next->pid)
        lo2_comes_back(cpu, ring, next, time_ns);
}

/* Does the work of lo2_switch_task, too. If switches are recorded, lo2_on_sched_switch does all this. */
SEC("tp_btf/sched_switch")
int lo2_waits_sched_switch(__u64 *context)
{
    struct lo2_bpf_cpu *cpu;
    __u32 cpu_number;

    if (!lo2_switch.on || !LO2_LAYER_FITS_waits)
        return 0;
    cpu = lo2_this_cpu(&cpu_number);
    if (!cpu)
        return 0;
    lo2_cache_switches(cpu, cpu_number, (const struct task_struct *)context[2]);
    lo2_follow_switch(cpu, cpu_number, context, bpf_ktime_get_ns());
    return 0;
}

/* ---- locks ---- */

struct lo2_raw_lock_context {
    __u64 args[2];
};

/*
 * The low bits of an owner are flags: kernel/locking/rwsem.c, kernel/locking/mutex.c. A semaphore that readers hold has no one
 * holder.
 */
INLINE __u32 lo2_holder(__u64 lock, __u32 flags)
{
    enum { FLAGS = 7, OWNED_BY_READERS = 1 };
    const struct task_struct *holder;
    __u64 owner;

    if (flags & LO2_CONTENDS_MUTEX)
        owner = BPF_CORE_READ((const struct mutex *)lock, owner.counter);
    else
        owner = BPF_CORE_READ((const struct rw_semaphore *)lock, owner.counter);
    if (!(flags & LO2_CONTENDS_MUTEX) && owner & OWNED_BY_READERS)
        return 0;
    holder = (const struct task_struct *)(owner & ~(__u64)FLAGS);
    return holder ? BPF_CORE_READ(holder, pid) : 0;
}

/* The inode that contains a semaphore. The memory around the semaphore is an inode if its i_data names it as the host. */
INLINE void lo2_inode_of_lock(struct lo2_bpf_lock *wait, __u64 lock)
{
    const struct inode *inode = (const struct inode *)(lock - bpf_core_field_offset(struct inode, i_rwsem));

    if (BPF_CORE_READ(inode, i_data.host) != inode)
        return;
    wait->inode = BPF_CORE_READ(inode, i_ino);
    wait->device = BPF_CORE_READ(inode, i_sb, s_dev);
}

/* lock:contention_begin(void *, unsigned int): the thread may spin first, and begins again before it sleeps. */
SEC("raw_tp/contention_begin")
int lo2_waits_contention_begin(struct lo2_raw_lock_context *context)
{
    __u32 cpu_number, flags = context->args[1];
    struct task_struct *task;
    struct lo2_bpf_cpu *cpu;

    if (!lo2_switch.on || flags & LO2_CONTENDS_SPINNING)
        return 0;
    task = bpf_get_current_task_btf();
    cpu = lo2_this_cpu(&cpu_number);
    if (!cpu || !lo2_is_recorded(task))
        return 0;
    cpu->lock.waiter = task->pid;
    cpu->lock.address = context->args[0];
    cpu->lock.holder = cpu->lock.inode = cpu->lock.device = 0;
    if (flags & LO2_CONTENDS_OTHERWISE)
        return 0;
    cpu->lock.holder = lo2_holder(context->args[0], flags);
    if (!(flags & LO2_CONTENDS_MUTEX))
        lo2_inode_of_lock(&cpu->lock, context->args[0]);
    return 0;
}

/* The thread may be on another CPU by now. While it waits for this lock, it may also spin for another one. */
SEC("raw_tp/contention_end")
int lo2_waits_contention_end(struct lo2_raw_lock_context *context)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct lo2_bpf_sleeper *sleeper;
    struct lo2_bpf_cpu *cpu;
    __u32 cpu_number;

    cpu = lo2_this_cpu(&cpu_number);
    if (cpu && cpu->lock.waiter == (__u32)task->pid && cpu->lock.address == context->args[0])
        cpu->lock.waiter = 0;
    sleeper = lo2_sleeper_in_call(task->pid);
    if (sleeper && sleeper->lock.address == context->args[0])
        sleeper->lock.waiter = 0;
    return 0;
}

/* A wakeup is noted only if the thread is the owner of its place. */
SEC("tp_btf/sched_waking")
int lo2_waits_sched_waking(__u64 *context)
{
    struct task_struct *task = (struct task_struct *)context[0];
    struct lo2_bpf_sleeper *sleeper;

    if (!lo2_switch.on || !LO2_LAYER_FITS_waits)
        return 0;
    sleeper = lo2_sleeper(task->pid);
    if (sleeper && (__u32)sleeper->owner == (__u32)task->pid) {
        sleeper->waker = bpf_get_current_task_btf()->pid;
        sleeper->wake_ns = bpf_ktime_get_ns();
    }
    return 0;
}

#endif
