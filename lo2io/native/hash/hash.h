/*
 * Hashes that nobody can foresee. A recorded program chooses paths, inode numbers, offsets and user_data. If it knew the
 * hash, it could choose them so that all fall into one bucket, and converting would take quadratic time. So each process
 * of lo2io has a key, and every table whose entries a recorded program may choose hashes with this key.
 */
#ifndef LO2IO_HASH_H
#define LO2IO_HASH_H

#include <stddef.h>
#include <stdint.h>

enum { HASH_MOST_WORDS = 4 };

__extension__ typedef unsigned __int128 hash_wide;

typedef struct { uint64_t low, high; } hash_digest;

/* hash_words multiplies each word by a factor of its own, and adds the last number. All are drawn when the library is loaded. */
extern hash_wide hash_factors[HASH_MOST_WORDS + 1];

/*
 * The hash of a few numbers. Any bits of it may choose the bucket. Whatever two keys are chosen, they fall into the same
 * one of n buckets with a chance of 1 in n. (Vector multiply-shift, M. Thorup: High speed hashing for integers and
 * strings, arXiv:1504.06804, 2015.)
 */
static inline uint64_t hash_words(const uint64_t *words, size_t nr)
{
    hash_wide sum = hash_factors[HASH_MOST_WORDS];
    for (size_t i = 0; i < nr; i++)
        sum += hash_factors[i] * words[i];
    return (uint64_t)(sum >> 64);
}

#define HASH_WORDS(...) \
    hash_words((const uint64_t[]){__VA_ARGS__}, sizeof (uint64_t[]){__VA_ARGS__} / sizeof(uint64_t))

/*
 * The hash of some numbers and a text: SipHash-2-4 with 128 bits of output. (J.-P. Aumasson, D. J. Bernstein: SipHash, a
 * fast short-input PRF, 2012.) The low half alone is a hash for tables that compare the text, too.
 */
hash_digest hash_text(const uint64_t *words, size_t nr, const void *text, size_t length);

#endif
