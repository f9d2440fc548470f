/*
 * Writing into a CPU's buffer of events (LO2_RING_EVENTS). The programs that write there do not take the CPU's part
 * (lo2_take_cpu), for an interrupt may start one program during another. The programs share two counts of losses: of
 * events, and of records of layers.
 */
#ifndef LO2IO_BPF_EVENTS_H
#define LO2IO_BPF_EVENTS_H

#include "core.h"

INLINE bool lo2_put_lost_samples(struct lo2_bpf_cpu *cpu, struct lo2_bpf_buffer *ring)
{
    lo2_kernel_lost record = { .head.type = LO2_KERNEL_LOST };

    record.begin_ns = cpu->sampling.losing.begin_ns;
    barrier();
    record.lost = __sync_lock_test_and_set(&cpu->sampling.losing.lost, 0);
    barrier();
    record.head.time_ns = cpu->sampling.losing.end_ns;
    if (!record.lost)
        return true;
    if (lo2_put_shared(ring, &record, sizeof record)) {
        lo2_ring_bell();
        return true;
    }
    cpu->sampling.losing.begin_ns = record.begin_ns;
    __sync_fetch_and_add(&cpu->sampling.losing.lost, record.lost);
    return false;
}

/*
 * Like lo2_tell_lost, for events. An event that is lost during this run may count in this record, and lie before `begin_ns` of
 * the next one. It never lies outside of both.
 */
LO2_ONCE int lo2_tell_lost_samples(void)
{
    __u32 number;
    struct lo2_bpf_cpu *cpu = lo2_this_cpu(&number);
    struct lo2_bpf_buffer *ring = lo2_ring_for(number, LO2_RING_EVENTS);
    bool told;

    if (!cpu || !ring)
        return false;
    lo2_join(ring);
    told = lo2_put_lost_samples(cpu, ring);
    lo2_part(ring);
    return told;
}

INLINE void lo2_lose_event(struct lo2_bpf_losing *losing, __u64 time_ns)
{
    if (!__sync_fetch_and_add(&losing->lost, 1))
        losing->begin_ns = time_ns;
    losing->end_ns = time_ns;
}

/* Like lo2_tell_lost_samples, for records of layers. */
LO2_ONCE int lo2_tell_lost_layers(void)
{
    __u32 number;
    struct lo2_bpf_cpu *cpu = lo2_this_cpu(&number);
    struct lo2_bpf_buffer *ring = lo2_ring_for(number, LO2_RING_EVENTS);
    lo2_kernel_lost record = { .head.type = LO2_KERNEL_LOST, .head.event = LO2_LOST_ROWS };

    if (!cpu || !ring)
        return false;
    record.begin_ns = cpu->sampling.of_layers.begin_ns;
    barrier();
    record.lost = __sync_lock_test_and_set(&cpu->sampling.of_layers.lost, 0);
    barrier();
    record.head.time_ns = cpu->sampling.of_layers.end_ns;
    if (!record.lost || lo2_put_shared(ring, &record, sizeof record))
        return true;
    cpu->sampling.of_layers.begin_ns = record.begin_ns;
    __sync_fetch_and_add(&cpu->sampling.of_layers.lost, record.lost);
    return false;
}

/*
 * Writes a record of a layer, with the present time. A record that finds no room leaves a gap, which a LOST record
 * states. The clock is read while the record is on its way to the cache.
 */
INLINE void lo2_write_event(struct lo2_bpf_cpu *cpu, struct lo2_bpf_buffer *ring, const lo2_kernel_head *head, __u64 size)
{
    lo2_kernel_head *copy = NULL;
    __u64 at = 0;

    if (ring && (!cpu->sampling.of_layers.lost || lo2_tell_lost_layers()))
        copy = lo2_begin_shared(ring, size, &at);
    if (!copy) {
        lo2_lose_event(&cpu->sampling.of_layers, bpf_ktime_get_ns());
        return;
    }
    lo2_copy(copy, head, size);
    copy->time_ns = bpf_ktime_get_ns();
    lo2_finish_shared(ring, size, at);
}

#endif
