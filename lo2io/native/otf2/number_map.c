/* Maps keys to numbers. */
#include "otf2/otf2_writer.h"

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
