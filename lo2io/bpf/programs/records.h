/*
 * The records that lo2io's programs (lo2io/bpf/programs) write into a CPU's buffers: system calls, and facts that
 * tracepoints lack.
 *
 * The engine, cffi (plain declarations, see build.py) and clang (for the programs) all read this file. All times are
 * CLOCK_MONOTONIC. In the buffer, and so in the spool, each record stands after a frame of 8 bytes: a u32 length, and a u32
 * without meaning. The length does not count the padding to a multiple of 8. Older spools hold the bytes of the kernel's own
 * ring buffer: there, bit 30 of the length marks a record to be skipped, bit 31 an unfinished one.
 *
 * Order: the records of one CPU are in the order of `time_ns`. A call that keeps its CPU is one record, CALL, with the time
 * of its entry, for no other thread ran there before its exit. A call that loses the CPU is two records: ENTER, written
 * when the thread leaves the CPU, with the time of the entry, and EXIT:
 *
 *   keeps its CPU     entry ─────────────────────────── exit       CALL
 *   loses its CPU     entry ── switch: ENTER ·········· exit       EXIT, on whichever CPU
 *
 * Facts about a call (FILE, PATH, EVENTS) follow its CALL or EXIT, with the time of its exit. Facts about a close precede
 * it, with the time of its entry. If calls are perf samples, facts come before the sample of the exit: they hold at the
 * exit of the call that their thread is in, or has just left.
 *
 * PARTS, FILL, EVICT, DIRTY, WRITEBACK, IOWAIT, FAULT, COMMIT, FUSE_SEND and FUSE_END lie among the SAMPLE records. The
 * FILL and EVICT records of a call have times between the call's entry and its exit.
 *
 * SAMPLE records have a buffer of their own, with its own LOST records. The programs that write them interrupt one another.
 * An interrupt may come between the moments at which a record takes its time and its place. Then the records of the interrupt
 * may lie before this record or after it.
 */

#ifndef LO2IO_BPF_RECORDS_H
#define LO2IO_BPF_RECORDS_H

/* The frame: its size, and bits of the length. Only spools from the kernel's own ring buffer have records with these bits. */
enum { LO2_FRAME_BYTES = 8, LO2_FRAME_DISCARDED_BIT = 30, LO2_FRAME_UNFINISHED_BIT = 31 };

enum lo2_kernel_record {
    LO2_KERNEL_CALL = 1,
    LO2_KERNEL_ENTER = 2,
    LO2_KERNEL_EXIT = 3,
    LO2_KERNEL_FILE = 4,     /* the file that a descriptor stands for */
    LO2_KERNEL_PATH = 5,     /* a path argument of a call */
    LO2_KERNEL_VALUE = 6,    /* the position and value of CALL and EXIT, for calls that are perf samples */
    LO2_KERNEL_SQE = 7,      /* what a request of io_uring asks for; stands beside the sample of its submission */
    LO2_KERNEL_IOCB = 8,     /* what a request of libaio asks for; precedes the io_submit, as FILE precedes a close */
    LO2_KERNEL_LOST = 9,     /* events that found no room, or records of layers */
    LO2_KERNEL_EVENTS = 10,  /* results of libaio requests, which an io_getevents returned */
    LO2_KERNEL_USAGE = 11,   /* what a thread has used, at its exit */
    LO2_KERNEL_EXEC = 12,    /* the command line of a process after an exec */
    LO2_KERNEL_SAMPLE = 13,  /* an event of a tracepoint that is no system call */
    LO2_KERNEL_PARTS = 14,   /* of the layer `parts`: the files whose bytes a block request carries */
    LO2_KERNEL_DIRTY = 15,   /* of the layer `dirty`: pages that a thread made dirty */
    LO2_KERNEL_WRITEBACK = 16, /* ... a worker of the kernel begins or ends to write pages back */
    LO2_KERNEL_FILL = 17,    /* of the layer `cache`: pages that a thread put into the page cache */
    LO2_KERNEL_EVICT = 18,   /* ... pages that a thread took out of it */
    LO2_KERNEL_SLEEP = 19,   /* of the layer `waits`: a stretch of a call in which the thread had no CPU */
    LO2_KERNEL_FAULT = 20,   /* of the layer `faults`: a page fault that needed I/O */
    LO2_KERNEL_IOWAIT = 21,  /* of the layer `cache`: a thread begins or ends to wait for I/O */
    LO2_KERNEL_STACK = 22,   /* of the layer `stacks`: where the program made a slow call */
    LO2_KERNEL_COMMIT = 23,  /* of the layer `journal`: a commit of a journal comes to its next phase */
    LO2_KERNEL_FUSE_SEND = 24, /* of the layer `fuse`: a request goes to the server of a FUSE file system */
    LO2_KERNEL_FUSE_END = 25 /* ... it has ended */
};

typedef struct {
    uint64_t time_ns;
    uint32_t tid;
    uint16_t type;           /* enum lo2_kernel_record */
    /* CALL, ENTER: common_type of the call's sys_enter; EXIT: of its sys_exit; SAMPLE: of its event; LOST: enum lo2_lost; else 0 */
    uint16_t event;
} lo2_kernel_head;

typedef struct {
    lo2_kernel_head head;    /* time of the entry */
    uint16_t exit_event;     /* common_type of the sys_exit */
    uint16_t nr_args;
    uint32_t reserved;
    uint64_t duration_ns;    /* from entry to exit */
    int64_t result;
    int64_t position;        /* of the file, after a call that moves it; INT64_MIN: not read */
    int64_t value;           /* bytes of all iovecs, or flags of struct open_how; INT64_MIN: not read */
    uint64_t args[6];        /* nr_args of these are written */
} lo2_kernel_call;

typedef struct {
    lo2_kernel_head head;
    uint16_t nr_args;
    uint16_t unfollowed;     /* 1: SLEEP should follow, but another thread has this thread's place: lo2_bpf_sleeper */
    uint16_t reserved[2];
    uint64_t args[6];        /* nr_args of these are written */
} lo2_kernel_enter;

typedef struct {
    lo2_kernel_head head;
    int64_t result;
    int64_t position, value; /* as in CALL */
} lo2_kernel_exit;

typedef struct {
    lo2_kernel_head head;
    int64_t position, value; /* as in CALL */
} lo2_kernel_value;

enum lo2_kernel_file_flag {
    LO2_FILE_WHOLE = 1,      /* the names reach the root */
    LO2_FILE_DELETED = 2,    /* the file's directory no longer has it */
    LO2_FILE_MOVED = 4,      /* during the look, something on the path was renamed or the file was exchanged: the names prove nothing */
    LO2_FILE_SLOT = 8,       /* `fd` is the number of a ring's registered file */
    LO2_FILE_CACHED = 64,    /* reads without O_DIRECT go through the page cache */
    LO2_FILE_PSEUDO = 32     /* the file has no directory (pipe, socket, memfd): it has one name, and never WHOLE */
};
enum lo2_kernel_file_of { LO2_FILE_OF_RESULT = 0, LO2_FILE_OF_ARGUMENT = 1, LO2_FILE_OF_REQUEST = 2 };

typedef struct {
    lo2_kernel_head head;
    uint64_t file;           /* address of the open file description */
    uint64_t inode;          /* i_ino */
    uint64_t device;         /* s_dev: major << 20 | minor; on btrfs, stat(2) shows another one */
    int64_t position;        /* INT64_MIN: the file has none */
    uint64_t table;          /* address of the table of descriptors in which `fd` is a place; 0 for a registered file */
    int32_t fd;
    uint32_t generation;     /* i_generation */
    uint32_t mode;           /* i_mode */
    uint32_t links;          /* i_nlink */
    uint32_t open_flags;     /* f_flags, with O_CLOEXEC if the descriptor has it, as in /proc/PID/fdinfo */
    uint32_t mount;          /* mount id, as in mountinfo */
    uint32_t magic;          /* of the file system, as in statfs(2) */
    uint8_t of;              /* enum lo2_kernel_file_of */
    uint8_t flags;           /* enum lo2_kernel_file_flag */
    uint16_t names_length;   /* bytes that follow: the names from the file upwards, each ended by a zero byte */
} lo2_kernel_file;

typedef struct {
    lo2_kernel_head head;
    uint8_t place;           /* 0: the call's first path, 1: its second */
    uint8_t flags;           /* of the directory: WHOLE, DELETED, MOVED; and CUT */
    uint16_t path_length;    /* bytes that follow: as the program gave it, without the zero byte */
    uint16_t names_length;   /* bytes after those: names of the path's directory, as in FILE; 0: absolute, or not known */
    uint16_t reserved;
} lo2_kernel_path;
enum lo2_kernel_path_flag { LO2_PATH_CUT = 16 }; /* the path was not read whole */

/*
 * A request of a ring, read off its entry in the submission queue: words of the entry as they stand there, and facts that the
 * programs find out besides. Members that most requests do not use come last.
 */
typedef struct {
    uint8_t opcode;          /* word 0 */
    uint8_t flags;           /* IOSQE_* */
    uint16_t ioprio;         /* of sends and receives: how they work */
    int32_t fd;              /* as given: a descriptor, or with IOSQE_FIXED_FILE the place of a registered file */
    uint64_t offset;         /* word 1 */
    uint32_t length;         /* word 3 */
    uint32_t op_flags;       /* rw_flags, open_flags, ...: depends on the opcode */
    uint64_t file;           /* address of the description of its file, registered or not; CLOSE: of the file in the place; 0: not known */
    uint16_t buf_index;      /* word 5 */
    uint16_t personality;
    uint32_t file_index;     /* opens and CLOSE: place of a registered file + 1; 0: a descriptor. SPLICE, TEE: splice_fd_in */
    uint64_t file2;          /* SPLICE, TEE: like `file`, for the file that is read */
    /*
     * READV, WRITEV, SENDMSG, RECVMSG, SEND of vectors: of all iovecs; FALLOCATE, FADVISE: of the range; UINT64_MAX:
     * not known
     */
    uint64_t bytes;
} lo2_asked;

/* Written if perf records the submission. If a program records it, `asked` is part of that record: lo2_submitted, samples.h. */
typedef struct {
    lo2_kernel_head head;
    uint64_t request;        /* address, as in io_uring's tracepoints */
    uint64_t ring;
    uint64_t user_data;
    lo2_asked asked;
} lo2_kernel_sqe;

typedef struct {
    lo2_kernel_head head;
    uint64_t iocb;           /* address in the program's memory */
    uint64_t data;           /* aio_data, which the completion repeats */
    int64_t offset;
    uint64_t length;
    int32_t fd;
    uint16_t opcode;         /* IOCB_CMD_* */
    uint16_t place;          /* in io_submit's array */
    uint32_t rw_flags;       /* RWF_* */
    uint32_t reserved;
} lo2_kernel_iocb;

/* An event that an io_getevents returned: struct io_event of include/uapi/linux/aio_abi.h. */
typedef struct {
    uint64_t data;           /* aio_data of the request */
    uint64_t iocb;           /* address of the iocb in the program's memory */
    int64_t result, result2;
} lo2_kernel_event;

/* A call that returned many events has several of these records, in the order of its array. */
typedef struct {
    lo2_kernel_head head;
    uint64_t context;        /* aio_context_t */
    uint32_t count;          /* number of lo2_kernel_event that follow */
    uint32_t reserved;
} lo2_kernel_events;

/* Sums since the thread's birth: members of task_struct. Times are in ns. */
typedef struct {
    lo2_kernel_head head;
    uint64_t cpu_ns;         /* se.sum_exec_runtime: as of the last tick or switch */
    uint64_t user, system;   /* utime, stime: usually counted in ticks; only their proportion is used */
    uint64_t block_delay_ns; /* delays->blkio_delay; UINT64_MAX: not accounted */
    uint64_t major_faults;   /* maj_flt */
    uint64_t voluntary, involuntary; /* nvcsw, nivcsw: switches */
    uint64_t minor_faults;   /* min_flt */
} lo2_kernel_usage;

typedef struct {
    lo2_kernel_head head;
    uint16_t length;         /* bytes that follow: the arguments, each ended by a zero byte */
    uint8_t cut;             /* 1: the process has further arguments */
    uint8_t reserved[5];
} lo2_kernel_exec;

typedef struct {
    lo2_kernel_head head;    /* time of the last lost event; tid 0 */
    uint64_t begin_ns;       /* time of the first lost event */
    uint64_t lost;           /* lost events: a call that would have been one record counts as two; or lost records of layers */
} lo2_kernel_lost;
enum lo2_lost { LO2_LOST_EVENTS = 0, LO2_LOST_ROWS = 1 }; /* head.event: rows are records of layers, which are no events */

/* FILL, EVICT, DIRTY: a run of pages, one after the other, in one call or one stretch on a CPU. */
typedef struct {
    lo2_kernel_head head;    /* of the thread that did it; time at which the run was known to have ended */
    uint64_t begin_ns;       /* of its first page */
    uint64_t device;         /* s_dev, as in FILE; of a block device's own pages: the block device */
    uint64_t inode;          /* i_ino; of a block device 0 */
    uint64_t first_page;     /* place in the file, in pages */
    uint32_t pages;
    uint32_t page_bytes;
    uint32_t generation;     /* i_generation */
    uint16_t mode;           /* i_mode; 0: pages of a file system's own, that are no file */
    uint16_t reserved;
} lo2_kernel_pages;
typedef lo2_kernel_pages lo2_kernel_fill;
typedef lo2_kernel_pages lo2_kernel_evict;
typedef lo2_kernel_pages lo2_kernel_dirty;

enum lo2_write_back_reason { /* the kernel's enum wb_reason, whose numbers the programs look up in its BTF */
    LO2_WRITE_BACK_NONE = 0, /* the worker has ended */
    LO2_WRITE_BACK_OTHER = 1, /* one that this list lacks */
    LO2_WRITE_BACK_BACKGROUND = 2,
    LO2_WRITE_BACK_VMSCAN = 3,
    LO2_WRITE_BACK_SYNC = 4,
    LO2_WRITE_BACK_PERIODIC = 5,
    LO2_WRITE_BACK_LAPTOP_TIMER = 6,
    LO2_WRITE_BACK_FS_FREE_SPACE = 7,
    LO2_WRITE_BACK_FORKER_THREAD = 8,
    LO2_WRITE_BACK_FOREIGN_FLUSH = 9
};

typedef struct {
    lo2_kernel_head head;    /* of the worker */
    uint8_t reason;          /* enum lo2_write_back_reason */
    uint8_t reserved[7];
} lo2_kernel_writeback;

typedef struct {
    lo2_kernel_head head;    /* of the thread that waits */
    uint32_t ends;           /* 0: it leaves its CPU; 1: it gets one again */
    uint32_t reserved;
} lo2_kernel_iowait;

enum lo2_commit_moment {     /* in the order in which a commit meets them */
    LO2_COMMIT_STARTS = 0,
    LO2_COMMIT_LOCKS = 1,    /* waits for the calls that still change the transaction */
    LO2_COMMIT_FLUSHES = 2,  /* sends the data of files that must be on the disk first */
    LO2_COMMIT_LOGS = 3,     /* writes the log, waits for data and log, and has the disk empty its cache */
    LO2_COMMIT_ENDS = 4,
    LO2_COMMIT_MOMENTS = 5
};

typedef struct {
    lo2_kernel_head head;    /* of the journal's thread */
    uint32_t device;         /* s_dev of the file system */
    uint32_t transaction;    /* its number; those of a journal follow one another */
    uint8_t moment;          /* enum lo2_commit_moment */
    uint8_t reserved[7];
} lo2_kernel_commit;

/* A page fault that needed I/O. The file's facts are 0 if it is not known: the page is no file's, or its start was not seen. */
typedef struct {
    lo2_kernel_head head;    /* of the thread; time at which it had its page */
    uint64_t begin_ns;       /* 0: not known */
    uint64_t address;        /* that the thread touched */
    uint64_t device;         /* as in FILL */
    uint64_t inode;
    uint64_t page;           /* place in the file, in pages */
    uint32_t page_bytes;
    uint32_t generation;
    uint16_t mode;
    uint16_t unseen;         /* 1: the layer `waits` is recorded, and missed a part of a stretch */
    uint32_t nr_sleeps;      /* stretches without a CPU since the start: outside of recorded calls each has a SLEEP */
    uint64_t run_queue_ns;   /* parts of these stretches */
    uint64_t blocked_ns;
} lo2_kernel_fault;

/* FUSE_SEND: of the thread that sends; FUSE_END: of whoever ends the request, mostly the server. */
typedef struct {
    lo2_kernel_head head;
    uint64_t unique;         /* number of the request among those of its connection */
    uint32_t connection;     /* s_dev of the file system */
    uint32_t bytes;          /* of the message, or of the reply, with its header */
    union {
        uint32_t opcode;     /* FUSE_SEND: enum fuse_opcode, include/uapi/linux/fuse.h */
        int32_t error;       /* FUSE_END: -errno, or 0 */
    };
    uint32_t reserved;
} lo2_kernel_fuse_send;
typedef lo2_kernel_fuse_send lo2_kernel_fuse_end;

enum lo2_part_kind {
    LO2_PART_UNKNOWN = 0,
    LO2_PART_FILE = 1,       /* a file's data; inode 0: of a block device that no file system holds */
    LO2_PART_METADATA = 2,   /* a file system's own blocks, at their place */
    LO2_PART_JOURNAL = 3,    /* ... in its journal */
    LO2_PART_ANONYMOUS = 4,  /* memory of a program, for a file that is not known */
    LO2_PART_SWAP = 5,
    LO2_PART_FLUSH = 6,      /* no bytes. The engine alone makes this and the following, of the request's operation */
    LO2_PART_DISCARD = 7,
    LO2_PART_ZEROES = 8
};
enum lo2_part_flag { LO2_PART_DIRECT = 1 };  /* direct I/O */
enum lo2_parts_flag { LO2_PARTS_LAST = 1, LO2_PARTS_CUT = 2 }; /* LAST: no further record of this request; CUT: it has further bios */
enum { LO2_PARTS_ROOM = 4 };

typedef struct {
    uint64_t device;         /* s_dev, as in FILE; METADATA and JOURNAL of a block device's pages: that device */
    uint64_t inode;          /* i_ino; 0: none */
    int64_t offset;          /* in the file, or on the device where the bytes belong; INT64_MIN: not known */
    uint64_t inner_device;   /* direct I/O of a loop device: the file whose pages are its memory; else 0 */
    uint64_t inner_inode;
    uint32_t bytes;
    uint32_t generation;     /* i_generation */
    uint8_t kind;            /* enum lo2_part_kind */
    uint8_t flags;           /* enum lo2_part_flag */
    uint16_t reserved;
    uint32_t reserved2;
} lo2_kernel_part;

/* PARTS follows the SAMPLE of the request's issue on the same CPU. The parts are in the order of the sectors. */
typedef struct {
    lo2_kernel_head head;    /* of the thread that issued it */
    uint64_t sector;         /* the request's first one */
    uint32_t disk;           /* major << 20 | minor */
    uint8_t count;           /* of `parts` */
    uint8_t flags;           /* enum lo2_parts_flag */
    uint16_t reserved;
    lo2_kernel_part parts[LO2_PARTS_ROOM]; /* at least `count` of these are written */
} lo2_kernel_parts;

/*
 * A stretch without a CPU, written when the thread gets a CPU again. If that moment was not seen, SLEEP is written when the
 * thread leaves its CPU once more, or before the EXIT:
 *
 *   out_ns ────── blocked ────── wake_ns ── runnable ── head.time_ns
 */
typedef struct {
    lo2_kernel_head head;    /* of the thread that had no CPU; time at which it got one */
    uint64_t out_ns;
    uint64_t wake_ns;        /* PREEMPTED: out_ns; 0: not seen */
    uint32_t waker;          /* thread that ran where the wakeup happened; 0: the idle thread, or not seen */
    uint32_t stack;          /* 1 + place in lo2_stacks; 0: no stack was taken */
    uint8_t state;           /* enum lo2_sleep_state */
    uint8_t flags;           /* enum lo2_sleep_flag */
    uint16_t reserved;
    uint32_t holder;         /* LOCK: thread that had the lock when the wait for it began; 0: not known */
    uint64_t lock_inode;     /* LOCK: i_ino of the inode that has the lock; 0: it is another lock */
    uint64_t lock_device;    /* its s_dev, as in FILE */
    uint64_t request;        /* of a worker of io_uring: the request that it executed, as io_uring_submit_req names it; else 0 */
} lo2_kernel_sleep;
enum lo2_sleep_state { LO2_SLEEP_PREEMPTED = 0, LO2_SLEEP_BLOCKED = 1, LO2_SLEEP_SLEEPING = 2 };
enum lo2_sleep_flag {
    LO2_SLEEP_IOWAIT = 1,    /* the kernel counted it as a wait for I/O */
    LO2_SLEEP_ENDLESS = 2,   /* its end was not seen: head.time_ns is the moment at which the program noticed */
    LO2_SLEEP_LOST = 4,      /* earlier stretches of the same call are missing */
    LO2_SLEEP_LOCK = 8,      /* it waited for a mutex or a semaphore of the kernel */
    LO2_SLEEP_FAULT = 16     /* of a worker: amid a page fault, to which the stretch belongs (layer `faults`) */
};

/* STACK follows the CALL or EXIT of its call. */
typedef struct {
    lo2_kernel_head head;    /* of the thread; time of the call's exit */
    uint32_t stack;          /* place in lo2_user_stacks; UINT32_MAX: it has none */
    uint32_t copied;         /* bytes of the program's stack that follow after lo2_kernel_stack_copy; 0: neither follows */
} lo2_kernel_stack;

/*
 * The facts that unwinding needs: the registers at the call, in DWARF's numbering (x86-64 psABI, figure 3.36), and the stack from
 * the stack pointer on.
 */
enum { LO2_STACK_REGISTERS = 17, LO2_STACK_COPY = 8192 };
typedef struct {
    uint32_t pid, uid;
    uint32_t asked;          /* bytes of the stack that were wanted; if fewer were copied, the rest could not be read */
    uint32_t reserved;
    uint64_t registers[LO2_STACK_REGISTERS];
} lo2_kernel_stack_copy;

typedef struct {
    lo2_kernel_head head;    /* of the thread in which it happened; the event's raw data from LO2_FIELDS_AT on follow: samples.h */
} lo2_kernel_sample;

#endif
