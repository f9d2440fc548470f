/* Calls on futexes. Each has a row of operations, and after it the address of its futex. */
#include "calls/futexes.h"

void futex_called(engine *e, uint64_t operation, uint64_t address)
{
    if (!ROW_ROOM(e, e->futex_queue)) {
        e->out_of_memory = true;
        return;
    }
    e->futex_queue.at[e->futex_queue.count++] = (futex_row){operation, address};
}

bool futexes_flush(engine *e)
{
    lo2_futex_columns *c = &e->batch->futexes;
    for (; e->futexes_out < e->futex_queue.count; e->futexes_out++) {
        uint32_t row = e->batch->nr_futexes;
        if (row == e->batch->capacity)
            return false;
        c->operation[row] = e->futex_queue.at[e->futexes_out].operation;
        c->address[row] = e->futex_queue.at[e->futexes_out].address;
        e->batch->nr_futexes++;
    }
    e->futex_queue.count = e->futexes_out = 0;
    return true;
}

void futexes_free(engine *e) { free(e->futex_queue.at); }
