/* Strings. Only those that something refers to are written, each once. */
#include "merge/merge.h"

static int write(lo2_merge *m, uint32_t ref, const char *text)
{
    WRITE(m, write_string, (void *, uint32_t, const char *), ref, text);
    return 0;
}

const char *merge_text(const lo2_merge *m, uint32_t own)
{
    uint32_t row = id_map_get(&m->string_rows, own);
    return row == NONE ? "" : m->part.text.at + m->part.strings.at[row].offset;
}

int merge_new_string(lo2_merge *m, const char *text, uint32_t *to)
{
    uint32_t *known;
    TRY(contents_find(m, &m->of_strings, text, strlen(text), &known));
    if (*known == NONE) {
        *known = m->next_string++;
        TRY(write(m, *known, text));
    }
    *to = *known;
    return 0;
}

int merge_string(lo2_merge *m, uint32_t own, uint32_t *to)
{
    *to = id_map_get(&m->strings, own);
    if (*to != NONE || id_map_get(&m->string_rows, own) == NONE)
        return 0;
    TRY(merge_new_string(m, merge_text(m, own), to));
    return id_map_set(m, &m->strings, own, *to);
}

/* No other host has strings that end with this host's name. So equal strings are looked for within this host only. */
int merge_suffixed(lo2_merge *m, uint32_t own, uint32_t *to)
{
    *to = id_map_get(&m->suffixed, own);
    if (*to != NONE || id_map_get(&m->string_rows, own) == NONE)
        return 0;
    const char *text = merge_text(m, own);
    size_t length = strlen(text);
    if (!merge_grow((void **)&m->scratch.at, &m->scratch.room, length + m->host.nr + 3, 1))
        return merge_fail(m, "malloc", 0);
    memcpy(m->scratch.at, text, length);
    memcpy(m->scratch.at + length, " @", 2);
    memcpy(m->scratch.at + length + 2, m->host.at, m->host.nr); /* with its end */
    *to = m->next_string++;
    TRY(write(m, *to, m->scratch.at));
    return id_map_set(m, &m->suffixed, own, *to);
}

/* Events name strings that no definition does. */
int merge_used_strings(lo2_merge *m, const uint64_t *used, uint64_t nr_used)
{
    uint32_t unused;
    for (uint64_t i = 0; i < nr_used; i++)
        if (used_kind(used[i]) == LO2_USED_STRING)
            TRY(merge_string(m, (uint32_t)used[i], &unused));
    for (size_t i = 0; !used && i < m->part.strings.nr; i++)
        TRY(merge_string(m, m->part.strings.at[i].id, &unused));
    return 0;
}
