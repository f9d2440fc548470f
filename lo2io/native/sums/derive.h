/* The class of an operation, and the parts of its time that block requests and the scheduler explain. */
#ifndef LO2IO_SUMS_DERIVE_H
#define LO2IO_SUMS_DERIVE_H

#include "api/all.h"

#define UNKNOWN INT64_MIN

/* The time of one call in which its thread was ready to run, and others ran; waited; had an unknown state. */
typedef struct { int64_t ready, away, unknown; } off_cpu_parts;

static inline size_t at_most(uint32_t index, size_t nr) { return index < nr ? index : nr - 1; }

/* F_GETLK, F_SETLK, F_SETLKW, and the three of open file descriptions (include/uapi/asm-generic/fcntl.h). */
static inline bool is_lock(uint32_t command) { return (command >= 5 && command <= 7) || (command >= 36 && command <= 38); }

static inline uint8_t class_of(const lo2_sum_context *c, const lo2_call_traits *call, uint32_t flags, int32_t group,
                               int32_t written)
{
    uint8_t type = c->type_of_group[group];
    if (call->transfers && type > c->storage && !(call->copies && c->type_of_group[written] == c->storage))
        return c->class_of_type[type];
    return call->locks && is_lock(flags) ? LO2_CLASS_LOCK : call->kind;
}

static inline int32_t group_of(const lo2_sum_context *c, uint32_t handle)
{
    return c->group_of_handle[at_most(handle, c->nr_handles)];
}

/* The class of a row's call. */
static inline uint8_t kind_of_row(const lo2_sum_context *c, const lo2_sum_rows *r, size_t i)
{
    const lo2_call_traits *call = &c->calls[r->call[i]];
    int32_t group = group_of(c, r->handle[i]);
    return class_of(c, call, r->flags[i], group, call->copies ? group_of(c, r->handle2[i]) : group);
}

off_cpu_parts off_cpu_of(const lo2_call_spans *spans, uint32_t task, int64_t begin, int64_t duration);

#endif
