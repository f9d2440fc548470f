/* A hash table with open addressing. */
#include <stdlib.h>
#include <string.h>

#include "hash/hash.h"
#include "sums/numbers.h"

enum { LEAST_ROOM = 64 };

static size_t bucket_of(const number_set *set, const uint64_t key[2])
{
    return (size_t)hash_words(key, 2) & (2 * set->room - 1);
}

static bool is_at(const number_set *set, size_t number, const uint64_t key[2])
{
    return set->keys[number][0] == key[0] && set->keys[number][1] == key[1];
}

size_t number_find(number_set *set, const uint64_t key[2])
{
    if (!set->count)
        return NO_NUMBER;
    if (is_at(set, set->last, key)) /* most keys come again at once */
        return set->last;
    for (size_t at = bucket_of(set, key);; at = (at + 1) & (2 * set->room - 1)) {
        if (!set->buckets[at])
            return NO_NUMBER;
        if (is_at(set, set->buckets[at] - 1, key))
            return set->last = set->buckets[at] - 1;
    }
}

static void put(number_set *set, size_t number)
{
    size_t at = bucket_of(set, set->keys[number]);
    while (set->buckets[at])
        at = (at + 1) & (2 * set->room - 1);
    set->buckets[at] = (uint32_t)number + 1;
}

static bool grow(number_set *set, void **rows, size_t row_bytes)
{
    size_t room = set->room ? 2 * set->room : LEAST_ROOM;
    uint32_t *buckets = calloc(2 * room, sizeof *buckets);
    void *keys = realloc(set->keys, room * sizeof *set->keys);
    set->keys = keys ? keys : set->keys;
    char *grown = realloc(*rows, room * row_bytes);
    *rows = grown ? grown : *rows;
    if (!buckets || !keys || !grown || room > UINT32_MAX / 2) {
        free(buckets);
        return false;
    }
    memset(grown + set->count * row_bytes, 0, (room - set->count) * row_bytes);
    free(set->buckets);
    set->buckets = buckets;
    set->room = room;
    for (size_t number = 0; number < set->count; number++)
        put(set, number);
    return true;
}

size_t number_add(number_set *set, const uint64_t key[2], void **rows, size_t row_bytes)
{
    if (set->count == set->room && !grow(set, rows, row_bytes))
        return NO_NUMBER;
    size_t number = set->count++;
    memcpy(set->keys[number], key, sizeof set->keys[number]);
    put(set, number);
    return set->last = number;
}

void number_set_free(number_set *set)
{
    free(set->keys);
    free(set->buckets);
}
