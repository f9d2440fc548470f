/* Requests of libaio. */
#ifndef LO2IO_IOCBS_H
#define LO2IO_IOCBS_H

#include "tables/state.h"

void iocbs_submitted(engine *e, task *t, int64_t result); /* call right before io_submit gets its row */
void iocbs_unclaimed(engine *e, task *t);                 /* the thread has left its io_submit */
void iocbs_drop(engine *e, task *t);
uint64_t iocb_sending(engine *e, task *t, bool ahead); /* like ring_request_sends, for a thread that has iocbs */
bool iocbs_flush(engine *e);      /* writes the rows that wait; true: none waits any more */
void iocbs_free(engine *e);
void on_kernel_iocb(engine *e, task *t, const uint8_t *record, uint32_t size);
void on_kernel_events(engine *e, task *t, const uint8_t *record, uint32_t size);

#endif
