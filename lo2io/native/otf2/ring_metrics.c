/*
 * Metrics of rings: what they look like from their turning points on, and how much each call submits or collects.
 *
 * Turning points are told later than they were, so the two come in different orders: each has a location of its own.
 */
#include "otf2/otf2_writer.h"

enum { KEY_BITS = 32, MOST_MEMBERS = 3 };

static bool is_idle(const lo2_ring_state_columns *s, uint32_t row)
{
    return !s->in_flight[row] && !s->workers[row] && (!s->cq_least[row] || s->cq_least[row] == NONE);
}

/* A location that rings of the group have in turn: with states the first that is free, of batches there is one. */
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

static lo2_otf2_location *location_of(lo2_otf2_writer *w, uint8_t kind, uint32_t ring, uint32_t process, int64_t time)
{
    uint32_t *known;
    if (!number_map_at(&w->ring_locations, (uint64_t)kind << KEY_BITS | ring, &known)) {
        otf2_fail(w, "malloc", 0);
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

/* On a shared location each event says which ring it is about. */
static int measure(lo2_otf2_writer *w, lo2_otf2_location *location, uint8_t metric_class, uint32_t ring, int64_t time,
                   uint8_t count, const metric_value *values)
{
    uint8_t u = w->config.values.type_uint64;
    const uint8_t types[MOST_MEMBERS] = {u, u, u};
    uint32_t *curve = &location->curves[metric_class == LO2_OTF2_RING_CQ || metric_class == LO2_OTF2_COLLECTED];
    void *list = NULL;
    if (*curve == NONE)
        TRY(otf2_metric_new(w, metric_class, (uint64_t)(location - w->locations), curve));
    if (location->shared) {
        uint32_t name = otf2_text(w, LO2_OTF2_TEXT_RING, ring);
        if (name == NONE)
            return -1;
        list = w->list;
        OTF2(w, add_string, list, w->config.attributes.ring, name);
    }
    OTF2(w, metric, location->writer, list, otf2_advance(w, location, time), *curve, count, types, values);
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
    lo2_otf2_location *location = location_of(w, LO2_OTF2_RING_STATES, ring, process, time);
    if (!location)
        return -1;
    TRY(measure(w, location, LO2_OTF2_RING_LOAD, ring, time, 3, load));
    if (s->cq_least[row] != NONE && s->cq_most[row] != NONE)
        TRY(measure(w, location, LO2_OTF2_RING_CQ, ring, time, 2, fill));
    location->idle = 0;
    if (location->shared && is_idle(s, row))
        otf2_put_free(w, &w->processes[location->group].rings, location);
    return 0;
}

int otf2_measure_batch(lo2_otf2_writer *w, uint32_t process, const batch_counts *counts, uint16_t call, int64_t time)
{
    bool collects = w->config.calls[call].kind == LO2_CALL_AIO_COLLECT;
    int64_t count = collects ? counts->completed : counts->submitted;
    if (count < 0 || (!collects && !counts->asked) || counts->ring == NONE) /* it failed, or only waits */
        return 0;
    const metric_value value = {.count = (uint64_t)count};
    lo2_otf2_location *location = location_of(w, LO2_OTF2_RING_BATCHES, counts->ring, process, time);
    if (!location)
        return -1;
    return measure(w, location, collects ? LO2_OTF2_COLLECTED : LO2_OTF2_BATCH_SIZE, counts->ring, time, 1, &value);
}
