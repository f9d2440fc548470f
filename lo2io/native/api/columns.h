/*
 * The columns of a batch, but for those of rings (api/ring_columns.h): plain declarations for cffi (see build.py).
 *
 * Python derives its NumPy columns from the lo2_*_columns structs: a column is added here and nowhere else.
 *
 * Times are int64 nanoseconds on the spool's clock. INT64_MIN is "unknown" in int64 columns, UINT32_MAX in uint32
 * references; unknown is never guessed.
 */

/* One row per system call. */
typedef struct {
    uint64_t *id;             /* unique in the trace; a copy call also owns id + 1 */
    int64_t *begin_time_ns;
    int64_t *end_time_ns;     /* unknown: in flight at the end, or its exit was lost */
    uint32_t *task;           /* row of the tasks table: one instance of a thread */
    uint32_t *process;        /* one instance of a process: pids are re-used */
    uint32_t *pid;
    uint32_t *tid;
    uint16_t *call;           /* index into the calls */
    uint8_t *status;          /* 0 completed, 1 in flight */
    uint8_t *offset_source;   /* 0 unknown, 1 explicit, 2 followed, 3 told by the kernel */
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
                                   5 opened by a request of a ring, 6 registered with a ring: it has no fd */
    uint8_t *name_source;       /* 0 unknown, 1 /proc verified, 2 the call's string field, 3 the kernel's own programs */
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
    int64_t *generation;        /* of the inode, where the kernel's own programs told; INT64_MIN unknown */
    uint32_t *links;            /* st_nlink when it was first seen, where they told; UINT32_MAX unknown */
    uint32_t *mount;            /* mount id; UINT32_MAX unknown */
    uint8_t *name_source;       /* as of handles */
    uint32_t *path_offset;      /* into the batch's text */
    uint32_t *path_length;
} lo2_file_columns;

/* One row per path that a call was given, behind the call's row, perhaps in a later batch. */
typedef struct {
    uint64_t *operation;        /* id of the call's row */
    uint8_t *place;             /* 0: the call's first path, 1: its second */
    uint8_t *source;            /* as name_source; 0: the path could not be read */
    uint32_t *path_offset;      /* into the batch's text: as given, may be empty */
    uint32_t *path_length;
    uint32_t *directory_offset; /* where it starts: what it is relative to, or the root of the thread; length 0: unknown */
    uint32_t *directory_length;
} lo2_path_columns;

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
    uint32_t *cmdline_offset;   /* into the batch's text; its process' last arguments, separated by zero bytes; length 0: unknown */
    uint32_t *cmdline_length;
    uint8_t *cmdline_cut;       /* 1: there are more */
    uint8_t *kind;              /* enum lo2_task_kind */
    int64_t *cpu_ns;            /* since its birth, when it exited; unknown: it has not, or nothing told so */
    int64_t *user_ns;           /* ... of it, in the proportion of ticks */
    int64_t *system_ns;
    int64_t *block_delay_ns;    /* waited for its block requests; unknown, too: the kernel does not account for it */
    int64_t *major_faults;
    int64_t *voluntary_switches;
    int64_t *involuntary_switches;
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
    int64_t *end_earliest_ns;   /* of an inferred end: no earlier than that ... */
    int64_t *end_latest_ns;     /* ... and no later than that; unknown where the end is not inferred */
    uint64_t *sector;           /* 512 B units, as issued */
    int64_t *bytes_request;     /* at its begin */
    int64_t *bytes_issued;      /* after merging; unknown: never issued */
    int64_t *bytes_result;      /* sum of completions */
    int32_t *error;             /* errno; 0 success */
    uint8_t *operation;         /* enum lo2_rq_op */
    uint8_t *status;            /* enum lo2_rq_status */
    uint8_t *end_proof;         /* enum lo2_rq_proof */
    uint16_t *flags;            /* enum lo2_rq_flag bits */
    uint16_t *nr_requeues;
    uint16_t *nr_merges;        /* queued requests this one absorbed */
    uint16_t *nr_completions;
    uint64_t *ring_request;     /* id of the ring's request that caused it, where that is proven; 0: none, or not known */
} lo2_request_columns;

enum lo2_rq_op { LO2_RQ_READ = 0, LO2_RQ_WRITE = 1, LO2_RQ_FLUSH = 2, LO2_RQ_DISCARD = 3, LO2_RQ_SECURE_ERASE = 4,
                 LO2_RQ_WRITE_ZEROES = 5, LO2_RQ_ZONE = 6, LO2_RQ_OTHER = 7 };
enum lo2_rq_status {
    LO2_RQ_COMPLETED = 0,
    LO2_RQ_IN_FLIGHT = 1,
    LO2_RQ_MERGED = 2,        /* into another request */
    LO2_RQ_INFERRED = 3,      /* its completion is missing, and something proves that it ended */
    LO2_RQ_END_UNKNOWN = 4    /* no completion was seen, nothing proves that it ended, and completions are missing */
};
enum lo2_rq_proof { LO2_RQ_SEEN = 0, LO2_RQ_BY_CALL = 1, LO2_RQ_BY_RING_REQUEST = 2, LO2_RQ_BY_LATER_REQUEST = 3 };
enum lo2_rq_flag { LO2_RQ_PREFLUSH = 1, LO2_RQ_FUA = 2, LO2_RQ_READAHEAD = 4, LO2_RQ_SYNC = 8, LO2_RQ_METADATA = 16 };

/* The same requests as events in time order, for writers that need one order per device. */
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
    uint16_t *cpu;              /* where this event was seen; ENDED: UINT16_MAX */
    int64_t *insert_time_ns;    /* as known by now; unknown: bypassed the scheduler */
    int64_t *issue_time_ns;     /* unknown: not issued yet */
    uint64_t *ring_request;     /* as in the request's row */
} lo2_request_event_columns;

enum lo2_rq_event {
    LO2_RQ_BEGIN = 0, LO2_RQ_ISSUED = 1, LO2_RQ_COMPLETE = 2,
    LO2_RQ_CANCELLED = 3,     /* merged into another */
    LO2_RQ_ENDED = 4          /* nobody saw it: it ended between its issue and this time */
};

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
