/*
 * Callbacks that keep the definitions of one archive. The prototypes are those of OTF2 3's OTF2_GlobalDefReaderCallbacks.h.
 * Trailing arguments without a use are left out.
 */
#include "merge/merge.h"

enum { GO_ON = 0, INTERRUPT = 1 }; /* OTF2_CallbackCode */
enum { GROUP_TYPE_REGIONS = 2 };
static const uint64_t MOST_LOCATIONS = UINT64_C(1) << 29; /* as of lo2_otf2_used_ids */

#define KEEP(list, ...) (PUSH((lo2_merge *)user, ((lo2_merge *)user)->part.list, __VA_ARGS__) ? INTERRUPT : GO_ON)
#define SET(map, id, value) (id_map_set((lo2_merge *)user, &((lo2_merge *)user)->map, id, value) ? INTERRUPT : GO_ON)
#define PLACE(list) ((uint32_t)((lo2_merge *)user)->part.list.nr)

static int on_string(void *user, uint32_t id, const char *text)
{
    lo2_merge *m = user;
    size_t length = strlen(text) + 1;
    if (!merge_grow((void **)&m->part.text.at, &m->part.text.room, m->part.text.nr + length, 1))
        return merge_fail(m, "malloc", 0), INTERRUPT;
    memcpy(m->part.text.at + m->part.text.nr, text, length);
    if (SET(string_rows, id, PLACE(strings)) || KEEP(strings, {.id = id, .offset = m->part.text.nr}))
        return INTERRUPT;
    m->part.text.nr += length;
    return GO_ON;
}

static int on_node(void *user, uint32_t id, uint32_t name, uint32_t class_name, uint32_t parent)
{
    return KEEP(nodes, {id, name, class_name, parent});
}

static int on_domain(void *user, uint32_t node, uint8_t domain) { return KEEP(domains, {node, domain}); }

static int on_node_property(void *user, uint32_t node, uint32_t name, uint8_t type, uint64_t value)
{
    return KEEP(node_properties, {value, node, name, type});
}

static int on_location_group(void *user, uint32_t id, uint32_t name, uint8_t type, uint32_t node, uint32_t creator)
{
    return KEEP(location_groups, {id, name, node, creator, type});
}

static int on_group_property(void *user, uint32_t group, uint32_t name, uint8_t type, uint64_t value)
{
    return KEEP(group_properties, {value, group, name, type});
}

static int on_location(void *user, uint64_t id, uint32_t name, uint8_t type, uint64_t nr_events, uint32_t group)
{
    if (id >= MOST_LOCATIONS)
        return merge_fail(user, "the id of a location is beyond 536 million", 0), INTERRUPT;
    return KEEP(shown, {id, nr_events}) || KEEP(locations, {id, nr_events, name, group, type});
}

static int on_location_property(void *user, uint64_t location, uint32_t name, uint8_t type, uint64_t value)
{
    return KEEP(location_properties, {value, (uint32_t)location, name, type});
}

static int on_attribute(void *user, uint32_t id, uint32_t name, uint32_t description, uint8_t type)
{
    return KEEP(attributes, {id, name, description, type});
}

static int on_paradigm(void *user, uint8_t id, uint32_t name, uint32_t title, uint8_t paradigm_class, uint32_t flags)
{
    return KEEP(paradigms, {name, title, flags, id, paradigm_class});
}

static int on_region(void *user, uint32_t id, uint32_t name, uint32_t canonical, uint32_t description, uint8_t role,
                     uint8_t paradigm, uint32_t flags, uint32_t file, uint32_t first_line, uint32_t last_line)
{
    return KEEP(regions, {id, name, canonical, description, flags, file, first_line, last_line, role, paradigm});
}

static int on_context(void *user, uint32_t id, uint32_t region, uint32_t source, uint32_t parent)
{
    return KEEP(contexts, {id, region, parent});
}

static int on_generator(void *user, uint32_t id, uint32_t name, uint8_t mode, uint8_t base, uint64_t exponent, uint64_t period)
{
    return KEEP(generators, {exponent, period, id, name, mode, base});
}

static int on_member(void *user, uint32_t id, uint32_t name, uint32_t description, uint8_t type, uint8_t mode, uint8_t value,
                     uint8_t base, int64_t exponent, uint32_t unit)
{
    return KEEP(members, {exponent, id, name, description, unit, type, mode, value, base});
}

static int on_class(void *user, uint32_t id, uint8_t nr_members, const uint32_t *members, uint8_t occurrence,
                    uint8_t recorder)
{
    class_row row = {id, PLACE(member_refs), nr_members, occurrence, recorder};
    for (uint32_t i = 0; i < nr_members; i++)
        if (KEEP(member_refs, members[i]))
            return INTERRUPT;
    return KEEP(classes, row);
}

static int on_instance(void *user, uint32_t id, uint32_t class_ref, uint64_t recorder, uint8_t scope_kind, uint64_t scope)
{
    return KEEP(instances, {recorder, scope, id, class_ref, scope_kind});
}

static int unknown(lo2_merge *m, const char *record)
{
    m->part.unknown = record;
    return GO_ON;
}

static int on_group(void *user, uint32_t id, uint32_t name, uint8_t type, uint8_t paradigm, uint32_t flags,
                    uint32_t nr_members, const uint64_t *members)
{
    if (type != GROUP_TYPE_REGIONS)
        return unknown(user, "a group of others than regions");
    group_row row = {name, flags, PLACE(group_refs), nr_members, paradigm};
    for (uint32_t i = 0; i < nr_members; i++)
        if (KEEP(group_refs, members[i]))
            return INTERRUPT;
    return KEEP(groups, row);
}

static int keep_file(void *user, uint32_t id, uint32_t name, uint32_t scope, uint8_t directory)
{
    return SET(file_rows, id, PLACE(files)) || KEEP(files, {id, name, scope, NONE, NONE, directory});
}

static int on_regular_file(void *user, uint32_t id, uint32_t name, uint32_t scope)
{
    return keep_file(user, id, name, scope, 0);
}

static int on_directory(void *user, uint32_t id, uint32_t name, uint32_t scope)
{
    return keep_file(user, id, name, scope, 1);
}

/* The tables beside the archive have all facts about files. Two of them tell which files hosts share. */
static int on_file_property(void *user, uint32_t file, uint32_t name, uint8_t type, uint64_t value)
{
    lo2_merge *m = user;
    uint32_t place = id_map_get(&m->file_rows, file);
    const char *property = merge_text(m, name);
    if (place == NONE)
        return GO_ON;
    if (!strcmp(property, "File system"))
        m->part.files.at[place].file_system = (uint32_t)value;
    else if (!strcmp(property, "Mount Source"))
        m->part.files.at[place].source = (uint32_t)value;
    return GO_ON;
}

static int on_handle(void *user, uint32_t id, uint32_t name, uint32_t file, uint8_t paradigm, uint32_t flags,
                     uint32_t communicator, uint32_t parent)
{
    if (communicator != NONE)
        unknown(user, "a handle with a communicator");
    handle_row row = {id, name, file, flags, parent, 0, paradigm, 0, 0};
    return SET(handle_rows, id, PLACE(handles)) || KEEP(handles, row);
}

static int on_handle_state(void *user, uint32_t handle, uint8_t access, uint32_t status)
{
    lo2_merge *m = user;
    uint32_t place = id_map_get(&m->handle_rows, handle);
    if (place == NONE)
        return GO_ON;
    handle_row *row = &m->part.handles.at[place];
    row->has_state = 1;
    row->access = access;
    row->status = status;
    return GO_ON;
}

static int on_clock(void *user) { return GO_ON; }

static int on_other(void *user) { return unknown(user, "a record of another kind"); }

static const lo2_event_callback callbacks[] = {
    {"ClockProperties", on_clock},
    {"String", on_string},
    {"SystemTreeNode", on_node},
    {"SystemTreeNodeDomain", on_domain},
    {"SystemTreeNodeProperty", on_node_property},
    {"LocationGroup", on_location_group},
    {"LocationGroupProperty", on_group_property},
    {"Location", on_location},
    {"LocationProperty", on_location_property},
    {"Attribute", on_attribute},
    {"IoParadigm", on_paradigm},
    {"Region", on_region},
    {"CallingContext", on_context},
    {"InterruptGenerator", on_generator},
    {"MetricMember", on_member},
    {"MetricClass", on_class},
    {"MetricInstance", on_instance},
    {"Group", on_group},
    {"IoRegularFile", on_regular_file},
    {"IoDirectory", on_directory},
    {"IoFileProperty", on_file_property},
    {"IoHandle", on_handle},
    {"IoPreCreatedHandleState", on_handle_state},
    {"", on_other},
};

const lo2_event_callback *lo2_merge_callbacks(void) { return callbacks; }
