/*
 * The name of a file: read from its directory entry upwards, like the kernel's own d_path (fs/d_path.c), but without its
 * locks. So names and parents may change during the walk.
 *
 * Each entry (dentry) counts its changes in d_seq: its name, its parent, whether it has a file. d_seq is odd during a
 * change. The program walks up twice. The first walk copies the names, and mixes each entry, its count, and each mount
 * into a sum. The second walk only makes the sum. If both sums are equal, nothing changed between the walks:
 *
 *   first walk   names, sum ───┤
 *                               └ at this moment, the file had that name
 *   second walk                   ├─── sum
 *
 * Else the program tries once more, and then marks the name as moved.
 *
 * Entries, their names and mounts are freed after a grace period of RCU (fs/dcache.c, fs/namespace.c), and programs run
 * within one. Reads of memory that is not there give 0.
 */
#ifndef LO2IO_BPF_NAMES_H
#define LO2IO_BPF_NAMES_H

#include "core.h"
#include "vfs_types.h"

#define LO2_MAX_NAME 255           /* NAME_MAX in include/uapi/linux/limits.h */
#define LO2_SHORT_NAME 32          /* most names are not longer. An entry has room for so many bytes (DNAME_INLINE_LEN, include/linux/dcache.h) */
#define LO2_MAX_ERRNO 4095         /* pointers above -MAX_ERRNO are errors: include/linux/err.h */
#define LO2_NAME_TRIES 2
#define LO2_MAX_STEPS 4096         /* a path of PATH_MAX bytes has at most 2,048 names */
#define LO2_MAGIC_NSFS 0x6e736673  /* include/uapi/linux/magic.h */

struct lo2_frame {
    struct lo2_bpf_names *names;
};

INLINE __u64 lo2_mix(__u64 sum, __u64 value)
{
    sum = (sum ^ value) * 0x9e3779b97f4a7c15ull;
    return sum ^ sum >> 29;
}

/* A pointer as a number, read back from memory. The verifier forbids calculations with what it knows as a pointer. */
INLINE __u64 lo2_number(struct lo2_bpf_names *names, const void *pointer)
{
    return lo2_number_by(&names->pointer, pointer);
}

/* The CPU does not reorder loads across this fence. x86 never reorders loads (Intel SDM 3A, 9.2.2). */
INLINE void lo2_fence(struct lo2_bpf_names *names)
{
#if defined(__TARGET_ARCH_x86)
    barrier();
#else
    __u64 before = __sync_fetch_and_add(&names->fence, 1);
    barrier_var(before);
#endif
}

/* True if the topmost mount belongs to a namespace. Else it has been unmounted. */
INLINE bool lo2_is_top(const struct mount *mount)
{
    const struct mnt_namespace *space = LO2_READ(mount, struct mount, mnt_ns);

    if (!space || (__u64)space >= (__u64)-LO2_MAX_ERRNO)
        return false;
    if (bpf_core_field_exists(struct mnt_namespace___before, seq))
        return BPF_CORE_READ((const struct mnt_namespace___before *)space, seq) != 0;
    if (bpf_core_field_exists(struct ns_common, ns_id))
        return LO2_READ(space, struct mnt_namespace, ns.ns_id) != 0;
    return true;
}

/* If `names` is at the top of a mount, goes on where the mount is mounted. */
enum { LO2_INSIDE, LO2_LEFT, LO2_AT_TOP };
INLINE int lo2_leave_mount(struct lo2_bpf_names *names)
{
    const struct vfsmount *inner = (const struct vfsmount *)names->mount;
    const struct mount *mount, *parent;
    const struct dentry *place;

    if (LO2_READ(inner, struct vfsmount, mnt_root) != (const struct dentry *)names->dentry)
        return LO2_INSIDE;
    mount = (const struct mount *)(names->mount - bpf_core_field_offset(struct mount, mnt));
    parent = LO2_READ(mount, struct mount, mnt_parent);
    if (parent == mount) {
        if (lo2_is_top(mount))
            names->flags |= LO2_FILE_WHOLE;
        return LO2_AT_TOP;
    }
    place = LO2_READ(mount, struct mount, mnt_mountpoint);
    names->mount = lo2_number(names, parent);
    names->sum = lo2_mix(lo2_mix(names->sum, names->mount), lo2_number(names, place));
    names->mount += bpf_core_field_offset(struct mount, mnt);
    names->dentry = (__u64)place;
    return LO2_LEFT;
}

/* Copies 16 bytes. Memory that is not there reads as zeros. */
INLINE void lo2_copy_16(void *to, const void *from)
{
    *(__u64 *)to = LO2_READ(from, struct timespec64, tv_sec);
    *((__u64 *)to + 1) = LO2_READ(from, struct timespec64, tv_nsec);
}

/* Copies the name of `dentry` after those before. False: there is no room, or the name is too long to be one. */
INLINE bool lo2_copy_name(struct lo2_bpf_names *names, const struct dentry *dentry)
{
    __u32 length = LO2_READ(dentry, struct dentry, d_name.len);
    const void *name = LO2_READ(dentry, struct dentry, d_name.name);
    __u32 at = names->end;

    barrier_var(length);
    barrier_var(at);
    if (at >= LO2_NAMES_ROOM || length > LO2_MAX_NAME)
        return false;
    if (LO2_CAN_CAST && length <= LO2_SHORT_NAME) { /* a call takes longer than these 32 bytes, whatever stands after the name */
        lo2_copy_16(&names->record[at], name);
        lo2_copy_16(&names->record[at + 16], name + 16);
    } else if (bpf_probe_read_kernel(&names->record[at], length, name)) {
        return false;
    }
    at += length;
    names->record[at] = 0;
    names->end = at + 1;
    return true;
}

/* A step of the first walk. */
static long lo2_climb(__u32 step, struct lo2_frame *frame)
{
    struct lo2_bpf_names *names = frame->names;
    const struct dentry *dentry = (const struct dentry *)names->dentry;
    const struct dentry *parent;
    __u32 sequence;
    int left = lo2_leave_mount(names);

    if (left != LO2_INSIDE)
        return left == LO2_AT_TOP;
    sequence = LO2_READ(dentry, struct dentry, d_seq.seqcount.sequence);
    lo2_fence(names);
    parent = LO2_READ(dentry, struct dentry, d_parent);
    if (parent == dentry || !lo2_copy_name(names, dentry))
        return 1; /* no way leads to the top of the mount: d_path calls that escaped */
    if (sequence & 1)
        names->flags |= LO2_FILE_MOVED;
    names->sum = lo2_mix(lo2_mix(names->sum, (__u64)dentry), sequence);
    names->dentry = (__u64)parent;
    return 0;
}

/* A step of the second walk. */
static long lo2_climb_again(__u32 step, struct lo2_frame *frame)
{
    struct lo2_bpf_names *names = frame->names;
    const struct dentry *dentry = (const struct dentry *)names->dentry;
    int left = lo2_leave_mount(names);

    if (left != LO2_INSIDE)
        return left == LO2_AT_TOP;
    names->sum = lo2_mix(lo2_mix(names->sum, (__u64)dentry), LO2_READ(dentry, struct dentry, d_seq.seqcount.sequence));
    names->dentry = (__u64)LO2_READ(dentry, struct dentry, d_parent);
    return 0;
}

static long lo2_try(__u32 attempt, struct lo2_frame *frame)
{
    struct lo2_bpf_names *names = frame->names;
    __u64 sum;
    long steps;

    names->end = names->begin;
    names->flags = 0;
    names->sum = 0;
    names->dentry = names->first_dentry;
    names->mount = names->first_mount;
    steps = bpf_loop(LO2_MAX_STEPS, lo2_climb, frame, 0);
    if (!(names->flags & LO2_FILE_WHOLE))
        return 1;
    sum = names->sum;
    names->sum = 0;
    names->dentry = names->first_dentry;
    names->mount = names->first_mount;
    lo2_fence(names);
    bpf_loop(steps, lo2_climb_again, frame, 0);
    if (names->sum != sum)
        names->flags |= LO2_FILE_MOVED;
    return !(names->flags & LO2_FILE_MOVED);
}

/* Copies the kernel's name of a namespace's file (fs/nsfs.c, ns_dname): mnt, net, pid... */
INLINE bool lo2_copy_namespace(struct lo2_bpf_names *names, const struct inode *inode)
{
    const struct ns_common *space = LO2_READ(inode, struct inode, i_private);
    const struct proc_ns_operations *operations = LO2_READ(space, struct ns_common, ops);
    const char *name = LO2_READ(operations, struct proc_ns_operations, real_ns_name);
    __u32 at = names->end;
    long length;

    if (!name)
        name = LO2_READ(operations, struct proc_ns_operations, name);
    barrier_var(at);
    if (at >= LO2_NAMES_ROOM)
        return false;
    length = bpf_probe_read_kernel_str(&names->record[at], LO2_MAX_NAME + 1, name);
    if (length <= 0)
        return false;
    names->end = at + length;
    return true;
}

/*
 * Writes the names from `first_dentry` upwards to record[begin] .. record[end], and sets `flags`. The address is that
 * of the file's inode. A file without a directory, such as a pipe, has one name only (LO2_FILE_PSEUDO).
 */
LO2_ONCE int lo2_find_names(__u64 inode_address)
{
    __u32 cpu_number;
    struct lo2_bpf_cpu *cpu = lo2_this_cpu(&cpu_number);
    const struct inode *inode = (const struct inode *)inode_address;
    const struct dentry_operations *operations;
    const struct super_block *block;
    const struct dentry *dentry;
    const struct vfsmount *mount;
    struct lo2_bpf_names *names;
    struct lo2_frame frame;

    if (!cpu)
        return 0;
    names = frame.names = &cpu->names;
    dentry = (const struct dentry *)names->first_dentry;
    mount = (const struct vfsmount *)names->first_mount;
    if (LO2_READ(dentry, struct dentry, d_parent) == dentry && LO2_READ(mount, struct vfsmount, mnt_root) != dentry) {
        names->end = names->begin;
        names->flags = 0;
        operations = LO2_READ(dentry, struct dentry, d_op);
        if (!operations || !LO2_READ(operations, struct dentry_operations, d_dname))
            return 0; /* opened by a file handle, so no way up is known */
        block = LO2_READ(inode, struct inode, i_sb);
        if (LO2_READ(block, struct super_block, s_magic) == LO2_MAGIC_NSFS ? lo2_copy_namespace(names, inode)
                                                                          : lo2_copy_name(names, dentry))
            names->flags = LO2_FILE_PSEUDO;
        return 0;
    }
    bpf_loop(LO2_NAME_TRIES, lo2_try, &frame, 0);
    if (!LO2_READ(dentry, struct dentry, d_hash.pprev) && LO2_READ(dentry, struct dentry, d_parent) != dentry)
        names->flags |= LO2_FILE_DELETED;
    return 0;
}

#endif
