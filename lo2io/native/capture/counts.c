/*
 * Reads the kernel's counts at a place in a buffer. At a border between two parts of a recording, each sample is on one
 * side. The counts must be of the same side, though reading them takes time. So the buffer's head is read before and
 * after each count. The samples between both heads may or may not be in the count.
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
