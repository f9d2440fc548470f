/*
 * Files by device, inode, generation, mount and path. A file keeps its number to the end. So every distinct file takes
 * memory: a digest of 16 bytes and its share of the buckets. The path is kept only until the file's row is written.
 *
 * The digest alone tells files apart. A hash of 64 bits would not do: in a long recording of a large machine, two of
 * 10^8 files collide with a chance of 1 in 3,700. Worse, a recorded program chooses its paths, and could make two
 * collide on purpose. SipHash with 128 bits of output and a key of its own for each run leaves 10^-23 to chance and
 * nothing to choice.
 */
#include "tables/files.h"

static hash_digest digest_of(const file_facts *facts, const char *path)
{
    uint64_t numbers[] = {facts->device, facts->inode, (uint64_t)facts->generation, facts->mount};
    return hash_text(numbers, sizeof numbers / sizeof *numbers, path, facts->path_length);
}

static bool rehash(engine *e)
{
    uint32_t size = e->nr_file_buckets ? e->nr_file_buckets * 2 : 1024;
    uint32_t *buckets = size ? calloc(size, sizeof *buckets) : NULL;
    if (!buckets)
        return false;
    for (uint32_t i = 0; i < e->files.count; i++) {
        uint32_t at = (uint32_t)e->files.at[i].low & (size - 1);
        while (buckets[at])
            at = (at + 1) & (size - 1);
        buckets[at] = i + 1;
    }
    free(e->file_buckets);
    e->file_buckets = buckets;
    e->nr_file_buckets = size;
    return true;
}

/* Adds a file that is not known yet, and its row. */
static uint32_t file_new(engine *e, const file_facts *facts, const char *path, hash_digest digest)
{
    char *copy = malloc(facts->path_length + 1u);
    if (!copy || !VEC_ROOM(&e->files, e->files.count + 1) || !ROW_ROOM(e, e->file_queue)) {
        free(copy);
        e->out_of_memory = true;
        return NONE;
    }
    memcpy(copy, path, facts->path_length);
    uint32_t number = e->files.count++;
    e->files.at[number] = digest;
    e->file_queue.at[e->file_queue.count++] = (file_row){number, *facts, copy};
    return number;
}

uint32_t file_of(engine *e, const file_facts *facts, const char *path)
{
    if (e->files.count >= e->nr_file_buckets / 2 && !rehash(e)) {
        e->out_of_memory = true;
        return NONE;
    }
    hash_digest digest = digest_of(facts, path);
    uint32_t mask = e->nr_file_buckets - 1, at = (uint32_t)digest.low & mask;
    for (; e->file_buckets[at]; at = (at + 1) & mask) {
        const hash_digest *known = &e->files.at[e->file_buckets[at] - 1];
        if (known->low == digest.low && known->high == digest.high)
            return e->file_buckets[at] - 1;
    }
    uint32_t number = file_new(e, facts, path, digest);
    if (number != NONE)
        e->file_buckets[at] = number + 1;
    return number;
}

void files_free(engine *e)
{
    for (uint32_t i = 0; i < e->file_queue.count; i++)
        free(e->file_queue.at[i].path);
    free(e->file_queue.at);
    free(e->files.at);
    free(e->file_buckets);
}
