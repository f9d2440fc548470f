/* Hands what threads did in the page cache to the call, or the request of a ring, in which they did it. */
#ifndef LO2IO_CACHE_CALLS_H
#define LO2IO_CACHE_CALLS_H

#include "tables/state.h"

void on_kernel_pages(engine *e, const uint8_t *record, uint32_t length, int64_t time);
void on_kernel_io_wait(engine *e, const uint8_t *record, uint32_t length, int64_t time);
void cache_call_left(engine *e, task *t, uint32_t row, bool completed); /* `row` of the call has its offset and bytes */
void cache_call_dropped(engine *e, task *t); /* the call has no row */

#endif
