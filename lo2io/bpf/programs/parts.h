/*
 * The layer `parts`: which file, and which bytes of it, each block request carries.
 *
 * A request is a chain of bios. Each bio's pages belong to one file and lie one after the other (fs/ext4/page-io.c,
 * fs/iomap/buffered-io.c, fs/btrfs/bio.c). While a request is issued, its pages are locked or under write-back, or its
 * direct I/O is under way. So the pages keep their file, and the program can read the file's facts without a lock.
 */
#ifndef LO2IO_BPF_PARTS_H
#define LO2IO_BPF_PARTS_H

#include "block.h"
#include "events.h"
#include "fits.h"
#include "folios.h"

struct bio_vec {
    struct page *bv_page;
    unsigned int bv_len, bv_offset;
} KERNEL_TYPE;

struct page {
    unsigned long compound_head;   /* bit 0: the rest is the address of the folio to which this further page belongs */
    unsigned int page_type;        /* the highest byte: enum pagetype, since Linux 6.11 */
} KERNEL_TYPE;
enum pagetype { PGTY_slab };

struct kiocb {
    struct file *ki_filp;
} KERNEL_TYPE;

struct iomap_dio {
    struct kiocb *iocb;
} KERNEL_TYPE;

enum bpf_func_id { BPF_FUNC_loop = 181 }; /* since Linux 5.17 */

extern const void iomap_dio_bio_end_io __ksym __weak; /* NULL: this kernel has none, or does not tell addresses */

#define LO2_LAYER_FITS_parts \
    (LO2_HAS_RQ(block_rq_issue) && LO2_KNOWS_FOLIOS && bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop))

enum {
    LO2_MOST_BIOS = 1024,          /* of a request; the kernel merges at most so many in practice: bounds the loop */
    LO2_ANONYMOUS_BIT = 1,         /* of folio->mapping: PAGE_MAPPING_ANON, include/linux/page-flags.h */
    LO2_MAPPING_BITS = 3
};

INLINE void lo2_name_inode(lo2_kernel_part *part, const struct inode *inode)
{
    part->device = LO2_READ(LO2_READ(inode, struct inode, i_sb), struct super_block, s_dev);
    part->inode = LO2_READ(inode, struct inode, i_ino);
    part->generation = LO2_READ(inode, struct inode, i_generation);
    part->kind = LO2_PART_FILE;
}

/* Direct I/O: the pages are the program's, so the file stands in the kernel's own note of the call. */
INLINE const struct inode *lo2_direct_inode(const struct bio *bio)
{
    const struct iomap_dio *dio;
    const struct kiocb *iocb;

    if (!&iomap_dio_bio_end_io || LO2_READ(bio, struct bio, bi_end_io) != &iomap_dio_bio_end_io)
        return NULL;
    dio = (const struct iomap_dio *)LO2_READ(bio, struct bio, bi_private);
    iocb = LO2_READ(dio, struct iomap_dio, iocb);
    return LO2_READ(LO2_READ(iocb, struct kiocb, ki_filp), struct file, f_inode);
}

/* Pages of a block device itself. A journal writes such a page to another place than the page's own. */
INLINE void lo2_name_device(lo2_kernel_part *part, const struct bio *bio, const struct inode *inode)
{
    const struct block_device *disk = LO2_READ(bio, struct bio, bi_bdev);
    __u64 sector = LO2_READ(bio, struct bio, bi_iter.bi_sector) - LO2_READ(disk, struct block_device, bd_start_sect);

    part->device = LO2_READ(inode, struct inode, i_rdev);
    part->kind = !LO2_READ(disk, struct block_device, bd_holder) ? LO2_PART_FILE
                 : sector == (__u64)part->offset >> LO2_SECTOR_SHIFT ? LO2_PART_METADATA
                                                                 : LO2_PART_JOURNAL;
}

/* Memory of the kernel's own, such as XFS' buffers. It has no mapping: that member's place holds something else. */
INLINE bool lo2_is_slab(const struct folio *folio)
{
    if (bpf_core_enum_value_exists(enum pagetype, PGTY_slab))
        return LO2_READ((const struct page *)folio, struct page, page_type) >> 24 ==
               bpf_core_enum_value(enum pagetype, PGTY_slab);
    return bpf_core_enum_value_exists(enum pageflags, PG_slab) &&
           lo2_flags_of_folio(folio) >> bpf_core_enum_value(enum pageflags, PG_slab) & 1;
}

INLINE void lo2_name_mapping(struct lo2_bpf_walk *walk, lo2_kernel_part *part, const struct bio *bio, const struct folio *folio)
{
    __u64 mapping = lo2_number_by(&walk->number, LO2_READ(folio, struct folio, mapping));
    const struct inode *inode;

    if (lo2_is_swapped(folio)) {
        part->kind = LO2_PART_SWAP;
        part->offset = INT64_MIN;
        return;
    }
    if (lo2_is_slab(folio))
        mapping = 0;
    if (!mapping || mapping & LO2_MAPPING_BITS) {
        part->kind = mapping & LO2_ANONYMOUS_BIT ? LO2_PART_ANONYMOUS
                     : LO2_HAS_FLAG(LO2_READ(bio, struct bio, bi_opf), META) ? LO2_PART_METADATA : LO2_PART_UNKNOWN;
        part->offset = INT64_MIN;
        return;
    }
    inode = LO2_READ((const struct address_space *)mapping, struct address_space, host);
    if ((LO2_READ(inode, struct inode, i_mode) & LO2_TYPE_BITS) == LO2_BLOCK_DEVICE) {
        lo2_name_device(part, bio, inode);
        return;
    }
    lo2_name_inode(part, inode);
    if (lo2_has_trees(inode))
        part->kind = LO2_PART_METADATA;
}

/* The bio's file, and its place there. */
INLINE void lo2_part_of(struct lo2_bpf_walk *walk, lo2_kernel_part *part, const struct bio *bio)
{
    __u64 vector = lo2_number_by(&walk->number, LO2_READ(bio, struct bio, bi_io_vec)) +
                   (__u64)LO2_READ(bio, struct bio, bi_iter.bi_idx) * bpf_core_type_size(struct bio_vec);
    __u64 page = lo2_number_by(&walk->number, LO2_READ((const struct bio_vec *)vector, struct bio_vec, bv_page));
    __u64 head = lo2_number_by(&walk->number, (const void *)LO2_READ((const struct page *)page, struct page, compound_head));
    __u64 folio = head & 1 ? head - 1 : page;
    const struct inode *direct = lo2_direct_inode(bio);

    part->bytes = LO2_READ(bio, struct bio, bi_iter.bi_size);
    part->offset = (LO2_READ((const struct folio *)folio, struct folio, index) + (page - folio) / bpf_core_type_size(struct page)) *
                       lo2.config.page_bytes +
                   LO2_READ((const struct bio_vec *)vector, struct bio_vec, bv_offset) +
                   LO2_READ(bio, struct bio, bi_iter.bi_bvec_done);
    lo2_name_mapping(walk, part, bio, (const struct folio *)folio);
    if (!direct)
        return;
    if (part->kind == LO2_PART_FILE) { /* of a loop device: the memory is another file's page cache */
        part->inner_device = part->device;
        part->inner_inode = part->inode;
    }
    lo2_name_inode(part, direct);
    part->offset = INT64_MIN;
    part->flags = LO2_PART_DIRECT;
}

INLINE bool lo2_part_goes_on(const lo2_kernel_part *part, const lo2_kernel_part *next)
{
    return part->kind == next->kind && part->flags == next->flags && part->inode == next->inode &&
           part->device == next->device && part->generation == next->generation && part->inner_inode == next->inner_inode &&
           part->inner_device == next->inner_device &&
           (part->offset == INT64_MIN ? next->offset == INT64_MIN : part->offset + part->bytes == next->offset);
}

/*
 * The record is put together in the CPU's memory, for it is too large for the program's stack. Most requests have one
 * part, and their record has room for one. All other records have room for all parts, for a size must be a constant.
 */
LO2_ONCE int lo2_write_parts(__u32 flags)
{
    enum { ONE = __builtin_offsetof(lo2_kernel_parts, parts) + sizeof(lo2_kernel_part) };
    __u32 number;
    struct lo2_bpf_cpu *cpu = lo2_this_cpu(&number);
    struct lo2_bpf_buffer *ring = lo2_ring_for(number, LO2_RING_EVENTS);

    if (!cpu)
        return 0;
    cpu->walk.record.flags = flags;
    if (cpu->walk.record.count == 1)
        lo2_write_event(cpu, ring, &cpu->walk.record.head, ONE);
    else
        lo2_write_event(cpu, ring, &cpu->walk.record.head, sizeof cpu->walk.record);
    cpu->walk.record.count = 0;
    return 0;
}

/* For bpf_loop. 1: there is no further bio. */
static long lo2_walk_bio(__u32 index, void *nothing)
{
    __u32 number, place;
    struct lo2_bpf_cpu *cpu = lo2_this_cpu(&number);
    lo2_kernel_part part = {}, *last;
    const struct bio *bio;

    if (!cpu || !cpu->walk.bio)
        return 1;
    bio = (const struct bio *)cpu->walk.bio;
    lo2_part_of(&cpu->walk, &part, bio);
    lo2_number_by(&cpu->walk.bio, LO2_READ(bio, struct bio, bi_next));
    place = cpu->walk.record.count;
    last = &cpu->walk.record.parts[(place - 1) & (LO2_PARTS_ROOM - 1)];
    if (!part.bytes)
        return 0;
    if (place && lo2_part_goes_on(last, &part)) {
        last->bytes += part.bytes;
        return 0;
    }
    if (place >= LO2_PARTS_ROOM) {
        lo2_write_parts(0);
        place = 0;
    }
    cpu->walk.record.parts[place & (LO2_PARTS_ROOM - 1)] = part;
    cpu->walk.record.count = place + 1;
    return 0;
}

/* Runs after the program that records the event, if there is one. */
SEC("tp_btf/block_rq_issue")
int lo2_parts_block_rq_issue(__u64 *context)
{
    const struct request *request = (const struct request *)context[0];
    __u32 number, operation;
    struct lo2_bpf_cpu *cpu;

    if (!LO2_LAYER_FITS_parts || !lo2_switch.on)
        return 0;
    cpu = lo2_this_cpu(&number);
    operation = request->cmd_flags & ((1 << LO2_REQ_OP_BITS) - 1);
    if (!cpu || !(LO2_IS_OP(operation, READ) || LO2_IS_OP(operation, WRITE)))
        return 0;
    lo2_number_by(&cpu->walk.bio, LO2_MEMBER(true, request, struct request, bio));
    cpu->walk.record.count = 0;
    cpu->walk.record.head.type = LO2_KERNEL_PARTS;
    cpu->walk.record.head.tid = bpf_get_current_task_btf()->pid;
    cpu->walk.record.disk = lo2_disk_of(request);
    cpu->walk.record.sector = lo2_sector_of(request);
    bpf_loop(LO2_MOST_BIOS, lo2_walk_bio, NULL, 0);
    if (cpu->walk.record.count)
        lo2_write_parts(cpu->walk.bio ? LO2_PARTS_LAST | LO2_PARTS_CUT : LO2_PARTS_LAST);
    return 0;
}

#endif
