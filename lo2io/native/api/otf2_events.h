/*
 * The native OTF2 event loop: takes batches, and writes event files. Plain declarations, which cffi reads.
 *
 * This code links nothing of libotf2, and passes no event to it. The values of OTF2's enumerations come from Python
 * (lo2io/otf2/values.py). The head of otf2/writer.c says which events an operation becomes. The head of otf2/records.c
 * says which bytes an event becomes.
 */

/* The event files of an archive: their memory, and their writing. */
typedef struct lo2_otf2_event_files lo2_otf2_event_files;
/* folder: the archive's, open as long as this. chunk_bytes: of OTF2's anchor. NULL: out of memory */
lo2_otf2_event_files *lo2_otf2_event_files_new(int folder, uint64_t chunk_bytes);
void lo2_otf2_event_files_free(lo2_otf2_event_files *files); /* after its writer was freed */
/* The first errno of writing events, and the location that it struck; 0: none. */
int lo2_otf2_events_error(const lo2_otf2_event_files *files, uint64_t *location);

typedef struct {
    uint8_t mode_read, mode_write, mode_flush;
    uint8_t access_read_only, access_write_only, access_read_write;
    uint8_t whence[5];            /* by SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE */
    uint8_t type_uint8, type_uint32, type_uint64, type_int32, type_double, type_string, type_handle;
    uint32_t blocking, non_blocking; /* operation flags */
    uint32_t close_on_exec;       /* status flag */
} lo2_otf2_values;

/* An open(2) flag: set if (flags & mask) == value. */
typedef struct { uint32_t mask, value, creation, status; } lo2_otf2_flag;

typedef struct {
    uint8_t kind;                 /* enum lo2_call_kind */
    uint8_t has_flags;            /* kind OPEN: the row's flags are open(2) flags; else fixed_flags are */
    int32_t fixed_flags;          /* -1: not known (openat2) */
    uint8_t nr_paths;             /* how many of its arguments are paths; their rows may follow in the next batch */
} lo2_otf2_call;

typedef struct {
    uint8_t mode;                 /* of the operation that its requests become */
    uint8_t copies;               /* it reads and writes */
    uint8_t carries_no_data;      /* a poll, a timeout, an open …: its requests are no operations */
} lo2_otf2_opcode;

/* References of the attribute definitions. */
typedef struct {
    uint32_t offset, process_id, thread_id, error, sector, operation, in_flight, access_unknown;
    uint32_t event, device, bytes, request_id, queue_latency, device_latency;
    uint32_t given_path, given_path2;
    uint32_t end_inferred, end_earliest;
    uint32_t inode;
    /* of the page cache */
    uint32_t cache, missed_pages, ahead_pages;
    uint32_t woken_by;
    uint32_t reason, charged_to;
    /* of calls that waited, or sent block requests */
    uint32_t call_id, run_queue, blocked, fuse_requests, fuse_time, nr_requests, first_request, last_request;
    uint32_t call_stack;          /* of calls whose program's stack was taken */
    /* of rings */
    uint32_t ring, user_data, sqe_flags, previous;
    uint32_t path, status, traits, inferred, worker, waker, queued, executing, waiting, work_run_queue, work_blocked;
    uint32_t result, culprit, ring_handle;
    uint32_t ring_request, queue_delay;
    uint32_t asked, wanted, submitted, completed;
    /* of threads that share locations */
    uint32_t life_process, life_thread, life_task;
} lo2_otf2_attributes;

typedef struct {
    lo2_otf2_event_files *files;  /* used while the writer lives */
    lo2_otf2_values values;
    lo2_otf2_attributes attributes;
    const lo2_otf2_flag *flags;   /* read while the writer lives */
    uint32_t nr_flags;
    const lo2_otf2_call *calls;   /* read while the writer lives */
    uint32_t nr_calls;
    const lo2_otf2_opcode *opcodes; /* by number; read while the writer lives */
    uint32_t nr_opcodes;
    /* the first reference for names of devices, operations of block requests, lo2_otf2_texts and given paths */
    uint32_t first_string;
    uint32_t event_strings;       /* the first of four strings: insert, issue, complete, merge */
    uint32_t close_on_exec;       /* O_CLOEXEC of the recorded machine */
    uint8_t begin_end;            /* block requests as operations on the locations of their devices */
    uint8_t samples;              /* block events as samples on the locations of their CPUs */
    uint8_t contexts;             /* calling contexts enter and leave regions; switches and off_cpu are written */
    uint8_t metrics;
    uint8_t sampled;              /* not every ring's request is written: no rate counts their bytes */
    int64_t slow_from_ns;         /* calls that last so long may have a stack of the program; INT64_MAX: none has */
    int64_t start_ns;             /* intervals of metrics begin here */
    int64_t stop_ns;              /* no thread ends later; INT64_MAX: not known yet */
    uint64_t most_own;            /* so many locations belong to a single thread or ring, and so many groups to a
                                     single process; further threads, rings and processes share */
} lo2_otf2_config;

enum lo2_otf2_location_kind {
    LO2_OTF2_TASK = 0,
    LO2_OTF2_DEVICE = 1,
    LO2_OTF2_CPU = 2,
    LO2_OTF2_DEVICE_METRICS = 3,
    LO2_OTF2_PROCESS_METRICS = 4,
    LO2_OTF2_RING_STATES = 5,     /* key: the ring; metrics at turning points of its state ... */
    LO2_OTF2_RING_BATCHES = 6     /* ... and at the ends of calls, whose order is another */
};
/* A stretch without a CPU, where more is known than its state. */
enum lo2_otf2_stretch {
    LO2_OTF2_RUN_QUEUE = 15,      /* after a wakeup */
    LO2_OTF2_REASONS = 16         /* + enum lo2_wait_reason: up to the wakeup */
};
enum lo2_otf2_region_kind {
    LO2_OTF2_CALL = 0,            /* key: the call */
    LO2_OTF2_OFF_CPU = 1,         /* key: enum lo2_off_state, or enum lo2_otf2_stretch */
    LO2_OTF2_REQUEST = 2,         /* key: the device, operation: enum lo2_rq_op */
    LO2_OTF2_RUNNING = 3,         /* key: the task on the CPU */
    LO2_OTF2_STRANGER = 4,        /* key: tid of a thread on a CPU that is not a recorded task */
    LO2_OTF2_RING_WORK = 5,       /* key: the opcode */
    LO2_OTF2_LIFE = 6             /* key: the task to which a shared location belongs */
};
enum lo2_otf2_metric_class { LO2_OTF2_QUEUE_DEPTH = 0, LO2_OTF2_DEVICE_RATES = 1, LO2_OTF2_PROCESS_RATES = 2,
                             LO2_OTF2_RING_LOAD = 3, LO2_OTF2_RING_CQ = 4, LO2_OTF2_BATCH_SIZE = 5,
                             LO2_OTF2_COLLECTED = 6, LO2_OTF2_NR_METRIC_CLASSES = 7 };
enum lo2_otf2_text_kind {
    LO2_OTF2_TEXT_RING = 0,       /* key: the ring */
    LO2_OTF2_TEXT_OPCODE = 1,     /* key: the kernel's number; 255 unknown */
    LO2_OTF2_TEXT_PATH = 2,       /* key: enum lo2_ring_path */
    LO2_OTF2_TEXT_STATUS = 3,     /* key: enum lo2_ring_status */
    LO2_OTF2_TEXT_TRAITS = 4,     /* key: enum lo2_ring_trait bits */
    LO2_OTF2_TEXT_INFERRED = 5,   /* key: enum lo2_ring_inferred bits */
    LO2_OTF2_TEXT_SQE_FLAGS = 6,  /* key: IOSQE_* bits */
    LO2_OTF2_TEXT_CACHE = 7,      /* key: enum lo2_cache_verdict */
    LO2_OTF2_TEXT_REASON = 8,     /* key: enum lo2_write_back_reason */
    LO2_OTF2_TEXT_STACK = 9       /* key: the number of a program's stack */
};
enum lo2_otf2_handle_state {
    LO2_OTF2_CREATED = 1,         /* by an event: not PRE_CREATED */
    LO2_OTF2_DESTROYED = 2,
    LO2_OTF2_STATUS_KNOWN = 4
};

/* Kinds of definitions that events name. */
enum lo2_used_kind { LO2_USED_STRING = 0, LO2_USED_REGION = 1, LO2_USED_CONTEXT = 2, LO2_USED_METRIC = 3,
                     LO2_USED_HANDLE = 4, LO2_NR_USED_KINDS = 5 };
enum { LO2_USED_KIND_SHIFT = 32, LO2_USED_LOCATION_SHIFT = 35, LO2_USED_KIND_MASK = 7 };

typedef struct lo2_otf2_event_file lo2_otf2_event_file;

typedef struct {                  /* its index is the OTF2 location id */
    lo2_otf2_event_file *file;    /* NULL: closed */
    uint8_t kind;                 /* enum lo2_otf2_location_kind */
    uint8_t shared;               /* several threads or rings have it, one after another */
    uint8_t worker;               /* TASK: for workers of rings */
    uint8_t idle, queued;         /* shared: it belongs to no one; it is in the list of those that may be free */
    uint32_t key;                 /* of its first user: row of the tasks table (of a process: its first thread's), ring,
                                     kernel dev_t, or CPU */
    uint32_t user;                /* the task or ring to which it belongs now; UINT32_MAX none */
    uint32_t nr_users;
    uint32_t next_free;           /* next one that may be free; UINT32_MAX none */
    uint32_t process, group;      /* TASK: index of its user's process, and of the process whose group has the location */
    uint32_t nr_open;             /* TASK: requests of rings that its user began and that have not ended */
    uint32_t life;                /* shared TASK: region or context of its user's life; UINT32_MAX none */
    uint32_t curves[2];           /* RING_*: metric instances, by metric class; UINT32_MAX none yet */
    uint32_t pid, tid;            /* of the user; CPU: of the thread on it; UINT32_MAX none */
    uint32_t open_region;         /* region or context of the call under way, or the CPU's thread; UINT32_MAX none */
    uint32_t off_cpu;             /* region or context of a stretch inside open_region; UINT32_MAX none */
    uint32_t metrics;             /* *_METRICS: the meter that writes here; UINT32_MAX none */
    uint32_t handle;              /* DEVICE: its handle; UINT32_MAX none */
    uint32_t waiting, waiting_last; /* first and last of the events that wait for their time */
    uint32_t waiting_place;       /* of these, the last that was put before a later one; UINT32_MAX none, as in the line above */
    uint32_t last_used[5][8];     /* by enum lo2_used_kind and reference % 8: the last definition named; UINT32_MAX none */
    uint32_t held;                /* TASK: the call that is left as soon as its paths are known; UINT32_MAX none */
    uint64_t last_time;
    uint64_t nr_events;           /* valid after lo2_otf2_finish */
} lo2_otf2_location;

typedef struct {                  /* a handle of the engine */
    uint32_t ref;                 /* OTF2's number, in the order of first use; UINT32_MAX: no event names the handle */
    uint16_t status;              /* OTF2 status flags, if STATUS_KNOWN */
    uint8_t state;                /* enum lo2_otf2_handle_state bits */
} lo2_otf2_handle;

typedef struct { uint8_t kind; uint8_t operation; uint32_t key; } lo2_otf2_region; /* its index is the OTF2 region */
/* Its index is the OTF2 calling context; parent UINT32_MAX: none. */
typedef struct { uint32_t region, parent; } lo2_otf2_context;
/* Its index is the OTF2 metric: a class (location UINT64_MAX), or an instance of the class with that reference. */
typedef struct { uint8_t metric_class; uint32_t class_ref; uint64_t location; } lo2_otf2_metric;
/* A text that events name, with the reference of its string. */
typedef struct { uint8_t kind; uint32_t key, ref; } lo2_otf2_text;
/* A path that calls were given: bytes of the view's given_text, with the reference of its string. */
typedef struct { uint64_t offset; uint32_t length, ref; } lo2_otf2_given;
/* A handle of the paradigm io_uring: what the ring makes of an engine's handle, or (UINT32_MAX) the ring itself. */
typedef struct { uint32_t ref, ring, handle; } lo2_otf2_ring_handle;

typedef struct {
    uint32_t number;              /* kernel dev_t */
    uint32_t string;              /* its name; UINT32_MAX unused */
    uint32_t meter;               /* UINT32_MAX none */
    uint64_t location;            /* of its requests; UINT64_MAX none */
    uint64_t metrics_location;    /* UINT64_MAX none */
} lo2_otf2_device;

/* Shared locations that may be free. The first that became free is taken first. UINT32_MAX none. */
typedef struct { uint32_t first, last; } lo2_otf2_pool;

/* A process. The first one stands for all that have no location group of their own. */
typedef struct {
    uint8_t own;                  /* it has a location group */
    uint32_t handle;              /* for sync(2); UINT32_MAX none, as in the next two lines */
    uint32_t meter;
    uint32_t batches;             /* the location that the batches of further rings share */
    lo2_otf2_pool threads, workers, rings;
} lo2_otf2_process;

typedef struct {
    const lo2_otf2_location *locations;
    uint64_t nr_locations;
    const lo2_otf2_handle *handles; /* by the engine's number */
    uint32_t nr_handles;
    uint32_t nr_handle_refs;      /* numbers given out, also to devices and sync(2) */
    const lo2_otf2_region *regions;
    const lo2_otf2_context *contexts;
    const lo2_otf2_metric *metrics;
    const lo2_otf2_device *devices;
    const lo2_otf2_process *processes;
    uint32_t nr_regions, nr_contexts, nr_metrics, nr_devices, nr_processes;
    const uint32_t *strings;      /* 256: by operation << 5 | flags; UINT32_MAX unused */
    uint32_t nr_strings;          /* numbers given out from first_string on, for all kinds */
    const lo2_otf2_text *texts;
    const lo2_otf2_ring_handle *ring_handles;
    uint32_t nr_texts, nr_ring_handles;
    const lo2_otf2_given *given;
    const char *given_text;
    uint32_t nr_given;
    uint8_t uses_cache;           /* some event has an attribute about the page cache */
    uint8_t uses_parts;           /* some request has the inode of its file */
    uint8_t uses_rings;           /* some event has an attribute about rings */
    uint8_t shares_threads;       /* some event has an attribute about threads that share locations */
    uint8_t has_unseen_ends;      /* some event has an attribute about ends that were not seen */
    uint8_t has_wakers;           /* some event has an attribute about wakeups */
    uint8_t has_write_backs;      /* some request has an attribute about write-back */
    uint8_t tells_calls;          /* some call has an attribute about its waits or its requests */
    uint8_t has_stacks;           /* some call has an attribute about its program's stack */
    int64_t first_time_ns, last_time_ns; /* of all events; INT64_MAX and INT64_MIN without any */
    uint64_t nr_clamped;          /* events moved to their predecessor's time on a location */
    const char *failed;           /* what failed */
} lo2_otf2_view;

typedef struct lo2_otf2_writer lo2_otf2_writer;

/* NULL: out of memory. */
lo2_otf2_writer *lo2_otf2_new(const lo2_otf2_config *config);
/* 0, or -1: see the view's failed, and lo2_otf2_events_error. The writer can then only be freed. */
int lo2_otf2_write(lo2_otf2_writer *writer, const lo2_batch *batch);
/* Writes some of the events that wait in memory, if there are many locations. Likewise 0 or -1. */
int lo2_otf2_relieve(lo2_otf2_writer *writer);
/* Makes a location for a thread without calls, or for a CPU without events. */
int lo2_otf2_add_task(lo2_otf2_writer *writer, uint32_t task);
int lo2_otf2_add_cpu(lo2_otf2_writer *writer, uint32_t cpu);
/* Makes locations for threads that have only events which wait for a call. */
int lo2_otf2_add_waiting(lo2_otf2_writer *writer);
/*
 * Closes what is open on a location: at end_ns, or later if its last event is. ended: its thread ended then, not only
 * the trace. Metrics write their last interval.
 */
int lo2_otf2_end_location(lo2_otf2_writer *writer, uint64_t location, int64_t end_ns, uint8_t ended);
/* Closes the event files that are still open. */
int lo2_otf2_finish(lo2_otf2_writer *writer);
/*
 * The definitions that events of each location name, in rising order: location << LO2_USED_LOCATION_SHIFT |
 * enum lo2_used_kind << LO2_USED_KIND_SHIFT | id.
 * Valid as long as the writer, which can then write no more until it forgets them.
 */
const uint64_t *lo2_otf2_used_ids(lo2_otf2_writer *writer, uint64_t *number);
uint64_t lo2_otf2_nr_used(const lo2_otf2_writer *writer);
void lo2_otf2_forget_used(lo2_otf2_writer *writer);
const lo2_otf2_view *lo2_otf2_state(lo2_otf2_writer *writer);
/* A new handle reference that stands for no engine handle. */
uint32_t lo2_otf2_new_handle(lo2_otf2_writer *writer);
/* Gives an engine's handle a reference, unless it has one. */
int lo2_otf2_name_handle(lo2_otf2_writer *writer, uint32_t handle);
/* open(2) flags as OTF2 has them. */
void lo2_otf2_open_flags(const lo2_otf2_writer *writer, uint32_t flags, uint8_t *access, uint32_t *creation, uint32_t *status);
void lo2_otf2_free(lo2_otf2_writer *writer);

/* Definitions of consecutive handles, one row each, in the order of the references. */
typedef struct {
    void *writer;                 /* OTF2_GlobalDefWriter */
    void *write_io_handle, *write_pre_created_state;
    uint32_t first, count;        /* references */
    uint32_t pre_created;         /* the handle flag */
    uint32_t *name, *file, *flags, *status;
    uint8_t *paradigm, *access;   /* access and status: of pre-created handles */
} lo2_otf2_handle_columns;

/* 0, or the OTF2_ErrorCode of the definition that failed. */
int lo2_otf2_define_handles(const lo2_otf2_handle_columns *columns);

/*
 * Callbacks for OTF2_Archive_SetMemoryCallbacks and OTF2_Archive_SetFlushCallbacks. With them, a buffer of libotf2 has
 * one chunk, and libotf2 writes the chunk as soon as it is full. The callbacks need no user data.
 */
void *lo2_otf2_allocate_callback(void);
void *lo2_otf2_free_all_callback(void);
void *lo2_otf2_pre_flush_callback(void);
/* The OTF2_CollectiveCallbacks of an archive whose folder and anchor another OTF2_Archive writes. */
const void *lo2_otf2_other_rank(void);
