/*
 * The layers between a call and the disk (lo2io/model/layers.py). Each has programs of its own, which are loaded only if the
 * layer is recorded.
 */
#ifndef LO2IO_BPF_LAYERS_H
#define LO2IO_BPF_LAYERS_H

#include "cache.h"
#include "dirty.h"
#include "faults.h"
#include "fuse.h"
#include "journal.h"
#include "parts.h"
#include "stacks.h"
#include "waits.h"

#define LO2_LAYER_BIT(name) ((__u32)(LO2_LAYER_FITS_##name) << LO2_LAYER_##name)

/* User space runs this once. Bit i is set if the programs of enum lo2_layer i fit the running kernel, as in fits.h. */
SEC("raw_tp/sys_enter")
int lo2_layers_fit(void *context)
{
    return LO2_LAYER_BIT(parts) | LO2_LAYER_BIT(cache) | LO2_LAYER_BIT(waits) | LO2_LAYER_BIT(dirty) | LO2_LAYER_BIT(faults) |
           LO2_LAYER_BIT(stacks) | LO2_LAYER_BIT(journal) | LO2_LAYER_BIT(fuse) |
           LO2_LAYER_BIT(workers);
}

#endif
