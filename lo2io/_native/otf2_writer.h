/* Inside of the OTF2 event loop: state shared by its files. Nothing here is seen by Python. */
#ifndef LO2IO_OTF2_WRITER_H
#define LO2IO_OTF2_WRITER_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "all.h"

#define UNKNOWN INT64_MIN
#define NONE UINT32_MAX
#define UNDEFINED UINT64_MAX /* OTF2_UNDEFINED_UINT64: bytes nobody knows */
#define NR_STRINGS 256       /* 8 operations, 5 flag bits */

/* Prototypes as in OTF2 3's headers: OTF2_EvtWriter.h, OTF2_Archive.h, OTF2_AttributeList.h. */
typedef int (*plain_fn)(void *, void *, uint64_t, uint32_t);
typedef int (*create_fn)(void *, void *, uint64_t, uint32_t, uint8_t, uint32_t, uint32_t);
typedef int (*duplicate_fn)(void *, void *, uint64_t, uint32_t, uint32_t, uint32_t);
typedef int (*seek_fn)(void *, void *, uint64_t, uint32_t, int64_t, uint8_t, uint64_t);
typedef int (*status_fn)(void *, void *, uint64_t, uint32_t, uint32_t);
typedef int (*begin_fn)(void *, void *, uint64_t, uint32_t, uint8_t, uint32_t, uint64_t, uint64_t);
typedef int (*match_fn)(void *, void *, uint64_t, uint32_t, uint64_t);
typedef int (*complete_fn)(void *, void *, uint64_t, uint32_t, uint64_t, uint64_t);
typedef void *(*get_writer_fn)(void *, uint64_t);
typedef int (*close_writer_fn)(void *, void *);
typedef int (*count_fn)(void *, uint64_t *);
typedef void *(*list_new_fn)(void);
typedef int (*list_delete_fn)(void *);
typedef int (*add_uint8_fn)(void *, uint32_t, uint8_t);
typedef int (*add_uint32_fn)(void *, uint32_t, uint32_t);
typedef int (*add_uint64_fn)(void *, uint32_t, uint64_t);

typedef struct { uint64_t time; uint32_t handle, next, flags; bool sets_flags; } waiting_event;

struct lo2_otf2_writer {
    lo2_otf2_config config;
    get_writer_fn get_evt_writer;
    close_writer_fn close_evt_writer;
    count_fn get_number_of_events;
    plain_fn enter, leave, destroy_handle;
    create_fn create_handle;
    duplicate_fn duplicate_handle;
    seek_fn seek;
    status_fn change_status_flags;
    begin_fn operation_begin;
    match_fn operation_issued, operation_cancelled;
    complete_fn operation_complete;
    list_delete_fn list_delete;
    add_uint8_fn add_uint8;
    add_uint32_fn add_uint32, add_string;
    add_uint64_fn add_uint64;

    void *list; /* OTF2 empties it with each event written */
    lo2_otf2_location *locations;
    uint64_t locations_room;
    uint32_t *location_by_task; /* location id, NONE */
    uint32_t tasks_room;
    uint64_t *devices; /* location ids: few, whatever the number of threads */
    size_t nr_devices, devices_room;
    lo2_otf2_handle *handles;
    uint32_t *regions;
    uint32_t strings[NR_STRINGS];
    waiting_event *waiting;
    uint32_t nr_waiting, waiting_room, waiting_free;
    lo2_otf2_view view;
};

/* Calls libotf2 and leaves the function if it refuses. */
#define OTF2(w, function, ...)                                        \
    do {                                                              \
        int code_ = (w)->function(__VA_ARGS__);                       \
        if (__builtin_expect(code_ != 0, 0))                          \
            return otf2_fail((w), #function, code_);                       \
    } while (0)
#define TRY(expression)                                               \
    do {                                                              \
        if (__builtin_expect((expression) != 0, 0))                   \
            return -1;                                                \
    } while (0)

/* otf2_state.c */
int otf2_fail(lo2_otf2_writer *w, const char *call, int code);
/* NULL: failed, as any of these. */
lo2_otf2_location *otf2_location_of_task(lo2_otf2_writer *w, uint32_t task);
lo2_otf2_location *otf2_location_of_device(lo2_otf2_writer *w, uint32_t device);
lo2_otf2_handle *otf2_handle_at(lo2_otf2_writer *w, uint32_t handle);
/* The time of the next event there: never before the last one. */
uint64_t otf2_advance(lo2_otf2_writer *w, lo2_otf2_location *location, int64_t time);
uint32_t otf2_region_of(lo2_otf2_writer *w, uint16_t call);
uint32_t otf2_string_of(lo2_otf2_writer *w, uint8_t operation, uint16_t flags);
uint32_t otf2_sync_handle(lo2_otf2_writer *w, lo2_otf2_location *location);
int otf2_wait_for_time(lo2_otf2_writer *w, const lo2_handle_event_columns *e, uint32_t row);
int otf2_release_waiting(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t until);
int otf2_destroy(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint32_t handle);

/* otf2_calls.c */
int otf2_write_operation(lo2_otf2_writer *w, const lo2_operation_columns *o, uint32_t row);
int otf2_leave_open_region(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time);

/* otf2_requests.c */
int otf2_write_request_event(lo2_otf2_writer *w, const lo2_request_event_columns *e, uint32_t row);

/* The attributes of an event: none, or errno. */
static inline void *otf2_error_list(lo2_otf2_writer *w, int error)
{
    if (__builtin_expect(error == 0, 1))
        return NULL;
    w->add_uint32(w->list, w->config.attributes.error, (uint32_t)error);
    return w->list;
}

#endif
