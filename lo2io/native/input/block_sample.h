/* A sample of a block tracepoint. */
#ifndef LO2IO_BLOCK_SAMPLE_H
#define LO2IO_BLOCK_SAMPLE_H

#include "input/vectors.h"

typedef struct {
    uint32_t device;
    uint64_t sector, nr_sectors;
    int64_t bytes;
    int32_t error;
    uint16_t flags, cpu;
    uint8_t operation;
    bool started;                 /* the event's request must be issued already */
    bool wants_flush;             /* no sectors, and no flush itself: mostly a bio that only asked for a flush */
} block_sample;


void block_sample_read(const lo2_event *event, const uint8_t *raw, block_sample *s);

#endif
