/*
 * Regions and calling contexts, which Enter, Leave and samples name, numbered in the order of first use.
 *
 * OTF2 forbids Enter and Leave beside events of calling contexts. So a trace has one or the other: regions, or
 * contexts, each of which is a region inside another context.
 */
#include "otf2/otf2_writer.h"

enum { KIND_SHIFT = 56, OPERATION_SHIFT = 32 };

static uint32_t no_memory(lo2_otf2_writer *w)
{
    otf2_fail(w, "malloc");
    return NONE;
}

static uint32_t region_new(lo2_otf2_writer *w, uint8_t kind, uint32_t key, uint8_t operation)
{
    uint32_t ref = w->view.nr_regions;
    if (!otf2_grow((void **)&w->regions, &w->regions_room, ref + 1u, sizeof *w->regions))
        return no_memory(w);
    w->regions[ref] = (lo2_otf2_region){.kind = kind, .key = key, .operation = operation};
    w->view.regions = w->regions;
    w->view.nr_regions++;
    return ref;
}

static uint32_t context_new(lo2_otf2_writer *w, uint32_t region, uint32_t parent)
{
    uint32_t ref = w->view.nr_contexts;
    if (!otf2_grow((void **)&w->contexts, &w->contexts_room, ref + 1u, sizeof *w->contexts))
        return no_memory(w);
    w->contexts[ref] = (lo2_otf2_context){.region = region, .parent = parent};
    w->view.contexts = w->contexts;
    w->view.nr_contexts++;
    return ref;
}

static uint32_t context_inside(lo2_otf2_writer *w, uint32_t parent, uint32_t region)
{
    uint32_t *context;
    if (!number_map_at(&w->context_by_key, (uint64_t)parent << 32 | region, &context))
        return no_memory(w);
    if (*context == NONE)
        *context = context_new(w, region, parent);
    return *context;
}

uint32_t otf2_ref_of_call(lo2_otf2_writer *w, uint32_t life, uint16_t call)
{
    uint32_t ref = w->calls[call];
    if (__builtin_expect(ref == NONE, 0)) {
        ref = region_new(w, LO2_OTF2_CALL, call, 0);
        if (ref != NONE && w->config.contexts)
            ref = context_new(w, ref, NONE);
        w->calls[call] = ref;
    }
    if (__builtin_expect(life == NONE || !w->config.contexts || ref == NONE, 1))
        return ref;
    return context_inside(w, life, w->contexts[ref].region);
}

uint32_t otf2_ref_inside(lo2_otf2_writer *w, uint32_t parent, uint8_t kind, uint32_t key, uint8_t operation)
{
    uint32_t *region;
    uint64_t what = (uint64_t)kind << KIND_SHIFT | (uint64_t)operation << OPERATION_SHIFT | key;
    if (!number_map_at(&w->region_by_key, what, &region))
        return no_memory(w);
    if (*region == NONE && (*region = region_new(w, kind, key, operation)) == NONE)
        return NONE;
    return w->config.contexts ? context_inside(w, parent, *region) : *region;
}

int otf2_enter(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint32_t ref)
{
    if (w->config.contexts)
        EVENT(w, CONTEXT, otf2_put_context_enter, location, time, ref, UNWIND_DISTANCE);
    else
        EVENT(w, REGION, otf2_put_enter, location, time, ref);
    return 0;
}

int otf2_leave(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint32_t ref)
{
    if (w->config.contexts)
        EVENT(w, CONTEXT, otf2_put_context_leave, location, time, ref);
    else
        EVENT(w, REGION, otf2_put_leave, location, time, ref);
    return 0;
}

static int leave_marked(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint32_t ref)
{
    otf2_add_uint8(w, w->config.attributes.in_flight, 1);
    return otf2_leave(w, location, time, ref);
}

int otf2_leave_off_cpu(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time)
{
    uint32_t ref = location->off_cpu;
    location->off_cpu = NONE;
    return ref == NONE ? 0 : leave_marked(w, location, time, ref);
}

int otf2_leave_open_region(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time)
{
    TRY(otf2_leave_off_cpu(w, location, time));
    uint32_t ref = location->open_region;
    location->open_region = NONE;
    return leave_marked(w, location, time, ref);
}
