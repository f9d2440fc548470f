/*
 * Programs that record events of tracepoints as SAMPLE, each with the fields of its raw data (samples.h, and TP_fast_assign
 * in the kernel's include/trace/events). Like perf's events of CPUs, they record all tasks.
 *
 * They do not take the CPU's part (lo2_take_cpu), for an interrupt may start one program during another. Each program has
 * counters of its own. Since Linux 6.1, no program interrupts itself, so nothing else changes its counters. Only the
 * count of lost events is shared.
 */
#ifndef LO2IO_BPF_TRACEPOINTS_H
#define LO2IO_BPF_TRACEPOINTS_H

#include "cache.h"
#include "core.h"
#include "fits.h"
#include "sqes.h"
#include "waits.h"

/* Counts an event that finds no room. */
LO2_ONCE int lo2_lose_sample(__u32 place)
{
    __u32 number;
    struct lo2_bpf_cpu *cpu = lo2_this_cpu(&number);
    struct lo2_bpf_buffer *ring = lo2_ring_for(number, LO2_RING_EVENTS);

    if (!cpu)
        return 0;
    if (ring)
        lo2_join(ring);
    cpu->sampling.counts[place % LO2_MAX_SAMPLED].count++;
    cpu->sampling.counts[place % LO2_MAX_SAMPLED].lost++;
    lo2_lose_event(&cpu->sampling.losing, bpf_ktime_get_ns());
    if (ring)
        lo2_part(ring);
    return 0;
}

/* The place of a sample in the CPU's buffer of events. */
struct lo2_room {
    __u32 number;                  /* of the CPU */
    struct lo2_bpf_cpu *cpu;       /* NULL: not looked up yet */
    struct lo2_bpf_buffer *ring;
    __u64 at;
};

INLINE bool lo2_has_cpu(struct lo2_room *room)
{
    if (!room->cpu)
        room->cpu = lo2_this_cpu(&room->number);
    return room->cpu;
}

/*
 * Counts an event, and writes its record but for the fields. The caller writes these, and calls lo2_finish_marked(). NULL: the record
 * found no room, and the event counts as lost.
 *
 * The place is taken first, and its first and last word are written. While the clock is read, their cache lines come. The record of
 * an interrupt may have a later place and an earlier time; the reader sorts them.
 */
INLINE void *lo2_begin_sample(struct lo2_room *room, __u64 size, __u32 place)
{
    lo2_kernel_head *head = NULL;

    if (!lo2_has_cpu(room))
        return NULL;
    room->ring = lo2_ring_for(room->number, LO2_RING_EVENTS);
    if (room->ring && (!room->cpu->sampling.losing.lost || lo2_tell_lost_samples()))
        head = lo2_begin_marked(room->ring, size, &room->at, place);
    if (!head) {
        lo2_lose_sample(place);
        return NULL;
    }
    room->cpu->sampling.counts[place].count++;
    *(volatile __u64 *)((__u8 *)head + size - sizeof(__u64)) = 0;
    head->tid = bpf_get_current_task_btf()->pid;
    head->type = LO2_KERNEL_SAMPLE;
    head->event = lo2.sampled[place];
    head->time_ns = bpf_ktime_get_ns();
    return head;
}

/* A program. The code at the end sets `fields` from the tracepoint's arguments. */
#define LO2_SAMPLE_IF(name, is_on, ...) \
    SEC("tp_btf/" #name) \
    int lo2_on_##name(__u64 *context) \
    { \
        struct { \
            lo2_kernel_head head; \
            lo2_fields_##name fields; \
        } *sample; \
        struct lo2_room room = {}; \
        if (!(LO2_FITS_##name) || !(is_on)) \
            return 0; \
        sample = lo2_begin_sample(&room, sizeof *sample, LO2_SAMPLED_##name); \
        if (sample) { \
            lo2_fields_##name *fields = &sample->fields; \
            __builtin_memset(fields, 0, sizeof *fields); \
            __VA_ARGS__ \
            lo2_finish_marked(room.ring, sizeof *sample, room.at, LO2_SAMPLED_##name); \
        } \
        return 0; \
    }
#define LO2_SAMPLE(name, ...) LO2_SAMPLE_IF(name, lo2_switch.on, __VA_ARGS__)

/*
 * True if the CPU's perf event has counted this event. perf counts before the program runs, for its probe was there first
 * (kernel/tracepoint.c, func_add). So records and counts begin and end together:
 *
 *   perf counts        1  2  3  4  5  6  7
 *   program runs ─  ─  ●  ●  ●        ●  ●  ─  ─     4 and 5 are missing; ─: the count is as before, so nothing is recorded
 */
INLINE bool lo2_is_counted(struct lo2_room *room, __u32 place)
{
    __s64 count;

    if (!lo2_has_cpu(room))
        return false;
    count = bpf_perf_event_read(&lo2_counters, room->number * LO2_MAX_SAMPLED + place);
    if (count < 0 || (__u64)count == room->cpu->sampling.counted[place])
        return false;
    room->cpu->sampling.counted[place] = count;
    return true;
}

/* For events that may happen in an interrupt. Their counters, not lo2_switch, switch them on and off. */
#define LO2_COUNTED_SAMPLE(name, ...) LO2_SAMPLE_IF(name, lo2_is_counted(&room, LO2_SAMPLED_##name), __VA_ARGS__)

/* ---- io_uring ---- */

#define LO2_OF_REQUEST \
    struct io_kiocb *request = (struct io_kiocb *)context[0]; \
    fields->ctx = (__u64)LO2_MEMBER(true, request, struct io_kiocb, ctx); \
    fields->req = (__u64)request;
#define LO2_SETUP_SQPOLL 2

/* A request completes: ends the CPU's runs of pages, and forgets the descriptors and places that the request changed. */
INLINE bool lo2_completes(struct lo2_room *room, const __u64 *context)
{
    if (!lo2_has_cpu(room))
        return false;
    lo2_end_runs_of(room->cpu);
    if (lo2_changes_places(LO2_READ((const struct io_kiocb *)context[1], struct io_kiocb, opcode)))
        lo2_forget_asked(lo2_as_number((const void *)context[0]), context[1]);
    return true;
}

/* The size of a submission's record: lo2_submitted in samples.h. */
enum {
    LO2_ASKED_SHORT = __builtin_offsetof(lo2_asked, offset),
    LO2_ASKED_USUAL = __builtin_offsetof(lo2_asked, buf_index)
};
INLINE __u64 lo2_submitted_bytes(const lo2_asked *asked)
{
    __u64 size = sizeof *asked;

    if (!asked->buf_index && !asked->file_index && !asked->file2 && asked->bytes == LO2_NO_BYTES)
        size = asked->offset || asked->length || asked->op_flags || asked->file ? LO2_ASKED_USUAL : LO2_ASKED_SHORT;
    return __builtin_offsetof(lo2_submitted, asked) + size;
}

/* The record ends with what the request asks for, which can be read off the submission queue only now. */
SEC("tp_btf/io_uring_submit_req")
int lo2_on_io_uring_submit_req(__u64 *context)
{
    struct io_kiocb *request = (struct io_kiocb *)context[0];
    struct lo2_submission submission = { .request = request, .typed = true };
    struct lo2_room room = {};
    lo2_asked *asked;
    lo2_submitted *sample;
    __u64 size = __builtin_offsetof(lo2_submitted, asked);

    if (!lo2_switch.on || !LO2_FITS_io_uring_submit_req || !lo2_has_cpu(&room))
        return 0;
    lo2_end_runs_of(room.cpu);
    asked = &room.cpu->sampling.asked;
    submission.ctx = LO2_MEMBER(true, request, struct io_kiocb, ctx);
    submission.ring_flags = LO2_READ(submission.ctx, struct io_ring_ctx, flags);
    if (lo2_ask(&submission, room.cpu, asked))
        size = lo2_submitted_bytes(asked);
    sample = lo2_begin_sample(&room, size, LO2_SAMPLED_io_uring_submit_req);
    if (sample) {
        lo2_fields_io_uring_submit_req *fields = &sample->fields;
        __builtin_memset(fields, 0, sizeof *fields);
        fields->ctx = (__u64)submission.ctx;
        fields->req = (__u64)request;
        fields->user_data = request->cqe.user_data;
        fields->opcode = request->opcode;
        fields->flags = request->flags;
        fields->sq_thread = (submission.ring_flags & LO2_SETUP_SQPOLL) != 0;
        if (size > __builtin_offsetof(lo2_submitted, asked))
            lo2_copy(&sample->asked, asked, LO2_ASKED_SHORT);
        if (size > __builtin_offsetof(lo2_submitted, asked) + LO2_ASKED_SHORT)
            lo2_copy(&sample->asked.offset, &asked->offset, LO2_ASKED_USUAL - LO2_ASKED_SHORT);
        if (size > __builtin_offsetof(lo2_submitted, asked) + LO2_ASKED_USUAL)
            lo2_copy(&sample->asked.buf_index, &asked->buf_index, sizeof *asked - LO2_ASKED_USUAL);
        lo2_finish_marked(room.ring, size, room.at, LO2_SAMPLED_io_uring_submit_req);
    }
    return 0;
}
LO2_SAMPLE_IF(io_uring_complete, lo2_switch.on && lo2_completes(&room, context), {
    const struct io_uring_cqe *cqe = (const struct io_uring_cqe *)context[2];
    fields->ctx = context[0];
    fields->req = context[1];
    fields->user_data = cqe->user_data;
    fields->res = cqe->res;
    fields->cflags = cqe->flags;
})
LO2_SAMPLE(io_uring_file_get, {
    LO2_OF_REQUEST
    fields->user_data = request->cqe.user_data;
    fields->fd = context[1];
})
LO2_SAMPLE(io_uring_queue_async_work, {
    LO2_OF_REQUEST
    fields->user_data = request->cqe.user_data;
    fields->opcode = request->opcode;
    fields->flags = request->flags;
    fields->rw = context[1];
})
LO2_SAMPLE(io_uring_poll_arm, {
    LO2_OF_REQUEST
    fields->user_data = request->cqe.user_data;
    fields->opcode = request->opcode;
    fields->mask = context[1];
    fields->events = context[2];
})
/* The event comes where a file becomes ready. That may be in an interrupt. */
LO2_COUNTED_SAMPLE(io_uring_task_add, {
    LO2_OF_REQUEST
    fields->user_data = request->cqe.user_data;
    fields->opcode = request->opcode;
    fields->mask = context[1];
})
/* the filter in tracepoints/io_uring.toml */
LO2_SAMPLE_IF(io_uring_task_work_run, lo2_switch.on && (__u32)context[1], {
    fields->tctx = context[0];
    fields->count = context[1];
})
LO2_SAMPLE(io_uring_local_work_run, {
    fields->ctx = context[0];
    fields->count = context[1];
})
LO2_SAMPLE(io_uring_link, {
    LO2_OF_REQUEST
    fields->target_req = context[1];
})
LO2_SAMPLE(io_uring_fail_link, {
    LO2_OF_REQUEST
    fields->user_data = request->cqe.user_data;
    fields->opcode = request->opcode;
    fields->link = context[1];
})
LO2_SAMPLE(io_uring_defer, {
    LO2_OF_REQUEST
    fields->data = request->cqe.user_data;
    fields->opcode = request->opcode;
})
LO2_SAMPLE(io_uring_cqring_wait, {
    fields->ctx = context[0];
    fields->min_events = context[1];
})
LO2_SAMPLE(io_uring_cqe_overflow, {
    fields->ctx = context[0];
    fields->user_data = context[1];
    fields->res = context[2];
    fields->cflags = context[3];
})
LO2_SAMPLE(io_uring_short_write, {
    fields->ctx = context[0];
    fields->fpos = context[1];
    fields->wanted = context[2];
    fields->got = context[3];
})
LO2_SAMPLE(io_uring_create, {
    fields->fd = context[0];
    fields->ctx = context[1];
    fields->sq_entries = context[2];
    fields->cq_entries = context[3];
    fields->flags = context[4];
})
LO2_SAMPLE(io_uring_register, {
    fields->ctx = context[0];
    fields->opcode = context[1];
    fields->nr_files = context[2];
    fields->nr_bufs = context[3];
    fields->ret = context[4];
    lo2_forget(context[0], -1);
})

/* ---- sched ---- */

/* A thread's state as in the tracepoint: __trace_sched_switch_state and __task_state_index, include/linux/sched.h. */
INLINE __u64 lo2_switch_state(bool preempt, __u32 state, const struct task_struct *task)
{
    enum {
        REPORT = 0x7f, REPORT_IDLE = 0x80, REPORT_MAX = 0x100, UNINTERRUPTIBLE = 2, IDLE = 2 | 0x400,
        RTLOCK_WAIT = 0x1000, FROZEN = 0x8000
    };
    __u32 told = (state | task->exit_state) & REPORT;

    if (preempt)
        return REPORT_MAX;
    if ((state & IDLE) == IDLE)
        told = REPORT_IDLE;
    if (state & (RTLOCK_WAIT | FROZEN))
        told = UNINTERRUPTIBLE;
    told |= told >> 1; /* the highest bit alone */
    told |= told >> 2;
    told |= told >> 4;
    return told - (told >> 1);
}

/* Does the work of lo2_switch_task and of lo2_waits_sched_switch, too: one program finds the CPU's part and reads the clock once. */
SEC("tp_btf/sched_switch")
int lo2_on_sched_switch(__u64 *context)
{
    const struct task_struct *prev = (const struct task_struct *)context[1], *next = (const struct task_struct *)context[2];
    struct {
        lo2_kernel_head head;
        lo2_fields_sched_switch fields;
    } *sample;
    struct lo2_room room = {};
    __u64 time_ns;

    if (!lo2_switch.on || !LO2_FITS_sched_switch || !lo2_has_cpu(&room))
        return 0;
    lo2_cache_switches(room.cpu, room.number, next);
    sample = lo2_begin_sample(&room, sizeof *sample, LO2_SAMPLED_sched_switch);
    if (sample) {
        time_ns = sample->head.time_ns;
        __builtin_memset(&sample->fields, 0, sizeof sample->fields);
        sample->fields.prev_pid = prev->pid;
        sample->fields.prev_state = lo2_switch_state(context[0], context[3], prev);
        sample->fields.next_pid = next->pid;
        lo2_finish_marked(room.ring, sizeof *sample, room.at, LO2_SAMPLED_sched_switch);
    } else {
        time_ns = bpf_ktime_get_ns();
    }
    if (lo2_has_layer(LO2_LAYER_waits) && LO2_LAYER_FITS_waits)
        lo2_follow_switch(room.cpu, room.number, context, time_ns);
    else
        lo2_leave_cpu(room.cpu, room.number);
    return 0;
}

#endif
