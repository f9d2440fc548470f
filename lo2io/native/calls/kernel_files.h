/* Which open file a descriptor stands for, as BPF programs saw it. */
#ifndef LO2IO_KERNEL_FILES_H
#define LO2IO_KERNEL_FILES_H

#include "tables/state.h"

void on_kernel_file(engine *e, task *t, const uint8_t *record, uint32_t size);

#endif
