/* A table of open addressing, at most half full. Inodes are never taken out: a worker writes pages after the last close. */
#include "hash/hash.h"
#include "tables/inodes.h"

enum { FIRST_ROOM = 256 };

static uint32_t place_of(const known_inode *table, uint32_t room, uint64_t device, uint64_t inode, uint32_t generation)
{
    uint32_t at = (uint32_t)HASH_WORDS(device, inode, generation) & (room - 1);
    while (table[at].used && !(table[at].inode == inode && table[at].device == device && table[at].generation == generation))
        at = (at + 1) & (room - 1);
    return at;
}

static bool grow(inode_table *inodes)
{
    uint32_t room = inodes->room ? 2 * inodes->room : FIRST_ROOM;
    known_inode *table = calloc(room, sizeof *table);
    if (!table)
        return false;
    for (uint32_t i = 0; i < inodes->room; i++) {
        const known_inode *k = &inodes->at[i];
        if (k->used)
            table[place_of(table, room, k->device, k->inode, k->generation)] = *k;
    }
    free(inodes->at);
    inodes->at = table;
    inodes->room = room;
    return true;
}

void inode_shown(engine *e, uint64_t device, uint64_t inode, uint32_t generation, uint32_t file)
{
    inode_table *inodes = &e->inodes;
    if (2 * inodes->count >= inodes->room && !grow(inodes)) {
        e->out_of_memory = true;
        return;
    }
    known_inode *k = &inodes->at[place_of(inodes->at, inodes->room, device, inode, generation)];
    inodes->count += !k->used;
    *k = (known_inode){.device = device, .inode = inode, .generation = generation, .file = file, .used = true};
}

uint32_t inode_file(const engine *e, uint64_t device, uint64_t inode, uint32_t generation)
{
    const inode_table *inodes = &e->inodes;
    if (!inodes->room)
        return NONE;
    const known_inode *k = &inodes->at[place_of(inodes->at, inodes->room, device, inode, generation)];
    return k->used ? k->file : NONE;
}

void inodes_free(engine *e)
{
    free(e->inodes.at);
}
