/*
 * Whether completions of block requests are missing: on some CPU the kernel counted more of them than the streams have. Most
 * recordings never need to know, because no request of theirs is left without a completion. So the records are counted when
 * somebody asks for the first time.
 */
#include "block/completions.h"

/* Adds the completions of one stream. At the end of the run all records were seen. False: they cannot be counted. */
static bool add_completions(engine *e, uint32_t index, uint64_t *counts, uint64_t *sum)
{
    const uint64_t *seen = &e->seen[(size_t)index * e->config.nr_events];
    uint32_t nr_types = e->config.nr_types;
    memset(counts, 0, nr_types * sizeof *counts);
    if (!e->finishing &&
        stream_count(&e->config.streams[index], e->config.buffer_bytes, e->config.type_offset, counts, nr_types))
        return false;
    for (uint32_t type = 0; type < nr_types; type++)
        if (e->events[type].event != NONE && e->events[type].role == LO2_ROLE_RQ_COMPLETE)
            *sum += e->finishing ? seen[e->events[type].event] : counts[type];
    return true;
}

/* If a stream cannot be read, any answer will do: the run ends when the engine itself comes to that place. */
static bool are_missing(engine *e)
{
    uint64_t *counts = calloc(e->config.nr_types + 1, sizeof *counts);
    bool missing = !counts;
    e->out_of_memory |= !counts;
    for (uint32_t cpu = 0; cpu < e->config.nr_cpus && !missing; cpu++) {
        uint64_t sum = 0;
        for (uint32_t i = cpu; i < e->config.nr_streams && !missing; i += e->config.nr_cpus) {
            uint8_t kind = e->config.streams[i].kind;
            if (kind == LO2_STREAM_SAMPLES || kind == LO2_STREAM_EVENTS)
                missing = !add_completions(e, i, counts, &sum);
        }
        missing |= sum < e->config.nr_completions[cpu];
    }
    free(counts);
    return missing;
}

bool completions_missing(engine *e)
{
    if (e->completions == LO2_COMPLETIONS_COUNTED)
        e->completions = are_missing(e) ? LO2_COMPLETIONS_MISSING : LO2_COMPLETIONS_THERE;
    return e->completions == LO2_COMPLETIONS_MISSING;
}
