/* What follows from one operation: its class, file, process and duration, and the requests that were under way meanwhile. */
#include "sums/derive.h"

enum { NEAR_STEPS = 8 };

/* ---- spans ---- */

/* The number of stretches of a task that begin up to a moment. Calls come in the order of time: the last place is near. */
static int64_t place_of(const lo2_spans *s, int32_t task, int64_t moment)
{
    int64_t low = s->first[task], high = s->first[task + 1], at = s->last[task];
    for (int step = 0; step < NEAR_STEPS; step++) {
        if (at < high && s->starts[at] <= moment)
            at++;
        else if (at > low && s->starts[at - 1] > moment)
            at--;
        else
            return s->last[task] = at;
    }
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (s->starts[middle] <= moment)
            low = middle + 1;
        else
            high = middle;
    }
    return s->last[task] = low;
}

/* The time that stretches of a task cover up to a moment. */
static int64_t covered_until(const lo2_spans *s, int32_t task, int64_t moment)
{
    int64_t first = s->first[task];
    if (first == s->first[task + 1])
        return 0;
    int64_t place = place_of(s, task, moment);
    int64_t beyond = place > first && s->ends[place - 1] > moment ? s->ends[place - 1] - moment : 0;
    return s->before[place] - beyond;
}

/* Most calls meet no stretch: then one search is enough. */
static int64_t covered(const lo2_spans *s, int32_t task, int64_t begin, int64_t duration)
{
    int64_t first = s->first[task], last = s->first[task + 1], place = first == last ? first : place_of(s, task, begin);
    if ((place == first || s->ends[place - 1] <= begin) && (place == last || s->starts[place] > begin + duration))
        return 0;
    int64_t until = covered_until(s, task, begin + duration);
    return until - covered_until(s, task, begin);
}

static int32_t number_of(const lo2_call_spans *spans, uint32_t task, int64_t duration)
{
    return task < spans->nr_tasks && duration > 0 ? spans->of_task[task] : -1;
}

/* With the scheduler's switches, only time counts in which the thread waited: it can work while its request is under way. */
static void requests_within(const lo2_call_spans *spans, uint32_t task, int64_t begin, int64_t duration,
                            int64_t *device_ns, int64_t *queue_ns)
{
    int32_t number = number_of(spans, task, duration);
    *device_ns = *queue_ns = 0;
    if (number < 0)
        return;
    const lo2_spans *all = spans->knows_cpu ? &spans->away_or_either : &spans->either;
    if (!covered(all, number, begin, duration))
        return;
    int64_t device = covered(&spans->device, number, begin, duration);
    int64_t either = covered(&spans->either, number, begin, duration);
    if (spans->knows_cpu) { /* the overlaps */
        int64_t away = covered(&spans->away, number, begin, duration);
        device += away - covered(&spans->away_or_device, number, begin, duration);
        either += away - covered(&spans->away_or_either, number, begin, duration);
    }
    *device_ns = device;
    *queue_ns = either - device;
}

void lo2_spans_within(const lo2_call_spans *spans, size_t nr, const uint32_t *task, const int64_t *begin_ns,
                      const int64_t *duration_ns, int64_t *device_ns, int64_t *queue_ns)
{
    for (size_t i = 0; i < nr; i++)
        requests_within(spans, task[i], begin_ns[i], duration_ns[i], &device_ns[i], &queue_ns[i]);
}

off_cpu_parts off_cpu_of(const lo2_call_spans *spans, uint32_t task, int64_t begin, int64_t duration)
{
    int32_t number = number_of(spans, task, duration);
    if (number < 0 || !covered(&spans->off_cpu, number, begin, duration)) /* so it is for most calls */
        return (off_cpu_parts){0};
    return (off_cpu_parts){covered(&spans->ready, number, begin, duration),
                           covered(&spans->away, number, begin, duration),
                           covered(&spans->unknown, number, begin, duration)};
}

/* ---- rows ---- */

void lo2_derive(const lo2_sum_context *c, const lo2_sum_rows *r, const lo2_derived_rows *d)
{
    for (size_t i = 0; i < r->nr; i++) {
        const lo2_call_traits *call = &c->calls[r->call[i]];
        int32_t group = group_of(c, r->handle[i]);
        bool ended = r->end_time_ns[i] != UNKNOWN;
        int64_t duration = ended ? r->end_time_ns[i] - r->begin_time_ns[i] : 0;
        uint8_t kind = kind_of_row(c, r, i);
        d->group[i] = group;
        d->process[i] = (int32_t)c->process_of_task[at_most(r->task[i], c->nr_tasks)];
        d->ended[i] = ended;
        d->duration_ns[i] = duration > 0 ? duration : 0;
        d->kind[i] = kind;
        d->synced[i] = kind == LO2_CLASS_WRITE && (c->is_synced[at_most(r->handle[i], c->nr_synced)] ||
                                                   (r->flags[i] & call->synced_if));
        d->moved[i] = r->bytes_result[i] == UNKNOWN ? 0 : r->bytes_result[i];
        requests_within(&c->spans, r->task[i], r->begin_time_ns[i], d->duration_ns[i], &d->device_ns[i], &d->queue_ns[i]);
    }
}
