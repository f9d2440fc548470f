/*
 * Programs that record the events of block requests, with the fields of include/trace/events/block.h.
 *
 * They fit kernels that have enum req_op (Linux 6.0 and newer). The completions of these kernels pass a blk_status_t.
 */
#ifndef LO2IO_BPF_BLOCK_H
#define LO2IO_BPF_BLOCK_H

#include "block_types.h"
#include "tracepoints.h"

enum { LO2_REQ_OP_BITS = 8, LO2_SECTOR_SHIFT = 9, LO2_MINOR_BITS = 20 };

/*
 * ---- the letters of an operation and its flags, as blk_fill_rwbs (kernel/trace/blktrace.c) writes them ----
 *
 * The letters are put together in the CPU's memory, whose contents the verifier does not follow. On the stack, each combination
 * of letters would be a state of its own for the verifier, and verifying would take thirty times as long.
 */

INLINE void lo2_letter(volatile struct lo2_bpf_letters *letters, char letter)
{
    letters->text |= (__u64)letter << (8 * letters->count++ & 63);
}

#define LO2_IS_OP(op, name) \
    (bpf_core_enum_value_exists(enum req_op, REQ_OP_##name) && (op) == bpf_core_enum_value(enum req_op, REQ_OP_##name))
#define LO2_HAS_FLAG(opf, name) \
    (bpf_core_enum_value_exists(enum req_flag_bits, __REQ_##name) && \
     (opf) >> bpf_core_enum_value(enum req_flag_bits, __REQ_##name) & 1)

INLINE bool lo2_is_zone_op(__u32 op)
{
    return LO2_IS_OP(op, ZONE_APPEND) || LO2_IS_OP(op, ZONE_RESET) || LO2_IS_OP(op, ZONE_RESET_ALL) ||
           LO2_IS_OP(op, ZONE_OPEN) || LO2_IS_OP(op, ZONE_CLOSE) || LO2_IS_OP(op, ZONE_FINISH);
}

/*
 * The engine does not tell zone operations apart, so their second letter is always A. A write of zeroes is WZ, which not
 * every kernel says: the others write N, as for any operation without letters.
 */
INLINE void lo2_operation_letters(volatile struct lo2_bpf_letters *letters, __u32 op)
{
    if (LO2_IS_OP(op, READ)) {
        lo2_letter(letters, 'R');
    } else if (LO2_IS_OP(op, WRITE)) {
        lo2_letter(letters, 'W');
    } else if (LO2_IS_OP(op, FLUSH)) {
        lo2_letter(letters, 'F');
    } else if (LO2_IS_OP(op, DISCARD)) {
        lo2_letter(letters, 'D');
    } else if (LO2_IS_OP(op, SECURE_ERASE)) {
        lo2_letter(letters, 'D');
        lo2_letter(letters, 'E');
    } else if (LO2_IS_OP(op, WRITE_ZEROES)) {
        lo2_letter(letters, 'W');
        lo2_letter(letters, 'Z');
    } else if (lo2_is_zone_op(op)) {
        lo2_letter(letters, 'Z');
        lo2_letter(letters, 'A');
    } else {
        lo2_letter(letters, 'N');
    }
}

INLINE void lo2_spell(volatile struct lo2_bpf_letters *letters, __u32 opf)
{
    letters->text = 0;
    letters->count = 0;
    if (LO2_HAS_FLAG(opf, PREFLUSH))
        lo2_letter(letters, 'F');
    lo2_operation_letters(letters, opf & ((1 << LO2_REQ_OP_BITS) - 1));
    if (LO2_HAS_FLAG(opf, FUA))
        lo2_letter(letters, 'F');
    if (LO2_HAS_FLAG(opf, RAHEAD))
        lo2_letter(letters, 'A');
    if (LO2_HAS_FLAG(opf, SYNC))
        lo2_letter(letters, 'S');
    if (LO2_HAS_FLAG(opf, META))
        lo2_letter(letters, 'M');
    letters->of = opf;
}

/*
 * Puts the letters at the place that the running kernel's format has for them: lo2.letters_at, a constant. Most requests have the
 * flags of the last one.
 */
INLINE void lo2_write_letters(struct lo2_bpf_cpu *cpu, void *fields, __u32 place, __u32 opf)
{
    volatile struct lo2_bpf_letters *letters = &cpu->sampling.letters[place];
    __u32 at = lo2.letters_at[place] & (LO2_LETTERS_END - 1);

    if (!letters->count || letters->of != opf)
        lo2_spell(letters, opf);
    *(volatile __u64 *)(fields + at) = letters->text; /* at any address, as x86 and arm64 allow */
}

/* ---- requests and bios ---- */

INLINE __u32 lo2_disk_of(const struct request *request)
{
    const struct request_queue *queue = LO2_MEMBER(true, request, struct request, q);
    const struct gendisk *disk = LO2_MEMBER(true, queue, struct request_queue, disk);

    return disk ? disk->major << LO2_MINOR_BITS | disk->first_minor : 0;
}

/* True for a command of a driver, whose sectors mean nothing: blk_rq_is_passthrough. */
INLINE bool lo2_is_command(const struct request *request)
{
    __u32 op = request->cmd_flags & ((1 << LO2_REQ_OP_BITS) - 1);
    return LO2_IS_OP(op, DRV_IN) || LO2_IS_OP(op, DRV_OUT);
}

/* blk_rq_trace_sector, blk_rq_trace_nr_sectors */
INLINE __u64 lo2_sector_of(const struct request *request)
{
    return lo2_is_command(request) || request->__sector == (__u64)-1 ? 0 : request->__sector;
}

INLINE __u32 lo2_sectors_of(const struct request *request)
{
    return lo2_is_command(request) ? 0 : request->__data_len >> LO2_SECTOR_SHIFT;
}

#define LO2_REQUEST_SAMPLE(name) \
    LO2_SAMPLE(name, { \
        const struct request *request = (const struct request *)context[0]; \
        fields->dev = lo2_disk_of(request); \
        fields->sector = lo2_sector_of(request); \
        fields->nr_sector = lo2_sectors_of(request); \
        fields->bytes = request->__data_len; \
        lo2_write_letters(room.cpu, fields, LO2_SAMPLED_##name, request->cmd_flags); \
    })

LO2_REQUEST_SAMPLE(block_rq_insert)
LO2_REQUEST_SAMPLE(block_rq_issue)
LO2_REQUEST_SAMPLE(block_rq_merge)

/* blk_status_to_errno, block/blk-core.c */
INLINE __s32 lo2_error_of_status(__u8 status)
{
    return -(__s32)lo2.errors[status & (LO2_MAX_STATUS - 1)];
}

LO2_COUNTED_SAMPLE(block_rq_complete, {
    const struct request *request = (const struct request *)context[0];
    fields->dev = lo2_disk_of(request);
    fields->sector = request->__sector;
    fields->nr_sector = (__u32)context[2] >> LO2_SECTOR_SHIFT;
    fields->error = lo2_error_of_status(context[1]);
    lo2_write_letters(room.cpu, fields, LO2_SAMPLED_block_rq_complete, request->cmd_flags);
})
LO2_COUNTED_SAMPLE(block_rq_requeue, {
    const struct request *request = (const struct request *)context[0];
    fields->dev = lo2_disk_of(request);
    fields->sector = lo2_sector_of(request);
    fields->nr_sector = lo2_sectors_of(request);
    lo2_write_letters(room.cpu, fields, LO2_SAMPLED_block_rq_requeue, request->cmd_flags);
})

#define LO2_OF_BIO(name) \
    const struct bio *bio = (const struct bio *)context[0]; \
    const struct block_device *disk = LO2_MEMBER(true, bio, struct bio, bi_bdev); \
    fields->dev = disk->bd_dev; \
    fields->sector = bio->bi_iter.bi_sector; \
    fields->nr_sector = bio->bi_iter.bi_size >> LO2_SECTOR_SHIFT; \
    lo2_write_letters(room.cpu, fields, LO2_SAMPLED_##name, bio->bi_opf);

LO2_SAMPLE(block_bio_frontmerge, { LO2_OF_BIO(block_bio_frontmerge) })

/* The filter in tracepoints/block.toml. */
INLINE bool lo2_flushes(const struct bio *bio)
{
    return LO2_HAS_FLAG(bio->bi_opf, PREFLUSH) || LO2_IS_OP(bio->bi_opf & ((1 << LO2_REQ_OP_BITS) - 1), FLUSH);
}
LO2_SAMPLE_IF(block_bio_queue, lo2_switch.on && lo2_flushes((const struct bio *)context[0]), { LO2_OF_BIO(block_bio_queue) })

#endif
