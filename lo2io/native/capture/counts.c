/*
 * Reads the kernel's counts at a place in a buffer. At a border between two parts of a recording, each record is on one
 * side. The counts must be of the same side, though reading them takes time.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "api/all.h"
#include "capture/bpf_ring.h"

enum { WORDS_PLAIN = 2, WORDS_LOST = 3 }; /* value, id, lost: PERF_FORMAT_ID, PERF_FORMAT_LOST */

static int read_words(int32_t fd, uint64_t *words, size_t size)
{
    ssize_t got = read(fd, words, size);
    if (got == (ssize_t)size)
        return 0;
    errno = got < 0 ? errno : EPROTO;
    return -1;
}

/* ---- perf's events: the head is read before and after each count, and samples between both may or may not be in it ---- */

int lo2_read_counts(const int32_t *fds, uint32_t nr, const uint64_t *head, uint8_t has_lost, lo2_reading *readings)
{
    size_t size = 8u * (has_lost ? WORDS_LOST : WORDS_PLAIN);
    for (uint32_t i = 0; i < nr; i++) {
        uint64_t words[WORDS_LOST] = {0};
        readings[i].before = __atomic_load_n(head, __ATOMIC_ACQUIRE);
        if (read_words(fds[i], words, size))
            return -1;
        readings[i].after = __atomic_load_n(head, __ATOMIC_ACQUIRE);
        readings[i].count = words[0];
        readings[i].lost = words[2];
    }
    return 0;
}

/*
 * ---- events of BPF programs ----
 *
 * Counts and positions only grow. If one is the same at two times, it was the same in between. So if all are the same, and
 * no program is at work at a moment in between, they are those of this moment:
 *
 *   counts ── position ── nobody at work? ── position ── counts
 *
 * A program is at work from before it counts an event until the event's record is finished.
 */

enum { NR_TRIES = 200 };

static void copy_counts(struct lo2_bpf_counts *to, const struct lo2_bpf_counts *from, uint32_t nr)
{
    for (uint32_t i = 0; i < nr; i++) {
        to[i].count = __atomic_load_n(&from[i].count, __ATOMIC_ACQUIRE);
        to[i].lost = __atomic_load_n(&from[i].lost, __ATOMIC_ACQUIRE);
        to[i].left_out = __atomic_load_n(&from[i].left_out, __ATOMIC_ACQUIRE);
    }
}

static int read_counters(lo2_counter *counters, uint32_t nr)
{
    for (uint32_t i = 0; i < nr; i++) {
        uint64_t words[WORDS_PLAIN];
        if (read_words(counters[i].fd, words, sizeof words))
            return -1;
        counters[i].count = words[0];
    }
    return 0;
}

int lo2_count_records(const struct lo2_bpf_cpu *cpu, const struct lo2_bpf_buffer *buffer, uint8_t of_samples, uint32_t nr,
                      struct lo2_bpf_counts *before, struct lo2_bpf_counts *after, lo2_counter *counters,
                      uint32_t nr_counters, lo2_counted *counted)
{
    const struct lo2_bpf_counts *counts = of_samples ? cpu->sampling.counts : cpu->counts;
    for (int i = 0; i < NR_TRIES; i++) {
        copy_counts(before, counts, nr);
        uint64_t position = __atomic_load_n(&buffer->taken, __ATOMIC_ACQUIRE);
        uint32_t occupied = __atomic_load_n(&cpu->slot.occupied, __ATOMIC_ACQUIRE), call = cpu->slot.call;
        bool quiet = of_samples ? nobody_writes(buffer, position) : !__atomic_load_n(&cpu->busy, __ATOMIC_ACQUIRE);
        if (read_counters(counters, nr_counters))
            return -1;
        bool same = position == __atomic_load_n(&buffer->taken, __ATOMIC_ACQUIRE);
        copy_counts(after, counts, nr);
        same = same && !memcmp(before, after, nr * sizeof *before);
        *counted = (lo2_counted){position, occupied && !of_samples ? call + 1 : 0, same};
        if (quiet && (same || i >= NR_TRIES / 2))
            return 0;
    }
    errno = EAGAIN;
    return -1;
}
