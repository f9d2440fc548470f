/* The parts of block requests. A request keeps them until it ends; then they are rows, which wait in a queue for room. */
#include "block/dirty.h"
#include "block/parts.h"
#include "tables/inodes.h"

enum { SECTOR_SHIFT = 9 };

enum { MOST_CARRIED = 1024 };

/* Beyond this, the end of a part and a page more could overflow. No file is so long: such an offset is damage. */
static const int64_t MOST_OFFSET = INT64_MAX - (1ll << 33);

static void note_carried(engine *e, const request *r, const lo2_kernel_part *part)
{
    if (!e->config.faults || r->operation != LO2_RQ_READ || part->kind != LO2_PART_FILE || r->issue == UNKNOWN)
        return;
    uint32_t place = e->nr_carried % MOST_CARRIED;
    if (place == e->carried.count && VEC_ROOM(&e->carried, place + 1))
        e->carried.count++;
    if (place >= e->carried.count) {
        e->out_of_memory = true;
        return;
    }
    e->carried.at[place] = (carried_part){.request = r->id, .device = part->device, .inode = part->inode, .offset = part->offset,
                                          .issue = r->issue, .generation = part->generation, .bytes = part->bytes, .tid = r->tid};
    e->nr_carried++;
}

uint64_t part_carrying(const engine *e, const carried_part *wanted)
{
    for (uint32_t back = 1; back <= e->carried.count; back++) {
        const carried_part *c = &e->carried.at[(e->nr_carried - back) % MOST_CARRIED];
        if (c->issue < wanted->issue)
            return 0;
        if (c->tid == wanted->tid && c->device == wanted->device && c->inode == wanted->inode &&
            c->generation == wanted->generation && c->offset <= wanted->offset &&
            wanted->offset + (int64_t)wanted->bytes <= c->offset + (int64_t)c->bytes)
            return c->request;
    }
    return 0;
}

void parts_add(engine *e, request *r, const lo2_kernel_parts *record)
{
    if (!r->written || r->parts_told)
        return;
    for (uint32_t i = 0; i < record->count; i++) {
        uint32_t index;
        TAKE(e, free_parts, parts, index);
        if (index == NONE)
            return;
        lo2_kernel_part *part = &e->parts.at[index].part;
        e->parts.at[index] = (held_part){.part = record->parts[i]};
        if (part->offset < 0 || part->offset > MOST_OFFSET)
            part->offset = UNKNOWN;
        note_carried(e, r, part);
        *(r->last_part ? &e->parts.at[r->last_part - 1].next : &r->first_part) = index + 1;
        r->last_part = index + 1;
    }
    r->parts_told = record->flags & LO2_PARTS_LAST; /* a request that is issued again carries the same */
    r->parts_cut = record->flags & LO2_PARTS_CUT;
}

static void queue(engine *e, const part_row *row)
{
    if (ROW_ROOM(e, e->part_queue))
        e->part_queue.at[e->part_queue.count++] = *row;
    else
        e->out_of_memory = true;
}

/* The kernel's programs look at reads and writes alone: others carry no file's bytes. */
static void end_without(engine *e, const request *r)
{
    part_row row = {.request = r->id, .sector = r->issued_sector, .file = NONE, .part = {.offset = UNKNOWN}};
    if (r->operation == LO2_RQ_FLUSH)
        row.part.kind = LO2_PART_FLUSH;
    else if (r->operation == LO2_RQ_DISCARD || r->operation == LO2_RQ_SECURE_ERASE)
        row.part.kind = LO2_PART_DISCARD;
    else if (r->operation == LO2_RQ_WRITE_ZEROES)
        row.part.kind = LO2_PART_ZEROES;
    else
        return;
    row.part.bytes = r->bytes_issued > 0 ? (uint32_t)r->bytes_issued : 0;
    queue(e, &row);
}

/* False if the sizes contradict the request's own, as damaged numbers and lost records do: nothing is known then. */
static bool parts_agree(const engine *e, const request *r)
{
    uint64_t sum = 0;
    for (uint32_t at = r->first_part; at; at = e->parts.at[at - 1].next)
        sum += e->parts.at[at - 1].part.bytes;
    return r->parts_cut || r->nr_requeues || r->bytes_issued == UNKNOWN || sum == (uint64_t)r->bytes_issued;
}

/* The only file of the request; 0: there are several, or none. */
static uint64_t only_inode(const engine *e, const request *r)
{
    const lo2_kernel_part *first = r->first_part ? &e->parts.at[r->first_part - 1].part : NULL;
    for (uint32_t at = r->first_part; at; at = e->parts.at[at - 1].next) {
        const lo2_kernel_part *part = &e->parts.at[at - 1].part;
        if (part->kind != LO2_PART_FILE || part->device != first->device || part->inode != first->inode)
            return 0;
    }
    return first && !r->parts_cut ? first->inode : 0;
}

void parts_end(engine *e, request *r)
{
    if (r->parts_ended)
        return;
    r->parts_ended = true;
    bool known = parts_agree(e, r);
    r->inode = known ? only_inode(e, r) : 0;
    uint64_t sector = r->issued_sector;
    uint16_t number = 0;
    if (e->config.parts && r->written && !r->first_part && r->issue != UNKNOWN)
        end_without(e, r);
    e->totals.nr_undecoded += r->written && r->parts_told && r->first_part && !known;
    for (uint32_t at = r->first_part, next; at; at = next) {
        held_part *held = &e->parts.at[at - 1];
        next = held->next;
        part_row row = {.request = r->id, .sector = sector, .number = number++, .part = held->part,
                        .file = held->part.kind == LO2_PART_FILE
                                    ? inode_file(e, held->part.device, held->part.inode, held->part.generation) : NONE,
                        .cut = !next && r->parts_cut};
        sector += held->part.bytes >> SECTOR_SHIFT;
        if (r->written && known) {
            queue(e, &row);
            dirty_written(e, r, &row);
        }
        GIVE_BACK(e, free_parts, at - 1);
    }
    r->first_part = r->last_part = 0;
}

bool parts_flush(engine *e)
{
    lo2_request_part_columns *c = &e->batch->request_parts;
    for (; e->parts_out < e->part_queue.count; e->parts_out++) {
        const part_row *p = &e->part_queue.at[e->parts_out];
        uint32_t row = e->batch->nr_request_parts;
        if (row == e->batch->capacity)
            return false;
        c->request[row] = p->request;
        c->number[row] = p->number;
        c->kind[row] = p->part.kind;
        c->direct[row] = p->part.flags & LO2_PART_DIRECT;
        c->cut[row] = p->cut;
        c->sector[row] = p->sector;
        c->bytes[row] = p->part.bytes;
        c->device[row] = p->part.device;
        c->inode[row] = p->part.inode;
        c->generation[row] = p->part.inode ? p->part.generation : UNKNOWN;
        c->file[row] = p->file;
        c->offset_bytes[row] = p->part.offset;
        c->inner_device[row] = p->part.inner_device;
        c->inner_inode[row] = p->part.inner_inode;
        e->batch->nr_request_parts++;
    }
    e->part_queue.count = e->parts_out = 0;
    return true;
}

void parts_free(engine *e)
{
    free(e->parts.at);
    free(e->free_parts.at);
    free(e->part_queue.at);
    free(e->carried.at);
}
