/*
 * The contract between Python and the engine, which decodes, merges and pairs. api/columns.h and api/ring_columns.h have
 * the engine's tables, api/tracepoints.h describes samples to it.
 *
 * cffi reads these files (build.py), so they hold plain declarations only.
 */

enum lo2_stream_kind {
    LO2_STREAM_SAMPLES = 0,   /* a CPU's perf buffer */
    LO2_STREAM_FACTS = 1,     /* facts from /proc: api/facts.h */
    LO2_STREAM_KERNEL = 2,    /* records of calls that BPF programs wrote on a CPU: bpf/programs/records.h */
    LO2_STREAM_EVENTS = 3     /* events of tracepoints that BPF programs wrote on a CPU */
};

typedef struct {
    const char *const *paths; /* files of records, in time order but for rare inversions; each continues the one before */
    uint32_t nr_paths;
    uint32_t cpu;             /* UINT32_MAX: of no CPU */
    uint8_t kind;             /* enum lo2_stream_kind */
} lo2_stream;

/* Whether the streams have every completion of a block request. */
enum lo2_completions {
    LO2_COMPLETIONS_THERE = 0,
    LO2_COMPLETIONS_MISSING = 1,
    LO2_COMPLETIONS_COUNTED = 2 /* the kernel counted them; the engine compares only when it has to know */
};

/* The layer `cache`. DOUBTFUL: some runs of its programs are missing, and nothing tells when. */
enum lo2_cache_layer { LO2_CACHE_LAYER_OFF = 0, LO2_CACHE_LAYER_ON = 1, LO2_CACHE_LAYER_DOUBTFUL = 2 };

typedef struct {
    uint32_t partition, disk; /* kernel dev_t: a bio names a partition, a request names its disk */
} lo2_partition;

typedef struct {
    int64_t time_ns, monotonic_ns, error_ns; /* spool's clock and facts' clock at one moment, at most error_ns apart */
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
    uint32_t sample_rate;   /* one of so many requests of rings is written; 1: all */
    const lo2_partition *partitions;
    uint32_t nr_partitions;
    uint32_t type_offset, pid_offset; /* of common_type (u16) and common_pid (s32) in the raw data */
    uint8_t ends_unseen;    /* some calls that end descriptors were not recorded: facts of /proc prove nothing about them */
    const char *cgroup;     /* only calls of this cgroup, and of those below it, were recorded; read while the engine lives */
    uint32_t cgroup_length; /* 0: calls of all cgroups were */
    uint8_t records_lost;   /* some records are lacking: a fact proves nothing about the time before its own call */
    uint8_t moves_unseen;   /* some calls that move positions were not recorded: no position is followed */
    uint8_t all_tasks;      /* system mode: all tasks are recorded; else roots and their descendants */
    uint8_t compat_unseen;  /* the calls of programs of 32 bits were not recorded */
    const lo2_sync *syncs;  /* monotonic_ns rises strictly */
    uint32_t nr_syncs;
    int64_t clock_error_ns; /* a fact must lie inside a handle's life by this margin */
    int64_t start_ns;       /* the tracepoints were enabled from then on */
    const uint32_t *own_pids; /* further processes of lo2io itself */
    uint32_t nr_own_pids;
    uint32_t recorder_pid;  /* not recorded in all_tasks mode, unless 0 */
    uint32_t sched_waiting; /* bits of prev_state of a waiting thread; a preempted one has none of them */
    uint32_t sched_blocked; /* of these, the bits of an uninterruptible wait */
    uint8_t cache;          /* enum lo2_cache_layer */
    uint8_t parts;          /* the layer `parts` was recorded */
    uint8_t dirty;          /* the layers `dirty` and `parts` were recorded */
    uint8_t waits;          /* the layer `waits` was recorded: SLEEP tells of stretches without a CPU */
    uint8_t workers;        /* the layers `waits` and `workers` were recorded, and no fact was lost */
    uint8_t faults;         /* the layer `faults` was recorded */
    uint16_t fault_call;    /* index into the calls: what page faults are called */
    const uint8_t *stack_reasons; /* enum lo2_wait_reason of each kernel stack; read while the engine lives */
    uint32_t nr_stacks;
    uint8_t lock_reason;    /* the number of the reason "lock" */
    int64_t stack_from_ns;  /* a stack was taken of each sleep of at least this length */
    const uint8_t *user_stacks; /* of each number of a program's stack: true if its frames are known */
    uint32_t nr_user_stacks;
    int64_t slow_from_ns;   /* the program's stack was taken of some calls of at least this length */
    uint8_t unwinds;        /* copies of stacks, and what tells the mapped files, are handed out: lo2_told */
    uint32_t buffer_bytes;  /* read buffer of one stream */
    uint8_t completions;    /* enum lo2_completions: those of block requests */
    const uint64_t *nr_completions; /* COUNTED: by CPU, the kernel's counts; streams of one kind come in the order of CPUs */
    uint32_t nr_cpus;
} lo2_config;

/*
 * Records that unwinding needs, in the order of time. The bytes of each follow it, padded to a multiple of 8.
 */
enum lo2_told_kind {
    LO2_TOLD_RECORD = 1,    /* a record of perf, or a fact of api/facts.h: which files a process has mapped */
    LO2_TOLD_STACK = 2      /* lo2_kernel_stack_copy, and the copied bytes */
};
typedef struct {
    uint32_t size;          /* of its bytes */
    uint16_t kind;          /* enum lo2_told_kind */
    uint16_t reserved;
    uint32_t row;           /* STACK: of this batch's call_stacks */
    uint32_t reserved2;
} lo2_told;

typedef struct {
    lo2_operation_columns operations;
    lo2_handle_event_columns handle_events;
    lo2_handle_columns handles;
    lo2_file_columns files;
    lo2_path_columns paths;
    lo2_task_columns tasks;
    lo2_request_columns requests;
    lo2_request_event_columns request_events;
    lo2_request_part_columns request_parts;
    lo2_write_back_columns write_backs;
    lo2_commit_columns commits;
    lo2_fault_columns faults;
    lo2_fuse_request_columns fuse_requests;
    lo2_call_stack_columns call_stacks;
    lo2_futex_columns futexes;
    lo2_completion_columns completions;
    lo2_switch_columns switches;
    lo2_off_cpu_columns off_cpu;
    lo2_loss_columns losses;
    lo2_fill_columns fills;
    lo2_eviction_columns evictions;
    lo2_ring_request_columns ring_requests;
    lo2_ring_event_columns ring_events;
    lo2_ring_work_columns ring_works;
    lo2_ring_state_columns ring_states;
    lo2_batch_columns batches;
    lo2_ring_columns rings;
    lo2_iocb_columns iocbs;
    char *text;                 /* paths and names of this batch */
    uint8_t *told;              /* lo2_told, one after the other */
    uint32_t capacity;          /* rows of each column set */
    uint32_t text_capacity, told_capacity;
    uint32_t nr_operations, nr_handle_events, nr_handles, nr_files, nr_paths, nr_tasks, nr_requests, nr_request_events, nr_losses;
    uint32_t nr_completions, nr_switches, nr_off_cpu;
    uint32_t nr_request_parts, nr_write_backs, nr_fills, nr_evictions, nr_commits, nr_faults, nr_fuse_requests, nr_call_stacks, nr_futexes;
    uint32_t nr_ring_requests, nr_ring_events, nr_ring_works, nr_ring_states, nr_batches, nr_rings,
             nr_iocbs;
    uint32_t text_length, told_length;
    uint64_t first_operation;   /* ordinal of row 0 over the whole run */
} lo2_batch;

/* Totals: valid at any time, final when lo2_engine_run has returned 0. */
typedef struct {
    uint64_t nr_samples;        /* events, from samples or from BPF programs: recorded or not */
    uint64_t nr_selected;       /* of these, entries and exits of calls of recorded tasks */
    uint64_t nr_late;           /* out of order beyond repair: moved to the time of the record before */
    uint64_t nr_reordered;      /* out of order in their buffer: put in order */
    uint64_t nr_orphan_exits, nr_orphan_completions;
    uint64_t nr_in_flight_calls, nr_in_flight_requests;
    uint64_t nr_inferred_ends, nr_unknown_ends; /* of block requests, if completions are missing */
    uint64_t nr_lost_records, nr_lost;   /* LOST records of perf and of BPF programs: their number, and the sum of lost events */
    uint64_t nr_lost_rows;      /* ... and the sum of lost records of layers, which are no events */
    uint64_t nr_throttled;
    uint64_t nr_undecoded;      /* events of a type that the spool does not know, and records of BPF programs that cannot be read */
    uint64_t truncated_bytes;   /* ends of streams that hold no whole record */
    uint64_t nr_names_verified, nr_names_refused; /* looks at an fd that proved a name, and that did not */
    uint64_t nr_files_told, nr_files_refused; /* facts of BPF programs that proved which file a descriptor is, and that did not */
    uint64_t nr_own_calls, nr_own_requests; /* lo2io's own, left out of all tables (all_tasks mode) */
    uint64_t nr_ring_requests;  /* of recorded threads, sampled or not */
    uint64_t nr_orphan_cqes;    /* of requests that began before the trace, or whose start was lost */
    uint64_t nr_in_flight_ring_requests;
    uint64_t nr_ring_unclear;   /* events about an unknown request or ring, which belong to no row */
    uint64_t nr_gone_in_exec;   /* recorded threads whose last record was an EXIT in the middle of an exec */
    uint64_t nr_fills_unfollowed; /* runs of pages read ahead, given up because too many waited for their use */
    uint64_t nr_compat_programs; /* recorded 32 bit programs, if compat_unseen: by their exec, or because they ran already */
    uint64_t nr_untold_iocbs;   /* requests that an io_submit took, and of which no record tells */
    int64_t first_time_ns, last_time_ns;
} lo2_totals;

typedef struct lo2_engine lo2_engine;

/* NULL if a stream cannot be read or memory is short; `error` then has a text. */
lo2_engine *lo2_engine_new(const lo2_config *config, char *error, size_t error_size);
/* Fills the batch. 1: call again; 0: this was the last; -1: see lo2_engine_error. */
int lo2_engine_run(lo2_engine *engine, lo2_batch *batch);
const char *lo2_engine_error(const lo2_engine *engine);
const lo2_totals *lo2_engine_totals(const lo2_engine *engine);
/*
 * Lists the starts of the whole records in a piece of a file, in words of 8 bytes. Returns their number. Leaves out
 * records that a BPF program discarded. kind: enum lo2_stream_kind. places: room for one per 8 bytes. end: the byte
 * after the last record; UINT64_MAX: no record can be framed after it.
 */
uint64_t lo2_list_records(uint8_t kind, const uint8_t *bytes, uint64_t size, int64_t *places, uint64_t *end);
/* For each of nr_events, the samples seen on one stream (index into config.streams). */
const uint64_t *lo2_engine_seen(const lo2_engine *engine, uint32_t stream);
uint64_t lo2_engine_bytes_read(const lo2_engine *engine);
void lo2_engine_free(lo2_engine *engine);
