/* Records that BPF programs wrote: bpf/programs/records.h. */
#ifndef LO2IO_ENGINE_KERNEL_RECORDS_H
#define LO2IO_ENGINE_KERNEL_RECORDS_H

#include "tables/state.h"

void on_kernel_record(engine *e, const stream *s, uint32_t offset, int64_t time);

#endif
