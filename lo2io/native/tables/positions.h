/* File positions: followed from call to call, and told by the kernel's own programs. */
#ifndef LO2IO_POSITIONS_H
#define LO2IO_POSITIONS_H

#include "tables/state.h"

enum { OFFSET_UNKNOWN = 0, OFFSET_EXPLICIT = 1, OFFSET_FOLLOWED = 2, OFFSET_KERNEL = 3 };

void position_entered(engine *e, task *t);
void position_left(engine *e, task *t, int64_t result, bool known, int64_t time);
/* Its call may have moved, or made append, what is in the slot now, and what was thought to be: `bit` says which of both slots. */
void position_doubtful(engine *e, task *t, uint32_t handle_index, uint8_t bit, int64_t time);
int64_t offset_of(engine *e, const pending_call *p, uint8_t *source);
/* What the kernel told of the position settles the row's offset, or refutes it; true: `after` is the position behind the call. */
bool position_told(engine *e, const pending_call *p, int64_t result, uint32_t row, int64_t *after);
void position_set(engine *e, const pending_call *p, int64_t position);
/* Calls of others are under way that move the position of what is in the slot, whether they know what it is or not. */
bool others_move(const task *t, const slot *s, int32_t fd);
void position_parted(engine *e, task *t); /* its call counts no more in the slots of the table that it is about to leave */

#endif
