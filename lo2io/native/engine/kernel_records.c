/*
 * Records that BPF programs wrote: system calls, facts about them, and events of tracepoints (bpf/programs/records.h).
 *
 * on_enter() and on_exit_call() expect a sample's raw data: argument i at 16 + 8 * i, the result at 16
 * (lo2io/catalog/layouts.py checks that). A program's record has the same values at other offsets. So both functions get
 * a pointer that lies 16 bytes before the record's arguments, or before its result.
 *
 * A record is undecoded if its type is unknown, if it is too short for its type, if it has too few arguments for the
 * fields of the call, or if its content is impossible. One that is not finished, or shorter than any record, ends the
 * file (input/stream.c).
 */
#include "block/commits.h"
#include "block/dirty.h"
#include "block/requests.h"
#include "calls/cache_calls.h"
#include "calls/calls.h"
#include "calls/faults.h"
#include "calls/fuse.h"
#include "calls/kernel_facts.h"
#include "engine/gaps.h"
#include "engine/kernel_records.h"
#include "engine/samples.h"

enum { ARGUMENTS_AT = 16, MAX_ARGUMENTS = 6 };

static void count(engine *e, const stream *s, const lo2_event *event)
{
    e->seen[(size_t)s->index * e->config.nr_events + event->event]++;
}

/* The event of an entry or an exit; NULL if the record cannot be one. */
static const lo2_event *event_of(engine *e, uint16_t type, uint16_t role, uint32_t raw_size)
{
    const lo2_event *event = type < e->config.nr_types ? &e->events[type] : NULL;
    e->totals.nr_samples++;
    if (event && event->event != NONE && event->role == role && raw_size >= e->min_raw[type])
        return event;
    e->totals.nr_undecoded++;
    return NULL;
}

static void entered(engine *e, const stream *s, const uint8_t *record, uint32_t length, uint32_t arguments, int64_t time)
{
    lo2_kernel_head head;
    uint16_t nr_args = 0;
    memcpy(&head, record, sizeof head);
    if (length >= arguments)
        memcpy(&nr_args, record + (head.type == LO2_KERNEL_CALL ? offsetof(lo2_kernel_call, nr_args)
                                                                : offsetof(lo2_kernel_enter, nr_args)), 2);
    bool whole = nr_args <= MAX_ARGUMENTS && length >= arguments + 8u * nr_args;
    uint32_t raw_size = whole ? ARGUMENTS_AT + 8u * nr_args : 0;
    const lo2_event *event = event_of(e, head.event, LO2_ROLE_ENTER, raw_size);
    if (!event)
        return;
    count(e, s, event);
    task *t = caller_of(e, head.tid, true, time);
    if (!t)
        return;
    on_enter(e, t, event, record + arguments - ARGUMENTS_AT, raw_size, (uint16_t)s->cpu, time);
    if (head.type == LO2_KERNEL_ENTER) {
        uint16_t unfollowed;
        memcpy(&unfollowed, record + offsetof(lo2_kernel_enter, unfollowed), sizeof unfollowed);
        t->pending.unseen |= unfollowed != 0;
    }
}

/* `result`: offset of the result in the record; position and value follow the result. */
static void left(engine *e, const stream *s, const uint8_t *record, uint32_t length, uint16_t type, uint32_t result, int64_t time)
{
    lo2_kernel_head head;
    memcpy(&head, record, sizeof head);
    const lo2_event *event = event_of(e, type, LO2_ROLE_EXIT, length >= result + 24 ? ARGUMENTS_AT + 8 : 0);
    if (!event)
        return;
    count(e, s, event);
    task *t = caller_of(e, head.tid, false, time);
    if (!t)
        return;
    if (t->pending.active) {
        memcpy(&t->pending.told_position, record + result + 8, 8);
        memcpy(&t->pending.told_value, record + result + 16, 8);
    }
    on_exit_call(e, t, event, record + result - ARGUMENTS_AT, time);
}

static void whole_left(engine *e, const stream *s, const uint8_t *record, uint32_t length, int64_t time)
{
    uint16_t type;
    memcpy(&type, record + offsetof(lo2_kernel_call, exit_event), 2);
    left(e, s, record, length, type, offsetof(lo2_kernel_call, result), time);
}

static void on_kernel_lost(engine *e, const stream *s, const uint8_t *record, uint32_t length, int64_t time)
{
    lo2_kernel_lost lost;
    if (length < sizeof lost) {
        e->totals.nr_undecoded++;
        return;
    }
    memcpy(&lost, record, sizeof lost);
    int64_t begin = (int64_t)lost.begin_ns;
    bool of_rows = lost.head.event == LO2_LOST_ROWS || !lost.lost; /* older programs did not write the number of rows */
    e->totals.nr_lost_rows += of_rows ? lost.lost + !lost.lost : 0;
    add_loss(e, s, begin < time ? begin : time, time, of_rows ? 0 : lost.lost);
}

/* The record of a submission ends with what the request asks for. Hands this on as an SQE record before the submission. */
static void submitted(engine *e, const uint8_t *record, uint32_t length)
{
    lo2_submitted submission = {.asked = {.bytes = UINT64_MAX}};
    memcpy(&submission, record, length < sizeof submission ? length : sizeof submission);
    lo2_kernel_sqe sqe = {
        .head = {.time_ns = submission.head.time_ns, .tid = submission.head.tid, .type = LO2_KERNEL_SQE},
        .request = submission.fields.req,
        .ring = submission.fields.ctx,
        .user_data = submission.fields.user_data,
        .asked = submission.asked,
    };
    on_kernel_fact(e, (const uint8_t *)&sqe, sizeof sqe, &sqe.head);
}

/* The fields lie after the head as they lie after the common fields in raw data. */
static void on_kernel_sample(engine *e, const stream *s, const uint8_t *record, uint32_t length, int64_t time)
{
    enum { RAW_AT = sizeof(lo2_kernel_head) - LO2_FIELDS_AT };
    lo2_kernel_head head;
    memcpy(&head, record, sizeof head);
    if (length >= offsetof(lo2_submitted, asked.offset) && head.event < e->config.nr_types &&
        e->events[head.event].role == LO2_ROLE_RING_SUBMIT)
        submitted(e, record, length);
    on_event(e, s, head.event, head.tid, record + RAW_AT, length - RAW_AT, time);
}

void on_kernel_record(engine *e, const stream *s, uint32_t offset, int64_t time)
{
    const uint8_t *record = s->buffer + (offset & ~(uint32_t)STREAM_MARKS);
    lo2_kernel_head head;
    uint32_t length;
    memcpy(&length, record - 8, 4);
    length = kernel_record_length(length);
    memcpy(&head, record, sizeof head);
    if (offset & STREAM_EXIT)
        whole_left(e, s, record, length, time);
    else if (head.type == LO2_KERNEL_CALL)
        entered(e, s, record, length, offsetof(lo2_kernel_call, args), time);
    else if (head.type == LO2_KERNEL_ENTER)
        entered(e, s, record, length, offsetof(lo2_kernel_enter, args), time);
    else if (head.type == LO2_KERNEL_EXIT)
        left(e, s, record, length, head.event, offsetof(lo2_kernel_exit, result), time);
    else if (head.type == LO2_KERNEL_SAMPLE)
        on_kernel_sample(e, s, record, length, time);
    else if (head.type == LO2_KERNEL_PARTS)
        on_kernel_parts(e, record, length);
    else if (head.type == LO2_KERNEL_DIRTY)
        on_kernel_dirty(e, record, length);
    else if (head.type == LO2_KERNEL_WRITEBACK)
        on_kernel_writeback(e, record, length, time);
    else if (head.type == LO2_KERNEL_COMMIT)
        on_kernel_commit(e, record, length, time);
    else if (head.type == LO2_KERNEL_FILL || head.type == LO2_KERNEL_EVICT)
        on_kernel_pages(e, record, length, time);
    else if (head.type == LO2_KERNEL_IOWAIT)
        on_kernel_io_wait(e, record, length, time);
    else if (head.type == LO2_KERNEL_FAULT)
        on_kernel_fault(e, record, length, (uint16_t)s->cpu, time);
    else if (head.type == LO2_KERNEL_FUSE_SEND)
        on_kernel_fuse_send(e, record, length, time);
    else if (head.type == LO2_KERNEL_FUSE_END)
        on_kernel_fuse_end(e, record, length, time);
    else if (head.type == LO2_KERNEL_LOST)
        on_kernel_lost(e, s, record, length, time);
    else
        on_kernel_fact(e, record, length, &head);
}
