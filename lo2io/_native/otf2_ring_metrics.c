/*
 * Metrics of rings: what they look like from their turning points on, and how much each call submits or collects.
 *
 * Turning points are told later than they were, so the two come in different orders: each has a location of its own.
 */
#include "otf2_writer.h"

enum { KEY_BITS = 32, MOST_MEMBERS = 3 };

static lo2_otf2_location *location_of(lo2_otf2_writer *w, uint8_t kind, uint32_t ring)
{
    uint32_t *known;
    if (!number_map_at(&w->ring_locations, (uint64_t)kind << KEY_BITS | ring, &known)) {
        otf2_fail(w, "malloc", 0);
        return NULL;
    }
    if (*known != NONE)
        return &w->locations[*known];
    lo2_otf2_location *location = otf2_location_new(w, kind, ring);
    if (location)
        *known = (uint32_t)(location - w->locations);
    return location;
}

static int measure(lo2_otf2_writer *w, uint8_t kind, uint8_t metric_class, uint32_t ring, int64_t time, uint8_t count,
                   const metric_value *values)
{
    uint32_t *known;
    uint8_t u = w->config.values.type_uint64;
    const uint8_t types[MOST_MEMBERS] = {u, u, u};
    if (ring == NONE)
        return 0;
    lo2_otf2_location *location = location_of(w, kind, ring);
    if (!location)
        return -1;
    if (!number_map_at(&w->ring_metrics, (uint64_t)metric_class << KEY_BITS | ring, &known))
        return otf2_fail(w, "malloc", 0);
    if (*known == NONE)
        TRY(otf2_metric_new(w, metric_class, (uint64_t)(location - w->locations), known));
    OTF2(w, metric, location->writer, NULL, otf2_advance(w, location, time), *known, count, types, values);
    return 0;
}

int otf2_measure_ring_state(lo2_otf2_writer *w, const lo2_ring_state_columns *s, uint32_t row)
{
    const metric_value load[] = {{.count = s->in_flight[row]}, {.count = s->punted[row]}, {.count = s->workers[row]}};
    const metric_value fill[] = {{.count = s->cq_least[row]}, {.count = s->cq_most[row]}};
    TRY(measure(w, LO2_OTF2_RING_STATES, LO2_OTF2_RING_LOAD, s->ring[row], s->time_ns[row], 3, load));
    if (s->cq_least[row] == NONE || s->cq_most[row] == NONE)
        return 0;
    return measure(w, LO2_OTF2_RING_STATES, LO2_OTF2_RING_CQ, s->ring[row], s->time_ns[row], 2, fill);
}

int otf2_measure_batch(lo2_otf2_writer *w, const batch_counts *counts, uint16_t call, int64_t time)
{
    bool collects = w->config.calls[call].kind == LO2_CALL_AIO_COLLECT;
    int64_t count = collects ? counts->completed : counts->submitted;
    if (count < 0 || (!collects && !counts->asked)) /* it failed, or only waits */
        return 0;
    const metric_value value = {.count = (uint64_t)count};
    return measure(w, LO2_OTF2_RING_BATCHES, collects ? LO2_OTF2_COLLECTED : LO2_OTF2_BATCH_SIZE, counts->ring, time, 1,
                   &value);
}
