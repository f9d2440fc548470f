/* Distributes facts that BPF programs told. A fact told during a call, or a path told before the entry, waits here for the exit. */
#include "calls/kernel_facts.h"
#include "calls/kernel_files.h"
#include "calls/kernel_paths.h"
#include "calls/off_cpu.h"
#include "calls/stacks.h"
#include "rings/iocbs.h"
#include "rings/rings.h"
#include "tables/commands.h"
#include "tables/sharing.h"
#include "tables/tasks.h"

static uint32_t bytes_of_stack(const uint8_t *record, uint32_t length)
{
    uint32_t copied = 0;
    if (length >= sizeof(lo2_kernel_stack))
        memcpy(&copied, record + offsetof(lo2_kernel_stack, copied), 4);
    if (copied > LO2_STACK_COPY)
        return UINT32_MAX;
    return (uint32_t)sizeof(lo2_kernel_stack) + (copied ? (uint32_t)sizeof(lo2_kernel_stack_copy) + copied : 0);
}

/* The least size of the record; 0 if it is no fact. */
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
    case LO2_KERNEL_SLEEP: return sizeof(lo2_kernel_sleep);
    case LO2_KERNEL_STACK: return bytes_of_stack(record, length);
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
    case LO2_KERNEL_SLEEP: on_kernel_sleep(e, t, record); break;
    case LO2_KERNEL_STACK: on_kernel_stack(e, t, record, size); break;
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

/* Empties the place of a held fact. The caller frees the record. */
static held_fact take_out(engine *e, uint32_t held)
{
    held_fact fact = e->held_facts.at[held - 1];
    e->held_facts.at[held - 1].record = NULL;
    GIVE_BACK(e, free_held_facts, held - 1);
    return fact;
}

/*
 * Where calls are perf samples, programs begin to tell paths before the samples begin. So several calls' paths may wait for a
 * thread's next call. Only the last ones, which have the same time, can be that call's.
 */
static void forget_earlier_paths(engine *e, task *t, uint64_t time_ns)
{
    lo2_kernel_head head;
    while (t->held) {
        memcpy(&head, e->held_facts.at[t->held - 1].record, sizeof head);
        if (head.time_ns >= time_ns)
            return;
        held_fact fact = take_out(e, t->held);
        t->held = fact.next;
        free(fact.record);
    }
    t->held_last = 0;
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
            take_out(e, held);
            hand_on(e, t, fact.record, fact.size);
            free(fact.record);
        } else {
            kept = held;
        }
        held = fact.next;
    }
    t->held_last = kept;
}

/* First settles to which table the thread belongs, by all facts held, then hands on those that precede the row. */
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

/*
 * True if the fact belongs to the call that the thread is in; or, of a path, to the call that it enters next. Facts
 * about requests and about a close's descriptor do not wait.
 */
static bool waits(const task *t, const uint8_t *record, const lo2_kernel_head *head)
{
    if (head->type == LO2_KERNEL_PATH)
        return t->pending.active || (int64_t)head->time_ns > t->left.end;
    bool of_call = head->type == LO2_KERNEL_FILE ? record[offsetof(lo2_kernel_file, of)] != LO2_FILE_OF_REQUEST
                                                 : head->type == LO2_KERNEL_EVENTS || head->type == LO2_KERNEL_STACK;
    return t->pending.active && of_call;
}

void on_kernel_fact(engine *e, const uint8_t *record, uint32_t length, const lo2_kernel_head *head)
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
        if (!t->pending.active) /* then paths alone wait */
            forget_earlier_paths(e, t, head->time_ns);
        hold(e, t, record, size);
    } else {
        hand_on(e, t, record, size);
    }
}
