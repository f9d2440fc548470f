/* Puts rows into a batch. Rows that may come in floods (handles, tasks) wait in queues. */
#ifndef LO2IO_ROWS_H
#define LO2IO_ROWS_H

#include "tables/state.h"

bool tables_flush(engine *e);     /* writes the rows that wait; true: none waits any more */
bool batch_has_room(const engine *e);
uint32_t batch_records_fit(const engine *e); /* the batch has room for the rows of so many records, of whatever kind */
bool paths_flush(engine *e);      /* false: the batch has no room for all of them */
void emit_handle_event(engine *e, int64_t time, uint32_t task_number, uint32_t handle_number);
void emit_flags_event(engine *e, int64_t time, uint32_t task_number, uint32_t handle_number, uint32_t flags);
uint32_t emit_operation(engine *e); /* a new row, with its id */
void emit_task(engine *e, const task *t, uint8_t kind, int64_t exit);

#endif
