/* Where programs made their slow calls. */
#ifndef LO2IO_STACKS_H
#define LO2IO_STACKS_H

#include "tables/state.h"

void on_kernel_stack(engine *e, task *t, const uint8_t *record, uint32_t size);
/* Hands on a record of perf, or a fact from /proc, that tells which files the processes have mapped. */
void tell_mappings(engine *e, const uint8_t *record, uint16_t size);
bool stacks_flush(engine *e);
void stacks_free(engine *e);

#endif
