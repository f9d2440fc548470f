/* Rows on their way into a batch. What may come in floods (handles, tasks) waits in queues. */
#ifndef LO2IO_ROWS_H
#define LO2IO_ROWS_H

#include "tables/state.h"

bool tables_flush(engine *e);     /* rows that wait; true: nothing waits any more */
bool batch_has_room(const engine *e);
uint32_t batch_records_fit(const engine *e); /* how many records have room for their rows, whatever they are */
bool paths_flush(engine *e);      /* false: the batch has no room for all */
void emit_handle_event(engine *e, int64_t time, uint32_t task_number, uint32_t handle_number);
void emit_flags_event(engine *e, int64_t time, uint32_t task_number, uint32_t handle_number, uint32_t flags);
uint32_t emit_operation(engine *e); /* a fresh row, id set */
void emit_task(engine *e, const task *t, uint8_t kind, int64_t exit);

#endif
