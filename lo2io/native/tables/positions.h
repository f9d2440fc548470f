/* File positions: followed from call to call, and told by BPF programs. */
#ifndef LO2IO_POSITIONS_H
#define LO2IO_POSITIONS_H

#include "tables/state.h"

enum { OFFSET_UNKNOWN = 0, OFFSET_EXPLICIT = 1, OFFSET_FOLLOWED = 2, OFFSET_KERNEL = 3 };

void position_entered(engine *e, task *t);
void position_left(engine *e, task *t, int64_t result, bool known, int64_t time);
/*
 * The thread's call may have moved, or made append, what its slot holds now and what the slot seemed to hold at the
 * entry. `bit`: 1 for the slot of handle, 2 for that of handle2.
 */
void position_doubtful(engine *e, task *t, uint32_t handle_index, uint8_t bit, int64_t time);
int64_t offset_of(engine *e, const pending_call *p, uint8_t *source);
/*
 * Compares the row's offset with the position that a BPF program told: settles the offset, or makes it unknown. True if
 * `after`, the position after the call, holds.
 */
bool position_told(engine *e, const pending_call *p, int64_t result, uint32_t row, int64_t *after);
void position_set(engine *e, const pending_call *p, int64_t position);
/*
 * True if calls of other threads are under way that move the position of the slot's file. This includes calls at whose entry
 * the file was not known.
 */
bool others_move(const task *t, const slot *s, int32_t fd);
/* t's call no longer counts in the slots of the table that t is about to leave */
void position_parted(engine *e, task *t);

#endif
