/* Memory that BPF programs write at the same time: how far the records in a buffer are finished (bpf/programs/buffers.h). */
#include <stdbool.h>

#include "api/all.h"
#include "capture/bpf_ring.h"

enum { NR_TRIES = 1000 }; /* a program writes for some 20 ns */

bool nobody_writes(const struct lo2_bpf_buffer *buffer, uint64_t taken)
{
    if (taken >> LO2_WRITERS_SHIFT)
        return false;
    for (int i = 0; i < LO2_MAX_SAMPLED; i++)
        if (__atomic_load_n(&buffer->writing[i], __ATOMIC_ACQUIRE))
            return false;
    return true;
}

uint64_t lo2_finished_records(const struct lo2_bpf_buffer *buffer, uint64_t before)
{
    for (int i = 0; i < NR_TRIES; i++) {
        uint64_t taken = __atomic_load_n(&buffer->taken, __ATOMIC_ACQUIRE);
        if (nobody_writes(buffer, taken))
            return taken;
    }
    return before;
}

uint64_t lo2_take_number(uint64_t *number)
{
    return __atomic_exchange_n(number, 0, __ATOMIC_ACQ_REL);
}
