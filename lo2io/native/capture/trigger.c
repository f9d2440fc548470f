/*
 * Looks, while a recording goes on, for block requests that took longer than a threshold.
 *
 * In come the bytes just drained from each ring, in any pieces. A request is issued on one CPU and completed on
 * another, and either ring may be drained first: so issues and completions are gathered, and looked at in the order of
 * their times when all rings have been drained. A completion belongs to the latest issue of its device, sector and
 * operation. The table of issues is bounded, the oldest make way: what is lost so is at most a hit that is not told.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

enum { HEADER_BYTES = 8, SAMPLE_RAW_AT = 20, RECORD_SAMPLE = 9, MAX_RECORD = 1 << 16, NR_ENTRIES = 1 << 16,
       NR_BUCKETS = 1 << 17, MAX_GATHERED = 1 << 20 };

typedef struct {
    uint64_t sector;
    int64_t time;
    uint32_t device, chain; /* index + 1 of the next in the bucket */
    uint8_t operation;
    bool completes;         /* of what was gathered; the table holds issues */
    bool used;
} entry;

typedef struct { uint8_t *bytes; uint32_t filled; } carried; /* a record of which the rest is still to come */

struct lo2_watch {
    lo2_watch_config config;
    uint32_t *devices;
    lo2_event events[2];
    uint32_t min_raw[2];
    carried *rings;
    entry *entries;
    uint32_t *buckets, next;
    VEC(entry) gathered;
};

/* ---- the table ---- */

static uint32_t bucket_of(uint32_t device, uint64_t sector, uint8_t operation)
{
    uint64_t h = (sector ^ ((uint64_t)device << 40) ^ ((uint64_t)operation << 60)) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 40) & (NR_BUCKETS - 1);
}

static uint32_t *link_to(lo2_watch *w, const entry *key)
{
    uint32_t *link = &w->buckets[bucket_of(key->device, key->sector, key->operation)];
    for (; *link; link = &w->entries[*link - 1].chain) {
        const entry *e = &w->entries[*link - 1];
        if (e->device == key->device && e->sector == key->sector && e->operation == key->operation)
            break;
    }
    return link;
}

static void take_out(lo2_watch *w, uint32_t *link)
{
    entry *gone = &w->entries[*link - 1];
    *link = gone->chain;
    gone->used = false;
}

static void put_in(lo2_watch *w, entry issue)
{
    uint32_t *link = link_to(w, &issue);
    if (*link) { /* issued again, or the first one's completion was lost */
        w->entries[*link - 1].time = issue.time;
        return;
    }
    uint32_t index = w->next++ % NR_ENTRIES;
    if (w->entries[index].used)
        take_out(w, link_to(w, &w->entries[index]));
    uint32_t *bucket = &w->buckets[bucket_of(issue.device, issue.sector, issue.operation)];
    issue.chain = *bucket;
    issue.used = true;
    w->entries[index] = issue;
    *bucket = index + 1;
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

static void gather(lo2_watch *w, const block_sample *s, bool completes, int64_t time)
{
    if (w->gathered.count < MAX_GATHERED && VEC_ROOM(&w->gathered, w->gathered.count + 1))
        w->gathered.at[w->gathered.count++] = (entry){.sector = s->sector, .time = time, .device = s->device,
                                                      .operation = s->operation, .completes = completes};
}

static void on_record(lo2_watch *w, const uint8_t *record, uint32_t size)
{
    uint32_t type, raw_size;
    uint16_t common_type;
    int64_t time;
    memcpy(&type, record, 4);
    if (type != RECORD_SAMPLE || size < SAMPLE_RAW_AT + w->config.type_offset + 2)
        return;
    const uint8_t *raw = record + SAMPLE_RAW_AT;
    memcpy(&common_type, raw + w->config.type_offset, 2);
    int which = common_type == w->config.issue_type ? 0 : common_type == w->config.complete_type ? 1 : -1;
    if (which < 0)
        return;
    memcpy(&time, record + HEADER_BYTES, 8);
    memcpy(&raw_size, record + SAMPLE_RAW_AT - 4, 4);
    if (raw_size > size - SAMPLE_RAW_AT || raw_size < w->min_raw[which])
        return;
    block_sample s;
    block_sample_read(&w->events[which], raw, &s);
    bool other_end = which && s.wants_flush; /* of a bio that only asked for a flush, not of the flush */
    if (!other_end && wanted(w, &s))
        gather(w, &s, which != 0, time);
}

static uint32_t size_of(const uint8_t *record)
{
    uint16_t size;
    memcpy(&size, record + 6, 2);
    return size < HEADER_BYTES ? HEADER_BYTES : size; /* no record: go on, for this is no proof but a look */
}

/* Completes the record that a former piece began; returns how many bytes of this piece it took. */
static uint64_t finish_carried(lo2_watch *w, carried *c, const uint8_t *bytes, uint64_t length)
{
    uint64_t used = 0;
    while (c->filled && used < length) {
        uint32_t need = c->filled < HEADER_BYTES ? HEADER_BYTES : size_of(c->bytes);
        uint64_t take = need - c->filled < length - used ? need - c->filled : length - used;
        memcpy(c->bytes + c->filled, bytes + used, take);
        c->filled += (uint32_t)take;
        used += take;
        if (c->filled >= HEADER_BYTES && c->filled == size_of(c->bytes)) {
            on_record(w, c->bytes, c->filled);
            c->filled = 0;
        }
    }
    return used;
}

uint32_t lo2_watch_feed(lo2_watch *w, uint32_t ring, const uint8_t *bytes, uint64_t length)
{
    carried *c = &w->rings[ring];
    uint64_t at = finish_carried(w, c, bytes, length);
    while (at + HEADER_BYTES <= length && at + size_of(bytes + at) <= length) {
        uint32_t size = size_of(bytes + at);
        on_record(w, bytes + at, size);
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
    return (int)x->completes - (int)y->completes;
}

uint32_t lo2_watch_hits(lo2_watch *w, lo2_hit *hits, uint32_t room)
{
    uint32_t count = 0;
    if (w->gathered.count) /* C forbids to sort nothing at all, which has no address */
        qsort(w->gathered.at, w->gathered.count, sizeof *w->gathered.at, by_time);
    for (uint32_t i = 0; i < w->gathered.count; i++) {
        const entry *e = &w->gathered.at[i];
        if (!e->completes) {
            put_in(w, *e);
            continue;
        }
        uint32_t *link = link_to(w, e);
        if (!*link)
            continue;
        int64_t issue = w->entries[*link - 1].time;
        take_out(w, link);
        if (minus(e->time, issue) >= w->config.least_ns && count < room)
            hits[count++] = (lo2_hit){.sector = e->sector, .issue_time_ns = issue, .complete_time_ns = e->time,
                                      .device = e->device, .operation = e->operation};
    }
    w->gathered.count = 0;
    return count;
}

/* ---- life ---- */

lo2_watch *lo2_watch_new(const lo2_watch_config *config, const lo2_event *issue, const lo2_event *complete)
{
    lo2_watch *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->config = *config;
    w->events[0] = *issue;
    w->events[1] = *complete;
    for (int which = 0; which < 2; which++)
        for (int f = 0; f < LO2_NR_FIELDS; f++) {
            const lo2_field *field = &w->events[which].fields[f];
            if (field->size && (uint32_t)field->offset + field->size > w->min_raw[which])
                w->min_raw[which] = (uint32_t)field->offset + field->size;
        }
    w->devices = calloc(config->nr_devices + 1u, sizeof *w->devices);
    w->rings = calloc(config->nr_rings + 1u, sizeof *w->rings);
    w->entries = calloc(NR_ENTRIES, sizeof *w->entries);
    w->buckets = calloc(NR_BUCKETS, sizeof *w->buckets);
    bool whole = w->devices && w->rings && w->entries && w->buckets;
    for (uint32_t i = 0; whole && i < config->nr_rings; i++)
        whole = (w->rings[i].bytes = malloc(MAX_RECORD)) != NULL;
    if (!whole) {
        lo2_watch_free(w);
        return NULL;
    }
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
    free(w->devices);
    free(w->rings);
    free(w->entries);
    free(w->buckets);
    free(w);
}
