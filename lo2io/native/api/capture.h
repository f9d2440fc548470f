/* The native parts of recording. Plain declarations, which cffi reads (build.py). */

/* ---- the kernel's counts at a place in a buffer ---- */

typedef struct {
    uint64_t before, after;     /* the buffer's head before and after the event's count was read */
    uint64_t count, lost;       /* events, and how many of them found the buffer full */
} lo2_reading;

/* Reads each event's count. `head` points to data_head in the control page of the event's buffer. -1: errno. */
int lo2_read_counts(const int32_t *fds, uint32_t nr, const uint64_t *head, uint8_t has_lost, lo2_reading *readings);

/* ---- slow block requests or calls, found while recording ---- */

typedef struct {
    uint32_t nr_rings;          /* buffers; their numbers are from 0 on */
    uint32_t type_offset;       /* of common_type (u16) in the raw data */
    uint32_t tid_offset;        /* of common_pid (u32) in the raw data */
    const uint16_t *types;      /* pairs of common_types: of the start, then of the end */
    uint16_t nr_pairs;
    const lo2_event *block;     /* how to read issues and completions, which are the only pair then; NULL: the pairs are calls */
    uint32_t operations;        /* of requests: bit i watches enum lo2_rq_op i */
    const uint32_t *devices;    /* of requests: kernel dev_t of the watched devices */
    uint32_t nr_devices;        /* 0: all */
    int64_t least_ns;           /* from issue to completion, or from entry to exit */
} lo2_watch_config;

typedef struct {
    uint64_t sector;            /* a request's */
    int64_t begin_ns, end_ns;
    uint32_t owner;             /* a request's device, or a call's thread */
    uint16_t pair;              /* place in the configuration's pairs */
    uint8_t operation;          /* a request's: enum lo2_rq_op */
} lo2_hit;

typedef struct lo2_watch lo2_watch;

/* `config` and all it points to may end after the call. NULL: out of memory. */
lo2_watch *lo2_watch_new(const lo2_watch_config *config);
/*
 * Takes bytes just drained from a buffer, in pieces of any length. `of_programs`: BPF programs write this buffer, not perf.
 * Returns how many starts and ends are gathered.
 */
uint32_t lo2_watch_feed(lo2_watch *watch, uint32_t ring, uint8_t of_programs, const uint8_t *bytes, uint64_t length);
/* Call when all buffers are drained. Returns the slow ones of what was gathered, at most `room`, and forgets the rest. */
uint32_t lo2_watch_hits(lo2_watch *watch, lo2_hit *hits, uint32_t room);
/* How many starts and ends were forgotten or found no room, for want of room or because records were lost. */
uint64_t lo2_watch_forgotten(const lo2_watch *watch);
void lo2_watch_free(lo2_watch *watch);

/* ---- buffers that BPF programs write ---- */

struct lo2_bpf_buffer;
/* The position before which all records are finished; `before`, an earlier answer, if programs are writing all the time. */
uint64_t lo2_finished_records(const struct lo2_bpf_buffer *buffer, uint64_t before);

struct lo2_bpf_cpu;
struct lo2_bpf_counts;
typedef struct {
    int32_t fd;                 /* a perf event that counts, too */
    uint32_t place;             /* of the event's counts */
    uint64_t count;
} lo2_counter;
/* Counts of the events in one buffer. All members are of one moment if `exact`. */
typedef struct {
    uint64_t position;          /* the counts are those of the records before it; all of these are finished */
    uint32_t pending;           /* 1 + index of the call that is counted and has no record yet; 0: none */
    uint8_t exact;              /* nothing happened while all this was read */
} lo2_counted;
/*
 * Reads the counts of the programs' events that have records in one buffer: of calls (`of_samples` 0), or of tracepoints.
 * `before` and `after` get `nr` counts each, read before and after the position. -1: errno; EAGAIN: a program stands still
 * amid its work.
 */
int lo2_count_records(const struct lo2_bpf_cpu *cpu, const struct lo2_bpf_buffer *buffer, uint8_t of_samples, uint32_t nr,
                      struct lo2_bpf_counts *before, struct lo2_bpf_counts *after, lo2_counter *counters,
                      uint32_t nr_counters, lo2_counted *counted);

/* Sets a number that programs add to to 0, and returns it. */
uint64_t lo2_take_number(uint64_t *number);

/* ---- messages of libbpf ---- */

/* A libbpf_print_fn_t that keeps warnings, for libbpf_set_print. Not for several threads that load programs at once. */
void *lo2_libbpf_keeper(void);
/* The last 64 KiB of the warnings since lo2_libbpf_forget(). */
const char *lo2_libbpf_messages(void);
void lo2_libbpf_forget(void);

/* ---- a machine's clocks at one moment ---- */

typedef struct {
    int64_t monotonic_ns, raw_ns, realtime_ns, tai_ns;
    int64_t width_ns;           /* all were read within this time, whose middle is monotonic_ns */
    int64_t tsc_ns;             /* CLOCK_MONOTONIC at about the time when the counter was read; INT64_MIN: it cannot be read */
    uint64_t tsc;               /* the processor's counter: TSC of x86, CNTVCT of Arm */
    int64_t max_error_us, estimated_error_us; /* of CLOCK_REALTIME, by adjtimex(2); INT64_MIN: not known */
    int64_t is_synchronised;    /* somebody (NTP, PTP) sets CLOCK_REALTIME: STA_UNSYNC is not set */
} lo2_clock_reading;

/* The tightest of `nr_tries` readings. */
void lo2_read_clocks(uint32_t nr_tries, lo2_clock_reading *best);
