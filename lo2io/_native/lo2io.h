/*
 * The contract between Python and the native stages.
 *
 * cffi reads this file (see build.py), so it holds plain declarations only.
 * Python derives its NumPy columns from the lo2_*_columns structs: a column is
 * added here and nowhere else.
 *
 * Times are int64 nanoseconds on the spool's clock. INT64_MIN is "unknown" in
 * int64 columns, UINT32_MAX in uint32 references; unknown is never guessed.
 */

/* ---- what a sample means: compiled from the TOML files of tracepoints and the kernel's format files ---- */

enum lo2_role {
    LO2_ROLE_IGNORED = 0,
    LO2_ROLE_ENTER = 1,
    LO2_ROLE_EXIT = 2,
    LO2_ROLE_RQ_INSERT = 3,
    LO2_ROLE_RQ_ISSUE = 4,
    LO2_ROLE_RQ_COMPLETE = 5,
    LO2_ROLE_RQ_REQUEUE = 6,
    LO2_ROLE_RQ_MERGE = 7,       /* a queued request was absorbed by the one that ends where it starts */
    LO2_ROLE_BIO_FRONTMERGE = 8, /* a queued request grew at its front: its key moves */
    LO2_ROLE_BIO_FLUSH = 9,      /* a bio asks for a flush, which a kernel thread will issue */
    LO2_ROLE_SCHED_SWITCH = 10,  /* a CPU goes from one thread to another */
    LO2_ROLE_CGROUP_ATTACH = 11, /* a process moves to another cgroup */
    /* io_uring: docs/explanation/design.md says what each does to a request and its ring */
    LO2_ROLE_RING_CREATE = 12,
    LO2_ROLE_RING_REGISTER = 13,
    LO2_ROLE_RING_SUBMIT = 14,      /* a request begins */
    LO2_ROLE_RING_REFUSE = 15,      /* a request begins that was never prepared */
    LO2_ROLE_RING_FILE_GET = 16,    /* a request looks up its descriptor: it is being executed */
    LO2_ROLE_RING_PUNT = 17,        /* to a worker */
    LO2_ROLE_RING_POLL_ARM = 18,    /* it waits for its file to become ready */
    LO2_ROLE_RING_WAKE = 19,        /* ... which it has */
    LO2_ROLE_RING_TASK_WORK = 20,   /* the end of a batch of task work */
    LO2_ROLE_RING_LOCAL_WORK = 21,  /* the same of a DEFER_TASKRUN ring */
    LO2_ROLE_RING_LINK = 22,        /* a request waits for another */
    LO2_ROLE_RING_FAIL_LINK = 23,   /* a request fails because another did */
    LO2_ROLE_RING_DEFER = 24,       /* a request waits for all before it */
    LO2_ROLE_RING_WAIT = 25,        /* a thread is about to sleep for completions */
    LO2_ROLE_RING_OVERFLOW = 26,    /* a completion that found no room */
    LO2_ROLE_RING_SHORT_WRITE = 27,
    LO2_ROLE_RING_COMPLETE = 28
};

enum lo2_call_kind {
    LO2_CALL_META = 0,        /* region only; fd, if any, names the handle */
    LO2_CALL_OPEN = 1,        /* returns a new fd on a new open file description */
    LO2_CALL_CLOSE = 2,
    LO2_CALL_CLOSE_RANGE = 3, /* fd..fd2, flags */
    LO2_CALL_READ = 4,
    LO2_CALL_WRITE = 5,
    LO2_CALL_SEEK = 6,        /* offset, flags = whence */
    LO2_CALL_SYNC = 7,        /* fsync and kin; without fd: the whole system */
    LO2_CALL_DUP = 8,
    LO2_CALL_DUP_TO = 9,      /* fd -> fd2, fd2 closed silently; flags (dup3) */
    LO2_CALL_FCNTL = 10,      /* flags = cmd, count = arg */
    LO2_CALL_COPY = 11,       /* read on fd, write on fd2 */
    LO2_CALL_CLONE = 12,      /* flags: CLONE_FILES shares the fd table */
    LO2_CALL_UNSHARE = 13,
    LO2_CALL_IOCTL = 14,      /* flags = cmd (FIOCLEX, FIONCLEX move the close-on-exec bit) */
    LO2_CALL_RING_SETUP = 15, /* as OPEN: returns the fd of a new ring; count = entries asked for */
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
    LO2_FIELD_PATH = 5,   /* __data_loc string, kernels that have one */
    LO2_FIELD_RET = 6,
    LO2_FIELD_WANTED = 7, /* min_complete, min_nr: completions a call waits for */
    LO2_FIELD_CONTEXT = 8, /* aio_context_t */
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
    LO2_FIELD_RING_CTX = 0,         /* of task_work: the task's context, which is no ring */
    LO2_FIELD_RING_REQ = 1,
    LO2_FIELD_RING_USER_DATA = 2,
    LO2_FIELD_RING_OPCODE = 3,
    LO2_FIELD_RING_FLAGS = 4,       /* submit, refuse: bits 0-6 are the SQE's; complete, overflow: of the CQE; create: of setup */
    LO2_FIELD_RING_FD = 5,          /* create, file_get */
    LO2_FIELD_RING_RESULT = 6,      /* complete, overflow, register; refuse: the error; short_write: bytes written */
    LO2_FIELD_RING_OTHER = 7,       /* link: the request it waits for; fail_link: the victim */
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
    uint8_t vectored;    /* the count is a number of iovecs: requested bytes are unknown */
    uint8_t has_flags;   /* kind OPEN: FLAGS are open(2) flags; READ, WRITE: an offset of -1 means the position */
    int32_t fixed_flags; /* open(2) flags of calls that have none (creat); else -1 */
} lo2_call;

/* What a request of a ring does, by the number of its opcode. */
typedef struct {
    uint8_t kind;    /* enum lo2_call_kind: META, OPEN, CLOSE, READ, WRITE, SYNC, COPY */
    uint8_t returns; /* enum lo2_returns */
} lo2_opcode;

/* ---- the engine: decode, merge, pair ---- */

typedef struct {
    const char *const *paths; /* files of perf records, in time order but for rare inversions; each goes on where the one before ends */
    uint32_t nr_paths;
    uint32_t cpu;             /* UINT32_MAX: the facts stream */
} lo2_stream;

typedef struct {
    uint32_t partition, disk; /* kernel dev_t: bios name partitions, requests name disks */
} lo2_partition;

typedef struct {
    int64_t time_ns, monotonic_ns, error_ns; /* the spool's clock and that of facts at the same moment, so far apart at most */
} lo2_sync;

typedef struct {
    const lo2_stream *streams;
    uint32_t nr_streams;
    const lo2_event *events_by_type; /* indexed by common_type */
    uint32_t nr_types;
    uint32_t nr_events;
    const lo2_call *calls;
    uint32_t nr_calls;
    const lo2_opcode *opcodes;
    uint32_t nr_opcodes;
    uint32_t sample_rate;   /* of so many requests of rings one is written; 1: all */
    const lo2_partition *partitions;
    uint32_t nr_partitions;
    uint32_t type_offset, pid_offset; /* of common_type (u16) and common_pid (s32) in the raw data */
    uint8_t ends_unseen;    /* not every call that ends a descriptor was recorded: facts prove nothing of one */
    const char *cgroup;     /* calls were recorded of this cgroup and those below it alone; read while the engine lives */
    uint32_t cgroup_length; /* 0: of all */
    uint8_t moves_unseen;   /* not every call that moves a position was recorded: none is followed */
    uint8_t all_tasks;      /* system mode: every task counts; else roots and their descendants */
    const lo2_sync *syncs;  /* monotonic_ns rises strictly */
    uint32_t nr_syncs;
    int64_t clock_error_ns; /* margin by which a fact must lie inside a handle's life */
    int64_t start_ns;       /* tracepoints were enabled from here on */
    const uint32_t *own_pids; /* further ones of lo2io's own */
    uint32_t nr_own_pids;
    uint32_t recorder_pid;  /* never recorded in all_tasks mode unless 0 */
    uint32_t sched_waiting; /* bits of prev_state with which a thread waits: of one that was preempted none is set */
    uint32_t sched_blocked; /* of them, that of an uninterruptible wait */
    uint32_t buffer_bytes;  /* read buffer of one stream */
} lo2_config;

/* One row per system call. */
typedef struct {
    uint64_t *id;             /* unique in the trace; a copy call also owns id + 1 */
    int64_t *begin_time_ns;
    int64_t *end_time_ns;     /* unknown: in flight at the end, or its exit was lost */
    uint32_t *task;           /* row of the tasks table: one instance of a thread */
    uint32_t *pid;
    uint32_t *tid;
    uint16_t *call;           /* index into the calls */
    uint8_t *status;          /* 0 completed, 1 in flight */
    uint8_t *offset_source;   /* 0 unknown, 1 explicit, 2 followed */
    uint8_t *first_use;       /* bit 0: first appearance of handle, bit 1: of handle2, for handles never seen opened */
    uint8_t *closes;          /* 1: handle ended with this call */
    uint16_t *cpu;            /* at entry */
    uint32_t *handle;         /* the fd's; an open's or dup's source: see handle2 */
    uint32_t *handle2;        /* dup: the new handle; copy: the written one */
    int32_t *fd;              /* the fd argument, or the fd an open returned; -1 none */
    uint32_t *flags;          /* open flags, whence, fcntl or ioctl command, mode ... as given; 0 none */
    int64_t *offset_bytes;    /* file offset; for seeks the requested one */
    int64_t *bytes_request;   /* the call's count, where it counts bytes: asked for, or the new length (truncate) */
    int64_t *bytes_result;    /* unknown when the call failed or does not return bytes */
    int64_t *result;          /* the return value as it was */
    int16_t *error;           /* errno; 0 success */
} lo2_operation_columns;

/* What happens to handles outside the calls that name them. */
typedef struct {
    uint64_t *before;   /* written before the operation row with this ordinal (0-based over the whole run) */
    int64_t *time_ns;
    uint32_t *task;
    uint32_t *handle;
    uint8_t *kind;      /* 0 destroyed (close_range, dup2's target, exec), 1 status flags set (F_SETFL) */
    uint32_t *flags;    /* kind 1: the new O_* status flags; else 0 */
} lo2_handle_event_columns;

/* One row per handle, when its life is known in full. */
typedef struct {
    uint32_t *handle;
    uint32_t *process;
    uint32_t *task;             /* that opened it, or first used it */
    int32_t *fd;
    uint8_t *origin;            /* 0 opened, 1 duplicated, 2 inherited over fork, 3 open before the trace, 4 appeared unseen,
                                   5 opened by a request of a ring */
    uint8_t *name_source;       /* 0 unknown, 1 /proc verified, 2 the call's string field */
    uint8_t *close_on_exec;
    uint8_t *used;              /* some operation or handle event names it */
    uint32_t *parent;           /* handle it was duplicated or inherited from */
    uint32_t *description;      /* open file description: shared by duplicates */
    uint32_t *file;             /* row of the files table */
    uint32_t *open_flags;       /* O_*; UINT32_MAX unknown */
    int64_t *open_time_ns;      /* unknown: before the trace or unseen */
    int64_t *close_time_ns;     /* unknown: still open at the end */
} lo2_handle_columns;

/* One row per file, before the first handle row that refers to it. */
typedef struct {
    uint32_t *file;
    uint32_t *mode;             /* st_mode; 0 unknown */
    uint64_t *device;           /* st_dev as the kernel's stat(2) gives it */
    uint64_t *inode;
    uint32_t *mount;            /* mount id; UINT32_MAX unknown */
    uint32_t *path_offset;      /* into the batch's text */
    uint32_t *path_length;
} lo2_file_columns;

/* One row per thread instance, when it ended or at the end of the run. */
typedef struct {
    uint32_t *task;
    uint32_t *process;          /* one instance of a process: pids are re-used */
    uint32_t *pid;
    uint32_t *tid;
    uint32_t *ppid;
    uint32_t *parent_process;   /* UINT32_MAX unknown or not recorded */
    int64_t *start_time_ns;     /* unknown: before the trace */
    int64_t *exit_time_ns;      /* unknown: alive at the end */
    uint32_t *comm_offset;      /* into the batch's text; the last name it bore */
    uint32_t *comm_length;
    uint32_t *cgroup_offset;    /* into the batch's text; its process' last cgroup; length 0: unknown */
    uint32_t *cgroup_length;
    uint8_t *kind;              /* enum lo2_task_kind */
} lo2_task_columns;

enum lo2_task_kind { LO2_TASK_THREAD = 0, LO2_TASK_RING_WORKER = 1, LO2_TASK_RING_POLLER = 2 }; /* by the name the kernel gave: iou-wrk-, iou-sqp- */

/* One row per block request, at its end. */
typedef struct {
    uint64_t *id;               /* from the same counter as the operations' */
    uint32_t *device;           /* kernel dev_t: major << 20 | minor */
    uint32_t *task;             /* submitter; UINT32_MAX: no recorded thread (system mode: kernel) */
    uint32_t *tid;              /* submitter as the kernel named it */
    int64_t *insert_time_ns;    /* unknown: bypassed the scheduler */
    int64_t *issue_time_ns;     /* the last one */
    int64_t *complete_time_ns;
    uint64_t *sector;           /* 512 B units, as issued */
    int64_t *bytes_request;     /* at its begin */
    int64_t *bytes_issued;      /* after merging; unknown: never issued */
    int64_t *bytes_result;      /* sum of completions */
    int32_t *error;             /* errno; 0 success */
    uint8_t *operation;         /* enum lo2_rq_op */
    uint8_t *status;            /* 0 completed, 1 in flight, 2 merged into another request */
    uint16_t *flags;            /* enum lo2_rq_flag bits */
    uint16_t *nr_requeues;
    uint16_t *nr_merges;        /* queued requests this one absorbed */
    uint16_t *nr_completions;
    uint64_t *ring_request;     /* id of the ring's request that caused it, where that is proven; 0: none, or not known */
} lo2_request_columns;

enum lo2_rq_op { LO2_RQ_READ = 0, LO2_RQ_WRITE = 1, LO2_RQ_FLUSH = 2, LO2_RQ_DISCARD = 3, LO2_RQ_SECURE_ERASE = 4,
                 LO2_RQ_WRITE_ZEROES = 5, LO2_RQ_ZONE = 6, LO2_RQ_OTHER = 7 };
enum lo2_rq_flag { LO2_RQ_PREFLUSH = 1, LO2_RQ_FUA = 2, LO2_RQ_READAHEAD = 4, LO2_RQ_SYNC = 8, LO2_RQ_METADATA = 16 };

/* The same requests as events in time order, for writers that need one order per device. */
typedef struct {
    uint64_t *id;
    int64_t *time_ns;
    uint32_t *device;
    uint32_t *task;
    uint32_t *pid;              /* submitter's; UINT32_MAX unknown */
    uint32_t *tid;
    uint8_t *kind;              /* 0 begin, 1 issued, 2 complete, 3 cancelled (merged into another) */
    uint8_t *operation;
    uint16_t *flags;
    uint64_t *sector;
    int64_t *bytes;             /* begin: requested; issued: issued; complete: completed in all */
    int32_t *error;
    uint16_t *cpu;              /* where this event was seen */
    int64_t *insert_time_ns;    /* as known by now; unknown: bypassed the scheduler */
    int64_t *issue_time_ns;     /* unknown: not issued yet */
    uint64_t *ring_request;     /* as in the request's row */
} lo2_request_event_columns;

/*
 * io_uring and libaio. A ring is an io_uring instance or a libaio context; requests are io_uring's alone, for those of
 * libaio stand in user memory. One row per request, when all that can be known of it is.
 */
typedef struct {
    uint64_t *id;               /* from the same counter as the operations' */
    uint32_t *ring;
    uint32_t *task;             /* that submitted it: the SQ thread's with SQPOLL */
    uint32_t *pid;
    uint32_t *tid;
    uint64_t *user_data;
    uint8_t *opcode;            /* the kernel's number; 255 unknown */
    uint8_t *sqe_flags;         /* IOSQE_*; the kernel may have set ASYNC itself */
    uint8_t *status;            /* enum lo2_ring_status */
    uint8_t *path;              /* enum lo2_ring_path */
    uint16_t *traits;           /* enum lo2_ring_trait bits */
    uint16_t *inferred;         /* enum lo2_ring_inferred bits: what of this row is inferred, not stated by the kernel */
    int32_t *fd;                /* -1: none, or a registered file, or not known */
    uint32_t *handle;           /* of the fd when it was looked up */
    uint32_t *handle2;          /* splice, tee: handle is read, handle2 written */
    int64_t *submit_time_ns;
    int64_t *issue_time_ns;     /* executed first; unknown: never, or not known */
    int64_t *punt_time_ns;      /* last handed to a worker; this and the next four unknown: did not happen, or not known */
    int64_t *poll_arm_time_ns;  /* first */
    int64_t *wake_time_ns;      /* last */
    int64_t *work_begin_time_ns; /* the last execution by a worker */
    int64_t *work_end_time_ns;
    int64_t *complete_time_ns;  /* its last CQE, or its overflow */
    int64_t *notify_time_ns;    /* SEND_ZC: the buffer is free again */
    int64_t *queued_ns;         /* from submission to the first execution */
    int64_t *executing_ns;      /* all executions that are known */
    int64_t *waiting_ns;        /* the rest until completion */
    uint32_t *worker;           /* task that executed it last */
    uint32_t *waker;            /* task that woke it last; UINT32_MAX: none, or not recorded */
    uint32_t *waker_tid;
    uint64_t *previous;         /* id of the request it is linked behind; 0: none */
    uint64_t *culprit;          /* id of the request whose failure ended it; 0: none, or not known */
    int64_t *offset_bytes;      /* where the kernel tells: refused requests and short writes */
    int64_t *bytes_request;     /* likewise */
    int64_t *bytes_result;      /* sum of its CQEs; unknown: failed, or moves no bytes */
    int32_t *result;            /* of the last CQE */
    int16_t *error;             /* errno; 0 success */
    uint32_t *cqe_flags;        /* of the last CQE */
    uint32_t *nr_completions;   /* CQEs */
    uint16_t *nr_polls;         /* times it waited for its file */
    uint16_t *nr_punts;
} lo2_ring_request_columns;

enum lo2_ring_status { LO2_RING_COMPLETED = 0, LO2_RING_IN_FLIGHT = 1, LO2_RING_CANCELLED = 2, LO2_RING_REFUSED = 3,
                       LO2_RING_TORN_DOWN = 4, LO2_RING_SILENT = 5 };
enum lo2_ring_path { LO2_PATH_UNKNOWN = 0, LO2_PATH_INLINE = 1, LO2_PATH_DEVICE = 2, LO2_PATH_POLL = 3, LO2_PATH_WORKER = 4,
                     LO2_PATH_REFUSED = 5, LO2_PATH_CANCELLED = 6 };
enum lo2_ring_trait {
    LO2_TRAIT_SQPOLL = 1,
    LO2_TRAIT_DRAINED = 2,      /* it waited for all before it */
    LO2_TRAIT_HASHED = 4,       /* its worker ran requests on the same file one after the other */
    LO2_TRAIT_OVERFLOWED = 8,   /* a CQE of it found no room */
    LO2_TRAIT_NOTIFIED = 16,    /* SEND_ZC: the notification came */
    LO2_TRAIT_MULTISHOT = 32,   /* more than one CQE was announced */
    LO2_TRAIT_CONTINUED = 64,   /* executed by the worker of the request before it, without being queued */
    LO2_TRAIT_SHORT = 128,      /* a write was done in part */
    LO2_TRAIT_BOUNDED = 256,    /* its worker was one of those whose number is bounded by CPUs */
    LO2_TRAIT_UNBOUNDED = 512,
    LO2_TRAIT_OLDER = 1024      /* began before the trace */
};
enum lo2_ring_inferred {
    LO2_INFERRED_ISSUE = 1,     /* issue time: that of the submission or another bound */
    LO2_INFERRED_WORKER = 2,    /* which worker */
    LO2_INFERRED_WORK_BEGIN = 4,
    LO2_INFERRED_WORK_END = 8,
    LO2_INFERRED_PATH = 16,
    LO2_INFERRED_BOUND = 32,    /* bounded or unbounded: by opcode and kind of file */
    LO2_INFERRED_IDENTITY = 64, /* the completion was matched by user_data and order, for lack of the request's address */
    LO2_INFERRED_CULPRIT = 128,
    LO2_INFERRED_SIZE = 256     /* offset and bytes_request: a short write of the same thread */
};

/* The same requests as events, in time order on each submitter's location: what an OTF2 writer needs. */
typedef struct {
    uint64_t *id;
    uint64_t *before;           /* written before the operation row with this ordinal */
    int64_t *call_begin_time_ns; /* of the call that the location's thread is inside of; unknown: of none */
    int64_t *time_ns;
    uint32_t *ring;
    uint32_t *task;             /* the submitter */
    uint32_t *pid;
    uint32_t *tid;
    uint8_t *kind;              /* 0 begin, 1 issued, 2 complete, 3 cancelled; of 2 and 3 the columns below are as in the row */
    uint8_t *opcode;
    uint8_t *path;
    uint8_t *status;
    uint16_t *traits;
    uint16_t *inferred;
    uint8_t *sqe_flags;
    uint32_t *handle;
    uint64_t *user_data;
    int64_t *bytes;             /* begin: asked for, where known; complete: bytes_result */
    int32_t *result;
    int16_t *error;
    uint32_t *worker_tid;
    int64_t *queued_ns;
    int64_t *executing_ns;
    int64_t *waiting_ns;
    uint64_t *previous;
    uint64_t *culprit;
} lo2_ring_event_columns;

/* One row per execution of a request by a worker thread, at its end; a worker's own are in order and do not overlap. */
typedef struct {
    uint64_t *id;               /* of the request */
    uint32_t *ring;
    uint32_t *task;             /* the worker */
    uint8_t *opcode;
    uint16_t *inferred;         /* enum lo2_ring_inferred bits */
    int64_t *queue_time_ns;     /* handed over; unknown: continued by a link */
    int64_t *begin_time_ns;
    int64_t *end_time_ns;
} lo2_ring_work_columns;

/* What a ring looks like from here on, at turning points: the end of a row of submissions, of completions ... */
typedef struct {
    int64_t *time_ns;
    uint32_t *ring;
    uint32_t *in_flight;        /* requests that began and have not ended */
    uint32_t *punted;           /* of them, handed to workers */
    uint32_t *workers;          /* worker threads alive that serve its submitters */
    uint32_t *cq_least;         /* CQEs that nobody can have collected yet */
    uint32_t *cq_most;          /* CQEs that may lie there */
} lo2_ring_state_columns;

/* One row per call that submits to or collects from a ring (io_uring_enter, io_submit, io_getevents ...), in the order of
 * their operations' rows. */
typedef struct {
    uint64_t *id;               /* of the operation */
    uint32_t *ring;
    uint32_t *asked;            /* to_submit; io_submit, io_getevents: nr */
    uint32_t *wanted;           /* min_complete, min_nr */
    int32_t *submitted;         /* unknown (-1): it failed, or submits nothing */
    int32_t *collected;         /* io_getevents: what it returned; else -1, for programs collect without a call */
    uint32_t *nr_requests;      /* requests that began while it ran, on this ring and thread */
    uint32_t *nr_completions;   /* CQEs that came to the ring while it ran */
    int64_t *sleep_time_ns;     /* it was about to sleep for completions; unknown: it was not seen to */
} lo2_batch_columns;

/* One row per ring, when it has ended or at the end of the run. */
typedef struct {
    uint32_t *ring;
    uint8_t *kind;              /* 0 io_uring, 1 libaio */
    uint64_t *context;          /* address of the kernel's ring; aio_context_t */
    uint32_t *process;
    uint32_t *task;             /* that made it; UINT32_MAX: before the trace */
    uint32_t *pid;
    int32_t *fd;                /* -1: not known */
    uint32_t *handle;
    uint32_t *sq_entries;       /* libaio: nr_events asked for; 0 unknown, likewise below */
    uint32_t *cq_entries;
    uint32_t *flags;            /* IORING_SETUP_*; UINT32_MAX unknown */
    int64_t *create_time_ns;
    int64_t *end_time_ns;       /* its last process ended or it was closed; unknown: not seen */
    uint32_t *poller;           /* task of the SQ thread */
    uint32_t *nr_files;         /* registered, at most; UINT32_MAX unknown */
    uint32_t *nr_buffers;
    uint64_t *nr_requests;      /* all, sampled or not; likewise below */
    uint64_t *nr_completions;   /* CQEs */
    uint64_t *nr_overflows;
    uint64_t *nr_messages;      /* CQEs that other rings sent */
    uint64_t *nr_orphans;       /* CQEs of requests that began before the trace or were lost */
    uint64_t *nr_batches;
    uint64_t *nr_punts;
    uint32_t *most_in_flight;
    uint32_t *nr_workers;       /* worker threads born for its submitters */
} lo2_ring_columns;

/*
 * One row per completion of a block request or a part of one, whoever sent it, recorded or not, in the order of the
 * samples: what the kernel's own accounts are compared with.
 */
typedef struct {
    int64_t *time_ns;
    uint32_t *device;
    uint64_t *sector;           /* as the sample says */
    int64_t *bytes;             /* of this completion, failed or not */
    uint8_t *operation;         /* enum lo2_rq_op; without sectors FLUSH: see asked_flush */
    uint8_t *asked_flush;       /* 1: no request of its own, but the end of a bio that asked for a flush */
    uint8_t *ends;              /* 0: the rest of the request is still under way */
} lo2_completion_columns;

/* One row per switch of a CPU from one thread to another, in time order (as request_events are). */
typedef struct {
    int64_t *time_ns;
    uint32_t *cpu;
    uint32_t *prev_task;        /* UINT32_MAX: not recorded, or the idle thread */
    uint32_t *prev_tid;         /* 0: the idle thread */
    uint32_t *next_task;
    uint32_t *next_tid;
    uint8_t *state;             /* of prev: enum lo2_off_state */
} lo2_switch_columns;

enum lo2_off_state { LO2_OFF_PREEMPTED = 0, LO2_OFF_DEVICE = 1, LO2_OFF_BLOCKED = 2, LO2_OFF_SLEEPING = 3 };

/* One row per stretch of a call during which its thread had no CPU, at the stretch's end. */
typedef struct {
    uint64_t *before;           /* written before the operation row with this ordinal, which is the call's or an earlier one */
    uint32_t *task;
    int64_t *begin_time_ns;
    int64_t *end_time_ns;       /* the call's end if the thread was not seen on a CPU again; unknown if that is, or
                                   if it was seen leaving one again */
    uint8_t *state;             /* enum lo2_off_state; DEVICE: blocked while a block request of its own was under way */
} lo2_off_cpu_columns;

/* One row per gap the kernel reported. */
typedef struct {
    uint32_t *cpu;
    int64_t *begin_time_ns;     /* last record before the gap */
    int64_t *end_time_ns;       /* first record after it */
    uint64_t *lost;
} lo2_loss_columns;

typedef struct {
    lo2_operation_columns operations;
    lo2_handle_event_columns handle_events;
    lo2_handle_columns handles;
    lo2_file_columns files;
    lo2_task_columns tasks;
    lo2_request_columns requests;
    lo2_request_event_columns request_events;
    lo2_completion_columns completions;
    lo2_switch_columns switches;
    lo2_off_cpu_columns off_cpu;
    lo2_loss_columns losses;
    lo2_ring_request_columns ring_requests;
    lo2_ring_event_columns ring_events;
    lo2_ring_work_columns ring_works;
    lo2_ring_state_columns ring_states;
    lo2_batch_columns batches;
    lo2_ring_columns rings;
    char *text;                 /* paths and names of this batch */
    uint32_t capacity;          /* rows of each column set */
    uint32_t text_capacity;
    uint32_t nr_operations, nr_handle_events, nr_handles, nr_files, nr_tasks, nr_requests, nr_request_events, nr_losses;
    uint32_t nr_completions, nr_switches, nr_off_cpu;
    uint32_t nr_ring_requests, nr_ring_events, nr_ring_works, nr_ring_states, nr_batches, nr_rings;
    uint32_t text_length;
    uint64_t first_operation;   /* ordinal of row 0 over the whole run */
} lo2_batch;

/* Totals, valid at any time; final when lo2_engine_run returned 0. */
typedef struct {
    uint64_t nr_samples;        /* tracepoint samples read, recorded or not */
    uint64_t nr_selected;       /* of them, entries and exits of calls of recorded tasks */
    uint64_t nr_late;           /* out of order beyond repair: moved to the time of their predecessor */
    uint64_t nr_reordered;      /* out of order in their ring, put right */
    uint64_t nr_orphan_exits, nr_orphan_completions;
    uint64_t nr_in_flight_calls, nr_in_flight_requests;
    uint64_t nr_lost_records, nr_lost;   /* PERF_RECORD_LOST: how many, and their sum */
    uint64_t nr_throttled;
    uint64_t nr_undecoded;      /* samples of a type no event of the spool has */
    uint64_t truncated_bytes;   /* tails of streams that hold no whole record */
    uint64_t nr_names_verified, nr_names_refused; /* sightings of an fd that did / did not prove a name */
    uint64_t nr_own_calls, nr_own_requests; /* lo2io's own, left out of every table (all_tasks mode) */
    uint64_t nr_ring_requests;  /* of recorded threads, sampled or not */
    uint64_t nr_orphan_cqes;    /* of requests that began before the trace, or whose begin was lost */
    uint64_t nr_in_flight_ring_requests;
    uint64_t nr_ring_unclear;   /* events about a request or ring that nobody knows: no story could take them */
    int64_t first_time_ns, last_time_ns;
} lo2_totals;

typedef struct lo2_engine lo2_engine;

/* NULL and a text in error (of error_size bytes) when a stream cannot be read or memory is short. */
lo2_engine *lo2_engine_new(const lo2_config *config, char *error, size_t error_size);
/* Completions were lost: of twin requests, the newest completes. To be said before the first run. */
void lo2_engine_set_newest_first(lo2_engine *engine);
/* Fills the batch. 1: call again; 0: this was the last; -1: see lo2_engine_error. */
int lo2_engine_run(lo2_engine *engine, lo2_batch *batch);
const char *lo2_engine_error(const lo2_engine *engine);
const lo2_totals *lo2_engine_totals(const lo2_engine *engine);
/* Adds to counts[common_type] for each sample of one stream's file; counts has nr_types places. -1: errno says why. */
int lo2_count_samples(const lo2_stream *stream, uint32_t type_offset, uint64_t *counts, uint32_t nr_types);
/* nr_events counters of samples seen on one CPU stream (index into config.streams). */
const uint64_t *lo2_engine_seen(const lo2_engine *engine, uint32_t stream);
uint64_t lo2_engine_bytes_read(const lo2_engine *engine);
void lo2_engine_free(lo2_engine *engine);
