/* Names of files as the kernel's own programs found them; the text is in e->name. */
#ifndef LO2IO_KERNEL_NAMES_H
#define LO2IO_KERNEL_NAMES_H

#include "tables/state.h"

bool kernel_name_of(engine *e, const lo2_kernel_file *fact, const char *names); /* false: nothing is told that proves a name */
/* A directory's path from the names of a record, without a slash at its end: of the root nothing. */
bool kernel_directory_of(engine *e, uint8_t flags, const char *names, uint32_t length);

#endif
