/* Which threads share a table of descriptors. */
#ifndef LO2IO_SHARING_H
#define LO2IO_SHARING_H

#include "tables/state.h"

void table_told(engine *e, task *t, uint64_t address); /* a fact says that t's table has this address */

#endif
