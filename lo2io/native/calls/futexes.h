/* Calls on futexes. */
#ifndef LO2IO_FUTEXES_H
#define LO2IO_FUTEXES_H

#include "tables/state.h"

void futex_called(engine *e, uint64_t operation, uint64_t address);
bool futexes_flush(engine *e);
void futexes_free(engine *e);

#endif
