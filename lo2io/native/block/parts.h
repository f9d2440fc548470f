/* The parts of block requests: the files whose bytes they carry. docs/explanation/rules/parts.md has the rules. */
#ifndef LO2IO_BLOCK_PARTS_H
#define LO2IO_BLOCK_PARTS_H

#include "tables/state.h"

void parts_add(engine *e, request *r, const lo2_kernel_parts *record); /* to a request that is at the device */
void parts_end(engine *e, request *r);  /* makes the rows of a request that ends, if it is written; sets its inode and charged */
/* The id of a request of the thread that reads these bytes, and was issued at `wanted->issue` or later; 0: none. */
uint64_t part_carrying(const engine *e, const carried_part *wanted);
bool parts_flush(engine *e);            /* false: the batch has no room for all of them */
void parts_free(engine *e);

#endif
