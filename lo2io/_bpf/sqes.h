/*
 * What requests of io_uring ask for: records SQE.
 */
#ifndef LO2IO_BPF_SQES_H
#define LO2IO_BPF_SQES_H

#include "core.h"

/* A request is submitted: before its sample. `ring` is this CPU's. */
INLINE void lo2_write_sqe(struct lo2_bpf_cpu *cpu, void *ring, struct task_struct *task, const void *request)
{
}

#endif
