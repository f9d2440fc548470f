/*
 * What descriptors stand for: records FILE.
 */
#ifndef LO2IO_BPF_FILES_H
#define LO2IO_BPF_FILES_H

#include "core.h"

/* At the entry, of calls that close: the descriptor is looked at before it is gone. */
INLINE void lo2_files_at_entry(struct lo2_moment *moment)
{
}

/* At the exit, before CALL or EXIT is written: sets moment->position. */
INLINE void lo2_look_at_files(struct lo2_moment *moment)
{
}

/* Whether the file of a droppable call is on another device, or under another path, than what is asked for. */
INLINE bool lo2_files_left_out(struct lo2_moment *moment)
{
    return false;
}

/* At the exit, after CALL or EXIT. */
INLINE void lo2_write_files(struct lo2_moment *moment)
{
}

#endif
