/*
 * Metrics: the queue depth of each device, and rates of devices and processes for each interval of 100 ms.
 *
 * The queue depth is the number of requests that were issued to the device and have not ended. It is written at each
 * change, and holds from there on.
 *
 * A rate stands at the end of its interval (OTF2_METRIC_TIMING_LAST), so that rates come in order of time between the
 * changes of the queue depth. Each interval with events has its rate. A series of intervals without events has the rate
 * 0 at the end of its first interval and at the end of its last:
 *
 *      events:      x x   x                      x
 *      intervals:  |----|----|----|----|----|----|----|----|
 *      written:    0    r    r    0              0    r    0
 */
#include "otf2/otf2_writer.h"

enum { INTERVAL_NS = 100000000, MOST_MEMBERS = 5, KEY_BITS = 32 };
static const double NS_PER_SECOND = 1e9;

static int metric_new(lo2_otf2_writer *w, uint8_t metric_class, uint64_t location, uint32_t *ref)
{
    uint32_t *class_ref = &w->metric_classes[metric_class], next = w->view.nr_metrics;
    if (!otf2_grow((void **)&w->metrics, &w->metrics_room, next + 2u, sizeof *w->metrics))
        return otf2_fail(w, "malloc");
    if (*class_ref == NONE) {
        w->metrics[next] = (lo2_otf2_metric){.metric_class = metric_class, .class_ref = next, .location = UNDEFINED};
        *class_ref = next++;
    }
    w->metrics[next] = (lo2_otf2_metric){.metric_class = metric_class, .class_ref = *class_ref, .location = location};
    *ref = next++;
    w->view.metrics = w->metrics;
    w->view.nr_metrics = next;
    return 0;
}

static meter *meter_new(lo2_otf2_writer *w, uint8_t kind, uint32_t key, uint32_t *number)
{
    bool device = kind == LO2_OTF2_DEVICE_METRICS;
    if (!otf2_grow((void **)&w->meters, &w->meters_room, w->nr_meters + 1u, sizeof *w->meters)) {
        otf2_fail(w, "malloc");
        return NULL;
    }
    lo2_otf2_location *location = otf2_location_new(w, kind, key);
    if (!location)
        return NULL;
    uint64_t id = (uint64_t)(location - w->locations);
    meter *m = &w->meters[w->nr_meters];
    *m = (meter){.location = id, .interval = -1};
    uint8_t rates = device ? LO2_OTF2_DEVICE_RATES : LO2_OTF2_PROCESS_RATES;
    if ((device && metric_new(w, LO2_OTF2_QUEUE_DEPTH, id, &m->depth_metric)) ||
        metric_new(w, rates, id, &m->rates_metric))
        return NULL;
    location->metrics = *number = w->nr_meters++;
    return m;
}

/* Writes the meter's interval as rates over length_ns. */
static int write_rates(lo2_otf2_writer *w, const meter *m, int64_t time, int64_t length_ns)
{
    lo2_otf2_location *location = &w->locations[m->location];
    bool device = location->kind == LO2_OTF2_DEVICE_METRICS;
    double scale = NS_PER_SECOND / (double)length_ns;
    metric_value values[MOST_MEMBERS];
    uint8_t count = 0;
    if (device) {
        values[count++].number = (double)m->reads * scale;
        values[count++].number = (double)m->writes * scale;
    }
    values[count++].number = (double)m->bytes_read * scale;
    values[count++].number = (double)m->bytes_written * scale;
    if (device)
        values[count++].number = m->nr_latencies ? (double)m->latency_ns / (double)m->nr_latencies : 0;
    EVENT(w, METRIC, otf2_put_metric, location, otf2_advance(w, location, time), m->rates_metric,
          w->config.values.type_double, count, values);
    return 0;
}

static void clear(meter *m)
{
    m->reads = m->writes = m->bytes_read = m->bytes_written = m->latency_ns = m->nr_latencies = 0;
}

static int64_t begin_of(const lo2_otf2_writer *w, int64_t interval)
{
    return (int64_t)((uint64_t)w->config.start_ns + (uint64_t)interval * INTERVAL_NS);
}

/* Writes the meter's interval if `time` lies after it, and begins the interval of `time`. */
static int reach(lo2_otf2_writer *w, meter *m, int64_t time)
{
    int64_t start = w->config.start_ns;
    int64_t interval = time > start ? (int64_t)(otf2_between(start, time) / INTERVAL_NS) : 0;
    if (time > m->last_time)
        m->last_time = time;
    if (__builtin_expect(interval <= m->interval, 1))
        return 0;
    int64_t begin = begin_of(w, interval), written = INT64_MIN;
    if (time < begin) /* before the trace's start: counts in the first interval */
        begin = time;
    if (m->interval >= 0) {
        written = begin_of(w, m->interval + 1);
        TRY(write_rates(w, m, written, INTERVAL_NS));
        clear(m);
        if (written < begin) {
            written += INTERVAL_NS;
            TRY(write_rates(w, m, written, INTERVAL_NS));
        }
    }
    if (written != begin)
        TRY(write_rates(w, m, begin, INTERVAL_NS));
    m->interval = interval;
    return 0;
}

int otf2_finish_metrics(lo2_otf2_writer *w, lo2_otf2_location *location, int64_t end_ns)
{
    meter *m = &w->meters[location->metrics];
    if (m->interval < 0)
        return 0;
    int64_t begin = begin_of(w, m->interval), stop = end_ns > m->last_time ? end_ns : m->last_time;
    int64_t last = stop < begin || otf2_between(begin, stop) < INTERVAL_NS ? stop : begin + INTERVAL_NS;
    TRY(write_rates(w, m, last, last > begin ? last - begin : INTERVAL_NS));
    clear(m);
    if (last < stop)
        TRY(write_rates(w, m, otf2_between(last, stop) < INTERVAL_NS ? stop : last + INTERVAL_NS, INTERVAL_NS));
    m->interval = -1;
    return 0;
}

/* ---- devices ---- */

static int change_depth(lo2_otf2_writer *w, meter *m, int64_t time, bool deeper)
{
    if (!deeper && !m->depth)
        return 0;
    m->depth += deeper ? 1 : -(uint64_t)1;
    lo2_otf2_location *location = &w->locations[m->location];
    metric_value value = {.count = m->depth};
    EVENT(w, METRIC, otf2_put_metric, location, otf2_advance(w, location, time), m->depth_metric,
          w->config.values.type_uint64, 1, &value);
    return 0;
}

static void count_completion(meter *m, const lo2_request_event_columns *e, uint32_t row)
{
    uint64_t bytes = e->bytes[row] == UNKNOWN ? 0 : (uint64_t)e->bytes[row];
    int64_t issue = e->issue_time_ns[row];
    if (e->operation[row] == LO2_RQ_READ) {
        m->reads++;
        m->bytes_read += bytes;
    } else if (e->operation[row] == LO2_RQ_WRITE) {
        m->writes++;
        m->bytes_written += bytes;
    }
    if (issue != UNKNOWN && issue <= e->time_ns[row]) {
        m->latency_ns += otf2_between(issue, e->time_ns[row]);
        m->nr_latencies++;
    }
}

int otf2_measure_request(lo2_otf2_writer *w, const lo2_request_event_columns *e, uint32_t row)
{
    uint8_t kind = e->kind[row];
    /* A merged request was never issued, so neither its issue nor its end matters to the device. */
    if (kind == 0 || e->issue_time_ns[row] == UNKNOWN)
        return 0;
    lo2_otf2_device *device = otf2_device_at(w, e->device[row]);
    if (!device)
        return -1;
    meter *m = device->meter != NONE ? &w->meters[device->meter]
                                     : meter_new(w, LO2_OTF2_DEVICE_METRICS, e->device[row], &device->meter);
    if (!m)
        return -1;
    device->metrics_location = m->location;
    TRY(reach(w, m, e->time_ns[row]));
    if (kind == 2)
        count_completion(m, e, row);
    return change_depth(w, m, e->time_ns[row], kind == 1);
}

/* ---- processes ---- */

int otf2_measure_transfer(lo2_otf2_writer *w, lo2_otf2_location *location, int64_t time, uint64_t read, uint64_t written)
{
    uint32_t group = otf2_group(w, location->process);
    if (w->processes[group].meter == NONE) {
        uint32_t task = location->user, pid = location->pid, tid = location->tid; /* a new location may move this one in memory */
        meter *fresh = meter_new(w, LO2_OTF2_PROCESS_METRICS, task, &w->processes[group].meter);
        if (!fresh)
            return -1;
        w->locations[fresh->location].group = group;
        w->locations[fresh->location].shared = !w->processes[group].own;
        w->locations[fresh->location].pid = pid;
        w->locations[fresh->location].tid = tid;
    }
    meter *m = &w->meters[w->processes[group].meter];
    TRY(reach(w, m, time));
    m->bytes_read += read;
    m->bytes_written += written;
    return 0;
}

int otf2_measure_operation(lo2_otf2_writer *w, lo2_otf2_location *location, const lo2_operation_columns *o, uint32_t row)
{
    uint8_t kind = w->config.calls[o->call[row]].kind;
    bool reads = kind == LO2_CALL_READ || kind == LO2_CALL_COPY;
    bool writes = kind == LO2_CALL_WRITE || kind == LO2_CALL_COPY;
    int64_t bytes = o->bytes_result[row], end = o->end_time_ns[row];
    if (!(reads || writes) || bytes <= 0 || end == UNKNOWN || o->error[row])
        return 0;
    return otf2_measure_transfer(w, location, end, reads ? (uint64_t)bytes : 0, writes ? (uint64_t)bytes : 0);
}

/*
 * ---- rings: their states, and how much each call submits or collects ----
 *
 * States become known later than calls. So each of the two has a location of its own, in its own order.
 */

static bool is_idle(const lo2_ring_state_columns *s, uint32_t row)
{
    return !s->in_flight[row] && !s->workers[row] && (!s->cq_least[row] || s->cq_least[row] == NONE);
}

/* A location that rings of the group use in turn: for states the first free one, for batches the only one. */
static lo2_otf2_location *shared_location(lo2_otf2_writer *w, uint8_t kind, uint32_t ring, uint32_t group, uint64_t time)
{
    lo2_otf2_process *p = &w->processes[group];
    uint32_t id = kind == LO2_OTF2_RING_BATCHES ? p->batches : otf2_take_free(w, &p->rings, time);
    lo2_otf2_location *location = id == NONE ? otf2_location_new(w, kind, ring) : &w->locations[id];
    if (!location)
        return NULL;
    location->shared = 1;
    location->group = group;
    location->user = ring;
    location->nr_users++;
    if (kind == LO2_OTF2_RING_BATCHES)
        p->batches = (uint32_t)(location - w->locations);
    return location;
}

static lo2_otf2_location *location_of_ring(lo2_otf2_writer *w, uint8_t kind, uint32_t ring, uint32_t process, int64_t time)
{
    uint32_t *known;
    if (!number_map_at(&w->ring_locations, (uint64_t)kind << KEY_BITS | ring, &known)) {
        otf2_fail(w, "malloc");
        return NULL;
    }
    if (*known != NONE && (kind == LO2_OTF2_RING_BATCHES || w->locations[*known].user == ring))
        return &w->locations[*known];
    lo2_otf2_location *location;
    if (w->view.nr_locations >= w->config.most_own)
        location = shared_location(w, kind, ring, otf2_group(w, process), time < 0 ? 0 : (uint64_t)time);
    else if ((location = otf2_location_new(w, kind, ring)))
        location->user = ring;
    if (location)
        *known = (uint32_t)(location - w->locations);
    return location;
}

/* On a shared location, each event names its ring. */
static int measure_ring(lo2_otf2_writer *w, lo2_otf2_location *location, uint8_t metric_class, uint32_t ring,
                        int64_t time, uint8_t count, const metric_value *values)
{
    uint32_t *curve = &location->curves[metric_class == LO2_OTF2_RING_CQ || metric_class == LO2_OTF2_COLLECTED];
    if (*curve == NONE)
        TRY(metric_new(w, metric_class, (uint64_t)(location - w->locations), curve));
    if (location->shared) {
        uint32_t name = otf2_text(w, LO2_OTF2_TEXT_RING, ring);
        if (name == NONE)
            return -1;
        TRY(otf2_add_string(w, w->config.attributes.ring, name));
    }
    EVENT(w, METRIC, otf2_put_metric, location, otf2_advance(w, location, time), *curve, w->config.values.type_uint64, count,
          values);
    return 0;
}

int otf2_measure_ring_state(lo2_otf2_writer *w, const lo2_ring_state_columns *s, uint32_t row)
{
    const metric_value load[] = {{.count = s->in_flight[row]}, {.count = s->punted[row]}, {.count = s->workers[row]}};
    const metric_value fill[] = {{.count = s->cq_least[row]}, {.count = s->cq_most[row]}};
    uint32_t ring = s->ring[row], process = otf2_process(w, s->process[row]);
    int64_t time = s->time_ns[row];
    if (process == NONE)
        return -1;
    if (ring == NONE)
        return 0;
    lo2_otf2_location *location = location_of_ring(w, LO2_OTF2_RING_STATES, ring, process, time);
    if (!location)
        return -1;
    TRY(measure_ring(w, location, LO2_OTF2_RING_LOAD, ring, time, 3, load));
    if (s->cq_least[row] != NONE && s->cq_most[row] != NONE)
        TRY(measure_ring(w, location, LO2_OTF2_RING_CQ, ring, time, 2, fill));
    location->idle = 0;
    if (location->shared && is_idle(s, row))
        otf2_put_free(w, &w->processes[location->group].rings, location);
    return 0;
}

int otf2_measure_batch(lo2_otf2_writer *w, uint32_t process, const batch_counts *counts, uint16_t call, int64_t time)
{
    bool collects = w->config.calls[call].kind == LO2_CALL_AIO_COLLECT;
    int64_t count = collects ? counts->completed : counts->submitted;
    if (count < 0 || (!collects && !counts->asked) || counts->ring == NONE) /* the call failed, or only waits */
        return 0;
    const metric_value value = {.count = (uint64_t)count};
    lo2_otf2_location *location = location_of_ring(w, LO2_OTF2_RING_BATCHES, counts->ring, process, time);
    if (!location)
        return -1;
    return measure_ring(w, location, collects ? LO2_OTF2_COLLECTED : LO2_OTF2_BATCH_SIZE, counts->ring, time, 1, &value);
}
