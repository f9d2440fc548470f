/*
 * The layer `dirty`: which thread made which pages of the page cache dirty, by calls, rings and mappings alike.
 *
 * The tracepoint fires where a clean folio becomes dirty, in the thread that writes (filemap_dirty_folio, mm/page-writeback.c): there
 * the kernel counts write_bytes of /proc/PID/io, too. Folios are joined to runs as in cache.h. Each thread is told, recorded or not,
 * for whoever dirtied a page before is no longer the last one.
 */
#ifndef LO2IO_BPF_DIRTY_H
#define LO2IO_BPF_DIRTY_H

#include "cache.h"

#define LO2_LAYER_FITS_dirty (LO2_HAS(writeback_dirty_folio) && LO2_KNOWS_FOLIOS)

SEC("tp_btf/writeback_dirty_folio")
int lo2_dirty_writeback_dirty_folio(__u64 *context)
{
    if (!LO2_LAYER_FITS_dirty)
        return 0;
    return lo2_on_folio((const struct folio *)context[0], LO2_RUN_DIRTY, LO2_KERNEL_DIRTY);
}

#endif
