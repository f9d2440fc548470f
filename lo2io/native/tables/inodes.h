/* Which file an inode is: the newest name under which a program in the kernel has shown it. */
#ifndef LO2IO_TABLES_INODES_H
#define LO2IO_TABLES_INODES_H

#include "tables/state.h"

void inode_shown(engine *e, uint64_t device, uint64_t inode, uint32_t generation, uint32_t file);
uint32_t inode_file(const engine *e, uint64_t device, uint64_t inode, uint32_t generation); /* NONE: it was never shown */
void inodes_free(engine *e);

#endif
