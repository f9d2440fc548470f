/*
 * Types and constants of the kernel, declared by hand: only the members that the programs read. When the programs are
 * loaded, libbpf sets the offsets from the running kernel's BTF (preserve_access_index). So order and size do not
 * matter here, and compiling needs no header of the kernel.
 */
#ifndef LO2IO_BPF_KERNEL_TYPES_H
#define LO2IO_BPF_KERNEL_TYPES_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 uint8_t;
typedef __u16 uint16_t;
typedef __u32 uint32_t;
typedef __u64 uint64_t;
typedef __s32 int32_t;
typedef __s64 int64_t;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)
#define INT64_MIN (-0x7fffffffffffffffll - 1)

/* include/uapi/linux/bpf.h */
enum {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
    BPF_MAP_TYPE_CGROUP_ARRAY = 8,
    BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
    BPF_MAP_TYPE_RINGBUF = 27
};
enum { BPF_F_MMAPABLE = 1 << 10 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { BPF_RB_AVAIL_DATA = 0, BPF_RB_RING_SIZE = 1 };

#define KERNEL_TYPE __attribute__((preserve_access_index))
#define INLINE static __always_inline

typedef struct {
    int counter;
} KERNEL_TYPE atomic_t;

typedef struct {
    long long counter;
} KERNEL_TYPE atomic64_t;

struct signal_struct {
    atomic_t live;
} KERNEL_TYPE;

struct thread_info {
    unsigned long flags;
    __u32 status;
} KERNEL_TYPE;

struct sched_entity {
    __u64 sum_exec_runtime;
} KERNEL_TYPE;

struct task_delay_info {
    __u64 blkio_delay;
} KERNEL_TYPE;

#if defined(__TARGET_ARCH_x86)
struct thread_struct {
    unsigned long sp;              /* while the thread has no CPU */
} KERNEL_TYPE;
#define LO2_THREAD_SP thread.sp
#define LO2_BEYOND_GAP 1           /* entry_SYSCALL_64 */
#elif defined(__TARGET_ARCH_arm64)
struct cpu_context {
    unsigned long sp;
} KERNEL_TYPE;
struct thread_struct {
    struct cpu_context cpu_context;
} KERNEL_TYPE;
#define LO2_THREAD_SP thread.cpu_context.sp
#define LO2_BEYOND_GAP 5           /* el0_svc_common, do_el0_svc, el0_svc, el0t_64_sync_handler, el0t_64_sync */
#endif

struct cgroup;
struct css_set {
    struct cgroup *dfl_cgrp;       /* of cgroup v2 */
} KERNEL_TYPE;

struct kernfs_node {
    __u64 id;
} KERNEL_TYPE;

struct cgroup {
    struct kernfs_node *kn;
} KERNEL_TYPE;

struct task_struct {
    struct thread_info thread_info;
    void *stack;
    struct thread_struct thread;
    unsigned int flags;            /* PF_* */
    void *worker_private;          /* of an io_uring worker: its struct io_worker. Since Linux 5.17 */
    struct sched_entity se;
    __u64 utime, stime;
    unsigned long nvcsw, nivcsw, min_flt, maj_flt;
    struct task_delay_info *delays; /* CONFIG_TASK_DELAY_ACCT; NULL: switched off */
    int pid;                       /* the thread */
    int tgid;                      /* the process */
    struct task_struct *real_parent;
    char comm[16];
    __u64 start_boottime;
    __u64 self_exec_id;            /* another one after each exec. 32 bits before Linux 5.7 */
    struct css_set *cgroups;
    int exit_state;
    unsigned in_iowait : 1;
    struct signal_struct *signal;
    struct files_struct *files;
    struct nsproxy *nsproxy;
    struct fs_struct *fs;
    struct mm_struct *mm;
} KERNEL_TYPE;

struct mm_struct {
    unsigned long arg_start, arg_end; /* the arguments' place in the program's memory */
    unsigned long start_stack;        /* where the first thread's stack began: after it lie arguments and environment */
} KERNEL_TYPE;

/* The arguments of a system call. They are still there at its exit, except for execve and rt_sigreturn. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
    unsigned long di, si, dx, r10, r8, r9;
    unsigned long bx, cx, bp;      /* of 32 bit calls */
    long orig_ax;                  /* number of the call */
    unsigned long sp;
    unsigned long ax, ip, r11, r12, r13, r14, r15;
} KERNEL_TYPE;
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
    __u64 regs[31];
} KERNEL_TYPE;
struct pt_regs {
    struct user_pt_regs user_regs;
    __u64 orig_x0;                 /* regs[0] is the result at the exit */
    __s32 syscallno;
} KERNEL_TYPE;
#else
#error "which registers hold the arguments of a system call is not known for this architecture"
#endif

#endif
