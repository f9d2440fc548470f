/*
 * Reads the events of an OTF2 archive and merges them by time.
 *
 * libotf2's own merge holds every event file open, with a chunk of each in memory. Here, each location has a window of
 * events that were read and not taken yet, and only some files are open at once. A file that was closed is opened again
 * at the end of its window. Windows are small at first, since few locations are busy at the same time. They grow while
 * there is room.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "api/all.h"

#define FIRST_WINDOW 16u
#define LEAST_WINDOW 64u
#define MOST_WINDOW 32768u
#define WINDOW_EVENTS (1u << 19) /* sum of all windows, unless they have LEAST_WINDOW each and that is more */
#define WINDOW_SHARE 16u         /* a window gets one part in so many of the rest */

/* Prototypes as in OTF2 3's headers: OTF2_Reader.h, OTF2_EvtReader.h, OTF2_AttributeList.h. */
typedef void *(*get_evt_reader_fn)(void *, uint64_t);
typedef int (*close_evt_reader_fn)(void *, void *);
typedef int (*register_fn)(void *, void *, void *, void *);
typedef int (*read_fn)(void *, void *, uint64_t, uint64_t *);
typedef int (*seek_event_fn)(void *, uint64_t);
typedef uint32_t (*count_attributes_fn)(const void *);
typedef int (*get_attribute_fn)(const void *, uint32_t, uint32_t *, uint8_t *, uint64_t *);

enum { GO_ON = 0, STOP = 1 }; /* OTF2_CallbackCode */

typedef struct {
    lo2_event_row *events;
    lo2_event_detail *details;
    size_t nr_events, events_room, nr_details, details_room;
} event_list;

typedef struct {
    lo2_event_reader *owner;
    event_list window;
    size_t taken;      /* of the window */
    uint64_t nr_read;  /* of the location */
    uint64_t used;     /* when the file was last read, counted in reads */
    void *file;        /* OTF2_EvtReader, NULL while it is closed */
    bool repeats;      /* the next event is the last one read, for a second time */
    bool ended;
} event_source;

struct lo2_event_reader {
    lo2_reader_config config;
    event_source *sources;
    uint32_t *heap;    /* sources with events, the earliest first */
    uint32_t nr_heap, nr_open, failed_at;
    uint64_t nr_reads;
    size_t held;       /* events in all windows */
    int error;
    bool short_of_memory, overran;
    event_list block;
};

static bool make_room(void **list, size_t *room, size_t wanted, size_t size)
{
    if (wanted <= *room)
        return true;
    size_t wide = *room * 2 > wanted ? *room * 2 : wanted;
    void *moved = realloc(*list, wide * size);
    if (!moved)
        return false;
    *list = moved;
    *room = wide;
    return true;
}

static bool room_for_events(event_list *list, size_t more)
{
    return make_room((void **)&list->events, &list->events_room, list->nr_events + more, sizeof *list->events);
}

static bool room_for_details(event_list *list, size_t more)
{
    return make_room((void **)&list->details, &list->details_room, list->nr_details + more, sizeof *list->details);
}

static void clear(event_list *list)
{
    free(list->events);
    free(list->details);
    *list = (event_list){0};
}

/* ---- callbacks of libotf2 ---- */

static int keep(void *user, const void *attributes, lo2_event_row row, const uint8_t *types, const uint64_t *values)
{
    event_source *source = user;
    lo2_event_reader *reader = source->owner;
    event_list *window = &source->window;
    if (source->repeats) {
        source->repeats = false;
        return GO_ON;
    }
    uint32_t nr_attributes = ((count_attributes_fn)reader->config.count_attributes)(attributes);
    if (!room_for_events(window, 1) || !room_for_details(window, nr_attributes + row.nr_values)) {
        reader->short_of_memory = true;
        return STOP;
    }
    row.ordinal = source->nr_read++;
    row.location = (uint32_t)(source - reader->sources);
    row.first_detail = (uint32_t)window->nr_details;
    row.nr_attributes = (uint16_t)nr_attributes;
    lo2_event_detail *detail = window->details + window->nr_details;
    get_attribute_fn get_attribute = (get_attribute_fn)reader->config.get_attribute;
    for (uint32_t i = 0; i < nr_attributes; i++, detail++)
        get_attribute(attributes, i, &detail->ref, &detail->type, &detail->value);
    for (uint32_t i = 0; i < row.nr_values; i++, detail++)
        *detail = (lo2_event_detail){.value = values[i], .type = types[i]};
    window->nr_details += nr_attributes + row.nr_values;
    window->events[window->nr_events++] = row;
    return GO_ON;
}

enum event_kind {
    UNKNOWN_EVENT, ENTER, LEAVE, CONTEXT_ENTER, CONTEXT_LEAVE, CONTEXT_SAMPLE, METRIC, PARAMETER_STRING, PARAMETER_INT,
    PARAMETER_UNSIGNED, IO_CREATE, IO_DESTROY, IO_DUPLICATE, IO_SEEK, IO_CHANGE_FLAGS, IO_DELETE, IO_BEGIN, IO_TEST,
    IO_ISSUED, IO_COMPLETE, IO_CANCELLED, IO_ACQUIRE_LOCK, IO_RELEASE_LOCK, IO_TRY_LOCK, OTHER_EVENT
};

/* Each callback of a local reader gets location, time, position in the file, user data and attributes first. */
#define COMMON uint64_t location, uint64_t time, uint64_t position, void *user, void *attributes
#define KEEP(event, ...) keep(user, attributes, (lo2_event_row){.time = time, .kind = event, __VA_ARGS__}, NULL, NULL)
/* Events of which only one reference is read. The C ABIs let a callee take fewer arguments than the caller passes. */
#define PLAIN(name, event) static int name(COMMON, uint32_t ref) { return KEEP(event, .ref = ref); }
#define MATCHED(name, event) \
    static int name(COMMON, uint32_t handle, uint64_t ident) { return KEEP(event, .ref = handle, .ident = ident); }
#define LOCK(name, event) \
    static int name(COMMON, uint32_t handle, uint8_t type) { return KEEP(event, .ref = handle, .mode = type); }

static int on_unknown(COMMON) { return KEEP(UNKNOWN_EVENT); }
static int on_other(COMMON) { return KEEP(OTHER_EVENT); }
PLAIN(on_enter, ENTER)
PLAIN(on_leave, LEAVE)
PLAIN(on_context_leave, CONTEXT_LEAVE)
PLAIN(on_parameter_string, PARAMETER_STRING)
PLAIN(on_parameter_int, PARAMETER_INT)
PLAIN(on_parameter_unsigned, PARAMETER_UNSIGNED)
PLAIN(on_destroy, IO_DESTROY)
MATCHED(on_test, IO_TEST)
MATCHED(on_issued, IO_ISSUED)
MATCHED(on_cancelled, IO_CANCELLED)
LOCK(on_acquire_lock, IO_ACQUIRE_LOCK)
LOCK(on_release_lock, IO_RELEASE_LOCK)
LOCK(on_try_lock, IO_TRY_LOCK)

static int on_context_enter(COMMON, uint32_t context, uint32_t unwind_distance)
{
    return KEEP(CONTEXT_ENTER, .ref = context, .second = unwind_distance);
}

static int on_context_sample(COMMON, uint32_t context, uint32_t unwind_distance, uint32_t generator)
{
    return KEEP(CONTEXT_SAMPLE, .ref = context, .second = unwind_distance, .ident = generator);
}

static int on_metric(COMMON, uint32_t metric, uint8_t nr_values, const uint8_t *types, const uint64_t *values)
{
    lo2_event_row row = {.time = time, .kind = METRIC, .ref = metric, .nr_values = nr_values};
    return keep(user, attributes, row, types, values);
}

static int on_create(COMMON, uint32_t handle, uint8_t access, uint32_t creation, uint32_t status)
{
    return KEEP(IO_CREATE, .ref = handle, .mode = access, .second = creation, .ident = status);
}

static int on_duplicate(COMMON, uint32_t old, uint32_t fresh, uint32_t status)
{
    return KEEP(IO_DUPLICATE, .ref = old, .second = fresh, .ident = status);
}

static int on_seek(COMMON, uint32_t handle, int64_t asked, uint8_t whence, uint64_t result)
{
    return KEEP(IO_SEEK, .ref = handle, .bytes = (uint64_t)asked, .mode = whence, .ident = result);
}

static int on_change_flags(COMMON, uint32_t handle, uint32_t status)
{
    return KEEP(IO_CHANGE_FLAGS, .ref = handle, .second = status);
}

static int on_delete(COMMON, uint8_t paradigm, uint32_t file)
{
    return KEEP(IO_DELETE, .mode = paradigm, .ref = file);
}

static int on_begin(COMMON, uint32_t handle, uint8_t mode, uint32_t flags, uint64_t bytes, uint64_t ident)
{
    return KEEP(IO_BEGIN, .ref = handle, .mode = mode, .second = flags, .bytes = bytes, .ident = ident);
}

static int on_complete(COMMON, uint32_t handle, uint64_t bytes, uint64_t ident)
{
    return KEEP(IO_COMPLETE, .ref = handle, .bytes = bytes, .ident = ident);
}

static const lo2_event_callback callbacks[] = {
    [UNKNOWN_EVENT] = {"Unknown", on_unknown},
    [ENTER] = {"Enter", on_enter},
    [LEAVE] = {"Leave", on_leave},
    [CONTEXT_ENTER] = {"CallingContextEnter", on_context_enter},
    [CONTEXT_LEAVE] = {"CallingContextLeave", on_context_leave},
    [CONTEXT_SAMPLE] = {"CallingContextSample", on_context_sample},
    [METRIC] = {"Metric", on_metric},
    [PARAMETER_STRING] = {"ParameterString", on_parameter_string},
    [PARAMETER_INT] = {"ParameterInt", on_parameter_int},
    [PARAMETER_UNSIGNED] = {"ParameterUnsignedInt", on_parameter_unsigned},
    [IO_CREATE] = {"IoCreateHandle", on_create},
    [IO_DESTROY] = {"IoDestroyHandle", on_destroy},
    [IO_DUPLICATE] = {"IoDuplicateHandle", on_duplicate},
    [IO_SEEK] = {"IoSeek", on_seek},
    [IO_CHANGE_FLAGS] = {"IoChangeStatusFlags", on_change_flags},
    [IO_DELETE] = {"IoDeleteFile", on_delete},
    [IO_BEGIN] = {"IoOperationBegin", on_begin},
    [IO_TEST] = {"IoOperationTest", on_test},
    [IO_ISSUED] = {"IoOperationIssued", on_issued},
    [IO_COMPLETE] = {"IoOperationComplete", on_complete},
    [IO_CANCELLED] = {"IoOperationCancelled", on_cancelled},
    [IO_ACQUIRE_LOCK] = {"IoAcquireLock", on_acquire_lock},
    [IO_RELEASE_LOCK] = {"IoReleaseLock", on_release_lock},
    [IO_TRY_LOCK] = {"IoTryLock", on_try_lock},
    [OTHER_EVENT] = {"", on_other},
};

const lo2_event_callback *lo2_event_callbacks(void) { return callbacks; }

/* ---- windows ---- */

static bool fail(event_source *source, int error)
{
    lo2_event_reader *reader = source->owner;
    reader->error = reader->short_of_memory ? 0 : error;
    reader->failed_at = (uint32_t)(source - reader->sources);
    return false;
}

static void close_file(event_source *source)
{
    lo2_event_reader *reader = source->owner;
    if (!source->file)
        return;
    ((close_evt_reader_fn)reader->config.close_evt_reader)(reader->config.reader, source->file);
    source->file = NULL;
    reader->nr_open--;
}

static void close_the_longest_unused(lo2_event_reader *reader)
{
    event_source *oldest = NULL;
    for (uint32_t i = 0; i < reader->config.nr_locations; i++) {
        event_source *source = &reader->sources[i];
        if (source->file && (!oldest || source->used < oldest->used))
            oldest = source;
    }
    if (oldest)
        close_file(oldest);
}

static bool open_file(event_source *source)
{
    lo2_event_reader *reader = source->owner;
    const lo2_reader_config *config = &reader->config;
    if (reader->nr_open >= config->most_open)
        close_the_longest_unused(reader);
    uint64_t location = config->locations[source - reader->sources];
    source->file = ((get_evt_reader_fn)config->get_evt_reader)(config->reader, location);
    if (!source->file)
        return fail(source, 0);
    reader->nr_open++;
    int error = ((register_fn)config->register_evt_callbacks)(config->reader, source->file, config->callbacks, source);
    if (!error && source->nr_read) { /* positions count from 1; there may be none after the last event read */
        error = ((seek_event_fn)config->seek)(source->file, source->nr_read);
        source->repeats = true;
    }
    return error ? fail(source, error) : true;
}

static uint64_t window_size(const lo2_event_reader *reader, const event_source *source)
{
    if (!source->nr_read)
        return FIRST_WINDOW;
    size_t share = reader->held < WINDOW_EVENTS ? (WINDOW_EVENTS - reader->held) / WINDOW_SHARE : 0;
    return share < LEAST_WINDOW ? LEAST_WINDOW : share > MOST_WINDOW ? MOST_WINDOW : share;
}

/* Reads the next events. All events of the window have been taken. */
static bool fill(event_source *source)
{
    lo2_event_reader *reader = source->owner;
    reader->held -= source->window.nr_events;
    clear(&source->window);
    source->taken = 0;
    if (source->ended)
        return true;
    if (!source->file && !open_file(source))
        return false;
    uint64_t wanted = window_size(reader, source), got = 0;
    if (!room_for_events(&source->window, wanted)) {
        reader->short_of_memory = true;
        return fail(source, 0);
    }
    source->used = ++reader->nr_reads;
    wanted += source->repeats;
    int error = ((read_fn)reader->config.read_local_events)(reader->config.reader, source->file, wanted, &got);
    if (error)
        return fail(source, error);
    reader->held += source->window.nr_events;
    source->ended = got < wanted;
    /* libotf2 does not notice a cut file: it reads on in the old content of the memory. */
    reader->overran = source->nr_read > reader->config.most_events[source - reader->sources];
    if (reader->overran)
        return fail(source, 0);
    if (source->ended)
        close_file(source);
    return true;
}

/* ---- the merge ---- */

static const lo2_event_row *next_of(const lo2_event_reader *reader, uint32_t place)
{
    const event_source *source = &reader->sources[place];
    return &source->window.events[source->taken];
}

/* Within one tick, the location with the lower place comes first. */
static bool is_earlier(const lo2_event_reader *reader, uint32_t one, uint32_t other)
{
    uint64_t first = next_of(reader, one)->time, second = next_of(reader, other)->time;
    return first != second ? first < second : one < other;
}

static void sift_down(lo2_event_reader *reader, uint32_t at)
{
    uint32_t *heap = reader->heap, moved = heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= reader->nr_heap)
            break;
        if (child + 1 < reader->nr_heap && is_earlier(reader, heap[child + 1], heap[child]))
            child++;
        if (!is_earlier(reader, heap[child], moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static bool take(lo2_event_reader *reader, event_source *source)
{
    event_list *block = &reader->block;
    const lo2_event_row *event = &source->window.events[source->taken];
    size_t nr_details = (size_t)event->nr_attributes + event->nr_values;
    if (!room_for_events(block, 1) || !room_for_details(block, nr_details)) {
        reader->short_of_memory = true;
        return fail(source, 0);
    }
    lo2_event_row *row = &block->events[block->nr_events++];
    *row = *event;
    if (nr_details)
        memcpy(block->details + block->nr_details, source->window.details + event->first_detail,
               nr_details * sizeof *block->details);
    row->first_detail = (uint32_t)block->nr_details;
    block->nr_details += nr_details;
    source->taken++;
    return source->taken < source->window.nr_events || fill(source);
}

int lo2_event_reader_next(lo2_event_reader *reader, lo2_event_block *out)
{
    event_list *block = &reader->block;
    size_t enough = reader->config.block_events;
    block->nr_events = block->nr_details = 0;
    while (reader->nr_heap && block->nr_events < 4 * enough) {
        event_source *source = &reader->sources[reader->heap[0]];
        if (block->nr_events >= enough
            && next_of(reader, reader->heap[0])->time != block->events[block->nr_events - 1].time)
            break;
        if (!take(reader, source))
            return -1;
        if (!source->window.nr_events)
            reader->heap[0] = reader->heap[--reader->nr_heap];
        if (reader->nr_heap)
            sift_down(reader, 0);
    }
    *out = (lo2_event_block){block->events, block->details, block->nr_events, block->nr_details};
    return 0;
}

/* ---- life ---- */

lo2_event_reader *lo2_event_reader_new(const lo2_reader_config *config)
{
    lo2_event_reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return NULL;
    reader->config = *config;
    reader->sources = calloc(config->nr_locations, sizeof *reader->sources);
    reader->heap = calloc(config->nr_locations, sizeof *reader->heap);
    if (!reader->sources || !reader->heap) {
        lo2_event_reader_free(reader);
        return NULL;
    }
    for (uint32_t i = 0; i < config->nr_locations; i++)
        reader->sources[i].owner = reader;
    return reader;
}

int lo2_event_reader_open(lo2_event_reader *reader)
{
    for (uint32_t i = 0; i < reader->config.nr_locations; i++) {
        if (!fill(&reader->sources[i]))
            return -1;
        if (reader->sources[i].window.nr_events)
            reader->heap[reader->nr_heap++] = i;
    }
    for (uint32_t at = reader->nr_heap / 2; at-- > 0;)
        sift_down(reader, at);
    return 0;
}

int lo2_event_reader_failed(const lo2_event_reader *reader, uint32_t *location)
{
    *location = reader->failed_at;
    return reader->error;
}

int lo2_event_reader_overran(const lo2_event_reader *reader) { return reader->overran; }

void lo2_event_reader_free(lo2_event_reader *reader)
{
    if (!reader)
        return;
    for (uint32_t i = 0; reader->sources && i < reader->config.nr_locations; i++) {
        close_file(&reader->sources[i]);
        clear(&reader->sources[i].window);
    }
    clear(&reader->block);
    free(reader->sources);
    free(reader->heap);
    free(reader);
}
