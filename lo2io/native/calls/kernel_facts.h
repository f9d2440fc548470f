/*
 * Facts told by the kernel's own programs. A record is whole, the names and paths that it announces included, but may lie
 * unaligned. Those of arguments come before the row of the call, and the others after the exit of the call that they are
 * about, t->left, in both back ends; those about a close, and about requests of rings, come at their time, whatever t is
 * doing. No function that takes a fact makes a task: t stays where it is.
 */
#ifndef LO2IO_KERNEL_FACTS_H
#define LO2IO_KERNEL_FACTS_H

#include "tables/state.h"

void on_kernel_fact(engine *e, const uint8_t *record, uint32_t length, const lo2_kernel_head *head);
/* A thread's call has been left, t->left is set: hands on what was held of its descriptors, and of what it has collected. */
void kernel_arguments_due(engine *e, task *t);
void kernel_facts_due(engine *e, task *t); /* its row is written, its effects are known: hands on the rest */
void kernel_facts_free(engine *e);

#endif
