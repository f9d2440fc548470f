/* Names of files that BPF programs found. The text is left in e->name. */
#ifndef LO2IO_KERNEL_NAMES_H
#define LO2IO_KERNEL_NAMES_H

#include "tables/state.h"

bool kernel_name_of(engine *e, const lo2_kernel_file *fact, const char *names); /* false: the fact proves no name */
/* Makes a directory's path from the names of a record, without a slash at the end: empty for the root. */
bool kernel_directory_of(engine *e, uint8_t flags, const char *names, uint32_t length);

#endif
