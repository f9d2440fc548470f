/*
 * Definitions that hosts have in common: paradigms, attributes, regions, calling contexts, interrupt generators, members and
 * classes of metrics. Equal contents are one definition. Contents are compared after their references were mapped, and
 * after a first word that tells their kind.
 */
#include "merge/merge.h"

enum kind { PARADIGM, ATTRIBUTE, REGION, CONTEXT, GENERATOR, MEMBER, CLASS, GROUP };
enum { MOST_WORDS = 16 + UINT8_MAX, NO_PARADIGM = 0xff };
enum { GROUP_TYPE_REGIONS = 2, SCOPE_LOCATION = 0, SCOPE_LOCATION_GROUP = 1, SCOPE_NODE = 2 }; /* OTF2_Definitions.h */

/* *to: the number of these contents. *is_new: they were not seen before, and got the next number. */
static int number(lo2_merge *m, const uint32_t *words, size_t nr_words, uint32_t *next, uint32_t *to, bool *is_new)
{
    uint32_t *known;
    TRY(contents_find(m, &m->of_records, words, nr_words * sizeof *words, &known));
    *is_new = *known == NONE;
    if (*is_new)
        *known = (*next)++;
    *to = *known;
    return 0;
}

static uint32_t upper(uint64_t value) { return (uint32_t)(value >> 32); }

static int paradigms(lo2_merge *m)
{
    for (size_t i = 0; i < m->part.paradigms.nr; i++) {
        const paradigm_row *row = &m->part.paradigms.at[i];
        uint32_t name, title, ref;
        bool is_new;
        TRY(merge_known_paradigm(m, row->name, &ref));
        if (ref != NONE) {
            TRY(id_map_set(m, &m->paradigms, row->id, ref));
            continue;
        }
        TRY(merge_string(m, row->name, &name));
        TRY(merge_string(m, row->title, &title));
        const uint32_t words[] = {PARADIGM, name, title, row->paradigm_class, row->flags};
        TRY(number(m, words, 5, &m->next_paradigm, &ref, &is_new));
        if (ref >= NO_PARADIGM)
            return merge_fail(m, "more than 254 I/O paradigms", 0);
        TRY(id_map_set(m, &m->paradigms, row->id, ref));
        if (is_new)
            WRITE(m, write_io_paradigm,
                  (void *, uint8_t, uint32_t, uint32_t, uint8_t, uint32_t, uint8_t, void *, void *, void *), (uint8_t)ref,
                  name, title, row->paradigm_class, row->flags, 0, NULL, NULL, NULL);
    }
    return 0;
}

static int attributes(lo2_merge *m)
{
    for (size_t i = 0; i < m->part.attributes.nr; i++) {
        const attribute_row *row = &m->part.attributes.at[i];
        uint32_t name, description, ref;
        bool is_new;
        TRY(merge_string(m, row->name, &name));
        TRY(merge_string(m, row->description, &description));
        const uint32_t words[] = {ATTRIBUTE, name, description, row->type};
        TRY(number(m, words, 4, &m->next_attribute, &ref, &is_new));
        TRY(id_map_set(m, &m->attributes, row->id, ref));
        if (is_new)
            WRITE(m, write_attribute, (void *, uint32_t, uint32_t, uint32_t, uint8_t), ref, name, description, row->type);
    }
    return 0;
}

static int region(lo2_merge *m, const region_row *row)
{
    uint32_t name, canonical, description, file, ref;
    bool is_new;
    TRY(merge_string(m, row->name, &name));
    TRY(merge_string(m, row->canonical, &canonical));
    TRY(merge_string(m, row->description, &description));
    TRY(merge_string(m, row->file, &file));
    const uint32_t words[] = {REGION, name, canonical, description, file, row->flags, row->first_line, row->last_line,
                              row->role, row->paradigm};
    TRY(number(m, words, 10, &m->next_region, &ref, &is_new));
    TRY(id_map_set(m, &m->regions, row->id, ref));
    if (is_new)
        WRITE(m, write_region,
              (void *, uint32_t, uint32_t, uint32_t, uint32_t, uint8_t, uint8_t, uint32_t, uint32_t, uint32_t, uint32_t), ref,
              name, canonical, description, row->role, row->paradigm, row->flags, file, row->first_line, row->last_line);
    return 0;
}

static int contexts(lo2_merge *m)
{
    for (size_t i = 0; i < m->part.contexts.nr; i++) {
        const context_row *row = &m->part.contexts.at[i];
        uint32_t of = id_map_get(&m->regions, row->region), parent = id_map_get(&m->contexts, row->parent), ref;
        bool is_new;
        const uint32_t words[] = {CONTEXT, of, parent};
        TRY(number(m, words, 3, &m->next_context, &ref, &is_new));
        TRY(id_map_set(m, &m->contexts, row->id, ref));
        if (is_new)
            WRITE(m, write_calling_context, (void *, uint32_t, uint32_t, uint32_t, uint32_t), ref, of, NONE, parent);
    }
    return 0;
}

static int generators(lo2_merge *m)
{
    for (size_t i = 0; i < m->part.generators.nr; i++) {
        const generator_row *row = &m->part.generators.at[i];
        uint32_t name, ref;
        bool is_new;
        TRY(merge_string(m, row->name, &name));
        const uint32_t words[] = {GENERATOR, name, row->mode, row->base, (uint32_t)row->exponent, upper(row->exponent),
                                  (uint32_t)row->period, upper(row->period)};
        TRY(number(m, words, 8, &m->next_generator, &ref, &is_new));
        TRY(id_map_set(m, &m->generators, row->id, ref));
        if (is_new)
            WRITE(m, write_interrupt_generator, (void *, uint32_t, uint32_t, uint8_t, uint8_t, int64_t, uint64_t), ref, name,
                  row->mode, row->base, (int64_t)row->exponent, row->period);
    }
    return 0;
}

static int member(lo2_merge *m, const member_row *row)
{
    uint32_t name, description, unit, ref;
    bool is_new;
    TRY(merge_string(m, row->name, &name));
    TRY(merge_string(m, row->description, &description));
    TRY(merge_string(m, row->unit, &unit));
    const uint32_t words[] = {MEMBER, name, description, unit, row->type, row->mode, row->value, row->base,
                              (uint32_t)row->exponent, upper((uint64_t)row->exponent)};
    TRY(number(m, words, 10, &m->next_member, &ref, &is_new));
    TRY(id_map_set(m, &m->members, row->id, ref));
    if (is_new)
        WRITE(m, write_metric_member,
              (void *, uint32_t, uint32_t, uint32_t, uint8_t, uint8_t, uint8_t, uint8_t, int64_t, uint32_t), ref, name,
              description, row->type, row->mode, row->value, row->base, row->exponent, unit);
    return 0;
}

static int metric_class(lo2_merge *m, const class_row *row)
{
    uint32_t words[MOST_WORDS] = {CLASS, row->occurrence, row->recorder}, ref;
    bool is_new;
    for (uint32_t i = 0; i < row->nr_members; i++)
        words[3 + i] = id_map_get(&m->members, m->part.member_refs.at[row->first_member + i]);
    TRY(number(m, words, 3u + row->nr_members, &m->next_metric, &ref, &is_new));
    TRY(id_map_set(m, &m->metrics, row->id, ref));
    if (is_new)
        WRITE(m, write_metric_class, (void *, uint32_t, uint8_t, const uint32_t *, uint8_t, uint8_t), ref, row->nr_members,
              words + 3, row->occurrence, row->recorder);
    return 0;
}

/* The members of a group come together from all hosts, and are written at the end. */
static int group(lo2_merge *m, const group_row *row)
{
    uint32_t name, ref, count = (uint32_t)m->groups.nr;
    bool is_new;
    TRY(merge_string(m, row->name, &name));
    const uint32_t words[] = {GROUP, name, row->flags, row->paradigm};
    TRY(number(m, words, 4, &count, &ref, &is_new));
    if (is_new)
        TRY(PUSH(m, m->groups, {.name = name, .flags = row->flags, .paradigm = row->paradigm}));
    for (uint32_t i = 0; i < row->nr_members; i++)
        TRY(PUSH(m, m->groups.at[ref].members, id_map_get(&m->regions, (uint32_t)m->part.group_refs.at[row->first_member + i])));
    return 0;
}

int merge_shared(lo2_merge *m)
{
    TRY(paradigms(m));
    TRY(attributes(m));
    for (size_t i = 0; i < m->part.regions.nr; i++)
        TRY(region(m, &m->part.regions.at[i]));
    TRY(contexts(m));
    TRY(generators(m));
    for (size_t i = 0; i < m->part.members.nr; i++)
        TRY(member(m, &m->part.members.at[i]));
    for (size_t i = 0; i < m->part.classes.nr; i++)
        TRY(metric_class(m, &m->part.classes.at[i]));
    for (size_t i = 0; i < m->part.groups.nr; i++)
        TRY(group(m, &m->part.groups.at[i]));
    return 0;
}

int merge_instances(lo2_merge *m)
{
    for (size_t i = 0; i < m->part.instances.nr; i++) {
        const instance_row *row = &m->part.instances.at[i];
        uint64_t scope = row->scope_kind == SCOPE_LOCATION ? merge_location(m, row->scope)
                         : row->scope_kind == SCOPE_LOCATION_GROUP ? id_map_get(&m->location_groups, (uint32_t)row->scope)
                         : row->scope_kind == SCOPE_NODE ? id_map_get(&m->nodes, (uint32_t)row->scope) : row->scope;
        uint32_t ref = m->next_metric++;
        TRY(id_map_set(m, &m->metrics, row->id, ref));
        WRITE(m, write_metric_instance, (void *, uint32_t, uint32_t, uint64_t, uint8_t, uint64_t), ref,
              id_map_get(&m->metrics, row->class_ref), merge_location(m, row->recorder), row->scope_kind, scope);
    }
    return 0;
}

static int compare(const void *one, const void *other)
{
    uint64_t first = *(const uint64_t *)one, second = *(const uint64_t *)other;
    return (first > second) - (first < second);
}

int lo2_merge_finish(lo2_merge *m)
{
    uint32_t ref = m->config.first.group;

    for (size_t i = 0; i < m->groups.nr; i++) {
        union_group *group = &m->groups.at[i];
        uint64_t *members = group->members.at;
        size_t nr = 0;
        if (group->members.nr)
            qsort(members, group->members.nr, sizeof *members, compare);
        for (size_t k = 0; k < group->members.nr; k++)
            if (!nr || members[k] != members[nr - 1])
                members[nr++] = members[k];
        for (size_t at = 0; !at || at < nr; at += m->config.most_members) {
            size_t piece = nr - at < m->config.most_members ? nr - at : m->config.most_members;
            WRITE(m, write_group, (void *, uint32_t, uint32_t, uint8_t, uint8_t, uint32_t, uint32_t, const uint64_t *), ref++,
                  group->name, GROUP_TYPE_REGIONS, group->paradigm, group->flags, (uint32_t)piece, members + at);
        }
    }
    return 0;
}
