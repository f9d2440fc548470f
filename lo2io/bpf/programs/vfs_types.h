/* The kernel's files: the members that the programs read, and how they read them. Declared by hand as in kernel_types.h. */
#ifndef LO2IO_BPF_VFS_TYPES_H
#define LO2IO_BPF_VFS_TYPES_H

#include "kernel_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

struct seqcount {
    unsigned int sequence;
} KERNEL_TYPE;
typedef struct seqcount seqcount_t;
struct seqcount_spinlock {         /* dentries have it since Linux 5.9 */
    seqcount_t seqcount;
} KERNEL_TYPE;

struct qstr {
    __u32 len;
    const unsigned char *name;
} KERNEL_TYPE;

struct hlist_bl_node {
    struct hlist_bl_node **pprev;
} KERNEL_TYPE;

struct dentry;
struct dentry_operations {
    char *(*d_dname)(struct dentry *, char *, int);
} KERNEL_TYPE;

struct dentry {
    struct seqcount_spinlock d_seq;
    struct hlist_bl_node d_hash;
    struct dentry *d_parent;
    struct qstr d_name;
    struct inode *d_inode;
    const struct dentry_operations *d_op;
} KERNEL_TYPE;

struct ns_common {
    const struct proc_ns_operations *ops;
    __u64 ns_id;                   /* since Linux 6.18; 0: an anonymous namespace */
} KERNEL_TYPE;

struct proc_ns_operations {
    const char *name;
    const char *real_ns_name;
} KERNEL_TYPE;

struct mnt_namespace {
    struct ns_common ns;
} KERNEL_TYPE;

struct mnt_namespace___before {    /* until Linux 6.17 */
    __u64 seq;                     /* 0: an anonymous namespace */
} KERNEL_TYPE;

struct vfsmount {
    struct dentry *mnt_root;
} KERNEL_TYPE;

struct mount {
    struct mount *mnt_parent;
    struct dentry *mnt_mountpoint;
    struct vfsmount mnt;
    struct mnt_namespace *mnt_ns;
    int mnt_id;
} KERNEL_TYPE;

struct super_block {
    __u32 s_dev;
    unsigned long s_magic;
} KERNEL_TYPE;

struct address_space {
    struct inode *host;
    const struct address_space_operations *a_ops;
} KERNEL_TYPE;

struct rw_semaphore {
    atomic64_t owner;              /* atomic_long_t */
} KERNEL_TYPE;

struct mutex {
    atomic64_t owner;              /* atomic_long_t */
} KERNEL_TYPE;

struct inode {
    __u16 i_mode;
    struct rw_semaphore i_rwsem;
    struct address_space i_data;
    unsigned int i_nlink;
    unsigned long i_ino;
    __u32 i_rdev;
    __u32 i_generation;
    unsigned int i_flags;
    struct super_block *i_sb;
    void *i_private;
} KERNEL_TYPE;

struct address_space_operations {
    void *read_folio;
} KERNEL_TYPE;

struct address_space_operations___pages { /* until Linux 5.18 */
    void *readpage;
} KERNEL_TYPE;

struct path {
    struct vfsmount *mnt;
    struct dentry *dentry;
} KERNEL_TYPE;

struct file {
    unsigned int f_mode;
    unsigned int f_flags;
    struct inode *f_inode;
    struct address_space *f_mapping;
    struct path f_path;
    long long f_pos;
    void *private_data;
} KERNEL_TYPE;

struct fdtable {
    unsigned int max_fds;
    struct file **fd;
    unsigned long *close_on_exec;
} KERNEL_TYPE;

struct files_struct {
    struct fdtable *fdt;
} KERNEL_TYPE;

struct fs_struct {
    struct path root;
    struct path pwd;
} KERNEL_TYPE;

/* A single pointer, as in a table of descriptors. */
struct hlist_head {
    struct hlist_node *first;
} KERNEL_TYPE;

struct timespec64 {                /* two words without pointers: any 16 bytes are read as such */
    __s64 tv_sec;
    long tv_nsec;
} KERNEL_TYPE;

/*
 * Since Linux 6.2, a program can read through any pointer at the cost of a check. Before, each field takes a call. The
 * kernel lists the functions whose names its verifier knows (kernel/bpf/verifier.c).
 */
enum special_kfunc_type {
    KF_bpf_rdonly_cast
};
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

#ifndef LO2_CAN_CAST
#define LO2_CAN_CAST bpf_core_enum_value_exists(enum special_kfunc_type, KF_bpf_rdonly_cast)
#endif

/* Reads a field of kernel memory through any pointer. Gives 0 if there is no memory. `field` must not contain a pointer. */
#define LO2_READ(pointer, type, field) \
    ({ \
        const type *lo2_object = (const type *)(pointer); \
        typeof(((type *)0)->field) lo2_value; \
        if (LO2_CAN_CAST) \
            lo2_value = ((const type *)bpf_rdonly_cast(lo2_object, bpf_core_type_id_kernel(type)))->field; \
        else if (bpf_core_read(&lo2_value, sizeof lo2_value, &lo2_object->field)) \
            lo2_value = 0; \
        lo2_value; \
    })

/*
 * A member of a kernel's struct. Before Linux 6.2, a program of a typed tracepoint (tp_btf) reads it at once, as long as the
 * verifier knows the pointer's type; a call takes ten times as long. Later kernels take such a pointer as trusted: at each
 * read of a pointer through it, the verifier searches all the kernel's types by name, for 2 ms (btf_nested_type_is_trusted
 * in kernel/bpf/btf.c). They read as quickly after a cast.
 */
#define LO2_MEMBER(typed, pointer, type, member) \
    ((typed) && !LO2_CAN_CAST ? (pointer)->member : LO2_READ(pointer, type, member))

#endif
