/*
 * What a call's arguments point to and its row needs: bytes of all iovecs, the flags of struct open_how.
 */
#ifndef LO2IO_BPF_VALUES_H
#define LO2IO_BPF_VALUES_H

#include "core.h"

/* At the exit, before CALL or EXIT is written: sets moment->value. */
INLINE void lo2_look_at_values(struct lo2_moment *moment)
{
}

#endif
