/* Who dirtied the pages that requests write back, and why. docs/explanation/rules/dirty.md has the rules. */
#ifndef LO2IO_BLOCK_DIRTY_H
#define LO2IO_BLOCK_DIRTY_H

#include "tables/state.h"

void on_kernel_dirty(engine *e, const uint8_t *content, uint32_t length); /* the record DIRTY */
void on_kernel_writeback(engine *e, const uint8_t *content, uint32_t length, int64_t time); /* the record WRITEBACK */
/* Why the thread writes pages back at present: enum lo2_write_back_reason. NONE: it does not, or that is not known. */
uint8_t write_back_reason(const engine *e, uint32_t tid);
/* Makes the rows of a part of a request that writes and has ended. */
void dirty_written(engine *e, request *r, const part_row *part);
void dirty_finish(engine *e);           /* makes the rows of pages that nobody has written back */
bool dirty_flush(engine *e);            /* false: the batch has no room for all rows */
void dirty_free(engine *e);

#endif
