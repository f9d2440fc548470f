/*
 * Threads and processes: which are recorded, which share a table of descriptors. engine/lives.c has their starts and
 * ends.
 */
#ifndef LO2IO_TASKS_H
#define LO2IO_TASKS_H

#include "tables/state.h"

task *task_of(engine *e, uint32_t tid);
task *task_for_sample(engine *e, uint32_t tid);
task *task_for_fact(engine *e, uint32_t pid);
uint32_t process_of(engine *e, uint32_t pid);
void note_pid(engine *e, const lo2_fact_task *fact);
void on_kernel_usage(task *t, const uint8_t *record);
void task_lives(task *t);         /* a record came that only a living thread causes */

uint32_t process_new(engine *e, uint32_t pid, uint32_t ppid, uint32_t parent_number);
/* The task takes over the caller's reference of the table. */
uint32_t task_new(engine *e, uint32_t process_index, uint32_t tid, uint32_t table, int64_t start, const char *comm);
/* known only from a fact or a sample */
uint32_t task_adopt(engine *e, uint32_t pid, uint32_t tid, uint32_t ppid, const char *comm);
bool task_remove(engine *e, task *t, int64_t time); /* true: it was the last of its process */
void process_remove(engine *e, uint32_t index);
/* Is a process recorded that no fact selects? */
bool is_recorded_by_default(const engine *e, uint32_t pid);
uint32_t recorded_number(engine *e, uint32_t pid); /* NONE: not recorded, or not known */

#endif
