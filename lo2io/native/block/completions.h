/* Whether completions of block requests are missing. */
#ifndef LO2IO_BLOCK_COMPLETIONS_H
#define LO2IO_BLOCK_COMPLETIONS_H

#include "tables/state.h"

/* Call this only where the answer makes a difference: the first call may have to read all records. */
bool completions_missing(engine *e);

#endif
