/*
 * Leaves that wait: the paths of a call, and the stack of its program, are rows after the call's own.
 *
 * These rows are usually in the same batch as the call. If they are not, the Leave waits for the thread's next event or for
 * the next batch, which has the rows if there are any.
 */
#include "otf2/otf2_writer.h"

/* Indexes the batch's stacks by their calls. */
static bool index_stacks(lo2_otf2_writer *w, const lo2_batch *b)
{
    number_map_free(&w->stack_by_call);
    for (uint32_t row = 0; row < b->nr_call_stacks; row++) {
        uint32_t *known;
        if (!number_map_at(&w->stack_by_call, b->call_stacks.operation[row], &known))
            return false;
        *known = b->call_stacks.stack[row];
    }
    return true;
}

static int find_stack(lo2_otf2_writer *w, held_call *call)
{
    uint32_t *stack;
    if (!(call->lacks & LACKS_STACK) || !w->stack_by_call.used)
        return 0;
    if (!number_map_at(&w->stack_by_call, call->told.id, &stack))
        return otf2_fail(w, "malloc");
    if (*stack == NONE)
        return 0;
    call->lacks &= (uint8_t)~LACKS_STACK;
    call->told.stack = *stack;
    return 0;
}

static int find(lo2_otf2_writer *w, held_call *call)
{
    TRY(find_stack(w, call));
    return otf2_find_paths(w, call);
}

static int leave(lo2_otf2_writer *w, lo2_otf2_location *location, const held_call *call)
{
    const uint32_t attributes[] = {w->config.attributes.given_path, w->config.attributes.given_path2};
    otf2_add_error(w, call->error);
    for (int place = 0; place < 2; place++) {
        if (call->path[place] == NONE)
            continue;
        TRY(otf2_add_string(w, attributes[place], call->path[place]));
    }
    if (call->has_batch) {
        TRY(otf2_add_batch(w, &call->batch));
    }
    TRY(otf2_add_told(w, &call->told));
    return otf2_leave(w, location, call->time, call->ref);
}

int otf2_leave_held(lo2_otf2_writer *w, lo2_otf2_location *location)
{
    held_call call = w->held[location->held];
    w->held[location->held].location = UNDEFINED;
    location->held = NONE;
    while (w->nr_held && w->held[w->nr_held - 1].location == UNDEFINED)
        w->nr_held--;
    return leave(w, location, &call);
}

int otf2_leave_call(lo2_otf2_writer *w, lo2_otf2_location *location, held_call *call)
{
    TRY(find(w, call));
    if (!call->lacks)
        return leave(w, location, call);
    if (!otf2_grow((void **)&w->held, &w->held_room, w->nr_held + 1u, sizeof *w->held))
        return otf2_fail(w, "malloc");
    location->held = w->nr_held;
    w->held[w->nr_held++] = *call;
    return 0;
}

int otf2_take_late(lo2_otf2_writer *w, const lo2_batch *b)
{
    w->batch = b;
    if (!otf2_index_paths(w, b) || !index_stacks(w, b))
        return otf2_fail(w, "malloc");
    for (uint32_t i = 0; i < w->nr_held; i++) {
        if (w->held[i].location == UNDEFINED)
            continue;
        TRY(find(w, &w->held[i]));
        TRY(otf2_leave_held(w, &w->locations[w->held[i].location]));
    }
    return 0;
}

void otf2_free_held(lo2_otf2_writer *w)
{
    number_map_free(&w->stack_by_call);
    free(w->held);
}
