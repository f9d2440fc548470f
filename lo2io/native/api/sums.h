/*
 * Sums over system calls, for reports and for the comparison with the kernel's own counts. Python makes the arrays and reads
 * the sums in them; C adds up. Rows are those of the table of operations. Unknown is INT64_MIN or UINT32_MAX, as in
 * api/columns.h.
 */
#ifndef LO2IO_SUMS_H
#define LO2IO_SUMS_H

#include <stdbool.h>

typedef struct {
    size_t nr;
    const uint64_t *id;
    const int64_t *begin_time_ns, *end_time_ns;
    const uint32_t *task;
    const int16_t *call;
    const uint32_t *handle, *handle2, *flags;
    const int64_t *offset_bytes, *bytes_request, *bytes_result;
    const int16_t *error;
} lo2_sum_rows;

/* What follows from a row and is needed by several sums; lo2io/reports/summary/tally.py explains each column. */
typedef struct {
    int64_t *duration_ns, *moved, *device_ns, *queue_ns;
    int32_t *process, *group;
    uint8_t *kind;            /* class of the call */
    bool *ended, *synced;
} lo2_derived_rows;

/* Of a system call. */
typedef struct {
    uint8_t kind;             /* class, unless the file or the flags say otherwise */
    bool reads, writes;       /* bytes */
    bool transfers, copies, locks; /* class by the file; likewise, with two files; class by the flags */
    bool waits, may_wait;     /* for others: always, on pipes and the like */
    uint32_t waits_if, synced_if; /* bits of the flags */
} lo2_call_traits;

/* Stretches of time by task, united: those of task number i are first[i] to first[i + 1]. */
typedef struct {
    const int64_t *starts, *ends;
    const int64_t *before;    /* length of all stretches before each, and of all */
    const int64_t *first;
    int64_t *last;            /* by task: where the last search ended */
} lo2_spans;

typedef struct {
    const int32_t *of_task;   /* number of each task, -1: it has no stretch */
    size_t nr_tasks;
    bool knows_cpu;
    lo2_spans device, either; /* a request at a device; there or in a queue */
    lo2_spans ready, away, unknown, off_cpu, away_or_device, away_or_either; /* with knows_cpu; off_cpu: the first three */
} lo2_call_spans;

/* How rows are looked up. The last entry of an array by task or handle stands for all numbers beyond it. */
typedef struct {
    const int64_t *process_of_task;
    const int32_t *group_of_handle;
    const bool *is_synced;    /* by handle: opened with O_SYNC or O_DSYNC */
    const bool *is_direct;    /* by handle: opened with O_DIRECT */
    size_t nr_tasks, nr_handles, nr_synced, nr_direct;
    const uint8_t *type_of_group;
    const bool *waits;        /* by group: calls on it wait for others */
    uint8_t storage;          /* types up to this one are storage, or unknown */
    const uint8_t *class_of_type;
    const lo2_call_traits *calls;
    lo2_call_spans spans;
} lo2_sum_context;

typedef struct {
    int64_t calls, errors, reads, writes, bytes_read, bytes_written, time_ns;
} lo2_activity_sums;

typedef struct {
    int64_t accesses, small, placed, consecutive, sequential, bytes, first, end, waited, waited_bytes;
    int64_t unaided, unaided_bytes, unaided_ns, alone, last_end_ns, time_ns;
} lo2_access_sums;

typedef struct {
    int64_t opens, syncs, sync_ns, synced_writes, synced_write_ns, locks, lock_ns, locks_refused, short_writes;
    int64_t direct, buffered, misaligned, invalid, turns;
    int64_t way;              /* 1: the last access was with O_DIRECT, 0: without; -1: there was none */
} lo2_group_sums;

typedef struct {
    int64_t calls, errors, total_ns, device_ns, queue_ns, waiting_ns, blocked_ns, preempted_ns, cpu_ns;
} lo2_time_sums;

enum { LO2_NR_ERRNOS = 4096, LO2_NR_SIZES = 65, LO2_NR_CLASSES = 23, LO2_MAX_SLOW = 20, LO2_MAX_COMMON = 65536,
       LO2_NR_LATENCIES = 192 };
/* Classes that sums know by name: CallClass in lo2io/model/tracepoints.py. */
enum lo2_class { LO2_CLASS_READ = 0, LO2_CLASS_WRITE = 1, LO2_CLASS_SYNC = 3, LO2_CLASS_OPEN = 4, LO2_CLASS_LOCK = 11 };

/* Histograms side by side, as reports/summary/histogram.py lays them out. */
typedef struct { int64_t *bins, *total_ns, *min_ns, *max_ns; } lo2_histograms;

typedef struct {
    lo2_sum_context context;
    lo2_activity_sums *by_call, *by_process, *by_group;
    int64_t *thread_ns;       /* by task: time in calls, at least 1 a call */
    int64_t *in_flight;       /* by call */
    int64_t *errnos;          /* by call and errno */
    const int64_t *latency_row; /* by call and class: the histogram */
    lo2_histograms latency;
    lo2_access_sums *accesses[2]; /* reads, writes, by group */
    int64_t *sizes;           /* reads, then writes, by power of two */
    int64_t *ends;            /* by handle: where the last read and the last write ended; -1: there was none */
    lo2_group_sums *groups;
    lo2_time_sums *time;      /* by class */
    int64_t *process_calls, *process_ns; /* by process and class */
    int64_t *process_syncs, *process_sync_ns;
    const bool *passive;      /* by class: never among the slow calls */
    int64_t near_bytes, small_bytes, alignment;
} lo2_tally_config;

typedef struct { int64_t process; int32_t call, kind, error; int64_t calls, time_ns; } lo2_failure;
typedef struct { int64_t size, accesses; } lo2_common_size;
typedef struct {
    uint64_t id;
    int64_t begin_ns, duration_ns, offset_bytes, bytes_request, bytes_result, device_ns, queue_ns;
    uint32_t task;
    int32_t call, group, error;
} lo2_slow_call;

typedef struct {
    const lo2_failure *failures;
    const lo2_common_size *common[2]; /* of reads, of writes: the first LO2_MAX_COMMON sizes */
    size_t nr_failures, nr_common[2];
    const lo2_slow_call *slow; /* longest first; of equals, that with the smaller id */
    size_t nr_slow;
} lo2_tally_view;

typedef struct lo2_tally lo2_tally;

void lo2_derive(const lo2_sum_context *context, const lo2_sum_rows *rows, const lo2_derived_rows *derived);
/* For each call the time that a request was at a device, and that one was only in a queue. */
void lo2_spans_within(const lo2_call_spans *spans, size_t nr, const uint32_t *task, const int64_t *begin_ns,
                      const int64_t *duration_ns, int64_t *device_ns, int64_t *queue_ns);
/* For each text the place of the first equal one; -1: it is empty. ends: nr + 1 bounds. False: no memory. */
bool lo2_number_texts(size_t nr, const int32_t *ends, const uint8_t *texts, int32_t *number);
lo2_tally *lo2_tally_new(const lo2_tally_config *config); /* NULL: no memory */
void lo2_tally_free(lo2_tally *tally);
/* Adds rows in the order of the table. worked: time of each call before it waited; NULL: 0. False: no memory. */
bool lo2_tally_add(lo2_tally *tally, const lo2_sum_rows *rows, const int64_t *worked);
lo2_tally_view lo2_tally_view_of(const lo2_tally *tally);

/* ---- what reads found in the page cache ---- */

/* Columns of the table of calls, or of that of rings' requests. */
typedef struct {
    size_t nr;
    const uint32_t *task, *handle;
    const int64_t *bytes_result;
    const int8_t *cache;
    const uint32_t *cache_missed_pages;
    const int64_t *cache_wait_ns;
} lo2_cache_rows;

/* Sums by process, or by file group. The first two have a place for each verdict. */
typedef struct { int64_t *reads, *bytes, *missed_bytes, *wait_ns; } lo2_cache_sums;

void lo2_cache_add(const lo2_sum_context *context, const lo2_cache_rows *rows, int64_t page_bytes,
                   const lo2_cache_sums *by_process, const lo2_cache_sums *by_group);

/* ---- how much of the time with I/O under way a process computed: docs/explanation/rules/overlap.md ---- */

/* Something begins or ends: a thread's life, a call, a call of I/O, or I/O without a thread. */
enum lo2_moment { LO2_BIRTH, LO2_EXIT, LO2_CALL, LO2_RETURN, LO2_IO_CALL, LO2_IO_RETURN, LO2_IO_BEGIN, LO2_IO_END };
typedef struct { int64_t time_ns, task, what; } lo2_overlap_moment;

/* cpu_ns: UNKNOWN, or on a CPU from birth to exit. born: within the recording. begin_ns > end_ns: not a program's thread. */
typedef struct { int64_t begin_ns, end_ns, cpu_ns, born; } lo2_overlap_thread;

/* io_ns is the sum of the other three. */
typedef struct { int64_t io_ns, overlapped_ns, unoverlapped_ns, unknown_ns; } lo2_overlap_sums;

typedef struct {
    const lo2_sum_context *context;
    const bool *is_io;        /* by class */
    const lo2_overlap_thread *threads; /* by task */
    const lo2_overlap_moment *known;   /* of each process, by time */
    const int64_t *first_known;        /* by process, and after the last one */
    const bool *is_alone;              /* by process: it has one thread and no requests of rings */
    lo2_overlap_sums *by_process;      /* the last one is of unknown processes */
    size_t nr_tasks, nr_processes;
    int64_t start_ns, stop_ns;
} lo2_overlap_config;

typedef struct lo2_overlap lo2_overlap;

lo2_overlap *lo2_overlap_new(const lo2_overlap_config *config); /* NULL: no memory */
void lo2_overlap_free(lo2_overlap *overlap);
/* Adds calls that began at from_ns or later; earlier ones are among the known moments. away_ns: their time without a CPU,
 * UNKNOWN: not known; NULL: unknown of all. False: no memory. */
bool lo2_overlap_add_calls(lo2_overlap *overlap, const lo2_sum_rows *rows, const int64_t *away_ns, int64_t from_ns);
/* Likewise, requests by the task that submitted each. */
bool lo2_overlap_add_requests(lo2_overlap *overlap, size_t nr, const uint32_t *task, const int64_t *begin_ns,
                              const int64_t *end_ns, int64_t from_ns);
/* Writes the moments of calls that began before from_ns, at most two each. `moments` has room. Returns how many. */
size_t lo2_overlap_early(const lo2_overlap *overlap, const lo2_sum_rows *rows, int64_t from_ns, lo2_overlap_moment *moments);
void lo2_overlap_advance(lo2_overlap *overlap, int64_t until_ns); /* nothing begins before that any more */
void lo2_overlap_finish(lo2_overlap *overlap);

/* ---- what the kernel counts in /proc/PID/io ---- */

typedef struct {
    size_t nr;
    const int64_t *end_time_ns, *bytes_result;
    const uint32_t *task;
    const uint16_t *call;
    const int16_t *error;
} lo2_account_rows;

typedef struct {
    int64_t begin_ns, end_ns; /* calls that end from the first to the last of these count */
    const bool *reads, *writes; /* by call: what it adds to */
    size_t nr_calls, nr_tasks;
    int64_t *rchar, *wchar, *syscr, *syscw; /* by task */
} lo2_account_sums;

/* Adds rows. Returns how many are done: all, or those before the first whose task has no place. */
size_t lo2_account_calls(const lo2_account_sums *sums, const lo2_account_rows *rows, size_t from);

/* ---- pictures: lo2io/reports/html/grid.py ---- */

typedef struct { int64_t start_ns, bin_ns, bins, lanes; } lo2_time_grid;
/* Sums over the edges of intervals in a bin. The start of an interval adds to a sum, and its end subtracts. */
typedef struct { int64_t nr, into_ns; } lo2_edge_sums;

/* Add nr amounts, or intervals, to the bins of their lanes. False: there is no such lane. */
bool lo2_grid_add_points(const lo2_time_grid *grid, size_t nr, const int64_t *lanes, const int64_t *times_ns,
                         const int64_t *amounts, int64_t *sums);
bool lo2_grid_add_intervals(const lo2_time_grid *grid, size_t nr, const int64_t *lanes, const int64_t *begin_ns,
                            const int64_t *end_ns, lo2_edge_sums *edges);

/* A row among the smallest of its lane: number counts the rows of all lanes, place is where the caller keeps its columns. */
typedef struct { uint64_t key; int64_t number, place; } lo2_kept_row;
/* By lane: a heap with its largest row first, of so many rows at most, and the number of rows offered; last, that of all. */
typedef struct { lo2_kept_row *heaps; int64_t *seen; int64_t lanes, limit; } lo2_smallest;

/* Offer nr rows. Of equal keys the earlier one is smaller. Writes which rows are kept, and their places: a place may come
 * twice, then the later row has it. Returns how many; -1: there is no such lane. */
ptrdiff_t lo2_smallest_add(const lo2_smallest *smallest, size_t nr, const int64_t *lanes, const uint64_t *keys, int64_t *rows,
                           int64_t *places);
void lo2_scatter_keys(size_t nr, const uint64_t *ids, uint64_t *keys);
/* The bins of latency that pictures have: LO2_NR_LATENCIES, four for a power of two. */
void lo2_latency_bins(size_t nr, const int64_t *durations_ns, int64_t *bins);

/* Lanes of the process and the thread, and the last moment of a call that never ended. */
typedef struct { int64_t process, thread, last_ns; } lo2_task_lanes;
/* By lane and bin. */
typedef struct { int64_t *read, *written; lo2_edge_sums *time; } lo2_activity_grid;

typedef struct {
    const lo2_sum_context *context;
    const lo2_task_lanes *tasks; /* as many as the context's */
    const int64_t *file_lane; /* by group */
    int64_t other_files;      /* the lane of files without one of their own */
    lo2_time_grid heat, fine; /* lanes is not used */
    lo2_activity_grid processes, files; /* of heat */
    lo2_edge_sums *busy;      /* of fine, by thread's lane and class */
    int64_t *latency;         /* of heat, by class and bin of latency */
    lo2_smallest slices, points; /* by thread's lane and class; by file's lane */
} lo2_pictures;

/* The rows that are kept, and their places, as in lo2_smallest_add. The arrays have room for all rows. */
typedef struct { int64_t *rows, *places; size_t nr; } lo2_taken_rows;

/* Requests of rings. */
typedef struct {
    size_t nr;
    const uint64_t *id;
    const int64_t *end_time_ns;
    const uint32_t *task, *handle, *handle2;
    const int64_t *offset_bytes, *bytes_result;
    const bool *reads, *writes;
} lo2_moved_rows;

void lo2_pictures_add_calls(const lo2_pictures *pictures, const lo2_sum_rows *rows, lo2_taken_rows *slices,
                            lo2_taken_rows *points);
void lo2_pictures_add_moved(const lo2_pictures *pictures, const lo2_moved_rows *rows, lo2_taken_rows *points);
#endif
