/* Keys and their numbers: the first key has number 0. Rows about the keys lie in an array beside, which grows with the set. */
#ifndef LO2IO_SUMS_NUMBERS_H
#define LO2IO_SUMS_NUMBERS_H

#include <stdbool.h>

#include "api/all.h"

#define NO_NUMBER SIZE_MAX

typedef struct {
    uint64_t (*keys)[2];
    uint32_t *buckets; /* number + 1, 0: empty */
    size_t count, room; /* room: of keys and rows; a power of two, as the number of buckets, which is twice that */
    size_t last;
} number_set;

size_t number_find(number_set *set, const uint64_t key[2]); /* NO_NUMBER: it is not there */
/* The number of a new key. *rows has rows of so many bytes, grows with the set, and is zero where it has grown. */
size_t number_add(number_set *set, const uint64_t key[2], void **rows, size_t row_bytes); /* NO_NUMBER: no memory */
#define NUMBER_ADD(set, key, rows, at) (((at) = number_add(set, key, (void **)(rows), sizeof **(rows))) != NO_NUMBER)
void number_set_free(number_set *set);

#endif
