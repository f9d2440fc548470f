/* Fields of an event's raw data. */
#ifndef LO2IO_FIELDS_H
#define LO2IO_FIELDS_H

#include "input/vectors.h"

static inline uint64_t load_unsigned(const uint8_t *raw, lo2_field f)
{
    uint64_t v8;
    uint32_t v4;
    uint16_t v2;
    switch (f.size) {
    case 8: memcpy(&v8, raw + f.offset, 8); return v8;
    case 4: memcpy(&v4, raw + f.offset, 4); return f.is_signed ? (uint64_t)(int64_t)(int32_t)v4 : v4;
    case 2: memcpy(&v2, raw + f.offset, 2); return f.is_signed ? (uint64_t)(int64_t)(int16_t)v2 : v2;
    case 1: return f.is_signed ? (uint64_t)(int64_t)(int8_t)raw[f.offset] : raw[f.offset];
    default: return 0;
    }
}

#endif
