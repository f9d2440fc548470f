/*
 * The contract between Python and the engine, which decodes, merges and pairs; its tables are those of api/columns.h and
 * api/ring_columns.h, and api/tracepoints.h says what it is told of samples.
 *
 * cffi reads these files (see build.py), so they hold plain declarations only.
 */

enum lo2_stream_kind {
    LO2_STREAM_SAMPLES = 0,   /* a CPU's perf ring */
    LO2_STREAM_FACTS = 1,     /* what /proc said: api/facts.h */
    LO2_STREAM_KERNEL = 2,    /* what the kernel's own programs wrote on a CPU of calls: bpf/programs/records.h */
    LO2_STREAM_EVENTS = 3     /* likewise of the events of tracepoints */
};

typedef struct {
    const char *const *paths; /* files of records, in time order but for rare inversions; each goes on where the one before ends */
    uint32_t nr_paths;
    uint32_t cpu;             /* UINT32_MAX: of none */
    uint8_t kind;             /* enum lo2_stream_kind */
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
    uint8_t records_lost;   /* some records are lacking: a fact tells nothing of what was done before its own call */
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

typedef struct {
    lo2_operation_columns operations;
    lo2_handle_event_columns handle_events;
    lo2_handle_columns handles;
    lo2_file_columns files;
    lo2_path_columns paths;
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
    lo2_iocb_columns iocbs;
    char *text;                 /* paths and names of this batch */
    uint32_t capacity;          /* rows of each column set */
    uint32_t text_capacity;
    uint32_t nr_operations, nr_handle_events, nr_handles, nr_files, nr_paths, nr_tasks, nr_requests, nr_request_events, nr_losses;
    uint32_t nr_completions, nr_switches, nr_off_cpu;
    uint32_t nr_ring_requests, nr_ring_events, nr_ring_works, nr_ring_states, nr_batches, nr_rings,
             nr_iocbs;
    uint32_t text_length;
    uint64_t first_operation;   /* ordinal of row 0 over the whole run */
} lo2_batch;

/* Totals, valid at any time; final when lo2_engine_run returned 0. */
typedef struct {
    uint64_t nr_samples;        /* events, told by samples or by the kernel's own programs: recorded or not */
    uint64_t nr_selected;       /* of them, entries and exits of calls of recorded tasks */
    uint64_t nr_late;           /* out of order beyond repair: moved to the time of their predecessor */
    uint64_t nr_reordered;      /* out of order in their ring, put right */
    uint64_t nr_orphan_exits, nr_orphan_completions;
    uint64_t nr_in_flight_calls, nr_in_flight_requests;
    uint64_t nr_inferred_ends, nr_unknown_ends; /* of block requests, where completions are missing */
    uint64_t nr_lost_records, nr_lost;   /* PERF_RECORD_LOST: how many, and their sum */
    uint64_t nr_throttled;
    uint64_t nr_undecoded;      /* samples of a type no event of the spool has, and records of the kernel's own programs likewise */
    uint64_t truncated_bytes;   /* tails of streams that hold no whole record */
    uint64_t nr_names_verified, nr_names_refused; /* sightings of an fd that did / did not prove a name */
    uint64_t nr_files_told, nr_files_refused; /* sightings by the kernel's own programs that did / did not prove what a descriptor stands for */
    uint64_t nr_own_calls, nr_own_requests; /* lo2io's own, left out of every table (all_tasks mode) */
    uint64_t nr_ring_requests;  /* of recorded threads, sampled or not */
    uint64_t nr_orphan_cqes;    /* of requests that began before the trace, or whose begin was lost */
    uint64_t nr_in_flight_ring_requests;
    uint64_t nr_ring_unclear;   /* events about a request or ring that nobody knows: no story could take them */
    uint64_t nr_gone_in_exec;   /* recorded threads whose last sign was an EXIT amid their exec */
    uint64_t nr_compat_programs; /* execs of recorded 32 bit programs, where mappings were recorded */
    int64_t first_time_ns, last_time_ns;
} lo2_totals;

typedef struct lo2_engine lo2_engine;

/* NULL and a text in error (of error_size bytes) when a stream cannot be read or memory is short. */
lo2_engine *lo2_engine_new(const lo2_config *config, char *error, size_t error_size);
/* The kernel counted more completions of block requests than there are. To be said before the first run. */
void lo2_engine_set_completions_missing(lo2_engine *engine);
/* Fills the batch. 1: call again; 0: this was the last; -1: see lo2_engine_error. */
int lo2_engine_run(lo2_engine *engine, lo2_batch *batch);
const char *lo2_engine_error(const lo2_engine *engine);
const lo2_totals *lo2_engine_totals(const lo2_engine *engine);
/*
 * Where the whole records in a piece of a file begin, in words of 8 bytes; how many there are. Kernel records that were
 * discarded are left out. kind: enum lo2_stream_kind. places: room for one in 8 bytes. end: the byte behind the last one;
 * UINT64_MAX: what follows cannot be framed.
 */
uint64_t lo2_list_records(uint8_t kind, const uint8_t *bytes, uint64_t size, int64_t *places, uint64_t *end);
/* Adds to counts[common_type] for each event of a tracepoint in one stream's file; counts has nr_types places. -1: errno says why. */
int lo2_count_samples(const lo2_stream *stream, uint32_t type_offset, uint64_t *counts, uint32_t nr_types);
/* nr_events counters of samples seen on one CPU stream (index into config.streams). */
const uint64_t *lo2_engine_seen(const lo2_engine *engine, uint32_t stream);
uint64_t lo2_engine_bytes_read(const lo2_engine *engine);
void lo2_engine_free(lo2_engine *engine);
