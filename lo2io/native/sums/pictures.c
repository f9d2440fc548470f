/* Calls and requests of rings in pictures over time: lo2io/reports/html/calls.py explains them. */
#include <string.h>

#include "sums/derive.h"
#include "sums/grid.h"

enum { STEP_BITS = 2 }; /* a power of two has 1 << STEP_BITS bins of latency */

/* SplitMix64's finalizer (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014). */
static uint64_t scatter_key(uint64_t id)
{
    uint64_t mixed = id * 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu;
    return mixed ^ mixed >> 31;
}

void lo2_scatter_keys(size_t nr, const uint64_t *ids, uint64_t *keys)
{
    for (size_t i = 0; i < nr; i++)
        keys[i] = scatter_key(ids[i]);
}

/* The bits of a double tell the power of two and the step. Bin 0 is below 1 ns. */
static int64_t latency_bin(int64_t duration_ns)
{
    double value = duration_ns > 0 ? (double)duration_ns : 0;
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int64_t bin = (bits >> (52 - STEP_BITS)) - (1023 << STEP_BITS) + 1;
    return bin < 0 ? 0 : bin < LO2_NR_LATENCIES ? bin : LO2_NR_LATENCIES - 1;
}

void lo2_latency_bins(size_t nr, const int64_t *durations_ns, int64_t *bins)
{
    for (size_t i = 0; i < nr; i++)
        bins[i] = latency_bin(durations_ns[i]);
}

static void offer(const lo2_smallest *smallest, int64_t lane, uint64_t key, size_t row, lo2_taken_rows *taken)
{
    int64_t place = smallest_offer(smallest, lane, key);
    if (place < 0)
        return;
    taken->rows[taken->nr] = (int64_t)row;
    taken->places[taken->nr++] = place;
}

/* ---- bytes ---- */

/* One row, with its lanes. written: the lane of the file that was written. */
typedef struct { uint64_t id; int64_t process, file, written, offset, bytes; bool reads, writes; } transfer;

/* The unknown is less than 0 bytes. */
static void add_transfer(const lo2_pictures *p, const transfer *t, uint64_t bin, size_t row, lo2_taken_rows *points)
{
    int64_t bins = p->heat.bins, at = (int64_t)bin;
    if (t->bytes <= 0 || !(t->reads || t->writes))
        return;
    if (t->reads) {
        p->processes.read[t->process * bins + at] += t->bytes;
        p->files.read[t->file * bins + at] += t->bytes;
    }
    if (t->writes) {
        p->processes.written[t->process * bins + at] += t->bytes;
        p->files.written[t->written * bins + at] += t->bytes;
    }
    if (t->offset != UNKNOWN && t->file < p->other_files)
        offer(&p->points, t->file, scatter_key(t->id), row, points);
}

static int64_t file_lane(const lo2_pictures *p, uint32_t handle) { return p->file_lane[group_of(p->context, handle)]; }

void lo2_pictures_add_moved(const lo2_pictures *p, const lo2_moved_rows *r, lo2_taken_rows *points)
{
    uint64_t bin = 0;
    for (size_t i = 0; i < r->nr; i++) {
        bool copies = r->reads[i] && r->writes[i];
        int64_t file = file_lane(p, r->handle[i]);
        transfer t = {r->id[i], p->tasks[at_most(r->task[i], p->context->nr_tasks)].process, file,
                      copies ? file_lane(p, r->handle2[i]) : file, r->offset_bytes[i], r->bytes_result[i],
                      r->reads[i], r->writes[i]};
        bin = grid_place_of(&p->heat, r->end_time_ns[i], bin).bin;
        add_transfer(p, &t, bin, i, points);
    }
}

/* ---- calls ---- */

/* Where the calls before lay in both grids: the next ones are near. */
typedef struct { grid_place heat, fine; } places;

static void move_to(const lo2_pictures *p, places *at, int64_t time)
{
    at->heat = grid_place_of(&p->heat, time, at->heat.bin);
    at->fine = grid_place_of(&p->fine, time, at->fine.bin);
}

void lo2_pictures_add_calls(const lo2_pictures *p, const lo2_sum_rows *r, lo2_taken_rows *slices, lo2_taken_rows *points)
{
    const lo2_sum_context *c = p->context;
    places from = {0}, to = {0};
    for (size_t i = 0; i < r->nr; i++) {
        const lo2_call_traits *call = &c->calls[r->call[i]];
        const lo2_task_lanes *task = &p->tasks[at_most(r->task[i], c->nr_tasks)];
        bool ended = r->end_time_ns[i] != UNKNOWN;
        int64_t begin = r->begin_time_ns[i], end = ended ? r->end_time_ns[i] : task->last_ns;
        end = end > begin ? end : begin;
        move_to(p, &from, begin);
        move_to(p, &to, end);
        int64_t file = file_lane(p, r->handle[i]);
        transfer t = {r->id[i], task->process, file, call->copies ? file_lane(p, r->handle2[i]) : file,
                      r->offset_bytes[i], r->bytes_result[i], call->reads, call->writes};
        add_transfer(p, &t, to.heat.bin, i, points);
        grid_add_interval(p->processes.time + task->process * p->heat.bins, from.heat, to.heat);
        grid_add_interval(p->files.time + file * p->heat.bins, from.heat, to.heat);
        int64_t kind = kind_of_row(c, r, i), lane = task->thread * LO2_NR_CLASSES + kind;
        grid_add_interval(p->busy + lane * p->fine.bins, from.fine, to.fine);
        offer(&p->slices, lane, (UINT64_C(1) << 63) - (uint64_t)(end - begin), i, slices); /* the longest are the smallest */
        if (ended)
            p->latency[(kind * LO2_NR_LATENCIES + latency_bin(end - begin)) * p->heat.bins + (int64_t)to.heat.bin]++;
    }
}
