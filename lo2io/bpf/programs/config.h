/*
 * What lo2io tells the programs before they are loaded, and what they count. Mirrored in lo2io/bpf/loader.py.
 */
#ifndef LO2IO_BPF_CONFIG_H
#define LO2IO_BPF_CONFIG_H

#define LO2_MAX_CALLS 1024   /* numbers of system calls */
#define LO2_MAX_EVENTS 1024  /* events of a spool */
#define LO2_MAX_CPUS 4096
#define LO2_MAX_PREFIX 256
#define LO2_MAX_COMMAND 4096    /* bytes of a command line */
#define LO2_FACTS_ALWAYS 2      /* FILE with every call: where closes are not recorded, nothing told stays true */

/* What of a call is worth reading: from tracepoints/syscalls.toml. Arguments are numbered from 1; 0: it has none. */
enum {
    LO2_CALL_RECORDED = 1,
    LO2_CALL_RETURNS_FD = 2,
    LO2_CALL_MOVES = 4,      /* the file's position, which is read at the exit */
    LO2_CALL_CLOSES = 8,     /* its descriptor is looked at before the call */
    LO2_CALL_DROPPABLE = 16, /* nothing but its own row depends on it: the filters below apply */
    LO2_CALL_BYTES = 32,     /* its result counts bytes */
    LO2_CALL_FIRST = 64,     /* its paths are read before the call */
    LO2_CALL_ENDS = 128      /* may end any descriptors of its table */
};

struct lo2_bpf_call {
    __u16 enter_event, exit_event;   /* common_type */
    __u16 enter_index, exit_index;   /* of the counters */
    __u8 flags, nr_args;
    __u8 fd, fd2;
    __u8 path, path2, dirfd, dirfd2;
    __u8 vector, vector_count;       /* iovecs */
    __u8 how, how_size;              /* struct open_how */
    __u8 iocbs, iocbs_count;
    __u8 events, context;            /* of libaio: where its completions are returned, and from which context */
    __u8 count;                      /* bytes asked for */
    __u8 filled;                     /* bit n: the kernel may write where argument n + 1 points */
};

/* A call of 32 bit programs, and where each argument of the 64 bit call that does the same comes from: the register of the
 * low half (1: ebx), that of the high half << 4 (0: none), flags. From lo2io/catalog/compat_calls.py. */
enum {
    LO2_COMPAT_SIGNED = 1 << 8,
    LO2_COMPAT_PAGES = 1 << 9,
    LO2_COMPAT_LOCK = 1 << 10,       /* a command of fcntl64 */
    LO2_COMPAT_RESULT = 1 << 11      /* points to the result */
};

struct lo2_bpf_compat {
    __u16 call;                      /* 1 + index into calls; 0: not recorded */
    __u8 memory;                     /* register that points to the arguments; 0: they are in registers */
    __u8 nr_given;                   /* words there */
    __u16 args[6];
};

struct lo2_bpf_config {              /* constant while the programs are loaded */
    __u32 recorder;                  /* its pid: never recorded */
    __u8 calls;                      /* CALL, ENTER, EXIT are written; else only facts, for calls that are perf samples */
    __u8 all_tasks;                  /* else the processes in the map `selected`, and their children */
    __u8 one_cgroup;                 /* only the cgroup in the map `cgroup` and those below it */
    __u8 facts;                      /* FILE, PATH, SQE, IOCB, EVENTS are written */
    __u8 compat;                     /* the numbers of 32 bit calls are known */
    __u64 min_latency_ns;            /* shorter calls are left out, if droppable; 0: none */
    __s64 min_bytes;                 /* likewise, calls that ask for fewer; 0: none */
    __u32 nr_devices;                /* likewise, of files on other devices (s_dev); 0: all */
    __u32 devices[16];
    __u32 prefix_length;             /* likewise, of files whose path does not begin so; 0: all */
    char prefix[LO2_MAX_PREFIX];
};

struct lo2_bpf_counts {              /* per event and CPU */
    __u64 count;                     /* it happened in what is recorded */
    __u64 lost;                      /* for want of room in the ring */
    __u64 left_out;                  /* by the filters above */
};

struct lo2_bpf_misses {              /* per CPU */
    __u64 facts_lost;                /* records of facts, for want of room in the ring */
    __u64 unreadable;                /* strings and arrays in the program's memory that were not there */
    __u64 unpaired;                  /* entries whose thread left the CPU unseen */
    __u64 skipped;                   /* runs that found another one at work on the CPU */
    __u64 foreign;                   /* calls whose numbers are not known: of other ABIs than the machine's own */
};
#endif
