/*
 * What lo2io and its programs share besides records: the programs' configuration, set before they are loaded, and each
 * CPU's memory, which user space maps.
 *
 * clang reads this file for the programs, cffi for Python (plain declarations, see build.py).
 */
#ifndef LO2IO_BPF_CONFIG_H
#define LO2IO_BPF_CONFIG_H

#include "records.h"
#include "samples.h"

enum {
    LO2_MAX_CALLS = 1024,            /* numbers of system calls */
    LO2_MAX_EVENTS = 1024,           /* events of a spool */
    LO2_MAX_DEVICES = 16,
    LO2_MAX_OPCODES = 256,           /* of io_uring: a byte has the opcode */
    LO2_MAX_COMMAND = 4096,          /* bytes of a command line */
    LO2_MAX_STATUS = 32,             /* values of blk_status_t */
    LO2_NAMES_ROOM = 32768,          /* a name may begin before this offset */
    LO2_KNOWN_FILES = 512,
    LO2_SELECTED_SHIFT = 12,
    LO2_FILLED = 1 << 16,            /* bytes of lo2_filled: a power of two */
    LO2_BUFFER_HEAD = 4096,          /* of struct lo2_bpf_buffer; a page, so that user space maps it alone */
    LO2_MAX_SLEEPERS = 1 << 16,      /* places for threads without a CPU: a power of two */
    LO2_MAX_STACKS = 4096,           /* different kernel stacks of sleepers: a power of two */
    LO2_MAX_FAULTS = 1 << 14,        /* places for threads in a page fault: a power of two */
    LO2_STACK_FRAMES = 32,           /* of each, those nearest to the sleep */
    LO2_MAX_BEGUN = 1 << 14,         /* places for threads in a call that has left its CPU's slot: a power of two */
    LO2_MAX_USER_STACKS = 2048,      /* different stacks of programs in slow calls: a power of two */
    LO2_USER_FRAMES = 64,            /* of each, those nearest to the call */
    LO2_BUILD_ID_BYTES = 20,         /* BPF_BUILD_ID_SIZE, include/uapi/linux/bpf.h */
    LO2_STACK_WORDS = 256,           /* words from the stack pointer on that are searched for return addresses */
    LO2_SLEEPERS_STACKS = 4,         /* stacks that are expected of a thread: a power of two */
    LO2_BUFFER_SLACK = 40960         /* after the data, for a record that crosses their end: the largest record */
};
enum { LO2_WRITERS_SHIFT = 48 };
enum lo2_bpf_ring_use { LO2_RING_CALLS = 0, LO2_RING_EVENTS = 1, LO2_RINGS = 2 }; /* the buffers of each CPU */
enum { LO2_FACTS_ALWAYS = 2 };       /* FILE with every call: if closes are not recorded, no fact stays true */

/* What the programs read about a call, from tracepoints/syscalls.toml. Arguments count from 1; 0: the call has none. */
enum {
    LO2_CALL_RETURNS_FD = 1,
    LO2_CALL_MOVES = 2,              /* the file's position, which is read at the exit */
    LO2_CALL_CLOSES = 4,             /* its descriptor is looked at before the call */
    LO2_CALL_DROPPABLE = 8,          /* only its own row depends on it: the filters below apply */
    LO2_CALL_BYTES = 16,             /* its result counts bytes */
    LO2_CALL_FIRST = 32,             /* its paths are read before the call */
    LO2_CALL_ENDS = 64,              /* it may end any descriptors of its table */
    LO2_CALL_SLEPT = 128             /* recorded only if its thread lost the CPU meanwhile */
};

struct lo2_bpf_call {
    uint16_t enter_event, exit_event; /* common_type */
    uint16_t enter_index, exit_index; /* places of its counters */
    uint8_t flags, nr_args;
    uint8_t fd, fd2;
    uint8_t path, path2, dirfd, dirfd2;
    uint8_t vector, vector_count;    /* iovecs */
    uint8_t how, how_size;           /* struct open_how */
    uint8_t iocbs, iocbs_count;
    uint8_t events, context;         /* of libaio: the array for its events, and the context */
    uint8_t count;                   /* bytes asked for */
    uint8_t filled;                  /* bit n: the kernel may write to where argument n + 1 points */
};

/*
 * A 32 bit call, and the source of each argument of the 64 bit call that does the same: the register of the low half
 * (1: ebx), the register of the high half << LO2_COMPAT_HIGH_SHIFT (0: none), and flags. From tracepoints/syscalls.toml.
 */
enum {
    LO2_SOCKETCALL = 102,            /* a number for many calls: an argument says which */
    LO2_SOCKETCALLS = 512,           /* a socketcall has this number + its first argument */
    LO2_COMPAT_HIGH_SHIFT = 4,
    LO2_COMPAT_SIGNED = 1 << 8,
    LO2_COMPAT_PAGES = 1 << 9,
    LO2_COMPAT_LOCK = 1 << 10,       /* a command of fcntl64 */
    LO2_COMPAT_RESULT = 1 << 11      /* the argument points to the result */
};

struct lo2_bpf_compat {
    uint16_t call;                   /* 1 + index into calls; 0: not recorded */
    uint8_t memory;                  /* register that points to the arguments; 0: the arguments are in registers */
    uint8_t nr_given;                /* words in that memory */
    uint16_t args[6];
};

/* The effects of an io_uring opcode on files, from its traits in tracepoints/io_uring.toml. */
enum {
    LO2_ASKS_FILE = 1,               /* it works on fd, or closes fd: a descriptor or a registered file */
    LO2_ASKS_TWO_FILES = 2,          /* file_index is a second file */
    LO2_ASKS_PLACES = 4,             /* it may fill or empty a place of a ring's files */
    LO2_ASKS_BYTES = 8               /* `len` does not count its bytes */
};

struct lo2_bpf_config {              /* constant while the programs are loaded */
    uint32_t recorder;               /* pid of the recorder, which is never recorded */
    uint8_t calls;                   /* CALL, ENTER, EXIT are written; else only facts, and calls are perf samples */
    uint8_t all_tasks;               /* else the processes in the map `selected`, and their children */
    uint8_t one_cgroup;              /* only processes of the cgroup in the map `cgroup`, and below it */
    uint8_t facts;                   /* FILE, PATH, VALUE, SQE, IOCB, EVENTS are written */
    uint8_t compat;                  /* the numbers of 32 bit calls are known */
    uint32_t page_bytes;
    uint64_t ring_bytes;             /* of the data of a buffer: a power of two */
    uint64_t ring_mask;              /* ring_bytes - 1 */
    uint64_t min_latency_ns;         /* shorter calls are left out, if droppable; 0: none */
    int64_t min_bytes;               /* calls that ask for fewer bytes are left out, if droppable; 0: none */
    uint32_t nr_devices;             /* calls on files of other devices (s_dev) are left out, if droppable; 0: none */
    uint32_t devices[LO2_MAX_DEVICES];
    uint8_t asks[LO2_MAX_OPCODES];   /* LO2_ASKS_FILE and so on, by opcode */
};

/* The layers between a call and the disk: LO2_LAYER_X is the layer X of lo2io/model/layers.py. */
enum lo2_layer {
    LO2_LAYER_parts = 0,
    LO2_LAYER_cache = 1,
    LO2_LAYER_waits = 2,
    LO2_LAYER_faults = 3,
    LO2_LAYER_dirty = 4,
    LO2_LAYER_stacks = 5,
    LO2_LAYER_journal = 6,
    LO2_LAYER_fuse = 7,
    LO2_LAYER_workers = 8,
    LO2_NR_LAYERS = 9
};

struct lo2_bpf_told {                /* in the section .rodata.lo2io */
    struct lo2_bpf_config config;
    struct lo2_bpf_call calls[LO2_MAX_CALLS];
    uint16_t of_number[LO2_MAX_CALLS]; /* by the system call's number: 1 + index into calls; 0: not recorded, or by perf events */
    struct lo2_bpf_compat compat[LO2_MAX_CALLS]; /* by the number of the 32 bit call */
    uint8_t wanted[LO2_MAX_CALLS];   /* by either number: 1 if one of these two tables has a call for it */
    uint16_t sampled[LO2_MAX_SAMPLED]; /* common_type, by enum lo2_sampled */
    uint8_t letters_at[LO2_MAX_SAMPLED]; /* of events of the block layer: the offset of rwbs in the fields */
    uint8_t errors[LO2_MAX_STATUS];  /* the errno of each blk_status_t */
    uint32_t layers;                 /* bits of enum lo2_layer: those that are recorded */
    uint64_t stack_from_ns;          /* of sleeps that last so long, the kernel stack is taken */
    uint64_t slow_from_ns;           /* of calls that last so long, the program's stack is taken ... */
    uint64_t slow_one_of;            /* ... of one in so many of them on each CPU */
};

/*
 * A buffer of records in memory that user space maps. Each record stands after a frame (records.h) and ends at a multiple
 * of 8 bytes. Positions count bytes since the start. The byte at a position lies in the data at position % size.
 *
 *     head │ data: size bytes, a power of two │ slack
 *          │  …  tail ▒▒▒▒▒▒▒▒▒▒ taken  …      │
 *
 * A record is never cut. If it reaches beyond the end of the data, its rest lies in the slack. The next record then begins at
 * the place of its own position, and the bytes from the start of the data up to that place stay unused.
 */
struct lo2_bpf_buffer {
    uint64_t tail;                   /* records before it were read; user space writes it */
    uint64_t apart[7];               /* else each write of one side would cost the other side a cache line */
    /*
     * The lower bits are a position, the bits from LO2_WRITERS_SHIFT on the number of programs that are writing. Programs may
     * interrupt one another. While the number and all of `writing` are 0, all records before the position are finished.
     * The marks are bytes, so that they lie in the cache line of `taken`, which each program writes anyway.
     */
    uint64_t taken;
    uint64_t crossed;                /* the end of the last record that reached the end of the data, or went beyond */
    uint8_t writing[LO2_MAX_SAMPLED]; /* by enum lo2_sampled: not 0 while its program writes a record. Such programs do not add to the number */
    /* LO2_BUFFER_HEAD bytes from the start: the data */
};

struct lo2_bpf_switch {              /* in the section .data.lo2io */
    uint32_t on;                     /* user space writes it through its mapping */
    uint32_t reserved;
};

struct lo2_bpf_counts {              /* per event and CPU */
    uint64_t count;                  /* all of them, also those that the next two members count */
    uint64_t lost;                   /* found no room in the buffer */
    uint64_t left_out;               /* left out by the filters above */
};

struct lo2_bpf_misses {              /* per CPU */
    uint64_t facts_lost;             /* records of facts that found no room in the buffer */
    uint64_t unreadable;             /* strings and arrays that could not be read from the program's memory */
    uint64_t unpaired;               /* entries whose thread left the CPU unseen */
    uint64_t skipped;                /* runs that met another program at work on the CPU */
    uint64_t foreign;                /* calls of another ABI than the machine's own, whose numbers are not known */
    uint64_t stackless;              /* slow calls whose stack was not taken, or found no place */
    uint64_t uncopied;               /* slow calls whose stack was not copied, for the buffer was half full */
};

/* The call that runs on a CPU. */
struct lo2_bpf_slot {
    uint32_t occupied;
    uint32_t call;                   /* index into lo2.calls */
    lo2_kernel_call record;          /* head, exit_event, nr_args and args are set at the entry */
    uint64_t spare[2];               /* so that args may be indexed by (n & 7) */
};

/* Working memory of names.h, in which records of facts are put together. */
struct lo2_bpf_names {
    uint64_t first_dentry, first_mount; /* struct dentry *, struct vfsmount * of the wanted name */
    uint64_t dentry, mount;          /* the place on the way up */
    uint64_t sum;
    uint64_t pointer;                /* a pointer that is to become a number */
    uint64_t fence;
    uint32_t begin, end;             /* of the names within `record` */
    uint32_t flags;                  /* enum lo2_kernel_file_flag */
    uint32_t reserved;
    uint8_t record[LO2_NAMES_ROOM + 256];
};

/* The file behind a descriptor of a process when this CPU last wrote FILE for that descriptor. */
struct lo2_bpf_known {
    uint64_t table;                  /* struct files_struct *, or the ring that has the registered files */
    uint64_t file, inode, number;    /* struct file *, struct inode *, i_ino */
    uint32_t process;
    int32_t fd;
    uint32_t ends;                   /* lo2_count_ends() before the look */
    uint32_t reserved;
};

/* The file at which the program looks for a call. */
struct lo2_bpf_look {
    uint64_t file, inode;            /* 0: no file */
    uint64_t table, number;          /* as in lo2_bpf_known */
    int32_t fd;
    uint32_t mode;                   /* i_mode */
    uint32_t flags;                  /* enum lo2_kernel_file_flag */
    uint32_t ends;                   /* as in lo2_bpf_known */
};

/*
 * Entries and exits, events, or records of layers that have found no room since the last LOST record. The next program
 * writes the sum as soon as there is room.
 */
struct lo2_bpf_losing {
    uint64_t lost;
    uint64_t begin_ns, end_ns;       /* of the first and the last one */
};

/* The letters of the last block request. */
struct lo2_bpf_letters {
    uint64_t text;                   /* the first letter in the lowest byte */
    uint32_t count;                  /* 0: there was no request */
    uint32_t of;                     /* its operation and flags */
};

/* For events of tracepoints. Their programs do not take the CPU: they may interrupt each other, and before Linux 6.1 also themselves. */
struct lo2_bpf_sampling {
    struct lo2_bpf_losing losing;
    lo2_asked asked;                 /* by the request that is being submitted */
    struct lo2_bpf_counts counts[LO2_MAX_SAMPLED]; /* by enum lo2_sampled */
    uint64_t counted[LO2_MAX_SAMPLED]; /* the kernel's own count at the last event, for events with a counter in lo2_counters */
    struct lo2_bpf_letters letters[LO2_MAX_SAMPLED];
    struct lo2_bpf_losing of_layers; /* records of layers. No count of events has them */
};

/* A run of pages that may go on, for the layers `cache` and `dirty`. */
struct lo2_bpf_run {
    uint64_t mapping;                /* struct address_space * */
    lo2_kernel_pages record;         /* pages 0: there is no run */
};
enum lo2_run { LO2_RUN_FILLS = 0, LO2_RUN_EVICTIONS = 1, LO2_RUN_DIRTY = 2, LO2_RUNS = 3 };

/* Programs do not take the CPU for runs: one that meets another at work leaves the run alone. */
struct lo2_bpf_cache {
    uint32_t open;                   /* some run has pages */
    uint32_t busy;                   /* a program is at work on the runs */
    struct lo2_bpf_run runs[LO2_RUNS];
};

/* The bios of a request that is being issued, for the layer `parts`. Its program does not interrupt itself. */
struct lo2_bpf_walk {
    uint64_t bio;                    /* struct bio *, the next one; 0: there is none */
    uint64_t number;                 /* for lo2_number_by() */
    lo2_kernel_parts record;         /* its last part may go on with the next bio */
};

struct lo2_bpf_lock {                /* a lock that a thread waits for */
    uint64_t address;
    uint64_t inode, device;          /* of the inode that has the lock; 0: it is another lock */
    uint32_t waiter;                 /* 0: nobody waits */
    uint32_t holder;                 /* 0: not known */
};

/*
 * A thread that has left its CPU. If it left inside of a recorded call, it keeps the place until the call's exit. A
 * worker of io_uring that left while it executed a request keeps the place until the worker's exit. A thread that left
 * amid a page fault outside of calls keeps the place until it has a CPU again. The place is tid % LO2_MAX_SLEEPERS.
 * Switches and the exit of one thread never run at the same time. A wakeup may run beside them, and writes only
 * `wake_ns` and `waker`.
 */
struct lo2_bpf_sleeper {
    uint64_t owner;                  /* tid, and LO2_SLEEPER_IN_CALL */
    uint64_t out_ns;                 /* it has no CPU since then; 0: it has one */
    uint64_t wake_ns;                /* of the last wakeup */
    uint32_t waker;
    uint8_t state;                   /* enum lo2_sleep_state */
    uint8_t lost;                    /* a stretch of this call found no room */
    uint8_t faulting;                /* there is no call: the thread is amid a page fault */
    uint8_t turn;                    /* of `stacks`, the next one that is replaced, modulo their number */
    uint16_t stacks[LO2_SLEEPERS_STACKS]; /* where it slept before: 1 + place in lo2_stacks; 0: none */
    uint64_t request;                /* of a worker: the request that it executes; 0: it is in a call or a fault */
    struct lo2_bpf_lock lock;
};
#define LO2_SLEEPER_IN_CALL (1ull << 32)

/* The last look of a thread for a page of a mapped file, at the place tid % LO2_MAX_FAULTS. */
struct lo2_bpf_fault {
    uint64_t begin_ns;
    uint64_t over;                   /* number of the thread's faults that were over at this look: lo2_faults_over() */
    uint64_t mapping;                /* struct address_space * */
    uint64_t page;                   /* place in the file, in pages */
    uint32_t tid;                    /* 0: nobody's, or being written */
    uint32_t nr_sleeps;              /* these three are of the layer `waits`, as in FAULT */
    uint64_t run_queue_ns, blocked_ns;
    uint64_t unseen;
};

/*
 * A kernel stack, the innermost function first. The program whose compare-and-swap changes `sum` from 0 fills the place, and
 * sets `frames` last.
 */
struct lo2_bpf_stack {
    uint64_t sum;                    /* hash of the addresses; 0: the place is free */
    uint64_t frames;                 /* number of addresses; 0: not written yet */
    uint64_t addresses[LO2_STACK_FRAMES];
    uint64_t fixed;                  /* so many addresses have known distances; 0: none, the stack is unwound each time */
    uint8_t distances[LO2_STACK_FRAMES]; /* words from the stack pointer to the address */
};

/* When a call began that has left its CPU's slot, at the place tid % LO2_MAX_BEGUN. */
struct lo2_bpf_begun {
    uint64_t begin_ns;
    uint64_t tid;                    /* 0: nobody's */
};

/* struct bpf_stack_build_id, include/uapi/linux/bpf.h */
struct lo2_bpf_frame {
    int32_t status;                  /* enum lo2_frame_status */
    uint8_t build_id[LO2_BUILD_ID_BYTES];
    uint64_t offset;                 /* in the file that is mapped there; IP: the address */
};
enum lo2_frame_status { LO2_FRAME_NONE = 0, LO2_FRAME_VALID = 1, LO2_FRAME_IP = 2 };

/* The stack of a recorded program, the innermost function first. It is filled as struct lo2_bpf_stack is. */
struct lo2_bpf_user_stack {
    uint64_t sum;                    /* hash of what follows; 0: the place is free */
    uint64_t frames;                 /* number of frames; 0: not written yet */
    int64_t top;                     /* the word at the stack pointer less the address of frame `beside`; 0: none */
    uint64_t beside;                 /* a frame whose address is near that word: its number */
    struct lo2_bpf_frame at[LO2_USER_FRAMES];
};

/* Working memory of waits.h, in which the addresses of a stack are looked for. */
struct lo2_bpf_search {
    uint64_t words[LO2_STACK_WORDS]; /* of the sleeper's stack, from the stack pointer on */
    uint64_t nr_words;
    uint64_t fixed;                  /* so many addresses are looked for */
    uint64_t found;                  /* so many are found: the first ones on the way forward, the others on the way back */
    uint8_t distances[LO2_STACK_FRAMES];
};

/*
 * All that belongs to one CPU. Only programs on that CPU write here, and user space, which changes `borders`,
 * `sampling.counted`, the members `lost` of struct lo2_bpf_losing and, at the end, the times of open runs in `cache`.
 */
struct lo2_bpf_cpu {
    struct lo2_bpf_sampling sampling;
    struct lo2_bpf_counts counts[LO2_MAX_EVENTS];
    struct lo2_bpf_misses misses;
    struct lo2_bpf_slot slot;
    struct lo2_bpf_cache cache;
    struct lo2_bpf_walk walk;
    struct lo2_bpf_losing losing;
    uint64_t busy;                   /* a program is at work on this memory: lo2_take_cpu() */
    uint64_t borders;                /* user space adds 1 at each border of a window; then each file is told again */
    uint32_t given[8];               /* arguments of a 32 bit call, from 1 on */
    struct lo2_bpf_lock lock;        /* the current thread waits for it; moves to lo2_bpf_sleeper when the thread leaves the CPU */
    uint64_t stack[LO2_STACK_FRAMES]; /* the one that waits.h has just taken */
    struct lo2_bpf_user_stack user_stack; /* the one that stacks.h has just taken, and its addresses */
    uint64_t user_addresses[LO2_USER_FRAMES];
    uint64_t slow_calls;             /* so far: one in lo2.slow_one_of has a stack */
    struct lo2_bpf_search search;
    struct lo2_bpf_look look, second; /* second: of another descriptor of the same call, until that is told */
    struct lo2_bpf_known known[LO2_KNOWN_FILES];
    struct lo2_bpf_names names;
};

/*
 * The recorded processes: a byte for each possible number (PID_MAX_LIMIT is 1 << 22). A program loads one byte. User space
 * sets it through its mapping, without a call that would keep programs from running.
 */
struct lo2_bpf_selected {
    uint8_t process[1 << LO2_SELECTED_SHIFT];
};

#endif
