/*
 * Callbacks of libotf2: memory for its buffers, and when to flush them.
 *
 * Each buffer gets one chunk. The allocator refuses a second one. Then OTF2 writes the first to disk and starts over.
 * So memory is bounded by the number of locations times the chunk size. (OTF2's own allocator first collects up to 128
 * MiB per location.)
 *
 * Files of definitions are written one after the other. Pages of a fresh chunk cost more than all that is written there.
 * So the last chunk that was given back is kept for the next file, where the user data has a place for it.
 *
 * With thousands of threads, most chunks stay nearly empty, and only pages that are written should take memory. So
 * chunks are mapped, for malloc may return used pages. They get no huge pages, for one would back eight chunks at the
 * first byte.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, madvise */
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "api/all.h"

typedef struct { bool in_use; uint64_t size; max_align_t bytes[]; } chunk;

static uint8_t flush_value;

static chunk *chunk_new(uint64_t size)
{
    chunk *c = mmap(NULL, sizeof *c + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (c == MAP_FAILED)
        return NULL;
    madvise(c, sizeof *c + size, MADV_NOHUGEPAGE); /* kernels without huge pages refuse, which does no harm */
    c->size = size;
    return c;
}

static void chunk_free(chunk *c)
{
    munmap(c, sizeof *c + c->size);
}

/* The user data, if any, is a place for one chunk that waits for its next use. */
static chunk *chunk_taken(chunk **spare, uint64_t size)
{
    chunk *c = spare ? *spare : NULL;
    if (!c || c->size < size)
        return chunk_new(size);
    *spare = NULL;
    return c;
}

static void chunk_left(chunk **spare, chunk *c)
{
    if (spare && !*spare)
        *spare = c;
    else
        chunk_free(c);
}

static void *allocate(void *user, uint8_t file_type, uint64_t location, void **per_buffer, uint64_t size)
{
    chunk *c = *per_buffer;
    if (c && c->in_use)
        return NULL;
    if (c && c->size < size) {
        chunk_free(c);
        c = NULL;
    }
    if (!c) {
        *per_buffer = c = chunk_taken(user, size);
        if (!c)
            return NULL;
    }
    c->in_use = true;
    return c->bytes;
}

static void free_all(void *user, uint8_t file_type, uint64_t location, void **per_buffer, bool final)
{
    chunk *c = *per_buffer;
    if (!c)
        return;
    c->in_use = false;
    if (final) {
        chunk_left(user, c);
        *per_buffer = NULL;
    }
}

static uint8_t pre_flush(void *user, uint8_t file_type, uint64_t location, void *caller, bool final)
{
    return flush_value;
}

void lo2_otf2_free_spare(void **spare)
{
    if (*spare)
        chunk_free(*spare);
    *spare = NULL;
}

void *lo2_otf2_allocate_callback(void)
{
    return (void *)allocate;
}

void *lo2_otf2_free_all_callback(void)
{
    return (void *)free_all;
}

void *lo2_otf2_pre_flush_callback(uint8_t flush)
{
    flush_value = flush;
    return (void *)pre_flush;
}

/*
 * OTF2_CollectiveCallbacks of a process that is not the first one of its archive: it makes neither the folder nor the anchor.
 * With plain files libotf2 asks for the rank, and for what the first one says of the folder (OTF2_Archive.c). There is one.
 */
enum { SUCCESS = 0, ERROR = 1, TYPE_INT64 = 8 }; /* OTF2_CallbackCode, OTF2_Type */

static int rank(void *user, void *context, uint32_t *rank)
{
    *rank = 1;
    return SUCCESS;
}

static int size(void *user, void *context, uint32_t *size)
{
    *size = 2;
    return SUCCESS;
}

static int broadcast(void *user, void *context, void *values, uint32_t nr_values, uint8_t type, uint32_t root)
{
    if (type == TYPE_INT64) /* an error code */
        memset(values, 0, nr_values * sizeof(int64_t));
    return SUCCESS;
}

static int refuse(void) { return ERROR; }

const void *lo2_otf2_other_rank(void)
{
    enum { RELEASE = 0, SIZE = 1, RANK = 2, BROADCAST = 6, NR_CALLBACKS = 11 }; /* their places in the structure */
    static void *callbacks[NR_CALLBACKS];
    for (int i = RELEASE + 1; i < NR_CALLBACKS; i++)
        callbacks[i] = (void *)refuse;
    callbacks[SIZE] = (void *)size;
    callbacks[RANK] = (void *)rank;
    callbacks[BROADCAST] = (void *)broadcast;
    return callbacks;
}
