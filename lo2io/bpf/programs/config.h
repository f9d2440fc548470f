/*
 * What lo2io and the kernel programs share besides records: what the programs are told before they are loaded, and the
 * memory of each CPU, which user space maps.
 *
 * Read by clang for the programs and by cffi for Python (plain declarations, see build.py).
 */
#ifndef LO2IO_BPF_CONFIG_H
#define LO2IO_BPF_CONFIG_H

#include "records.h"
#include "samples.h"

enum {
    LO2_MAX_CALLS = 1024,            /* numbers of system calls */
    LO2_MAX_EVENTS = 1024,           /* events of a spool */
    LO2_MAX_DEVICES = 16,
    LO2_MAX_OPCODES = 256,           /* of io_uring: a byte tells which */
    LO2_MAX_COMMAND = 4096,          /* bytes of a command line */
    LO2_NAMES_ROOM = 32768,          /* a name may begin before here */
    LO2_KNOWN_FILES = 512,
    LO2_SELECTED_SHIFT = 12
};
enum { LO2_FACTS_ALWAYS = 2 };       /* FILE with every call: where closes are not recorded, nothing told stays true */

/* What of a call is worth reading: from tracepoints/syscalls.toml. Arguments are numbered from 1; 0: it has none. */
enum {
    LO2_CALL_RETURNS_FD = 1,
    LO2_CALL_MOVES = 2,              /* the file's position, which is read at the exit */
    LO2_CALL_CLOSES = 4,             /* its descriptor is looked at before the call */
    LO2_CALL_DROPPABLE = 8,          /* nothing but its own row depends on it: the filters below apply */
    LO2_CALL_BYTES = 16,             /* its result counts bytes */
    LO2_CALL_FIRST = 32,             /* its paths are read before the call */
    LO2_CALL_ENDS = 64               /* may end any descriptors of its table */
};

struct lo2_bpf_call {
    uint16_t enter_event, exit_event; /* common_type */
    uint16_t enter_index, exit_index; /* of the counters */
    uint8_t flags, nr_args;
    uint8_t fd, fd2;
    uint8_t path, path2, dirfd, dirfd2;
    uint8_t vector, vector_count;    /* iovecs */
    uint8_t how, how_size;           /* struct open_how */
    uint8_t iocbs, iocbs_count;
    uint8_t events, context;         /* of libaio: where its completions are returned, and from which context */
    uint8_t count;                   /* bytes asked for */
    uint8_t filled;                  /* bit n: the kernel may write where argument n + 1 points */
};

/* A call of 32 bit programs, and where each argument of the 64 bit call that does the same comes from: the register of the
 * low half (1: ebx), that of the high half << LO2_COMPAT_HIGH_SHIFT (0: none), flags. From tracepoints/syscalls.toml. */
enum {
    LO2_SOCKETCALLS = 512,           /* a socketcall's number here is so much more than its first argument */
    LO2_COMPAT_HIGH_SHIFT = 4,
    LO2_COMPAT_SIGNED = 1 << 8,
    LO2_COMPAT_PAGES = 1 << 9,
    LO2_COMPAT_LOCK = 1 << 10,       /* a command of fcntl64 */
    LO2_COMPAT_RESULT = 1 << 11      /* points to the result */
};

struct lo2_bpf_compat {
    uint16_t call;                   /* 1 + index into calls; 0: not recorded */
    uint8_t memory;                  /* register that points to the arguments; 0: they are in registers */
    uint8_t nr_given;                /* words there */
    uint16_t args[6];
};

/* What an opcode of io_uring does to files: from its traits in tracepoints/io_uring.toml. */
enum {
    LO2_ASKS_FILE = 1,               /* its fd is a descriptor, or a registered file, that it works on or closes */
    LO2_ASKS_TWO_FILES = 2,          /* its file_index is another one */
    LO2_ASKS_PLACES = 4              /* it may put another file, or none, into a place of a ring's */
};

struct lo2_bpf_config {              /* constant while the programs are loaded */
    uint32_t recorder;               /* its pid: never recorded */
    uint8_t calls;                   /* CALL, ENTER, EXIT are written; else only facts, for calls that are perf samples */
    uint8_t all_tasks;               /* else the processes in the map `selected`, and their children */
    uint8_t one_cgroup;              /* only the cgroup in the map `cgroup` and those below it */
    uint8_t facts;                   /* FILE, PATH, SQE, IOCB, EVENTS are written */
    uint8_t compat;                  /* the numbers of 32 bit calls are known */
    uint64_t min_latency_ns;         /* shorter calls are left out, if droppable; 0: none */
    int64_t min_bytes;               /* likewise, calls that ask for fewer; 0: none */
    uint32_t nr_devices;             /* likewise, of files on other devices (s_dev); 0: all */
    uint32_t devices[LO2_MAX_DEVICES];
    uint8_t asks[LO2_MAX_OPCODES];   /* LO2_ASKS_FILE and so on, by opcode */
};

struct lo2_bpf_told {                /* the section .rodata.lo2io */
    struct lo2_bpf_config config;
    struct lo2_bpf_call calls[LO2_MAX_CALLS];
    uint16_t of_number[LO2_MAX_CALLS]; /* system call's number -> 1 + index into calls; 0: none, or by perf events */
    struct lo2_bpf_compat compat[LO2_MAX_CALLS]; /* by the number of the 32 bit call */
    uint16_t sampled[LO2_MAX_SAMPLED]; /* common_type, by enum lo2_sampled */
};

struct lo2_bpf_switch {              /* the section .data.lo2io */
    uint32_t on;                     /* written by user space through its mapping */
    uint32_t reserved;
};

struct lo2_bpf_counts {              /* per event and CPU */
    uint64_t count;                  /* it happened in what is recorded */
    uint64_t lost;                   /* for want of room in the ring */
    uint64_t left_out;               /* by the filters above */
};

struct lo2_bpf_misses {              /* per CPU */
    uint64_t facts_lost;             /* records of facts, for want of room in the ring */
    uint64_t unreadable;             /* strings and arrays in the program's memory that were not there */
    uint64_t unpaired;               /* entries whose thread left the CPU unseen */
    uint64_t skipped;                /* runs that found another one at work on the CPU */
    uint64_t foreign;                /* calls whose numbers are not known: of other ABIs than the machine's own */
};

/* The call that is running on a CPU. */
struct lo2_bpf_slot {
    uint32_t occupied;
    uint32_t call;                   /* index into lo2.calls */
    lo2_kernel_call record;          /* head, exit_event, nr_args, args: from the entry on */
    uint64_t spare[2];               /* so that args may be indexed by (n & 7) */
};

/* Where names.h works, and where records of facts are put together. */
struct lo2_bpf_names {
    uint64_t first_dentry, first_mount; /* struct dentry *, struct vfsmount *: whose name is wanted */
    uint64_t dentry, mount;          /* where we are on the way up */
    uint64_t sum;
    uint64_t pointer;                /* on its way to become a number */
    uint64_t fence;
    uint32_t begin, end;             /* of the names within `record` */
    uint32_t flags;                  /* enum lo2_kernel_file_flag */
    uint32_t reserved;
    uint8_t record[LO2_NAMES_ROOM + 256];
};

/* What a descriptor of a process stood for when it was last told on this CPU. */
struct lo2_bpf_known {
    uint64_t table;                  /* struct files_struct *, or the ring whose registered files they are */
    uint64_t file, inode, number;    /* struct file *, struct inode *, i_ino */
    uint32_t process;
    int32_t fd;
    uint32_t ends;                   /* lo2_count_ends() before it was looked at */
    uint32_t reserved;
};

/* The file of the call that is being looked at. */
struct lo2_bpf_look {
    uint64_t file, inode;            /* 0: there is none */
    uint64_t table, number;          /* as above */
    int32_t fd;
    uint32_t mode;                   /* i_mode */
    uint32_t flags;                  /* enum lo2_kernel_file_flag */
    uint32_t ends;                   /* as above */
};

/* Entries and exits that found no room since the last record that did: told as soon as there is room again. */
struct lo2_bpf_losing {
    uint64_t lost;
    uint64_t begin_ns, end_ns;       /* of the first and of the last */
};

/* Of the events of tracepoints. Their programs do not take the CPU: one may interrupt another, but never itself. */
struct lo2_bpf_sampling {
    struct lo2_bpf_counts counts[LO2_MAX_SAMPLED]; /* by enum lo2_sampled */
    struct lo2_bpf_losing losing;
    uint64_t written;
};

/* All that belongs to one CPU: only programs on that CPU write it. */
struct lo2_bpf_cpu {
    struct lo2_bpf_sampling sampling;
    struct lo2_bpf_counts counts[LO2_MAX_EVENTS];
    struct lo2_bpf_misses misses;
    struct lo2_bpf_slot slot;
    struct lo2_bpf_losing losing;
    uint64_t busy;                   /* a program is at work on what is here: lo2_take_cpu() */
    uint64_t written;                /* records, lost ones among them */
    uint32_t given[8];               /* arguments of a 32 bit call, from 1 on */
    struct lo2_bpf_look look;
    struct lo2_bpf_known known[LO2_KNOWN_FILES];
    struct lo2_bpf_names names;
};

/* Which processes are recorded: a byte for each number that one can have (PID_MAX_LIMIT is 1 << 22). A look-up is a
 * load, and user space sets a byte through its mapping without a call that would keep programs from running. */
struct lo2_bpf_selected {
    uint8_t process[1 << LO2_SELECTED_SHIFT];
};

#endif
