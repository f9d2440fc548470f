/* The class of an operation, and the parts of its time that block requests and the scheduler explain. */
#ifndef LO2IO_SUMS_DERIVE_H
#define LO2IO_SUMS_DERIVE_H

#include "api/all.h"

#define UNKNOWN INT64_MIN

/* The time of one call in which its thread was preempted; waited; had an unknown state. */
typedef struct { int64_t preempted, away, unknown; } off_cpu_parts;

static inline size_t at_most(uint32_t index, size_t nr) { return index < nr ? index : nr - 1; }

/* The class of a row's call. */
uint8_t kind_of_row(const lo2_sum_context *context, const lo2_sum_rows *rows, size_t i);
off_cpu_parts off_cpu_of(const lo2_call_spans *spans, uint32_t task, int64_t begin, int64_t duration);

#endif
