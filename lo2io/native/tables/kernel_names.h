/* Shared by the files that name files. */
#ifndef LO2IO_NAMES_H
#define LO2IO_NAMES_H

#include "engine/engine.h"

enum { NAME_UNKNOWN = 0, NAME_PROC = 1, NAME_CALL = 2, NAME_KERNEL = 3 };

/* tables/kernel_names.c: the text is in e->name, or the answer is false: nothing is told that proves a name. */
bool kernel_name_of(engine *e, const lo2_kernel_file *fact, const char *names);
/* A directory's path from the names of a record, without a slash at its end: of the root nothing. */
bool kernel_directory_of(engine *e, uint8_t flags, const char *names, uint32_t length);

#endif
