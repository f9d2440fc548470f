/*
 * Notes the definitions of an application's archive, which keeps its ids: the hosts' archives come after it. Some of a host's
 * processes are those of the application.
 */
#include "merge/merge.h"

int lo2_merge_know_string(lo2_merge *m, const char *text, uint32_t ref)
{
    uint32_t *known;
    TRY(contents_find(m, &m->of_strings, text, strlen(text), &known));
    if (*known == NONE)
        *known = ref;
    return 0;
}

static int known(lo2_merge *m, const uint32_t *words, size_t nr_words, uint32_t **value)
{
    return contents_find(m, &m->of_records, words, nr_words * sizeof *words, value);
}

int lo2_merge_know_paradigm(lo2_merge *m, uint32_t identification, uint32_t ref)
{
    uint32_t *value;
    TRY(known(m, (uint32_t[]){KNOWN_PARADIGM, identification}, 2, &value));
    *value = ref;
    return 0;
}

int merge_known_paradigm(lo2_merge *m, uint32_t own_identification, uint32_t *ref)
{
    uint32_t identification, *value;
    TRY(merge_string(m, own_identification, &identification));
    TRY(known(m, (uint32_t[]){KNOWN_PARADIGM, identification}, 2, &value));
    *ref = *value;
    return 0;
}

int lo2_merge_know_property(lo2_merge *m, bool of_group, uint32_t of, uint32_t name)
{
    uint32_t *value;
    TRY(known(m, (uint32_t[]){KNOWN_PROPERTY, of_group, of, name}, 4, &value));
    *value = name;
    return 0;
}

int merge_property_name(lo2_merge *m, bool of_group, uint32_t of, uint32_t own_name, uint32_t *to)
{
    uint32_t *value;
    TRY(merge_string(m, own_name, to));
    if (of >= (of_group ? m->config.first.location_group : m->config.first.node))
        return 0;
    TRY(known(m, (uint32_t[]){KNOWN_PROPERTY, of_group, of, *to}, 4, &value));
    if (*value == NONE)
        return 0;
    static const char before[] = "lo2io ";
    const char *text = merge_text(m, own_name);
    size_t length = strlen(text) + sizeof before;
    if (!merge_grow((void **)&m->scratch.at, &m->scratch.room, length, 1))
        return merge_fail(m, "malloc", 0);
    memcpy(m->scratch.at, before, sizeof before - 1);
    memcpy(m->scratch.at + sizeof before - 1, text, length - sizeof before + 1);
    return merge_new_string(m, m->scratch.at, to);
}

int lo2_merge_join(lo2_merge *m, uint32_t host, const lo2_merge_pair *groups, uint64_t nr_groups,
                   const lo2_merge_named *named, uint64_t nr_named)
{
    m->joined_host = host;
    for (uint64_t i = 0; i < nr_groups; i++)
        TRY(id_map_set(m, &m->joined_groups, groups[i].own, groups[i].merged));
    for (uint64_t i = 0; i < nr_named; i++) {
        uint32_t name;
        TRY(merge_new_string(m, named[i].name, &name));
        TRY(id_map_set(m, &m->location_names, (uint32_t)named[i].own, name)); /* merge_location() leaves 32 bits */
    }
    return 0;
}
