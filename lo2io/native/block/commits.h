/* Commits of journals. */
#ifndef LO2IO_COMMITS_H
#define LO2IO_COMMITS_H

#include "tables/state.h"

void on_kernel_commit(engine *e, const uint8_t *content, uint32_t length, int64_t time); /* the record COMMIT */
void commits_finish(engine *e); /* those that have not ended */
bool commits_flush(engine *e);
void commits_free(engine *e);

#endif
