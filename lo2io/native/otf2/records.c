/*
 * The bytes of OTF2's event files.
 *
 * lo2io writes them itself, for libotf2's functions take longer (docs/explanation/design.md has figures). libotf2 is the
 * truth all the same: tests have it read each file and write its events again (tests/build/otf2_written.py). Files of
 * one chunk are the same, byte for byte. A longer file may be cut into chunks elsewhere, for libotf2 leaves one byte
 * less free.
 *
 *      file    chunk chunk … chunk                     all of one size, but the last one ends with its last byte
 *      chunk   3 order first last  record …  0 … 0     the numbers of its first and last event, 8 bytes each
 *      record  5 time                                  8 bytes: of all events up to the next such record
 *              6 length count {attribute type value} … of the event that follows
 *              kind [length] fields                    an event; Enter and Leave have no length
 *      end     2 1                                     instead of zeros in the last chunk
 *
 * An integer is a byte with its size, and so many of its low bytes, in the machine's order. Zero is the byte 0, and the
 * greatest unsigned number is the byte 255. A length is one byte, or 255 and 8 bytes. A time record comes at the start
 * of each chunk but the first, before each event at a later time, and before each event at time 0.
 *
 * Source: OTF2_Buffer.h, OTF2_Buffer.c and OTF2_EvtWriter_inc.c of OTF2, and files that libotf2 3 wrote.
 */
#include "otf2/otf2_writer.h"

enum { TIMESTAMP = 5, ATTRIBUTES = 6 }; /* kinds of records */
enum {
    ENTER = 12, LEAVE = 13, METRIC = 31, CONTEXT_ENTER = 66, CONTEXT_LEAVE = 67, CONTEXT_SAMPLE = 68, CREATE_HANDLE = 69,
    DESTROY_HANDLE = 70, DUPLICATE_HANDLE = 71, SEEK = 72, CHANGE_STATUS_FLAGS = 73, OPERATION_BEGIN = 75,
    OPERATION_ISSUED = 77, OPERATION_COMPLETE = 78, OPERATION_CANCELLED = 79
}; /* kinds of events */

/* The most bytes of a field and of an attribute, and the bytes of a time record and of an event's kind. */
enum { U8 = 1, U32 = 5, U64 = 9, ATTRIBUTE = U32 + U8 + U64, TIME = 9, KIND = 1 };
enum { LONG = 255 }; /* lengths from here on take 9 bytes */

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LOW_BYTES(value, size) (value)
#else
#define LOW_BYTES(value, size) ((value) << (64 - 8 * (size)))
#endif

/* ---- fields; each may write up to 8 bytes more, which the next ones replace ---- */

static inline uint8_t *put_bytes(uint8_t *at, uint64_t value)
{
    memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

static inline uint8_t *put_sized(uint8_t *at, uint64_t value, uint32_t size)
{
    *at++ = (uint8_t)size;
    put_bytes(at, LOW_BYTES(value, size));
    return at + size;
}

static inline uint8_t *put_u64(uint8_t *at, uint64_t value)
{
    if (value + 1 <= 1) { /* 0, or the greatest */
        *at = (uint8_t)value;
        return at + 1;
    }
    return put_sized(at, value, (uint32_t)(71 - __builtin_clzll(value)) / 8);
}

static inline uint8_t *put_u32(uint8_t *at, uint32_t value)
{
    if (value == UINT32_MAX) {
        *at = (uint8_t)value;
        return at + 1;
    }
    return put_u64(at, value);
}

static inline uint8_t *put_i32(uint8_t *at, int32_t value)
{
    return value < 0 ? put_sized(at, (uint32_t)value, 4) : put_u64(at, (uint64_t)value);
}

static inline uint8_t *put_i64(uint8_t *at, int64_t value)
{
    return value < 0 ? put_sized(at, (uint64_t)value, 8) : put_u64(at, (uint64_t)value);
}

/* ---- attributes ---- */

static inline uint8_t *begin_attribute(lo2_otf2_writer *w, uint32_t attribute, uint8_t type)
{
    attribute_list *list = &w->list;
    list->count++;
    uint8_t *at = put_u32(list->bytes + list->size, attribute);
    *at++ = type;
    return at;
}

static inline void end_attribute(lo2_otf2_writer *w, const uint8_t *at) { w->list.size = (uint32_t)(at - w->list.bytes); }

void otf2_add_uint8(lo2_otf2_writer *w, uint32_t attribute, uint8_t value)
{
    uint8_t *at = begin_attribute(w, attribute, w->config.values.type_uint8);
    *at++ = value;
    end_attribute(w, at);
}

void otf2_add_uint32(lo2_otf2_writer *w, uint32_t attribute, uint32_t value)
{
    end_attribute(w, put_u32(begin_attribute(w, attribute, w->config.values.type_uint32), value));
}

void otf2_add_uint64(lo2_otf2_writer *w, uint32_t attribute, uint64_t value)
{
    end_attribute(w, put_u64(begin_attribute(w, attribute, w->config.values.type_uint64), value));
}

void otf2_add_int32(lo2_otf2_writer *w, uint32_t attribute, int32_t value)
{
    end_attribute(w, put_i32(begin_attribute(w, attribute, w->config.values.type_int32), value));
}

void otf2_add_ref(lo2_otf2_writer *w, uint32_t attribute, uint8_t type, uint32_t ref)
{
    end_attribute(w, put_u32(begin_attribute(w, attribute, type), ref));
}

/* The most bytes of the list's contents. */
static inline uint32_t most_of(const attribute_list *list) { return U32 + list->count * ATTRIBUTE; }

static inline uint32_t room_of(const attribute_list *list)
{
    return list->count ? KIND + (most_of(list) < LONG ? U8 : U64) + most_of(list) : 0;
}

/* Writes the list, and empties it. Its length is as wide as that of the longest list with as many attributes. */
static uint8_t *put_attributes(uint8_t *at, attribute_list *list)
{
    uint8_t count[U64 + U64];
    uint32_t size = (uint32_t)(put_u32(count, list->count) - count);
    *at++ = ATTRIBUTES;
    if (most_of(list) < LONG) {
        *at++ = (uint8_t)(size + list->size);
    } else {
        *at++ = LONG;
        at = put_bytes(at, size + list->size);
    }
    memcpy(at, count, size);
    memcpy(at + size, list->bytes, list->size);
    at += size + list->size;
    list->count = list->size = 0;
    return at;
}

/* ---- events ---- */

static int next_chunk(lo2_otf2_writer *w, event_file *f, uint64_t time)
{
    if (!otf2_next_chunk(w->config.files, f))
        return otf2_fail(w, "writing events");
    *f->at++ = TIMESTAMP;
    f->at = put_bytes(f->at, time);
    f->time = time;
    return 0;
}

/* Begins an event whose fields take `room` bytes at most. *at: where the fields begin. */
static inline int begin(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint8_t kind, uint32_t room,
                        uint8_t **at)
{
    event_file *f = location->file;
    if (__builtin_expect((uint64_t)(f->end - f->at) < TIME + room_of(&w->list) + KIND + room + OTF2_END_BYTES, 0))
        TRY(next_chunk(w, f, time));
    if (time > f->time || !time) {
        *f->at++ = TIMESTAMP;
        f->at = put_bytes(f->at, time);
        f->time = time;
    }
    f->nr_events++;
    if (w->list.count)
        f->at = put_attributes(f->at, &w->list);
    *f->at = kind;
    *at = f->at + 1;
    return 0;
}

/* Ends an event whose fields have a length before them. */
static inline int end_fields(lo2_otf2_location *location, uint8_t *fields, uint8_t *at)
{
    fields[-1] = (uint8_t)(at - fields);
    location->file->at = at;
    return 0;
}

/* Writes Enter or Leave, which have no length. */
static inline int put_ref(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint8_t kind, uint32_t ref)
{
    uint8_t *at;
    TRY(begin(w, location, time, kind, U32, &at));
    location->file->at = put_u32(at, ref);
    return 0;
}

/* Begins any other event. Its first field is a reference. */
static inline int begin_ref(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint8_t kind, uint32_t room,
                            uint32_t ref, uint8_t **fields, uint8_t **at)
{
    TRY(begin(w, location, time, kind, U8 + U32 + room, fields));
    *at = put_u32(++*fields, ref);
    return 0;
}

/* The statement writes the fields after the reference, from `at` on. */
#define RECORD(kind, room, ...)                                                  \
    uint8_t *fields, *at;                                                        \
    TRY(begin_ref(w, location, time, kind, room, ref, &fields, &at));            \
    __VA_ARGS__;                                                                 \
    return end_fields(location, fields, at)

int otf2_put_enter(EVENT_OF) { return put_ref(w, location, time, ENTER, ref); }
int otf2_put_leave(EVENT_OF) { return put_ref(w, location, time, LEAVE, ref); }
int otf2_put_context_leave(EVENT_OF) { RECORD(CONTEXT_LEAVE, 0, ); }
int otf2_put_destroy_handle(EVENT_OF) { RECORD(DESTROY_HANDLE, 0, ); }

int otf2_put_context_enter(EVENT_OF, uint32_t distance)
{
    RECORD(CONTEXT_ENTER, U32, at = put_u32(at, distance));
}

int otf2_put_sample(EVENT_OF, uint32_t distance, uint32_t generator)
{
    RECORD(CONTEXT_SAMPLE, U32 + U32, at = put_u32(put_u32(at, distance), generator));
}

int otf2_put_create_handle(EVENT_OF, uint8_t access, uint32_t creation, uint32_t status)
{
    RECORD(CREATE_HANDLE, U8 + U32 + U32, *at++ = access; at = put_u32(put_u32(at, creation), status));
}

int otf2_put_duplicate_handle(EVENT_OF, uint32_t fresh, uint32_t status)
{
    RECORD(DUPLICATE_HANDLE, U32 + U32, at = put_u32(put_u32(at, fresh), status));
}

int otf2_put_seek(EVENT_OF, int64_t offset, uint8_t whence, uint64_t result)
{
    RECORD(SEEK, U64 + U8 + U64, at = put_i64(at, offset); *at++ = whence; at = put_u64(at, result));
}

int otf2_put_change_status_flags(EVENT_OF, uint32_t status)
{
    RECORD(CHANGE_STATUS_FLAGS, U32, at = put_u32(at, status));
}

int otf2_put_operation_begin(EVENT_OF, uint8_t mode, uint32_t flags, uint64_t bytes, uint64_t id)
{
    RECORD(OPERATION_BEGIN, U8 + U32 + U64 + U64, *at++ = mode; at = put_u64(put_u64(put_u32(at, flags), bytes), id));
}

int otf2_put_operation_issued(EVENT_OF, uint64_t id) { RECORD(OPERATION_ISSUED, U64, at = put_u64(at, id)); }

int otf2_put_operation_complete(EVENT_OF, uint64_t bytes, uint64_t id)
{
    RECORD(OPERATION_COMPLETE, U64 + U64, at = put_u64(put_u64(at, bytes), id));
}

int otf2_put_operation_cancelled(EVENT_OF, uint64_t id) { RECORD(OPERATION_CANCELLED, U64, at = put_u64(at, id)); }

int otf2_put_metric(EVENT_OF, uint8_t type, uint8_t count, const metric_value *values)
{
    uint8_t *fields, *at;
    TRY(begin_ref(w, location, time, METRIC, U8 + count * (U8 + (uint32_t)U64), ref, &fields, &at));
    *at++ = count;
    for (uint8_t i = 0; i < count; i++) {
        *at++ = type;
        at = put_u64(at, values[i].count);
    }
    return end_fields(location, fields, at);
}
