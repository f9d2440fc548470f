/* Requests of rings that have begun and not ended, by id: open addressing; what is removed leaves no gap behind. */
#include "otf2/otf2_writer.h"

static size_t home_of(const open_requests *map, uint64_t id)
{
    return (id * UINT64_C(0x9e3779b97f4a7c15)) >> 20 & (map->room - 1);
}

static size_t place_of(const open_requests *map, uint64_t id)
{
    size_t at = home_of(map, id);
    while (map->at[at].id && map->at[at].id != id)
        at = (at + 1) & (map->room - 1);
    return at;
}

static bool widen(open_requests *map)
{
    open_requests wide = {.room = map->room ? map->room * 2 : 64, .used = map->used};
    wide.at = calloc(wide.room, sizeof *wide.at);
    if (!wide.at)
        return false;
    for (size_t i = 0; i < map->room; i++)
        if (map->at[i].id)
            wide.at[place_of(&wide, map->at[i].id)] = map->at[i];
    free(map->at);
    *map = wide;
    return true;
}

open_request *open_request_find(open_requests *map, uint64_t id)
{
    if (!map->used)
        return NULL;
    open_request *found = &map->at[place_of(map, id)];
    return found->id ? found : NULL;
}

open_request *open_request_add(open_requests *map, uint64_t id)
{
    if (map->used * 2 >= map->room && !widen(map))
        return NULL;
    open_request *fresh = &map->at[place_of(map, id)];
    map->used += !fresh->id;
    *fresh = (open_request){.id = id, .handle = NONE, .ref = NONE};
    return fresh;
}

void open_request_remove(open_requests *map, uint64_t id)
{
    open_request *found = open_request_find(map, id);
    if (!found)
        return;
    size_t gap = (size_t)(found - map->at), mask = map->room - 1;
    for (size_t at = (gap + 1) & mask; map->at[at].id; at = (at + 1) & mask) {
        /* Moves up unless it would then stand before the place its search begins at. */
        if (((at - home_of(map, map->at[at].id)) & mask) < ((at - gap) & mask))
            continue;
        map->at[gap] = map->at[at];
        gap = at;
    }
    map->at[gap].id = 0;
    map->used--;
}
