/*
 * What recording itself does natively. As api/lo2io.h, this file holds plain declarations for cffi (see build.py).
 */

/* ---- the kernel's counts at a place in a ring ---- */

typedef struct {
    uint64_t before, after;     /* the ring's head before the event's count was read, and after it */
    uint64_t count, lost;       /* how often it happened; how many of these samples found the ring full */
} lo2_reading;

/* Reads each event's count; head points to data_head in the control page of its ring. -1: errno says why. */
int lo2_read_counts(const int32_t *fds, uint32_t nr, const uint64_t *head, uint8_t has_lost, lo2_reading *readings);

/* ---- block requests or calls that are slow, found while recording ---- */

typedef struct {
    uint32_t nr_rings;
    uint32_t type_offset;       /* of common_type (u16) in the raw data */
    uint32_t tid_offset;        /* of common_pid (u32) there */
    const uint16_t *types;      /* pairs: the common_type of what begins, then of what ends */
    uint16_t nr_pairs;
    const lo2_event *block;     /* how to read issues and completions, then the only pair; NULL: the pairs are calls */
    uint32_t operations;        /* of requests. Bit i: enum lo2_rq_op i is looked at */
    const uint32_t *devices;    /* of requests. Kernel dev_t of those looked at */
    uint32_t nr_devices;        /* 0: all */
    int64_t least_ns;           /* from issue to completion, or from entry to exit */
} lo2_watch_config;

typedef struct {
    uint64_t sector;            /* of a request */
    int64_t begin_ns, end_ns;
    uint32_t owner;             /* a request's device, or the thread that made a call */
    uint16_t pair;              /* place in the configuration's pairs */
    uint8_t operation;          /* of a request: enum lo2_rq_op */
} lo2_hit;

typedef struct lo2_watch lo2_watch;

/* What config points to need not outlive the call. NULL: out of memory. */
lo2_watch *lo2_watch_new(const lo2_watch_config *config);
/* Bytes just drained from a ring, in pieces of any length; returns how many begins and ends are gathered. */
uint32_t lo2_watch_feed(lo2_watch *watch, uint32_t ring, const uint8_t *bytes, uint64_t length);
/* All rings are drained: the slow ones among what was gathered, at most room of them; then that is forgotten. */
uint32_t lo2_watch_hits(lo2_watch *watch, lo2_hit *hits, uint32_t room);
/* How many were forgotten before their ends came, for want of room or because records were lost. */
uint64_t lo2_watch_forgotten(const lo2_watch *watch);
void lo2_watch_free(lo2_watch *watch);

/* ---- rings that the kernel's own programs write ---- */

/*
 * How far records are finished, from `position` on, where one begins: a position as the producer's. data is the ring,
 * of `size` bytes, a power of two.
 */
uint64_t lo2_finished_records(const uint8_t *data, uint64_t size, uint64_t position, const uint64_t *producer);
