/* A stream: files of records, read in blocks, delivered in the order of time. */
#ifndef LO2IO_STREAM_H
#define LO2IO_STREAM_H

#include "input/clock.h"

typedef struct {
    const char *const *paths;
    uint32_t nr_paths, opened;    /* opened: how many are, so far */
    int fd;
    uint8_t kind;                 /* enum lo2_stream_kind */
    bool at_end, out_of_memory;
    uint32_t index, cpu;
    uint8_t *buffer;
    uint32_t size, filled;        /* bytes of the buffer; bytes that hold data */
    uint32_t block_end;           /* bytes of the buffer that this block's records take */
    /* the record of a whole call has two entries, the second with STREAM_EXIT */
    struct lo2_entry { int64_t time; uint32_t offset; uint32_t order; } *entries;
    uint32_t nr_entries, next, entries_room;
    int64_t last_time;            /* the last one delivered: nothing earlier may follow */
    int64_t highest;              /* the latest of all records read */
    uint64_t bytes_read;
} stream;

/* Bits of the length before each record of a BPF program (Linux 5.8 to 6.18). */
#define KERNEL_UNFINISHED (1u << LO2_FRAME_UNFINISHED_BIT)
#define KERNEL_DISCARDED (1u << LO2_FRAME_DISCARDED_BIT)
/*
 * Bits of such a record's offset, which is a multiple of 8. STREAM_EXIT: the exit of a whole call. STREAM_BOUND: must stay
 * together with the entry before.
 */
enum { STREAM_EXIT = 1, STREAM_BOUND = 2, STREAM_MARKS = 7 };

static inline bool is_of_programs(uint8_t kind) { return kind == LO2_STREAM_KERNEL || kind == LO2_STREAM_EVENTS; }
static inline bool stream_of_programs(const stream *s) { return is_of_programs(s->kind); }
static inline uint32_t kernel_record_length(uint32_t length) { return length & ~(KERNEL_UNFINISHED | KERNEL_DISCARDED); }
static inline uint64_t kernel_record_step(uint32_t length) { return (kernel_record_length(length) + 15ull) & ~7ull; }

int stream_open(stream *s, const lo2_stream *config, uint32_t index, uint32_t buffer_bytes);
/* 1: a record is at hand (stream_time, stream_record); 0: the end; -1: read error (errno). */
int stream_fill(stream *s, const facts_clock *clock, lo2_totals *totals);
const char *stream_path(const stream *s);
void stream_close(stream *s);
/* Adds to counts[common_type] for each event of a tracepoint in one stream; counts has nr_types places. -1: errno says why. */
int stream_count(const lo2_stream *config, uint32_t buffer_bytes, uint32_t type_offset, uint64_t *counts, uint32_t nr_types);

#endif
