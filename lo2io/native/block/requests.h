/* Requests of block devices. */
#ifndef LO2IO_BLOCK_REQUESTS_H
#define LO2IO_BLOCK_REQUESTS_H

#include "tables/state.h"

void on_block(engine *e, const lo2_event *event, const uint8_t *raw, uint32_t tid, uint16_t cpu, int64_t time);
void on_kernel_parts(engine *e, const uint8_t *content, uint32_t length); /* the record PARTS */
bool requests_finish(engine *e);  /* writes the rows of all that is left; false: the batch is full */
bool requests_flush(engine *e);   /* writes the rows of requests whose end was not seen; false: the batch is full */
/* A call of the thread, or a ring's request, is over: the block requests for which it waited have ended. */
void requests_end_with_call(engine *e, const task *t, int64_t time);
void requests_end_with_ring_request(engine *e, uint64_t id, int64_t submit, int64_t time);
void requests_free(request_set *set);

#endif
