/*
 * Looks for block requests or system calls that took longer than a threshold, while a recording goes on.
 *
 * The input is the bytes just drained from each buffer, in pieces of any length: perf's samples, and records of BPF
 * programs (bpf/programs/records.h). A request may be issued on one CPU and completed on another. A thread may enter a
 * call on one CPU and leave the call on another. Either buffer may be drained first. So starts and ends are gathered.
 * When all buffers have been drained, starts and ends are paired in the order of their times. A completion belongs to
 * the latest issue of its device, sector and operation. An exit belongs to the thread's latest entry.
 *
 * The table of starts is bounded: the oldest make way. If a buffer lost records, all starts are forgotten, because an
 * end and the next start may be among the lost records. The next end would then be paired with the wrong start.
 * Forgotten starts are counted.
 */
#include <stdlib.h>
#include <string.h>

#include "hash/hash.h"
#include "input/block_sample.h"
#include "input/clock.h"
#include "input/fields.h"
#include "input/stream.h"

enum { HEADER_BYTES = 8, SAMPLE_RAW_AT = 20, RECORD_LOST = 2, RECORD_SAMPLE = 9, LOST_TIME_AT = 24,
       MAX_RECORD = 1 << 16, NR_ENTRIES = 1 << 16, NR_BUCKETS = 1 << 17, MAX_GATHERED = 1 << 20, NR_TYPES = 1 << 16 };

typedef enum { BEGINS, ENDS, LOSES } happening; /* in the order in which they count at equal times */

typedef struct {
    uint64_t sector;        /* a call has 0, as in `operation` */
    int64_t time;
    uint32_t owner;         /* the request's device or the call's thread */
    uint32_t chain;         /* index + 1: the next one in its bucket, or the next free one */
    uint32_t older, newer;  /* index + 1: neighbours by age */
    uint16_t pair;          /* place in the configuration's pairs of types */
    uint8_t operation;
    uint8_t what;           /* a happening; all entries of the table are begins */
} entry;

typedef struct { uint8_t *bytes; uint32_t filled; } carried; /* a record whose rest has not come yet */

struct lo2_watch {
    lo2_watch_config config;
    uint16_t *places;       /* by common_type: 2 * pair + 1 for a start, 2 * pair + 2 for an end, 0 if not watched */
    uint32_t *devices;
    bool is_block;
    lo2_event events[2];
    uint32_t min_raw[2];
    carried *rings;
    entry *entries;
    uint32_t *buckets;
    uint32_t nr_used, free, oldest, newest;
    uint64_t nr_forgotten;
    VEC(entry) gathered;
};

/* ---- the table ---- */

static uint32_t bucket_of(uint32_t owner, uint64_t sector, uint8_t operation)
{
    return (uint32_t)HASH_WORDS(owner, sector, operation) & (NR_BUCKETS - 1);
}

static uint32_t *link_to(lo2_watch *w, const entry *key)
{
    uint32_t *link = &w->buckets[bucket_of(key->owner, key->sector, key->operation)];
    for (; *link; link = &w->entries[*link - 1].chain) {
        const entry *e = &w->entries[*link - 1];
        if (e->owner == key->owner && e->sector == key->sector && e->operation == key->operation)
            break;
    }
    return link;
}

static void take_out(lo2_watch *w, uint32_t *link)
{
    uint32_t index = *link;
    entry *gone = &w->entries[index - 1];
    *(gone->older ? &w->entries[gone->older - 1].newer : &w->oldest) = gone->newer;
    *(gone->newer ? &w->entries[gone->newer - 1].older : &w->newest) = gone->older;
    *link = gone->chain;
    gone->chain = w->free;
    w->free = index;
}

static void forget_oldest(lo2_watch *w)
{
    take_out(w, link_to(w, &w->entries[w->oldest - 1]));
    w->nr_forgotten++;
}

/* Adds a start. Replaces one with the same key, which was issued again, or whose end was lost. */
static void put_in(lo2_watch *w, entry begun)
{
    uint32_t *link = link_to(w, &begun);
    if (*link)
        take_out(w, link);
    if (!w->free && w->nr_used == NR_ENTRIES)
        forget_oldest(w);
    uint32_t index = w->free ? w->free : ++w->nr_used;
    if (w->free)
        w->free = w->entries[index - 1].chain;
    uint32_t *bucket = &w->buckets[bucket_of(begun.owner, begun.sector, begun.operation)];
    begun.chain = *bucket;
    begun.older = w->newest;
    begun.newer = 0;
    *(w->newest ? &w->entries[w->newest - 1].newer : &w->oldest) = index;
    w->newest = *bucket = index;
    w->entries[index - 1] = begun;
}

/* ---- samples ---- */

static bool wanted(const lo2_watch *w, const block_sample *s)
{
    if (!(w->config.operations >> s->operation & 1))
        return false;
    bool found = !w->config.nr_devices;
    for (uint32_t i = 0; i < w->config.nr_devices && !found; i++)
        found = w->devices[i] == s->device;
    return found;
}

static void gather(lo2_watch *w, entry e)
{
    if (w->gathered.count < MAX_GATHERED && VEC_ROOM(&w->gathered, w->gathered.count + 1))
        w->gathered.at[w->gathered.count++] = e;
    else
        w->nr_forgotten++;
}

/* True if the trigger watches this block event; fills in its key. `raw` has the fields at the places of raw data. */
static bool read_block(const lo2_watch *w, const uint8_t *raw, uint32_t raw_size, entry *e)
{
    block_sample s;
    if (raw_size < w->min_raw[e->what])
        return false;
    block_sample_read(&w->events[e->what], raw, &s);
    if (e->what == ENDS && s.wants_flush) /* a bio that only asked for a flush has ended, not the flush */
        return false;
    e->owner = s.device;
    e->sector = s.sector;
    e->operation = s.operation;
    return wanted(w, &s);
}

/* An event of a thread: of a call, or of the block layer with its raw data. */
static void on_event(lo2_watch *w, uint16_t common_type, int64_t time, uint32_t tid, const uint8_t *raw, uint32_t raw_size)
{
    uint16_t place = w->places[common_type];
    if (!place)
        return;
    entry e = {.time = time, .pair = (uint16_t)((place - 1) / 2), .what = (place - 1) % 2 ? ENDS : BEGINS};
    if (!w->is_block)
        e.owner = tid;
    else if (!read_block(w, raw, raw_size, &e))
        return;
    gather(w, e);
}

static void on_sample(lo2_watch *w, const uint8_t *record, uint32_t size)
{
    uint32_t raw_size, tid;
    uint16_t common_type;
    int64_t time;
    if (size < SAMPLE_RAW_AT)
        return;
    const uint8_t *raw = record + SAMPLE_RAW_AT;
    memcpy(&raw_size, raw - 4, 4);
    if (raw_size > size - SAMPLE_RAW_AT || raw_size < w->config.type_offset + 2 || raw_size < w->config.tid_offset + 4)
        return;
    memcpy(&common_type, raw + w->config.type_offset, 2);
    memcpy(&tid, raw + w->config.tid_offset, 4);
    memcpy(&time, record + HEADER_BYTES, 8);
    on_event(w, common_type, time, tid, raw, raw_size);
}

static void on_perf_record(lo2_watch *w, const uint8_t *record, uint32_t size)
{
    uint32_t type;
    memcpy(&type, record, 4);
    if (type == RECORD_SAMPLE)
        on_sample(w, record, size);
    if (type == RECORD_LOST && size >= LOST_TIME_AT + 8) {
        entry e = {.what = LOSES};
        memcpy(&e.time, record + LOST_TIME_AT, 8);
        gather(w, e);
    }
}

/* Records of calls that were too short are left out here: most are. */
static void on_whole_call(lo2_watch *w, const uint8_t *record, const lo2_kernel_head *head)
{
    lo2_kernel_call call;
    memcpy(&call, record, offsetof(lo2_kernel_call, args));
    if (w->is_block || (int64_t)call.duration_ns < w->config.least_ns)
        return;
    on_event(w, head->event, (int64_t)head->time_ns, head->tid, NULL, 0);
    on_event(w, call.exit_event, plus((int64_t)head->time_ns, (int64_t)call.duration_ns), head->tid, NULL, 0);
}

static void on_programs_record(lo2_watch *w, const uint8_t *record, uint32_t length)
{
    enum { RAW_AT = sizeof(lo2_kernel_head) - LO2_FIELDS_AT };
    lo2_kernel_head head;
    if (length < sizeof head)
        return;
    memcpy(&head, record, sizeof head);
    if (head.type == LO2_KERNEL_CALL && length >= offsetof(lo2_kernel_call, args))
        on_whole_call(w, record, &head);
    else if (!w->is_block && (head.type == LO2_KERNEL_ENTER || head.type == LO2_KERNEL_EXIT))
        on_event(w, head.event, (int64_t)head.time_ns, head.tid, NULL, 0);
    else if (w->is_block && head.type == LO2_KERNEL_SAMPLE)
        on_event(w, head.event, (int64_t)head.time_ns, head.tid, record + RAW_AT, length - RAW_AT);
    else if (head.type == LO2_KERNEL_LOST)
        gather(w, (entry){.what = LOSES, .time = (int64_t)head.time_ns});
}

static void on_record(lo2_watch *w, bool of_programs, const uint8_t *record, uint32_t size)
{
    uint32_t length;
    memcpy(&length, record, 4);
    if (!of_programs)
        on_perf_record(w, record, size);
    else if (kernel_record_length(length) <= size - HEADER_BYTES)
        on_programs_record(w, record + HEADER_BYTES, kernel_record_length(length));
}

/* Bytes that are no record do not stop the watcher, for no proof depends on the watcher. */
static uint32_t size_of(bool of_programs, const uint8_t *record)
{
    uint32_t length;
    uint16_t size;
    memcpy(&length, record, 4);
    memcpy(&size, record + 6, 2);
    if (of_programs)
        return kernel_record_step(length) > MAX_RECORD ? HEADER_BYTES : (uint32_t)kernel_record_step(length);
    return size < HEADER_BYTES ? HEADER_BYTES : size;
}

/* Completes the record that an earlier piece began. Returns how many bytes of this piece it took. */
static uint64_t finish_carried(lo2_watch *w, carried *c, bool of_programs, const uint8_t *bytes, uint64_t length)
{
    uint64_t used = 0;
    while (c->filled && used < length) {
        uint32_t need = c->filled < HEADER_BYTES ? HEADER_BYTES : size_of(of_programs, c->bytes);
        uint64_t take = need - c->filled < length - used ? need - c->filled : length - used;
        memcpy(c->bytes + c->filled, bytes + used, take);
        c->filled += (uint32_t)take;
        used += take;
        if (c->filled >= HEADER_BYTES && c->filled == size_of(of_programs, c->bytes)) {
            on_record(w, of_programs, c->bytes, c->filled);
            c->filled = 0;
        }
    }
    return used;
}

uint32_t lo2_watch_feed(lo2_watch *w, uint32_t ring, uint8_t of_programs, const uint8_t *bytes, uint64_t length)
{
    carried *c = &w->rings[ring];
    uint64_t at = finish_carried(w, c, of_programs, bytes, length);
    while (at + HEADER_BYTES <= length && at + size_of(of_programs, bytes + at) <= length) {
        uint32_t size = size_of(of_programs, bytes + at);
        on_record(w, of_programs, bytes + at, size);
        at += size;
    }
    if (at < length) {
        memcpy(c->bytes, bytes + at, length - at);
        c->filled = (uint32_t)(length - at);
    }
    return w->gathered.count;
}

static int by_time(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return (int)x->what - (int)y->what;
}

/* True if the end makes a slow pair with its start. */
static bool is_hit(lo2_watch *w, const entry *end, lo2_hit *hit)
{
    uint32_t *link = link_to(w, end);
    if (!*link)
        return false;
    const entry begun = w->entries[*link - 1];
    take_out(w, link);
    *hit = (lo2_hit){.sector = end->sector, .begin_ns = begun.time, .end_ns = end->time, .owner = end->owner,
                     .pair = end->pair, .operation = end->operation};
    return begun.pair == end->pair && minus(end->time, begun.time) >= w->config.least_ns;
}

uint32_t lo2_watch_hits(lo2_watch *w, lo2_hit *hits, uint32_t room)
{
    uint32_t count = 0;
    lo2_hit hit;
    if (w->gathered.count) /* an empty array has no address, and C forbids to sort it */
        qsort(w->gathered.at, w->gathered.count, sizeof *w->gathered.at, by_time);
    for (uint32_t i = 0; i < w->gathered.count; i++) {
        const entry *e = &w->gathered.at[i];
        if (e->what == BEGINS)
            put_in(w, *e);
        else if (e->what == ENDS && is_hit(w, e, &hit) && count < room)
            hits[count++] = hit;
        while (e->what == LOSES && w->oldest)
            forget_oldest(w);
    }
    w->gathered.count = 0;
    return count;
}

uint64_t lo2_watch_forgotten(const lo2_watch *w)
{
    return w->nr_forgotten;
}

/* ---- life ---- */

static void set_block_events(lo2_watch *w)
{
    w->is_block = true;
    for (int what = 0; what < 2; what++) {
        w->events[what] = w->config.block[what];
        for (int f = 0; f < LO2_NR_FIELDS; f++) {
            const lo2_field *field = &w->events[what].fields[f];
            if (field->size && (uint32_t)field->offset + field->size > w->min_raw[what])
                w->min_raw[what] = (uint32_t)field->offset + field->size;
        }
    }
}

lo2_watch *lo2_watch_new(const lo2_watch_config *config)
{
    lo2_watch *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->config = *config;
    if (config->block)
        set_block_events(w);
    w->places = calloc(NR_TYPES, sizeof *w->places);
    w->devices = calloc(config->nr_devices + 1u, sizeof *w->devices);
    w->rings = calloc(config->nr_rings + 1u, sizeof *w->rings);
    w->entries = calloc(NR_ENTRIES, sizeof *w->entries);
    w->buckets = calloc(NR_BUCKETS, sizeof *w->buckets);
    bool whole = w->places && w->devices && w->rings && w->entries && w->buckets;
    for (uint32_t i = 0; whole && i < config->nr_rings; i++)
        whole = (w->rings[i].bytes = malloc(MAX_RECORD)) != NULL;
    if (!whole) {
        lo2_watch_free(w);
        return NULL;
    }
    for (uint32_t i = 0; i < 2u * config->nr_pairs; i++)
        w->places[config->types[i]] = (uint16_t)(i + 1);
    memcpy(w->devices, config->devices, config->nr_devices * sizeof *w->devices);
    return w;
}

void lo2_watch_free(lo2_watch *w)
{
    if (!w)
        return;
    for (uint32_t i = 0; w->rings && i < w->config.nr_rings; i++)
        free(w->rings[i].bytes);
    free(w->gathered.at);
    free(w->places);
    free(w->devices);
    free(w->rings);
    free(w->entries);
    free(w->buckets);
    free(w);
}
