/*
 * What the programs share with user space and with each other.
 */
#ifndef LO2IO_BPF_MAPS_H
#define LO2IO_BPF_MAPS_H

#include "kernel_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "records.h"
#include "config.h"

/* In a section of their own each, so that the layout of its map is that of the struct. */
const volatile struct {
    struct lo2_bpf_config config;
    struct lo2_bpf_call calls[LO2_MAX_CALLS];
    __u16 of_number[LO2_MAX_CALLS]; /* system call's number -> 1 + index into calls; 0: none, or by perf events */
    struct lo2_bpf_compat compat[LO2_MAX_CALLS]; /* by the number of the 32 bit call */
} lo2 SEC(".rodata.lo2io") = {};

volatile struct {
    __u32 on;                      /* written by user space through its mapping */
    __u32 reserved;
} lo2_switch SEC(".data.lo2io") = {};

/* The call that is running on a CPU. */
struct lo2_bpf_slot {
    __u32 occupied;
    __u32 call;                    /* index into lo2.calls */
    lo2_kernel_call record;        /* head, exit_event, nr_args, args: from the entry on */
    __u64 spare[2];                /* so that args may be indexed by (n & 7) */
};

/* Where tables/kernel_names.h works, and where records of facts are put together. */
#define LO2_NAMES_ROOM 32768       /* a name may begin before here */
struct lo2_bpf_names {
    __u64 first_dentry, first_mount; /* struct dentry *, struct vfsmount *: whose name is wanted */
    __u64 dentry, mount;           /* where we are on the way up */
    __u64 sum;
    __u64 pointer;                 /* on its way to become a number */
    __u64 fence;
    __u32 begin, end;              /* of the names within `record` */
    __u32 flags;                   /* enum lo2_kernel_file_flag */
    __u32 reserved;
    __u8 record[LO2_NAMES_ROOM + 256];
};

/* What a descriptor of a process stood for when it was last told on this CPU. */
#define LO2_KNOWN_FILES 512
struct lo2_bpf_known {
    __u64 table;                   /* struct files_struct *, or the ring whose registered files they are */
    __u64 file, inode, number;     /* struct file *, struct inode *, i_ino */
    __u32 process;
    __s32 fd;
    __u32 ends;                    /* lo2_count_ends() before it was looked at */
    __u32 reserved;
};

/* How often descriptors have ended, or all of a table at once (fd -1), counted by a hash of both: what a CPU knows of one
 * holds until another CPU, too, has seen it end. Addresses alone prove nothing: the next file may get the same. */
#define LO2_ENDS 4096
__u32 lo2_ends[LO2_ENDS] SEC(".bss.lo2io") = {};

/* The file of the call that is being looked at. */
struct lo2_bpf_look {
    __u64 file, inode;             /* 0: there is none */
    __u64 table, number;           /* as above */
    __s32 fd;
    __u32 mode;                    /* i_mode */
    __u32 flags;                   /* enum lo2_kernel_file_flag */
    __u32 ends;                    /* as above */
};

/* Entries and exits that found no room since the last record that did: told as soon as there is room again. */
struct lo2_bpf_losing {
    __u64 lost;
    __u64 begin_ns, end_ns;        /* of the first and of the last */
};

/* All that belongs to one CPU: only programs on that CPU write it. Mirrored in lo2io/bpf/layout.py up to `busy`. */
struct lo2_bpf_cpu {
    struct lo2_bpf_counts counts[LO2_MAX_EVENTS];
    struct lo2_bpf_misses misses;
    struct lo2_bpf_slot slot;
    struct lo2_bpf_losing losing;
    __u64 busy;                    /* a program is at work on what is here: lo2_take_cpu() */
    __u64 written;                 /* records, lost ones among them */
    __u32 given[8];                /* arguments of a 32 bit call, from 1 on */
    struct lo2_bpf_look look;
    struct lo2_bpf_known known[LO2_KNOWN_FILES];
    struct lo2_bpf_names names;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);        /* as many as there may be CPUs: set before loading */
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct lo2_bpf_cpu);
} lo2_cpus SEC(".maps");

struct lo2_bpf_ring {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);     /* what each CPU gets is user space's to decide */
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, 1);        /* as lo2_cpus */
    __type(key, __u32);
    __array(values, struct lo2_bpf_ring);
} lo2_rings SEC(".maps");

/* Which processes are recorded: a byte for each number that one can have (PID_MAX_LIMIT is 1 << 22). A look-up is a
 * load, and user space sets a byte through its mapping without a call that would keep programs from running. */
#define LO2_SELECTED_SHIFT 12
struct lo2_bpf_selected {
    __u8 process[1 << LO2_SELECTED_SHIFT];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);        /* 1 << 10 where processes are selected */
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct lo2_bpf_selected);
} lo2_selected SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
    __uint(max_entries, 1);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
} lo2_cgroup SEC(".maps");

#endif
