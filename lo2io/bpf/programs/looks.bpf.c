/*
 * Iterators: the kernel calls the program for each thread, or each descriptor, when lo2io reads. Nothing is attached to
 * an event, so nobody else pays. Walking /proc tells the same, at fifty times the cost.
 */
#include "descriptors.h"

#include "../../native/api/facts.h"
#include "looks.h"

#define LO2_KERNEL_THREAD 0x200000 /* PF_KTHREAD in include/linux/sched.h */
#define LO2_PATH_BYTES 4096        /* PATH_MAX */

struct bpf_iter_meta {
    struct seq_file *seq;
} KERNEL_TYPE;

struct bpf_iter__task {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
} KERNEL_TYPE;

struct bpf_iter__task_file {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
    __u32 fd;
    struct file *file;
} KERNEL_TYPE;

/* An FD fact as in the spool. After the path there is room for the zero bytes up to a multiple of 8. */
struct lo2_look_file {
    __u32 type;
    __u16 misc, size;
    lo2_fact_fd fact;
    char path[LO2_PATH_BYTES + 8];
};

/* Only one reader reads at a time, so one entry is enough. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct lo2_look_file);
} lo2_look SEC(".maps");

SEC("iter/task")
int lo2_look_at_task(struct bpf_iter__task *context)
{
    struct task_struct *task = context->task;
    struct lo2_look_task found = {};

    if (!task) /* all threads were told */
        return 0;
    found.born_ns = task->start_boottime;
    found.exec = task->self_exec_id;
    found.cgroups = (__u64)task->cgroups;
    found.cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
    found.pid = task->tgid;
    found.tid = task->pid;
    found.ppid = BPF_CORE_READ(task, real_parent, tgid);
    found.is_kernel = !!(task->flags & LO2_KERNEL_THREAD);
    bpf_probe_read_kernel_str(found.comm, sizeof found.comm, task->comm);
    bpf_seq_write(context->meta->seq, &found, sizeof found);
    return 0;
}

/* A device as stat(2) has it (new_encode_dev in include/linux/kdev_t.h). */
INLINE __u64 lo2_stat_device(__u32 device)
{
    __u32 major = device >> 20, minor = device & 0xfffff;

    return (minor & 0xff) | major << 8 | (__u64)(minor & ~0xffu) << 12;
}

INLINE void lo2_fill_fact(lo2_fact_fd *fact, struct task_struct *task, __s32 fd, const struct file *file)
{
    const struct inode *inode = LO2_READ(file, struct file, f_inode);
    const __u64 mount = (__u64)BPF_CORE_READ(file, f_path.mnt);

    fact->device = lo2_stat_device(LO2_READ(LO2_READ(inode, struct inode, i_sb), struct super_block, s_dev));
    fact->inode = LO2_READ(inode, struct inode, i_ino);
    fact->mode = LO2_READ(inode, struct inode, i_mode);
    fact->position = LO2_READ(file, struct file, f_pos);
    fact->pid = task->tgid;
    fact->fd = fd;
    fact->open_flags = lo2_open_flags(file, task, fd);
    fact->mount = LO2_READ(mount - bpf_core_field_offset(struct mount, mnt), struct mount, mnt_id);
}

/*
 * The kernel holds the file, but another thread may have closed its descriptor and opened it anew before this program runs.
 * After the look has begun, the program checks that the table still has the file. The first thread stands for its process,
 * as in /proc.
 */
SEC("iter/task_file")
int lo2_look_at_file(struct bpf_iter__task_file *context)
{
    struct task_struct *task = context->task;
    struct file *file = context->file;
    const __s32 fd = context->fd;
    struct lo2_look_file *found;
    const __u32 zero = 0;
    __u32 length;
    long told;

    if (!task || !file) /* all descriptors were told */
        return 0;
    found = bpf_map_lookup_elem(&lo2_look, &zero);
    if (!found || task->pid != task->tgid || task->flags & LO2_KERNEL_THREAD ||
        task->tgid == bpf_get_current_pid_tgid() >> 32) /* lo2io's own */
        return 0;
    found->fact.begin_time_ns = bpf_ktime_get_ns();
    if (lo2_file_at(task, fd) != (__u64)file)
        return 0;
    lo2_fill_fact(&found->fact, task, fd, file);
    told = bpf_d_path(&file->f_path, found->path, LO2_PATH_BYTES);
    if (told <= 0 || told > LO2_PATH_BYTES) /* readlink(2) in /proc fails, too */
        return 0;
    length = (told - 1) & (LO2_PATH_BYTES - 1);
    __builtin_memset(found->path + length, 0, 8);
    found->fact.path_length = length;
    found->fact.time_ns = bpf_ktime_get_ns();
    length = (length + 7) & ~7u;
    found->type = LO2_FACT_FD;
    found->size = __builtin_offsetof(struct lo2_look_file, path) + length;
    bpf_seq_write(context->meta->seq, found, __builtin_offsetof(struct lo2_look_file, path) + length);
    return 0;
}

char lo2_licence[] SEC("license") = "Dual BSD/GPL";
