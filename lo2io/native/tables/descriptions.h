/* Open file descriptions: the file, name, flags and position of each. */
#ifndef LO2IO_DESCRIPTIONS_H
#define LO2IO_DESCRIPTIONS_H

#include "tables/state.h"

enum { NAME_UNKNOWN = 0, NAME_PROC = 1, NAME_CALL = 2, NAME_KERNEL = 3 }; /* name_source */

uint32_t description_new(engine *e);
void description_release(engine *e, uint32_t index);
void description_learns(engine *e, uint32_t index, const lo2_kernel_file *of, const char *names);
void description_named(engine *e, description *d, const file_facts *facts, const char *path);
void name_from_call(engine *e, description *d, const char *path, uint32_t length);
void learn_flags(engine *e, const slot *s, description *d, uint32_t open_flags);
void compare_position(description *d, uint32_t mode, int64_t position, int64_t begin); /* at rest since `begin` */

static inline void description_used(const engine *e, description *d)
{
    if (d->first_use == UNKNOWN)
        d->first_use = e->totals.last_time_ns;
}

#endif
