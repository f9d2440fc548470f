/*
 * The meaning of samples, compiled from the TOML files of tracepoints and the kernel's format files. Plain
 * declarations, which cffi reads (build.py).
 */

enum lo2_role {
    LO2_ROLE_IGNORED = 0,
    LO2_ROLE_ENTER = 1,
    LO2_ROLE_EXIT = 2,
    LO2_ROLE_RQ_INSERT = 3,
    LO2_ROLE_RQ_ISSUE = 4,
    LO2_ROLE_RQ_COMPLETE = 5,
    LO2_ROLE_RQ_REQUEUE = 6,
    LO2_ROLE_RQ_MERGE = 7,       /* the request that ends where this queued one starts absorbs it */
    LO2_ROLE_BIO_FRONTMERGE = 8, /* a queued request grew at its front: its key moves */
    LO2_ROLE_BIO_FLUSH = 9,      /* a bio asks for a flush, which a kernel thread will issue */
    LO2_ROLE_SCHED_SWITCH = 10,  /* a CPU goes from one thread to another */
    LO2_ROLE_CGROUP_ATTACH = 11, /* a process moves to another cgroup */
    /* io_uring: docs/explanation/rules/ has what each does to a request and its ring */
    LO2_ROLE_RING_CREATE = 12,
    LO2_ROLE_RING_REGISTER = 13,
    LO2_ROLE_RING_SUBMIT = 14,      /* a request begins */
    LO2_ROLE_RING_REFUSE = 15,      /* a request begins and fails before it was prepared */
    LO2_ROLE_RING_FILE_GET = 16,    /* a request looks up its descriptor, so it is executed */
    LO2_ROLE_RING_PUNT = 17,        /* a request goes to a worker */
    LO2_ROLE_RING_POLL_ARM = 18,    /* a request waits for its file to become ready */
    LO2_ROLE_RING_WAKE = 19,        /* the file of a request has become ready */
    LO2_ROLE_RING_TASK_WORK = 20,   /* the end of a batch of task work */
    LO2_ROLE_RING_LOCAL_WORK = 21,  /* the end of a batch on a DEFER_TASKRUN ring */
    LO2_ROLE_RING_LINK = 22,        /* a request waits for another */
    LO2_ROLE_RING_FAIL_LINK = 23,   /* a request fails because another did */
    LO2_ROLE_RING_DEFER = 24,       /* a request waits for all before it */
    LO2_ROLE_RING_WAIT = 25,        /* a thread is about to sleep for completions */
    LO2_ROLE_RING_OVERFLOW = 26,    /* a completion found no room */
    LO2_ROLE_RING_SHORT_WRITE = 27,
    LO2_ROLE_RING_COMPLETE = 28
};

enum lo2_call_kind {
    LO2_CALL_META = 0,        /* region only; fd, if it has one, names the handle */
    LO2_CALL_OPEN = 1,        /* returns a new fd on a new open file description */
    LO2_CALL_CLOSE = 2,
    LO2_CALL_CLOSE_RANGE = 3, /* fd..fd2, flags */
    LO2_CALL_READ = 4,
    LO2_CALL_WRITE = 5,
    LO2_CALL_SEEK = 6,        /* offset, flags = whence */
    LO2_CALL_SYNC = 7,        /* fsync and the like; without fd: the whole system */
    LO2_CALL_DUP = 8,
    LO2_CALL_DUP_TO = 9,      /* fd -> fd2, fd2 closed silently; flags (dup3) */
    LO2_CALL_FCNTL = 10,      /* flags = cmd, count = arg */
    LO2_CALL_COPY = 11,       /* read on fd, write on fd2 */
    LO2_CALL_CLONE = 12,      /* flags: CLONE_FILES shares the fd table */
    LO2_CALL_UNSHARE = 13,
    LO2_CALL_IOCTL = 14,      /* flags = cmd (FIOCLEX, FIONCLEX move the close-on-exec bit) */
    LO2_CALL_RING_SETUP = 15, /* like OPEN: returns the fd of a new ring; count = entries asked for */
    LO2_CALL_RING_ENTER = 16, /* fd, count = to_submit, wanted = min_complete, flags */
    LO2_CALL_AIO_SETUP = 17,  /* count = nr_events */
    LO2_CALL_AIO_SUBMIT = 18, /* context, count = nr; returns how many */
    LO2_CALL_AIO_COLLECT = 19, /* context, wanted = min_nr, count = nr; returns how many */
    LO2_CALL_AIO_DESTROY = 20, /* context */
    LO2_CALL_RING_REGISTER = 21 /* fd, flags = opcode */
};

enum lo2_returns {
    LO2_RETURNS_ZERO = 0,
    LO2_RETURNS_BYTES = 1,
    LO2_RETURNS_FD = 2,
    LO2_RETURNS_OFFSET = 3,
    LO2_RETURNS_COUNT = 4,
    LO2_RETURNS_VALUE = 5
};

enum lo2_field_id {
    /* system calls */
    LO2_FIELD_FD = 0,
    LO2_FIELD_FD2 = 1,
    LO2_FIELD_COUNT = 2,
    LO2_FIELD_OFFSET = 3,
    LO2_FIELD_FLAGS = 4,
    LO2_FIELD_PATH = 5,   /* __data_loc string, in kernels that have one */
    LO2_FIELD_RET = 6,
    LO2_FIELD_WANTED = 7, /* min_complete, min_nr: completions a call waits for */
    LO2_FIELD_CONTEXT = 8, /* aio_context_t */
    LO2_FIELD_ADDRESS = 9, /* of a futex */
    /* block */
    LO2_FIELD_DEV = 0,
    LO2_FIELD_SECTOR = 1,
    LO2_FIELD_NR_SECTOR = 2,
    LO2_FIELD_BYTES = 3,
    LO2_FIELD_RWBS = 4,
    LO2_FIELD_ERROR = 5,
    /* scheduler */
    LO2_FIELD_PREV_TID = 0,
    LO2_FIELD_PREV_STATE = 1,
    LO2_FIELD_NEXT_TID = 2,
    /* cgroups */
    LO2_FIELD_CGROUP_TID = 0,
    LO2_FIELD_CGROUP_PATH = 1,      /* __data_loc string */
    LO2_FIELD_CGROUP_HIERARCHY = 2, /* as in /proc/PID/cgroup: 0 is cgroup v2 */
    /* io_uring; a kernel may lack any of them */
    LO2_FIELD_RING_CTX = 0,         /* in task_work: the task's context, which is no ring */
    LO2_FIELD_RING_REQ = 1,
    LO2_FIELD_RING_USER_DATA = 2,
    LO2_FIELD_RING_OPCODE = 3,
    LO2_FIELD_RING_FLAGS = 4,       /* submit, refuse: bits 0-6 are the SQE's; complete, overflow: of the CQE; create: of setup */
    LO2_FIELD_RING_FD = 5,          /* create, file_get */
    LO2_FIELD_RING_RESULT = 6,      /* complete, overflow, register; refuse: the error; short_write: bytes written */
    LO2_FIELD_RING_OTHER = 7,       /* link: the request for which it waits; fail_link: the victim */
    LO2_FIELD_RING_COUNT = 8,       /* task_work, local_work: requests; wait: completions wanted; create: SQ entries;
                                       register: files; punt: hashed; poll_arm, wake: mask */
    LO2_FIELD_RING_COUNT2 = 9,      /* create: CQ entries; register: buffers; poll_arm: events; submit: by the SQ thread */
    LO2_FIELD_RING_LENGTH = 10,     /* refuse: the SQE's; short_write: bytes wanted */
    LO2_FIELD_RING_OFFSET = 11,     /* refuse: the SQE's; short_write: the file position */
    LO2_NR_FIELDS = 12
};

typedef struct {
    uint16_t offset; /* bytes from the start of the raw data */
    uint8_t size;    /* bytes; 0: the kernel or the call has no such field */
    uint8_t is_signed;
} lo2_field;

typedef struct {
    uint32_t event;  /* index of the event in the spool's list, for the counters */
    uint16_t role;   /* enum lo2_role */
    uint16_t call;   /* index into the calls, for ENTER and EXIT */
    lo2_field fields[12];
} lo2_event;

typedef struct {
    uint8_t kind;        /* enum lo2_call_kind */
    uint8_t returns;     /* enum lo2_returns */
    uint8_t vectored;    /* the count is a number of iovecs: its bytes are unknown */
    uint8_t has_flags;   /* kind OPEN: FLAGS are open(2) flags; READ, WRITE: an offset of -1 means the position */
    int32_t fixed_flags; /* open(2) flags of calls without that argument (creat); else -1 */
    uint8_t reads_first; /* its paths are read at its entry */
    uint8_t advises;     /* it tells the kernel which pages will be read: group advice */
    uint32_t fd_unless;  /* bits of FLAGS with which the kernel ignores FD (mmap) */
} lo2_call;

/* Bits of an opcode, from `traits` in tracepoints/io_uring.toml (OpcodeTrait in lo2io/model/tracepoints.py). */
enum lo2_opcode_trait {
    LO2_OPCODE_FILE = 1,              /* it works on fd, a descriptor or a registered file */
    LO2_OPCODE_TWO_FILES = 2,         /* it works on a second file, too: it copies */
    LO2_OPCODE_LOOKS_UP = 4,          /* a file_get tells when it is executed */
    LO2_OPCODE_OFFSET = 8,            /* off is an offset in the file; for reads and writes, -1 is the position */
    LO2_OPCODE_LENGTH = 16,           /* len counts bytes */
    LO2_OPCODE_COUNTED = 32,          /* BPF programs count its bytes */
    LO2_OPCODE_MAY_VECTOR = 64,       /* they do so if a flag says that len counts vectors */
    LO2_OPCODE_RANGE = 128,           /* off and len are a range; both 0: the whole file */
    LO2_OPCODE_NEW_SIZE = 256,        /* off is the file's new size */
    LO2_OPCODE_FIXED_BUFFER = 512,    /* buf_index is a registered buffer */
    LO2_OPCODE_QUEUES = 1024,         /* it can wait for a device or an event without a thread */
    LO2_OPCODE_POLLED = 2048,         /* a ring with IOPOLL asks the device whether it has ended */
    LO2_OPCODE_REPEATS = 4096,        /* it may have several completions */
    LO2_OPCODE_NOTIFIES = 8192,       /* its last completion says that the buffer is free */
    LO2_OPCODE_UNBOUNDED = 16384,     /* on a file that is not regular, it may block a worker for long */
    LO2_OPCODE_READINESS = 32768,     /* it waits for its file's readiness */
    LO2_OPCODE_TIMES_OUT = 65536,     /* it ends the request before it in the chain */
    LO2_OPCODE_OPEN_FLAGS = 131072,   /* its flags are those of open(2) */
    LO2_OPCODE_CHANGES_PLACES = 262144, /* it may put another file into a place of a ring */
    LO2_OPCODE_UNKNOWN = 524288       /* an unknown opcode: it may do what QUEUES, POLLED, REPEATS and UNBOUNDED say */
};

/* The meaning of a ring's request, by the number of its opcode. */
typedef struct {
    uint8_t kind;    /* enum lo2_call_kind: META, OPEN, CLOSE, READ, WRITE, SYNC, COPY */
    uint8_t returns; /* enum lo2_returns */
    uint16_t iocbs;  /* bit n: the libaio command n (IOCB_CMD_... of linux/aio_abi.h) does the same */
    uint32_t traits; /* enum lo2_opcode_trait */
} lo2_opcode;
