/* The state of the OTF2 event loop, for its own files. Python sees none of this. */
#ifndef LO2IO_OTF2_WRITER_H
#define LO2IO_OTF2_WRITER_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "api/all.h"

#define UNKNOWN INT64_MIN
#define NONE UINT32_MAX
#define NO_MORE (NONE - 1) /* instead of a location: the thread has ended */
#define UNDEFINED UINT64_MAX /* OTF2_UNDEFINED_UINT64: unknown bytes */
#define NR_STRINGS 256       /* 8 operations, 5 flag bits */

typedef union { uint64_t count; double number; } metric_value; /* OTF2_MetricValue */

/*
 * The unwind distance: 2 steps from an entered or sampled node of the calling context tree to the one before. One node is
 * new, and its parent, or the root's "undefined" parent, made progress (OTF2_GlobalDefWriter.h, CallingContext).
 */
enum { UNWIND_DISTANCE = 2 };
enum { MOST_NAMED = 16 }; /* strings among the attributes of one event */

/* The attributes of an event, encoded. It has each of lo2_otf2_attributes at most once. */
enum { MOST_ATTRIBUTES = sizeof(lo2_otf2_attributes) / sizeof(uint32_t), MOST_ATTRIBUTE_BYTES = 15 };
typedef struct { uint32_t count, size; uint8_t bytes[(MOST_ATTRIBUTES + 1) * MOST_ATTRIBUTE_BYTES]; } attribute_list;

/* The events of a location, and the last chunk of their file. */
typedef struct lo2_otf2_event_file {
    uint8_t *at, *begin, *end; /* the next byte; of the chunk */
    uint64_t time;             /* of the last event */
    uint64_t nr_events, location;
    uint64_t written;          /* bytes of chunks before */
    uint64_t early;            /* bytes of this chunk that the file has already, and memory has not */
    bool whole;                /* the chunk stays in memory until it is full */
} event_file;

enum waiting_kind { WAIT_DESTROY, WAIT_SET_FLAGS, WAIT_OFF_CPU, WAIT_ON_CPU, WAIT_RING };
/* key: the handle, the state, or the place in ring_events */
typedef struct { uint64_t time; uint32_t key, next, flags; uint8_t kind; } waiting_event;

/* A row of ring_events that is not written yet. */
typedef struct {
    uint64_t id, user_data, previous, culprit;
    int64_t bytes, queued_ns, executing_ns, waiting_ns, run_queue_ns, blocked_ns;
    uint32_t ring, handle, worker_tid, waker_tid;
    int32_t result;
    uint16_t traits, inferred;
    int16_t error;
    uint8_t kind, opcode, path, status, sqe_flags, cache;
    uint32_t missed_pages, ahead_pages;
    uint32_t next; /* of a free place: the next free one */
} ring_event;

/*
 * A request that has begun and not ended. Its three records must name one handle: the handle of the file that was known
 * when the first record was written.
 */
typedef struct {
    uint64_t id;     /* 0: the place is free */
    uint64_t previous; /* 0: none, or not known yet */
    uint32_t handle; /* the engine's; NONE: none, or not known yet */
    uint32_t ref;    /* OTF2's, as soon as the begin event is written; NONE */
    uint64_t since;  /* time of the last record written about it */
    uint32_t nr_waiting; /* events about it that wait */
    uint32_t task;       /* the task that began it */
    bool issued;
    bool on_ring;    /* it began without a file */
    bool linked;     /* its begin event named its predecessor */
    bool given_up;   /* no further event about it will come */
} open_request;
typedef struct { open_request *at; size_t room, used; } open_requests;

/* What a call that submits to a ring, or collects from it, adds to its events. */
typedef struct {
    uint32_t ring, asked, wanted;
    int64_t submitted, completed; /* -1: the call does neither, or not known */
} batch_counts;

/* What the Leave of a call tells of it. 0: nothing, or not known. */
typedef struct {
    uint64_t id, run_queue, blocked, fuse_ns, first_request, last_request;
    uint32_t nr_requests, fuse_requests;
    uint32_t stack; /* of the program; NONE */
} told_call;

/* A block request that a thread has begun, and whose call has no row yet. */
typedef struct { int64_t time; uint64_t id; uint32_t next; } submission;
/* A thread's submissions by time; 0: none was dropped. */
typedef struct { uint32_t first, last, count; int64_t dropped_until; } submitter;

/* Attributes that a call still lacks. */
enum lack { LACKS_PATH = 1, LACKS_PATH2 = 2, LACKS_STACK = 4 };

/* A call that has ended. Its Leave waits for what the call lacks, which may stand in the next batch. */
typedef struct {
    told_call told;
    uint64_t time, location; /* location UINT64_MAX: it was left */
    uint32_t ref, path[2];       /* ref: region or context; path: strings, NONE */
    int error;
    uint8_t lacks;               /* enum lack */
    bool has_batch;
    batch_counts batch;
} held_call;

/* The thread that does something. UINT32_MAX: not known. */
typedef struct { uint32_t task, process, pid, tid; } actor;

/* A thread whose row says that it has ended, although more events of it may come. */
typedef struct { uint32_t task; int64_t exit; } ended_task;

/* Maps keys to numbers. Open addressing; never shrinks. */
typedef struct { uint64_t *keys; uint32_t *values; size_t room, used; } number_map;

/* The counts of one metric location: requests of a device, or calls of a process. */
typedef struct {
    uint64_t location;
    uint32_t depth_metric, rates_metric;
    uint64_t depth;        /* issued and not ended */
    int64_t interval;      /* the last with an event; -1 none */
    int64_t last_time;     /* of the last event */
    uint64_t reads, writes, bytes_read, bytes_written, latency_ns, nr_latencies; /* in that interval */
} meter;

struct lo2_otf2_writer {
    lo2_otf2_config config;
    attribute_list list;         /* of the next event */
    uint32_t named[MOST_NAMED];  /* strings in the list */
    uint32_t nr_named;
    number_map used; /* keys as in lo2_otf2_used_ids */
    lo2_otf2_location *locations;
    uint64_t locations_room;
    uint32_t *location_by_task; /* location id, NONE, NO_MORE */
    uint32_t tasks_room;
    uint32_t *location_by_cpu; /* location id, NONE */
    uint32_t cpus_room;
    lo2_otf2_device *devices; /* few, however many threads there are */
    size_t devices_room;
    lo2_otf2_handle *handles;
    uint32_t *calls; /* by call: the region or context that Enter and Leave name, NONE */
    lo2_otf2_region *regions;
    lo2_otf2_context *contexts;
    lo2_otf2_metric *metrics;
    meter *meters;
    size_t regions_room, contexts_room, metrics_room, meters_room;
    uint32_t nr_meters;
    uint32_t metric_classes[LO2_OTF2_NR_METRIC_CLASSES]; /* references by class, NONE */
    number_map region_by_key, context_by_key, process_by_number;
    lo2_otf2_process *processes;
    uint32_t nr_own_processes;
    size_t processes_room;
    lo2_otf2_location *unplaced; /* stand in for threads of which only waiting events are known */
    number_map unplaced_by_task;
    size_t unplaced_room;
    uint32_t nr_unplaced;
    ended_task *ended;           /* of earlier batches */
    size_t ended_room;
    uint32_t nr_ended;
    uint32_t next_end;           /* row in the batch's tasks: the threads before it have been ended */
    uint32_t strings[NR_STRINGS];
    waiting_event *waiting;
    uint32_t nr_waiting, waiting_room, waiting_free;
    ring_event *ring_events; /* that wait */
    size_t ring_events_room;
    uint32_t nr_ring_events, ring_events_free;
    open_requests open;
    uint64_t *to_give_up; /* requests that will not end, by their rows in the batch before */
    size_t to_give_up_room;
    uint32_t nr_to_give_up;
    lo2_otf2_text *texts;
    lo2_otf2_ring_handle *ring_handles;
    size_t texts_room, ring_handles_room;
    number_map text_by_key, ring_handle_by_file, ring_handle_by_process, ring_locations;
    const lo2_batch *batch; /* the batch under way */
    submission *submissions;
    submitter *submitters; /* by task */
    size_t submissions_room, submitters_room;
    uint32_t nr_submissions, submissions_free; /* of a free place, next is the next free one */
    number_map path_by_call; /* row of the call's paths */
    number_map stack_by_call; /* number of the program's stack */
    held_call *held;
    size_t held_room;
    uint32_t nr_held;
    number_map given_by_hash;
    lo2_otf2_given *given;
    char *given_text;
    size_t given_room, given_text_room, given_used;
    lo2_otf2_view view;
};

/* Leaves the function if the expression is not 0. */
#define TRY(expression)                                               \
    do {                                                              \
        if (__builtin_expect((expression) != 0, 0))                   \
            return -1;                                                \
    } while (0)

static inline int otf2_fail(lo2_otf2_writer *w, const char *what)
{
    w->view.failed = what;
    return -1;
}

/* Writes an event with the attributes that were added. Its reference names a definition of this kind. */
#define EVENT(w, kind, function, location, time, ref, ...)                            \
    do {                                                                              \
        TRY(otf2_use(w, location, LO2_USED_##kind, ref));                             \
        TRY(function(w, location, time, ref __VA_OPT__(, ) __VA_ARGS__));             \
    } while (0)

/* otf2/number_map.c */
bool number_map_at(number_map *map, uint64_t key, uint32_t **value); /* *value: NONE if the key is new; false: no memory */
void number_map_forget(number_map *map, uint64_t key); /* makes the key new again */
void number_map_free(number_map *map);

/* otf2/used.c */
/* Notes that events of the location name a definition, and the strings in the list. */
int otf2_use(lo2_otf2_writer *w, lo2_otf2_location *location, uint8_t kind, uint32_t ref);
int otf2_add_string(lo2_otf2_writer *w, uint32_t attribute, uint32_t ref); /* to the next event */

/* otf2/records.c */
/* Adds an attribute to the next event, each at most once. */
void otf2_add_uint8(lo2_otf2_writer *w, uint32_t attribute, uint8_t value);
void otf2_add_uint32(lo2_otf2_writer *w, uint32_t attribute, uint32_t value);
void otf2_add_uint64(lo2_otf2_writer *w, uint32_t attribute, uint64_t value);
void otf2_add_int32(lo2_otf2_writer *w, uint32_t attribute, int32_t value);
void otf2_add_ref(lo2_otf2_writer *w, uint32_t attribute, uint8_t type, uint32_t ref);
/* The events, with the fields of OTF2_EvtWriter.h in their order. All values of a metric have one type. */
#define EVENT_OF lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint32_t ref
int otf2_put_enter(EVENT_OF);
int otf2_put_leave(EVENT_OF);
int otf2_put_context_enter(EVENT_OF, uint32_t unwind_distance);
int otf2_put_context_leave(EVENT_OF);
int otf2_put_sample(EVENT_OF, uint32_t unwind_distance, uint32_t generator);
int otf2_put_metric(EVENT_OF, uint8_t type, uint8_t count, const metric_value *values);
int otf2_put_create_handle(EVENT_OF, uint8_t access, uint32_t creation, uint32_t status);
int otf2_put_destroy_handle(EVENT_OF);
int otf2_put_duplicate_handle(EVENT_OF, uint32_t fresh, uint32_t status);
int otf2_put_seek(EVENT_OF, int64_t offset, uint8_t whence, uint64_t result);
int otf2_put_change_status_flags(EVENT_OF, uint32_t status);
int otf2_put_operation_begin(EVENT_OF, uint8_t mode, uint32_t flags, uint64_t bytes, uint64_t id);
int otf2_put_operation_issued(EVENT_OF, uint64_t id);
int otf2_put_operation_complete(EVENT_OF, uint64_t bytes, uint64_t id);
int otf2_put_operation_cancelled(EVENT_OF, uint64_t id);

/* otf2/event_files.c */
/* The bytes that stay free in each chunk, for the end of a file. libotf2 keeps one byte free, and crashes if a file ends there. */
enum { OTF2_END_BYTES = 2 };
event_file *otf2_open_events(lo2_otf2_event_files *files, uint64_t location); /* NULL: out of memory */
bool otf2_next_chunk(lo2_otf2_event_files *files, event_file *file); /* false: a write failed */
bool otf2_close_events(lo2_otf2_event_files *files, event_file *file); /* likewise */
void otf2_drop_events(lo2_otf2_event_files *files, event_file *file); /* writes nothing; NULL: does nothing */
/* Writes full pages of the chunk, and gives their memory back. false: a write failed */
bool otf2_relieve(lo2_otf2_event_files *files, event_file *file);

/* otf2/state.c */
bool otf2_grow(void **at, size_t *room, size_t need, size_t element);
bool otf2_grow_filled(void **at, uint32_t *room, uint32_t need, size_t element); /* new places hold NONE */
/* NULL, as in all of these: failed */
lo2_otf2_location *otf2_location_new(lo2_otf2_writer *w, uint8_t kind, uint32_t key);
int otf2_close_location(lo2_otf2_writer *w, lo2_otf2_location *location); /* nothing more is written there */
lo2_otf2_location *otf2_location_of_cpu(lo2_otf2_writer *w, uint32_t cpu);
lo2_otf2_location *otf2_location_of_device(lo2_otf2_writer *w, lo2_otf2_device *device);
lo2_otf2_device *otf2_device_at(lo2_otf2_writer *w, uint32_t number);
lo2_otf2_handle *otf2_handle_at(lo2_otf2_writer *w, uint32_t handle);
/* The time of the location's next event: not before its last one. */
uint64_t otf2_advance(lo2_otf2_writer *w, lo2_otf2_location *location, int64_t time);
uint32_t otf2_string_of(lo2_otf2_writer *w, uint8_t operation, uint16_t flags);
uint32_t otf2_string_of_device(lo2_otf2_writer *w, lo2_otf2_device *device);
uint32_t otf2_sync_handle(lo2_otf2_writer *w, lo2_otf2_location *location); /* NONE: failed */
int otf2_destroy(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint32_t handle);
open_request *open_request_find(open_requests *map, uint64_t id); /* NULL: there is none */
open_request *open_request_add(open_requests *map, uint64_t id);  /* NULL: out of memory */
void otf2_request_ended(lo2_otf2_writer *w, uint64_t id);

/* The thread's location, if it has one now. */
static inline lo2_otf2_location *otf2_location_known(lo2_otf2_writer *w, uint32_t task)
{
    uint32_t id = task < w->tasks_room ? w->location_by_task[task] : NONE;
    return id < NO_MORE ? &w->locations[id] : NULL;
}

/* otf2/threads.c; time: of the first event, if the thread has no location yet */
lo2_otf2_location *otf2_location_of(lo2_otf2_writer *w, actor who, int64_t time);
lo2_otf2_location *otf2_location_of_worker(lo2_otf2_writer *w, actor who, int64_t time);
uint32_t otf2_process(lo2_otf2_writer *w, uint32_t number); /* the process' index; NONE: failed */
/* The process itself if it has a location group, else the one that stands for all others. */
uint32_t otf2_group(const lo2_otf2_writer *w, uint32_t process);
/* Takes a location of the pool to which nothing was written after that time; NONE: there is none. */
uint32_t otf2_take_free(lo2_otf2_writer *w, lo2_otf2_pool *pool, uint64_t time);
void otf2_put_free(lo2_otf2_writer *w, lo2_otf2_pool *pool, lo2_otf2_location *location);
int otf2_end_threads(lo2_otf2_writer *w); /* ends the threads whose rows are in the batch */
int otf2_leave_all(lo2_otf2_writer *w, lo2_otf2_location *location, int64_t end_ns, bool ended);

/* otf2/contexts.c */
/*
 * The number that Enter and Leave name: the region, or with calling contexts, the region inside the context. NONE:
 * failed.
 */
uint32_t otf2_ref_of_call(lo2_otf2_writer *w, uint32_t life, uint16_t call);
uint32_t otf2_ref_inside(lo2_otf2_writer *w, uint32_t parent, uint8_t kind, uint32_t key, uint8_t operation);
int otf2_enter(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint32_t ref);
int otf2_leave(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint32_t ref);
/*
 * Leave the stretch off the CPU, or all that is open on the location. The events are marked, for the true end is
 * unknown.
 */
int otf2_leave_off_cpu(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time);
int otf2_leave_open_region(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time);

/* otf2/waiting.c */
int otf2_ring_event_waits(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, const ring_event *event);
int otf2_handle_event_waits(lo2_otf2_writer *w, const lo2_handle_event_columns *e, uint32_t row);
int otf2_off_cpu_waits(lo2_otf2_writer *w, const lo2_off_cpu_columns *o, uint32_t row);
int otf2_release_waiting(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t until);

/* otf2/calls.c */
/* batch: what a call about a ring adds; NULL: nothing. */
int otf2_write_operation(lo2_otf2_writer *w, const lo2_operation_columns *o, uint32_t row, const batch_counts *batch);

/* otf2/paths.c */
bool otf2_index_paths(lo2_otf2_writer *w, const lo2_batch *b); /* false: out of memory */
int otf2_find_paths(lo2_otf2_writer *w, held_call *call);
void otf2_free_paths(lo2_otf2_writer *w);

/* otf2/held.c */
int otf2_take_late(lo2_otf2_writer *w, const lo2_batch *b); /* call first for each batch */
/* Writes the Leave now, or as soon as the call lacks nothing. */
int otf2_leave_call(lo2_otf2_writer *w, lo2_otf2_location *location, held_call *call);
/* Leaves the call without what it lacks. Call before any further event of the location. */
int otf2_leave_held(lo2_otf2_writer *w, lo2_otf2_location *location);
void otf2_free_held(lo2_otf2_writer *w);

/* otf2/cpus.c */
int otf2_write_request_event(lo2_otf2_writer *w, const lo2_request_event_columns *e, uint32_t row);
int otf2_write_sample(lo2_otf2_writer *w, const lo2_request_event_columns *e, uint32_t row);
int otf2_write_switch(lo2_otf2_writer *w, const lo2_switch_columns *s, uint32_t row);

/* otf2/told.c */
int otf2_submits(lo2_otf2_writer *w, const lo2_request_event_columns *e, uint32_t row); /* before the calls of its batch */
void otf2_tell_call(lo2_otf2_writer *w, const lo2_operation_columns *o, uint32_t row, told_call *told);
int otf2_add_told(lo2_otf2_writer *w, const told_call *told); /* to the next event */
int otf2_add_batch(lo2_otf2_writer *w, const batch_counts *counts); /* likewise, what a call about a ring counts */
void otf2_free_submissions(lo2_otf2_writer *w);

/* otf2/rings.c */
int otf2_ring_event_arrives(lo2_otf2_writer *w, const lo2_ring_event_columns *e, uint32_t row);
int otf2_write_ring_work(lo2_otf2_writer *w, const lo2_ring_work_columns *c, uint32_t row);
void otf2_load_batch(const lo2_otf2_writer *w, const lo2_batch *b, uint32_t row, uint16_t call, batch_counts *counts);
/* Forgets requests that will not end. That waits for the batch after their rows, for their events may wait. */
int otf2_give_up_ring_requests(lo2_otf2_writer *w, const lo2_ring_request_columns *c, uint32_t count);

/* otf2/ring_events.c; a reference NONE: failed */
enum ring_event_kind { RING_EVENT_BEGIN = 0, RING_EVENT_ISSUED = 1, RING_EVENT_COMPLETE = 2, RING_EVENT_CANCELLED = 3 };
uint32_t otf2_text(lo2_otf2_writer *w, uint8_t kind, uint32_t key);
/* What a read found in the page cache: attributes of the next event. */
int otf2_add_cache(lo2_otf2_writer *w, uint8_t verdict, uint32_t missed, uint32_t ahead);
int otf2_add_text(lo2_otf2_writer *w, uint32_t attribute, uint8_t kind, uint32_t key); /* to the next event */
uint8_t otf2_mode_of(const lo2_otf2_writer *w, uint8_t opcode);
bool otf2_carries_no_data(const lo2_otf2_writer *w, uint8_t opcode);
int otf2_write_ring_event(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, const ring_event *event);
int otf2_write_waiting_ring_event(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, const ring_event *event);

/* otf2/metrics.c */
int otf2_measure_ring_state(lo2_otf2_writer *w, const lo2_ring_state_columns *s, uint32_t row);
int otf2_measure_batch(lo2_otf2_writer *w, uint32_t process, const batch_counts *counts, uint16_t call, int64_t time);
int otf2_measure_transfer(lo2_otf2_writer *w, lo2_otf2_location *location, int64_t time, uint64_t read, uint64_t written);
int otf2_measure_request(lo2_otf2_writer *w, const lo2_request_event_columns *e, uint32_t row);
int otf2_measure_operation(lo2_otf2_writer *w, lo2_otf2_location *location, const lo2_operation_columns *o, uint32_t row);
int otf2_finish_metrics(lo2_otf2_writer *w, lo2_otf2_location *location, int64_t end_ns);

/* Length of a span. Times come from files, with any values, and no difference is undefined. */
static inline uint64_t otf2_between(int64_t begin, int64_t end) { return (uint64_t)end - (uint64_t)begin; }

/* Adds errno to the next event, if there was an error. */
static inline void otf2_add_error(lo2_otf2_writer *w, int error)
{
    if (__builtin_expect(error != 0, 0))
        otf2_add_uint32(w, w->config.attributes.error, (uint32_t)error);
}

#endif
