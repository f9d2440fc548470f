/*
 * Paths that calls were given: records PATH.
 */
#ifndef LO2IO_BPF_PATHS_H
#define LO2IO_BPF_PATHS_H

#include "core.h"

/* At the exit, after CALL or EXIT. */
INLINE void lo2_write_paths(struct lo2_moment *moment)
{
}

#endif
