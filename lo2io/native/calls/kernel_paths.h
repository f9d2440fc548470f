/* Paths that calls were given, as BPF programs read them. */
#ifndef LO2IO_KERNEL_PATHS_H
#define LO2IO_KERNEL_PATHS_H

#include "tables/state.h"

void on_kernel_path(engine *e, task *t, const uint8_t *record, uint32_t size);
void paths_free(engine *e);

#endif
