/*
 * Facts from /proc, as records in the framing of perf (u32 type, u16 misc, u16 size), so that they merge into the
 * stream of samples by time. lo2io/spool/facts.py writes them. Little-endian, 8-byte aligned, strings padded with zero
 * bytes. Times are CLOCK_MONOTONIC.
 */
enum { LO2_FACT_TASK = 0x4c01, LO2_FACT_FD = 0x4c02, LO2_FACT_RING = 0x4c03,
       LO2_FACT_COMMAND = 0x4c04, LO2_FACT_RANK = 0x4c05, LO2_FACT_MAPPING = 0x4c06 };
enum { LO2_FACT_TASK_SELECT = 1,      /* record this task and its descendants */
       LO2_FACT_TASK_FROM_EXEC = 2,   /* ... from the first exec of each on */
       LO2_FACT_TASK_COMPAT = 4 };    /* the process runs a program of 32 bits */

typedef struct {            /* a thread at some moment in [begin_time_ns, time_ns] */
    uint64_t time_ns;       /* end of the look: the record's place in the order */
    uint64_t begin_time_ns;
    uint32_t pid, tid, ppid, flags;
    char comm[16];
} lo2_fact_task;            /* a lo2_fact_cgroup may follow */

typedef struct {            /* the cgroup of the thread's process */
    uint32_t hierarchy;     /* as in /proc/PID/cgroup: 0 is cgroup v2 */
    uint32_t path_length;   /* bytes that follow, before zero bytes up to a multiple of 8 */
} lo2_fact_cgroup;

typedef struct {            /* a file descriptor at some moment in [begin_time_ns, time_ns] */
    uint64_t time_ns;
    uint64_t begin_time_ns;
    uint64_t device, inode; /* st_dev, st_ino */
    int64_t position;       /* INT64_MIN unknown */
    uint32_t pid;
    int32_t fd;
    uint32_t open_flags;    /* O_*, with O_CLOEXEC; UINT32_MAX unknown */
    uint32_t mode;          /* st_mode */
    uint32_t mount;         /* mount id; UINT32_MAX unknown */
    uint32_t path_length;   /* bytes that follow, before zero bytes up to a multiple of 8 */
} lo2_fact_fd;

typedef struct {            /* fdinfo of an io_uring's descriptor at some moment in [begin_time_ns, time_ns] */
    uint64_t time_ns;
    uint64_t begin_time_ns;
    uint32_t pid;
    int32_t fd;
    uint32_t sq_entries, cq_entries; /* 0: not known */
    int32_t poller;         /* tid of the SQ thread; -1: none, or not known */
    uint32_t nr_files, nr_buffers; /* registered; UINT32_MAX: not known */
    uint32_t reserved;
} lo2_fact_ring;            /* follows the lo2_fact_fd of the same descriptor */

typedef struct {            /* a process' /proc/PID/cmdline at some moment in [begin_time_ns, time_ns] */
    uint64_t time_ns;
    uint64_t begin_time_ns;
    uint32_t pid;
    uint32_t cut;           /* 1: the kernel has more bytes than follow */
    uint32_t length;        /* bytes that follow, before zero bytes up to a multiple of 8 */
    uint32_t reserved;
} lo2_fact_command;

typedef struct {            /* the rank in a process' environment at some moment in [begin_time_ns, time_ns] */
    uint64_t time_ns;
    uint64_t begin_time_ns;
    uint32_t pid;
    uint32_t rank;
} lo2_fact_rank;

typedef struct {            /* code that a process had mapped at some moment in [begin_time_ns, time_ns] */
    uint64_t time_ns;
    uint64_t begin_time_ns;
    uint32_t pid;
    uint32_t path_length;   /* bytes that follow, before zero bytes up to a multiple of 8 */
    uint64_t begin, end;    /* addresses */
    uint64_t offset;        /* of the first one in the file */
    uint8_t build_id[20];   /* zeroes: not known */
    uint32_t reserved;
} lo2_fact_mapping;
