/* Where programs made their slow calls. The record follows the exit of its call, and has the same time. */
#include "calls/stacks.h"

/* False for a record that belongs to no slow call, as after damage, and where nobody wrote the stack's frames down. */
static bool is_told(const engine *e, const left_call *left, const lo2_kernel_stack *told)
{
    return left->operation && !left->has_stack && left->end == (int64_t)told->head.time_ns && left->begin != UNKNOWN &&
           left->end - left->begin >= e->config.slow_from_ns && told->stack < e->config.nr_user_stacks &&
           e->config.user_stacks[told->stack];
}

void on_kernel_stack(engine *e, task *t, const uint8_t *record)
{
    lo2_kernel_stack told;
    memcpy(&told, record, sizeof told);
    if (!is_told(e, &t->left, &told))
        return;
    if (!ROW_ROOM(e, e->stack_queue)) {
        e->out_of_memory = true;
        return;
    }
    t->left.has_stack = true;
    e->stack_queue.at[e->stack_queue.count++] = (stack_row){t->left.operation, told.stack};
}

bool stacks_flush(engine *e)
{
    lo2_call_stack_columns *c = &e->batch->call_stacks;
    for (; e->stacks_out < e->stack_queue.count; e->stacks_out++) {
        uint32_t row = e->batch->nr_call_stacks;
        if (row == e->batch->capacity)
            return false;
        c->operation[row] = e->stack_queue.at[e->stacks_out].operation;
        c->stack[row] = e->stack_queue.at[e->stacks_out].stack;
        e->batch->nr_call_stacks++;
    }
    e->stack_queue.count = e->stacks_out = 0;
    return true;
}

void stacks_free(engine *e) { free(e->stack_queue.at); }
