/* Adds up operations: by call, class, process and file. Rows come in the order of the table, which is that of their ends. */
#include <stdlib.h>
#include <string.h>

#include "sums/derive.h"
#include "sums/numbers.h"

enum { SLICE_ROWS = 1024, HISTOGRAM_BITS = 7, EXPONENTS = 48, BINS = (EXPONENTS << HISTOGRAM_BITS) + 1, INVALID = 22 /* EINVAL */ };

struct lo2_tally {
    lo2_tally_config config;
    number_set failures, common[2];
    lo2_failure *failed;
    lo2_common_size *sizes[2];
    lo2_slow_call slow[LO2_MAX_SLOW];
    size_t nr_slow;
    int64_t duration_ns[SLICE_ROWS], moved[SLICE_ROWS], device_ns[SLICE_ROWS], queue_ns[SLICE_ROWS];
    int32_t process[SLICE_ROWS], group[SLICE_ROWS];
    uint8_t kind[SLICE_ROWS];
    bool ended[SLICE_ROWS], synced[SLICE_ROWS];
};

/* One row, with what was derived from it. */
typedef struct {
    const lo2_call_traits *traits;
    uint64_t id;
    uint32_t task, handle, handle2, flags;
    int32_t call, group, process, error;
    int64_t begin, end, offset, asked, result, duration, moved, device, queue;
    int64_t own; /* of the duration: without the time in which the thread was ready to run, but others ran */
    off_cpu_parts off;
    uint8_t kind;
    bool ended, synced;
} operation;

/* ---- by call, process and file ---- */

static void add_activity(lo2_activity_sums *s, const operation *o, int64_t read, int64_t written)
{
    s->calls++;
    s->errors += o->error != 0;
    s->reads += o->traits->reads;
    s->bytes_read += read;
    s->bytes_written += written;
    s->time_ns += o->duration;
}

static void add_latency(const lo2_histograms *h, int64_t row, int64_t duration)
{
    double value = (double)duration;
    int64_t bits, bin;
    memcpy(&bits, &value, sizeof bits);
    bin = (bits >> (52 - HISTOGRAM_BITS)) - ((1023 << HISTOGRAM_BITS) - 1);
    bin = bin < 0 ? 0 : bin >= BINS ? BINS - 1 : bin;
    h->bins[row * BINS + bin]++;
    h->total_ns[row] += duration;
    h->min_ns[row] = duration < h->min_ns[row] ? duration : h->min_ns[row];
    h->max_ns[row] = duration > h->max_ns[row] ? duration : h->max_ns[row];
}

static size_t handle_place(uint32_t handle, size_t nr) { return handle < nr ? handle : nr - 1; }

/* A copy counts for the file that it read. Only its write and the written bytes count for the file that it wrote. */
static void add_operation(lo2_tally *t, const operation *o)
{
    const lo2_tally_config *c = &t->config;
    int64_t read = o->traits->reads ? o->moved : 0, written = o->traits->writes ? o->moved : 0;
    lo2_activity_sums *to = &c->by_group[o->group];
    add_activity(&c->by_call[o->call], o, read, written);
    c->by_call[o->call].writes += o->traits->writes;
    add_activity(&c->by_process[o->process], o, read, written);
    c->by_process[o->process].writes += o->traits->writes;
    add_activity(to, o, read, 0);
    if (o->traits->copies)
        to = &c->by_group[c->context.group_of_handle[handle_place(o->handle2, c->context.nr_handles)]];
    to->writes += o->traits->writes;
    to->bytes_written += written;
    if (o->ended)
        add_latency(&c->latency, c->latency_row[o->call * LO2_NR_CLASSES + o->kind], o->duration);
    else
        c->in_flight[o->call]++;
    if (o->error)
        c->errnos[o->call * LO2_NR_ERRNOS + (abs(o->error) < LO2_NR_ERRNOS ? abs(o->error) : LO2_NR_ERRNOS - 1)]++;
}

/* ---- sizes and order of accesses ---- */

static bool add_size(lo2_tally *t, int direction, int64_t size)
{
    double value = (double)size;
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int64_t power = size ? ((bits >> 52) & 0x7ff) - 1022 : 0;
    t->config.sizes[direction * LO2_NR_SIZES + power]++;
    uint64_t key[2] = {(uint64_t)size, 0};
    size_t at = number_find(&t->common[direction], key);
    if (at == NO_NUMBER && t->common[direction].count == LO2_MAX_COMMON)
        return true;
    if (at == NO_NUMBER && !NUMBER_ADD(&t->common[direction], key, &t->sizes[direction], at))
        return false;
    t->sizes[direction][at].size = size;
    t->sizes[direction][at].accesses++;
    return true;
}

static void add_unaided(lo2_access_sums *s, const operation *o)
{
    s->unaided++;
    s->unaided_bytes += o->moved;
    s->unaided_ns += o->own;
    s->alone += o->begin >= s->last_end_ns;
    s->last_end_ns = o->end;
}

/* Compares an access with the one before through the same handle. */
static void add_place(lo2_tally *t, int direction, const operation *o, lo2_access_sums *s, bool direct)
{
    const lo2_tally_config *c = &t->config;
    int64_t end = o->offset + o->moved;
    s->bytes += o->moved;
    s->first = o->offset < s->first ? o->offset : s->first;
    s->end = end > s->end ? end : s->end;
    s->waited += o->device > 0;
    s->waited_bytes += o->device > 0 ? o->moved : 0;
    int64_t *last = &c->ends[2 * handle_place(o->handle, c->context.nr_direct) + direction];
    int64_t before = *last, gap = o->offset - before;
    *last = end;
    bool placed = before >= 0, sequential = placed && gap >= 0 && gap <= c->near_bytes;
    s->placed += placed;
    s->consecutive += placed && gap == 0;
    s->sequential += sequential;
    if (o->device > 0 && ((direct && !o->synced) || (direction == 0 && placed && !sequential)))
        add_unaided(s, o);
}

static bool is_odd(int64_t value, int64_t alignment) { return value != UNKNOWN && value % alignment != 0; }

static bool add_access(lo2_tally *t, int direction, const operation *o)
{
    const lo2_tally_config *c = &t->config;
    lo2_group_sums *g = &c->groups[o->group];
    lo2_access_sums *s = &c->accesses[direction][o->group];
    bool direct = c->context.is_direct[handle_place(o->handle, c->context.nr_direct)];
    g->direct += direct;
    g->buffered += !direct;
    g->misaligned += direct && (is_odd(o->offset, c->alignment) || is_odd(o->asked, c->alignment));
    g->invalid += direct && abs(o->error) == INVALID;
    g->turns += g->way >= 0 && g->way != direct;
    g->way = direct;
    g->short_writes += direction && o->moved > 0 && o->asked > o->moved && !o->error;
    s->time_ns += o->own;
    if (o->moved <= 0)
        return true;
    int64_t size = o->asked == UNKNOWN ? o->moved : o->asked;
    s->accesses++;
    s->small += size < c->small_bytes;
    if (o->offset >= 0 && o->handle != UINT32_MAX)
        add_place(t, direction, o, s, direct);
    return add_size(t, direction, size);
}

static bool add_pattern(lo2_tally *t, const operation *o)
{
    lo2_group_sums *g = &t->config.groups[o->group];
    if (o->synced) {
        g->synced_writes++;
        g->synced_write_ns += o->own;
    }
    switch (o->kind) {
    case LO2_CLASS_READ: return add_access(t, 0, o);
    case LO2_CLASS_WRITE: return add_access(t, 1, o);
    case LO2_CLASS_OPEN: g->opens++; break;
    case LO2_CLASS_SYNC:
        g->syncs++;
        g->sync_ns += o->own;
        break;
    case LO2_CLASS_LOCK:
        g->locks++;
        g->lock_ns += o->own;
        g->locks_refused += o->error != 0;
        break;
    default: break;
    }
    return true;
}

/* ---- where the time went ---- */

static bool add_failure(lo2_tally *t, const operation *o)
{
    uint64_t key[2] = {(uint64_t)(uint32_t)o->process << 32 | (uint32_t)o->call, (uint64_t)o->kind << 32 | (uint32_t)abs(o->error)};
    size_t at = number_find(&t->failures, key);
    if (at == NO_NUMBER) {
        if (!NUMBER_ADD(&t->failures, key, &t->failed, at))
            return false;
        t->failed[at] = (lo2_failure){o->process, o->call, o->kind, abs(o->error), 0, 0};
    }
    t->failed[at].calls++;
    t->failed[at].time_ns += o->own;
    return true;
}

static bool waits_by_file(const lo2_tally *t, const operation *o)
{
    return t->config.context.waits[o->group] && o->traits->may_wait;
}

static bool add_time(lo2_tally *t, const operation *o, int64_t worked)
{
    const lo2_tally_config *c = &t->config;
    lo2_time_sums *s = &c->time[o->kind];
    int64_t rest = o->duration - o->device - o->queue - worked;
    bool waits = o->traits->waits || o->kind == LO2_CLASS_LOCK || (o->flags & o->traits->waits_if) || waits_by_file(t, o);
    if (c->context.spans.knows_cpu) {
        rest = o->off.away - o->device - o->queue;
        s->blocked_ns += waits ? 0 : rest;
        s->preempted_ns += o->off.ready;
        s->cpu_ns += o->own - o->off.away - o->off.unknown;
    }
    s->calls++;
    s->errors += o->error != 0;
    s->total_ns += o->duration;
    s->device_ns += o->device;
    s->queue_ns += o->queue;
    s->waiting_ns += waits ? rest : 0;
    c->process_calls[(size_t)o->process * LO2_NR_CLASSES + o->kind]++;
    c->process_ns[(size_t)o->process * LO2_NR_CLASSES + o->kind] += o->own;
    if (o->kind == LO2_CLASS_SYNC || o->synced) {
        c->process_syncs[o->process]++;
        c->process_sync_ns[o->process] += o->own;
    }
    return !o->error || add_failure(t, o);
}

/* ---- the slowest ---- */

static bool is_slower(const operation *o, const lo2_slow_call *other)
{
    return o->duration > other->duration_ns || (o->duration == other->duration_ns && o->id < other->id);
}

static void add_slow(lo2_tally *t, const operation *o)
{
    bool full = t->nr_slow == LO2_MAX_SLOW;
    if (o->duration < 1 || (full && !is_slower(o, &t->slow[LO2_MAX_SLOW - 1])))
        return;
    if (t->config.passive[o->kind] || waits_by_file(t, o))
        return;
    size_t at = full ? LO2_MAX_SLOW - 1 : t->nr_slow++;
    for (; at > 0 && is_slower(o, &t->slow[at - 1]); at--)
        t->slow[at] = t->slow[at - 1];
    t->slow[at] = (lo2_slow_call){o->id, o->begin, o->duration, o->offset, o->asked, o->result, o->device, o->queue,
                                  o->task, o->call, o->group, o->error};
}

/* ---- rows ---- */

static operation row_at(const lo2_tally *t, const lo2_sum_rows *r, size_t i)
{
    const lo2_call_spans *spans = &t->config.context.spans;
    off_cpu_parts off = {0};
    if (spans->knows_cpu)
        off = off_cpu_of(spans, r->task[i], r->begin_time_ns[i], t->duration_ns[i]);
    return (operation){
        .off = off, .own = t->duration_ns[i] - off.ready,
        .traits = &t->config.context.calls[r->call[i]], .id = r->id[i], .task = r->task[i], .handle = r->handle[i],
        .handle2 = r->handle2[i], .flags = r->flags[i], .call = r->call[i], .group = t->group[i], .process = t->process[i],
        .error = r->error[i], .begin = r->begin_time_ns[i], .end = r->end_time_ns[i], .offset = r->offset_bytes[i],
        .asked = r->bytes_request[i], .result = r->bytes_result[i], .duration = t->duration_ns[i], .moved = t->moved[i],
        .device = t->device_ns[i], .queue = t->queue_ns[i], .kind = t->kind[i], .ended = t->ended[i], .synced = t->synced[i],
    };
}

static lo2_sum_rows slice_of(const lo2_sum_rows *r, size_t from, size_t nr)
{
    return (lo2_sum_rows){nr, r->id + from, r->begin_time_ns + from, r->end_time_ns + from, r->task + from, r->call + from,
                          r->handle + from, r->handle2 + from, r->flags + from, r->offset_bytes + from,
                          r->bytes_request + from, r->bytes_result + from, r->error + from};
}

bool lo2_tally_add(lo2_tally *t, const lo2_sum_rows *rows, const int64_t *worked)
{
    const lo2_derived_rows derived = {t->duration_ns, t->moved, t->device_ns, t->queue_ns, t->process,
                                      t->group, t->kind, t->ended, t->synced};
    for (size_t from = 0; from < rows->nr; from += SLICE_ROWS) {
        lo2_sum_rows slice = slice_of(rows, from, rows->nr - from < SLICE_ROWS ? rows->nr - from : SLICE_ROWS);
        lo2_derive(&t->config.context, &slice, &derived);
        for (size_t i = 0; i < slice.nr; i++) {
            operation o = row_at(t, &slice, i);
            t->config.thread_ns[at_most(o.task, t->config.context.nr_tasks)] += o.duration > 0 ? o.duration : 1;
            add_operation(t, &o);
            add_slow(t, &o);
            if (!add_pattern(t, &o) || !add_time(t, &o, worked ? worked[from + i] : 0))
                return false;
        }
    }
    return true;
}

lo2_tally *lo2_tally_new(const lo2_tally_config *config)
{
    lo2_tally *t = calloc(1, sizeof *t);
    if (t)
        t->config = *config;
    return t;
}

void lo2_tally_free(lo2_tally *t)
{
    if (!t)
        return;
    number_set *sets[] = {&t->failures, &t->common[0], &t->common[1]};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        number_set_free(sets[i]);
    free(t->failed);
    free(t->sizes[0]);
    free(t->sizes[1]);
    free(t);
}

lo2_tally_view lo2_tally_view_of(const lo2_tally *t)
{
    return (lo2_tally_view){t->failed, {t->sizes[0], t->sizes[1]}, t->failures.count,
                            {t->common[0].count, t->common[1].count}, t->slow, t->nr_slow};
}
