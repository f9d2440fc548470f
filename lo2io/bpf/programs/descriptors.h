/* A task's table of descriptors. */
#ifndef LO2IO_BPF_DESCRIPTORS_H
#define LO2IO_BPF_DESCRIPTORS_H

#include "vfs_types.h"

#define LO2_CLOEXEC 02000000       /* include/uapi/asm-generic/fcntl.h */

/* The address of the open file behind a descriptor of the task, or 0. */
INLINE __u64 lo2_file_at(struct task_struct *task, __s32 fd)
{
    const struct files_struct *files = LO2_READ(task, struct task_struct, files);
    const struct fdtable *table = LO2_READ(files, struct files_struct, fdt);

    if ((__u32)fd >= LO2_READ(table, struct fdtable, max_fds)) /* max_fds reads as 0 if the task ends and has no table */
        return 0;
    return (__u64)LO2_READ(LO2_READ(table, struct fdtable, fd) + (__u32)fd, struct hlist_head, first);
}

/* True if exec closes the descriptor: a bit beside the table (include/linux/fdtable.h), in words of 64 descriptors. */
INLINE bool lo2_ends_with_exec(struct task_struct *task, __s32 fd)
{
    const struct files_struct *files = LO2_READ(task, struct task_struct, files);
    const struct fdtable *table = LO2_READ(files, struct files_struct, fdt);
    __u32 number = fd;
    __u64 word;

    if (number >= LO2_READ(table, struct fdtable, max_fds))
        return false;
    word = LO2_READ(LO2_READ(table, struct fdtable, close_on_exec) + number / 64, struct timespec64, tv_sec);
    return word >> (number & 63) & 1;
}

/* The flags of open(2): O_CLOEXEC is the descriptor's, all others are the file's. fd -1: the file has no descriptor. */
INLINE __u32 lo2_open_flags(const struct file *file, struct task_struct *task, __s32 fd)
{
    __u32 flags = LO2_READ(file, struct file, f_flags) & ~LO2_CLOEXEC;

    return lo2_ends_with_exec(task, fd) ? flags | LO2_CLOEXEC : flags;
}

#endif
