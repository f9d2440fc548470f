/*
 * The engine's state. Every room may read all of it. The header of the file that owns a part declares the functions
 * that change the part.
 */
#ifndef LO2IO_STATE_H
#define LO2IO_STATE_H

#include "hash/hash.h"
#include "input/fields.h"
#include "input/stream.h"

typedef struct lo2_engine engine;

/* ---- descriptors: tables of slots, the handles in them, the open file descriptions behind those ---- */

typedef struct {
    uint32_t refs, number, file;
    uint32_t moving;              /* pending calls and requests of rings that move the position */
    int64_t position, last_moved; /* position UNKNOWN: not known */
    uint8_t overlapped;           /* calls that move the position have overlapped since `moving` was last 0 */
    uint32_t open_flags;          /* NONE: unknown */
    /*
     * `ring`: index + 1 of the ring to which this description belongs; 0: no known ring. `ring_number`: the ring's
     * number, because indices are used again.
     */
    uint32_t ring, ring_number;
    uint32_t ring_fact;           /* index + 1 of an fdinfo fact about a ring that is not known yet */
    uint8_t append;               /* enum appends */
    uint8_t foreign;              /* somebody else moves the position too, or there is none: never followed again */
    uint8_t name_source;
    bool has_identity;            /* a BPF program identified the description: the next two lines are known */
    uint32_t generation;          /* ... of the inode */
    uint64_t address, device, inode;
    int64_t first_use;            /* the first call on it, or its opening; UNKNOWN: none was seen */
    uint8_t cached;               /* enum cached */
} description;

typedef struct {
    uint32_t refs;                /* slots (own and inherited), pending calls, iocbs, places of registered files */
    uint32_t number, description, parent, process, task, open_flags;
    int32_t fd;
    int64_t open_time;
    uint8_t origin, used, ended;
} handle;

/*
 * A place in a table of descriptors. Another thread of the table can end what the slot holds while a call looks it up:
 *
 * `ending`    pending calls that may end what the slot held when they began
 * `blind`     those of `ending` that may also end what comes into the slot later: they found it empty, fill it, or
 *             began during another end
 * `settled`, `blind_settled`   when the last call of each kind was left
 * `spent`     closes of `ending` that have freed the slot. A call that returns the free number proves that they have
 * `tainted`   a blind end began during a close that is not spent. It may have freed the slot in place of the close, so
 *             no result proves the close spent any more
 * `installs`  how often a call has returned the free number
 */
typedef struct { int64_t since, settled, blind_settled; uint32_t handle; uint16_t ending, blind;
                 uint16_t spent, installs;
                 uint16_t movers; /* pending calls that move the position of what the slot holds, or will hold */
                 uint8_t cloexec; bool inherited : 1, tainted : 1; } slot;
typedef struct {
    uint32_t refs;
    uint64_t address;             /* in the kernel; 0: not told yet */
    int64_t since;
    uint32_t ranges;              /* pending close_range calls; `ranges_settled`: when the last of them was left */
    int64_t ranges_settled;
    VEC(slot) slots;
} fd_table;

enum appends { APPENDS_NOT = 0, APPENDS = 1, APPENDS_MAYBE = 2 };
enum { WRITE_APPENDS = 0x10, WRITE_NEVER_APPENDS = 0x20 }; /* RWF_APPEND, RWF_NOAPPEND in include/uapi/linux/fs.h */

/* Tells whether a write appends: its own flags prevail over the file's O_APPEND. Linux appends whatever the offset is (BUGS of pwrite(2)). */
static inline uint8_t write_appends(uint32_t flags, uint8_t by_file)
{
    return flags & WRITE_NEVER_APPENDS ? APPENDS_NOT : flags & WRITE_APPENDS ? APPENDS : by_file;
}

#define TID_LIMIT (4u << 20) /* the kernel's PID_MAX_LIMIT on 64 bit, include/linux/threads.h */

/* ---- threads and processes ---- */

/* What a call, or a request of a ring, did in the page cache so far. */
typedef struct {
    uint32_t first, last, count;  /* runs of pages: index + 1, 0: none */
    int64_t wait_ns;              /* waits for I/O */
    bool apart;                   /* runs are not joined */
    bool waited, unseen, cut;     /* unseen: the start or end of a wait is lacking; cut: further runs found no room */
} cache_deeds;

typedef struct {
    uint8_t verdict;              /* enum lo2_cache_verdict */
    uint32_t missed, ahead;       /* pages; NONE: not known */
    int64_t wait_ns;
} cache_result;

typedef struct {
    bool active;
    uint16_t call, cpu;
    int64_t begin, offset;
    int64_t position;             /* the description's at entry */
    int64_t told_position, told_value; /* told by a BPF program (lo2_kernel_call) */
    uint64_t count, address;      /* 0: the call has no address */
    uint32_t flags;
    int32_t fd, fd2;
    uint32_t handle, handle2;     /* indices of handles, with a reference held, or NONE */
    bool has_fd, counts_bytes;
    bool positioned;              /* the offset is an argument */
    bool flags_told;              /* a BPF program told the `flags` of open, which no argument has */
    int64_t off_begin;            /* the thread has had no CPU since then; UNKNOWN: it has one, as far as is known */
    int64_t off_end;              /* SLEEP: the end of its last stretch, or UNKNOWN */
    uint8_t off_state;            /* enum lo2_off_state */
    bool unseen;                  /* the end of one of its stretches, or a whole one, was not seen */
    int64_t run_queue, blocked;   /* parts of its stretches up to now */
    /* counted in `moving` of the description of handle (bit 0) or handle2 (1), in `movers` of their slots (2, 3) */
    uint8_t moves;
    uint8_t doubtful;             /* bit 0, 1: handle, handle2 may have been exchanged during the call */
    uint8_t first_use;
    uint8_t confirmed;            /* bit 0, 1: a fact about this very call told what handle, handle2 is */
    uint8_t claimed;              /* bit 0, 1: this call's row is the first to name handle, handle2 */
    uint8_t ends;                 /* enum ends: how the call is counted in the slot or table that it may end */
    uint16_t installs;            /* `installs` of the slot that it ends, at the call's entry */
    uint32_t made;                /* the handle that the call put into a slot, or NONE */
    int64_t found_since;          /* `since` of what the call's result replaced in the slot; UNKNOWN: the slot was empty */
    cache_deeds deeds;
} pending_call;

enum ends { ENDS_NOTHING = 0, ENDS_FD = 1, ENDS_FD_BLINDLY = 2, ENDS_RANGE = 3 };

/* What a call of a ring, or of libaio, has met since its entry. */
typedef struct {
    uint64_t context;             /* libaio: address of the context */
    uint64_t posted;              /* the ring's CQEs when the call's ring became known */
    uint64_t own, others;         /* CQEs that this thread posted; CQEs of others when this thread last did something */
    int64_t sleep_time;
    uint32_t ring, ring_number;   /* index + 1, 0: not known */
    uint32_t wanted, nr_requests;
    uint32_t poller;              /* io_uring_setup: number of the thread born in it */
} ring_call;

/* The call that a thread left last. Facts that follow, and whose time is not after `end`, belong to it. */
typedef struct {
    int64_t begin, end, result;   /* begin UNKNOWN: the entry was not seen */
    uint16_t call;
    bool completed;               /* the exit was seen; else `end` is when the call was given up */
    uint64_t operation;           /* id of its row; 0: it has none */
    bool has_stack;               /* the program's stack is told already */
    uint8_t next_place;           /* of its paths: they come in their order */
} left_call;

typedef struct {
    uint32_t number, process, tid, table;
    uint32_t older, newer;        /* neighbours in the list of the process' living tasks, in the order in which they became known */
    int64_t start;
    char comm[16];
    char path[64];                /* argument of the pending open, where the kernel gives the string */
    uint32_t path_length;
    uint32_t nr_requests;         /* its own block requests under way */
    int64_t request_gone;         /* end of the request that ended last */
    bool alive;
    bool in_exec;                 /* no record of the task has come since the COMM of its exec */
    int64_t exec_exit;            /* time of an EXIT amid the exec, if no record has come since; UNKNOWN: none */
    bool serves;                  /* the kernel made it for a ring: it never runs in user mode */
    bool ring_worker;
    uint32_t owner, owner_number; /* of a worker: tid and number of the thread for which it executes */
    uint32_t nr_workers;          /* living workers that execute for this thread */
    uint32_t ring_uses;           /* index + 1 of the first ring to which it submits */
    pending_call pending;
    left_call left;
    int64_t io_wait;              /* it has waited for I/O since then; 0: it does not */
    uint32_t fault_sleeps;        /* the layer `faults`: stretches outside of calls, index + 1, 0: none; and how many */
    uint32_t nr_fault_sleeps;
    cache_deeds fault_deeds;      /* ... runs of pages outside of calls */
    int64_t fault_deeds_from;     /* ... runs of pages before this time were given up */
    uint32_t held, held_last;     /* first and last fact about the pending call, which wait for its exit: index + 1, 0: none */
    ring_call ring_call;          /* while a call of a ring is pending */
    uint32_t iocbs, last_iocb;    /* first and last iocb that its io_submit is about to submit: index + 1 */
    uint32_t fuse_first, fuse_last; /* first and last FUSE request of the pending call: index + 1, 0: none */
    uint32_t told;                /* number + 1 of the description of the last fact about a request; 0: that fact proved nothing */
    lo2_kernel_usage usage; /* all bits set: not told */
} task;

/* libaio's contexts that were made and not used yet. Nothing tells which context is which. */
typedef struct { int64_t time; uint32_t nr, nr_events, task; bool differ, unsure; } aio_setups;

typedef struct {
    uint32_t number, pid, ppid, parent_number, nr_tasks;
    uint32_t oldest, newest;      /* first and last of its living tasks */
    uint32_t cgroup, hierarchy;   /* its path, or NONE; the hierarchy in which the process is followed */
    int64_t cgroup_since;         /* when an event moved the process; UNKNOWN: no event has */
    uint32_t command;             /* the arguments, with a zero byte between them, or NONE */
    bool command_cut;             /* lo2io read only a part of the arguments */
    int64_t command_since;        /* the last exec; UNKNOWN: none was seen */
    uint32_t rank;                /* in its job, by its environment or its parent's; NONE: none is known */
    uint32_t rings;               /* index + 1 of its first ring */
    uint32_t nr_forks, nr_serving; /* processes that it has made; its tasks that serve rings */
    aio_setups aio;
    bool recorded, from_exec;
    bool compat;                  /* it runs a program of 32 bits, which has been counted */
    bool fresh;                   /* its whole address space was seen: the process or its exec began in the trace */
} process;

typedef struct { uint32_t refs, length, chain; char *text; } shared_text;

/* Inodes that were shown, and their files. */
typedef struct { uint64_t device, inode; uint32_t generation, file; bool used; } known_inode;
typedef struct { known_inode *at; uint32_t count, room; } inode_table;

/* ---- the page cache ---- */

/* Where reads of a file find their data. BELOW: in the page cache, under another file's name (overlayfs). */
enum cached { CACHED_UNKNOWN = 0, CACHED_NOT = 1, CACHED_MEMORY = 2, CACHED_PAGES = 3, CACHED_BELOW = 4, CACHED_DEVICE = 5 };
typedef struct { uint64_t device, inode; uint32_t generation, file; uint8_t cached; bool direct, flags_known; } cache_file;

/* Pages that a thread put into the page cache, or took out of it, one after the other. */
typedef struct { uint64_t device, inode, first; int64_t time; uint32_t pages, page_bytes, generation, next; uint16_t mode;
                 bool evicts; } page_run;
typedef struct { int64_t time; uint64_t cause, device, inode, first, first_use; uint32_t task, tid, file, pages, page_bytes, used;
                 uint8_t why; } cache_fill;
typedef struct { int64_t time; uint64_t cause, device, inode, first; uint32_t task, tid, file, pages, page_bytes; } cache_eviction;

/* ---- block requests ---- */

typedef struct request {
    struct request *chain, *older, *newer;
    uint64_t id, sector, rest;    /* key sector and sectors still to complete */
    uint64_t ring_request;        /* id of the ring's request that caused this one; 0: none, or not known */
    uint64_t issued_sector;
    uint32_t device, task, pid, tid;
    uint32_t task_index;          /* where the task was; that place may hold another task by now */
    int64_t call;                 /* start of the call in which the thread sent it; UNKNOWN: none */
    int64_t begin, insert, issue, complete, bytes_request, bytes_issued, bytes_result;
    int64_t end_latest;           /* of an end that was not seen: no later than this */
    int32_t error;
    uint16_t flags, nr_requeues, nr_merges, nr_completions;
    uint8_t operation, end_proof, reason;
    bool issued, written, was_requeued;
    bool parts_told, parts_cut, parts_ended; /* cut: it has further parts; ended: the following are known */
    bool has_charges;
    uint64_t inode;               /* of the only file; 0: there are several, or none */
    uint32_t charged;             /* tid of the only thread that caused its writes; 0: there are several, or not known */
    uint32_t first_part, last_part; /* index + 1; 0: none */
} request;

typedef struct { lo2_kernel_part part; uint32_t next; } held_part;
typedef struct { uint64_t request, sector; lo2_kernel_part part; uint32_t file; uint16_t number; bool cut; } part_row;
typedef struct { uint64_t request, device, inode, bytes; int64_t offset, call, first_dirtied, last_dirtied, issue, complete;
                 uint32_t task, tid, file, generation; uint16_t number; uint8_t charged; } write_back;

/* A worker of the kernel that writes pages back. */
typedef struct { int64_t since; uint32_t tid; uint8_t reason; } flusher;

typedef struct { lo2_kernel_fault record; uint64_t operation, request; int64_t end, run_queue, blocked; uint32_t task, file, filled;
                 bool inside, known; } fault_row;

/* A stretch without a CPU outside of calls: it may belong to a page fault that is told later. */
typedef struct { lo2_kernel_sleep told; uint32_t next; } held_sleep;

/* A part of a read request that is at the device, or was there lately. */
typedef struct { uint64_t request, device, inode; int64_t offset, issue; uint32_t generation, bytes, tid; } carried_part;

/* A commit of a journal, and when it met each of enum lo2_commit_moment; UNKNOWN: not seen. */
typedef struct { int64_t met[LO2_COMMIT_MOMENTS]; uint32_t device, transaction, tid; } commit;

typedef struct {
    uint64_t operation;           /* 0: of no call */
    uint32_t stack, size;         /* of the bytes that are handed out with it */
    uint16_t kind;                /* enum lo2_told_kind */
} stack_entry;
typedef struct { uint64_t operation, address; } futex_row;
/* in_call: the row of the call that sent it is not known yet. The links are index + 1, 0: none. */
typedef struct {
    uint64_t unique, operation;
    int64_t begin, end;
    uint32_t connection, sent, replied, error, task, tid;
    uint32_t task_index;          /* where the task was; that place may hold another task by now */
    uint32_t older, newer;        /* neighbours among the living */
    uint32_t chain;               /* the next one of its bucket whose end is not known */
    uint32_t next_of_call;
    uint8_t opcode;
    bool in_call;
} fuse_row;

/* A thread at one moment; task NONE: not known. */
typedef struct { uint32_t task, task_index, pid, tid; bool recorded; } submitter;
typedef struct { uint32_t device; submitter who; } flush_bio;

typedef struct {
    request **buckets;
    uint32_t nr_buckets, nr_live;
    request *oldest, *newest, *spare;
    request *ended, *last_ended;  /* requests whose end was not seen, and whose rows wait for room: a list by `newer` */
    uint32_t nr_of_rings;         /* how many living ones were caused by requests of rings */
    VEC(flush_bio) flush_bios;    /* flushes that were asked for and not issued yet */
} request_set;

/* ---- rows that wait for room in a batch ---- */

typedef struct { uint32_t handle, process, task, parent, description, file, open_flags; int32_t fd;
                 uint8_t origin, name_source, cloexec, used; int64_t open_time, close_time; } handle_row;
typedef struct { uint64_t before; int64_t time; uint32_t task, handle; uint8_t kind; uint32_t flags; } handle_event_row;
/* The facts that tell files apart (device, inode, generation, mount, path), and others about a file. */
typedef struct { uint64_t device, inode; int64_t generation; /* UNKNOWN: not known */ uint32_t mode, mount, links, path_length;
                 uint8_t source; } file_facts;
typedef struct { uint32_t file; file_facts facts; char *path; } file_row;
typedef struct { uint64_t operation; uint32_t path_length, directory_length; uint8_t place, source; char *texts; } path_row;
typedef struct { uint32_t task, process, pid, tid, ppid, parent_process; int64_t start, exit; char comm[16];
                 /* each with a reference */
                 uint32_t cgroup, command, rank; uint8_t kind, command_cut; lo2_kernel_usage usage; } task_row;

/* Calls into a room whose headers the caller must not include. The engine fills all of them in before it reads a record. */
typedef struct {
    void (*descriptor_ended)(lo2_engine *e, const description *d, bool surely); /* a descriptor of a ring */
    /* its last reference is gone */
    void (*description_gone)(lo2_engine *e, uint32_t description_index);
    void (*ring_request_completed)(lo2_engine *e, uint64_t id, int64_t submit, int64_t time);
} listeners;

/* Records are lacking after `begin` (UNKNOWN: from the first on) and before `end`. */
typedef struct { int64_t begin, end; } gap;

/* A copy of a record that waits for the exit of its thread's call (calls/kernel_facts.c). */
typedef struct { uint8_t *record; uint32_t size, next; } held_fact;

/* A stream, and the time of its next record. */
typedef struct { int64_t time; stream *s; } stream_head;

struct lo2_engine {
    lo2_config config;
    listeners tell;
    lo2_event *events;            /* by common_type */
    uint32_t *min_raw;            /* bytes of raw data that an event's fields need */
    uint32_t common_bytes;        /* bytes of raw data that common_type and common_pid need */
    lo2_call *calls;
    stream *streams;
    stream_head *heap;            /* the earliest first */
    uint32_t heap_count;
    uint64_t *seen;               /* nr_streams x nr_events */
    facts_clock clock;
    lo2_totals totals;
    lo2_batch *batch;
    uint64_t next_id, nr_operations;
    bool finishing, out_of_memory, started;
    bool rows_wait;               /* in a queue for the batch, or rings in a list that may be too long (rings_flush) */
    uint8_t completions;          /* enum lo2_completions, as far as is known */
    uint32_t finish_task;
    char error[256];

    uint32_t *task_by_tid;        /* index + 1, 0: none */
    uint32_t *process_by_pid;
    int64_t *exit_by_tid;         /* time of the tid's last exit, 0: none */
    uint32_t *pid_by_tid;         /* pid + 1 of the tid's first TASK fact, 0: it has none */
    VEC(task) tasks;
    VEC(uint32_t) free_tasks;
    VEC(process) processes;
    VEC(uint32_t) free_processes;
    uint32_t next_task, next_process;
    VEC(shared_text) texts;
    VEC(uint32_t) free_texts;
    uint32_t *text_buckets;     /* index + 1 */

    VEC(fd_table) tables;
    uint64_t nr_records, slots_room; /* records read so far; slots for which all tables together have room */
    VEC(uint32_t) free_tables;
    VEC(handle) handles;
    VEC(uint32_t) free_handles;
    VEC(description) descriptions;
    VEC(uint32_t) free_descriptions;
    uint32_t next_handle, next_description;

    VEC(char) name;               /* room in which a name is put together */
    VEC(hash_digest) files;       /* all files: index is the file's number */
    uint32_t *file_buckets;       /* open addressing: index + 1 */
    uint32_t nr_file_buckets;

    VEC(gap) gaps;                /* in order and apart from each other, if they are known beforehand */
    uint32_t gaps_passed;
    bool gaps_known;
    int64_t gap_mark;             /* records of this time or later must be compared with the gaps */
    int64_t lost_until;           /* end of the last gap that has begun; UNKNOWN: none has */

    VEC(held_fact) held_facts;
    VEC(uint32_t) free_held_facts;

    uint32_t page_bytes;          /* 0: no run was seen yet */
    VEC(page_run) page_runs;
    VEC(uint32_t) free_page_runs;
    struct page_uses *uses;       /* NULL: nobody has read ahead */
    VEC(cache_fill) fill_queue;
    VEC(cache_eviction) eviction_queue;
    uint32_t fills_out, evictions_out;

    request_set requests;
    inode_table inodes;
    VEC(held_part) parts;
    VEC(uint32_t) free_parts;
    VEC(part_row) part_queue;
    uint32_t parts_out;
    struct dirty_pages *dirty;    /* NULL: nobody has dirtied a page */
    VEC(flusher) flushers;
    VEC(write_back) write_back_queue;
    uint32_t write_backs_out;
    VEC(commit) commits;          /* under way: one for each journal's thread */
    VEC(commit) commit_queue;
    uint32_t commits_out;
    VEC(fault_row) fault_queue;
    uint32_t faults_out;
    VEC(held_sleep) held_sleeps;
    VEC(uint32_t) free_held_sleeps;
    VEC(carried_part) carried;    /* the newest ones, each at its number modulo MOST_CARRIED (block/parts.c) */
    uint32_t nr_carried;
    VEC(stack_entry) stack_queue;
    VEC(uint8_t) told_bytes;      /* of the entries, one after the other */
    uint32_t stacks_out, told_out;
    VEC(futex_row) futex_queue;
    uint32_t futexes_out;
    VEC(fuse_row) fuse_live;
    VEC(uint32_t) free_fuse_live;
    uint32_t fuse_oldest, fuse_newest, nr_fuse_live; /* index + 1, 0: none */
    uint32_t *fuse_buckets;       /* index + 1; NULL: no request was sent */
    VEC(fuse_row) fuse_queue;
    uint32_t fuse_out;
    struct ring_set *rings;       /* NULL: none is known */
    struct ring_request_set *ring_requests;
    struct iocb_set *iocbs;       /* NULL: none is known */

    VEC(file_row) file_queue;
    VEC(handle_row) handle_queue;
    VEC(handle_event_row) event_queue;
    VEC(task_row) task_queue;
    VEC(path_row) path_queue;
    uint32_t files_out, handles_out, events_out, tasks_out, paths_out;
};

/* Room for a further row in a queue that flush (engine/engine.c) empties; false if memory is short. */
#define ROW_ROOM(e, queue) ((e)->rows_wait = true, VEC_ROOM(&(queue), (queue).count + 1))

static inline bool is_recorded(const engine *e, const task *t) { return e->processes.at[t->process].recorded; }

/* In all_tasks mode, processes of lo2io itself are left out and not followed. */
static inline bool is_own(const engine *e, const task *t)
{
    return e->config.all_tasks && !is_recorded(e, t) && !e->processes.at[t->process].from_exec;
}

static inline description *description_of(engine *e, uint32_t handle_index)
{
    return &e->descriptions.at[e->handles.at[handle_index].description];
}

#endif
