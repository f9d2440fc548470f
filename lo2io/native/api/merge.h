/*
 * Many archives become one: definitions unified, and for each location a table that maps its ids. Plain declarations,
 * which cffi reads.
 *
 * Nothing of libotf2 is linked: the functions' addresses come from Python (lo2io/otf2/merge/merger.py). Events are
 * neither read nor written.
 */

/* Addresses in libotf2. merge/merge.h has their prototypes. */
typedef struct {
    void *write_string, *write_attribute, *write_io_paradigm;
    void *write_node, *write_node_property, *write_node_domain;
    void *write_location_group, *write_location_group_property, *write_location, *write_location_property;
    void *write_region, *write_calling_context, *write_interrupt_generator, *write_group;
    void *write_metric_member, *write_metric_class, *write_metric_instance;
    void *write_regular_file, *write_directory, *write_handle, *write_handle_state;
} lo2_merge_functions;

/* The numbers of the first definitions that merging writes: others have those before. */
typedef struct {
    uint32_t string, node, location_group, attribute, paradigm, region, context, generator, member, metric, group, file, handle;
} lo2_merge_first;

typedef struct {
    void *definitions;            /* OTF2_GlobalDefWriter */
    lo2_merge_functions functions;
    uint8_t of_machine;           /* OTF2_SYSTEM_TREE_DOMAIN_MACHINE */
    const char *name;             /* of the system tree's root */
    lo2_merge_first first;
    uint32_t root;                /* of a system tree that was written before, or UINT32_MAX */
    uint32_t most_members;        /* of a group: larger groups are written in pieces */
} lo2_merge_config;

typedef struct { uint64_t id, nr_events; } lo2_merge_location;

/* A location group that was read → one that was written before. */
typedef struct { uint32_t own, merged; } lo2_merge_pair;

/* A location that was read, and its name in the merged archive. */
typedef struct { uint64_t own; const char *name; } lo2_merge_named;

/* A correction of a clock: from this time on, up to the next one, offsets are interpolated. */
typedef struct { uint64_t time; int64_t offset; } lo2_merge_offset;

/* Own id, counted from 0 → merged id; UINT32_MAX: not defined. */
typedef struct {
    const uint32_t *to;
    uint64_t size;
    uint8_t mapping;              /* OTF2_MappingType */
} lo2_merge_map;

/* What is known of the archive that was read last. */
typedef struct {
    const lo2_merge_location *locations;
    uint64_t nr_locations;
    uint32_t nr_contexts, nr_regions;
    const char *unknown;          /* a record that merging does not know; NULL: there is none */
    /* Once it was written: what all its locations map, and what each used id became. */
    const lo2_merge_map *whole;
    uint64_t nr_whole;
    const uint32_t *merged;
} lo2_merge_part;

typedef struct lo2_merge lo2_merge;

/* NULL: memory is short. */
lo2_merge *lo2_merge_new(const lo2_merge_config *config);
/*
 * Callbacks for OTF2_GlobalDefReaderCallbacks, whose user data is the lo2_merge. The last has an empty name, and takes
 * all other records.
 */
const lo2_event_callback *lo2_merge_callbacks(void);
/* Forgets the archive before. The next definitions are those of this host, whose number ends the ids of its locations. */
void lo2_merge_begin(lo2_merge *merge, uint32_t number, const char *host);
const lo2_merge_part *lo2_merge_read(lo2_merge *merge);
/*
 * Each of these functions announces a definition that was written before, and its number. They return 0, or -1: see
 * lo2_merge_failed. Equal strings become one definition, and so do I/O paradigms of the same identification. If a
 * joined node or location group already has a property of some name, a second property of that name gets "lo2io "
 * before its name.
 */
int lo2_merge_know_string(lo2_merge *merge, const char *text, uint32_t ref);
int lo2_merge_know_paradigm(lo2_merge *merge, uint32_t identification, uint32_t ref);
int lo2_merge_know_property(lo2_merge *merge, bool of_group, uint32_t of, uint32_t name);
/*
 * Call this before writing an archive that was read, if its host or some of its location groups were written before.
 * host: a node of the system tree, or UINT32_MAX. named: threads whose location was written before. Returns 0, or -1:
 * see lo2_merge_failed.
 */
int lo2_merge_join(lo2_merge *merge, uint32_t host, const lo2_merge_pair *groups, uint64_t nr_groups,
                   const lo2_merge_named *named, uint64_t nr_named);
/*
 * Writes the definitions that were read, as far as nobody wrote equal ones before. used: as of lo2_otf2_used_ids; NULL: not
 * known, so each location maps all ids of its host. 0, or -1: see lo2_merge_failed.
 */
int lo2_merge_write(lo2_merge *merge, const uint64_t *used, uint64_t nr_used);
/* Writes what all archives have together: the groups of regions. Call it once, at the end. */
int lo2_merge_finish(lo2_merge *merge);
/* The OTF2_ErrorCode of the call that failed, or 0; *call: its name, or what was wrong. */
int lo2_merge_failed(const lo2_merge *merge, const char **call);
void lo2_merge_free(lo2_merge *merge);

/* Addresses in libotf2. merge/locals.c has their prototypes. */
typedef struct {
    void *get_def_writer, *close_def_writer, *write_mapping_table, *write_clock_offset;
    void *map_create, *map_from_array, *map_add, *map_free;
} lo2_locals_functions;

/* The local definitions of the locations of one host. */
typedef struct {
    void *archive;                /* OTF2_Archive, with its files of local definitions opened */
    lo2_locals_functions functions;
    uint8_t sparse;               /* OTF2_ID_MAP_SPARSE */
    uint32_t number;              /* of the host */
    const uint64_t *locations;    /* own ids */
    uint64_t nr_locations;
    const lo2_merge_map *maps;    /* of all locations */
    uint64_t nr_maps;
    const uint64_t *used;         /* as of lo2_otf2_used_ids */
    const uint32_t *merged;       /* what each used id became */
    uint64_t nr_used;
    const lo2_merge_offset *offsets; /* none, or two and more */
    uint64_t nr_offsets;
    /* results */
    const char *failed;           /* the call that failed */
    int error_code;               /* its OTF2_ErrorCode, or 0 */
} lo2_locals;

/* Writes them. 0, or -1: see failed. */
int lo2_write_locals(lo2_locals *locals);

/* Events are written as they are read: the user data of the callbacks. */
typedef struct {
    void **functions;             /* OTF2_EvtWriter_<event>, in the order of lo2_rewriting_callbacks() */
    void *writer;                 /* OTF2_EvtWriter of the location that is read */
    /* results */
    const char *failed;           /* the event that could not be written; "": an event that rewriting does not know */
    int error_code;               /* OTF2_ErrorCode, or 0 */
} lo2_rewriting;

/* Callbacks for OTF2_EvtReaderCallbacks. The last has an empty name, and takes all other events. */
const lo2_event_callback *lo2_rewriting_callbacks(void);
