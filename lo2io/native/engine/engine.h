/* Inside of the engine: state shared by its files. Nothing here is seen by Python. */
#ifndef LO2IO_ENGINE_H
#define LO2IO_ENGINE_H

#include "tables/descriptors.h"
#include "input/streams.h"

#define TID_LIMIT (4u << 20) /* the kernel's PID_MAX_LIMIT on 64 bit, include/linux/threads.h */

/* ---- tables/tasks.c ---- */

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

/* What a thread has used since its birth; UNKNOWN: not told. */
typedef struct { int64_t cpu, user, system, block_delay, major_faults, voluntary, involuntary; } task_usage;
#define USAGE_UNKNOWN (task_usage){UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN}

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
    task_usage usage;
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

/* ---- block/requests.c ---- */

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

typedef struct {
    uint32_t device;
    uint64_t sector, nr_sectors;
    int64_t bytes;
    int32_t error;
    uint16_t flags, cpu;
    uint8_t operation;
    bool started;                 /* issued already, as the request it speaks of must be */
    bool wants_flush;             /* no flush itself: a write without data that only asked for one */
} block_sample;

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
                 uint32_t cgroup, command; /* with a reference */ uint8_t kind, command_cut; task_usage usage; } task_row;

/* Records are lacking behind `begin` (UNKNOWN: from the first on) and before `end`. */
typedef struct { int64_t begin, end; } gap;

/* A copy of a record that waits for the end of its thread's call. */
typedef struct { uint8_t *record; uint32_t size, next; } held_fact;

struct lo2_engine {
    lo2_config config;
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

typedef struct lo2_engine engine;

/* tables/rows.c */
bool emit_flush(engine *e);       /* true: nothing waits any more */
bool emit_has_room(const engine *e);
uint32_t emit_records_fit(const engine *e);
bool paths_flush(engine *e);      /* false: the batch has no room for all */
void emit_handle_event(engine *e, int64_t time, uint32_t task_number, uint32_t handle_number);
void emit_flags_event(engine *e, int64_t time, uint32_t task_number, uint32_t handle_number, uint32_t flags);
uint32_t emit_operation(engine *e); /* a fresh row, id set */

/* tables/tasks.c */
task *task_of(engine *e, uint32_t tid);
task *task_for_sample(engine *e, uint32_t tid);
uint32_t process_of(engine *e, uint32_t pid);
void on_fork(engine *e, int64_t time, uint32_t pid, uint32_t ppid, uint32_t tid, uint32_t ptid);
void on_task_exit(engine *e, int64_t time, uint32_t tid);
void on_comm(engine *e, int64_t time, uint32_t pid, uint32_t tid, const char *comm, size_t length, bool exec);
void note_pid(engine *e, const lo2_fact_task *fact);
process *on_task_fact(engine *e, const lo2_fact_task *fact, int64_t begin); /* NULL: it tells nothing */
task *task_for_fact(engine *e, uint32_t pid);
void task_write_end(engine *e, task *t, int64_t time);
void task_end_unseen(engine *e, task *t); /* its EXIT was lost, or is not yet to come */
void task_lives(task *t);         /* something came that only a living thread does */

/* tables/texts.c */
/* The text's index, with a reference for the caller. */
uint32_t text_of(engine *e, const char *text, uint32_t length);
uint32_t text_keep(engine *e, uint32_t index);
void text_release(engine *e, uint32_t index);
void texts_free(engine *e);

/* tables/cgroups.c */
void on_cgroup_fact(engine *e, process *p, uint32_t hierarchy, const char *path, uint32_t length, int64_t begin);
bool cgroup_is_recorded(const engine *e, const process *p);
void on_cgroup_attach(engine *e, const lo2_event *event, const uint8_t *raw, uint32_t raw_size, int64_t time);

/* tables/commands.c */
void on_command(engine *e, process *p, const char *text, uint32_t length, bool cut, int64_t begin);
void command_ends(engine *e, process *p, int64_t time);
void on_kernel_exec(engine *e, task *t, const uint8_t *record, uint32_t size, int64_t time);

/* tables/descriptors.c */
uint32_t table_new(engine *e, int64_t since);
uint32_t table_copy(engine *e, uint32_t table, int64_t begin); /* by a call that began then; UNKNOWN: nobody knows when */
void table_release(engine *e, uint32_t table, int64_t time);
void table_void(engine *e, uint32_t table, int64_t time);
void table_unshare(engine *e, task *t, int64_t time);
void table_exec(engine *e, task *t, int64_t time);
void table_told(engine *e, task *t, uint64_t address); /* tables/sharing.c: that is its table's, as a fact says */
void slot_sweep(engine *e, const task *t, slot *s, int64_t time);
slot *slot_at(engine *e, uint32_t table, int32_t fd, bool grow);
uint32_t handle_in_slot(engine *e, task *t, int32_t fd);
uint32_t handle_new(engine *e, task *t, int32_t fd, uint32_t description_index, uint8_t origin);
void handle_install(engine *e, task *t, int32_t fd, uint32_t handle_index, bool cloexec, int64_t time);
void handle_end(engine *e, uint32_t handle_index, bool cloexec, int64_t time);
void handle_release(engine *e, uint32_t handle_index);
void slot_set(slot *s, int64_t since, uint32_t handle_index, bool cloexec);
void slot_clear(engine *e, slot *s, int64_t end_time, int64_t now);
bool has_no_rivals(const engine *e, const task *t); /* its table has no other thread in user mode */
bool slot_is_disturbed(const engine *e, const task *t, const slot *s, int32_t fd, int64_t begin);
bool close_is_spent(engine *e, const task *t); /* its pending call is a close that has freed its slot: others have got the number */
bool slot_is_steady(const engine *e, const task *t, const slot *s, int32_t fd, int64_t begin);
bool slot_kept(const engine *e, const task *t, const slot *s, uint32_t handle_index, int64_t since); /* nothing else was in it */
bool is_told(const engine *e, const task *t, uint32_t handle_index); /* for requests: or need not be */
void ends_begin(engine *e, task *t);              /* its pending call has been resolved */
void ends_over(engine *e, task *t, int64_t time); /* ... and is left: no fact of it is to come any more */
/* A dup2 or dup3 nobody saw the end of: what stood there may have been replaced, and is known no more. */
void perhaps_replaced(engine *e, const task *t);
uint32_t description_new(engine *e);
void description_release(engine *e, uint32_t index);

/* tables/files.c */
uint32_t file_of(engine *e, const file_facts *facts, const char *path);
void files_free(engine *e);

/* calls/proc_facts.c */
void on_fd_fact(engine *e, const lo2_fact_fd *fact, const char *path, int64_t begin, int64_t end);
void name_from_call(engine *e, description *d, const char *path, uint32_t length);
void description_named(engine *e, description *d, const file_facts *facts, const char *path);
void learn_flags(engine *e, const slot *s, description *d, uint32_t open_flags);
void compare_position(description *d, uint32_t mode, int64_t position, int64_t begin); /* at rest since then */

/* engine/gaps.c */
int gaps_find(engine *e, const char **path); /* in all files; -1: read error (errno) in this one */
void gaps_pass(engine *e, int64_t time); /* before the record of that time, if it is not before gap_mark */
void gap_told(engine *e, int64_t end); /* by the record at its end */

/* tables/positions.c: calls of others are under way that move the position of what is in the slot, whether they know what it is or not */
bool others_move(const task *t, const slot *s, int32_t fd);
void position_parted(engine *e, task *t); /* its call counts no more in the slots of the table that it is about to leave */

/* calls/calls.c */
void on_enter(engine *e, task *t, const lo2_event *event, const uint8_t *raw, uint32_t raw_size,
              uint16_t cpu, int64_t time);
void on_exit_call(engine *e, task *t, const lo2_event *event, const uint8_t *raw, int64_t time);
void call_abandon(engine *e, task *t, int64_t end_time);

/* calls/kernel_records.c: records of the kernel's own programs, see bpf/programs/records.h */
void on_kernel_record(engine *e, const stream *s, uint32_t offset, int64_t time);
void add_loss(engine *e, const stream *s, int64_t begin, int64_t end, uint64_t lost); /* engine/engine.c */
void kernel_arguments_due(engine *e, task *t); /* its call has been left, t->left is set: hands on what was held of its descriptors, and of what it has collected */
void kernel_facts_due(engine *e, task *t); /* its row is written, its effects are known: hands on the rest */
void kernel_facts_free(engine *e);

/*
 * Facts. `record` is whole (size bytes, the names and paths that it announces included) but may lie unaligned. Those of
 * arguments come before the row of the call, and the others
 * after the exit of the call that they are about, t->left, in both back ends; those about a close, and about requests of
 * rings, come at their time, whatever t is doing. None of these functions makes a task: t stays where it is.
 */
void on_kernel_file(engine *e, task *t, const uint8_t *record, uint32_t size); /* calls/kernel_files.c */
void on_kernel_path(engine *e, task *t, const uint8_t *record, uint32_t size); /* calls/kernel_paths.c */
void paths_free(engine *e);
void description_learns(engine *e, uint32_t index, const lo2_kernel_file *of, const char *names);
void on_kernel_sqe(engine *e, task *t, const uint8_t *record, uint32_t size);  /* rings/sqes.c */
void on_kernel_iocb(engine *e, task *t, const uint8_t *record, uint32_t size); /* rings/iocbs.c */
void on_kernel_events(engine *e, task *t, const uint8_t *record, uint32_t size); /* rings/iocbs.c */
void on_kernel_usage(task *t, const uint8_t *record); /* tables/tasks.c */

/* calls/effects.c */
bool is_open_otherwise(engine *e, const task *t, uint32_t handle_index, uint8_t bit);
bool tells_by_ebadf(engine *e, const task *t, uint32_t handle_index);
void call_effects(engine *e, task *t, const lo2_call *call, int64_t result, int64_t time, uint32_t row);

/* calls/off_cpu.c */
void on_switch(engine *e, const lo2_event *event, const uint8_t *raw, uint32_t cpu, int64_t time);
void off_cpu_end(engine *e, task *t, int64_t end_time); /* of a stretch that has begun */

/* block/sample.c */
void block_sample_read(const lo2_event *event, const uint8_t *raw, block_sample *s);

/* block/flushes.c */
uint32_t disk_of(const engine *e, uint32_t device); /* bios name partitions */
submitter submitter_of(engine *e, uint32_t tid);
task *submitter_alive(engine *e, const submitter *who);
bool submitter_is_recorded(engine *e, const submitter *who);
void flush_wanted(engine *e, const block_sample *s, uint32_t tid);
submitter flush_owner(engine *e, uint32_t device, submitter issuer);

/* block/requests.c */
void on_block(engine *e, const lo2_event *event, const uint8_t *raw, uint32_t tid, uint16_t cpu, int64_t time);
bool requests_finish(engine *e);  /* writes what is left; false: the batch is full */
bool requests_flush(engine *e);   /* writes those that ended unseen; false: the batch is full */
/* A call of this thread, a request of a ring is over: the block requests that it waited for have ended. */
void requests_end_with_call(engine *e, const task *t, int64_t time);
void requests_end_with_ring_request(engine *e, uint64_t id, int64_t submit, int64_t time);
void requests_free(request_set *set);

/* Times and positions come from files: whatever they hold, sums wrap instead of being undefined. */
static inline int64_t plus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t minus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

/* The earliest moment that a fact's may have been. */
static inline int64_t not_before(fact_moment m) { return minus(m.time, plus(m.margin, m.doubt)); }

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

static inline uint64_t load_unsigned(const uint8_t *raw, lo2_field f)
{
    uint64_t v8;
    uint32_t v4;
    uint16_t v2;
    switch (f.size) {
    case 8: memcpy(&v8, raw + f.offset, 8); return v8;
    case 4: memcpy(&v4, raw + f.offset, 4); return f.is_signed ? (uint64_t)(int64_t)(int32_t)v4 : v4;
    case 2: memcpy(&v2, raw + f.offset, 2); return f.is_signed ? (uint64_t)(int64_t)(int16_t)v2 : v2;
    case 1: return f.is_signed ? (uint64_t)(int64_t)(int8_t)raw[f.offset] : raw[f.offset];
    default: return 0;
    }
}

#endif
