/* Threads and processes: who is recorded, who shares which table of descriptors. How they begin and end: engine/lives.c. */
#ifndef LO2IO_TASKS_H
#define LO2IO_TASKS_H

#include "tables/state.h"

task *task_of(engine *e, uint32_t tid);
task *task_for_sample(engine *e, uint32_t tid);
task *task_for_fact(engine *e, uint32_t pid);
uint32_t process_of(engine *e, uint32_t pid);
void note_pid(engine *e, const lo2_fact_task *fact);
void on_kernel_usage(task *t, const uint8_t *record);
void task_lives(task *t);         /* something came that only a living thread does */

uint32_t process_new(engine *e, uint32_t pid, uint32_t ppid, uint32_t parent_number);
/* The table's reference goes to the task. */
uint32_t task_new(engine *e, uint32_t process_index, uint32_t tid, uint32_t table, int64_t start, const char *comm);
uint32_t task_adopt(engine *e, uint32_t pid, uint32_t tid, uint32_t ppid, const char *comm); /* known from a fact or a sample only */
bool task_remove(engine *e, task *t, int64_t time); /* true: it was the last of its process */
void process_remove(engine *e, uint32_t index);
/* Whether a process that nothing selects is recorded. */
bool is_recorded_by_default(const engine *e, uint32_t pid);
uint32_t recorded_number(engine *e, uint32_t pid); /* NONE: it is not recorded, or not known */

#endif
