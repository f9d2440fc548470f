/*
 * Files by device, inode, generation, mount and path. A file keeps its number to the end. So every distinct file takes
 * memory: a digest of 16 bytes and its share of the buckets. The path is kept only until the file's row is written.
 *
 * The digest alone tells files apart. A hash of 64 bits would not do: in a long recording of a large machine, two of
 * 10^8 files collide with a chance of 1 in 3,700. Worse, a recorded program chooses its paths, and could make two
 * collide on purpose. SipHash-2-4 with 128 bits of output and a new key for each run leaves 10^-23 to chance and
 * nothing to choice. (J.-P. Aumasson, D. J. Bernstein: SipHash, a fast short-input PRF, 2012.)
 */
#include <sys/random.h>

#include "tables/files.h"

typedef struct { uint64_t a, b, c, d; } sip;

static uint64_t rotated(uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }

static void sip_rounds(sip *s, int count)
{
    while (count-- > 0) {
        s->a += s->b;
        s->c += s->d;
        s->b = rotated(s->b, 13) ^ s->a;
        s->d = rotated(s->d, 16) ^ s->c;
        s->a = rotated(s->a, 32) + s->d;
        s->c += s->b;
        s->d = rotated(s->d, 21) ^ s->a;
        s->b = rotated(s->b, 17) ^ s->c;
        s->c = rotated(s->c, 32);
    }
}

static void sip_word(sip *s, uint64_t word)
{
    s->d ^= word;
    sip_rounds(s, 2);
    s->a ^= word;
}

static uint64_t sip_sum(sip *s)
{
    sip_rounds(s, 4);
    return s->a ^ s->b ^ s->c ^ s->d;
}

static file_digest digest_of(const uint64_t key[2], const file_facts *facts, const char *path)
{
    uint32_t length = facts->path_length;
    sip s = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f83u, key[0] ^ 0x6c7967656e657261u,
             key[1] ^ 0x7465646279746573u};
    uint32_t at = 0;
    uint64_t word;
    sip_word(&s, facts->device);
    sip_word(&s, facts->inode);
    sip_word(&s, (uint64_t)facts->generation);
    sip_word(&s, facts->mount);
    for (; at + 8 <= length; at += 8) {
        memcpy(&word, path + at, 8);
        sip_word(&s, word);
    }
    word = 0;
    memcpy(&word, path + at, length - at);
    sip_word(&s, word | (uint64_t)(length + 16) << 56);
    s.c ^= 0xee;
    file_digest digest = {.low = sip_sum(&s)};
    s.b ^= 0xdd;
    digest.high = sip_sum(&s);
    return digest;
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
static uint32_t file_new(engine *e, const file_facts *facts, const char *path, file_digest digest)
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
    if (!e->nr_file_buckets && getrandom(e->file_key, sizeof e->file_key, GRND_NONBLOCK) < 0)
        /* the machine has just booted and has no random bytes: against chance, a known key does as well */
        memset(e->file_key, 0, sizeof e->file_key);
    if (e->files.count >= e->nr_file_buckets / 2 && !rehash(e)) {
        e->out_of_memory = true;
        return NONE;
    }
    file_digest digest = digest_of(e->file_key, facts, path);
    uint32_t mask = e->nr_file_buckets - 1, at = (uint32_t)digest.low & mask;
    for (; e->file_buckets[at]; at = (at + 1) & mask) {
        const file_digest *known = &e->files.at[e->file_buckets[at] - 1];
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
