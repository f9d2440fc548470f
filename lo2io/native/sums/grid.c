/* Sums over equal pieces of time, and the rows with the smallest keys: lo2io/reports/html/grid.py explains both. */
#include "sums/grid.h"

static bool is_lane(const lo2_time_grid *g, int64_t lane) { return lane >= 0 && lane < g->lanes; }

bool lo2_grid_add_points(const lo2_time_grid *g, size_t nr, const int64_t *lanes, const int64_t *times_ns,
                         const int64_t *amounts, int64_t *sums)
{
    uint64_t near = 0;
    for (size_t i = 0; i < nr; i++) {
        if (!is_lane(g, lanes[i]))
            return false;
        near = grid_place_of(g, times_ns[i], near).bin;
        sums[(uint64_t)lanes[i] * (uint64_t)g->bins + near] += amounts[i];
    }
    return true;
}

bool lo2_grid_add_intervals(const lo2_time_grid *g, size_t nr, const int64_t *lanes, const int64_t *begin_ns,
                            const int64_t *end_ns, lo2_edge_sums *edges)
{
    grid_place begin = {0}, end = {0};
    for (size_t i = 0; i < nr; i++) {
        if (!is_lane(g, lanes[i]))
            return false;
        begin = grid_place_of(g, begin_ns[i], begin.bin);
        end = grid_place_of(g, end_ns[i] > begin_ns[i] ? end_ns[i] : begin_ns[i], end.bin);
        grid_add_interval(edges + lanes[i] * g->bins, begin, end);
    }
    return true;
}

/* ---- the smallest ---- */

static bool is_larger(const lo2_kept_row *a, const lo2_kept_row *b)
{
    return a->key != b->key ? a->key > b->key : a->number > b->number;
}

/* A heap's row goes up until its parent is larger. */
static void rise(lo2_kept_row *heap, int64_t at)
{
    for (lo2_kept_row row = heap[at]; at; at = (at - 1) / 2) {
        int64_t parent = (at - 1) / 2;
        if (!is_larger(&row, &heap[parent]))
            return;
        heap[at] = heap[parent];
        heap[parent] = row;
    }
}

/* The first row goes down until both of its children are smaller. */
static void sink(lo2_kept_row *heap, int64_t nr)
{
    lo2_kept_row row = heap[0];
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < nr; at = child) {
        child += child + 1 < nr && is_larger(&heap[child + 1], &heap[child]);
        if (!is_larger(&heap[child], &row))
            break;
        heap[at] = heap[child];
    }
    heap[at] = row;
}

int64_t smallest_offer(const lo2_smallest *s, int64_t lane, uint64_t key)
{
    lo2_kept_row *heap = s->heaps + lane * s->limit;
    int64_t number = s->seen[s->lanes]++, nr = s->seen[lane]++, held = nr < s->limit ? nr : s->limit, place;
    if (held < s->limit) {
        place = lane * s->limit + held;
        heap[held] = (lo2_kept_row){key, number, place};
        rise(heap, held);
    } else if (key < heap[0].key) {
        place = heap[0].place;
        heap[0] = (lo2_kept_row){key, number, place};
        sink(heap, held);
    } else {
        return -1;
    }
    return place;
}

ptrdiff_t lo2_smallest_add(const lo2_smallest *s, size_t nr, const int64_t *lanes, const uint64_t *keys, int64_t *rows,
                           int64_t *places)
{
    ptrdiff_t taken = 0;
    for (size_t i = 0; i < nr; i++) {
        if (lanes[i] < 0 || lanes[i] >= s->lanes)
            return -1;
        int64_t place = smallest_offer(s, lanes[i], keys[i]);
        if (place < 0)
            continue;
        rows[taken] = (int64_t)i;
        places[taken++] = place;
    }
    return taken;
}
