/* Whether completions of block requests are missing. */
#ifndef LO2IO_BLOCK_COMPLETIONS_H
#define LO2IO_BLOCK_COMPLETIONS_H

#include "tables/state.h"

/* To be asked only where it makes a difference: the first answer may take a look at all records. */
bool completions_missing(engine *e);

#endif
