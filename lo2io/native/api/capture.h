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

/* ---- block requests that are slow, found while recording ---- */

typedef struct {
    uint32_t nr_rings;
    uint32_t type_offset;       /* of common_type (u16) in the raw data */
    uint16_t issue_type, complete_type;
    uint32_t operations;        /* bit i: enum lo2_rq_op i is looked at */
    const uint32_t *devices;    /* kernel dev_t of those looked at */
    uint32_t nr_devices;        /* 0: all */
    int64_t least_ns;           /* from issue to completion */
} lo2_watch_config;

typedef struct {
    uint64_t sector;
    int64_t issue_time_ns, complete_time_ns;
    uint32_t device;
    uint8_t operation;          /* enum lo2_rq_op */
} lo2_hit;

typedef struct lo2_watch lo2_watch;

/* NULL: out of memory. */
lo2_watch *lo2_watch_new(const lo2_watch_config *config, const lo2_event *issue, const lo2_event *complete);
/* Bytes just drained from a ring, in pieces of any length; returns how many issues and completions are gathered. */
uint32_t lo2_watch_feed(lo2_watch *watch, uint32_t ring, const uint8_t *bytes, uint64_t length);
/* All rings are drained: the slow requests among what was gathered, at most room of them; then that is forgotten. */
uint32_t lo2_watch_hits(lo2_watch *watch, lo2_hit *hits, uint32_t room);
void lo2_watch_free(lo2_watch *watch);

/* ---- rings that the kernel's own programs write ---- */

/*
 * How far records are finished, from `position` on, where one begins: a position as the producer's. data is the ring,
 * of `size` bytes, a power of two.
 */
uint64_t lo2_finished_records(const uint8_t *data, uint64_t size, uint64_t position, const uint64_t *producer);
