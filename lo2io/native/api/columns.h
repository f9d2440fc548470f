/*
 * The columns of a batch, except those of rings (api/ring_columns.h). Plain declarations, which cffi reads (build.py).
 *
 * Python derives its NumPy columns from the lo2_*_columns structs: a column is added here and nowhere else.
 *
 * Times are int64 nanoseconds on the spool's clock. INT64_MIN is "unknown" in int64 columns, UINT32_MAX in uint32
 * references. Unknown is never guessed.
 */

/* One row per system call. */
typedef struct {
    uint64_t *id;             /* unique in the trace; a copy call also owns id + 1 */
    int64_t *begin_time_ns;
    int64_t *end_time_ns;     /* unknown: in flight at the end, or the exit was lost */
    uint32_t *task;           /* row of the tasks table: one thread, though tids are used again */
    uint32_t *process;        /* one process, though pids are used again */
    uint32_t *pid;
    uint32_t *tid;
    uint16_t *call;           /* index into the calls */
    uint8_t *status;          /* 0 completed, 1 in flight */
    uint8_t *offset_source;   /* 0 unknown, 1 explicit, 2 followed, 3 told by the kernel */
    uint8_t *first_use;       /* bit 0: first row with handle, bit 1: with handle2, for handles that no recorded call opened */
    uint8_t *closes;          /* 1: the handle ended with this call */
    uint16_t *cpu;            /* at entry */
    uint32_t *handle;         /* the fd's handle, also of an open; of a dup its source (see handle2) */
    uint32_t *handle2;        /* dup: the new handle; copy: the written one */
    int32_t *fd;              /* the fd argument, or the fd that an open returned; -1 none */
    uint32_t *flags;          /* open flags, whence, fcntl or ioctl command, mode ... as given; 0 none */
    int64_t *offset_bytes;    /* file offset; for seeks the requested one */
    int64_t *bytes_request;   /* bytes that the call asked for, or the new length (truncate); unknown: it counts no bytes */
    int64_t *bytes_result;    /* unknown: the call failed, or returns no bytes */
    int64_t *result;          /* the return value, unchanged */
    int16_t *error;           /* errno; 0 success */
    uint8_t *cache;           /* enum lo2_cache_verdict */
    uint32_t *cache_missed_pages; /* pages of the read that it put into the cache; UINT32_MAX: not known, or no read */
    uint32_t *cache_ahead_pages; /* other pages of the file that it put there */
    int64_t *cache_wait_ns;   /* waits for I/O; unknown: also no read */
    /* Two parts of the duration; the thread had a CPU in the rest. Both unknown: in flight, not recorded, or a part was not seen */
    int64_t *run_queue_ns;    /* it could have run, and others had the CPUs */
    int64_t *blocked_ns;      /* it waited for something */
    uint32_t *fuse_requests;  /* that its thread sent to servers of FUSE file systems */
    int64_t *fuse_ns;         /* the time of those that ended before it did */
} lo2_operation_columns;

/* Events of handles besides the calls that name them. */
typedef struct {
    uint64_t *before;   /* written before the operation row with this ordinal (0-based over the whole run) */
    int64_t *time_ns;
    uint32_t *task;
    uint32_t *handle;
    uint8_t *kind;      /* 0 destroyed (close_range, dup2's target, exec), 1 status flags set (F_SETFL) */
    uint32_t *flags;    /* kind 1: the new O_* status flags; else 0 */
} lo2_handle_event_columns;

/* One row per handle, when all of its life is known. */
typedef struct {
    uint32_t *handle;
    uint32_t *process;
    uint32_t *task;             /* opened it, or used it first */
    int32_t *fd;
    uint8_t *origin;            /* 0 opened, 1 duplicated, 2 inherited over fork, 3 open before the trace, 4 appeared unseen,
                                   5 opened by a request of a ring, 6 registered with a ring: it has no fd */
    uint8_t *name_source;       /* 0 unknown, 1 /proc verified, 2 the call's string field, 3 BPF programs */
    uint8_t *close_on_exec;
    uint8_t *used;              /* some operation, ring's request or handle event names the handle */
    uint32_t *parent;           /* the handle from which it was duplicated or inherited */
    uint32_t *description;      /* open file description: shared by duplicates */
    uint32_t *file;             /* row of the files table */
    uint32_t *open_flags;       /* O_*; UINT32_MAX unknown */
    int64_t *open_time_ns;      /* unknown: inherited, registered, before the trace or unseen */
    int64_t *close_time_ns;     /* unknown: still open at the end, or ended at an unknown time */
} lo2_handle_columns;

/* One row per file, before the first handle row that refers to it. */
typedef struct {
    uint32_t *file;
    uint32_t *mode;             /* st_mode; 0 unknown */
    uint64_t *device;           /* st_dev as the kernel's stat(2) gives it */
    uint64_t *inode;
    int64_t *generation;        /* of the inode, if a BPF program told it; INT64_MIN unknown */
    uint32_t *links;            /* st_nlink when the file was first seen, if a BPF program told it; UINT32_MAX unknown */
    uint32_t *mount;            /* mount id; UINT32_MAX unknown */
    uint8_t *name_source;       /* as in handles */
    uint32_t *path_offset;      /* into the batch's text */
    uint32_t *path_length;
} lo2_file_columns;

/* One row per path argument of a call, after the call's row, perhaps in a later batch. */
typedef struct {
    uint64_t *operation;        /* id of the call's row */
    uint8_t *place;             /* 0: the call's first path, 1: its second */
    uint8_t *source;            /* as name_source; 0: the path could not be read */
    uint32_t *path_offset;      /* into the batch's text, as given; may be empty */
    uint32_t *path_length;
    uint32_t *directory_offset; /* of the directory to which the path is relative, or the thread's root; length 0: unknown */
    uint32_t *directory_length;
} lo2_path_columns;

/* One row per thread, when it has ended or at the end of the run. */
typedef struct {
    uint32_t *task;
    uint32_t *process;          /* one process, though pids are used again */
    uint32_t *pid;
    uint32_t *tid;
    uint32_t *ppid;
    uint32_t *parent_process;   /* UINT32_MAX unknown or not recorded */
    int64_t *start_time_ns;     /* unknown: before the trace */
    int64_t *exit_time_ns;      /* unknown: alive at the end, or the exit was not seen */
    uint32_t *comm_offset;      /* into the batch's text; its last name */
    uint32_t *comm_length;
    uint32_t *cgroup_offset;    /* into the batch's text; its process' last cgroup; length 0: unknown */
    uint32_t *cgroup_length;
    uint32_t *cmdline_offset;   /* into the batch's text; its process' last arguments, separated by zero bytes; length 0: unknown */
    uint32_t *cmdline_length;
    uint8_t *cmdline_cut;       /* 1: the process has further arguments */
    uint32_t *rank;             /* of its process in a job; UINT32_MAX: none is known */
    uint8_t *kind;              /* enum lo2_task_kind */
    int64_t *cpu_ns;            /* from birth to exit; unknown: the thread did not exit, or no program told */
    int64_t *user_ns;           /* its parts, in proportion to ticks */
    int64_t *system_ns;
    int64_t *block_delay_ns;    /* waiting for its block requests; also unknown if the kernel does not account for that */
    int64_t *major_faults;
    int64_t *minor_faults;
    int64_t *voluntary_switches;
    int64_t *involuntary_switches;
} lo2_task_columns;

/* by the name that the kernel gave: iou-wrk-, iou-sqp- */
enum lo2_task_kind { LO2_TASK_THREAD = 0, LO2_TASK_RING_WORKER = 1, LO2_TASK_RING_POLLER = 2 };

/* One row per block request, at its end. */
typedef struct {
    uint64_t *id;               /* from the same counter as the operations' */
    uint32_t *device;           /* kernel dev_t: major << 20 | minor */
    uint32_t *task;             /* submitter; UINT32_MAX: no recorded thread (system mode: kernel) */
    uint32_t *tid;              /* submitter as the kernel named it */
    int64_t *insert_time_ns;    /* unknown: bypassed the scheduler */
    int64_t *issue_time_ns;     /* the last one */
    int64_t *complete_time_ns;
    int64_t *end_earliest_ns;   /* of an inferred end: it came at this time or later ... */
    int64_t *end_latest_ns;     /* ... and at this time or earlier; both unknown if the end is not inferred */
    uint64_t *sector;           /* 512 B units, as issued */
    int64_t *bytes_request;     /* at the start */
    int64_t *bytes_issued;      /* after merging; unknown: never issued */
    int64_t *bytes_result;      /* sum of completions */
    int32_t *error;             /* errno; 0 success */
    uint8_t *operation;         /* enum lo2_rq_op */
    uint8_t *status;            /* enum lo2_rq_status */
    uint8_t *end_proof;         /* enum lo2_rq_proof */
    uint16_t *flags;            /* enum lo2_rq_flag bits */
    uint16_t *nr_requeues;
    uint16_t *nr_merges;        /* queued requests that this one absorbed */
    uint16_t *nr_completions;
    uint64_t *ring_request;     /* id of the ring's request that provably caused it; 0: none, or not known */
    uint8_t *reason;            /* enum lo2_write_back_reason: why a worker of the kernel wrote pages back; 0: none did, or not known */
} lo2_request_columns;

enum lo2_rq_op { LO2_RQ_READ = 0, LO2_RQ_WRITE = 1, LO2_RQ_FLUSH = 2, LO2_RQ_DISCARD = 3, LO2_RQ_SECURE_ERASE = 4,
                 LO2_RQ_WRITE_ZEROES = 5, LO2_RQ_ZONE = 6, LO2_RQ_OTHER = 7 };
enum lo2_rq_status {
    LO2_RQ_COMPLETED = 0,
    LO2_RQ_IN_FLIGHT = 1,
    LO2_RQ_MERGED = 2,        /* into another request */
    LO2_RQ_INFERRED = 3,      /* the completion is missing, but a proof shows that the request ended */
    LO2_RQ_END_UNKNOWN = 4    /* no completion was seen, no proof was found, and completions are missing */
};
enum lo2_rq_proof { LO2_RQ_SEEN = 0, LO2_RQ_BY_CALL = 1, LO2_RQ_BY_RING_REQUEST = 2, LO2_RQ_BY_LATER_REQUEST = 3 };
enum lo2_rq_flag { LO2_RQ_PREFLUSH = 1, LO2_RQ_FUA = 2, LO2_RQ_READAHEAD = 4, LO2_RQ_SYNC = 8, LO2_RQ_METADATA = 16 };

/* The same requests as events in the order of time, for writers that need one order per device. */
typedef struct {
    uint64_t *id;
    int64_t *time_ns;
    uint32_t *device;
    uint32_t *task;
    uint32_t *pid;              /* submitter's; UINT32_MAX unknown */
    uint32_t *tid;
    uint8_t *kind;              /* enum lo2_rq_event */
    uint8_t *operation;
    uint16_t *flags;
    uint64_t *sector;
    int64_t *bytes;             /* begin: requested; issued: issued; complete: completed in all */
    int32_t *error;
    uint16_t *cpu;              /* of this event; ENDED: UINT16_MAX */
    int64_t *insert_time_ns;    /* as known so far; unknown: bypassed the scheduler */
    int64_t *issue_time_ns;     /* unknown: not issued yet */
    uint64_t *ring_request;     /* as in the request's row */
    uint8_t *reason;            /* as in the request's row */
    uint64_t *inode;            /* COMPLETE, ENDED: of the one file whose bytes the request carries; 0: several, none, or not known */
    uint32_t *charged;          /* likewise: tid of the one thread that caused the writes */
} lo2_request_event_columns;

enum lo2_rq_event {
    LO2_RQ_BEGIN = 0, LO2_RQ_ISSUED = 1, LO2_RQ_COMPLETE = 2,
    LO2_RQ_CANCELLED = 3,     /* merged into another */
    LO2_RQ_ENDED = 4          /* its end was not seen: it ended between its issue and this time */
};

/*
 * One row per part of a block request: a run of bytes that belong together. The rows of a request come at its end, in the order of
 * its sectors.
 */
typedef struct {
    uint64_t *request;          /* id of the request's row */
    uint16_t *number;           /* place among the request's parts */
    uint8_t *kind;              /* enum lo2_part_kind */
    uint8_t *direct;            /* 1: direct I/O */
    uint8_t *cut;               /* 1: the request has further parts, which are not known */
    uint64_t *sector;           /* first one on the disk, of 512 B */
    uint32_t *bytes;
    uint64_t *device;           /* s_dev; of a block device's own pages that device; 0: not known */
    uint64_t *inode;            /* 0: none, or not known */
    int64_t *generation;        /* of the inode; unknown: there is no inode */
    uint32_t *file;             /* row of the files table; UINT32_MAX: nobody recorded has opened it */
    int64_t *offset_bytes;      /* in the file, or on the device; unknown for direct I/O */
    uint64_t *inner_device;     /* direct I/O of a loop device: the file whose pages it reads or writes; else 0 */
    uint64_t *inner_inode;
} lo2_request_part_columns;

enum lo2_charged {
    LO2_CHARGED_UNKNOWN = 0,
    LO2_CHARGED_DIRTIED = 1,    /* to the thread that dirtied the pages */
    LO2_CHARGED_DIRECT = 2      /* to the thread that sent the request: direct I/O */
};

/*
 * One row per run of bytes of a file's data that a request writes for one thread. The rows of a request come at its end. Rows of pages
 * that no request has written come last.
 */
typedef struct {
    uint64_t *request;          /* id of the request's row; 0: nobody has written them */
    uint16_t *number;           /* place of the part among the request's parts */
    uint8_t *charged;           /* enum lo2_charged */
    uint32_t *task;             /* UINT32_MAX: not recorded, or unknown */
    uint32_t *tid;              /* UINT32_MAX: unknown */
    uint64_t *device;           /* as in lo2_request_part_columns, like the next three */
    uint64_t *inode;
    uint32_t *file;
    int64_t *offset_bytes;
    uint64_t *bytes;
    int64_t *call_begin_ns;     /* of the thread's call that dirtied or wrote them; unknown: it was in none, or is not recorded */
    int64_t *first_dirtied_ns, *last_dirtied_ns; /* DIRTIED: when the first and the last of the pages became dirty */
    int64_t *issue_time_ns;     /* of the request; unknown: there is none */
    int64_t *complete_time_ns;
} lo2_write_back_columns;

/* One row per commit of a journal, in the order of their ends. A moment that was not seen is unknown. */
typedef struct {
    uint32_t *device;           /* s_dev of the file system */
    uint32_t *transaction;      /* its number; the numbers of a journal follow one another */
    uint32_t *tid;              /* of the journal's thread */
    int64_t *begin_time_ns;
    int64_t *locking_time_ns;   /* when this phase began, as in the next two */
    int64_t *flushing_time_ns;
    int64_t *logging_time_ns;
    int64_t *end_time_ns;
} lo2_commit_columns;

/* One row per page fault that needed I/O, in the order of their ends. */
typedef struct {
    uint64_t *operation;        /* id of the operation that it is; 0: none, for it was inside a call, or its start is not known */
    uint8_t *inside;            /* 1: the thread was inside a recorded call */
    uint32_t *task;
    uint32_t *tid;
    int64_t *begin_time_ns;     /* unknown: the page is no file's, or the start was not seen */
    int64_t *end_time_ns;
    uint64_t *address;          /* that the thread touched */
    uint64_t *device;           /* s_dev; 0: not known */
    uint64_t *inode;
    int64_t *generation;        /* of the inode; unknown: the file is not known */
    uint32_t *file;             /* row of the files table; UINT32_MAX: nobody recorded has opened it, or it is not known */
    int64_t *offset_bytes;      /* of the page in the file; unknown: the file is not known */
    int64_t *run_queue_ns;      /* parts of its time, as of calls; unknown: not seen, or the layer `waits` was not recorded */
    int64_t *blocked_ns;
    uint32_t *filled_pages;     /* of the file, that it put into the page cache; UINT32_MAX: not known, or inside a call */
    uint64_t *request;          /* id of the block request that read the page for it; 0: none, or not known */
} lo2_fault_columns;

/* One row per request to the server of a FUSE file system, when its end and its call are known, or at the end. */
typedef struct {
    uint32_t *connection;       /* s_dev of the file system */
    uint64_t *unique;           /* number of the request among those of its connection */
    uint8_t *opcode;            /* enum fuse_opcode; 255: a higher number */
    uint64_t *operation;        /* id of the call that sent it; 0: it was sent in none, or that call has no row */
    uint32_t *task;
    uint32_t *tid;
    int64_t *begin_time_ns;
    int64_t *end_time_ns;       /* unknown: it had not ended */
    int64_t *bytes_sent;        /* of the message, with its header */
    int64_t *bytes_replied;     /* of the reply, with its header; unknown: it had not ended */
    int32_t *error;             /* errno; 0: success, or it had not ended */
} lo2_fuse_request_columns;

/* One row per slow call whose program's stack was taken. */
typedef struct {
    uint64_t *operation;
    uint32_t *stack;            /* number of the stack in the recording's metadata; UINT32_MAX: it is known by its copy alone */
} lo2_call_stack_columns;

/* One row per call on a futex, in the order of the operations. */
typedef struct {
    uint64_t *operation;
    uint64_t *address;          /* of the futex, in the memory of the calling process */
} lo2_futex_columns;

/*
 * One row per completion of a block request, or of a part of one, in the order of the samples. All senders count,
 * recorded or not, for the rows are compared with the kernel's own accounts.
 */
typedef struct {
    int64_t *time_ns;
    uint32_t *device;
    uint64_t *sector;           /* as in the sample */
    int64_t *bytes;             /* of this completion, failed or not */
    uint8_t *operation;         /* enum lo2_rq_op; FLUSH if it has no sectors, unless ZONE or OTHER */
    uint8_t *asked_flush;       /* 1: no sectors, and no flush itself: mostly the end of a bio that asked for one */
    uint8_t *ends;              /* 0: the rest of the request is still under way */
} lo2_completion_columns;

/* One row per switch of a CPU from one thread to another, in the order of time, like request_events. */
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

/* One row per stretch of a call, page fault or request in a worker in which its thread had no CPU, at the stretch's end. */
typedef struct {
    uint64_t *before;           /* stands before the operation row with this ordinal: the call's own, or an earlier one */
    uint32_t *task;
    int64_t *begin_time_ns;
    int64_t *end_time_ns;       /* the call's end, if the thread was not seen on a CPU again. Unknown: the call's end is
                                   unknown, or the thread left a CPU again and the switch back was lost */
    uint8_t *state;             /* enum lo2_off_state; DEVICE: blocked while one of its own block requests was under way */
    int64_t *wake_time_ns;      /* it could run again; unknown: not seen, or not recorded (layer `waits`) */
    uint8_t *reason;            /* enum lo2_wait_reason */
    uint32_t *waker;            /* its task, if that is recorded */
    uint32_t *waker_tid;        /* the thread that ran where the wakeup happened, 0: the idle thread; UINT32_MAX unknown */
    uint32_t *stack;            /* row of kernel_stacks; UINT32_MAX: none was taken */
    uint32_t *holder;           /* of a lock: the task that had it when the wait began, if that is recorded */
    uint32_t *holder_tid;       /* UINT32_MAX: no lock, or not known */
    uint64_t *lock_inode;       /* of a lock: i_ino of the inode that has it; 0: no lock, or another one */
    uint64_t *lock_device;      /* its s_dev; 0 likewise */
    uint64_t *request;          /* of a worker of io_uring: id of the request that it executed; 0: a call's, or not known */
} lo2_off_cpu_columns;

/*
 * One row per run of pages that a recorded thread put into the page cache. A row of pages that are
 * followed (read ahead or advised) comes when they were used, taken out or given up, or at the end of the spool. Any other
 * row comes at the end of its call or fault, or at once.
 */
typedef struct {
    int64_t *time_ns;           /* of the first page */
    uint32_t *task;
    uint32_t *tid;
    uint64_t *cause;            /* id of the call's row, or of the ring's request; 0: neither is recorded */
    uint64_t *device;           /* s_dev: major << 20 | minor; of a block device's own pages the device */
    uint64_t *inode;            /* of a block device 0 */
    uint32_t *file;             /* UINT32_MAX: not known */
    uint64_t *first_page;
    uint32_t *pages;
    uint32_t *page_bytes;
    uint8_t *why;               /* enum lo2_fill_reason */
    uint32_t *used_pages;       /* of them, read by somebody who is recorded; UINT32_MAX: not known */
    uint64_t *first_use;        /* id of the first call or request that did; 0: none, or not known */
} lo2_fill_columns;

enum lo2_fill_reason {
    LO2_FILL_DEMAND = 0,        /* its cause read them */
    LO2_FILL_AHEAD = 1,         /* its cause read other pages of the file */
    LO2_FILL_WRITE = 2,
    LO2_FILL_ADVICE = 3,        /* readahead(2), posix_fadvise(2) */
    LO2_FILL_METADATA = 4,      /* a file system's own pages, or a directory's */
    LO2_FILL_NO_CALL = 5,       /* in no recorded call: mostly a page fault */
    LO2_FILL_OTHER = 6
};

/* One row per run of pages that a thread took out of the page cache, of files whose pages a recorded thread put in. */
typedef struct {
    int64_t *time_ns;           /* of the first page */
    uint32_t *task;             /* UINT32_MAX: not recorded */
    uint32_t *tid;
    uint64_t *cause;            /* as in fills, as are the following */
    uint64_t *device;
    uint64_t *inode;
    uint32_t *file;
    uint64_t *first_page;
    uint32_t *pages;
    uint32_t *page_bytes;
} lo2_eviction_columns;

/* What a read found in the page cache. */
enum lo2_cache_verdict {
    LO2_CACHE_NO_READ = 0,      /* no read, or one that moved no bytes */
    LO2_CACHE_UNKNOWN = 1,
    LO2_CACHE_NONE = 2,         /* the read does not go through the page cache */
    LO2_CACHE_MEMORY = 3,       /* the file lives in memory (tmpfs) */
    LO2_CACHE_HIT = 4,
    LO2_CACHE_WAIT = 5,         /* all pages were there, but the read waited for I/O: mostly until others had filled them */
    LO2_CACHE_MISS = 6          /* the read put some of its pages into the cache itself */
};

/* What a stretch waited for. Later numbers are those of tracepoints/waits.toml, for stretches with a stack. */
enum lo2_wait_reason {
    LO2_WAIT_NOTHING = 0,       /* preempted: it waited for a CPU alone */
    LO2_WAIT_UNKNOWN = 1,       /* the layer was not recorded, or the stack is missing */
    LO2_WAIT_SHORT = 2,         /* too short for a stack */
    LO2_WAIT_SHORT_IO = 3,      /* the same, and the kernel counted it as a wait for I/O */
    LO2_WAIT_OTHER = 4,         /* its stack has none of the known functions */
    LO2_WAIT_FIRST_KNOWN = 5
};

/* One row per gap that the kernel or lo2io's programs reported. */
typedef struct {
    uint32_t *cpu;
    int64_t *begin_time_ns;     /* the last record before the gap; of programs: the first lost one */
    int64_t *end_time_ns;       /* the first record after the gap; of programs: the last lost one */
    uint64_t *lost;
} lo2_loss_columns;
