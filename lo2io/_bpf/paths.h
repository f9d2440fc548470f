/*
 * Paths that calls were given: records PATH.
 */
#ifndef LO2IO_BPF_PATHS_H
#define LO2IO_BPF_PATHS_H

#include "core.h"

/* At the entry, of calls that are LO2_CALL_FIRST: what they were given is gone at their exit. */
INLINE void lo2_paths_at_entry(struct lo2_moment *moment)
{
}

/* At the exit, after CALL or EXIT, of all others. */
INLINE void lo2_write_paths(struct lo2_moment *moment)
{
}

#endif
