/* Times of records, and of facts, which are on another clock. */
#ifndef LO2IO_CLOCK_H
#define LO2IO_CLOCK_H

#include "input/vectors.h"

/* Times and positions come from files, with any values. So sums wrap, instead of being undefined. */
static inline int64_t plus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t minus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

typedef struct { const lo2_sync *syncs; uint32_t nr_syncs; int64_t margin; } facts_clock;
typedef struct {
    int64_t time, margin;         /* on the spool's clock; by how much the readings of both clocks may be off */
    int64_t doubt;                /* by how much more it may be off, far from a reading; JUMPED: without bound */
} fact_moment;
#define JUMPED (INT64_MAX / 4)
fact_moment fact_when(const facts_clock *clock, uint64_t fact_time);

/* The earliest moment at which the fact may have been true. */
static inline int64_t not_before(fact_moment m) { return minus(m.time, plus(m.margin, m.doubt)); }

#endif
