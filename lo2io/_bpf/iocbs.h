/*
 * What io_submit(2) was given: records IOCB.
 */
#ifndef LO2IO_BPF_IOCBS_H
#define LO2IO_BPF_IOCBS_H

#include "core.h"

/* At the entry: at the exit they may be others already. */
INLINE void lo2_iocbs_at_entry(struct lo2_moment *moment)
{
}

#endif
