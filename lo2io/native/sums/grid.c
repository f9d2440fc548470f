/* Sums over equal pieces of time, and the rows with the smallest keys: lo2io/reports/html/grid.py explains both. */
#include "api/all.h"

/* Time since the grid's start. Times outside of the grid lie at its ends. */
static uint64_t inside(const lo2_time_grid *g, int64_t time)
{
    uint64_t since = time > g->start_ns ? (uint64_t)time - (uint64_t)g->start_ns : 0, span = (uint64_t)g->bins * (uint64_t)g->bin_ns;
    return since < span ? since : span;
}

static uint64_t bin_of(const lo2_time_grid *g, uint64_t since)
{
    uint64_t bin = since / (uint64_t)g->bin_ns, last = (uint64_t)g->bins - 1;
    return bin < last ? bin : last;
}

static bool is_lane(const lo2_time_grid *g, int64_t lane) { return lane >= 0 && lane < g->lanes; }

bool lo2_grid_add_points(const lo2_time_grid *g, size_t nr, const int64_t *lanes, const int64_t *times_ns,
                         const int64_t *amounts, int64_t *sums)
{
    for (size_t i = 0; i < nr; i++) {
        if (!is_lane(g, lanes[i]))
            return false;
        sums[(uint64_t)lanes[i] * (uint64_t)g->bins + bin_of(g, inside(g, times_ns[i]))] += amounts[i];
    }
    return true;
}

static void add_edge(const lo2_time_grid *g, lo2_edge_sums *lane, int64_t time, int64_t sign)
{
    uint64_t since = inside(g, time), bin = bin_of(g, since);
    lane[bin].nr += sign;
    lane[bin].into_ns += sign * (int64_t)(since - bin * (uint64_t)g->bin_ns);
}

bool lo2_grid_add_intervals(const lo2_time_grid *g, size_t nr, const int64_t *lanes, const int64_t *begin_ns,
                            const int64_t *end_ns, lo2_edge_sums *edges)
{
    for (size_t i = 0; i < nr; i++) {
        if (!is_lane(g, lanes[i]))
            return false;
        lo2_edge_sums *lane = edges + lanes[i] * g->bins;
        add_edge(g, lane, begin_ns[i], 1);
        add_edge(g, lane, end_ns[i] > begin_ns[i] ? end_ns[i] : begin_ns[i], -1);
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

ptrdiff_t lo2_smallest_add(const lo2_smallest *s, size_t nr, const int64_t *lanes, const uint64_t *keys, int64_t *rows,
                           int64_t *places)
{
    ptrdiff_t taken = 0;
    for (size_t i = 0; i < nr; i++) {
        int64_t lane = lanes[i];
        if (lane < 0 || lane >= s->lanes)
            return -1;
        lo2_kept_row *heap = s->heaps + lane * s->limit;
        int64_t number = s->seen[lane]++, held = number < s->limit ? number : s->limit;
        if (held < s->limit) {
            heap[held] = (lo2_kept_row){keys[i], number, lane * s->limit + held};
            places[taken] = heap[held].place;
            rise(heap, held);
        } else if (keys[i] < heap[0].key) {
            heap[0] = (lo2_kept_row){keys[i], number, heap[0].place};
            places[taken] = heap[0].place;
            sink(heap, held);
        } else {
            continue;
        }
        rows[taken++] = (int64_t)i;
    }
    return taken;
}
