/*
 * Memory for libotf2's buffers (OTF2_MemoryCallbacks), and when to write it (OTF2_FlushCallbacks).
 *
 * Each buffer gets one chunk. Files of definitions are written one after the other. Pages of a fresh chunk cost more than
 * all that is written there. So the last chunk that was given back is kept for the next file.
 *
 * libotf2 asks for a second chunk as soon as the first is full and complete (OTF2_Buffer_RequestNewChunk). An event
 * file's chunk is then written here, for libotf2 would collect 4 MiB per file before it writes any. libotf2 hears "no
 * memory", asks whether to flush, hears "no", and asks again: now it gets memory, and goes on as after a flush. (It
 * leaks 64 bytes each time.) libotf2 itself writes the last chunk of a file, and would truncate the file. So whole
 * chunks go to a file of another name, and the last chunk is then added to that file.
 *
 *      request:  allocate: write, NULL  ->  flush: no  ->  allocate: the same memory
 *      close:                               flush: yes ->  N.evt, closed  ->  free_all: N.evt.part + N.evt = N.evt
 *
 * With thousands of threads, most chunks stay nearly empty, and only pages that are written should take memory. So
 * chunks are mapped, for malloc may return used pages. They get no huge pages, for one would back eight chunks at the
 * first byte.
 *
 * With thousands of busy threads, chunks that fill up would take a gigabyte. So all chunks beyond the first MOST_WHOLE are
 * split now and then: the pages that are full move to a file, and that part of the chunk becomes a private mapping of the
 * file. libotf2 may still read and change the part, as it does with the chunk's header.
 *
 *      bytes |= mapping of the file =|= memory =|  not touched yet      |
 *            0                       moved      ^ libotf2 writes here   size
 *
 * The file has a place for each such chunk. A full disk is noticed by a write, never by touching a mapping. A chunk that
 * was written gives back its memory and its room in the file.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, madvise, mincore, fallocate */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/all.h"

enum {
    MOST_WHOLE = 128,   /* chunks that stay in memory: 32 MiB */
    MOST_SPLIT = 16384, /* two mappings each, and Linux allows a process 65,530 */
    MOST_PAGES = 64,    /* of a chunk that is split */
    LEAST_PAGES = 2     /* that are worth two system calls */
};
#define WHOLE UINT32_MAX
enum { EVENTS = 3 }; /* OTF2_FileType */
enum { NO_FLUSH = 0, FLUSH = 1 }; /* OTF2_FlushType */

typedef struct {
    uint8_t *bytes; /* NULL: none, while not in use */
    uint64_t room, size; /* mapped, and of these in use */
    uint64_t moved;
    uint64_t written; /* of the location's file */
    uint32_t place;   /* in the file and in split; WHOLE: it stays in memory */
    bool in_use;
} chunk;

struct lo2_otf2_memory {
    chunk *spare; /* waits for its next use; NULL */
    chunk **split; /* by place; NULL: given back */
    uint32_t nr_whole, nr_split, split_room;
    uint64_t page;
    int folder;
    int file; /* of the last call of lo2_otf2_relieve */
    int error; /* the first errno of writing a chunk */
    uint64_t failed; /* its location */
};

static uint8_t *mapped(uint64_t size)
{
    void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return NULL;
    madvise(bytes, size, MADV_NOHUGEPAGE); /* kernels without huge pages refuse, which does no harm */
    return bytes;
}

static void unmap(const lo2_otf2_memory *m, chunk *c)
{
    if (c->bytes)
        munmap(c->bytes, c->room);
    if (c->moved) /* file systems that cannot do that keep the room until the file is closed */
        fallocate(m->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(c->place * c->room), (off_t)c->moved);
    c->bytes = NULL;
    c->moved = 0;
}

static void chunk_free(const lo2_otf2_memory *m, chunk *c)
{
    unmap(m, c);
    free(c);
}

/* Gives the chunk a place in the file if memory has enough others. */
static bool find_place(lo2_otf2_memory *m, chunk *c)
{
    c->place = WHOLE;
    if (m->nr_whole < MOST_WHOLE || m->nr_split == MOST_SPLIT || c->room > MOST_PAGES * m->page
        || c->room % m->page) {
        m->nr_whole++;
        return true;
    }
    if (m->nr_split == m->split_room) {
        uint32_t room = m->split_room ? m->split_room * 2 : 64;
        chunk **wider = realloc(m->split, room * sizeof *wider);
        if (!wider)
            return false;
        m->split = wider;
        m->split_room = room;
    }
    c->place = m->nr_split++;
    m->split[c->place] = c;
    return true;
}

static chunk *chunk_new(lo2_otf2_memory *m, uint64_t size)
{
    chunk *c = m->spare;
    if (c && c->room >= size) {
        m->spare = NULL;
        m->nr_whole++;
        return c;
    }
    if (!(c = calloc(1, sizeof *c)))
        return NULL;
    c->room = size;
    if (!find_place(m, c)) {
        free(c);
        return NULL;
    }
    return c;
}

static void chunk_emptied(const lo2_otf2_memory *m, chunk *c)
{
    c->in_use = false;
    if (c->place != WHOLE)
        unmap(m, c);
}

static void chunk_left(lo2_otf2_memory *m, chunk *c)
{
    c->written = 0;
    if (c->place != WHOLE) {
        m->split[c->place] = NULL;
        while (m->nr_split && !m->split[m->nr_split - 1])
            m->nr_split--;
        chunk_free(m, c);
        return;
    }
    m->nr_whole--;
    if (m->spare)
        chunk_free(m, c);
    else
        m->spare = c;
}

static bool write_all(int file, const uint8_t *bytes, uint64_t size, uint64_t offset)
{
    while (size) {
        ssize_t written = pwrite(file, bytes, size, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        bytes += written;
        size -= (uint64_t)written;
        offset += (uint64_t)written;
    }
    return true;
}

static void fail(lo2_otf2_memory *m, uint64_t location)
{
    if (m->error)
        return;
    m->error = errno ? errno : EIO;
    m->failed = location;
}

typedef struct { char whole[48], part[48]; } names;

static names names_of(uint64_t location)
{
    names n;
    snprintf(n.whole, sizeof n.whole, "traces/%" PRIu64 ".evt", location);
    snprintf(n.part, sizeof n.part, "traces/%" PRIu64 ".evt.part", location);
    return n;
}

/* Adds the first bytes of the chunk to the location's part. */
static bool add(const lo2_otf2_memory *m, const chunk *c, uint64_t size, const char *part)
{
    int file = openat(m->folder, part, O_WRONLY | O_CLOEXEC | (c->written ? 0 : O_CREAT | O_TRUNC), 0666);
    if (file < 0)
        return false;
    bool done = write_all(file, c->bytes, size, c->written);
    int error = errno;
    if (close(file) < 0) /* some file systems tell only now that a write failed */
        return false;
    errno = error;
    return done;
}

/* Writes a full chunk. */
static void write_chunk(lo2_otf2_memory *m, chunk *c, uint64_t location)
{
    if (!m->error && !add(m, c, c->size, names_of(location).part))
        fail(m, location);
    c->written += c->size;
}

/*
 * Adds the last chunk, which libotf2 has written and which still stands in memory. Renaming onto a file would make ext4
 * write the events to the disk at once (auto_da_alloc), and wait: so libotf2's file is removed first.
 */
static void join(lo2_otf2_memory *m, const chunk *c, uint64_t location)
{
    names n = names_of(location);
    struct stat last;
    if (m->error)
        return;
    if (fstatat(m->folder, n.whole, &last, 0) || !add(m, c, (uint64_t)last.st_size, n.part)
        || unlinkat(m->folder, n.whole, 0) || renameat(m->folder, n.part, m->folder, n.whole))
        fail(m, location);
}

static void *allocate(void *user, uint8_t file_type, uint64_t location, void **per_buffer, uint64_t size)
{
    lo2_otf2_memory *m = user;
    chunk *c = *per_buffer;
    if (c && c->in_use) {
        if (file_type == EVENTS) {
            write_chunk(m, c, location);
            chunk_emptied(m, c);
        }
        return NULL;
    }
    if (!c)
        *per_buffer = c = chunk_new(m, size);
    if (m->error || !c || (!c->bytes && !(c->bytes = mapped(c->room))))
        return NULL;
    c->size = size;
    c->in_use = true;
    return c->bytes;
}

static void free_all(void *user, uint8_t file_type, uint64_t location, void **per_buffer, bool final)
{
    lo2_otf2_memory *m = user;
    chunk *c = *per_buffer;
    if (!c)
        return;
    if (!final && file_type == EVENTS) /* the last chunk, whose file is not closed yet */
        return;
    if (c->written)
        join(m, c, location);
    chunk_emptied(m, c);
    if (final) {
        chunk_left(m, c);
        *per_buffer = NULL;
    }
}

static uint8_t pre_flush(void *user, uint8_t file_type, uint64_t location, void *caller, bool final)
{
    return file_type == EVENTS && !final ? NO_FLUSH : FLUSH;
}

/* The pages that are full: all up to the last touched one, which OTF2 is filling. */
static uint64_t nr_full(const lo2_otf2_memory *m, const chunk *c)
{
    unsigned char touched[MOST_PAGES];
    uint64_t number = (c->room - c->moved) / m->page;
    if (mincore(c->bytes + c->moved, c->room - c->moved, touched))
        return 0;
    while (number && !(touched[number - 1] & 1))
        number--;
    return number ? number - 1 : 0;
}

static bool move(const lo2_otf2_memory *m, chunk *c)
{
    uint64_t pages = nr_full(m, c), size = pages * m->page, offset = c->place * c->room + c->moved;
    uint8_t *from = c->bytes + c->moved;
    if (pages < LEAST_PAGES)
        return true;
    if (!write_all(m->file, from, size, offset))
        return false;
    /* Without a further mapping, the pages stay in memory. */
    if (mmap(from, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, m->file, (off_t)offset) != MAP_FAILED)
        c->moved += size;
    return true;
}

int lo2_otf2_relieve(lo2_otf2_memory *m, int file)
{
    m->file = file;
    for (uint32_t i = 0; i < m->nr_split; i++)
        if (m->split[i] && m->split[i]->in_use && !move(m, m->split[i]))
            return errno ? errno : ENOSPC;
    return 0;
}

uint32_t lo2_otf2_nr_split(const lo2_otf2_memory *m) { return m->nr_split; }

int lo2_otf2_memory_error(const lo2_otf2_memory *m, uint64_t *location)
{
    *location = m->failed;
    return m->error;
}

lo2_otf2_memory *lo2_otf2_memory_new(int folder)
{
    lo2_otf2_memory *m = calloc(1, sizeof *m);
    if (m) {
        m->page = (uint64_t)sysconf(_SC_PAGESIZE);
        m->folder = folder;
        m->file = -1;
    }
    return m;
}

void lo2_otf2_memory_free(lo2_otf2_memory *m)
{
    if (m->spare)
        chunk_free(m, m->spare);
    free(m->split);
    free(m);
}

void *lo2_otf2_allocate_callback(void)
{
    return (void *)allocate;
}

void *lo2_otf2_free_all_callback(void)
{
    return (void *)free_all;
}

void *lo2_otf2_pre_flush_callback(void)
{
    return (void *)pre_flush;
}
