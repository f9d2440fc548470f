/* Where records are lacking. */
#ifndef LO2IO_GAPS_H
#define LO2IO_GAPS_H

#include "tables/state.h"

int gaps_find(engine *e, const char **path); /* in all files; -1: read error (errno) in this one */
void gaps_pass(engine *e, int64_t time); /* before the record of that time, if it is not before gap_mark */
void add_loss(engine *e, const stream *s, int64_t begin, int64_t end, uint64_t lost); /* by the record at its end */

#endif
