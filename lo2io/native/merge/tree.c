/*
 * The system tree, location groups and locations. Below the merged archive's root, each host keeps the tree of its own
 * archive. If that tree has a root of class "machine", the merged root takes its place. Names end with " @host", for
 * ViTE aborts if two names are equal.
 */
#include "merge/merge.h"

enum { TYPE_STRING = 11 }; /* OTF2_Type (OTF2_GeneralDefinitions.h) */
static const char name_property[] = "Name by lo2io";

static bool is_machine(const lo2_merge *m, const node_row *node)
{
    return node->parent == NONE && !strcmp(merge_text(m, node->class_name), "machine");
}

/* The host itself: a child of the machine, or a root. */
static bool is_host(const lo2_merge *m, const node_row *node)
{
    return node->parent == NONE || id_map_get(&m->nodes, node->parent) == m->root;
}

static int write_root(lo2_merge *m)
{
    if (m->root != NONE)
        return 0;
    uint32_t name, class_name;
    TRY(merge_new_string(m, m->config.name, &name));
    TRY(merge_new_string(m, "machine", &class_name));
    m->root = m->next_node++;
    WRITE(m, write_node, (void *, uint32_t, uint32_t, uint32_t, uint32_t), m->root, name, class_name, NONE);
    WRITE(m, write_node_domain, (void *, uint32_t, uint8_t), m->root, m->config.of_machine);
    return 0;
}

static int write_node(lo2_merge *m, const node_row *node, bool named)
{
    uint32_t name, class_name, parent = id_map_get(&m->nodes, node->parent), ref = m->next_node++;
    TRY(named ? merge_new_string(m, m->host.at, &name) : merge_suffixed(m, node->name, &name));
    TRY(merge_string(m, node->class_name, &class_name));
    TRY(id_map_set(m, &m->nodes, node->id, ref));
    WRITE(m, write_node, (void *, uint32_t, uint32_t, uint32_t, uint32_t), ref, name, class_name,
          parent == NONE ? m->root : parent);
    return 0;
}

static int write_nodes(lo2_merge *m)
{
    bool named = false;
    for (size_t i = 0; i < m->part.nodes.nr; i++) {
        const node_row *node = &m->part.nodes.at[i];
        if (is_machine(m, node)) {
            TRY(id_map_set(m, &m->nodes, node->id, m->root));
            continue;
        }
        bool host = !named && is_host(m, node);
        named |= host;
        if (host && m->joined_host != NONE) {
            TRY(id_map_set(m, &m->nodes, node->id, m->joined_host));
            continue;
        }
        TRY(write_node(m, node, host));
    }
    for (size_t i = 0; i < m->part.domains.nr; i++) {
        uint32_t ref = id_map_get(&m->nodes, m->part.domains.at[i].node);
        if (ref != NONE && ref >= m->config.first.node && ref != m->root)
            WRITE(m, write_node_domain, (void *, uint32_t, uint8_t), ref, m->part.domains.at[i].domain);
    }
    return 0;
}

/* The value of a property: a union, of which a string's reference is the first half. */
static int property_value(lo2_merge *m, const property_row *row, uint64_t *value)
{
    *value = row->value;
    if (row->type != TYPE_STRING)
        return 0;
    uint32_t text;
    TRY(merge_string(m, (uint32_t)row->value, &text));
    *value = text;
    return 0;
}

static int node_properties(lo2_merge *m)
{
    for (size_t i = 0; i < m->part.node_properties.nr; i++) {
        const property_row *row = &m->part.node_properties.at[i];
        uint32_t ref = id_map_get(&m->nodes, row->of), name;
        uint64_t value;
        if (ref == NONE || ref == m->root)
            continue;
        TRY(merge_property_name(m, false, ref, row->name, &name));
        TRY(property_value(m, row, &value));
        WRITE(m, write_node_property, (void *, uint32_t, uint32_t, uint8_t, uint64_t), ref, name, row->type, value);
    }
    return 0;
}

/* The name stays as a property of the group that was written before. */
static int name_joined_group(lo2_merge *m, const location_group_row *row)
{
    uint32_t name, text;
    TRY(merge_new_string(m, name_property, &name));
    TRY(merge_suffixed(m, row->name, &text));
    WRITE(m, write_location_group_property, (void *, uint32_t, uint32_t, uint8_t, uint64_t),
          id_map_get(&m->location_groups, row->id), name, TYPE_STRING, (uint64_t)text);
    return 0;
}

static int location_groups(lo2_merge *m)
{
    for (size_t i = 0; i < m->part.location_groups.nr; i++) { /* a creator may come later */
        uint32_t own = m->part.location_groups.at[i].id, joined = id_map_get(&m->joined_groups, own);
        TRY(id_map_set(m, &m->location_groups, own, joined != NONE ? joined : m->next_location_group++));
    }
    for (size_t i = 0; i < m->part.location_groups.nr; i++) {
        const location_group_row *row = &m->part.location_groups.at[i];
        uint32_t name;
        if (id_map_get(&m->joined_groups, row->id) != NONE) {
            TRY(name_joined_group(m, row));
            continue;
        }
        TRY(merge_suffixed(m, row->name, &name));
        WRITE(m, write_location_group, (void *, uint32_t, uint32_t, uint8_t, uint32_t, uint32_t),
              id_map_get(&m->location_groups, row->id), name, row->type, id_map_get(&m->nodes, row->node),
              id_map_get(&m->location_groups, row->creator));
    }
    for (size_t i = 0; i < m->part.group_properties.nr; i++) {
        const property_row *row = &m->part.group_properties.at[i];
        uint32_t name;
        uint64_t value;
        TRY(merge_property_name(m, true, id_map_get(&m->location_groups, row->of), row->name, &name));
        TRY(property_value(m, row, &value));
        WRITE(m, write_location_group_property, (void *, uint32_t, uint32_t, uint8_t, uint64_t),
              id_map_get(&m->location_groups, row->of), name, row->type, value);
    }
    return 0;
}

uint64_t merge_location(const lo2_merge *m, uint64_t own) { return own << 32 | m->number; }

/* A thread that the application's archive has, too, has a name that says so. Its own name stays as a property. */
static int write_location(lo2_merge *m, const location_row *row)
{
    uint32_t name, joined = id_map_get(&m->location_names, (uint32_t)row->id), of_property;
    TRY(merge_suffixed(m, row->name, &name));
    WRITE(m, write_location, (void *, uint64_t, uint32_t, uint8_t, uint64_t, uint32_t), merge_location(m, row->id),
          joined != NONE ? joined : name, row->type, row->nr_events, id_map_get(&m->location_groups, row->group));
    if (joined == NONE)
        return 0;
    TRY(merge_new_string(m, name_property, &of_property));
    WRITE(m, write_location_property, (void *, uint64_t, uint32_t, uint8_t, uint64_t), merge_location(m, row->id), of_property,
          TYPE_STRING, (uint64_t)name);
    return 0;
}

static int locations(lo2_merge *m)
{
    for (size_t i = 0; i < m->part.locations.nr; i++)
        TRY(write_location(m, &m->part.locations.at[i]));
    for (size_t i = 0; i < m->part.location_properties.nr; i++) {
        const property_row *row = &m->part.location_properties.at[i];
        uint32_t name;
        uint64_t value;
        TRY(merge_string(m, row->name, &name));
        TRY(property_value(m, row, &value));
        WRITE(m, write_location_property, (void *, uint64_t, uint32_t, uint8_t, uint64_t), merge_location(m, row->of),
              name, row->type, value);
    }
    return 0;
}

int merge_tree(lo2_merge *m)
{
    TRY(write_root(m));
    TRY(write_nodes(m));
    TRY(node_properties(m));
    TRY(location_groups(m));
    return locations(m);
}
