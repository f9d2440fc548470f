/* How threads and processes begin, become other programs, and end. */
#ifndef LO2IO_LIVES_H
#define LO2IO_LIVES_H

#include "tables/state.h"

void on_fork(engine *e, int64_t time, uint32_t pid, uint32_t ppid, uint32_t tid, uint32_t ptid);
void on_task_exit(engine *e, int64_t time, uint32_t tid);
void on_comm(engine *e, int64_t time, uint32_t pid, uint32_t tid, const char *comm, size_t length, bool exec);
process *on_task_fact(engine *e, const lo2_fact_task *fact, int64_t begin); /* NULL: the fact proves nothing */
void count_compat(engine *e, const task *t);
void task_end_unseen(engine *e, task *t); /* for a task whose EXIT was lost or has not come */

#endif
