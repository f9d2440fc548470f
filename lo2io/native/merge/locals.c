/*
 * The local definitions of each location: tables that map the ids which its events name, and the corrections of its clock.
 * A reader loads the tables of all locations. So a table holds the ids that its location uses, not all ids of the host. A
 * table that changes nothing is not written, for a reader does not change an id that no table has.
 */
#include "merge/merge.h"

typedef int (*table_fn)(void *, uint8_t, const void *);
typedef void *(*create_fn)(uint8_t, uint64_t);
typedef void *(*from_array_fn)(uint64_t, const uint32_t *, bool);
typedef int (*add_fn)(void *, uint64_t, uint64_t);
typedef void (*free_fn)(void *);

#define CALL(l, function, type, ...) ((type)(l)->functions.function)(__VA_ARGS__)

static int fail(lo2_locals *l, const char *call, int code)
{
    l->failed = call;
    l->error_code = code;
    return -1;
}

static int write_table(lo2_locals *l, void *writer, uint8_t mapping, void *table)
{
    int code = CALL(l, write_mapping_table, table_fn, writer, mapping, table);
    CALL(l, map_free, free_fn, table);
    return code ? fail(l, "write_mapping_table", code) : 0;
}

/* All ids of the host. */
static int whole_tables(lo2_locals *l, void *writer)
{
    for (uint64_t i = 0; i < l->nr_maps; i++) {
        void *table = CALL(l, map_from_array, from_array_fn, l->maps[i].size, l->maps[i].to, true);
        if (!table)
            return fail(l, "map_from_array", 0);
        TRY(write_table(l, writer, l->maps[i].mapping, table));
    }
    return 0;
}

static int table_of_used(lo2_locals *l, void *writer, uint8_t mapping, uint64_t begin, uint64_t end)
{
    bool changes = false;
    for (uint64_t i = begin; i < end; i++)
        changes |= l->merged[i] != (uint32_t)l->used[i];
    if (!changes)
        return 0;
    void *table = CALL(l, map_create, create_fn, l->sparse, end - begin);
    if (!table)
        return fail(l, "map_create", 0);
    for (uint64_t i = begin; i < end; i++) {
        int code = CALL(l, map_add, add_fn, table, (uint32_t)l->used[i], l->merged[i]);
        if (code) {
            CALL(l, map_free, free_fn, table);
            return fail(l, "map_add", code);
        }
    }
    return write_table(l, writer, mapping, table);
}

static int tables_of_used(lo2_locals *l, void *writer, uint64_t begin, uint64_t nr_used)
{
    static const uint8_t mappings[LO2_NR_USED_KINDS] = {
        [LO2_USED_STRING] = MAP_STRING, [LO2_USED_REGION] = MAP_REGION, [LO2_USED_CONTEXT] = MAP_CONTEXT,
        [LO2_USED_METRIC] = MAP_METRIC, [LO2_USED_HANDLE] = MAP_HANDLE};
    for (uint64_t end; begin < nr_used; begin = end) {
        uint8_t kind = used_kind(l->used[begin]);
        for (end = begin; end < nr_used && used_kind(l->used[end]) == kind;)
            end++;
        if (kind < LO2_NR_USED_KINDS)
            TRY(table_of_used(l, writer, mappings[kind], begin, end));
    }
    return 0;
}

static int write_offsets(lo2_locals *l, void *writer)
{
    for (uint64_t i = 0; i < l->nr_offsets; i++) {
        int code = CALL(l, write_clock_offset, int (*)(void *, uint64_t, int64_t, double), writer, l->offsets[i].time,
                        l->offsets[i].offset, 0.0);
        if (code)
            return fail(l, "write_clock_offset", code);
    }
    return 0;
}

/* The place of the first id of this location, or of a later one. */
static uint64_t find(const lo2_locals *l, uint64_t location)
{
    uint64_t low = 0, high = l->nr_used;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (l->used[middle] >> LO2_USED_LOCATION_SHIFT < location)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int lo2_write_locals(lo2_locals *l)
{
    for (uint64_t i = 0; i < l->nr_locations; i++) {
        uint64_t own = l->locations[i];
        void *writer = CALL(l, get_def_writer, void *(*)(void *, uint64_t), l->archive, own << 32 | l->number);
        if (!writer)
            return fail(l, "get_def_writer", 0);
        TRY(whole_tables(l, writer));
        TRY(tables_of_used(l, writer, find(l, own), find(l, own + 1)));
        TRY(write_offsets(l, writer));
        int code = CALL(l, close_def_writer, int (*)(void *, void *), l->archive, writer);
        if (code)
            return fail(l, "close_def_writer", code);
    }
    return 0;
}
