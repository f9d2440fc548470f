/*
 * Maps from the ids of an archive to the merged ones, for the local definitions of its locations. Another process may write these
 * definitions, and needs nothing but the maps.
 */
#include "merge/merge.h"

static int keep_whole(lo2_merge *m, uint8_t mapping, const id_map *map)
{
    bool changes = false;
    for (size_t id = 0; id < map->size; id++)
        changes |= map->to[id] != id && map->to[id] != NONE;
    return changes ? PUSH(m, m->whole, {.to = map->to, .size = map->size, .mapping = mapping}) : 0;
}

static int keep_all(lo2_merge *m)
{
    TRY(keep_whole(m, MAP_STRING, &m->strings));
    TRY(keep_whole(m, MAP_REGION, &m->regions));
    TRY(keep_whole(m, MAP_CONTEXT, &m->contexts));
    TRY(keep_whole(m, MAP_METRIC, &m->metrics));
    TRY(keep_whole(m, MAP_FILE, &m->files));
    TRY(keep_whole(m, MAP_HANDLE, &m->handles));
    return keep_whole(m, MAP_LOCATION_GROUP, &m->location_groups);
}

static int keep_used(lo2_merge *m, const uint64_t *used, uint64_t nr_used)
{
    const id_map *const maps[LO2_NR_USED_KINDS] = {
        [LO2_USED_STRING] = &m->strings, [LO2_USED_REGION] = &m->regions, [LO2_USED_CONTEXT] = &m->contexts,
        [LO2_USED_METRIC] = &m->metrics, [LO2_USED_HANDLE] = &m->handles};
    for (uint64_t i = 0; i < nr_used; i++) {
        uint8_t kind = used_kind(used[i]);
        TRY(PUSH(m, m->merged, kind < LO2_NR_USED_KINDS ? id_map_get(maps[kind], (uint32_t)used[i]) : NONE));
    }
    return 0;
}

int merge_maps(lo2_merge *m, const uint64_t *used, uint64_t nr_used)
{
    m->whole.nr = m->merged.nr = 0;
    TRY(keep_whole(m, MAP_ATTRIBUTE, &m->attributes));
    TRY(keep_whole(m, MAP_GENERATOR, &m->generators));
    TRY(used ? keep_used(m, used, nr_used) : keep_all(m));
    m->view.whole = m->whole.at;
    m->view.nr_whole = m->whole.nr;
    m->view.merged = m->merged.at;
    return 0;
}
