/* Switches: who got which CPU, and which threads had none. */
#ifndef LO2IO_OFF_CPU_H
#define LO2IO_OFF_CPU_H

#include "tables/state.h"

void on_switch(engine *e, const lo2_event *event, const uint8_t *raw, uint32_t cpu, int64_t time);
void on_kernel_sleep(engine *e, task *t, const uint8_t *record);
uint32_t emit_sleep(engine *e, const task *t, const lo2_kernel_sleep *sleep); /* the row of a stretch of a recorded thread */
void off_cpu_end(engine *e, task *t, int64_t end_time); /* ends a stretch that has begun */

#endif
