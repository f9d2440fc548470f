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
 * give up their full pages now and then: the file gets these pages early, and memory forgets them. A chunk's header has
 * the number of its last event, which is known at the chunk's end. So the number is written to the file then.
 *
 *      chunk |= in the file, not in memory =|= in memory |  not touched yet |
 *            begin                          early        at                 end
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, madvise */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "otf2/otf2_writer.h"

enum {
    MOST_WHOLE = 128, /* chunks that stay in memory until they are full: 32 MiB */
    LEAST_PAGES = 2   /* that are worth the system calls */
};

/* A chunk's header: its kind, the byte order, the numbers of its first and last event. A file's end. OTF2_Buffer.h */
enum { CHUNK_HEADER = 3, FIRST_EVENT = 2, LAST_EVENT = 10, HEADER_BYTES = 18 };
enum { END_OF_FILE = 2, END_OF_BUFFER = 1 };
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
enum { ORDER = 0x42 };
#else
enum { ORDER = 0x23 };
#endif

struct lo2_otf2_event_files {
    uint8_t *spare;  /* waits for its next use; NULL */
    uint32_t nr_whole;
    uint64_t page, size, room; /* bytes of a page, of a chunk, and of its mapping */
    int folder;
    int error;       /* the first errno of writing events */
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

static uint8_t *take_spare(lo2_otf2_event_files *m)
{
    uint8_t *spare = m->spare;
    m->spare = NULL;
    return spare ? spare : mapped(m);
}

/* Begins the next chunk of the file. */
static void begin_chunk(const lo2_otf2_event_files *m, event_file *f)
{
    const uint64_t numbers[] = {f->nr_events + 1, 0};
    f->begin[0] = CHUNK_HEADER;
    f->begin[1] = ORDER;
    memcpy(f->begin + FIRST_EVENT, numbers, sizeof numbers);
    f->at = f->begin + HEADER_BYTES;
    f->end = f->begin + m->size;
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

/* Writes the bytes of the chunk that the file has not got yet; at the chunk's end also the number of its last event. */
static bool add(const lo2_otf2_event_files *m, const event_file *f, uint64_t size, bool ends)
{
    char name[48];
    snprintf(name, sizeof name, "traces/%" PRIu64 ".evt", f->location);
    int file = openat(m->folder, name, O_WRONLY | O_CLOEXEC | (f->written + f->early ? 0 : O_CREAT | O_TRUNC), 0666);
    if (file < 0)
        return false;
    bool done = write_all(file, f->begin + f->early, size - f->early, f->written + f->early);
    if (done && ends)
        done = write_all(file, (const uint8_t *)&f->nr_events, sizeof f->nr_events, f->written + LAST_EVENT);
    int error = errno;
    if (close(file) < 0) /* some file systems tell only now that a write failed */
        return false;
    errno = error;
    return done;
}

static bool write_until(lo2_otf2_event_files *m, event_file *f, uint64_t size, bool ends)
{
    if (!m->error && !add(m, f, size, ends)) {
        m->error = errno ? errno : EIO;
        m->failed = f->location;
    }
    return !m->error;
}

static bool end_chunk(lo2_otf2_event_files *m, event_file *f, uint64_t size)
{
    bool written = write_until(m, f, size, true);
    f->written += size;
    f->early = 0;
    return written;
}

event_file *otf2_open_events(lo2_otf2_event_files *m, uint64_t location)
{
    event_file *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->begin = take_spare(m);
    if (!f->begin) {
        free(f);
        return NULL;
    }
    f->location = location;
    f->whole = m->nr_whole < MOST_WHOLE;
    m->nr_whole += f->whole;
    begin_chunk(m, f);
    return f;
}

void otf2_drop_events(lo2_otf2_event_files *m, event_file *f)
{
    if (!f)
        return;
    m->nr_whole -= f->whole;
    if (f->whole && !m->spare)
        m->spare = f->begin;
    else
        munmap(f->begin, m->room);
    free(f);
}

bool otf2_next_chunk(lo2_otf2_event_files *m, event_file *f)
{
    memset(f->at, 0, (size_t)(f->end - f->at)); /* the mark of a chunk's end */
    if (!end_chunk(m, f, m->size))
        return false;
    if (!f->whole)
        madvise(f->begin, m->room, MADV_DONTNEED);
    begin_chunk(m, f);
    return true;
}

bool otf2_close_events(lo2_otf2_event_files *m, event_file *f)
{
    *f->at++ = END_OF_FILE;
    *f->at++ = END_OF_BUFFER;
    bool written = end_chunk(m, f, (uint64_t)(f->at - f->begin));
    otf2_drop_events(m, f);
    return written;
}

bool otf2_relieve(lo2_otf2_event_files *m, event_file *f)
{
    uint64_t full = (uint64_t)(f->at - f->begin) / m->page * m->page;
    if (f->whole || full - f->early < LEAST_PAGES * m->page)
        return true;
    if (!write_until(m, f, full, false))
        return false;
    madvise(f->begin + f->early, full - f->early, MADV_DONTNEED);
    f->early = full;
    return true;
}

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
    }
    return m;
}

void lo2_otf2_event_files_free(lo2_otf2_event_files *m)
{
    if (m->spare)
        munmap(m->spare, m->room);
    free(m);
}
