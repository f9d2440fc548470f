/*
 * The engine's state: what each room keeps, so that all may read it. Who changes what, the headers beside say: each
 * declares what the file of its name does.
 */
#ifndef LO2IO_STATE_H
#define LO2IO_STATE_H

#include "input/fields.h"
#include "input/stream.h"

typedef struct lo2_engine engine;

/* ---- descriptors: tables of slots, the handles in them, the open file descriptions behind those ---- */

typedef struct {
    uint32_t refs, number, file;
    uint32_t moving;              /* pending calls that move the position */
    int64_t position, last_moved; /* position UNKNOWN: not known */
    uint8_t overlapped;           /* such calls overlapped since moving was 0 */
    uint32_t open_flags;          /* NONE: unknown */
    uint32_t ring, ring_number;   /* index + 1 of the ring it is, 0: none that is known; and its number, for slots are used again */
    uint32_t ring_fact;           /* what fdinfo said, for a ring not known yet: index + 1 */
    uint8_t append;               /* enum appends */
    uint8_t foreign;              /* moved by others too, or no position at all: never followed again */
    uint8_t name_source;
    bool has_identity;            /* the kernel's own programs have told which one it is: */
    uint32_t generation;          /* ... of the inode */
    uint64_t address, device, inode;
    int64_t first_use;            /* of a call on it, or its opening; UNKNOWN: none that was seen */
} description;

typedef struct {
    uint32_t refs;                /* slots (own and inherited) and pending calls */
    uint32_t number, description, parent, process, task, open_flags;
    int32_t fd;
    int64_t open_time;
    uint8_t origin, used, ended;
} handle;

/*
 * What shares a table can end a slot while somebody else's call is about to find out what is in it. `ending`: pending
 * calls that may end what is there; `blind`: of them, those that may end what is put there meanwhile, too (the slot was
 * thought empty at their entry, or they put something there). When the last one of each was left. A close that is not blind
 * is `spent` once its number has been given to somebody else, for then it had freed it; unless it is `tainted`: a blind one
 * came meanwhile, which may have freed it instead. `installs`: how often a number was given that way.
 */
typedef struct { int64_t since, settled, blind_settled; uint32_t handle; uint16_t ending, blind;
                 uint16_t spent, installs;
                 uint16_t movers; /* pending calls that move the position of what is there, or will be */
                 uint8_t cloexec; bool inherited : 1, tainted : 1; } slot;
typedef struct { uint32_t refs; uint64_t address; /* the kernel's; 0: not told yet */ int64_t since; uint32_t ranges; int64_t ranges_settled; /* of close_range, as `blind` */
                 VEC(slot) slots; } fd_table;

enum appends { APPENDS_NOT = 0, APPENDS = 1, APPENDS_MAYBE = 2 };

#define TID_LIMIT (4u << 20) /* the kernel's PID_MAX_LIMIT on 64 bit, include/linux/threads.h */

/* ---- threads and processes ---- */

typedef struct {
    bool active;
    uint16_t call, cpu;
    int64_t begin, offset;
    int64_t position;             /* the description's at entry */
    int64_t told_position, told_value; /* by the kernel's own programs, of lo2_kernel_call */
    uint64_t count;
    uint32_t flags;
    int32_t fd, fd2;
    uint32_t handle, handle2;     /* handle indices with a reference held, or NONE */
    bool has_fd, counts_bytes;
    bool positioned;              /* the offset is an argument */
    bool flags_told;              /* `flags` are those of open(2), though no argument has them */
    int64_t off_begin;            /* without a CPU since then; UNKNOWN: it has one, as far as is known */
    uint8_t off_state;            /* enum lo2_off_state */
    uint8_t moves;                /* bit 0: counted in `moving` of handle's description, 1: of handle2's; 2, 3: in their slots' `movers` */
    uint8_t doubtful;             /* bit 0, 1: what handle, handle2 was thought to be may have been exchanged meanwhile */
    uint8_t first_use;
    uint8_t confirmed;            /* bit 0, 1: a fact about this very call has told what handle, handle2 is */
    uint8_t claimed;              /* bit 0, 1: no row has named handle, handle2 before */
    uint8_t ends;                 /* enum ends: what it counts as, of others' in its table */
    uint16_t installs;            /* of the slot that it ends, at its entry */
    uint32_t made;                /* handle that it has put there, or NONE */
    int64_t found_since;          /* what its result was put in the place of was there since then; UNKNOWN: nothing was */
} pending_call;

enum ends { ENDS_NOTHING = 0, ENDS_FD = 1, ENDS_FD_BLINDLY = 2, ENDS_RANGE = 3 };

/* What a call of a ring, or of libaio, has seen since its entry. */
typedef struct {
    uint64_t context;             /* libaio: of which */
    uint64_t posted;              /* the ring's CQEs when it became known */
    uint64_t own, others;         /* CQEs that this thread posted; that others had posted when it last did something */
    int64_t sleep_time;
    uint32_t ring, ring_number;   /* index + 1, 0: not known */
    uint32_t wanted, nr_requests;
    uint32_t poller;              /* io_uring_setup: number of the thread born in it */
} ring_call;

/*
 * The call that a thread has left last: that of the facts which follow it, if they are not of a later time than `end`.
 * `completed`: its exit was seen; else `end` is when it was given up. begin UNKNOWN: its entry was not seen.
 */
typedef struct { int64_t begin, end, result; uint16_t call; bool completed; uint64_t operation; /* id of its row; 0: it has none */ } left_call;

typedef struct {
    uint32_t number, process, tid, table;
    uint32_t older, newer;        /* the process' living tasks in the order they became known */
    int64_t start;
    char comm[16];
    char path[64];                /* of the pending open, where the kernel gives the string */
    uint32_t path_length;
    uint32_t nr_requests;         /* block requests of its own under way */
    bool alive;
    bool in_exec;                 /* nothing of it has come since the COMM of its exec */
    int64_t exec_exit;            /* of an EXIT that came then, and nothing since; UNKNOWN: there was none */
    bool serves;                  /* made by the kernel for a ring: it never runs in user mode */
    bool ring_worker;
    uint32_t owner, owner_number; /* worker: tid and number of the thread it executes for */
    uint32_t nr_workers;          /* alive that execute for this thread */
    uint32_t ring_uses;           /* rings it submits to: index + 1 */
    pending_call pending;
    left_call left;
    uint32_t held, held_last;     /* facts about the pending call, which wait for its end: index + 1, 0: none */
    ring_call ring_call;          /* while a call of a ring is pending */
    uint32_t iocbs, last_iocb;    /* what its io_submit is about to submit: index + 1 */
    uint32_t told;                /* number + 1 of the description of the last fact about a request; 0: it proved nothing */
    lo2_kernel_usage usage; /* all bits set: not told */
} task;

/* Contexts of libaio that were made and not used yet: which is which cannot be told. */
typedef struct { int64_t time; uint32_t nr, nr_events, task; bool differ, unsure; } aio_setups;

typedef struct {
    uint32_t number, pid, ppid, parent_number, nr_tasks;
    uint32_t oldest, newest;      /* of its living tasks */
    uint32_t cgroup, hierarchy;   /* path, or NONE; the hierarchy it is followed in */
    int64_t cgroup_since;         /* when an event moved it; UNKNOWN: none has */
    uint32_t command;             /* its arguments, each but the last ended by a zero byte, or NONE */
    bool command_cut;             /* there are more than were read */
    int64_t command_since;        /* its last exec; UNKNOWN: none was seen */
    uint32_t rings;               /* of its own: index + 1 */
    uint32_t nr_forks, nr_serving; /* processes it has made; of its tasks, those that serve rings */
    aio_setups aio;
    bool recorded, from_exec;
    bool fresh;                   /* all of its address space was seen: begun, or its exec, in the trace */
} process;

typedef struct { uint32_t refs, length, chain; char *text; } shared_text;

/* ---- block requests ---- */

typedef struct request {
    struct request *chain, *older, *newer;
    uint64_t id, sector, rest;    /* key sector and sectors still to complete */
    uint64_t ring_request;        /* id of the ring's request that caused it; 0: none, or not known */
    uint64_t issued_sector;
    uint32_t device, task, pid, tid;
    uint32_t task_index;          /* where the task was: its slot may hold another by now */
    int64_t begin, insert, issue, bytes_request, bytes_issued, bytes_result;
    int64_t end_latest;           /* of an end that nobody saw */
    int32_t error;
    uint16_t flags, nr_requeues, nr_merges, nr_completions;
    uint8_t operation, end_proof;
    bool issued, written, was_requeued;
} request;

/* A thread at some moment; task NONE: not known. */
typedef struct { uint32_t task, task_index, pid, tid; bool recorded; } submitter;
typedef struct { uint32_t device; submitter who; } flush_bio;

typedef struct {
    request **buckets;
    uint32_t nr_buckets, nr_live;
    request *oldest, *newest, *spare;
    request *ended, *last_ended;  /* unseen, and their rows wait for room: a list by `newer` */
    uint32_t nr_of_rings;         /* of those live, so many were caused by requests of rings */
    VEC(flush_bio) flush_bios;    /* asked for, not issued yet */
} request_set;

/* ---- rows that wait for room in a batch ---- */

typedef struct { uint32_t handle, process, task, parent, description, file, open_flags; int32_t fd;
                 uint8_t origin, name_source, cloexec, used; int64_t open_time, close_time; } handle_row;
typedef struct { uint64_t before; int64_t time; uint32_t task, handle; uint8_t kind; uint32_t flags; } handle_event_row;
/* What tells files apart (device, inode, generation, mount, path), and what else is known of one. */
typedef struct { uint64_t device, inode; int64_t generation; /* UNKNOWN: not known */ uint32_t mode, mount, links, path_length;
                 uint8_t source; } file_facts;
typedef struct { uint32_t file; file_facts facts; char *path; } file_row;
typedef struct { uint64_t operation; uint32_t path_length, directory_length; uint8_t place, source; char *texts; } path_row;
typedef struct { uint64_t low, high; } file_digest;
typedef struct { uint32_t task, process, pid, tid, ppid, parent_process; int64_t start, exit; char comm[16];
                 uint32_t cgroup, command; /* with a reference */ uint8_t kind, command_cut; lo2_kernel_usage usage; } task_row;

/*
 * What a room must tell one that is further on, of which it knows nothing. The engine sets all of them, before it reads a
 * record.
 */
typedef struct {
    void (*descriptor_ended)(lo2_engine *e, const description *d, bool surely); /* of a ring */
    void (*description_gone)(lo2_engine *e, uint32_t description_index); /* likewise, or a look at /proc says so */
    void (*ring_request_completed)(lo2_engine *e, uint64_t id, int64_t submit, int64_t time);
} listeners;

/* Records are lacking behind `begin` (UNKNOWN: from the first on) and before `end`. */
typedef struct { int64_t begin, end; } gap;

/* A copy of a record that waits for the end of its thread's call (calls/kernel_facts.c). */
typedef struct { uint8_t *record; uint32_t size, next; } held_fact;

struct lo2_engine {
    lo2_config config;
    listeners tell;
    lo2_event *events;            /* by common_type */
    uint32_t *min_raw;            /* bytes of raw data an event's fields need */
    uint32_t common_bytes;        /* ... and its common_type and common_pid */
    lo2_call *calls;
    stream *streams;
    stream **heap;
    uint32_t heap_count;
    uint64_t *seen;               /* nr_streams x nr_events */
    facts_clock clock;
    lo2_totals totals;
    lo2_batch *batch;
    uint64_t next_id, nr_operations;
    bool finishing, out_of_memory, started, completions_missing;
    uint32_t finish_task;
    char error[256];

    uint32_t *task_by_tid;        /* index + 1, 0: none */
    uint32_t *process_by_pid;
    int64_t *exit_by_tid;         /* when it last exited, 0: never */
    uint32_t *pid_by_tid;         /* + 1, as its first TASK fact will say; 0: none does */
    VEC(task) tasks;
    VEC(uint32_t) free_tasks;
    VEC(process) processes;
    VEC(uint32_t) free_processes;
    uint32_t next_task, next_process;
    VEC(shared_text) texts;
    VEC(uint32_t) free_texts;
    uint32_t *text_buckets;     /* index + 1 */

    VEC(fd_table) tables;
    VEC(uint32_t) free_tables;
    VEC(handle) handles;
    VEC(uint32_t) free_handles;
    VEC(description) descriptions;
    VEC(uint32_t) free_descriptions;
    uint32_t next_handle, next_description;

    VEC(char) name;               /* put together last */
    VEC(file_digest) files;       /* all files: index is the file's number */
    uint64_t file_key[2];
    uint32_t *file_buckets;       /* open addressing: index + 1 */
    uint32_t nr_file_buckets;

    VEC(gap) gaps;                /* apart from each other, in order, if they are known beforehand */
    uint32_t gaps_passed;
    bool gaps_known;
    int64_t gap_mark;             /* at records from this time on there is something to be done about gaps */
    int64_t lost_until;           /* the end of the last gap that has begun; UNKNOWN: none has */

    VEC(held_fact) held_facts;
    VEC(uint32_t) free_held_facts;

    request_set requests;
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

static inline bool is_recorded(const engine *e, const task *t) { return e->processes.at[t->process].recorded; }

/* lo2io's own, in all_tasks mode: left out, and not followed. */
static inline bool is_own(const engine *e, const task *t)
{
    return e->config.all_tasks && !is_recorded(e, t) && !e->processes.at[t->process].from_exec;
}

static inline description *description_of(engine *e, uint32_t handle_index)
{
    return &e->descriptions.at[e->handles.at[handle_index].description];
}

#endif
