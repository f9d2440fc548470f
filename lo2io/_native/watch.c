/*
 * Looks, while a recording goes on, for block requests that took longer than a threshold.
 *
 * In come the bytes just drained from each ring, in any pieces; a request is issued on one CPU and completed on
 * another, and either ring may be drained first. So issues and completions wait for each other in a table, by device,
 * sector and operation: a completion belongs to the latest issue before it. A pair that is slow enough is at first
 * only suspected, for its true issue may still lie in a ring. When all rings have been drained, it is known.
 * The table is bounded: the oldest make way. What is lost that way can only be a hit that is not told.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

enum { HEADER_BYTES = 8, SAMPLE_RAW_AT = 20, RECORD_SAMPLE = 9, MAX_RECORD = 1 << 16, NR_ENTRIES = 1 << 16,
       NR_BUCKETS = 1 << 17, MAX_SUSPECTS = 256 };

typedef enum { FREE = 0, ISSUE = 1, COMPLETE = 2 } entry_kind;

typedef struct {
    uint64_t sector;
    int64_t time;
    uint32_t device, chain; /* index + 1 of the next in the bucket */
    uint8_t operation, kind;
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
    lo2_hit suspects[MAX_SUSPECTS];
    uint32_t nr_suspects;
};

/* ---- the table ---- */

static uint32_t bucket_of(uint32_t device, uint64_t sector, uint8_t operation)
{
    uint64_t h = (sector ^ ((uint64_t)device << 40) ^ ((uint64_t)operation << 60)) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 40) & (NR_BUCKETS - 1);
}

static void take_out(lo2_watch *w, uint32_t index)
{
    entry *gone = &w->entries[index];
    uint32_t *link = &w->buckets[bucket_of(gone->device, gone->sector, gone->operation)];
    while (*link != index + 1)
        link = &w->entries[*link - 1].chain;
    *link = gone->chain;
    gone->kind = FREE;
}

static void put_in(lo2_watch *w, entry new)
{
    uint32_t index = w->next++ % NR_ENTRIES;
    if (w->entries[index].kind != FREE)
        take_out(w, index);
    uint32_t *bucket = &w->buckets[bucket_of(new.device, new.sector, new.operation)];
    new.chain = *bucket;
    w->entries[index] = new;
    *bucket = index + 1;
}

/* The latest issue in [from, to], or the earliest completion there; index + 1, or 0. */
static uint32_t find(const lo2_watch *w, const lo2_hit *key, entry_kind kind, int64_t from, int64_t to)
{
    uint32_t best = 0;
    for (uint32_t at = w->buckets[bucket_of(key->device, key->sector, key->operation)]; at; at = w->entries[at - 1].chain) {
        const entry *e = &w->entries[at - 1];
        if (e->kind != kind || e->device != key->device || e->sector != key->sector ||
            e->operation != key->operation || e->time < from || e->time > to)
            continue;
        bool better = !best || (kind == ISSUE ? e->time > w->entries[best - 1].time : e->time < w->entries[best - 1].time);
        best = better ? at : best;
    }
    return best;
}

static bool is_slow(const lo2_watch *w, const lo2_hit *hit)
{
    return minus(hit->complete_time_ns, hit->issue_time_ns) >= w->config.least_ns;
}

static void suspect(lo2_watch *w, lo2_hit hit)
{
    if (is_slow(w, &hit) && w->nr_suspects < MAX_SUSPECTS)
        w->suspects[w->nr_suspects++] = hit;
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

static void on_request(lo2_watch *w, const block_sample *s, entry_kind kind, int64_t time)
{
    lo2_hit hit = {.device = s->device, .sector = s->sector, .operation = s->operation};
    uint32_t partner;
    if (kind == ISSUE) {
        partner = find(w, &hit, COMPLETE, time, INT64_MAX);
        hit.issue_time_ns = time;
        hit.complete_time_ns = partner ? w->entries[partner - 1].time : 0;
    } else {
        partner = find(w, &hit, ISSUE, INT64_MIN, time);
        hit.complete_time_ns = time;
        hit.issue_time_ns = partner ? w->entries[partner - 1].time : 0;
    }
    if (partner) {
        take_out(w, partner - 1);
        suspect(w, hit);
    } else {
        put_in(w, (entry){.sector = s->sector, .time = time, .device = s->device, .operation = s->operation, .kind = (uint8_t)kind});
    }
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
        on_request(w, &s, which ? COMPLETE : ISSUE, time);
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
    return w->nr_suspects;
}

uint32_t lo2_watch_hits(lo2_watch *w, lo2_hit *hits, uint32_t room)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < w->nr_suspects; i++) {
        lo2_hit hit = w->suspects[i];
        uint32_t later;
        while ((later = find(w, &hit, ISSUE, hit.issue_time_ns + 1, hit.complete_time_ns))) {
            hit.issue_time_ns = w->entries[later - 1].time;
            take_out(w, later - 1);
        }
        if (is_slow(w, &hit) && count < room)
            hits[count++] = hit;
    }
    w->nr_suspects = 0;
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
    free(w->devices);
    free(w->rings);
    free(w->entries);
    free(w->buckets);
    free(w);
}
