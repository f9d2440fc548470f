/* Reads a sample of a block tracepoint. */
#include "input/block_sample.h"
#include "input/fields.h"

enum { SECTOR_BYTES = 512 };

/*
 * blk_fill_rwbs, kernel/trace/blktrace.c: an F before the operation is a preflush, an F after the operation is FUA. An
 * F alone is a flush. An operation that moves data but has no sectors is a flush, too (block_sample_read). N says that
 * the kernel has no letter for the operation, as for write zeroes on Linux 6.18.
 */
static void parse_rwbs(const uint8_t *text, size_t size, block_sample *s)
{
    size_t i = 0, length = strnlen((const char *)text, size);
    s->flags = 0;
    if (length > 1 && text[0] == 'F') {
        s->flags |= LO2_RQ_PREFLUSH;
        i = 1;
    }
    char op = i < length ? (char)text[i++] : '\0';
    switch (op) {
    case 'R': s->operation = LO2_RQ_READ; break;
    case 'W':
        s->operation = LO2_RQ_WRITE;
        if (i < length && text[i] == 'Z') {
            s->operation = LO2_RQ_WRITE_ZEROES;
            i++;
        }
        break;
    case 'D':
        s->operation = LO2_RQ_DISCARD;
        if (i < length && text[i] == 'E') {
            s->operation = LO2_RQ_SECURE_ERASE;
            i++;
        }
        break;
    case 'F': s->operation = LO2_RQ_FLUSH; break;
    case 'Z': /* a second letter names the zone operation: append, reset, open, close, finish */
        s->operation = LO2_RQ_ZONE;
        i += i < length;
        break;
    default: s->operation = LO2_RQ_OTHER; break;
    }
    for (; i < length; i++) {
        switch (text[i]) {
        case 'F': s->flags |= LO2_RQ_FUA; break;
        case 'A': s->flags |= LO2_RQ_READAHEAD; break;
        case 'S': s->flags |= LO2_RQ_SYNC; break;
        case 'M': s->flags |= LO2_RQ_METADATA; break;
        default: break;
        }
    }
}

void block_sample_read(const lo2_event *event, const uint8_t *raw, block_sample *s)
{
    const lo2_field *f = event->fields;
    s->device = (uint32_t)load_unsigned(raw, f[LO2_FIELD_DEV]);
    s->sector = load_unsigned(raw, f[LO2_FIELD_SECTOR]);
    s->nr_sectors = (uint32_t)load_unsigned(raw, f[LO2_FIELD_NR_SECTOR]);
    s->error = (int32_t)(0u - (uint32_t)load_unsigned(raw, f[LO2_FIELD_ERROR]));
    parse_rwbs(raw + f[LO2_FIELD_RWBS].offset, f[LO2_FIELD_RWBS].size, s);
    bool moves_data = s->operation != LO2_RQ_ZONE && s->operation != LO2_RQ_OTHER;
    s->wants_flush = s->operation != LO2_RQ_FLUSH && s->nr_sectors == 0;
    if (moves_data && s->nr_sectors == 0)
        s->operation = LO2_RQ_FLUSH;
    s->bytes = s->operation == LO2_RQ_FLUSH ? UNKNOWN : (int64_t)s->nr_sectors * SECTOR_BYTES;
    if (s->operation == LO2_RQ_FLUSH)
        s->sector = 0; /* issue says 0, complete says -1 (blk_rq_pos of a flush) */
}
