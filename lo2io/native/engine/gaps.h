/* Gaps: spans in which a buffer lost records. */
#ifndef LO2IO_GAPS_H
#define LO2IO_GAPS_H

#include "tables/state.h"

int gaps_find(engine *e, const char **path); /* in all files; -1: reading `path` failed (errno) */
void gaps_pass(engine *e, int64_t time); /* call before a record whose time is gap_mark or later */
/* `end` is the time of the record that reports the loss */
void add_loss(engine *e, const stream *s, int64_t begin, int64_t end, uint64_t lost);

#endif
