/* What successful calls do to the table of descriptors. */
#ifndef LO2IO_EFFECTS_H
#define LO2IO_EFFECTS_H

#include "tables/state.h"

bool is_open_otherwise(engine *e, const task *t, uint32_t handle_index, uint8_t bit);
bool tells_by_ebadf(engine *e, const task *t, uint32_t handle_index);
void call_effects(engine *e, task *t, const lo2_call *call, int64_t result, int64_t time, uint32_t row);

#endif
