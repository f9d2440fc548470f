/* Path arguments of calls, which become strings. Their rows follow the row of the call. */
#include "hash/hash.h"
#include "otf2/otf2_writer.h"

enum { PLACES = 2 };

static uint64_t key_of(uint64_t id, uint32_t place) { return id * PLACES + place; }

/* The string of the last bytes in given_text, which keeps them if they are new. NONE: failed. */
static uint32_t string_of(lo2_otf2_writer *w, size_t length)
{
    const char *text = w->given_text + w->given_used;
    uint32_t *known, count = w->view.nr_given;
    uint64_t key = hash_text(NULL, 0, text, length).low >> 1; /* no key may have all bits set */
    for (;; key++) { /* different texts may have the same hash */
        if (!number_map_at(&w->given_by_hash, key, &known) ||
            !otf2_grow((void **)&w->given, &w->given_room, count + 1u, sizeof *w->given)) {
            otf2_fail(w, "malloc");
            return NONE;
        }
        w->view.given = w->given; /* both may have moved, also for a text that is known already */
        w->view.given_text = w->given_text;
        if (*known == NONE)
            break;
        const lo2_otf2_given *g = &w->given[*known];
        if (g->length == length && !memcmp(w->given_text + g->offset, text, length))
            return g->ref;
    }
    uint32_t ref = w->config.first_string + w->view.nr_strings++;
    w->given[count] = (lo2_otf2_given){.offset = w->given_used, .length = (uint32_t)length, .ref = ref};
    *known = count;
    w->given_used += length;
    w->view.nr_given++;
    return ref;
}

/* The whole path of a row as a string, after its directory if that is known. NONE: the row has no text, or failed. */
static uint32_t path_of(lo2_otf2_writer *w, const lo2_batch *b, uint32_t row)
{
    const char *path = b->text + b->paths.path_offset[row], *directory = b->text + b->paths.directory_offset[row];
    size_t length = b->paths.path_length[row], before = b->paths.directory_length[row];
    bool absolute = length && *path == '/', slash = before && directory[before - 1] != '/' && length && !absolute;
    if (absolute && before == 1) /* the root of the file system: the path is whole already */
        before = 0;
    size_t whole = before + slash + length;
    if (!b->paths.source[row] || !whole)
        return NONE;
    if (!otf2_grow((void **)&w->given_text, &w->given_text_room, w->given_used + whole, 1)) {
        otf2_fail(w, "malloc");
        return NONE;
    }
    char *at = w->given_text + w->given_used;
    memcpy(at, directory, before);
    if (slash)
        at[before] = '/';
    memcpy(at + before + slash, path, length);
    return string_of(w, whole);
}

bool otf2_index_paths(lo2_otf2_writer *w, const lo2_batch *b)
{
    number_map_free(&w->path_by_call);
    for (uint32_t row = 0; row < b->nr_paths; row++) {
        uint32_t *known;
        if (b->paths.place[row] >= PLACES)
            continue;
        if (!number_map_at(&w->path_by_call, key_of(b->paths.operation[row], b->paths.place[row]), &known))
            return false;
        *known = row;
    }
    return true;
}

int otf2_find_paths(lo2_otf2_writer *w, held_call *call)
{
    if (!w->path_by_call.used)
        return 0;
    for (uint32_t place = 0; place < PLACES; place++) {
        uint32_t *row;
        if (!(call->lacks & 1u << place))
            continue;
        if (!number_map_at(&w->path_by_call, key_of(call->told.id, place), &row))
            return otf2_fail(w, "malloc");
        if (*row == NONE)
            continue;
        call->lacks &= (uint8_t)~(1u << place);
        w->view.failed = NULL;
        call->path[place] = path_of(w, w->batch, *row);
        if (w->view.failed)
            return -1;
    }
    return 0;
}

void otf2_free_paths(lo2_otf2_writer *w)
{
    number_map_free(&w->path_by_call);
    number_map_free(&w->given_by_hash);
    free(w->given);
    free(w->given_text);
}
