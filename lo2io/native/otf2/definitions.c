/*
 * Definitions of handles: there may be millions, so columns of many are written at a time.
 *
 * A handle has neither a communicator nor a parent. OTF2's parent is the handle of a higher paradigm that operates this
 * one, such as MPI-IO's. A duplicate has the parent of its source: none.
 */
#include "otf2/otf2_writer.h"

/* Prototypes as in OTF2 3's OTF2_GlobalDefWriter.h. */
typedef int (*io_handle_fn)(void *, uint32_t, uint32_t, uint32_t, uint8_t, uint32_t, uint32_t, uint32_t);
typedef int (*io_state_fn)(void *, uint32_t, uint8_t, uint32_t);

int lo2_otf2_define_handles(const lo2_otf2_handle_columns *c)
{
    io_handle_fn write_handle = (io_handle_fn)c->write_io_handle;
    io_state_fn write_state = (io_state_fn)c->write_pre_created_state;
    for (uint32_t i = 0; i < c->count; i++) {
        uint32_t ref = c->first + i;
        int code = write_handle(c->writer, ref, c->name[i], c->file[i], c->paradigm[i], c->flags[i], NONE, NONE);
        if (!code && (c->flags[i] & c->pre_created))
            code = write_state(c->writer, ref, c->access[i], c->status[i]);
        if (code)
            return code;
    }
    return 0;
}
