/*
 * The programs that run in the kernel. Each is loaded once, however many events it is attached to.
 *
 * A call that keeps its CPU from entry to exit becomes one record: a CPU's slot holds the call that runs there. If the
 * thread loses the CPU, sched_switch comes first: it writes the entry and empties the slot. So no table of threads is
 * needed, and the records of a CPU are in the order of their times.
 *
 * On each CPU, the programs that record calls exclude each other. Most kernels run them with preemption disabled
 * (kernel/trace/trace_syscalls.c, include/linux/tracepoint.h), and none of them is attached to events of interrupts.
 * Since Linux 6.19, a thread may lose its CPU in the middle of a program, and comes back to the same CPU. So each of
 * these programs takes the CPU's part for itself (lo2_take_cpu). Programs of other tracepoints may interrupt one
 * another (tracepoints.h, events.h).
 */
#include "core.h"

#include "block.h"
#include "cache.h"
#include "files.h"
#include "iocbs.h"
#include "layers.h"
#include "paths.h"
#include "sqes.h"
#include "tracepoints.h"
#include "values.h"

/*
 * perf_call_bpf_enter and perf_call_bpf_exit in kernel/trace/trace_syscalls.c. At an entry, the arguments follow the
 * number. They are not read here, for the kernel refuses to attach a program that reads more of them than the call has.
 */
struct lo2_enter_context {
    __u64 entry;
    __s32 number;
};
struct lo2_exit_context {
    __u64 entry;
    __s32 number;
    __s64 result;
};
struct lo2_raw_context {
    __u64 args[3];
};

/* If a program returns 0, perf events of the same tracepoint get nothing. */
#define LO2_GO_ON 1

INLINE void enter(struct lo2_moment *moment, const struct pt_regs *regs, __u32 index, __u32 number)
{
    struct lo2_bpf_cpu *cpu = moment->cpu;
    struct lo2_bpf_slot *slot = &cpu->slot;
    const volatile struct lo2_bpf_call *call = moment->call;

    if (slot->occupied) { /* a call that never returns (rt_sigreturn), or a missed switch */
        if (slot->record.head.tid != (__u32)moment->task->pid)
            cpu->misses.unpaired++;
        lo2_flush_slot(cpu, moment->ring);
    }
    lo2_end_runs_of(cpu);
    lo2_read_arguments(cpu, regs, number);
    if (lo2.config.facts && call->flags & LO2_CALL_CLOSES)
        lo2_look_at_descriptor(moment, lo2_descriptor(moment, call->fd));
    moment->time_ns = bpf_ktime_get_ns(); /* after the look: see lo2_look_at_files() */
    if (lo2.config.calls) {
        lo2_fill_head(&slot->record.head, moment, LO2_KERNEL_CALL, call->enter_event);
        slot->record.exit_event = call->exit_event;
        slot->record.nr_args = call->nr_args;
        slot->call = index;
        slot->occupied = 1;
        cpu->counts[call->enter_index % LO2_MAX_EVENTS].count++;
    }
    if (lo2.config.facts) {
        if (call->flags & LO2_CALL_CLOSES)
            lo2_files_at_entry(moment);
        if (call->flags & LO2_CALL_FIRST)
            lo2_paths_at_entry(moment);
        if (call->iocbs)
            lo2_iocbs_at_entry(moment);
    }
}

/* For recorded tasks, at the raw pair and at single tracepoints. */
INLINE void begin(struct task_struct *task, const struct pt_regs *regs, __u32 index, __u32 number)
{
    struct lo2_moment moment = { .task = task, .compat = number & LO2_COMPAT };
    __u32 cpu_number;

    moment.cpu = lo2_this_cpu(&cpu_number);
    if (!moment.cpu)
        return;
    moment.ring = lo2_ring(&cpu_number);
    if (!moment.ring) /* this CPU is not recorded (--cpus) */
        return;
    moment.call = &lo2.calls[index % LO2_MAX_CALLS];
    if (!lo2_take_cpu(moment.cpu))
        return;
    enter(&moment, regs, index, number);
    lo2_give_back(moment.cpu);
}

/* 1 + index of the current task's call; 0: not recorded. *number gets LO2_COMPAT if the call is a 32 bit one. */
INLINE __u32 find_call(struct task_struct *task, const struct pt_regs *regs, __u64 *number)
{
    if (!lo2_is_compat(task))
        return *number < LO2_MAX_CALLS ? lo2.of_number[*number] : 0;
    *number = lo2_compat_number(regs, *number);
    if (*number >= LO2_MAX_CALLS)
        return 0;
    *number |= LO2_COMPAT;
    return lo2.compat[*number % LO2_MAX_CALLS].call;
}

/* Counts calls whose meaning is unknown: x32 calls, and 32 bit calls on machines whose numbers lo2io does not know. */
INLINE void count_foreign(struct task_struct *task, __u64 number)
{
    __u32 cpu_number;
    struct lo2_bpf_cpu *cpu;

    if ((!lo2_is_x32(number) && (lo2.config.compat || !lo2_is_compat(task))) || !lo2_is_recorded(task))
        return;
    cpu = lo2_this_cpu(&cpu_number);
    if (cpu)
        cpu->misses.foreign++;
}

/* True if neither a 64 bit call nor a 32 bit call of this number is recorded. Finding the current task takes longer than this. */
INLINE bool is_nobodys(__u64 number)
{
    return number >= LO2_MAX_CALLS || !lo2.wanted[number];
}

SEC("tp_btf/sys_enter")
int lo2_raw_enter(__u64 *context)
{
    const struct pt_regs *regs = (const struct pt_regs *)context[0];
    __u64 number = context[1];
    struct task_struct *task;
    __u32 index;

    if (!lo2_switch.on || (lo2.config.compat && !lo2_is_x32(number) && is_nobodys(number)))
        return 0;
    task = bpf_get_current_task_btf();
    index = find_call(task, regs, &number);
    if (index && lo2_is_recorded(task))
        begin(task, regs, index - 1, number);
    else if (!index)
        count_foreign(task, number);
    return 0;
}

/* The index of the call that this single tracepoint belongs to: by its number, or if the number is unknown, by the event. */
INLINE __u32 own_call(void *context, __u32 number)
{
    __u32 index = number < LO2_MAX_CALLS ? lo2.of_number[number] : 0;

    return index ? index - 1 : bpf_get_attach_cookie(context);
}

SEC("tracepoint")
int lo2_enter(struct lo2_enter_context *context)
{
    struct task_struct *task;
    __u32 number = context->number;

    if (!lo2_switch.on)
        return LO2_GO_ON;
    task = bpf_get_current_task_btf();
    if (lo2_is_recorded(task))
        begin(task, (const struct pt_regs *)bpf_task_pt_regs(task), own_call(context, number), number);
    return LO2_GO_ON;
}

/* True if the filters leave this call out. Only a call that matters for its own row alone may be left out. */
INLINE bool is_left_out(struct lo2_moment *moment, __u64 duration_ns)
{
    if (!(moment->call->flags & LO2_CALL_DROPPABLE))
        return false;
    if (duration_ns < lo2.config.min_latency_ns)
        return true;
    if (lo2.config.min_bytes && moment->call->count &&
        lo2_argument(moment, moment->call->count) < (__u64)lo2.config.min_bytes)
        return true;
    return lo2_files_left_out(moment);
}

/* Copies all arguments, of which the record takes nr_args. */
INLINE bool copy_call(struct lo2_bpf_cpu *cpu, struct lo2_bpf_buffer *ring, const lo2_kernel_call *record)
{
    lo2_kernel_call *copy = lo2_begin_next(cpu, ring, sizeof *copy);

    if (!copy)
        return false;
    lo2_copy(copy, record, sizeof *copy);
    lo2_finish(ring, __builtin_offsetof(lo2_kernel_call, args) + (record->nr_args & 7) * sizeof(__u64));
    return true;
}

INLINE bool write_call(struct lo2_moment *moment)
{
    struct lo2_bpf_cpu *cpu = moment->cpu;
    lo2_kernel_call *record = &cpu->slot.record;
    const volatile struct lo2_bpf_call *call = moment->call;
    __u64 duration_ns = moment->time_ns - record->head.time_ns;
    struct lo2_bpf_counts *enters = &cpu->counts[call->enter_index % LO2_MAX_EVENTS];
    struct lo2_bpf_counts *exits = &cpu->counts[call->exit_index % LO2_MAX_EVENTS];

    cpu->slot.occupied = 0;
    if (call->flags & LO2_CALL_SLEPT) { /* it kept its CPU: nothing was recorded, so nothing counts */
        enters->count--;
        return false;
    }
    exits->count++;
    if (is_left_out(moment, duration_ns)) {
        enters->left_out++;
        exits->left_out++;
        return false;
    }
    record->duration_ns = duration_ns;
    record->result = moment->result;
    record->position = moment->position;
    record->value = moment->value;
    if (!copy_call(cpu, moment->ring, record)) {
        enters->lost++;
        exits->lost++;
        lo2_lose(cpu, 2, record->head.time_ns, moment->time_ns);
    }
    return true;
}

/* Ends the call's stretches without a CPU. False: a stretch is missing, and no record could be written to say so. */
INLINE bool end_sleeps(struct lo2_moment *moment)
{
    __u32 tid = moment->task->pid;
    struct lo2_bpf_sleeper *sleeper = lo2_has_layer(LO2_LAYER_waits) ? lo2_sleeper_in_call(tid) : NULL;
    lo2_kernel_sleep record = { .head.time_ns = moment->time_ns, .flags = LO2_SLEEP_ENDLESS };
    bool told = true;

    if (!sleeper)
        return true;
    if (sleeper->out_ns || sleeper->lost) {
        if (!sleeper->out_ns)
            sleeper->out_ns = moment->time_ns;
        told = lo2_write_sleep(moment->cpu, moment->ring, sleeper, &record);
    }
    lo2_free_sleeper(tid);
    return told;
}

INLINE void write_exit(struct lo2_moment *moment)
{
    struct lo2_bpf_counts *exits = &moment->cpu->counts[moment->call->exit_index % LO2_MAX_EVENTS];
    lo2_kernel_exit record = {
        .result = moment->result, .position = moment->position, .value = moment->value,
    };

    exits->count++;
    lo2_fill_head(&record.head, moment, LO2_KERNEL_EXIT, moment->call->exit_event);
    if (!end_sleeps(moment) || !lo2_write(moment->cpu, moment->ring, &record, sizeof record)) {
        exits->lost++;
        lo2_lose(moment->cpu, 1, moment->time_ns, moment->time_ns);
    }
}

INLINE void write_value(struct lo2_moment *moment)
{
    lo2_kernel_value record = { .position = moment->position, .value = moment->value };

    if (moment->position == INT64_MIN && moment->value == INT64_MIN)
        return;
    lo2_fill_head(&record.head, moment, LO2_KERNEL_VALUE, 0);
    lo2_write_fact(moment->cpu, moment->ring, &record, sizeof record);
}

/* Compares the call, not its number, for an exec may lead from a 64 bit program to a 32 bit one, and back. */
INLINE bool is_paired(const struct lo2_bpf_slot *slot, const struct task_struct *task, __u32 index)
{
    return slot->occupied && slot->record.head.tid == (__u32)task->pid && slot->call == index;
}

INLINE void leave(struct lo2_moment *moment, __u32 index, __u32 number)
{
    struct lo2_bpf_slot *slot = &moment->cpu->slot;
    bool paired = is_paired(slot, moment->task, index);
    __u64 begin_ns = slot->record.head.time_ns;

    if (!paired) {
        if (slot->occupied) { /* the call of a thread that took the leader's number in exec, or a missed switch */
            moment->cpu->misses.unpaired++;
            lo2_flush_slot(moment->cpu, moment->ring);
        }
        if (lo2.config.facts || moment->compat)
            lo2_read_arguments(moment->cpu, (const struct pt_regs *)bpf_task_pt_regs(moment->task), number);
    }
    if (moment->compat)
        moment->result = lo2_compat_result(moment->cpu, number, moment->result);
    lo2_end_runs_of(moment->cpu);
    moment->time_ns = bpf_ktime_get_ns();
    if (lo2.config.facts) {
        if (lo2_look_at_files(moment))
            moment->time_ns = bpf_ktime_get_ns();
        lo2_look_at_values(moment);
    }
    if (!lo2.config.calls)
        write_value(moment);
    else if (!paired)
        write_exit(moment);
    else if (!write_call(moment))
        return;
    if (lo2.config.facts) {
        lo2_write_files(moment);
        lo2_write_paths(moment);
        if (moment->call->events)
            lo2_events_at_exit(moment);
    }
    if (lo2_has_layer(LO2_LAYER_stacks) && lo2.config.calls)
        lo2_stack_at_exit(moment, paired ? begin_ns : lo2_when_begun(moment->task->pid));
}

/* As begin(), at an exit. The caller has not checked whether the task is recorded. */
INLINE void end(struct task_struct *task, __u32 index, __u32 number, __s64 result)
{
    struct lo2_moment moment = {
        .task = task, .compat = number & LO2_COMPAT, .result = result, .position = INT64_MIN, .value = INT64_MIN,
    };
    __u32 cpu_number;

    moment.cpu = lo2_this_cpu(&cpu_number);
    if (!moment.cpu || (!is_paired(&moment.cpu->slot, task, index) && !lo2_is_recorded(task)))
        return;
    moment.ring = lo2_ring(&cpu_number);
    if (!moment.ring) { /* this CPU is not recorded, but the call may have begun on one that is */
        if (lo2_has_layer(LO2_LAYER_waits))
            lo2_free_sleeper(task->pid);
        return;
    }
    moment.call = &lo2.calls[index % LO2_MAX_CALLS];
    if (!lo2_take_cpu(moment.cpu))
        return;
    leave(&moment, index, number);
    lo2_give_back(moment.cpu);
}

SEC("tp_btf/sys_exit")
int lo2_raw_exit(__u64 *context)
{
    const struct pt_regs *regs = (const struct pt_regs *)context[0];
    __u64 number = lo2_call_number(regs);
    struct task_struct *task;
    __u32 index;

    if (!lo2_switch.on || is_nobodys(number))
        return 0;
    task = bpf_get_current_task_btf();
    index = find_call(task, regs, &number);
    if (index)
        end(task, index - 1, number, context[1]);
    return 0;
}

SEC("tracepoint")
int lo2_exit(struct lo2_exit_context *context)
{
    __u32 number = context->number;

    if (lo2_switch.on)
        end(bpf_get_current_task_btf(), own_call(context, number), number, context->result);
    return LO2_GO_ON;
}

/* sched:sched_switch(bool preempt, struct task_struct *prev, struct task_struct *next, ...) */
SEC("raw_tp/sched_switch")
int lo2_switch_task(struct lo2_raw_context *context)
{
    __u32 number;
    struct lo2_bpf_cpu *cpu;

    if (!lo2_switch.on)
        return 0;
    cpu = lo2_this_cpu(&number);
    if (!cpu)
        return 0;
    lo2_cache_switches(cpu, number, (const struct task_struct *)context->args[2]);
    lo2_leave_cpu(cpu, number);
    return 0;
}

/* A child is recorded from its first call on, for the kernel starts it after this event (kernel/fork.c, kernel_clone). */
SEC("raw_tp/sched_process_fork")
int lo2_fork(struct lo2_raw_context *context)
{
    struct task_struct *parent = (struct task_struct *)context->args[0];
    struct task_struct *child = (struct task_struct *)context->args[1];
    __u8 *selected = lo2_selection(BPF_CORE_READ(parent, tgid));
    __u8 *other;

    if (!selected || !*selected)
        return 0;
    other = lo2_selection(BPF_CORE_READ(child, tgid));
    if (other)
        *other = 1;
    return 0;
}

/* The thread's call, if any, never returns. So its entry is written first. */
INLINE void write_usage(struct task_struct *task)
{
    lo2_kernel_usage record = { .block_delay_ns = -1 };
    struct lo2_moment moment = { .task = task };
    struct task_delay_info *delays;
    __u32 cpu_number;
    struct lo2_bpf_buffer *ring;

    if (!lo2_switch.on || !lo2_is_recorded(task))
        return;
    moment.cpu = lo2_this_cpu(&cpu_number);
    if (!moment.cpu || !lo2_take_cpu(moment.cpu))
        return;
    ring = lo2_ring(&cpu_number);
    if (moment.cpu->slot.occupied)
        lo2_flush_slot(moment.cpu, ring);
    moment.time_ns = bpf_ktime_get_ns();
    lo2_fill_head(&record.head, &moment, LO2_KERNEL_USAGE, 0);
    record.cpu_ns = BPF_CORE_READ(task, se.sum_exec_runtime);
    record.user = BPF_CORE_READ(task, utime);
    record.system = BPF_CORE_READ(task, stime);
    record.major_faults = BPF_CORE_READ(task, maj_flt);
    record.minor_faults = BPF_CORE_READ(task, min_flt);
    record.voluntary = BPF_CORE_READ(task, nvcsw);
    record.involuntary = BPF_CORE_READ(task, nivcsw);
    if (bpf_core_field_exists(task->delays) && (delays = BPF_CORE_READ(task, delays)))
        record.block_delay_ns = BPF_CORE_READ(delays, blkio_delay);
    lo2_write_fact(moment.cpu, ring, &record, sizeof record);
    if (lo2_has_layer(LO2_LAYER_waits))
        lo2_free_sleeper(task->pid);
    lo2_give_back(moment.cpu);
}

/* Writes the arguments of a new program, which exec has put into the program's memory. */
INLINE void write_command(struct lo2_moment *moment)
{
    struct lo2_bpf_names *names = &moment->cpu->names;
    lo2_kernel_exec *record = (lo2_kernel_exec *)names->record;
    struct task_struct *task = moment->task;
    __u64 begin = BPF_CORE_READ(task, mm, arg_start);
    __u64 length = BPF_CORE_READ(task, mm, arg_end) - begin;
    __u32 size = length < LO2_MAX_COMMAND ? length : LO2_MAX_COMMAND;

    if (bpf_probe_read_user(record + 1, size, (const void *)begin)) {
        moment->cpu->misses.unreadable++;
        return;
    }
    lo2_fill_head(&record->head, moment, LO2_KERNEL_EXEC, 0);
    record->length = size;
    record->cut = length > size;
    __builtin_memset(record->reserved, 0, sizeof record->reserved);
    lo2_write_fact(moment->cpu, moment->ring, record, sizeof *record + size);
}

/*
 * The new program is in place and has not run yet (fs/exec.c, exec_binprm). Its thread is inside of execve, whose entry is
 * written first, for it was earlier.
 */
SEC("raw_tp/sched_process_exec")
int lo2_exec(void *context)
{
    struct lo2_moment moment = { .task = bpf_get_current_task_btf() };
    __u32 cpu_number;

    if (!lo2_switch.on || !lo2_is_recorded(moment.task))
        return 0;
    moment.cpu = lo2_this_cpu(&cpu_number);
    if (!moment.cpu || !lo2_take_cpu(moment.cpu))
        return 0;
    moment.ring = lo2_ring(&cpu_number);
    if (moment.cpu->slot.occupied)
        lo2_flush_slot(moment.cpu, moment.ring);
    moment.time_ns = bpf_ktime_get_ns();
    write_command(&moment);
    lo2_give_back(moment.cpu);
    return 0;
}

/* A process' number may be used again when its last thread is gone. */
SEC("raw_tp/sched_process_exit")
int lo2_exit_task(struct lo2_raw_context *context)
{
    struct task_struct *task = bpf_get_current_task_btf(); /* the task that exits: kernel/exit.c, do_exit */
    __u8 *selected;

    write_usage(task);
    if (BPF_CORE_READ(task, signal, live.counter))
        return 0;
    selected = lo2_selection(BPF_CORE_READ(task, tgid));
    if (selected)
        *selected = 0;
    return 0;
}

/* io_uring:io_uring_submit_req(struct io_kiocb *) */
SEC("raw_tp/io_uring_submit_req")
int lo2_submit(struct lo2_raw_context *context)
{
    if (lo2_switch.on)
        lo2_write_sqe((const struct io_kiocb *)context->args[0]);
    return 0;
}

/* io_uring:io_uring_complete(struct io_ring_ctx *, struct io_kiocb *, ...): a CLOSE may come long after its submission. */
SEC("raw_tp/io_uring_complete")
int lo2_complete(struct lo2_raw_context *context)
{
    if (lo2_switch.on)
        lo2_forget_asked(context->args[0], context->args[1]);
    return 0;
}

/* io_uring:io_uring_register(struct io_ring_ctx *, ...), when the call has done its work. */
SEC("raw_tp/io_uring_register")
int lo2_register(struct lo2_raw_context *context)
{
    if (lo2_switch.on)
        lo2_forget(context->args[0], -1);
    return 0;
}

char lo2_licence[] SEC("license") = "Dual BSD/GPL";
