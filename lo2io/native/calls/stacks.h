/* Where programs made their slow calls. */
#ifndef LO2IO_STACKS_H
#define LO2IO_STACKS_H

#include "tables/state.h"

void on_kernel_stack(engine *e, task *t, const uint8_t *record);
bool stacks_flush(engine *e);
void stacks_free(engine *e);

#endif
