/* Lists, maps of ids, and contents that are found again. */
#include "hash/hash.h"
#include "merge/merge.h"

enum { MOST_IDS = 1 << 28 };

int merge_fail(lo2_merge *m, const char *call, int code)
{
    m->failed = call;
    m->error_code = code;
    return -1;
}

bool merge_grow(void **at, size_t *room, size_t need, size_t element)
{
    if (need <= *room)
        return true;
    size_t more = *room ? *room * 2 : 64;
    if (more < need)
        more = need;
    void *fresh = realloc(*at, more * element);
    if (!fresh)
        return false;
    *at = fresh;
    *room = more;
    return true;
}

int id_map_set(lo2_merge *m, id_map *map, uint32_t id, uint32_t value)
{
    if (id >= MOST_IDS)
        return merge_fail(m, "an id of a definition is beyond 268 million", 0);
    if (!merge_grow((void **)&map->to, &map->room, id + 1u, sizeof *map->to))
        return merge_fail(m, "malloc", 0);
    for (; map->size <= id; map->size++)
        map->to[map->size] = NONE;
    map->to[id] = value;
    return 0;
}

void id_map_clear(id_map *map) { map->size = 0; }

static uint64_t hash_of(const void *bytes, size_t length) { return hash_text(NULL, 0, bytes, length).low; }

static const uint64_t UPPER = UINT64_C(0xffffffff00000000);

static bool widen(contents *c)
{
    size_t room = c->room ? c->room * 2 : 1024;
    uint64_t *slots = calloc(room, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < c->entries.nr; i++) {
        uint64_t hash = hash_of(c->bytes.at + c->entries.at[i].offset, c->entries.at[i].length);
        size_t at = hash & (room - 1);
        while (slots[at])
            at = (at + 1) & (room - 1);
        slots[at] = (hash & UPPER) | (i + 1);
    }
    free(c->slots);
    c->slots = slots;
    c->room = room;
    return true;
}

int contents_find(lo2_merge *m, contents *c, const void *bytes, size_t length, uint32_t **value)
{
    if (c->entries.nr * 2 >= c->room && !widen(c))
        return merge_fail(m, "malloc", 0);
    uint64_t hash = hash_of(bytes, length);
    size_t at = hash & (c->room - 1);
    for (; c->slots[at]; at = (at + 1) & (c->room - 1)) {
        size_t place = (uint32_t)c->slots[at] - 1;
        if ((c->slots[at] & UPPER) == (hash & UPPER) && c->entries.at[place].length == length
            && !memcmp(c->bytes.at + c->entries.at[place].offset, bytes, length)) {
            *value = &c->entries.at[place].value;
            return 0;
        }
    }
    if (!merge_grow((void **)&c->bytes.at, &c->bytes.room, c->bytes.nr + length, 1)
        || !merge_grow((void **)&c->entries.at, &c->entries.room, c->entries.nr + 1, sizeof *c->entries.at))
        return merge_fail(m, "malloc", 0);
    memcpy(c->bytes.at + c->bytes.nr, bytes, length);
    c->entries.at[c->entries.nr].offset = c->bytes.nr;
    c->entries.at[c->entries.nr].length = (uint32_t)length;
    c->entries.at[c->entries.nr].value = NONE;
    *value = &c->entries.at[c->entries.nr++].value;
    c->bytes.nr += length;
    c->slots[at] = (hash & UPPER) | c->entries.nr;
    return 0;
}
