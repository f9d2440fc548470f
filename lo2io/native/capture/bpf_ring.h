/* Buffers that BPF programs write: what the native parts of recording share. */
#ifndef LO2_CAPTURE_BPF_RING_H
#define LO2_CAPTURE_BPF_RING_H

#include <stdbool.h>

#include "api/all.h"

/* True if all records before `taken`, which was just read from the buffer, are finished. */
bool nobody_writes(const struct lo2_bpf_buffer *buffer, uint64_t taken);

#endif
