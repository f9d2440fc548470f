/* What events about rings refer to: texts, and handles of the paradigm io_uring. */
#include "otf2/otf2_writer.h"

enum { KEY_BITS = 32 };

static uint32_t no_memory(lo2_otf2_writer *w)
{
    otf2_fail(w, "malloc", 0);
    return NONE;
}

uint32_t otf2_text(lo2_otf2_writer *w, uint8_t kind, uint32_t key)
{
    uint32_t *known, count = w->view.nr_texts;
    w->view.uses_rings = 1;
    if (!number_map_at(&w->text_by_key, (uint64_t)kind << KEY_BITS | key, &known))
        return no_memory(w);
    if (__builtin_expect(*known != NONE, 1))
        return *known;
    if (!otf2_grow((void **)&w->texts, &w->texts_room, count + 1u, sizeof *w->texts))
        return no_memory(w);
    uint32_t ref = w->config.first_string + w->view.nr_strings++;
    w->texts[count] = (lo2_otf2_text){.kind = kind, .key = key, .ref = ref};
    w->view.texts = w->texts;
    w->view.nr_texts++;
    return *known = ref;
}

static uint32_t handle_new(lo2_otf2_writer *w, uint32_t ring, uint32_t handle)
{
    uint32_t count = w->view.nr_ring_handles;
    if (!otf2_grow((void **)&w->ring_handles, &w->ring_handles_room, count + 1u, sizeof *w->ring_handles))
        return no_memory(w);
    uint32_t ref = lo2_otf2_new_handle(w);
    w->ring_handles[count] = (lo2_otf2_ring_handle){.ref = ref, .ring = ring, .handle = handle};
    w->view.ring_handles = w->ring_handles;
    w->view.nr_ring_handles++;
    return ref;
}

uint32_t otf2_ring_handle(lo2_otf2_writer *w, lo2_otf2_location *location, uint32_t ring, uint32_t handle)
{
    uint32_t *known;
    uint64_t of_ring = (uint64_t)ring << KEY_BITS;
    /* Only threads of one process may share a handle. */
    bool found = handle != NONE ? number_map_at(&w->ring_handle_by_file, of_ring | handle, &known)
                                : number_map_at(&w->ring_handle_by_process, of_ring | location->process, &known);
    if (!found)
        return no_memory(w);
    return *known != NONE ? *known : (*known = handle_new(w, ring, handle));
}
