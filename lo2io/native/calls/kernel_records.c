/*
 * What the kernel's own programs wrote: system calls, and facts about them (bpf/programs/records.h).
 *
 * A call's record is read where its entry and its exit lie, as if it were a sample: argument i of a sample stands at
 * 16 + 8 * i and the result at 16 (decode.py has made sure of that), so it takes no more than a pointer so far before
 * where the record has them.
 */
#include "calls/calls.h"

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
    if (t)
        on_enter(e, t, event, record + arguments - ARGUMENTS_AT, raw_size, (uint16_t)s->cpu, time);
}

/* `result`: where it lies, and behind it position and value. */
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

/* ---- facts ---- */

/* What a record must have at least; 0: no such fact. */
static uint32_t bytes_of_fact(const uint8_t *record, uint32_t length, uint16_t type)
{
    uint16_t names = 0, path = 0;
    uint32_t count = 0;
    switch (type) {
    case LO2_KERNEL_FILE:
        if (length >= sizeof(lo2_kernel_file))
            memcpy(&names, record + offsetof(lo2_kernel_file, names_length), 2);
        return (uint32_t)sizeof(lo2_kernel_file) + names;
    case LO2_KERNEL_PATH:
        if (length >= sizeof(lo2_kernel_path)) {
            memcpy(&names, record + offsetof(lo2_kernel_path, names_length), 2);
            memcpy(&path, record + offsetof(lo2_kernel_path, path_length), 2);
        }
        return (uint32_t)sizeof(lo2_kernel_path) + names + path;
    case LO2_KERNEL_EXEC:
        if (length >= sizeof(lo2_kernel_exec))
            memcpy(&names, record + offsetof(lo2_kernel_exec, length), 2);
        return (uint32_t)sizeof(lo2_kernel_exec) + names;
    case LO2_KERNEL_VALUE: return sizeof(lo2_kernel_value);
    case LO2_KERNEL_SQE: return sizeof(lo2_kernel_sqe);
    case LO2_KERNEL_IOCB: return sizeof(lo2_kernel_iocb);
    case LO2_KERNEL_EVENTS:
        if (length >= sizeof(lo2_kernel_events))
            memcpy(&count, record + offsetof(lo2_kernel_events, count), 4);
        return count > length ? UINT32_MAX : (uint32_t)(sizeof(lo2_kernel_events) + count * sizeof(lo2_kernel_event));
    case LO2_KERNEL_USAGE: return sizeof(lo2_kernel_usage);
    default: return 0;
    }
}

static void hand_on(engine *e, task *t, const uint8_t *record, uint32_t size)
{
    lo2_kernel_head head;
    memcpy(&head, record, sizeof head);
    switch (head.type) {
    case LO2_KERNEL_FILE: on_kernel_file(e, t, record, size); break;
    case LO2_KERNEL_PATH: on_kernel_path(e, t, record, size); break;
    case LO2_KERNEL_EXEC: on_kernel_exec(e, t, record, size, (int64_t)head.time_ns); break;
    case LO2_KERNEL_IOCB: on_kernel_iocb(e, t, record, size); break;
    case LO2_KERNEL_EVENTS: on_kernel_events(e, t, record, size); break;
    case LO2_KERNEL_SQE: on_kernel_sqe(e, t, record, size); break;
    case LO2_KERNEL_USAGE: on_kernel_usage(t, record); break;
    default: break;
    }
}

static void hold(engine *e, task *t, const uint8_t *record, uint32_t size)
{
    uint32_t index;
    uint8_t *copy = malloc(size);
    TAKE(e, free_held_facts, held_facts, index);
    if (!copy || index == NONE) {
        e->out_of_memory = true;
        free(copy);
        return;
    }
    memcpy(copy, record, size);
    e->held_facts.at[index] = (held_fact){copy, size, 0};
    *(t->held ? &e->held_facts.at[t->held_last - 1].next : &t->held) = index + 1;
    t->held_last = index + 1;
}

static bool precedes_row(const held_fact *fact)
{
    uint16_t type;
    memcpy(&type, fact->record + offsetof(lo2_kernel_head, type), 2);
    return type == LO2_KERNEL_EVENTS || (type == LO2_KERNEL_FILE && fact->record[offsetof(lo2_kernel_file, of)] == LO2_FILE_OF_ARGUMENT);
}

static void hand_on_held(engine *e, task *t, bool all)
{
    uint32_t held = t->held, kept = 0;
    while (held) {
        held_fact fact = e->held_facts.at[held - 1];
        if (all || precedes_row(&fact)) {
            *(kept ? &e->held_facts.at[kept - 1].next : &t->held) = fact.next;
            e->held_facts.at[held - 1].record = NULL;
            GIVE_BACK(e, free_held_facts, held - 1);
            hand_on(e, t, fact.record, fact.size);
            free(fact.record);
        } else {
            kept = held;
        }
        held = fact.next;
    }
    t->held_last = kept;
}

/* Whose table it is comes first, whichever fact tells so. */
void kernel_arguments_due(engine *e, task *t)
{
    for (uint32_t held = t->held; held; held = e->held_facts.at[held - 1].next) {
        lo2_kernel_file file;
        memcpy(&file.head, e->held_facts.at[held - 1].record, sizeof file.head);
        if (file.head.type != LO2_KERNEL_FILE)
            continue;
        memcpy(&file, e->held_facts.at[held - 1].record, sizeof file);
        table_told(e, t, file.table);
    }
    hand_on_held(e, t, false);
}
void kernel_facts_due(engine *e, task *t) { hand_on_held(e, t, true); }

void kernel_facts_free(engine *e)
{
    for (uint32_t i = 0; i < e->held_facts.count; i++)
        free(e->held_facts.at[i].record);
    free(e->held_facts.at);
    free(e->free_held_facts.at);
}

/* Of the call that the thread is in, or of a path is about to enter; what is told of requests, and of descriptors before a call, is not. */
static bool waits(const task *t, const uint8_t *record, const lo2_kernel_head *head)
{
    if (head->type == LO2_KERNEL_PATH)
        return t->pending.active || (int64_t)head->time_ns > t->left.end;
    bool of_call = head->type == LO2_KERNEL_FILE ? record[offsetof(lo2_kernel_file, of)] != LO2_FILE_OF_REQUEST
                                                 : head->type == LO2_KERNEL_EVENTS;
    return t->pending.active && of_call;
}

static void on_kernel_fact(engine *e, const uint8_t *record, uint32_t length, const lo2_kernel_head *head)
{
    uint32_t size = bytes_of_fact(record, length, head->type);
    if (!size || length < size) {
        e->totals.nr_undecoded++;
        return;
    }
    task *t = task_for_sample(e, head->tid);
    if (!t || (!is_recorded(e, t) && !e->processes.at[t->process].from_exec))
        return;
    if (head->type == LO2_KERNEL_VALUE) {
        if (t->pending.active) {
            memcpy(&t->pending.told_position, record + offsetof(lo2_kernel_value, position), 8);
            memcpy(&t->pending.told_value, record + offsetof(lo2_kernel_value, value), 8);
        }
    } else if (waits(t, record, head)) {
        hold(e, t, record, size);
    } else {
        hand_on(e, t, record, size);
    }
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
    add_loss(e, s, begin < time ? begin : time, time, lost.lost);
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
    else if (head.type == LO2_KERNEL_LOST)
        on_kernel_lost(e, s, record, length, time);
    else
        on_kernel_fact(e, record, length, &head);
}
