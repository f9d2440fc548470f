/*
 * Writing records into a CPU's buffers (struct lo2_bpf_buffer in config.h).
 *
 * The kernel's own ring buffer (BPF_MAP_TYPE_RINGBUF) takes a lock and copies each record twice: about 30 ns more a record.
 */
#ifndef LO2IO_BPF_BUFFERS_H
#define LO2IO_BPF_BUFFERS_H

#include "maps.h"


/*
 * For a large function that is rarely called. The verifier checks it once on its own, instead of at each place that
 * calls it. Its arguments are numbers, or a struct of numbers. So it finds CPU and task again by itself.
 */
#define LO2_ONCE __noinline

/* A buffer of a CPU, or NULL. */
INLINE struct lo2_bpf_buffer *lo2_ring_for(__u32 cpu, enum lo2_bpf_ring_use use)
{
    __u32 key = LO2_RINGS * cpu + use, first = 0;
    void *map = bpf_map_lookup_elem(&lo2_rings, &key);
    return map ? bpf_map_lookup_elem(map, &first) : NULL;
}

LO2_ONCE int lo2_ring_bell(void)
{
    __u64 nothing = 0;
    return bpf_ringbuf_output(&lo2_bell, &nothing, sizeof nothing, BPF_RB_FORCE_WAKEUP);
}

INLINE __u64 lo2_framed(__u64 size) { return (size + LO2_FRAME_BYTES + 7) & ~7ull; }

/* True if a record finds room at a position. It takes `whole` bytes with its frame. */
INLINE bool lo2_has_room(const volatile struct lo2_bpf_buffer *buffer, __u64 at, __u64 whole)
{
    return at + whole - buffer->tail <= lo2.config.ring_bytes;
}

/* Where the record at a position begins, after its frame. */
INLINE void *lo2_record_at(struct lo2_bpf_buffer *buffer, __u64 at)
{
    return (__u8 *)buffer + LO2_BUFFER_HEAD + (at & lo2.config.ring_mask) + LO2_FRAME_BYTES;
}

/* Writes the frame of a record at a position. Returns where the record begins. */
INLINE void *lo2_frame(struct lo2_bpf_buffer *buffer, __u64 at, __u64 size)
{
    __u64 *record = lo2_record_at(buffer, at);

    record[-1] = size;
    return record;
}

INLINE void lo2_note_crossing(struct lo2_bpf_buffer *buffer, __u64 at, __u64 whole)
{
    if ((at & lo2.config.ring_mask) + whole >= lo2.config.ring_bytes)
        buffer->crossed = at + whole;
}

/* A wakeup costs more than many records. So the reader is woken when the buffer is half full, and at each further eighth. */
INLINE void lo2_wake(const volatile struct lo2_bpf_buffer *buffer, __u64 at, __u64 whole)
{
    __u64 before = at - buffer->tail, after = before + whole;

    if (after > lo2.config.ring_bytes / 2 && (before ^ after) & ~(lo2.config.ring_bytes / 8 - 1))
        lo2_ring_bell();
}

/* For a constant size. Without the alignment, the compiler would copy byte by byte. */
INLINE void lo2_copy(void *to, const void *from, __u64 size)
{
    __builtin_memcpy(__builtin_assume_aligned(to, 8), __builtin_assume_aligned(from, 8), size);
}

/* ---- for programs that exclude each other: lo2_take_cpu() ---- */

/* Room for a record of at most `most` bytes, until lo2_finish() with its size. NULL: there is none. */
INLINE void *lo2_begin(struct lo2_bpf_buffer *buffer, __u64 most)
{
    if (!buffer || !lo2_has_room(buffer, buffer->taken, lo2_framed(most)))
        return NULL;
    return lo2_record_at(buffer, buffer->taken);
}

/*
 * Adds atomically, and is a full memory barrier. On x86, each atomic instruction is a full barrier. Elsewhere, only an
 * instruction that fetches the old value is one, and clang emits that instruction only if the value is used.
 */
INLINE void lo2_add(__u64 *number, __u64 value)
{
#if defined(__TARGET_ARCH_x86)
    __sync_fetch_and_add(number, value);
#else
    __u64 before = __sync_fetch_and_add(number, value);
    barrier_var(before);
#endif
}

/*
 * The reader sees the record with the new position, so the position comes last. x86 never reorders stores (Intel SDM 3A, 9.2.2),
 * and an atomic addition would wait until the record has reached the cache.
 */
INLINE void lo2_finish(struct lo2_bpf_buffer *buffer, __u64 size)
{
    __u64 at = buffer->taken, whole = lo2_framed(size);

    lo2_frame(buffer, at, size);
    lo2_note_crossing(buffer, at, whole);
#if defined(__TARGET_ARCH_x86)
    barrier();
    *(volatile __u64 *)&buffer->taken = at + whole;
#else
    lo2_add(&buffer->taken, whole);
#endif
    lo2_wake(buffer, at, whole);
}

/*
 * Copies a record, of at most LO2_BUFFER_SLACK bytes with its frame. False: there is no room. If the size is not constant, a
 * helper copies, for the verifier does not follow the bytes that a helper copies.
 */
INLINE bool lo2_put(struct lo2_bpf_buffer *buffer, const void *record, __u64 size)
{
    void *place = lo2_begin(buffer, size);

    if (!place)
        return false;
    if (__builtin_constant_p(size))
        lo2_copy(place, record, size);
    else
        bpf_probe_read_kernel(place, size, record);
    lo2_finish(buffer, size);
    return true;
}

/* ---- for programs that interrupt one another ---- */

#define LO2_WRITER (1ull << LO2_WRITERS_SHIFT)
enum { LO2_TRIES = 3 };            /* a try fails only if an interrupt wrote a record meanwhile */

/*
 * Position and number of writers change in one step, for each atomic step takes some 8 ns. A program counts its event while it
 * is a writer. So while there are no writers, the counts are those of the records before the position:
 *
 *   program            taken: mine, 1 writer ── count ────────────────── write ── 0 writers: the reader may go up to taken
 *   an interrupt's                                    2 writers, …, 1
 */
INLINE void lo2_join(struct lo2_bpf_buffer *buffer) { lo2_add(&buffer->taken, LO2_WRITER); }

INLINE void lo2_part(struct lo2_bpf_buffer *buffer) { lo2_add(&buffer->taken, -LO2_WRITER); }

/* Takes room for a record, and adds `writer` to the number of writers. NULL: there is no room. */
INLINE void *lo2_take_room(struct lo2_bpf_buffer *buffer, __u64 size, __u64 *at, __u64 writer)
{
    __u64 before, found = buffer->taken, whole = lo2_framed(size);
    __u32 i;

#pragma unroll
    for (i = 0; i < LO2_TRIES; i++) {
        before = found;
        *at = before & (LO2_WRITER - 1);
        if (!lo2_has_room(buffer, *at, whole))
            return NULL;
        found = __sync_val_compare_and_swap(&buffer->taken, before, before + writer + whole);
        if (found == before)
            break;
    }
    if (found != before)
        return NULL;
    lo2_note_crossing(buffer, *at, whole);
    return lo2_frame(buffer, *at, size);
}

/* Joins and takes room for a record, until lo2_finish_shared() with the same size and position. NULL: there is no room. */
INLINE void *lo2_begin_shared(struct lo2_bpf_buffer *buffer, __u64 size, __u64 *at)
{
    return lo2_take_room(buffer, size, at, LO2_WRITER);
}

INLINE void lo2_finish_shared(struct lo2_bpf_buffer *buffer, __u64 size, __u64 at)
{
    lo2_wake(buffer, at, lo2_framed(size));
    lo2_part(buffer);
}

/* As lo2_put(), for records of a constant size. */
INLINE bool lo2_put_shared(struct lo2_bpf_buffer *buffer, const void *record, __u64 size)
{
    __u64 at = 0;
    void *place = lo2_begin_shared(buffer, size, &at);

    if (!place)
        return false;
    lo2_copy(place, record, size);
    lo2_finish_shared(buffer, size, at);
    return true;
}

/* ---- for programs of tracepoints, each of which has a mark of its own in `writing` ---- */

/*
 * Only this program writes its mark, so plain loads and stores are enough. A number that programs share would need atomic steps,
 * and the second of these would wait until the record has reached the cache. Before Linux 6.1, an interrupt may start the program
 * within itself. When that run ends, the mark is what it was before.
 *
 *   program       mark + 1 ── taken moves ── count, write ── mark - 1
 *   reader                                   taken ── all marks 0? ── records before taken are finished
 */
INLINE void *lo2_begin_marked(struct lo2_bpf_buffer *buffer, __u64 size, __u64 *at, __u32 place)
{
    void *record;

    *(volatile __u8 *)&buffer->writing[place] += 1;
    record = lo2_take_room(buffer, size, at, 0); /* a full barrier, if it moves `taken` */
    if (!record)
        *(volatile __u8 *)&buffer->writing[place] -= 1;
    return record;
}

INLINE void lo2_finish_marked(struct lo2_bpf_buffer *buffer, __u64 size, __u64 at, __u32 place)
{
    lo2_wake(buffer, at, lo2_framed(size));
#if defined(__TARGET_ARCH_x86)
    barrier(); /* see lo2_finish() */
#else
    lo2_add(&buffer->taken, 0);
#endif
    *(volatile __u8 *)&buffer->writing[place] -= 1;
}

#endif
