/*
 * Writes packets of Perfetto's trace format: protobuf, each packet the field 1 of the trace.
 *
 * Fields and types: protos/perfetto/trace/{trace_packet,track_event/track_event,track_event/debug_annotation}.proto. A
 * length stands before its content, so it gets a width that suffices, and is filled in afterwards. A varint may be
 * padded with groups of zeros at its most significant end: Perfetto's own writer does the same.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "api/all.h"

enum { SEQUENCE = 1, NEEDS_STATE = 2 };
/* Bytes of a length: for packets without notes, with notes that are numbers (at most 128), and with texts. */
enum { SHORT = 1, LONG = 2, ANY = 4 };
enum { SLICE_BEGIN = 1, SLICE_END = 2, INSTANT = 3, COUNTER = 4 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2 };
enum { PACKET = 1, TIMESTAMP = 8, SEQUENCE_ID = 10, TRACK_EVENT = 11, SEQUENCE_FLAGS = 13 };
enum { CATEGORY = 3, NOTE = 4, TYPE = 9, NAME = 10, TRACK = 11, COUNTER_VALUE = 30, FLOW = 47, LAST_FLOW = 48 };
enum { TEXT = 4 }; /* kind of a note, as in api/perfetto.h */
enum { NOTE_NAME = 1, NOTE_UINT = 3, NOTE_INT = 4, NOTE_TEXT = 6, NOTE_ADDRESS = 7, NOTE_INTERNED = 17 };

static uint8_t *put_varint(uint8_t *p, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *p++ = (uint8_t)(value | 0x80);
    *p++ = (uint8_t)value;
    return p;
}

static uint8_t *put_number(uint8_t *p, uint32_t field, uint64_t value)
{
    return put_varint(put_varint(p, field << 3 | VARINT), value);
}

static uint8_t *put_fixed(uint8_t *p, uint32_t field, uint64_t value)
{
    p = put_varint(p, field << 3 | FIXED64);
    for (int i = 0; i < 8; i++)
        *p++ = (uint8_t)(value >> 8 * i);
    return p;
}

/* Returns the start of the content, which close_message needs. */
static uint8_t *open_message(uint8_t *p, uint32_t field, int width)
{
    return put_varint(p, field << 3 | BYTES) + width;
}

static void close_message(uint8_t *content, const uint8_t *end, int width)
{
    size_t length = (size_t)(end - content);
    for (int i = 0; i < width; i++)
        content[i - width] = (uint8_t)((length >> 7 * i & 0x7f) | (i < width - 1 ? 0x80 : 0));
}

typedef struct packet {
    uint8_t *packet, *event;
    int width;
} packet;

static uint8_t *open_packet(packet *packet, uint8_t *p, int64_t time_ns, uint32_t type, uint64_t track)
{
    packet->packet = p = open_message(p, PACKET, packet->width);
    p = put_number(p, TIMESTAMP, (uint64_t)time_ns);
    p = put_number(p, SEQUENCE_ID, SEQUENCE);
    p = put_number(p, SEQUENCE_FLAGS, NEEDS_STATE);
    packet->event = p = open_message(p, TRACK_EVENT, packet->width);
    p = put_number(p, TYPE, type);
    return put_number(p, TRACK, track);
}

static uint8_t *close_packet(const packet *packet, uint8_t *p)
{
    close_message(packet->event, p, packet->width);
    close_message(packet->packet, p, packet->width);
    return p;
}

static uint8_t *put_text(uint8_t *p, const lo2_perfetto_note *note, size_t row)
{
    int64_t begin = note->values[row], length = note->values[row + 1] - begin;
    if (length <= 0)
        return p;
    uint8_t *content = open_message(p, NOTE, ANY);
    p = put_number(content, NOTE_NAME, note->name);
    p = put_varint(put_varint(p, NOTE_TEXT << 3 | BYTES), (uint64_t)length);
    memcpy(p, note->text + begin, (size_t)length);
    p += length;
    close_message(content, p, ANY);
    return p;
}

static uint8_t *put_note(uint8_t *p, const lo2_perfetto_note *note, size_t row)
{
    static const uint32_t fields[] = {NOTE_INT, NOTE_UINT, NOTE_ADDRESS, NOTE_INTERNED};
    if (note->kind >= sizeof fields / sizeof *fields)
        return put_text(p, note, row);
    int64_t value = note->values[row];
    if (value == note->unknown && !note->always)
        return p;
    p = put_varint(p, NOTE << 3 | BYTES);
    uint8_t *content = p + 1; /* a number has less than 128 bytes: one byte of length */
    p = put_number(content, NOTE_NAME, note->name);
    p = put_number(p, fields[note->kind], (uint64_t)value);
    content[-1] = (uint8_t)(p - content);
    return p;
}

static int length_bytes(const lo2_perfetto_slices *s, size_t row)
{
    for (uint32_t i = 0; i < s->nr_notes; i++)
        if (s->notes[i].kind == TEXT && s->notes[i].values[row + 1] > s->notes[i].values[row])
            return ANY;
    return s->nr_notes ? LONG : SHORT;
}

static uint8_t *put_begin(uint8_t *p, const lo2_perfetto_slices *s, size_t row)
{
    packet packet = {.width = length_bytes(s, row)};
    p = open_packet(&packet, p, s->begin_ns[row], s->end_ns[row] == INT64_MAX ? INSTANT : SLICE_BEGIN, s->track[row]);
    p = put_number(p, CATEGORY, s->category);
    p = put_number(p, NAME, s->name[row]);
    for (uint32_t i = 0; i < s->nr_flows; i++)
        if (s->flows[i][row])
            p = put_fixed(p, FLOW, s->flows[i][row]);
    if (s->last_flow && s->last_flow[row])
        p = put_fixed(p, LAST_FLOW, s->last_flow[row]);
    for (uint32_t i = 0; i < s->nr_notes; i++)
        p = put_note(p, &s->notes[i], row);
    return close_packet(&packet, p);
}

size_t lo2_perfetto_slices_write(const lo2_perfetto_slices *slices, uint8_t *out)
{
    uint8_t *p = out;
    for (size_t row = 0; row < slices->nr; row++) {
        int64_t end = slices->end_ns[row];
        packet packet = {.width = SHORT};
        p = put_begin(p, slices, row);
        if (end != INT64_MIN && end != INT64_MAX)
            p = close_packet(&packet, open_packet(&packet, p, end, SLICE_END, slices->track[row]));
    }
    return (size_t)(p - out);
}

size_t lo2_perfetto_counters_write(size_t nr, const uint64_t *track, const int64_t *time_ns, const int64_t *value,
                                   uint8_t *out)
{
    uint8_t *p = out;
    for (size_t row = 0; row < nr; row++) {
        packet packet = {.width = SHORT};
        p = open_packet(&packet, p, time_ns[row], COUNTER, track[row]);
        p = close_packet(&packet, put_number(p, COUNTER_VALUE, (uint64_t)value[row]));
    }
    return (size_t)(p - out);
}

/*
 * Rows come roughly in the order of their ends. A lane is free for a row if its last row ended before this one begins.
 * The best free lane is the one that ended last: this choice needs the fewest lanes. Rows of a lane never overlap, even
 * if ends come out of order.
 */
struct lo2_perfetto_lanes {
    struct lane {
        int64_t end_ns;
        uint32_t number;
    } *lanes; /* in the order of end_ns */
    uint32_t nr, room;
};

lo2_perfetto_lanes *lo2_perfetto_lanes_new(void)
{
    return calloc(1, sizeof(lo2_perfetto_lanes));
}

void lo2_perfetto_lanes_free(lo2_perfetto_lanes *lanes)
{
    if (lanes)
        free(lanes->lanes);
    free(lanes);
}

/* The number of lanes whose end is before the time. */
static uint32_t ended_before(const lo2_perfetto_lanes *lanes, int64_t time_ns)
{
    uint32_t low = 0, high = lanes->nr;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (lanes->lanes[middle].end_ns < time_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Takes out the lane with the last end before the time, or makes one. False: no memory. */
static bool take_lane(lo2_perfetto_lanes *lanes, int64_t time_ns, struct lane *taken)
{
    uint32_t nr_free = ended_before(lanes, time_ns);
    if (nr_free) {
        struct lane *best = &lanes->lanes[nr_free - 1];
        *taken = *best;
        lanes->nr--;
        memmove(best, best + 1, (lanes->nr - (nr_free - 1)) * sizeof *best);
        return true;
    }
    if (lanes->nr == lanes->room) {
        uint32_t room = lanes->room ? 2 * lanes->room : 16;
        struct lane *grown = realloc(lanes->lanes, room * sizeof *grown);
        if (!grown)
            return false;
        lanes->lanes = grown;
        lanes->room = room;
    }
    taken->number = lanes->nr;
    return true;
}

static void put_lane_back(lo2_perfetto_lanes *lanes, const struct lane *taken)
{
    uint32_t place = ended_before(lanes, taken->end_ns);
    memmove(&lanes->lanes[place + 1], &lanes->lanes[place], (lanes->nr - place) * sizeof *taken);
    lanes->lanes[place] = *taken;
    lanes->nr++;
}

bool lo2_perfetto_lanes_assign(lo2_perfetto_lanes *lanes, size_t nr, const int64_t *begin_ns, const int64_t *end_ns,
                               uint32_t *lane)
{
    for (size_t row = 0; row < nr; row++) {
        struct lane taken;
        if (!take_lane(lanes, begin_ns[row], &taken))
            return false;
        /* An instant takes its moment only. A row without an end takes all time to come. */
        taken.end_ns = end_ns[row] == INT64_MIN ? INT64_MAX : end_ns[row] == INT64_MAX ? begin_ns[row] : end_ns[row];
        lane[row] = taken.number;
        put_lane_back(lanes, &taken);
    }
    return true;
}
