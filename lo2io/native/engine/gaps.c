/*
 * Gaps: spans in which a buffer lost records. A lost record may have given a descriptor to another file. So all that
 * the tables state about descriptors ends with a gap, and a call that overlaps a gap is not known to have met the file
 * in its slot. The record of a loss stands after its gap. So if the spool's counts say that records were lost, all
 * gaps are found before anything else is read. docs/explanation/rules/order.md has the rules.
 */
#include "cache/cache.h"
#include "engine/gaps.h"
#include "rings/rings.h"
#include "tables/descriptors.h"

enum { RECORD_LOST = 2 };

static void note_gap(engine *e, int64_t begin, int64_t end)
{
    if (VEC_ROOM(&e->gaps, e->gaps.count + 1))
        e->gaps.at[e->gaps.count++] = (gap){begin < end ? begin : end, end};
    else
        e->out_of_memory = true;
}

static void look_at(engine *e, const stream *s, const struct lo2_entry *entry)
{
    const uint8_t *record = s->buffer + (entry->offset & ~(uint32_t)(stream_of_programs(s) ? STREAM_MARKS : 0));
    if (stream_of_programs(s)) {
        lo2_kernel_lost lost;
        uint32_t length;
        memcpy(&length, record - 8, 4);
        memcpy(&lost.head, record, sizeof lost.head);
        if (lost.head.type != LO2_KERNEL_LOST || kernel_record_length(length) < sizeof lost)
            return;
        memcpy(&lost, record, sizeof lost);
        note_gap(e, (int64_t)lost.begin_ns, entry->time);
        return;
    }
    uint32_t type;
    uint16_t size;
    int64_t before; /* input/stream.c wrote this time over the event's id; UNKNOWN: no record precedes the loss */
    memcpy(&type, record, 4);
    memcpy(&size, record + 6, 2);
    if (type != RECORD_LOST || size < 32)
        return;
    memcpy(&before, record + 8, 8);
    note_gap(e, before, entry->time);
}

static int by_begin(const void *a, const void *b)
{
    const gap *x = a, *y = b;
    return x->begin == y->begin ? 0 : x->begin < y->begin ? -1 : 1;
}

/* Joins gaps that touch. */
static void unite(engine *e)
{
    uint32_t count = 0;
    if (e->gaps.count)
        qsort(e->gaps.at, e->gaps.count, sizeof *e->gaps.at, by_begin);
    for (uint32_t i = 0; i < e->gaps.count; i++) {
        gap next = e->gaps.at[i], *last = count ? &e->gaps.at[count - 1] : NULL;
        if (!last || next.begin > last->end)
            e->gaps.at[count++] = next;
        else if (next.end > last->end)
            last->end = next.end;
    }
    e->gaps.count = count;
}

static int look_through(engine *e, const lo2_stream *config, const char **path)
{
    lo2_totals totals = {0};
    stream s = {.fd = -1};
    int have = stream_open(&s, config, 0, e->config.buffer_bytes);
    while (have >= 0 && (have = stream_fill(&s, &e->clock, &totals)) > 0) {
        for (; s.next < s.nr_entries; s.next++) {
            s.last_time = s.entries[s.next].time;
            look_at(e, &s, &s.entries[s.next]);
        }
    }
    *path = stream_path(&s);
    stream_close(&s);
    return have;
}

int gaps_find(engine *e, const char **path)
{
    for (uint32_t i = 0; i < e->config.nr_streams; i++)
        if (e->streams[i].kind != LO2_STREAM_FACTS && look_through(e, &e->config.streams[i], path) < 0)
            return -1;
    unite(e);
    e->gaps_known = true;
    e->gap_mark = e->gaps.count ? UNKNOWN : INT64_MAX;
    return 0;
}

/* Makes unknown what all descriptors stand for, what all rings have registered, and the use of all pages read ahead. */
static void forget(engine *e, int64_t time)
{
    for (uint32_t i = 0; i < e->tables.count; i++) {
        if (!e->tables.at[i].refs)
            continue;
        table_void(e, i, time);
        fd_table *f = &e->tables.at[i];
        while (f->slots.count && !f->slots.at[f->slots.count - 1].ending && !f->slots.at[f->slots.count - 1].movers)
            f->slots.count--; /* the table's `since` covers slots beyond the count */
    }
    uses_end(e, false);
    for (uint32_t i = 0; e->rings && i < e->rings->rings.count; i++)
        registered_end_all(e, i, UNKNOWN);
}

void gaps_pass(engine *e, int64_t time)
{
    while (e->gaps_passed < e->gaps.count) {
        const gap *g = &e->gaps.at[e->gaps_passed];
        if (time <= g->begin) { /* a record at the gap's start is still known */
            e->gap_mark = plus(g->begin, 1);
            return;
        }
        e->lost_until = g->end;
        if (time < g->end) {
            e->gap_mark = g->end;
            return;
        }
        forget(e, g->end);
        e->gaps_passed++;
    }
    e->gap_mark = INT64_MAX;
}

static void gap_told(engine *e, int64_t end)
{
    if (e->gaps_known)
        return;
    if (end > e->lost_until)
        e->lost_until = end;
    forget(e, end);
}

void add_loss(engine *e, const stream *s, int64_t begin, int64_t end, uint64_t lost)
{
    e->totals.nr_lost_records++;
    e->totals.nr_lost = lost < INT64_MAX - e->totals.nr_lost ? e->totals.nr_lost + lost : INT64_MAX; /* tables hold no more */
    e->config.records_lost = 1;
    gap_told(e, end);
    uint32_t row = e->batch->nr_losses++;
    e->batch->losses.cpu[row] = s->cpu;
    e->batch->losses.begin_time_ns[row] = begin;
    e->batch->losses.end_time_ns[row] = end;
    e->batch->losses.lost[row] = lost;
}
