/*
 * Finds how far the records in a BPF buffer are finished.
 *
 * The producer writes a record's header and moves its position on before it writes the record. Bit 31 of the length is
 * set until the record is written (kernel/bpf/ringbuf.c, Linux 6.18). A record that a program discarded has bit 30, and
 * keeps its place.
 */
#include "api/all.h"

#define UNFINISHED (1u << LO2_FRAME_UNFINISHED_BIT)
#define DISCARDED (1u << LO2_FRAME_DISCARDED_BIT)

uint64_t lo2_finished_records(const uint8_t *data, uint64_t size, uint64_t position, const uint64_t *producer)
{
    uint64_t end = __atomic_load_n(producer, __ATOMIC_ACQUIRE);

    while (end - position >= LO2_FRAME_BYTES && end - position <= size) {
        const uint32_t *header = (const uint32_t *)(data + (position & (size - 1)));
        uint32_t length = __atomic_load_n(header, __ATOMIC_ACQUIRE);
        if (length & UNFINISHED)
            break;
        uint64_t whole = ((uint64_t)(length & ~DISCARDED) + LO2_FRAME_BYTES + 7) & ~(uint64_t)7;
        if (whole > end - position)
            break;
        position += whole;
    }
    return position;
}
