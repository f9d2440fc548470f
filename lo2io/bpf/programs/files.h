/*
 * Which files descriptors stand for: records FILE.
 *
 * For a descriptor in an argument, a program writes FILE if this CPU has not yet written FILE with the same table,
 * process, description and inode. It also writes FILE if, since then, the descriptor has ended or a border of a window has
 * passed. For a descriptor that a call returned, it always writes FILE.
 */
#ifndef LO2IO_BPF_FILES_H
#define LO2IO_BPF_FILES_H

#include "core.h"
#include "descriptors.h"
#include "names.h"

#define LO2_MODE_LSEEK 4           /* FMODE_LSEEK in include/linux/fs.h */
#define LO2_FILE_TYPE 0170000
#define LO2_DIRECTORY 0040000
#define LO2_BLOCK_DEVICE 0060000
#define LO2_REGULAR 0100000

INLINE bool lo2_is_type(__u32 mode, __u32 type)
{
    return (mode & LO2_FILE_TYPE) == type;
}

INLINE __u32 lo2_hash(__u64 table, __s32 fd)
{
    return ((__u32)(table >> 6) * 0x9e3779b1u >> 16) + fd;
}

INLINE struct lo2_bpf_known *lo2_known(struct lo2_bpf_cpu *cpu, __u64 table, __s32 fd)
{
    return &cpu->known[lo2_hash(table, fd) % LO2_KNOWN_FILES];
}

/* A border of a window counts like an end, for the window that begins there does not have the earlier FILE records. */
INLINE __u32 lo2_count_ends(const struct lo2_bpf_cpu *cpu, __u64 table, __s32 fd)
{
    return *(volatile __u32 *)&lo2_ends[lo2_hash(table, fd) % LO2_ENDS] +
           *(volatile __u32 *)&lo2_ends[lo2_hash(table, -1) % LO2_ENDS] + *(volatile __u64 *)&cpu->borders;
}

/* A descriptor has ended or is about to (-1: any of the table). From now on, no CPU knows which file it is. */
INLINE void lo2_forget(__u64 table, __s32 fd)
{
    __sync_fetch_and_add(&lo2_ends[lo2_hash(table, fd) % LO2_ENDS], 1);
}

INLINE __u64 lo2_table(const struct lo2_moment *moment)
{
    return lo2_number(&moment->cpu->names, LO2_READ(moment->task, struct task_struct, files));
}

/* The file's position; INT64_MIN: such a file has none. */
INLINE __s64 lo2_position(const struct file *file, __u32 mode)
{
    if (!lo2_is_type(mode, LO2_REGULAR) && !lo2_is_type(mode, LO2_DIRECTORY) && !lo2_is_type(mode, LO2_BLOCK_DEVICE))
        return INT64_MIN;
    if (!(LO2_READ(file, struct file, f_mode) & LO2_MODE_LSEEK))
        return INT64_MIN;
    return LO2_READ(file, struct file, f_pos);
}

/*
 * Puts a file into the CPU's look. `table` has the file at the place `fd`: a table of descriptors, or a ring's files.
 * `ends` was counted before the file was read there, so that any later end makes it unknown.
 */
INLINE void lo2_look_at(struct lo2_bpf_cpu *cpu, __u64 file, __s32 fd, __u64 table, __u32 ends, __u32 flags)
{
    struct lo2_bpf_look *look = &cpu->look;

    look->ends = ends;
    look->file = file;
    look->inode = file ? (__u64)LO2_READ(file, struct file, f_inode) : 0;
    look->number = look->inode ? LO2_READ(look->inode, struct inode, i_ino) : 0;
    look->mode = look->inode ? LO2_READ(look->inode, struct inode, i_mode) : 0;
    look->table = table;
    look->fd = fd;
    look->flags = flags;
}

INLINE void lo2_look_at_descriptor(struct lo2_moment *moment, __s32 fd)
{
    __u64 table = lo2_table(moment);
    __u32 ends = lo2_count_ends(moment->cpu, table, fd);

    lo2_fence(&moment->cpu->names);
    lo2_look_at(moment->cpu, lo2_file_at(moment->task, fd), fd, table, ends, 0);
}

/*
 * True if the file's pages can be in the page cache: its a_ops have a function that reads a page, and the file is not memory
 * itself (DAX). Files that the kernel makes up (/proc) have no such function. Neither have files of tmpfs. The pages of a file of
 * overlayfs belong to the file below.
 */
INLINE bool lo2_is_cached(const struct file *file, const struct inode *inode)
{
    enum { DAX = 1 << 13 }; /* S_DAX, include/linux/fs.h */
    const struct address_space *mapping = LO2_READ(file, struct file, f_mapping);
    const struct address_space_operations *how = LO2_READ(mapping, struct address_space, a_ops);

    if (LO2_READ(inode, struct inode, i_flags) & DAX)
        return false;
    if (bpf_core_field_exists(struct address_space_operations, read_folio))
        return LO2_READ(how, struct address_space_operations, read_folio);
    return LO2_READ(how, struct address_space_operations___pages, readpage);
}

/*
 * Writes FILE for the file in the CPU's look. `time_ns`: the time of a call; 0: the present time. False: no name was written, so
 * the next call must write FILE again.
 */
LO2_ONCE int lo2_write_file(__u64 time_ns, __u32 of)
{
    struct lo2_moment moment = { .task = bpf_get_current_task_btf(), .time_ns = time_ns };
    const struct vfsmount *mount;
    const struct dentry *dentry;
    const struct inode *inode;
    const struct file *file;
    const struct lo2_bpf_look *look;
    struct lo2_bpf_names *names;
    lo2_kernel_file *record;
    __u32 size, cpu_number;

    moment.cpu = lo2_this_cpu(&cpu_number);
    if (!moment.cpu)
        return false;
    moment.ring = lo2_ring(&cpu_number);
    if (!time_ns)
        moment.time_ns = bpf_ktime_get_ns();
    if (of == LO2_FILE_OF_REQUEST && moment.cpu->slot.occupied) /* the call that submits the request began earlier */
        lo2_flush_slot(moment.cpu, moment.ring);
    names = &moment.cpu->names;
    look = &moment.cpu->look;
    file = (const struct file *)look->file;
    inode = (const struct inode *)look->inode;
    mount = LO2_READ(file, struct file, f_path.mnt);
    dentry = LO2_READ(file, struct file, f_path.dentry);
    record = (lo2_kernel_file *)names->record;
    names->first_dentry = (__u64)dentry;
    names->first_mount = (__u64)mount;
    names->begin = sizeof *record;
    lo2_find_names(look->inode);
    lo2_fill_head(&record->head, &moment, LO2_KERNEL_FILE, 0);
    record->file = look->file;
    record->inode = LO2_READ(inode, struct inode, i_ino);
    record->device = LO2_READ(LO2_READ(inode, struct inode, i_sb), struct super_block, s_dev);
    record->position = lo2_position(file, look->mode);
    record->table = look->flags & LO2_FILE_SLOT ? 0 : look->table;
    record->fd = look->fd;
    record->generation = LO2_READ(inode, struct inode, i_generation);
    record->mode = look->mode;
    record->links = LO2_READ(inode, struct inode, i_nlink);
    record->open_flags = lo2_open_flags(file, moment.task, look->flags & LO2_FILE_SLOT ? -1 : look->fd);
    record->mount = LO2_READ(names->first_mount - bpf_core_field_offset(struct mount, mnt), struct mount, mnt_id);
    record->magic = LO2_READ(LO2_READ(inode, struct inode, i_sb), struct super_block, s_magic);
    record->of = of;
    /* The memory of an open file may become another file's at once (SLAB_TYPESAFE_BY_RCU), if another thread closes it. */
    lo2_fence(names);
    if ((!(look->flags & LO2_FILE_SLOT) && lo2_file_at(moment.task, look->fd) != look->file) ||
        LO2_READ(file, struct file, f_path.dentry) != dentry || LO2_READ(file, struct file, f_path.mnt) != mount ||
        LO2_READ(file, struct file, f_inode) != inode)
        names->flags |= LO2_FILE_MOVED;
    record->flags = names->flags | look->flags | (lo2_is_cached(file, inode) ? LO2_FILE_CACHED : 0);
    size = names->end;
    record->names_length = size - sizeof *record;
    barrier_var(size);
    if (size > sizeof names->record || !lo2_write_fact(moment.cpu, moment.ring, record, size))
        return false;
    return names->flags & (LO2_FILE_WHOLE | LO2_FILE_PSEUDO) && !(names->flags & LO2_FILE_MOVED);
}

/* True if this CPU has told of the file in its look before. */
INLINE bool lo2_has_told(const struct lo2_moment *moment)
{
    const struct lo2_bpf_look *look = &moment->cpu->look;
    const struct lo2_bpf_known *known = lo2_known(moment->cpu, look->table, look->fd);

    return lo2.config.facts != LO2_FACTS_ALWAYS && known->table == look->table && known->fd == look->fd &&
           known->file == look->file && known->inode == look->inode && known->number == look->number &&
           known->ends == look->ends && known->process == (__u32)moment->task->tgid;
}

/* Writes FILE for the file in the CPU's look. An argument is told only if this CPU has not told the same before. */
INLINE void lo2_tell(const struct lo2_moment *moment, __u32 of)
{
    const struct lo2_bpf_look *look = &moment->cpu->look;
    struct lo2_bpf_known *known = lo2_known(moment->cpu, look->table, look->fd);

    if (!look->inode || (of != LO2_FILE_OF_RESULT && lo2_has_told(moment)))
        return;
    known->table = 0;
    if (!lo2_write_file(moment->time_ns, of))
        return;
    known->table = look->table;
    known->fd = look->fd;
    known->file = look->file;
    known->inode = look->inode;
    known->number = look->number;
    known->ends = look->ends;
    known->process = moment->task->tgid;
}

INLINE __s32 lo2_descriptor(const struct lo2_moment *moment, __u32 number)
{
    return number ? (__s32)lo2_argument(moment, number) : -1;
}

/* At the entry of a call that closes: tells of the descriptor in the CPU's look before it is gone. */
INLINE void lo2_files_at_entry(struct lo2_moment *moment)
{
    lo2_tell(moment, LO2_FILE_OF_ARGUMENT);
    lo2_forget(lo2_table(moment), lo2_descriptor(moment, moment->call->fd));
}

/* The call has a descriptor beside its first argument: its result, or the file to which it copies. */
INLINE bool lo2_has_second(const struct lo2_moment *moment)
{
    const volatile struct lo2_bpf_call *call = moment->call;

    if (call->flags & LO2_CALL_CLOSES)
        return false;
    return call->flags & LO2_CALL_RETURNS_FD ? moment->result >= 0 : call->fd2;
}

/*
 * At the exit, before CALL or EXIT is written. Sets moment->position. True: FILE will be written, so the clock must be read for
 * the call's end after this look. A thread that shares the table may put another file into the slot at any time. If such a call
 * begins before this call's end, user space refuses FILE:
 *
 *   call          ────────── exit ── look: b ── end
 *   dup2(b, fd)                 ├───────────┤
 */
INLINE bool lo2_look_at_files(struct lo2_moment *moment)
{
    const volatile struct lo2_bpf_call *call = moment->call;
    struct lo2_bpf_look *look = &moment->cpu->look;
    bool has_second = lo2_has_second(moment);

    if (has_second) {
        if (call->flags & LO2_CALL_RETURNS_FD)
            lo2_forget(lo2_table(moment), moment->result);
        lo2_look_at_descriptor(moment, call->flags & LO2_CALL_RETURNS_FD ? moment->result : lo2_descriptor(moment, call->fd2));
        moment->cpu->second = *look;
    }
    lo2_look_at_descriptor(moment, call->flags & LO2_CALL_CLOSES ? -1 : lo2_descriptor(moment, call->fd));
    if (look->file && call->flags & LO2_CALL_MOVES)
        moment->position = lo2_position((const struct file *)look->file, look->mode);
    moment->untold = look->inode && !lo2_has_told(moment);
    return has_second || moment->untold;
}

/*
 * True if the file of a droppable call is on an unwanted device. Decides only for files whose device is the disk's. File
 * systems without a disk's number (major 0, such as btrfs) and device nodes pass, for user space knows more.
 */
INLINE bool lo2_files_left_out(struct lo2_moment *moment)
{
    const struct lo2_bpf_look *look = &moment->cpu->look;
    __u32 device, i;

    if (!lo2.config.nr_devices || !look->inode ||
        !(lo2_is_type(look->mode, LO2_REGULAR) || lo2_is_type(look->mode, LO2_DIRECTORY)))
        return false;
    device = LO2_READ(LO2_READ(look->inode, struct inode, i_sb), struct super_block, s_dev);
    if (!(device >> 20))
        return false;
    for (i = 0; i < sizeof lo2.config.devices / sizeof lo2.config.devices[0]; i++)
        if (i < lo2.config.nr_devices && lo2.config.devices[i] == device)
            return false;
    return true;
}

/* At the exit, after CALL or EXIT. */
INLINE void lo2_write_files(struct lo2_moment *moment)
{
    const volatile struct lo2_bpf_call *call = moment->call;

    if (call->flags & LO2_CALL_CLOSES) { /* again, for the descriptor may have been told since the entry */
        lo2_forget(lo2_table(moment), lo2_descriptor(moment, call->fd));
        return;
    }
    if (call->flags & LO2_CALL_ENDS)
        lo2_forget(lo2_table(moment), -1);
    if (moment->untold)
        lo2_tell(moment, LO2_FILE_OF_ARGUMENT);
    if (lo2_has_second(moment)) {
        moment->cpu->look = moment->cpu->second;
        lo2_tell(moment, call->flags & LO2_CALL_RETURNS_FD ? LO2_FILE_OF_RESULT : LO2_FILE_OF_ARGUMENT);
    }
}

#endif
