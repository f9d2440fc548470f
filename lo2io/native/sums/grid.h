/* Equal pieces of time, and the rows with the smallest keys of each lane: for one row at a time. */
#ifndef LO2IO_SUMS_GRID_H
#define LO2IO_SUMS_GRID_H

#include "api/all.h"

/* A point of time: its bin, and how far it lies after the start of the bin. */
typedef struct { uint64_t bin, into_ns; } grid_place;

/* Time since the grid's start. Times outside of the grid lie at its ends. */
static inline uint64_t grid_since(const lo2_time_grid *g, int64_t time)
{
    uint64_t since = time > g->start_ns ? (uint64_t)time - (uint64_t)g->start_ns : 0, span = (uint64_t)g->bins * (uint64_t)g->bin_ns;
    return since < span ? since : span;
}

/* near: the bin of the time before. Most times lie in it, and then nothing is divided. */
static inline grid_place grid_place_of(const lo2_time_grid *g, int64_t time, uint64_t near)
{
    uint64_t since = grid_since(g, time), length = (uint64_t)g->bin_ns, last = (uint64_t)g->bins - 1;
    uint64_t bin = since - near * length < length ? near : since / length;
    bin = bin < last ? bin : last;
    return (grid_place){bin, since - bin * length};
}

/* An interval from a place to one that is not before it. */
static inline void grid_add_interval(lo2_edge_sums *lane, grid_place begin, grid_place end)
{
    lane[begin.bin].nr++;
    lane[begin.bin].into_ns += (int64_t)begin.into_ns;
    lane[end.bin].nr--;
    lane[end.bin].into_ns -= (int64_t)end.into_ns;
}

/* Offers a row of a lane that exists. Returns the row's place; -1: it is not kept. */
int64_t smallest_offer(const lo2_smallest *smallest, int64_t lane, uint64_t key);

#endif
