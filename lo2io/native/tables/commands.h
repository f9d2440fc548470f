/* Command lines of processes. */
#ifndef LO2IO_COMMANDS_H
#define LO2IO_COMMANDS_H

#include "tables/state.h"

void on_command(engine *e, process *p, const char *text, uint32_t length, bool cut, int64_t begin);
void command_ends(engine *e, process *p, int64_t time);
void on_kernel_exec(engine *e, task *t, const uint8_t *record, uint32_t size, int64_t time);

#endif
