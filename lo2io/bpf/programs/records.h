/*
 * What the kernel's own programs (lo2io/bpf/programs) write into a CPU's BPF ring: system calls, and facts that tracepoints lack.
 *
 * Read by the engine, by cffi (plain declarations, see build.py) and by clang for the programs themselves. All times are
 * CLOCK_MONOTONIC. In the ring, and so in the spool, each record stands behind the kernel's own header of 8 bytes: u32
 * length, whose bit 30 says that the record is to be passed over and bit 31 that it is not finished, and u32 that means
 * nothing here; the length is that of the record without padding to a multiple of 8.
 *
 * Order: the records of one CPU are in the order of `time_ns`. A call that keeps its CPU is one record, CALL, whose time
 * is its entry: between entry and exit nobody else ran there. A call that loses the CPU is two: ENTER, written when the
 * thread leaves the CPU with the time of the entry, and EXIT. Facts about a call (FILE, PATH, EVENTS) follow its CALL or EXIT
 * and bear the time of its exit; those about a close precede it, and bear the time of its entry. Where the calls themselves
 * are perf samples, facts come before the sample of the exit: they hold at the exit of the call that their thread is in,
 * or has just left.
 *
 * SAMPLE stands in a ring of its own, with the LOST of that ring. Its programs interrupt one another: a record may lie behind
 * those of an interrupt that came between its time and its place in the ring.
 */

#ifndef LO2IO_BPF_RECORDS_H
#define LO2IO_BPF_RECORDS_H

/* The kernel's own header (kernel/bpf/ringbuf.c): its size, and bits of the length. */
enum { LO2_FRAME_BYTES = 8, LO2_FRAME_DISCARDED_BIT = 30, LO2_FRAME_UNFINISHED_BIT = 31 };

enum lo2_kernel_record {
    LO2_KERNEL_CALL = 1,
    LO2_KERNEL_ENTER = 2,
    LO2_KERNEL_EXIT = 3,
    LO2_KERNEL_FILE = 4,     /* what a descriptor stands for */
    LO2_KERNEL_PATH = 5,     /* a path that a call was given */
    LO2_KERNEL_VALUE = 6,    /* what CALL and EXIT have in place, for calls that are perf samples */
    LO2_KERNEL_SQE = 7,      /* what a request of a ring asks for; stands beside the sample of its submission */
    LO2_KERNEL_IOCB = 8,     /* what a request of libaio asks for; precedes the io_submit, as the FILE of a close does */
    LO2_KERNEL_LOST = 9,     /* entries and exits for which there was no room */
    LO2_KERNEL_EVENTS = 10,  /* what an io_getevents returned: how requests of libaio ended */
    LO2_KERNEL_USAGE = 11,   /* what a thread has used, when it exits */
    LO2_KERNEL_EXEC = 12,    /* the command line of a process that has a new program */
    LO2_KERNEL_SAMPLE = 13   /* an event of a tracepoint that is no system call */
};

typedef struct {
    uint64_t time_ns;
    uint32_t tid;
    uint16_t type;           /* enum lo2_kernel_record */
    uint16_t event;          /* CALL, ENTER: common_type of the call's sys_enter; EXIT: of its sys_exit; SAMPLE: of itself; else 0 */
} lo2_kernel_head;

typedef struct {
    lo2_kernel_head head;    /* time of the entry */
    uint16_t exit_event;     /* common_type of the sys_exit */
    uint16_t nr_args;
    uint32_t reserved;
    uint64_t duration_ns;    /* the exit is so much later */
    int64_t result;
    int64_t position;        /* the file's position after the call, of calls that move it; INT64_MIN: not read */
    int64_t value;           /* bytes of all iovecs, or the flags of struct open_how; INT64_MIN: not read */
    uint64_t args[6];        /* nr_args of them are written */
} lo2_kernel_call;

typedef struct {
    lo2_kernel_head head;
    uint16_t nr_args;
    uint16_t reserved[3];
    uint64_t args[6];        /* nr_args of them are written */
} lo2_kernel_enter;

typedef struct {
    lo2_kernel_head head;
    int64_t result;
    int64_t position, value; /* as of CALL */
} lo2_kernel_exit;

typedef struct {
    lo2_kernel_head head;
    int64_t position, value; /* as of CALL */
} lo2_kernel_value;

enum lo2_kernel_file_flag {
    LO2_FILE_WHOLE = 1,      /* the names go all the way up */
    LO2_FILE_DELETED = 2,    /* its directory does not hold it any more */
    LO2_FILE_MOVED = 4,      /* something on the path was renamed while it was read: the names prove nothing */
    LO2_FILE_SLOT = 8,       /* `fd` is the number of a ring's registered file */
    LO2_FILE_PSEUDO = 32     /* has no directory (a pipe, a socket, a memfd): one name, and never WHOLE */
};
enum lo2_kernel_file_of { LO2_FILE_OF_RESULT = 0, LO2_FILE_OF_ARGUMENT = 1, LO2_FILE_OF_REQUEST = 2 };

typedef struct {
    lo2_kernel_head head;
    uint64_t file;           /* address of the open file description */
    uint64_t inode;          /* i_ino */
    uint64_t device;         /* s_dev: major << 20 | minor; on btrfs not what stat(2) says */
    int64_t position;        /* INT64_MIN: it has none */
    uint64_t table;          /* address of the table of descriptors that `fd` is a place in; of a registered file 0 */
    int32_t fd;
    uint32_t generation;     /* i_generation */
    uint32_t mode;           /* i_mode */
    uint32_t links;          /* i_nlink */
    uint32_t open_flags;     /* f_flags, with O_CLOEXEC if the descriptor has it, as /proc/PID/fdinfo shows */
    uint32_t mount;          /* mount id, as in mountinfo */
    uint32_t magic;          /* of the file system, as statfs(2) gives it */
    uint8_t of;              /* enum lo2_kernel_file_of */
    uint8_t flags;           /* enum lo2_kernel_file_flag */
    uint16_t names_length;   /* bytes that follow: the names from the file upwards, each ended by a zero byte */
} lo2_kernel_file;

typedef struct {
    lo2_kernel_head head;
    uint8_t place;           /* 0: the call's first path, 1: its second */
    uint8_t flags;           /* of the directory: WHOLE, DELETED, MOVED; and CUT */
    uint16_t path_length;    /* bytes that follow: as the program gave it, without the zero byte */
    uint16_t names_length;   /* then: names of the directory that it is relative to, as in FILE; 0: absolute, or not known */
    uint16_t reserved;
} lo2_kernel_path;
enum lo2_kernel_path_flag { LO2_PATH_CUT = 16 }; /* not all of it could be read */

typedef struct {
    lo2_kernel_head head;
    uint64_t request;        /* address, as in io_uring's tracepoints */
    uint64_t ring;
    uint64_t user_data;
    uint64_t offset;
    uint64_t file;           /* of a registered file (CLOSE: in its place), or of the descriptor: address of its description; 0: not known */
    uint32_t length;
    uint32_t op_flags;       /* rw_flags, open_flags, ...: the opcode says which */
    int32_t fd;              /* as given: a descriptor, or with IOSQE_FIXED_FILE the number of a registered file */
    uint32_t file_index;     /* of opens and CLOSE: number of a registered file + 1; 0: a descriptor. SPLICE, TEE: splice_fd_in */
    uint16_t buf_index;
    uint8_t opcode;
    uint8_t flags;           /* IOSQE_* */
    uint16_t ioprio;         /* of sends and receives: how they work */
    uint16_t reserved;
    uint64_t bytes;          /* READV, WRITEV, SENDMSG, RECVMSG, SEND of vectors: of all iovecs; FALLOCATE, FADVISE: of the range; UINT64_MAX: not known */
    uint64_t file2;          /* SPLICE, TEE: as `file`, of what is read */
} lo2_kernel_sqe;

typedef struct {
    lo2_kernel_head head;
    uint64_t iocb;           /* its address in the program's memory */
    uint64_t data;           /* aio_data: what its completion will bear */
    int64_t offset;
    uint64_t length;
    int32_t fd;
    uint16_t opcode;         /* IOCB_CMD_* */
    uint16_t place;          /* in the array of the io_submit */
    uint32_t rw_flags;       /* RWF_* */
    uint32_t reserved;
} lo2_kernel_iocb;

/* One that an io_getevents returned: struct io_event of include/uapi/linux/aio_abi.h. */
typedef struct {
    uint64_t data;           /* aio_data of the request */
    uint64_t iocb;           /* its address in the program's memory */
    int64_t result, result2;
} lo2_kernel_event;

/* A call that returned many has several of these, in the order of its array. */
typedef struct {
    lo2_kernel_head head;
    uint64_t context;        /* aio_context_t */
    uint32_t count;          /* lo2_kernel_event that follow */
    uint32_t reserved;
} lo2_kernel_events;

/* All since the thread's birth: members of task_struct, in ns where they are times. */
typedef struct {
    lo2_kernel_head head;
    uint64_t cpu_ns;         /* se.sum_exec_runtime: at the last tick or switch */
    uint64_t user, system;   /* utime, stime: by ticks, as a rule; their proportion is what counts */
    uint64_t block_delay_ns; /* delays->blkio_delay; UINT64_MAX: not accounted */
    uint64_t major_faults;   /* maj_flt */
    uint64_t voluntary, involuntary; /* nvcsw, nivcsw: switches */
} lo2_kernel_usage;

typedef struct {
    lo2_kernel_head head;
    uint16_t length;         /* bytes that follow: the arguments, each ended by a zero byte */
    uint8_t cut;             /* 1: there are more */
    uint8_t reserved[5];
} lo2_kernel_exec;

typedef struct {
    lo2_kernel_head head;    /* time of the last of them; tid 0 */
    uint64_t begin_ns;       /* of the first */
    uint64_t lost;           /* how many: a call that would have been one record is two */
} lo2_kernel_lost;

typedef struct {
    lo2_kernel_head head;    /* the thread in which it happened; then the event's raw data from LO2_FIELDS_AT on: samples.h */
} lo2_kernel_sample;

#endif
