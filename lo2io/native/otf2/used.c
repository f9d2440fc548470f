/* Which definitions the events of each location name. Merging archives makes a table of them for each location. */
#include "otf2/otf2_writer.h"

static int note(lo2_otf2_writer *w, lo2_otf2_location *location, uint64_t kind, uint32_t ref)
{
    uint32_t *last = &location->last_used[kind][ref % 8], *unused;
    if (__builtin_expect(*last == ref, 1))
        return 0;
    *last = ref;
    uint64_t id = (uint64_t)(location - w->locations);
    if (!number_map_at(&w->used, id << LO2_USED_LOCATION_SHIFT | kind << LO2_USED_KIND_SHIFT | ref, &unused))
        return otf2_fail(w, "malloc");
    return 0;
}

int otf2_use(lo2_otf2_writer *w, lo2_otf2_location *location, uint8_t kind, uint32_t ref)
{
    while (__builtin_expect(w->nr_named, 0))
        TRY(note(w, location, LO2_USED_STRING, w->named[--w->nr_named]));
    return note(w, location, kind, ref);
}

int otf2_add_string(lo2_otf2_writer *w, uint32_t attribute, uint32_t ref)
{
    if (w->nr_named == MOST_NAMED)
        return otf2_fail(w, "too many strings in one event");
    w->named[w->nr_named++] = ref;
    otf2_add_ref(w, attribute, w->config.values.type_string, ref);
    return 0;
}

static int compare(const void *one, const void *other)
{
    uint64_t first = *(const uint64_t *)one, second = *(const uint64_t *)other;
    return (first > second) - (first < second);
}

const uint64_t *lo2_otf2_used_ids(lo2_otf2_writer *w, uint64_t *number)
{
    size_t count = 0;
    for (size_t i = 0; i < w->used.room; i++)
        if (w->used.keys[i] != UINT64_MAX)
            w->used.keys[count++] = w->used.keys[i];
    if (count)
        qsort(w->used.keys, count, sizeof *w->used.keys, compare);
    *number = count;
    return w->used.keys;
}

uint64_t lo2_otf2_nr_used(const lo2_otf2_writer *w) { return w->used.used; }

void lo2_otf2_forget_used(lo2_otf2_writer *w) { number_map_free(&w->used); }
