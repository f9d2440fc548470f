/*
 * Regions and calling contexts, which Enter, Leave and samples name, numbered in the order of first use.
 *
 * OTF2 forbids Enter and Leave beside events of calling contexts. So a trace has one or the other: regions, or
 * contexts, each of which is a region inside of another context.
 */
#include "otf2/otf2_writer.h"

enum { KIND_SHIFT = 56, OPERATION_SHIFT = 32 };
#define EMPTY UINT64_MAX

static size_t place_of(const number_map *map, uint64_t key)
{
    size_t at = (key * UINT64_C(0x9e3779b97f4a7c15)) >> 20 & (map->room - 1);
    while (map->keys[at] != EMPTY && map->keys[at] != key)
        at = (at + 1) & (map->room - 1);
    return at;
}

static bool widen(number_map *map)
{
    number_map wide = {.room = map->room ? map->room * 2 : 64, .used = map->used};
    wide.keys = malloc(wide.room * sizeof *wide.keys);
    wide.values = malloc(wide.room * sizeof *wide.values);
    if (!wide.keys || !wide.values) {
        number_map_free(&wide);
        return false;
    }
    memset(wide.keys, 0xff, wide.room * sizeof *wide.keys);
    for (size_t i = 0; i < map->room; i++) {
        if (map->keys[i] == EMPTY)
            continue;
        size_t at = place_of(&wide, map->keys[i]);
        wide.keys[at] = map->keys[i];
        wide.values[at] = map->values[i];
    }
    number_map_free(map);
    *map = wide;
    return true;
}

bool number_map_at(number_map *map, uint64_t key, uint32_t **value)
{
    if (map->used * 2 >= map->room && !widen(map))
        return false;
    size_t at = place_of(map, key);
    if (map->keys[at] == EMPTY) {
        map->keys[at] = key;
        map->values[at] = NONE;
        map->used++;
    }
    *value = &map->values[at];
    return true;
}

void number_map_forget(number_map *map, uint64_t key)
{
    if (!map->room)
        return;
    size_t at = place_of(map, key);
    if (map->keys[at] == key)
        map->values[at] = NONE;
}

void number_map_free(number_map *map)
{
    free(map->keys);
    free(map->values);
    *map = (number_map){0};
}

static uint32_t no_memory(lo2_otf2_writer *w)
{
    otf2_fail(w, "malloc", 0);
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

static int leave_marked(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t time, uint32_t ref)
{
    OTF2(w, add_uint8, w->list, w->config.attributes.in_flight, 1);
    return otf2_leave(w, location, w->list, time, ref);
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
