/*
 * Facts that BPF programs told. A record is whole: it includes the names and paths that it announces. It may be
 * unaligned. In both back ends, facts about arguments come before the row of their call, others after its exit, when
 * t->left is that call. Facts about a close and about requests of rings come at their own time, whatever the thread
 * does. No function that takes a fact makes a task, so `t` stays valid.
 */
#ifndef LO2IO_KERNEL_FACTS_H
#define LO2IO_KERNEL_FACTS_H

#include "tables/state.h"

void on_kernel_fact(engine *e, const uint8_t *record, uint32_t length, const lo2_kernel_head *head);
/*
 * The thread has left a call, and t->left is set. Hands on the facts about its arguments and the events that it
 * collected.
 */
void kernel_arguments_due(engine *e, task *t);
/* the call's row is written and its effects have been applied: hands on all other facts */
void kernel_facts_due(engine *e, task *t);
void kernel_facts_free(engine *e);

#endif
