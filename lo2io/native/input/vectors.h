/* Growable arrays, and pools whose places are used again. */
#ifndef LO2IO_VECTORS_H
#define LO2IO_VECTORS_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "api/all.h"

#define UNKNOWN INT64_MIN
#define NONE UINT32_MAX

/* Growable array of T. VEC_ROOM returns false if memory is short, which ends the run. */
#define VEC(T) struct { T *at; uint32_t count, room; }
bool lo2_grow(void **at, uint32_t *room, uint32_t need, size_t element);
#define VEC_ROOM(v, need) \
    ((need) <= (v)->room || lo2_grow((void **)&(v)->at, &(v)->room, (need), sizeof *(v)->at))

/* Takes a place of a pool: a free one, else a new one. NONE if memory is short. */
#define TAKE(e, free_list, vec, index)                                             \
    do {                                                                           \
        if ((e)->free_list.count)                                                  \
            index = (e)->free_list.at[--(e)->free_list.count];                     \
        else if (VEC_ROOM(&(e)->vec, (e)->vec.count + 1))                          \
            index = (e)->vec.count++;                                              \
        else {                                                                     \
            (e)->out_of_memory = true;                                             \
            index = NONE;                                                          \
        }                                                                          \
    } while (0)
#define GIVE_BACK(e, free_list, index)                                             \
    do {                                                                           \
        if (VEC_ROOM(&(e)->free_list, (e)->free_list.count + 1))                   \
            (e)->free_list.at[(e)->free_list.count++] = index;                     \
    } while (0)

#endif
