/* What a thread does outside of calls, with the layer `faults`. */
#ifndef LO2IO_OUTSIDE_H
#define LO2IO_OUTSIDE_H

#include "cache/cache.h"

void outside_slept(engine *e, task *t, const lo2_kernel_sleep *sleep);
void outside_forget_sleep(engine *e, task *t); /* drops the oldest stretch that is held */
void outside_fills(engine *e, task *t, const page_run *run);
cache_cause outside_cause(const engine *e, const task *t); /* no call and no fault: only the thread is known */
void outside_settle(engine *e, const task *t, cache_deeds *deeds); /* makes the rows of runs that belong to no fault */
void outside_drop(engine *e, task *t); /* there will be no fault: the thread ends */
void outside_free(engine *e);

#endif
