/*
 * Event files: their memory, and when it is written.
 *
 * A file is a row of chunks of one size (otf2/records.c). Only the last chunk of a file is in memory. When it is full,
 * it is added to the file, and its memory holds the next one. No file stays open, for there may be thousands.
 *
 * With thousands of threads, most chunks stay nearly empty, and only pages that are written should take memory. So
 * chunks are mapped, for malloc may return used pages. They get no huge pages, for one would back eight chunks at the
 * first byte. Pages of a fresh chunk cost more than all that is written there. So the last chunk that was given back is
 * kept for the next file.
 *
 * With thousands of busy threads, chunks that fill up would take a gigabyte. So all chunks beyond the first MOST_WHOLE
 * are split now and then: the pages that are full move to a file without a name, and that part of the chunk becomes a
 * private mapping of this file. The part may still be read and changed, as the chunk's header is.
 *
 *      bytes |= mapping of the file =|= memory =|  not touched yet      |
 *            0                       moved      ^ at                    size
 *
 * The file without a name has a place for each such chunk. A full disk is noticed by a write, never by touching a
 * mapping. A chunk that was written gives back its memory and its room in that file.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, madvise, fallocate */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "otf2/otf2_writer.h"

enum {
    MOST_WHOLE = 128,   /* chunks that stay in memory: 32 MiB */
    MOST_SPLIT = 16384, /* two mappings each, and Linux allows a process 65,530 */
    LEAST_PAGES = 2     /* that are worth two system calls */
};
#define WHOLE UINT32_MAX

/* A chunk's header: its kind, the byte order, the numbers of its first and last event. A file's end. OTF2_Buffer.h */
enum { CHUNK_HEADER = 3, FIRST_EVENT = 2, LAST_EVENT = 10, HEADER_BYTES = 18 };
enum { END_OF_FILE = 2, END_OF_BUFFER = 1 };
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
enum { ORDER = 0x42 };
#else
enum { ORDER = 0x23 };
#endif

struct lo2_otf2_event_files {
    uint8_t *spare;     /* waits for its next use; NULL */
    event_file **split; /* by place; NULL: given back */
    uint32_t nr_whole, nr_split, split_room;
    uint64_t page, size, room; /* bytes of a page, of a chunk, and of its mapping */
    int folder;
    int moved; /* the file of the last call of lo2_otf2_relieve */
    int error; /* the first errno of writing a chunk */
    uint64_t failed; /* its location */
};

/* ---- memory ---- */

static uint8_t *mapped(const lo2_otf2_event_files *m)
{
    void *bytes = mmap(NULL, m->room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return NULL;
    madvise(bytes, m->room, MADV_NOHUGEPAGE); /* kernels without huge pages refuse, which does no harm */
    return bytes;
}

static void unmap(const lo2_otf2_event_files *m, event_file *f)
{
    if (f->begin)
        munmap(f->begin, m->room);
    if (f->moved) /* file systems that cannot do that keep the room until the file is closed */
        fallocate(m->moved, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(f->place * m->room), (off_t)f->moved);
    f->begin = NULL;
    f->moved = 0;
}

/* Gives the chunk a place in the file without a name if memory has enough others. */
static bool find_place(lo2_otf2_event_files *m, event_file *f)
{
    f->place = WHOLE;
    if (m->nr_whole < MOST_WHOLE || m->nr_split == MOST_SPLIT) {
        m->nr_whole++;
        return true;
    }
    if (m->nr_split == m->split_room) {
        uint32_t room = m->split_room ? m->split_room * 2 : 64;
        event_file **wider = realloc(m->split, room * sizeof *wider);
        if (!wider)
            return false;
        m->split = wider;
        m->split_room = room;
    }
    f->place = m->nr_split++;
    m->split[f->place] = f;
    return true;
}

static void leave_place(lo2_otf2_event_files *m, event_file *f)
{
    if (f->place != WHOLE) {
        unmap(m, f);
        m->split[f->place] = NULL;
        while (m->nr_split && !m->split[m->nr_split - 1])
            m->nr_split--;
        return;
    }
    m->nr_whole--;
    if (m->spare)
        unmap(m, f);
    else
        m->spare = f->begin;
}

/* Begins the next chunk of the file. */
static bool begin_chunk(lo2_otf2_event_files *m, event_file *f)
{
    if (!f->begin && m->spare && f->place == WHOLE) {
        f->begin = m->spare;
        m->spare = NULL;
    }
    if (!f->begin && !(f->begin = mapped(m)))
        return false;
    const uint64_t numbers[] = {f->nr_events + 1, 0};
    f->begin[0] = CHUNK_HEADER;
    f->begin[1] = ORDER;
    memcpy(f->begin + FIRST_EVENT, numbers, sizeof numbers);
    f->at = f->begin + HEADER_BYTES;
    f->end = f->begin + m->size;
    return true;
}

/* ---- files ---- */

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

/* Adds the first bytes of the chunk to the file. */
static bool add(const lo2_otf2_event_files *m, const event_file *f, uint64_t size)
{
    char name[48];
    snprintf(name, sizeof name, "traces/%" PRIu64 ".evt", f->location);
    int file = openat(m->folder, name, O_WRONLY | O_CLOEXEC | (f->written ? 0 : O_CREAT | O_TRUNC), 0666);
    if (file < 0)
        return false;
    bool done = write_all(file, f->begin, size, f->written);
    int error = errno;
    if (close(file) < 0) /* some file systems tell only now that a write failed */
        return false;
    errno = error;
    return done;
}

static bool write_chunk(lo2_otf2_event_files *m, event_file *f, uint64_t size)
{
    memcpy(f->begin + LAST_EVENT, &f->nr_events, sizeof f->nr_events);
    if (!m->error && !add(m, f, size)) {
        m->error = errno ? errno : EIO;
        m->failed = f->location;
    }
    f->written += size;
    return !m->error;
}

void otf2_drop_events(lo2_otf2_event_files *m, event_file *f)
{
    if (!f)
        return;
    leave_place(m, f);
    free(f);
}

event_file *otf2_open_events(lo2_otf2_event_files *m, uint64_t location)
{
    event_file *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->location = location;
    if (!find_place(m, f)) {
        free(f);
        return NULL;
    }
    if (begin_chunk(m, f))
        return f;
    otf2_drop_events(m, f);
    return NULL;
}

bool otf2_next_chunk(lo2_otf2_event_files *m, event_file *f)
{
    memset(f->at, 0, (size_t)(f->end - f->at)); /* the mark of a chunk's end */
    if (!write_chunk(m, f, m->size))
        return false;
    if (f->place != WHOLE)
        unmap(m, f);
    return begin_chunk(m, f);
}

bool otf2_close_events(lo2_otf2_event_files *m, event_file *f)
{
    *f->at++ = END_OF_FILE;
    *f->at++ = END_OF_BUFFER;
    bool written = write_chunk(m, f, (uint64_t)(f->at - f->begin));
    otf2_drop_events(m, f);
    return written;
}

/* ---- chunks that are split ---- */

static bool move(const lo2_otf2_event_files *m, event_file *f)
{
    uint64_t full = (uint64_t)(f->at - f->begin) / m->page * m->page, size = full - f->moved;
    uint8_t *from = f->begin + f->moved;
    off_t offset = (off_t)(f->place * m->room + f->moved);
    if (size < LEAST_PAGES * m->page)
        return true;
    if (!write_all(m->moved, from, size, (uint64_t)offset))
        return false;
    /* Without a further mapping, the pages stay in memory. */
    if (mmap(from, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, m->moved, offset) != MAP_FAILED)
        f->moved = full;
    return true;
}

int lo2_otf2_relieve(lo2_otf2_event_files *m, int file)
{
    m->moved = file;
    for (uint32_t i = 0; i < m->nr_split; i++)
        if (m->split[i] && !move(m, m->split[i]))
            return errno ? errno : ENOSPC;
    return 0;
}

uint32_t lo2_otf2_nr_split(const lo2_otf2_event_files *m) { return m->nr_split; }

int lo2_otf2_events_error(const lo2_otf2_event_files *m, uint64_t *location)
{
    *location = m->failed;
    return m->error;
}

lo2_otf2_event_files *lo2_otf2_event_files_new(int folder, uint64_t chunk_bytes)
{
    lo2_otf2_event_files *m = calloc(1, sizeof *m);
    if (m) {
        m->page = (uint64_t)sysconf(_SC_PAGESIZE);
        m->size = chunk_bytes;
        m->room = (chunk_bytes / m->page + 2) * m->page; /* the encoder may write some bytes beyond the end */
        m->folder = folder;
        m->moved = -1;
    }
    return m;
}

void lo2_otf2_event_files_free(lo2_otf2_event_files *m)
{
    if (m->spare)
        munmap(m->spare, m->room);
    free(m->split);
    free(m);
}
