/*
 * Path arguments of calls: records PATH, with the names of the directory at which the path begins. An open that
 * succeeds has none, for FILE tells what it opened.
 */
#ifndef LO2IO_BPF_PATHS_H
#define LO2IO_BPF_PATHS_H

#include "core.h"
#include "files.h"
#include "names.h"
#include "values.h"

#define LO2_MAX_PATH 4096          /* PATH_MAX in include/uapi/linux/limits.h, with the zero byte */
#define LO2_IN_CWD -100            /* AT_FDCWD in include/uapi/linux/fcntl.h */
#define LO2_RESOLVE_IN_ROOT 0x10   /* include/uapi/linux/openat2.h: even an absolute path begins at the directory */
#define LO2_ROOT_STEPS 4

struct lo2_given {
    __u64 time_ns;
    __u64 string;                  /* address in the program's memory */
    __u64 written;                 /* bytes that the call has written where `filled` points; 0: not known */
    __s32 directory;
    __u8 place;
    __u8 in_root;
    __u8 filled;                   /* as in lo2_bpf_call; 0 for a path that is read before the call */
};

/* True if the path begins at the top of the tree, so that its directory has no names. Most processes have such a root. */
INLINE bool lo2_is_nameless(struct lo2_bpf_names *names)
{
    int left = LO2_LEFT;
    __u32 step;

    names->dentry = names->first_dentry;
    names->mount = names->first_mount;
#pragma unroll
    for (step = 0; step < LO2_ROOT_STEPS; step++)
        if (left == LO2_LEFT)
            left = lo2_leave_mount(names);
    return left == LO2_AT_TOP && names->flags & LO2_FILE_WHOLE;
}

/* Finds where a path begins: at the root, an open directory, or the working directory. Returns its inode, or 0. */
INLINE __u64 lo2_find_start(struct task_struct *task, struct lo2_bpf_names *names, bool absolute, __s32 directory)
{
    const struct fs_struct *fs = LO2_READ(task, struct task_struct, fs);
    __u64 file;

    if (!absolute && directory != LO2_IN_CWD) {
        file = lo2_file_at(task, directory);
        if (!file)
            return 0;
        names->first_mount = (__u64)LO2_READ(file, struct file, f_path.mnt);
        names->first_dentry = (__u64)LO2_READ(file, struct file, f_path.dentry);
    } else {
        names->first_mount = (__u64)(absolute ? LO2_READ(fs, struct fs_struct, root.mnt)
                                              : LO2_READ(fs, struct fs_struct, pwd.mnt));
        names->first_dentry = (__u64)(absolute ? LO2_READ(fs, struct fs_struct, root.dentry)
                                               : LO2_READ(fs, struct fs_struct, pwd.dentry));
    }
    return lo2_number(names, LO2_READ(names->first_dentry, struct dentry, d_inode));
}

/* Copies the path behind the record's head. Returns the path's length; 0, with LO2_PATH_CUT, if the path cannot be read. */
INLINE __u32 lo2_copy_path(struct lo2_bpf_cpu *cpu, __u64 string)
{
    struct lo2_bpf_names *names = &cpu->names;
    long length = bpf_probe_read_user_str(&names->record[sizeof(lo2_kernel_path)], LO2_MAX_PATH + 1, (const void *)string);

    names->flags = length <= 0 || length > LO2_MAX_PATH ? LO2_PATH_CUT : 0;
    if (length > 0)
        return length - 1;
    cpu->misses.unreadable++;
    return 0;
}

/* True if the call may have overwritten its own path, like a readlink that uses the same memory for both. */
INLINE bool lo2_is_overwritten(const struct lo2_bpf_cpu *cpu, const struct lo2_given *given, __u32 length)
{
    __u32 i;

#pragma unroll
    for (i = 0; i < 6; i++) {
        __u64 begin = cpu->slot.record.args[i];
        if (given->filled >> i & 1 && (begin - given->string <= length || given->string - begin < given->written))
            return true;
    }
    return false;
}

LO2_ONCE int lo2_write_path(const struct lo2_given *given)
{
    struct lo2_moment moment = { .task = bpf_get_current_task_btf() };
    __u32 length, size, cpu_number;
    struct lo2_bpf_names *names;
    lo2_kernel_path *record;
    __u64 inode, mount, dentry;
    bool absolute;

    moment.cpu = lo2_this_cpu(&cpu_number);
    if (!given || !moment.cpu)
        return 0;
    moment.ring = lo2_ring(&cpu_number);
    moment.time_ns = given->time_ns;
    names = &moment.cpu->names;
    record = (lo2_kernel_path *)names->record;
    length = lo2_copy_path(moment.cpu, given->string);
    if (lo2_is_overwritten(moment.cpu, given, length)) {
        length = 0;
        names->flags = LO2_PATH_CUT;
    }
    absolute = length && names->record[sizeof *record] == '/';
    if (absolute && given->in_root)
        return 0;
    names->begin = names->end = sizeof *record + length;
    if (!(names->flags & LO2_PATH_CUT)) {
        inode = lo2_find_start(moment.task, names, absolute, given->directory);
        if (inode && !(absolute && lo2_is_nameless(names)))
            lo2_find_names(inode);
        mount = names->first_mount;
        dentry = names->first_dentry;
        lo2_fence(names);
        if (inode != lo2_find_start(moment.task, names, absolute, given->directory) || mount != names->first_mount ||
            dentry != names->first_dentry) /* another thread changed or closed the directory */
            names->flags |= LO2_FILE_MOVED;
    }
    lo2_fill_head(&record->head, &moment, LO2_KERNEL_PATH, 0);
    record->place = given->place;
    record->flags = names->flags;
    record->path_length = length;
    record->names_length = names->end - names->begin;
    record->reserved = 0;
    size = names->end;
    barrier_var(size);
    if (size <= sizeof names->record)
        lo2_write_fact(moment.cpu, moment.ring, record, size);
    return 0;
}

/* True if this openat2 begins even absolute paths at its directory. */
INLINE bool lo2_is_in_root(const struct lo2_moment *moment)
{
    struct lo2_open_how how = {};

    return moment->call->how && lo2_read_how(moment, &how) && how.resolve & LO2_RESOLVE_IN_ROOT;
}

INLINE void lo2_write_given(struct lo2_moment *moment)
{
    const volatile struct lo2_bpf_call *call = moment->call;
    struct lo2_given given = { .time_ns = moment->time_ns, .in_root = lo2_is_in_root(moment) };

    if (!(call->flags & LO2_CALL_FIRST) && moment->result >= 0) {
        given.filled = call->filled;
        given.written = call->flags & LO2_CALL_BYTES ? moment->result : 0;
    }
    given.string = lo2_argument(moment, call->path);
    given.directory = call->dirfd ? (__s32)lo2_argument(moment, call->dirfd) : LO2_IN_CWD;
    if (given.string)
        lo2_write_path(&given);
    if (!call->path2)
        return;
    given.place = 1;
    given.string = lo2_argument(moment, call->path2);
    given.directory = call->dirfd2 ? (__s32)lo2_argument(moment, call->dirfd2) : LO2_IN_CWD;
    if (given.string)
        lo2_write_path(&given);
}

/* At the entry of calls that destroy their paths, or change where paths begin (LO2_CALL_FIRST). */
INLINE void lo2_paths_at_entry(struct lo2_moment *moment)
{
    if (moment->call->path && moment->call->flags & LO2_CALL_FIRST)
        lo2_write_given(moment);
}

/* At the exit, after CALL or EXIT. */
INLINE void lo2_write_paths(struct lo2_moment *moment)
{
    const volatile struct lo2_bpf_call *call = moment->call;

    if (!call->path || call->flags & LO2_CALL_FIRST || (call->flags & LO2_CALL_RETURNS_FD && moment->result >= 0))
        return;
    lo2_write_given(moment);
}

#endif
