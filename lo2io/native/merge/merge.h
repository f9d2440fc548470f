/* The state of merging archives, for its own files. Python sees none of this. */
#ifndef LO2IO_MERGE_H
#define LO2IO_MERGE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/all.h"

#define NONE UINT32_MAX
#define UNDEFINED UINT64_MAX

/* OTF2_MappingType (OTF2_GeneralDefinitions.h). */
enum mapping { MAP_STRING, MAP_ATTRIBUTE, MAP_LOCATION, MAP_REGION, MAP_GROUP, MAP_METRIC, MAP_COMM, MAP_PARAMETER,
               MAP_RMA_WIN, MAP_SOURCE, MAP_CONTEXT, MAP_GENERATOR, MAP_FILE, MAP_HANDLE, MAP_LOCATION_GROUP, NR_MAPPINGS };

/* ---- what one archive defines: rows as the library hands them over, with the archive's own ids ---- */

#define LIST(type) struct { type *at; size_t nr, room; }

typedef struct { uint32_t id, name, class_name, parent; } node_row;
typedef struct { uint32_t node; uint8_t domain; } domain_row;
typedef struct { uint64_t value; uint32_t of, name; uint8_t type; } property_row; /* of a location: by its place */
typedef struct { uint32_t id, name, node, creator; uint8_t type; } location_group_row;
typedef struct { uint64_t id, nr_events; uint32_t name, group; uint8_t type; } location_row;
typedef struct { uint32_t id, name, description; uint8_t type; } attribute_row;
typedef struct { uint32_t name, title, flags; uint8_t id, paradigm_class; } paradigm_row;
typedef struct {
    uint32_t id, name, canonical, description, flags, file, first_line, last_line;
    uint8_t role, paradigm;
} region_row;
typedef struct { uint32_t id, region, parent; } context_row;
typedef struct { uint64_t exponent, period; uint32_t id, name; uint8_t mode, base; } generator_row;
typedef struct { int64_t exponent; uint32_t id, name, description, unit; uint8_t type, mode, value, base; } member_row;
typedef struct { uint64_t recorder, scope; uint32_t id, class_ref; uint8_t scope_kind; } instance_row;
typedef struct { uint32_t id, first_member; uint8_t nr_members, occurrence, recorder; } class_row;
typedef struct { uint32_t name, flags, first_member, nr_members; uint8_t paradigm; } group_row;
typedef struct { uint32_t id, name, scope, file_system, source; uint8_t directory; } file_row;
typedef struct { uint32_t id, name, file, flags, parent, status; uint8_t paradigm, access, has_state; } handle_row;
typedef struct { uint32_t id; uint64_t offset; } string_row;

typedef struct {
    LIST(string_row) strings;
    LIST(char) text;
    LIST(node_row) nodes;
    LIST(domain_row) domains;
    LIST(property_row) node_properties;
    LIST(property_row) group_properties;
    LIST(property_row) location_properties;
    LIST(location_group_row) location_groups;
    LIST(location_row) locations;
    LIST(lo2_merge_location) shown;
    LIST(attribute_row) attributes;
    LIST(paradigm_row) paradigms;
    LIST(region_row) regions;
    LIST(context_row) contexts;
    LIST(generator_row) generators;
    LIST(member_row) members;
    LIST(uint32_t) member_refs; /* of metric classes */
    LIST(class_row) classes;
    LIST(instance_row) instances;
    LIST(group_row) groups;
    LIST(uint64_t) group_refs;
    LIST(file_row) files;
    LIST(handle_row) handles;
    const char *unknown;
} definitions;

/* Own id → the merged archive's; NONE: not defined. */
typedef struct { uint32_t *to; size_t size, room; } id_map;

/* ---- what the merged archive has ---- */

/* First words of contents, after all kinds of merge/shared.c. */
enum { SHARED_FILE = 100, KNOWN_PARADIGM, KNOWN_PROPERTY };

typedef struct { uint64_t offset; uint32_t length, value; } content;

/* Contents → number. Equal contents have one number. */
typedef struct {
    uint64_t *slots;              /* upper half of the hash, place in entries + 1; 0: free */
    size_t room;
    LIST(content) entries;
    LIST(char) bytes;
} contents;

typedef struct { uint32_t name, flags; uint8_t paradigm; LIST(uint64_t) members; } union_group;

struct lo2_merge {
    lo2_merge_config config;
    definitions part;
    lo2_merge_part view;
    LIST(char) host;
    LIST(char) scratch;
    uint32_t number;              /* of the host */

    id_map strings, suffixed;     /* as they are; followed by " @host" */
    id_map string_rows;           /* id → place in part.strings */
    id_map nodes, location_groups, paradigms, attributes, regions, contexts, generators, members, metrics, files, handles;
    id_map joined_groups;         /* own → those that were written before */
    id_map location_names;        /* own → the name of a thread that the application's archive has, too */
    id_map file_rows, handle_rows, local_files; /* local_files: 1 for a file of this host alone */
    LIST(uint8_t) used_handles;   /* by id */
    LIST(lo2_merge_map) whole;
    LIST(uint32_t) merged;        /* what each used id became */

    contents of_strings, of_records;
    LIST(union_group) groups;
    uint32_t next_string, next_node, next_location_group, next_attribute, next_paradigm, next_region, next_context;
    uint32_t next_generator, next_member, next_metric, next_file, next_handle;
    uint32_t root, joined_host;   /* nodes of the system tree */

    const char *failed;
    int error_code;
};

#define TRY(expression)                                                    \
    do {                                                                   \
        if (__builtin_expect((expression) != 0, 0))                        \
            return -1;                                                     \
    } while (0)

/* merge/lists.c */
int merge_fail(lo2_merge *m, const char *call, int code);
bool merge_grow(void **at, size_t *room, size_t need, size_t element);
int id_map_set(lo2_merge *m, id_map *map, uint32_t id, uint32_t value);
void id_map_clear(id_map *map);
/* *value: the number of equal contents; NONE: they are new, and the caller sets it. */
int contents_find(lo2_merge *m, contents *c, const void *bytes, size_t length, uint32_t **value);

/* enum lo2_used_kind of one of lo2_otf2_used_ids */
static inline uint8_t used_kind(uint64_t used) { return used >> LO2_USED_KIND_SHIFT & LO2_USED_KIND_MASK; }
static inline uint32_t id_map_get(const id_map *map, uint32_t id) { return id < map->size ? map->to[id] : NONE; }

/* Appends a row; -1: out of memory. */
#define PUSH(m, list, ...)                                                                            \
    (merge_grow((void **)&(list).at, &(list).room, (list).nr + 1, sizeof *(list).at)                   \
         ? ((list).at[(list).nr++] = (__typeof__(*(list).at))__VA_ARGS__, 0)                           \
         : merge_fail(m, "malloc", 0))

/* merge/texts.c */
/* The merged string of an own one, written if it is new. *to NONE: undefined. */
int merge_string(lo2_merge *m, uint32_t own, uint32_t *to);
/* The same, followed by " @host". */
int merge_suffixed(lo2_merge *m, uint32_t own, uint32_t *to);
int merge_new_string(lo2_merge *m, const char *text, uint32_t *to);
int merge_used_strings(lo2_merge *m, const uint64_t *used, uint64_t nr_used);
const char *merge_text(const lo2_merge *m, uint32_t own); /* "": undefined */

/* merge/known.c: what was written before. NONE: it was not. */
int merge_known_paradigm(lo2_merge *m, uint32_t own_identification, uint32_t *ref);
/* The merged name of an own property of a node or group that is in the merged archive. */
int merge_property_name(lo2_merge *m, bool of_group, uint32_t of, uint32_t own_name, uint32_t *to);

/* merge/tree.c: system tree, location groups, locations */
int merge_tree(lo2_merge *m);
uint64_t merge_location(const lo2_merge *m, uint64_t own);

/* merge/shared.c: what equal contents unify */
int merge_shared(lo2_merge *m);
int merge_instances(lo2_merge *m);

/* merge/files.c: files and handles */
int merge_handles(lo2_merge *m, const uint64_t *used, uint64_t nr_used);

/* merge/maps.c: what the ids of the archive became */
int merge_maps(lo2_merge *m, const uint64_t *used, uint64_t nr_used);

/* Calls libotf2's writer of global definitions. The prototypes are those of OTF2 3's OTF2_GlobalDefWriter.h. */
#define WRITE(m, function, types, ...)                                                                         \
    do {                                                                                                        \
        int code_ = ((int(*)types)(m)->config.functions.function)((m)->config.definitions, __VA_ARGS__);        \
        if (__builtin_expect(code_ != 0, 0))                                                                    \
            return merge_fail(m, #function, code_);                                                             \
    } while (0)

#endif
