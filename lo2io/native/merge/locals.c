/*
 * The local definitions of each location: tables that map the ids which its events name, and the corrections of its clock.
 * A reader loads the tables of all locations. So they hold what the location uses, not what its host has. A table that
 * changes nothing is not written, for a reader leaves ids alone that no table has.
 */
#include "merge/merge.h"

enum { KIND_SHIFT = 32, LOCATION_SHIFT = 35, KIND_MASK = 7 };

typedef int (*table_fn)(void *, uint8_t, const void *);
typedef void *(*create_fn)(uint8_t, uint64_t);
typedef void *(*from_array_fn)(uint64_t, const uint32_t *, bool);
typedef int (*add_fn)(void *, uint64_t, uint64_t);
typedef void (*free_fn)(void *);

#define CALL(m, function, type, ...) ((type)(m)->config.functions.function)(__VA_ARGS__)

static int write_table(lo2_merge *m, void *writer, uint8_t mapping, void *table)
{
    int code = CALL(m, write_mapping_table, table_fn, writer, mapping, table);
    CALL(m, map_free, free_fn, table);
    return code ? merge_fail(m, "write_mapping_table", code) : 0;
}

/* All ids of the host. */
static int whole_table(lo2_merge *m, void *writer, uint8_t mapping, const id_map *map)
{
    bool changes = false;
    for (size_t id = 0; id < map->size; id++)
        changes |= map->to[id] != id && map->to[id] != NONE;
    if (!changes)
        return 0;
    void *table = CALL(m, map_from_array, from_array_fn, map->size, map->to, true);
    return table ? write_table(m, writer, mapping, table) : merge_fail(m, "map_from_array", 0);
}

static int table_of_used(lo2_merge *m, void *writer, uint8_t mapping, const id_map *map, const uint64_t *ids, uint64_t nr_ids)
{
    bool changes = false;
    for (uint64_t i = 0; i < nr_ids; i++)
        changes |= id_map_get(map, (uint32_t)ids[i]) != (uint32_t)ids[i];
    if (!changes)
        return 0;
    void *table = CALL(m, map_create, create_fn, m->config.sparse, nr_ids);
    if (!table)
        return merge_fail(m, "map_create", 0);
    for (uint64_t i = 0; i < nr_ids; i++) {
        int code = CALL(m, map_add, add_fn, table, (uint32_t)ids[i], id_map_get(map, (uint32_t)ids[i]));
        if (code) {
            CALL(m, map_free, free_fn, table);
            return merge_fail(m, "map_add", code);
        }
    }
    return write_table(m, writer, mapping, table);
}

static int tables_of_used(lo2_merge *m, void *writer, const uint64_t *used, uint64_t nr_used)
{
    const struct { const id_map *map; uint8_t mapping; } kinds[LO2_NR_USED_KINDS] = {
        [LO2_USED_STRING] = {&m->strings, MAP_STRING}, [LO2_USED_REGION] = {&m->regions, MAP_REGION},
        [LO2_USED_CONTEXT] = {&m->contexts, MAP_CONTEXT}, [LO2_USED_METRIC] = {&m->metrics, MAP_METRIC},
        [LO2_USED_HANDLE] = {&m->handles, MAP_HANDLE}};
    for (uint64_t begin = 0, end; begin < nr_used; begin = end) {
        uint8_t kind = used[begin] >> KIND_SHIFT & KIND_MASK;
        for (end = begin; end < nr_used && (used[end] >> KIND_SHIFT & KIND_MASK) == kind;)
            end++;
        if (kind < LO2_NR_USED_KINDS)
            TRY(table_of_used(m, writer, kinds[kind].mapping, kinds[kind].map, used + begin, end - begin));
    }
    return 0;
}

static int whole_tables(lo2_merge *m, void *writer)
{
    TRY(whole_table(m, writer, MAP_STRING, &m->strings));
    TRY(whole_table(m, writer, MAP_REGION, &m->regions));
    TRY(whole_table(m, writer, MAP_CONTEXT, &m->contexts));
    TRY(whole_table(m, writer, MAP_METRIC, &m->metrics));
    TRY(whole_table(m, writer, MAP_FILE, &m->files));
    TRY(whole_table(m, writer, MAP_HANDLE, &m->handles));
    return whole_table(m, writer, MAP_LOCATION_GROUP, &m->location_groups);
}

static int write_tables(lo2_merge *m, void *writer, const uint64_t *used, uint64_t nr_used, const lo2_merge_offset *offsets,
                        uint64_t nr_offsets)
{
    TRY(whole_table(m, writer, MAP_ATTRIBUTE, &m->attributes));
    TRY(whole_table(m, writer, MAP_GENERATOR, &m->generators));
    TRY(used ? tables_of_used(m, writer, used, nr_used) : whole_tables(m, writer));
    for (uint64_t i = 0; i < nr_offsets; i++) {
        int code = CALL(m, write_clock_offset, int (*)(void *, uint64_t, int64_t, double), writer, offsets[i].time,
                        offsets[i].offset, 0.0);
        if (code)
            return merge_fail(m, "write_clock_offset", code);
    }
    return 0;
}

/* The place of the first id of this location, or of a later one. */
static uint64_t find(const uint64_t *used, uint64_t nr_used, uint64_t location)
{
    uint64_t low = 0, high = nr_used;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (used[middle] >> LOCATION_SHIFT < location)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Events name strings that no definition does. */
static int write_strings(lo2_merge *m, const uint64_t *used, uint64_t nr_used)
{
    uint32_t unused;
    for (uint64_t i = 0; i < nr_used; i++)
        if ((used[i] >> KIND_SHIFT & KIND_MASK) == LO2_USED_STRING)
            TRY(merge_string(m, (uint32_t)used[i], &unused));
    for (size_t i = 0; !used && i < m->part.strings.nr; i++)
        TRY(merge_string(m, m->part.strings.at[i].id, &unused));
    return 0;
}

int merge_locals(lo2_merge *m, const uint64_t *used, uint64_t nr_used, const lo2_merge_offset *offsets, uint64_t nr_offsets)
{
    TRY(write_strings(m, used, nr_used));
    for (size_t i = 0; i < m->part.locations.nr; i++) {
        uint64_t own = m->part.locations.at[i].id;
        uint64_t begin = find(used, nr_used, own), end = find(used, nr_used, own + 1);
        void *writer = CALL(m, get_def_writer, void *(*)(void *, uint64_t), m->config.archive, merge_location(m, own));
        if (!writer)
            return merge_fail(m, "get_def_writer", 0);
        TRY(write_tables(m, writer, used ? used + begin : NULL, end - begin, offsets, nr_offsets));
        int code = CALL(m, close_def_writer, int (*)(void *, void *), m->config.archive, writer);
        if (code)
            return merge_fail(m, "close_def_writer", code);
    }
    return 0;
}
