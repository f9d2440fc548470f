/* The kernel's folios of the page cache: the members that the programs read. See kernel_types.h. */
#ifndef LO2IO_BPF_FOLIOS_H
#define LO2IO_BPF_FOLIOS_H

#include "buffers.h"
#include "vfs_types.h"

struct folio {
    unsigned long flags;           /* until Linux 6.17 */
    struct address_space *mapping;
    unsigned long index;
    unsigned long _flags_1;        /* of the second page: the order in the lowest byte */
} KERNEL_TYPE;

struct memdesc_flags {
    unsigned long f;
} KERNEL_TYPE;
struct folio___memdesc {           /* since Linux 6.18 */
    struct memdesc_flags flags;
} KERNEL_TYPE;

struct folio___order {             /* from Linux 6.1 to 6.5 */
    unsigned char _folio_order;
} KERNEL_TYPE;

enum pageflags { PG_head, PG_swapcache, PG_swapbacked, PG_slab };
enum { LO2_TYPE_BITS = 0170000, LO2_BLOCK_DEVICE = 0060000 }; /* of i_mode: include/uapi/linux/stat.h */

enum { LO2_TREES_INODE = 1 };      /* BTRFS_BTREE_INODE_OBJECTID, include/uapi/linux/btrfs_tree.h */
#define LO2_BTRFS_MAGIC 0x9123683e

#define LO2_KNOWS_FOLIOS \
    (bpf_core_field_exists(struct folio, _flags_1) && bpf_core_enum_value_exists(enum pageflags, PG_head))

INLINE unsigned long lo2_flags_of_folio(const struct folio *folio)
{
    return bpf_core_field_exists(((struct folio___memdesc *)0)->flags.f) ? LO2_READ(folio, struct folio___memdesc, flags.f)
                                                                         : LO2_READ(folio, struct folio, flags);
}

INLINE bool lo2_is_large(const struct folio *folio)
{
    return lo2_flags_of_folio(folio) >> bpf_core_enum_value(enum pageflags, PG_head) & 1;
}

/* Both flags: the kernel gives the first one other meanings, too (folio_test_swapcache). */
INLINE bool lo2_is_swapped(const struct folio *folio)
{
    unsigned long flags = lo2_flags_of_folio(folio);

    return bpf_core_enum_value_exists(enum pageflags, PG_swapcache) &&
           flags >> bpf_core_enum_value(enum pageflags, PG_swapcache) & 1 &&
           flags >> bpf_core_enum_value(enum pageflags, PG_swapbacked) & 1;
}

INLINE __u32 lo2_pages_of_folio(const struct folio *folio)
{
    if (!lo2_is_large(folio))
        return 1;
    if (bpf_core_field_exists(((struct folio___order *)0)->_folio_order))
        return 1u << (LO2_READ(folio, struct folio___order, _folio_order) & 31);
    return 1u << (LO2_READ(folio, struct folio, _flags_1) & 31);
}

/* Btrfs keeps its trees, which are metadata, in the pages of an inode. */
INLINE bool lo2_has_trees(const struct inode *inode)
{
    return LO2_READ(inode, struct inode, i_ino) == LO2_TREES_INODE &&
           LO2_READ(LO2_READ(inode, struct inode, i_sb), struct super_block, s_magic) == LO2_BTRFS_MAGIC;
}

#endif
