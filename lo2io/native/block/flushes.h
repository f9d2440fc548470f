/* Who asked for a flush. */
#ifndef LO2IO_FLUSHES_H
#define LO2IO_FLUSHES_H

#include "input/block_sample.h"
#include "tables/state.h"

uint32_t disk_of(const engine *e, uint32_t device); /* a bio names the partition */
submitter submitter_of(engine *e, uint32_t tid);
task *submitter_alive(engine *e, const submitter *who);
bool submitter_is_recorded(engine *e, const submitter *who);
void flush_wanted(engine *e, const block_sample *s, uint32_t tid);
submitter flush_owner(engine *e, uint32_t device, submitter issuer);

#endif
