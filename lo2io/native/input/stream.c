/*
 * A stream: files of records, read in blocks and delivered in the order of time.
 *
 * Records of one buffer are in that order but for rare inversions. An interrupt may come between the moment at which
 * a record takes its time and the moment at which it gets its place. Either moment may be the first:
 *
 *   record    time 1 ─────────────────────── place 2
 *   interrupt         time 2 ── place 1
 *
 * A block with an inversion is sorted stably. The last records of a block wait for the next one, so that an inversion
 * across both is put in order, too. An interrupt can come while a program records an event of a tracepoint. All events
 * of the interrupt then lie in between. So the number of such records that wait is larger than an interrupt can write.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "input/stream.h"

enum { HEADER_BYTES = 8, HELD_BACK = 64, EVENTS_HELD_BACK = 1024, RECORD_LOST = 2, RECORD_SAMPLE = 9, SAMPLE_RAW_AT = 20 };

/* Opens the next file of the stream. The reader sees one sequence of bytes. */
static int open_next(stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = open(s->paths[s->opened++], O_RDONLY | O_CLOEXEC);
    return s->fd < 0 ? -1 : 0;
}

const char *stream_path(const stream *s) { return s->paths[s->opened ? s->opened - 1 : 0]; }

int stream_open(stream *s, const lo2_stream *config, uint32_t index, uint32_t buffer_bytes)
{
    s->paths = config->paths;
    s->nr_paths = config->nr_paths;
    s->index = index;
    s->cpu = config->cpu;
    s->kind = config->kind;
    s->size = buffer_bytes;
    s->last_time = s->highest = UNKNOWN;
    if (open_next(s))
        return -1;
    s->buffer = malloc(buffer_bytes);
    return s->buffer ? 0 : -1;
}

void stream_close(stream *s)
{
    int why = errno; /* a reader that failed closes before it reports */
    if (s->fd >= 0)
        close(s->fd);
    free(s->buffer);
    free(s->entries);
    errno = why;
}

static int64_t record_time(const stream *s, const uint8_t *record, uint16_t size, const facts_clock *clock)
{
    bool is_fact = s->kind == LO2_STREAM_FACTS;
    uint32_t type;
    int64_t time;
    memcpy(&type, record, 4);
    if (is_fact || type == RECORD_SAMPLE) {
        memcpy(&time, record + HEADER_BYTES, 8);
        if (is_fact) { /* a slot must be constant up to its FD fact's latest possible time; other facts may be early */
            fact_moment end = fact_when(clock, (uint64_t)time);
            time = plus(end.time, plus(end.margin, type == LO2_FACT_FD && end.doubt < JUMPED ? end.doubt : 0));
        }
        return time;
    }
    memcpy(&time, record + size - 8, 8); /* sample_id_all: TIME is the record's last word */
    return time;
}

static int read_more(stream *s)
{
    uint32_t rest = s->filled - s->block_end;
    memmove(s->buffer, s->buffer + s->block_end, rest);
    s->filled = rest;
    s->block_end = 0;
    while (!s->at_end && s->filled < s->size) {
        ssize_t got = read(s->fd, s->buffer + s->filled, s->size - s->filled);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0) {
            s->at_end = s->opened == s->nr_paths;
            if (!s->at_end && open_next(s))
                return -1;
        }
        s->filled += (uint32_t)got;
        s->bytes_read += (uint64_t)got;
    }
    return 0;
}

/*
 * ---- framing ----
 *
 * Bytes from the record that begins here to the next one. 0: the record is not whole. NO_RECORD: here is no record, and
 * where the next one begins is unknown.
 */

#define NO_RECORD UINT64_MAX

static uint64_t sample_step(const uint8_t *record, uint64_t left)
{
    uint16_t size;
    if (left < HEADER_BYTES * 2)
        return 0;
    memcpy(&size, record + 6, 2);
    return size < HEADER_BYTES * 2 ? NO_RECORD : size > left ? 0 : size;
}

static uint64_t kernel_step(const uint8_t *record, uint64_t left)
{
    uint32_t length;
    if (left < HEADER_BYTES)
        return 0;
    memcpy(&length, record, 4);
    uint64_t step = kernel_record_step(length);
    if (length & KERNEL_UNFINISHED)
        return NO_RECORD;
    if (step > left)
        return 0;
    /* A file that was cut off may end with zeroes, which are no record. */
    return !(length & KERNEL_DISCARDED) && length < sizeof(lo2_kernel_head) ? NO_RECORD : step;
}

static uint64_t record_step(uint8_t kind, const uint8_t *record, uint64_t left)
{
    return is_of_programs(kind) ? kernel_step(record, left) : sample_step(record, left);
}

uint64_t lo2_list_records(uint8_t kind, const uint8_t *bytes, uint64_t size, int64_t *places, uint64_t *end)
{
    uint64_t count = 0, at = 0, step;
    while ((step = record_step(kind, bytes + at, size - at)) && step != NO_RECORD && !(at & 7)) {
        uint32_t head;
        memcpy(&head, bytes + at, 4);
        if (!is_of_programs(kind) || !(head & KERNEL_DISCARDED))
            places[count++] = (int64_t)(at / 8);
        at += step;
    }
    *end = step == NO_RECORD || (at & 7) ? NO_RECORD : at;
    return count;
}

static bool entry_fits(stream *s, uint32_t place)
{
    if (place < s->entries_room || lo2_grow((void **)&s->entries, &s->entries_room, place + 1, sizeof *s->entries))
        return true;
    s->out_of_memory = true;
    return false;
}

/* Lists the whole records of the buffer, and returns their number. *end: the byte after the last. */
static uint32_t list_records(stream *s, const facts_clock *clock, uint32_t *end)
{
    uint32_t count = 0, at = 0;
    int64_t before = s->highest;
    uint64_t step;
    while ((step = sample_step(s->buffer + at, s->filled - at)) && step != NO_RECORD) {
        uint16_t size = (uint16_t)step;
        if (!entry_fits(s, count))
            break;
        int64_t time = record_time(s, s->buffer + at, size, clock);
        uint32_t type;
        memcpy(&type, s->buffer + at, 4);
        if (type == RECORD_LOST && size >= 32) /* the gap begins after all records before this one in the buffer */
            memcpy(s->buffer + at + HEADER_BYTES, &before, 8);
        before = time > before ? time : before;
        s->entries[count] = (struct lo2_entry){time, at, count};
        count++;
        at += size;
    }
    *end = at;
    return count;
}

static bool list_entry(stream *s, uint32_t place, int64_t time, uint32_t offset)
{
    if (!entry_fits(s, place))
        return false;
    s->entries[place] = (struct lo2_entry){time, offset, place};
    return true;
}

static bool list_exit(stream *s, uint32_t place, const lo2_kernel_head *head, const uint8_t *record, uint32_t offset)
{
    int64_t duration;
    memcpy(&duration, record + offsetof(lo2_kernel_call, duration_ns), 8);
    return list_entry(s, place, plus((int64_t)head->time_ns, duration), offset | STREAM_EXIT | STREAM_BOUND);
}

/* Entry `last` is a fact about the call whose exit is the entry before. Exchanges both, so that the fact comes first. */
static void put_before_exit(stream *s, uint32_t last)
{
    struct lo2_entry *exit = &s->entries[last - 1], *fact = &s->entries[last], first = *fact;
    uint32_t bound = exit->offset & STREAM_BOUND;
    first.order = last - 1;
    first.offset |= bound;
    *fact = (struct lo2_entry){exit->time, exit->offset | STREAM_BOUND, last};
    *exit = first;
}

/*
 * Lists the records of BPF programs in the same way. The record of a call has two entries, at its entry and at its
 * exit. In the file, facts about an exit lie after the exit and have its time. In the list, they come before the exit, as
 * they do if calls are samples.
 */
static uint32_t list_kernel_records(stream *s, uint32_t *end)
{
    uint32_t count = 0, at = 0, exited = 0; /* the thread whose exit is the last entry */
    uint64_t step;
    while ((step = kernel_step(s->buffer + at, s->filled - at)) && step != NO_RECORD) {
        const uint8_t *record = s->buffer + at + HEADER_BYTES;
        uint32_t length, before = count;
        memcpy(&length, s->buffer + at, 4);
        if (!(length & KERNEL_DISCARDED)) {
            lo2_kernel_head head;
            memcpy(&head, record, sizeof head);
            bool whole = head.type == LO2_KERNEL_CALL && length >= offsetof(lo2_kernel_call, args);
            if (!list_entry(s, count++, (int64_t)head.time_ns, at + HEADER_BYTES) ||
                (whole && !list_exit(s, count++, &head, record, at + HEADER_BYTES))) {
                count = before;
                break;
            }
            bool of_call = head.type == LO2_KERNEL_FILE || head.type == LO2_KERNEL_PATH || head.type == LO2_KERNEL_EVENTS;
            if (of_call && before && exited == head.tid && s->entries[before - 1].time == (int64_t)head.time_ns)
                put_before_exit(s, before);
            else
                exited = whole || head.type == LO2_KERNEL_EXIT ? head.tid : 0;
        }
        at += (uint32_t)step;
    }
    *end = at;
    return count;
}

static int by_time(const void *a, const void *b)
{
    const struct lo2_entry *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static void put_in_order(stream *s, lo2_totals *totals)
{
    bool inverted = false;
    for (uint32_t i = 0; i < s->nr_entries; i++) {
        if (s->entries[i].time < s->last_time) {
            s->entries[i].time = s->last_time; /* later records have been delivered */
            totals->nr_late += s->kind != LO2_STREAM_FACTS;
        } else if (s->entries[i].time < s->highest) {
            totals->nr_reordered += s->kind != LO2_STREAM_FACTS; /* facts have different margins, so their order says nothing */
            inverted = true;
        }
        if (s->entries[i].time > s->highest)
            s->highest = s->entries[i].time;
    }
    if (inverted)
        qsort(s->entries, s->nr_entries, sizeof *s->entries, by_time);
}

/* Lists the records of the buffer; 0: there is none. */
static uint32_t list_block(stream *s, const facts_clock *clock, uint32_t *end)
{
    return stream_of_programs(s) ? list_kernel_records(s, end) : list_records(s, clock, end);
}

/*
 * The last place at or before `kept` where the entries may be divided: no entry after it is older than one before it, and
 * a record's entry, its exit and its facts stay together. 0: there is none.
 */
static uint32_t divide(const stream *s, uint32_t kept, uint32_t count)
{
    int64_t oldest = INT64_MAX; /* of the entries after */
    uint32_t looked = count, ordered;
    for (;; kept = ordered) {
        while (kept && stream_of_programs(s) && (s->entries[kept].offset & STREAM_BOUND))
            kept--;
        while (looked > kept) {
            looked--;
            oldest = s->entries[looked].time < oldest ? s->entries[looked].time : oldest;
        }
        for (ordered = 0; ordered < kept && s->entries[ordered].time <= oldest;)
            ordered++;
        if (ordered == kept)
            return kept;
    }
}

/* Leaves the last entries for the next block. Returns how many remain, and sets where the block ends. */
static uint32_t hold_back(const stream *s, uint32_t count, uint32_t *end)
{
    bool is_kernel = stream_of_programs(s);
    uint32_t held_back = s->kind == LO2_STREAM_EVENTS ? EVENTS_HELD_BACK : HELD_BACK;
    if ((s->at_end && *end == s->filled) || (count <= 2 * held_back && !is_kernel))
        return count;
    uint32_t kept = divide(s, count - (count <= 2 * held_back ? count / 2 : held_back), count);
    if (!kept)
        return count;
    if (!is_kernel) {
        *end = s->entries[kept].offset;
        return kept;
    }
    for (uint32_t i = kept; i < count; i++) { /* a fact comes before its exit in the list, but after it in the file */
        uint32_t offset = (s->entries[i].offset & ~(uint32_t)STREAM_MARKS) - HEADER_BYTES;
        *end = offset < *end ? offset : *end;
    }
    return kept;
}

int stream_fill(stream *s, const facts_clock *clock, lo2_totals *totals)
{
    if (s->next < s->nr_entries)
        return 1;
    uint32_t end = 0, count = 0;
    while (count == 0) { /* a block of discarded records has none */
        if (s->at_end && s->block_end == s->filled)
            return 0;
        if (read_more(s))
            return -1;
        count = list_block(s, clock, &end);
        if (s->out_of_memory) {
            errno = ENOMEM;
            return -1;
        }
        if (count == 0 && end == 0)
            break;
        s->block_end = end;
    }
    if (count == 0) {
        totals->truncated_bytes += s->filled;
        /* No record here: the stream ends, for nothing after can be framed. */
        while (!s->at_end) {
            s->block_end = s->filled;
            if (read_more(s))
                return -1;
            totals->truncated_bytes += s->filled;
        }
        s->block_end = s->filled;
        return 0;
    }
    count = hold_back(s, count, &end);
    s->block_end = end;
    s->nr_entries = count;
    s->next = 0;
    put_in_order(s, totals);
    return 1;
}

/* The common_type of an event; UINT32_MAX if the record is none. */
static uint32_t event_type(const stream *s, uint32_t offset, uint32_t type_offset)
{
    const uint8_t *record = s->buffer + (offset & ~(uint32_t)(stream_of_programs(s) ? STREAM_MARKS : 0));
    uint32_t kind;
    uint16_t size, type;
    if (stream_of_programs(s)) {
        lo2_kernel_head head;
        memcpy(&head, record, sizeof head);
        return head.type == LO2_KERNEL_SAMPLE ? head.event : UINT32_MAX;
    }
    memcpy(&kind, record, 4);
    memcpy(&size, record + 6, 2);
    if (kind != RECORD_SAMPLE || size < SAMPLE_RAW_AT + type_offset + 2)
        return UINT32_MAX;
    memcpy(&type, record + SAMPLE_RAW_AT + type_offset, 2);
    return type;
}

int stream_count(const lo2_stream *config, uint32_t buffer_bytes, uint32_t type_offset, uint64_t *counts, uint32_t nr_types)
{
    const facts_clock clock = {0};
    lo2_totals totals = {0};
    stream s = {.fd = -1};
    int have = stream_open(&s, config, 0, buffer_bytes);
    while (have == 0 && (have = stream_fill(&s, &clock, &totals)) > 0) {
        for (; s.next < s.nr_entries; s.next++) {
            uint32_t type = event_type(&s, s.entries[s.next].offset, type_offset);
            if (type < nr_types)
                counts[type]++;
        }
        have = 0;
    }
    stream_close(&s);
    return have;
}
