/* Events of tracepoints: perf's samples, and those that BPF programs wrote. */
#ifndef LO2IO_SAMPLES_H
#define LO2IO_SAMPLES_H

#include "tables/state.h"

/* A PERF_RECORD_SAMPLE. */
void on_sample(engine *e, const stream *s, const uint8_t *record, uint16_t size, int64_t time);
/* An event of this common_type in the thread `tid`. Nothing reads the common fields of `raw`. */
void on_event(engine *e, const stream *s, uint16_t type, uint32_t tid, const uint8_t *raw, uint32_t raw_size, int64_t time);

#endif
