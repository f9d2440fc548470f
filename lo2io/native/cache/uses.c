/*
 * Pages that were read ahead: which of them a read used, and which were taken out unused. A bit for each page stays set until
 * one of the two happens. Fills are cut at multiples of BLOCK pages, so that a page is found by its block. If too many fills
 * wait, nothing is known of the oldest one's pages.
 */
#include "cache/cache.h"
#include "hash/hash.h"

enum { BLOCK = 512, WORDS = BLOCK / 64, MOST_FILLS = 1 << 15, BUCKETS = 1 << 14 };

typedef struct followed_fill {
    cache_fill row;
    uint64_t left[WORDS];         /* by page within the block */
    uint32_t nr_left, used;
    struct followed_fill *chain, *older, *newer;
} followed_fill;

typedef struct page_uses {
    followed_fill *buckets[BUCKETS], *oldest, *newest;
    uint32_t count;
} page_uses;

static uint32_t bucket_of(uint64_t device, uint64_t inode, uint64_t block)
{
    return (uint32_t)HASH_WORDS(device, inode, block) & (BUCKETS - 1);
}

static void end_fill(engine *e, followed_fill *f, bool known)
{
    page_uses *u = e->uses;
    followed_fill **place = &u->buckets[bucket_of(f->row.device, f->row.inode, f->row.first / BLOCK)];
    while (*place != f)
        place = &(*place)->chain;
    *place = f->chain;
    *(f->older ? &f->older->newer : &u->oldest) = f->newer;
    *(f->newer ? &f->newer->older : &u->newest) = f->older;
    u->count--;
    f->row.used = known ? f->used : NONE;
    f->row.first_use = known ? f->row.first_use : 0;
    row_of_fill(e, &f->row);
    free(f);
}

static void follow(engine *e, const cache_fill *row)
{
    page_uses *u = e->uses;
    followed_fill *f = calloc(1, sizeof *f);
    if (!f) {
        e->out_of_memory = true;
        return;
    }
    f->row = *row;
    f->nr_left = row->pages;
    for (uint64_t page = row->first % BLOCK; page < row->first % BLOCK + row->pages; page++)
        f->left[page / 64] |= 1ull << page % 64;
    followed_fill **bucket = &u->buckets[bucket_of(row->device, row->inode, row->first / BLOCK)];
    f->chain = *bucket;
    *bucket = f;
    f->older = u->newest;
    *(u->newest ? &u->newest->newer : &u->oldest) = f;
    u->newest = f;
    u->count++;
}

void uses_begin(engine *e, const cache_fill *row)
{
    if (!e->uses && !(e->uses = calloc(1, sizeof *e->uses))) {
        e->out_of_memory = true;
        return;
    }
    for (uint32_t done = 0, part; done < row->pages; done += part) {
        cache_fill cut = *row;
        cut.first += done;
        part = BLOCK - (uint32_t)(cut.first % BLOCK);
        cut.pages = part = part < row->pages - done ? part : row->pages - done;
        if (e->uses->count == MOST_FILLS) {
            e->totals.nr_fills_unfollowed++;
            end_fill(e, e->uses->oldest, false);
        }
        follow(e, &cut);
    }
}

/* Clears the bits of pages; `reader` uses them, or 0: they are taken out. */
static void clear_pages(engine *e, followed_fill *f, uint64_t first, uint64_t last, uint64_t reader)
{
    uint64_t block = f->row.first / BLOCK * BLOCK;
    uint64_t from = first > block ? first - block : 0, to = last < block + BLOCK - 1 ? last - block : BLOCK - 1;
    uint32_t cleared = 0;
    for (uint64_t page = from; page <= to; page++) {
        uint64_t bit = 1ull << page % 64;
        cleared += (f->left[page / 64] & bit) != 0;
        f->left[page / 64] &= ~bit;
    }
    if (!cleared)
        return;
    f->nr_left -= cleared;
    if (reader) {
        f->used += cleared;
        f->row.first_use = f->row.first_use ? f->row.first_use : reader;
    }
    if (!f->nr_left)
        end_fill(e, f, true);
}

static void clear_range(engine *e, uint64_t device, uint64_t inode, uint64_t first, uint64_t last, uint64_t reader)
{
    page_uses *u = e->uses;
    for (uint64_t block = first / BLOCK; u && u->count && block <= last / BLOCK; block++) {
        followed_fill *next;
        for (followed_fill *f = u->buckets[bucket_of(device, inode, block)]; f; f = next) {
            next = f->chain;
            if (f->row.device == device && f->row.inode == inode && f->row.first / BLOCK == block)
                clear_pages(e, f, first, last, reader);
        }
    }
}

void uses_read(engine *e, const cache_file *file, uint64_t first, uint64_t last, uint64_t reader)
{
    if (file->cached == CACHED_PAGES && reader)
        clear_range(e, file->device, file->inode, first, last, reader);
}

void uses_evicted(engine *e, const page_run *run)
{
    clear_range(e, run->device, run->inode, run->first, run->first + run->pages - 1, 0);
}

void uses_end(engine *e, bool known)
{
    while (e->uses && e->uses->oldest)
        end_fill(e, e->uses->oldest, known);
}

void uses_free(engine *e)
{
    while (e->uses && e->uses->oldest) {
        followed_fill *f = e->uses->oldest;
        e->uses->oldest = f->newer;
        free(f);
    }
    free(e->uses);
}
