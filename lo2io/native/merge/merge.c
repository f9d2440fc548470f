/*
 * Merges archives one after the other: takes the definitions of an archive, writes those that are new, and tells what the
 * archive's ids became. Then it forgets that archive. So memory holds what is shared, and one archive at a time.
 */
#include "merge/merge.h"

lo2_merge *lo2_merge_new(const lo2_merge_config *config)
{
    lo2_merge *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->config = *config;
    m->root = config->root;
    const lo2_merge_first *first = &config->first;
    m->next_string = first->string;
    m->next_node = first->node;
    m->next_location_group = first->location_group;
    m->next_attribute = first->attribute;
    m->next_paradigm = first->paradigm;
    m->next_region = first->region;
    m->next_context = first->context;
    m->next_generator = first->generator;
    m->next_member = first->member;
    m->next_metric = first->metric;
    m->next_file = first->file;
    m->next_handle = first->handle;
    return m;
}

static void clear_part(definitions *p)
{
    p->strings.nr = p->text.nr = p->nodes.nr = p->domains.nr = p->node_properties.nr = p->group_properties.nr = 0;
    p->location_properties.nr = p->location_groups.nr = p->locations.nr = p->shown.nr = p->attributes.nr = 0;
    p->paradigms.nr = p->regions.nr = p->contexts.nr = p->generators.nr = p->members.nr = p->member_refs.nr = 0;
    p->classes.nr = p->instances.nr = p->groups.nr = p->group_refs.nr = p->files.nr = p->handles.nr = 0;
    p->unknown = NULL;
}

#define MAPS(m)                                                                                                       \
    {&(m)->strings, &(m)->suffixed, &(m)->string_rows, &(m)->nodes, &(m)->location_groups, &(m)->paradigms,           \
     &(m)->attributes, &(m)->regions, &(m)->contexts, &(m)->generators, &(m)->members, &(m)->metrics, &(m)->files,    \
     &(m)->handles, &(m)->file_rows, &(m)->handle_rows, &(m)->local_files, &(m)->joined_groups,                   \
     &(m)->location_names}

void lo2_merge_begin(lo2_merge *m, uint32_t number, const char *host)
{
    id_map *maps[] = MAPS(m);
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        id_map_clear(maps[i]);
    clear_part(&m->part);
    m->number = number;
    m->joined_host = NONE;
    m->host.nr = 0;
    size_t length = strlen(host) + 1;
    if (merge_grow((void **)&m->host.at, &m->host.room, length, 1))
        memcpy(m->host.at, host, m->host.nr = length);
}

const lo2_merge_part *lo2_merge_read(lo2_merge *m)
{
    m->view = (lo2_merge_part){.locations = m->part.shown.at, .nr_locations = m->part.shown.nr,
                               .nr_contexts = (uint32_t)m->part.contexts.nr, .nr_regions = (uint32_t)m->part.regions.nr,
                               .unknown = m->part.unknown};
    return &m->view;
}

int lo2_merge_write(lo2_merge *m, const uint64_t *used, uint64_t nr_used)
{
    if (!m->host.nr)
        return merge_fail(m, "malloc", 0);
    TRY(merge_tree(m));
    TRY(merge_shared(m));
    TRY(merge_instances(m));
    TRY(merge_handles(m, used, nr_used));
    TRY(merge_used_strings(m, used, nr_used));
    return merge_maps(m, used, nr_used);
}

int lo2_merge_failed(const lo2_merge *m, const char **call)
{
    *call = m->failed;
    return m->error_code;
}

static void free_contents(contents *c)
{
    free(c->slots);
    free(c->entries.at);
    free(c->bytes.at);
}

static void free_part(definitions *p)
{
    void *lists[] = {p->strings.at, p->text.at, p->nodes.at, p->domains.at, p->node_properties.at, p->group_properties.at,
                     p->location_properties.at, p->location_groups.at, p->locations.at, p->shown.at, p->attributes.at,
                     p->paradigms.at, p->regions.at, p->contexts.at, p->generators.at, p->members.at, p->member_refs.at,
                     p->classes.at, p->instances.at, p->groups.at, p->group_refs.at, p->files.at, p->handles.at};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        free(lists[i]);
}

void lo2_merge_free(lo2_merge *m)
{
    if (!m)
        return;
    id_map *maps[] = MAPS(m);
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        free(maps[i]->to);
    for (size_t i = 0; i < m->groups.nr; i++)
        free(m->groups.at[i].members.at);
    free_part(&m->part);
    free_contents(&m->of_strings);
    free_contents(&m->of_records);
    free(m->groups.at);
    free(m->whole.at);
    free(m->merged.at);
    free(m->used_handles.at);
    free(m->host.at);
    free(m->scratch.at);
    free(m);
}
