/*
 * What io_submit(2) was given: records IOCB.
 */
#ifndef LO2IO_BPF_IOCBS_H
#define LO2IO_BPF_IOCBS_H

#include "core.h"

/* At the exit, after CALL or EXIT. */
INLINE void lo2_write_iocbs(struct lo2_moment *moment)
{
}

#endif
