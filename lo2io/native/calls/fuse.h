/* Requests to the servers of FUSE file systems. */
#ifndef LO2IO_FUSE_H
#define LO2IO_FUSE_H

#include "tables/state.h"

void on_kernel_fuse_send(engine *e, const uint8_t *record, uint32_t length, int64_t time);
void on_kernel_fuse_end(engine *e, const uint8_t *record, uint32_t length, int64_t time);
/* `row`: the row of the thread's pending call; NONE: it has no row. */
void fuse_call_left(engine *e, task *t, uint32_t row);
/* The heir has the pending call of another task, with its list of requests. They become the heir's. */
void fuse_taken_over(engine *e, task *heir);
void fuse_finish(engine *e); /* nothing more comes */
bool fuse_flush(engine *e);
void fuse_free(engine *e);

#endif
