/* Events of tracepoints: hands each to the module that knows its role. */
#include "block/requests.h"
#include "calls/calls.h"
#include "calls/off_cpu.h"
#include "engine/lives.h"
#include "engine/samples.h"
#include "rings/rings.h"
#include "tables/cgroups.h"

enum { SAMPLE_RAW_AT = 20 }; /* header, time, raw size */

void on_event(engine *e, const stream *s, uint16_t type, uint32_t tid, const uint8_t *raw, uint32_t raw_size, int64_t time)
{
    const lo2_event *event = type < e->config.nr_types ? &e->events[type] : NULL;
    e->totals.nr_samples++;
    if (!event || event->event == NONE || raw_size < e->min_raw[type]) {
        e->totals.nr_undecoded++;
        return;
    }
    e->seen[(size_t)s->index * e->config.nr_events + event->event]++;
    if (event->role == LO2_ROLE_ENTER || event->role == LO2_ROLE_EXIT) {
        task *t = caller_of(e, tid, event->role == LO2_ROLE_ENTER, time);
        if (!t)
            return;
        if (event->role == LO2_ROLE_ENTER)
            on_enter(e, t, event, raw, raw_size, (uint16_t)s->cpu, time);
        else
            on_exit_call(e, t, event, raw, time);
    } else if (event->role == LO2_ROLE_SCHED_SWITCH) {
        on_switch(e, event, raw, s->cpu, time);
    } else if (event->role == LO2_ROLE_CGROUP_ATTACH) {
        on_cgroup_attach(e, event, raw, raw_size, time);
    } else if (event->role < LO2_ROLE_RING_CREATE) {
        on_block(e, event, raw, tid, (uint16_t)s->cpu, time);
    } else {
        on_ring(e, event, raw, tid, (uint16_t)s->cpu, time);
    }
}

void on_sample(engine *e, const stream *s, const uint8_t *record, uint16_t size, int64_t time)
{
    uint32_t raw_size = 0, tid;
    uint16_t type;
    const uint8_t *raw = record + SAMPLE_RAW_AT;
    if (size >= SAMPLE_RAW_AT)
        memcpy(&raw_size, record + SAMPLE_RAW_AT - 4, 4);
    if (size < SAMPLE_RAW_AT || raw_size > (uint32_t)(size - SAMPLE_RAW_AT) || raw_size < e->common_bytes) {
        e->totals.nr_samples++;
        e->totals.nr_undecoded++;
        return;
    }
    memcpy(&type, raw + e->config.type_offset, 2);
    memcpy(&tid, raw + e->config.pid_offset, 4);
    on_event(e, s, type, tid, raw, raw_size, time);
}
