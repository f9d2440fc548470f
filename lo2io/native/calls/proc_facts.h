/* Facts about descriptors from /proc. */
#ifndef LO2IO_PROC_FACTS_H
#define LO2IO_PROC_FACTS_H

#include "tables/state.h"

void on_fd_fact(engine *e, const lo2_fact_fd *fact, const char *path, int64_t begin, int64_t end);

#endif
