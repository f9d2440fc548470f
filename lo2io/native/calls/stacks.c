/*
 * Where programs made their slow calls. The record follows the exit of its call, and has the same time.
 *
 * The engine unwinds nothing. It hands on the copies of stacks and, among them in the order of time, the records that
 * tell which files the processes have mapped. So the unwinder of a stack knows the files that were mapped at that
 * moment.
 */
#include "calls/stacks.h"

/* False for a record that belongs to no slow call, as after damage. */
static bool is_of_slow_call(const engine *e, const left_call *left, const lo2_kernel_stack *told)
{
    return left->operation && !left->has_stack && left->end == (int64_t)told->head.time_ns && left->begin != UNKNOWN &&
           left->end - left->begin >= e->config.slow_from_ns;
}

/* Queues something for the reader of the batch. operation 0: it belongs to no call. */
static void queue(engine *e, stack_entry entry, const uint8_t *bytes)
{
    uint32_t at = e->told_bytes.count;
    if (!ROW_ROOM(e, e->stack_queue) || !VEC_ROOM(&e->told_bytes, at + entry.size)) {
        e->out_of_memory = true;
        return;
    }
    if (entry.size) /* else there may be no memory yet */
        memcpy(e->told_bytes.at + at, bytes, entry.size);
    e->told_bytes.count += entry.size;
    e->stack_queue.at[e->stack_queue.count++] = entry;
}

void on_kernel_stack(engine *e, task *t, const uint8_t *record, uint32_t size)
{
    lo2_kernel_stack told;
    memcpy(&told, record, sizeof told);
    bool known = told.stack < e->config.nr_user_stacks && e->config.user_stacks[told.stack];
    bool copied = told.copied && e->config.unwinds;
    if (!is_of_slow_call(e, &t->left, &told) || (!known && !copied))
        return;
    t->left.has_stack = true;
    queue(e,
          (stack_entry){.operation = t->left.operation,
                        .stack = known ? told.stack : NONE,
                        .kind = LO2_TOLD_STACK,
                        .size = copied ? size - (uint32_t)sizeof told : 0},
          record + sizeof told);
}

void tell_mappings(engine *e, const uint8_t *record, uint16_t size)
{
    if (e->config.unwinds)
        queue(e, (stack_entry){.kind = LO2_TOLD_RECORD, .size = size}, record);
}

/* False: the batch has no room for it. */
static bool hand_out(lo2_batch *batch, const stack_entry *entry, const uint8_t *bytes)
{
    uint32_t whole = (uint32_t)sizeof(lo2_told) + ((entry->size + 7) & ~7u), row = batch->nr_call_stacks;
    if ((entry->operation && row == batch->capacity) || (entry->size && whole > batch->told_capacity - batch->told_length))
        return false;
    if (entry->size) {
        lo2_told told = {.size = entry->size, .kind = entry->kind, .row = row};
        memcpy(batch->told + batch->told_length, &told, sizeof told);
        memcpy(batch->told + batch->told_length + sizeof told, bytes, entry->size);
        batch->told_length += whole;
    }
    if (entry->operation) {
        batch->call_stacks.operation[row] = entry->operation;
        batch->call_stacks.stack[row] = entry->stack;
        batch->nr_call_stacks++;
    }
    return true;
}

bool stacks_flush(engine *e)
{
    for (; e->stacks_out < e->stack_queue.count; e->stacks_out++) {
        const stack_entry *entry = &e->stack_queue.at[e->stacks_out];
        if (!hand_out(e->batch, entry, e->told_bytes.at + e->told_out))
            return false;
        e->told_out += entry->size;
    }
    e->stack_queue.count = e->stacks_out = 0;
    e->told_bytes.count = e->told_out = 0;
    return true;
}

void stacks_free(engine *e)
{
    free(e->stack_queue.at);
    free(e->told_bytes.at);
}
