/*
 * Of the layer `waits`: the places of threads that have left their CPU inside of a recorded call. A thread takes its place when its
 * call leaves the CPU's slot, and frees it at the call's exit. A worker of io_uring keeps the place that it takes.
 *
 * The tid alone tells the place. So no map has to allocate memory: these programs run while the scheduler holds its locks.
 */
#ifndef LO2IO_BPF_SLEEPERS_H
#define LO2IO_BPF_SLEEPERS_H

#include "buffers.h"

INLINE bool lo2_has_layer(enum lo2_layer layer) { return lo2.layers >> layer & 1; }

INLINE struct lo2_bpf_sleeper *lo2_sleeper(__u32 tid)
{
    __u32 place = tid & (LO2_MAX_SLEEPERS - 1);
    return bpf_map_lookup_elem(&lo2_sleepers, &place);
}

/* The thread's place while it is in a recorded call that has left the CPU's slot; else NULL. */
INLINE struct lo2_bpf_sleeper *lo2_sleeper_in_call(__u32 tid)
{
    struct lo2_bpf_sleeper *sleeper = lo2_sleeper(tid);
    return sleeper && sleeper->owner == (tid | LO2_SLEEPER_IN_CALL) ? sleeper : NULL;
}

/* False: another thread in a call has the place. */
INLINE bool lo2_claim_sleeper(__u32 tid)
{
    struct lo2_bpf_sleeper *sleeper = lo2_sleeper(tid);
    __u64 owner, wanted = tid | LO2_SLEEPER_IN_CALL;

    if (!sleeper)
        return false;
    owner = sleeper->owner;
    if (owner != wanted) {
        if (owner & LO2_SLEEPER_IN_CALL || __sync_val_compare_and_swap(&sleeper->owner, owner, wanted) != owner)
            return false;
        if ((__u32)owner != tid) /* else a wakeup may be known already */
            sleeper->wake_ns = 0;
    }
    sleeper->out_ns = 0;
    sleeper->lost = 0;
    sleeper->faulting = 0;
    sleeper->request = 0;
    sleeper->lock.waiter = 0;
    return true;
}

/* Keeps the tid, so that the next call knows of a wakeup that precedes its switch away. */
INLINE void lo2_free_sleeper(__u32 tid)
{
    struct lo2_bpf_sleeper *sleeper = lo2_sleeper_in_call(tid);

    if (sleeper)
        sleeper->owner = tid;
}

/* Of the layer `stacks`: the thread's call leaves the CPU's slot. */
INLINE void lo2_note_begin(__u32 tid, __u64 begin_ns)
{
    __u32 place = tid & (LO2_MAX_BEGUN - 1);
    struct lo2_bpf_begun *begun = bpf_map_lookup_elem(&lo2_begun, &place);

    if (begun) {
        begun->begin_ns = begin_ns;
        begun->tid = tid;
    }
}

#endif
