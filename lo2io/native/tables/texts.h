/* Texts of processes: paths of cgroups, command lines. */
#ifndef LO2IO_TEXTS_H
#define LO2IO_TEXTS_H

#include "tables/state.h"

/* The text's index, with a reference for the caller. */
uint32_t text_of(engine *e, const char *text, uint32_t length);
uint32_t text_keep(engine *e, uint32_t index);
void text_release(engine *e, uint32_t index);
void texts_free(engine *e);

#endif
