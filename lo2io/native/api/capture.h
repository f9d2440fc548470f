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
    uint32_t nr_rings;
    uint32_t type_offset;       /* of common_type (u16) in the raw data */
    uint32_t tid_offset;        /* of common_pid (u32) in the raw data */
    const uint16_t *types;      /* pairs of common_types: of the begin, then of the end */
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
/* Takes bytes just drained from a buffer, in pieces of any length. Returns how many begins and ends are gathered. */
uint32_t lo2_watch_feed(lo2_watch *watch, uint32_t ring, const uint8_t *bytes, uint64_t length);
/* Call when all buffers are drained. Returns the slow ones of what was gathered, at most `room`, and forgets the rest. */
uint32_t lo2_watch_hits(lo2_watch *watch, lo2_hit *hits, uint32_t room);
/* How many begins were forgotten before their ends came, for want of room or because records were lost. */
uint64_t lo2_watch_forgotten(const lo2_watch *watch);
void lo2_watch_free(lo2_watch *watch);

/* ---- buffers that BPF programs write ---- */

struct lo2_bpf_buffer;
/* The position before which all records are finished; `before`, an earlier answer, if programs are writing all the time. */
uint64_t lo2_finished_records(const struct lo2_bpf_buffer *buffer, uint64_t before);

/* ---- messages of libbpf ---- */

/* A libbpf_print_fn_t that keeps warnings, for libbpf_set_print. Not for several threads that load programs at once. */
void *lo2_libbpf_keeper(void);
/* The last 64 KiB of the warnings since lo2_libbpf_forget(). */
const char *lo2_libbpf_messages(void);
void lo2_libbpf_forget(void);
