/*
 * Writing records into a CPU's buffers (struct lo2_bpf_buffer in config.h).
 *
 * The kernel's own ring buffer (BPF_MAP_TYPE_RINGBUF) takes a lock and copies each record twice: about 30 ns more a record.
 */
#ifndef LO2IO_BPF_BUFFERS_H
#define LO2IO_BPF_BUFFERS_H

#include "maps.h"

#define INLINE static __always_inline

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

/* True if a record finds room that takes `whole` bytes with its frame, and others `spare` bytes besides. */
INLINE bool lo2_has_room(const volatile struct lo2_bpf_buffer *buffer, __u64 whole, __u64 spare)
{
    return buffer->taken + whole + spare - buffer->tail <= lo2.config.ring_bytes;
}

/* Writes the frame of a record at a position. Returns where the record begins. */
INLINE void *lo2_frame(struct lo2_bpf_buffer *buffer, __u64 at, __u64 size)
{
    __u8 *frame = (__u8 *)buffer + LO2_BUFFER_HEAD + (at & lo2.config.ring_mask);

    *(__u64 *)frame = size;
    return frame + LO2_FRAME_BYTES;
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

/* Room for a record, until lo2_finish() with the same size. NULL: there is none. */
INLINE void *lo2_begin(struct lo2_bpf_buffer *buffer, __u64 size)
{
    if (!buffer || !lo2_has_room(buffer, lo2_framed(size), 0))
        return NULL;
    return lo2_frame(buffer, buffer->taken, size);
}

/* The reader sees the record with the new position (a full barrier), so the position comes last. */
INLINE void lo2_finish(struct lo2_bpf_buffer *buffer, __u64 size)
{
    __u64 at = buffer->taken, whole = lo2_framed(size);

    lo2_note_crossing(buffer, at, whole);
    __sync_fetch_and_add(&buffer->taken, whole);
    lo2_wake(buffer, at, whole);
}

/*
 * Copies a record, of at most LO2_BUFFER_SLACK bytes with its frame. False: there is no room. A call copies,
 * for the verifier does not follow what a call copies. Word by word, it would follow many more states.
 */
INLINE bool lo2_put(struct lo2_bpf_buffer *buffer, const void *record, __u64 size)
{
    void *place = lo2_begin(buffer, size);

    if (!place)
        return false;
    bpf_probe_read_kernel(place, size, record);
    lo2_finish(buffer, size);
    return true;
}

/* ---- for programs that interrupt one another ---- */

enum {
    LO2_MAX_WRITERS = 4,           /* a task, a softirq, an interrupt, an NMI */
    LO2_MAX_SHARED = 320           /* bytes of a record with its frame */
};

/*
 * A program joins, counts its event, writes, and parts. Positions are taken first, and `writers` says that records before
 * `taken` are still under way. While there are no writers, the counts are those of the records before `taken`:
 *
 *   program            writers 1 ── count ── taken: mine ────────────────── write ── writers 0: the reader may go up to taken
 *   an interrupt's                                       writers 2, …, 1
 *
 * False: too many programs write. Part in any case.
 */
INLINE bool lo2_join(struct lo2_bpf_buffer *buffer)
{
    return __sync_fetch_and_add(&buffer->writers, 1) < LO2_MAX_WRITERS;
}

INLINE void lo2_part(struct lo2_bpf_buffer *buffer) { __sync_fetch_and_add(&buffer->writers, -1); }

/* As lo2_put(), for small records of a constant size, by a program that has joined. */
INLINE bool lo2_put_shared(struct lo2_bpf_buffer *buffer, const void *record, __u64 size)
{
    __u64 at, whole = lo2_framed(size);

    if (!lo2_has_room(buffer, whole, LO2_MAX_WRITERS * LO2_MAX_SHARED))
        return false;
    at = __sync_fetch_and_add(&buffer->taken, whole);
    lo2_copy(lo2_frame(buffer, at, size), record, size);
    lo2_note_crossing(buffer, at, whole);
    lo2_wake(buffer, at, whole);
    return true;
}

#endif
