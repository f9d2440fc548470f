/*
 * Events of an OTF2 archive as columns, merged by time. Plain declarations, which cffi reads.
 *
 * Nothing of libotf2 is linked: the functions' addresses come from Python (lo2io/otf2/read/events.py).
 */

/* The meaning of the members depends on the event: see the callbacks in otf2/reader.c. */
typedef struct {
    uint64_t time;
    uint64_t ordinal;       /* within the location, from 0 */
    uint64_t bytes;
    uint64_t ident;         /* matching id of operations */
    uint32_t location;      /* place in lo2_reader_config.locations */
    uint32_t ref;           /* region, calling context, handle, metric, parameter */
    uint32_t second;
    uint32_t first_detail;  /* place in lo2_event_block.details: attributes, then the values of a metric */
    uint16_t nr_attributes;
    uint8_t kind;           /* place in lo2_event_callbacks() */
    uint8_t mode;
    uint8_t nr_values;
} lo2_event_row;

typedef struct {
    uint64_t value;
    uint32_t ref;           /* the attribute; 0 for values of metrics */
    uint8_t type;           /* OTF2_Type */
} lo2_event_detail;

typedef struct {
    const lo2_event_row *events;      /* valid until the next call */
    const lo2_event_detail *details;
    uint64_t nr_events, nr_details;
} lo2_event_block;

typedef struct { const char *event; void *function; } lo2_event_callback;

typedef struct {
    void *reader;           /* OTF2_Reader, with its event files opened */
    void *callbacks;        /* OTF2_EvtReaderCallbacks that hold lo2_event_callbacks() */
    void *get_evt_reader, *close_evt_reader, *register_evt_callbacks, *read_local_events, *seek;
    void *count_attributes, *get_attribute;
    const uint64_t *locations; /* read while the reader lives */
    const uint64_t *most_events; /* of each location: how many events fit into its file at most; read while the reader lives */
    uint32_t nr_locations;
    uint32_t most_open;     /* how many event files are open at once at most */
    uint32_t block_events;  /* a block ends with the tick in which it reaches this, or at four times as many */
} lo2_reader_config;

typedef struct lo2_event_reader lo2_event_reader;

/* The callbacks of all events that have members of their own. The last has an empty name, and takes all other events. */
const lo2_event_callback *lo2_event_callbacks(void);
/* NULL: memory is short. */
lo2_event_reader *lo2_event_reader_new(const lo2_reader_config *config);
/* Reads the first events of each location. 0, or -1: see lo2_event_reader_failed. */
int lo2_event_reader_open(lo2_event_reader *reader);
/*
 * The next block, empty at the end. A block ends where the time changes, unless one tick has very many events. 0, or -1:
 * see lo2_event_reader_failed.
 */
int lo2_event_reader_next(lo2_event_reader *reader, lo2_event_block *block);
/* The OTF2_ErrorCode of the failure, or 0; *location: the place of the location. */
int lo2_event_reader_failed(const lo2_event_reader *reader, uint32_t *location);
/* True if the reader failed because a location has more events than fit into its file. */
int lo2_event_reader_overran(const lo2_event_reader *reader);
void lo2_event_reader_free(lo2_event_reader *reader);
