/* The runs of pages that a call, or a request of a ring, put into the page cache: they tell what a read found there. */
#include "cache/cache.h"

enum { MOST_RUNS = 4096, TYPE_BITS = 0170000, REGULAR = 0100000, BLOCK_DEVICE = 0060000, DIRECT = 040000 };
enum { LEAST_PAGE_BYTES = 4096, MOST_PAGES = 1 << 28 };

typedef struct { uint64_t first, last; } page_range;

/*
 * False: the record is damaged. It has no pages, or pages smaller than the smallest page, or its last byte needs more
 * than 63 bits. Or it has more than MOST_PAGES pages: the engine visits each page, and billions of pages would take
 * minutes.
 */
bool are_pages(const lo2_kernel_pages *told)
{
    return told->pages && told->pages <= MOST_PAGES && told->page_bytes >= LEAST_PAGE_BYTES &&
           told->first_page < INT64_MAX / told->page_bytes - told->pages;
}

static bool goes_on(const page_run *run, const page_run *next)
{
    return run->evicts == next->evicts && run->device == next->device && run->inode == next->inode &&
           run->generation == next->generation && run->mode == next->mode && run->first + run->pages == next->first &&
           run->pages <= UINT32_MAX - next->pages;
}

void cache_hold(engine *e, cache_deeds *deeds, const page_run *run)
{
    uint32_t index;
    page_run *last = deeds->last ? &e->page_runs.at[deeds->last - 1] : NULL;
    if (last && !deeds->apart && goes_on(last, run)) {
        last->pages += run->pages;
        return;
    }
    if (deeds->count == MOST_RUNS) {
        deeds->cut = true;
        return;
    }
    TAKE(e, free_page_runs, page_runs, index);
    if (index == NONE)
        return;
    e->page_runs.at[index] = *run;
    e->page_runs.at[index].next = 0;
    *(deeds->last ? &e->page_runs.at[deeds->last - 1].next : &deeds->first) = index + 1;
    deeds->last = index + 1;
    deeds->count++;
}

cache_file cache_file_of(const description *d)
{
    bool known = d && d->has_identity;
    return (cache_file){
        .device = known ? d->device : 0, .inode = known ? d->inode : 0, .generation = known ? d->generation : 0,
        .file = d ? d->file : NONE, .cached = known ? d->cached : CACHED_UNKNOWN,
        .direct = d && d->open_flags != NONE && (d->open_flags & DIRECT), .flags_known = d && d->open_flags != NONE,
    };
}

/* ---- which of the runs are pages of the file? ---- */

/* Overlayfs: the pages belong to the lower file. That is known if all runs of files are of one file. */
static bool has_one_file(const engine *e, const cache_deeds *deeds)
{
    const page_run *first = NULL;
    for (uint32_t at = deeds->first; at; at = e->page_runs.at[at - 1].next) {
        const page_run *run = &e->page_runs.at[at - 1];
        if (run->evicts || (run->mode & TYPE_BITS) != REGULAR)
            continue;
        if (first && (run->device != first->device || run->inode != first->inode))
            return false;
        first = run;
    }
    return true;
}

static bool is_of_file(const page_run *run, const cache_file *file, bool one_file)
{
    switch (file->cached) {
    case CACHED_PAGES:
        return run->device == file->device && run->inode == file->inode && run->generation == file->generation;
    case CACHED_BELOW: return one_file && (run->mode & TYPE_BITS) == REGULAR;
    case CACHED_DEVICE: return (run->mode & TYPE_BITS) == BLOCK_DEVICE;
    default: return false;
    }
}

static page_range pages_of(uint32_t page_bytes, int64_t offset, int64_t bytes)
{
    return (page_range){(uint64_t)offset / page_bytes, (uint64_t)(offset + bytes - 1) / page_bytes};
}

/* The part of a run before a page, at most the whole. */
static uint32_t pages_before(const page_run *run, uint64_t page)
{
    return page <= run->first ? 0 : page - run->first < run->pages ? (uint32_t)(page - run->first) : run->pages;
}

bool cache_is_within(const engine *e, const page_run *run, const cache_file *file, int64_t offset, int64_t bytes)
{
    if (offset == UNKNOWN || bytes <= 0 || !is_of_file(run, file, true))
        return false;
    page_range range = pages_of(run->page_bytes, offset, bytes);
    return pages_before(run, range.last + 1) > pages_before(run, range.first);
}

/* ---- rows ---- */

static void emit_part(engine *e, const page_run *run, const cache_cause *cause, uint32_t file, uint32_t from, uint32_t to, uint8_t why,
                      bool followed)
{
    if (from == to)
        return;
    cache_fill row = {
        .time = run->time, .cause = cause->id, .device = run->device, .inode = run->inode, .first = run->first + from,
        .pages = to - from, .page_bytes = run->page_bytes, .task = cause->task, .tid = cause->tid, .file = file, .why = why,
        .used = NONE,
    };
    if (why == LO2_FILL_DEMAND) {
        row.used = row.pages;
        row.first_use = cause->id;
    }
    if (followed)
        uses_begin(e, &row);
    else
        row_of_fill(e, &row);
}

static uint8_t reason_of(const page_run *run, const cache_cause *cause, bool of_file)
{
    if ((run->mode & TYPE_BITS) != REGULAR && !of_file)
        return LO2_FILL_METADATA;
    switch (cause->act) {
    case ACT_NONE: return LO2_FILL_NO_CALL;
    case ACT_WRITE: return LO2_FILL_WRITE;
    case ACT_ADVICE: return LO2_FILL_ADVICE;
    default: return LO2_FILL_OTHER;
    }
}

static void emit_run(engine *e, const page_run *run, const cache_file *file, const cache_cause *cause, bool of_file)
{
    bool known = cause->act == ACT_READ && of_file && cause->offset != UNKNOWN && cause->bytes > 0;
    uint32_t number = of_file ? file->file : NONE;
    if (run->evicts) {
        row_of_eviction(e, &(cache_eviction){.time = run->time, .cause = cause->id, .device = run->device, .inode = run->inode,
                                           .first = run->first, .pages = run->pages, .page_bytes = run->page_bytes,
                                           .task = cause->task, .tid = cause->tid, .file = number});
        uses_evicted(e, run);
        return;
    }
    if (!known) {
        uint8_t why = reason_of(run, cause, of_file);
        emit_part(e, run, cause, number, 0, run->pages, why, why == LO2_FILL_ADVICE && of_file && file->cached == CACHED_PAGES);
        return;
    }
    page_range range = pages_of(run->page_bytes, cause->offset, cause->bytes);
    uint32_t begin = pages_before(run, range.first), end = pages_before(run, range.last + 1);
    bool followed = file->cached == CACHED_PAGES && !cause->through_mapping;
    emit_part(e, run, cause, number, 0, begin, LO2_FILL_AHEAD, followed);
    emit_part(e, run, cause, number, begin, end, LO2_FILL_DEMAND, false);
    emit_part(e, run, cause, number, end, run->pages, LO2_FILL_AHEAD, followed);
}

/* ---- the verdict ---- */

static void count_pages(const engine *e, const cache_deeds *deeds, const cache_file *file, const cache_cause *cause, bool one_file,
                        cache_result *result)
{
    for (uint32_t at = deeds->first; at; at = e->page_runs.at[at - 1].next) {
        const page_run *run = &e->page_runs.at[at - 1];
        if (run->evicts || !is_of_file(run, file, one_file))
            continue;
        if (cause->offset == UNKNOWN) {
            result->missed = result->ahead = NONE;
            return;
        }
        page_range range = pages_of(run->page_bytes, cause->offset, cause->bytes);
        uint32_t within = pages_before(run, range.last + 1) - pages_before(run, range.first);
        result->missed += within;
        result->ahead += run->pages - within;
    }
}

static uint8_t judge(const cache_deeds *deeds, const cache_file *file, const cache_cause *cause, const cache_result *result)
{
    if (file->cached == CACHED_UNKNOWN || !cause->certain)
        return LO2_CACHE_UNKNOWN;
    if (file->cached == CACHED_NOT)
        return LO2_CACHE_NONE;
    if (file->cached == CACHED_MEMORY)
        return LO2_CACHE_MEMORY;
    if (result->missed)
        return result->missed == NONE ? LO2_CACHE_UNKNOWN : LO2_CACHE_MISS;
    if (!file->flags_known || deeds->cut)
        return LO2_CACHE_UNKNOWN;
    if (file->direct)
        return LO2_CACHE_NONE;
    if (!cause->followed)
        return LO2_CACHE_UNKNOWN;
    return deeds->waited ? LO2_CACHE_WAIT : LO2_CACHE_HIT;
}

bool cache_finish(engine *e)
{
    uses_end(e, true);
    return cache_flush(e);
}

void cache_free(engine *e)
{
    uses_free(e);
    cache_rows_free(e);
    free(e->page_runs.at);
    free(e->free_page_runs.at);
}

cache_result cache_settle(engine *e, cache_deeds *deeds, const cache_file *file, const cache_cause *cause)
{
    bool one_file = file->cached != CACHED_BELOW || has_one_file(e, deeds);
    cache_result result = {LO2_CACHE_NO_READ, NONE, NONE, UNKNOWN};
    if (cause->act == ACT_READ && cause->bytes > 0) {
        result.missed = result.ahead = 0;
        count_pages(e, deeds, file, cause, one_file, &result);
        result.verdict = judge(deeds, file, cause, &result);
        if (deeds->cut || result.verdict == LO2_CACHE_UNKNOWN)
            result.missed = result.ahead = NONE;
        else if (!deeds->unseen)
            result.wait_ns = deeds->wait_ns;
        if (e->uses && cause->offset != UNKNOWN) {
            page_range range = pages_of(e->page_bytes, cause->offset, cause->bytes);
            uses_read(e, file, range.first, range.last, cause->id);
        }
    }
    for (uint32_t at = deeds->first; at;) {
        page_run run = e->page_runs.at[at - 1];
        emit_run(e, &run, file, cause, is_of_file(&run, file, one_file));
        GIVE_BACK(e, free_page_runs, at - 1);
        at = run.next;
    }
    *deeds = (cache_deeds){0};
    return result;
}
