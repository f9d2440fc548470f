/*
 * The kernel's counts at a place in the ring. Where one part of a recording ends and the next begins, every
 * sample is on one side; the counts must be of the same side, though reading them takes a while. So the ring's
 * head is taken before and after each count: what was written in between tells what the count may miss.
 */
#include <errno.h>
#include <unistd.h>

#include "api/all.h"

enum { WORDS_PLAIN = 2, WORDS_LOST = 3 }; /* value, id, lost: PERF_FORMAT_ID, PERF_FORMAT_LOST */

int lo2_read_counts(const int32_t *fds, uint32_t nr, const uint64_t *head, uint8_t has_lost, lo2_reading *readings)
{
    size_t size = 8u * (has_lost ? WORDS_LOST : WORDS_PLAIN);
    for (uint32_t i = 0; i < nr; i++) {
        uint64_t words[WORDS_LOST] = {0};
        readings[i].before = __atomic_load_n(head, __ATOMIC_ACQUIRE);
        ssize_t got = read(fds[i], words, size);
        readings[i].after = __atomic_load_n(head, __ATOMIC_ACQUIRE);
        if (got != (ssize_t)size) {
            errno = got < 0 ? errno : EPROTO;
            return -1;
        }
        readings[i].count = words[0];
        readings[i].lost = words[2];
    }
    return 0;
}
