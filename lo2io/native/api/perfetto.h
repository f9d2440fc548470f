/* Packets of a Perfetto trace, many at a time: slices, instants and counters. Others describe their tracks. */
#ifndef LO2IO_PERFETTO_H
#define LO2IO_PERFETTO_H

#include <stdbool.h>

enum { LO2_PERFETTO_ROW_BYTES = 160, LO2_PERFETTO_NOTE_BYTES = 24 };

typedef struct lo2_perfetto_note {
    uint32_t name;          /* number of the interned name */
    uint8_t kind;           /* 0 signed, 1 unsigned, 2 address (shown in hexadecimal), 3 interned text, 4 text */
    bool always;            /* every value is written */
    int64_t unknown;        /* if not `always`: this value is not written */
    const int64_t *values;  /* unsigned ones as the same bits; for texts, offsets of nr + 1 bounds */
    const char *text;       /* of texts; an empty text is not written */
} lo2_perfetto_note;

typedef struct lo2_perfetto_slices {
    size_t nr;
    const uint64_t *track;
    const int64_t *begin_ns;
    const int64_t *end_ns;  /* INT64_MIN: the slice has no end, INT64_MAX: it is an instant */
    const uint32_t *name;   /* interned */
    uint32_t category;      /* interned */
    uint32_t nr_flows;
    const uint64_t *flows[4];       /* 0: none in this row */
    const uint64_t *last_flow;      /* a flow that ends in this row; 0: none. NULL: none in any row */
    uint32_t nr_notes;
    const lo2_perfetto_note *notes;
} lo2_perfetto_slices;

typedef struct lo2_perfetto_lanes lo2_perfetto_lanes;

/* Both return the number of bytes written: at most ROW_BYTES a row, NOTE_BYTES a note of a row, and the texts. */
size_t lo2_perfetto_slices_write(const lo2_perfetto_slices *slices, uint8_t *out);
size_t lo2_perfetto_counters_write(size_t nr, const uint64_t *track, const int64_t *time_ns, const int64_t *value,
                                   uint8_t *out);

lo2_perfetto_lanes *lo2_perfetto_lanes_new(void);
void lo2_perfetto_lanes_free(lo2_perfetto_lanes *lanes);
/* Gives each row a lane, such that no two rows of a lane overlap or touch. False: no memory. end_ns as in slices. */
bool lo2_perfetto_lanes_assign(lo2_perfetto_lanes *lanes, size_t nr, const int64_t *begin_ns, const int64_t *end_ns,
                               uint32_t *lane);
#endif
