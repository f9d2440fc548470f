/* Files by device, inode, generation, mount and path. */
#ifndef LO2IO_FILES_H
#define LO2IO_FILES_H

#include "tables/state.h"

uint32_t file_of(engine *e, const file_facts *facts, const char *path); /* NONE: memory is short */
void files_free(engine *e);

#endif
