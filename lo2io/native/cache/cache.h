/*
 * The page cache: what a read found there, and what became of the pages that it did not ask for.
 * docs/explanation/rules/cache.md has the rules.
 */
#ifndef LO2IO_CACHE_H
#define LO2IO_CACHE_H

#include "tables/state.h"

enum cache_act { ACT_NONE, ACT_READ, ACT_WRITE, ACT_ADVICE, ACT_OTHER };

/* A call, a request of a ring, or neither. */
typedef struct {
    uint64_t id;                  /* of the row; 0: it has none */
    uint32_t task, tid;           /* task NONE: not recorded */
    uint8_t act;
    bool certain;                 /* no record of its time is lacking */
    bool followed;                /* a wait would have been seen */
    bool through_mapping;         /* a page fault: later uses of the pages that it fills are not seen */
    int64_t offset, bytes;        /* of a read: those that it moved; offset UNKNOWN: not known */
} cache_cause;

/* cache/runs.c */
bool are_pages(const lo2_kernel_pages *told); /* false: damaged */
void cache_hold(engine *e, cache_deeds *deeds, const page_run *run); /* until cache_settle() */
/* Judges a read, and makes the rows of all runs of the call or request, which then holds none. */
cache_result cache_settle(engine *e, cache_deeds *deeds, const cache_file *file, const cache_cause *cause);
bool cache_finish(engine *e);
void cache_free(engine *e);
bool cache_is_within(const engine *e, const page_run *run, const cache_file *file, int64_t offset, int64_t bytes);
cache_file cache_file_of(const description *d);

/* cache/uses.c: pages that were read ahead, until somebody reads them or they are gone */
void uses_begin(engine *e, const cache_fill *row);
void uses_read(engine *e, const cache_file *file, uint64_t first, uint64_t last, uint64_t reader);
void uses_evicted(engine *e, const page_run *run);
void uses_end(engine *e, bool known); /* known: nobody used what is left; else records are lacking */
void uses_free(engine *e);

/* cache/rows.c */
void row_of_fill(engine *e, const cache_fill *row);
void row_of_eviction(engine *e, const cache_eviction *row);
bool cache_flush(engine *e);      /* false: the batch has no room for all of them */
void cache_rows_free(engine *e);

#endif
