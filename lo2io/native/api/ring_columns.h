/*
 * The columns of io_uring and libaio. The head of api/columns.h holds for them, too.
 *
 * A ring is an io_uring instance or a libaio context. Requests of libaio are known only if BPF programs read the
 * program's memory: what a request asks for at its submission, and its result when a call collects it.
 */

/* One row per request, when nothing more can become known of it. */
typedef struct {
    uint64_t *id;               /* from the same counter as the operations' */
    uint32_t *ring;
    uint32_t *task;             /* submitted it: with SQPOLL the SQ thread */
    uint32_t *pid;
    uint32_t *tid;
    uint64_t *user_data;        /* libaio: aio_data */
    uint8_t *opcode;            /* the kernel's number; 255 unknown. libaio: the io_uring opcode that does the same */
    uint8_t *sqe_flags;         /* IOSQE_*; the kernel may have set ASYNC, and DRAIN behind a drained chain */
    uint8_t *status;            /* enum lo2_ring_status */
    uint8_t *path;              /* enum lo2_ring_path */
    uint16_t *traits;           /* enum lo2_ring_trait bits */
    uint16_t *inferred;         /* enum lo2_ring_inferred bits: which columns are inferred, not stated by the kernel */
    int32_t *fd;                /* -1: none, or a registered file, or not known */
    uint32_t *handle;           /* of the fd, when the kernel looked it up */
    uint32_t *handle2;          /* splice, tee: handle is read, handle2 written */
    int64_t *submit_time_ns;
    int64_t *issue_time_ns;     /* first execution; unknown: never, or not known */
    int64_t *punt_time_ns;      /* last hand-over to a worker; unknown, as in the next four columns: did not happen, or not known */
    int64_t *poll_arm_time_ns;  /* first */
    int64_t *wake_time_ns;      /* last */
    int64_t *work_begin_time_ns; /* the last execution by a worker */
    int64_t *work_end_time_ns;
    int64_t *complete_time_ns;  /* last CQE, or its overflow; libaio: a call returned the event */
    int64_t *notify_time_ns;    /* SEND_ZC: the buffer is free again */
    int64_t *end_before_time_ns; /* the request had ended by then; unknown: its end was seen, or no bound is known */
    int64_t *queued_ns;         /* from submission to the first execution */
    int64_t *executing_ns;      /* sum of all known executions */
    int64_t *waiting_ns;        /* the rest, up to the completion */
    uint32_t *worker;           /* the task that executed it last */
    uint32_t *waker;            /* the task that woke it last; UINT32_MAX: none, or not recorded */
    uint32_t *waker_tid;
    uint64_t *previous;         /* id of the request before it in its chain; 0: none */
    uint64_t *culprit;          /* id of the request whose failure ended it; 0: none, or not known */
    int64_t *offset_bytes;      /* as asked for; unknown: at the position, or not known */
    int64_t *bytes_request;     /* as asked for; unknown: not known */
    int64_t *bytes_result;      /* sum of its CQEs; unknown: it failed, or moves no bytes */
    int32_t *result;            /* of the last CQE */
    int16_t *error;             /* errno; 0 success */
    uint32_t *cqe_flags;        /* of the last CQE */
    uint32_t *nr_completions;   /* CQEs */
    uint16_t *nr_polls;         /* times that it waited for its file */
    uint16_t *nr_punts;
    uint32_t *op_flags;         /* rw_flags, open_flags, ...: depends on the opcode; UINT32_MAX unknown */
    uint32_t *file_index;       /* place of the registered file that it works on, opens or closes; UINT32_MAX none, or not known */
    int32_t *buffer_index;      /* number of the registered buffer; -1 none, or not known */
    uint8_t *cache;             /* enum lo2_cache_verdict; as for calls, as are the following */
    uint32_t *cache_missed_pages;
    uint32_t *cache_ahead_pages;
    int64_t *cache_wait_ns;
    int64_t *run_queue_ns;      /* of its executions by workers, as of calls; unknown: no worker executed it, or not known */
    int64_t *blocked_ns;
} lo2_ring_request_columns;

enum lo2_ring_status { LO2_RING_COMPLETED = 0, LO2_RING_IN_FLIGHT = 1, LO2_RING_CANCELLED = 2, LO2_RING_REFUSED = 3,
                       LO2_RING_TORN_DOWN = 4, LO2_RING_SILENT = 5,
                       LO2_RING_UNSEEN = 6 }; /* libaio: the request has ended, but no call returned its event */
enum lo2_ring_path { LO2_PATH_UNKNOWN = 0, LO2_PATH_INLINE = 1, LO2_PATH_DEVICE = 2, LO2_PATH_POLL = 3, LO2_PATH_WORKER = 4,
                     LO2_PATH_REFUSED = 5, LO2_PATH_CANCELLED = 6 };
enum lo2_ring_trait {
    LO2_TRAIT_SQPOLL = 1,
    LO2_TRAIT_DRAINED = 2,      /* it waited for all requests before it */
    LO2_TRAIT_HASHED = 4,       /* its worker executed requests on the same file one after another */
    LO2_TRAIT_OVERFLOWED = 8,   /* one of its CQEs found no room */
    LO2_TRAIT_NOTIFIED = 16,    /* SEND_ZC: the notification came */
    LO2_TRAIT_MULTISHOT = 32,   /* more than one CQE was announced */
    LO2_TRAIT_CONTINUED = 64,   /* the worker of the request before it went on with this one, without a queue */
    LO2_TRAIT_SHORT = 128,      /* a write did not write all */
    LO2_TRAIT_BOUNDED = 256,    /* the number of such workers is bounded by the CPUs */
    LO2_TRAIT_UNBOUNDED = 512,
    LO2_TRAIT_OLDER = 1024      /* began before the trace */
};
enum lo2_ring_inferred {
    LO2_INFERRED_ISSUE = 1,     /* issue time: the submission's, or another bound */
    LO2_INFERRED_WORKER = 2,    /* worker and worker_tid */
    LO2_INFERRED_WORK_BEGIN = 4,
    LO2_INFERRED_WORK_END = 8,
    LO2_INFERRED_PATH = 16,
    LO2_INFERRED_BOUND = 32,    /* bounded or unbounded, from opcode and kind of file */
    LO2_INFERRED_IDENTITY = 64, /* user_data and order matched the completion, for the request's address is lacking */
    LO2_INFERRED_CULPRIT = 128,
    LO2_INFERRED_SIZE = 256,    /* offset and bytes_request, from a short write of the same thread */
    LO2_INFERRED_END = 512      /* the end is only a bound; libaio: or the end of the call that collected the event */
};

/* The same requests as events, in the order of time on each submitter's location, for an OTF2 writer. */
typedef struct {
    uint64_t *id;
    uint64_t *before;           /* written before the operation row with this ordinal */
    int64_t *call_begin_time_ns; /* of the call in which the location's thread is; unknown: it is in none */
    int64_t *time_ns;
    uint32_t *ring;
    uint32_t *task;             /* the submitter */
    uint32_t *process;
    uint32_t *pid;
    uint32_t *tid;
    /* 0 begin, 1 issued, 2 complete, 3 cancelled; the columns below are as in the request's row for 2 and 3 */
    uint8_t *kind;
    uint8_t *opcode;
    uint8_t *path;
    uint8_t *status;
    uint16_t *traits;
    uint16_t *inferred;
    uint8_t *sqe_flags;
    uint32_t *handle;
    uint64_t *user_data;
    int64_t *bytes;             /* begin: asked for, if known; complete: bytes_result */
    int32_t *result;
    int16_t *error;
    uint32_t *worker_tid;
    uint32_t *waker_tid;        /* UINT32_MAX: none, or kind 0 or 1 */
    int64_t *queued_ns;
    int64_t *executing_ns;
    int64_t *waiting_ns;
    int64_t *run_queue_ns;
    int64_t *blocked_ns;
    uint64_t *previous;
    uint64_t *culprit;
    uint8_t *cache;
    uint32_t *cache_missed_pages;
    uint32_t *cache_ahead_pages;
} lo2_ring_event_columns;

/* One row per execution of a request by a worker, at its end. The rows of one worker are in order and do not overlap. */
typedef struct {
    uint64_t *id;               /* of the request */
    uint32_t *ring;
    uint32_t *task;             /* the worker */
    uint32_t *process;
    uint32_t *pid;
    uint32_t *tid;
    uint8_t *opcode;
    uint16_t *inferred;         /* enum lo2_ring_inferred bits */
    int64_t *queue_time_ns;     /* hand-over; unknown: the worker went on after the request before it */
    int64_t *begin_time_ns;
    int64_t *end_time_ns;
} lo2_ring_work_columns;

/* The state of a ring from this time on. Rows come at turning points: the end of several submissions, of completions ... */
typedef struct {
    int64_t *time_ns;
    uint32_t *ring;
    uint32_t *process;          /* the ring's; UINT32_MAX: not known yet */
    uint32_t *in_flight;        /* requests that began and have not ended */
    uint32_t *punted;           /* of these, handed to workers */
    uint32_t *workers;          /* living workers that serve its submitters */
    uint32_t *cq_least;         /* CQEs that no thread can have collected yet */
    uint32_t *cq_most;          /* CQEs that may lie in the queue */
} lo2_ring_state_columns;

/*
 * One row per call that submits to a ring or collects from it (io_uring_enter, io_submit, io_getevents ...), in the
 * order of the operations' rows.
 */
typedef struct {
    uint64_t *id;               /* of the operation */
    uint32_t *ring;
    uint32_t *asked;            /* to_submit; io_submit, io_getevents: nr */
    uint32_t *wanted;           /* min_complete, min_nr */
    int32_t *submitted;         /* -1 unknown: the call failed, or submits nothing */
    int32_t *collected;         /* io_getevents: the result; else -1, for programs collect without a call */
    uint32_t *nr_requests;      /* requests that began during the call, on this ring and thread */
    uint32_t *nr_completions;   /* CQEs that came to the ring during the call */
    int64_t *sleep_time_ns;     /* the thread was about to sleep for completions; unknown: that was not seen */
} lo2_batch_columns;

/* One row per request that an io_submit took, after the operation's row, in their order. */
typedef struct {
    uint64_t *operation;        /* id of the io_submit */
    uint64_t *request;          /* id in ring_requests */
    uint32_t *place;            /* in the call's array */
    uint8_t *opcode;            /* IOCB_CMD_*; 9 unknown */
    int32_t *fd;
    uint32_t *handle;
    int64_t *offset_bytes;
    int64_t *bytes_request;     /* unknown: vectors, or an opcode without a count */
    uint64_t *data;             /* aio_data, which the completion repeats */
    uint64_t *iocb;             /* address in the program's memory */
} lo2_iocb_columns;

/* One row per ring, when it has ended or at the end of the run. */
typedef struct {
    uint32_t *ring;
    uint8_t *kind;              /* 0 io_uring, 1 libaio */
    uint64_t *context;          /* address of the kernel's ring; aio_context_t */
    uint32_t *process;
    uint32_t *task;             /* made the ring; UINT32_MAX: before the trace */
    uint32_t *pid;
    int32_t *fd;                /* -1: not known */
    uint32_t *handle;
    uint32_t *sq_entries;       /* libaio: nr_events asked for; 0 unknown, as in the next column */
    uint32_t *cq_entries;
    uint32_t *flags;            /* IORING_SETUP_*; UINT32_MAX unknown */
    int64_t *create_time_ns;
    int64_t *end_time_ns;       /* the ring was closed, or its last process ended; unknown: neither was seen */
    uint32_t *poller;           /* task of the SQ thread */
    uint32_t *nr_files;         /* registered, at most; UINT32_MAX unknown */
    uint32_t *nr_buffers;
    uint64_t *nr_requests;      /* all requests, sampled or not, as in the next columns */
    uint64_t *nr_completions;   /* CQEs */
    uint64_t *nr_overflows;
    uint64_t *nr_messages;      /* CQEs that other rings sent */
    uint64_t *nr_orphans;       /* CQEs of requests that began before the trace or were lost */
    uint64_t *nr_batches;
    uint64_t *nr_punts;
    uint32_t *most_in_flight;
    uint32_t *nr_workers;       /* workers born for its submitters */
} lo2_ring_columns;
