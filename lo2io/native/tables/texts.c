/*
 * Texts of processes: paths of cgroups, command lines. Each text is kept once, with a count of references. So only the
 * texts of living processes and of rows not written yet take memory.
 */
#include "tables/texts.h"

enum { BUCKETS = 4096 };

static uint32_t bucket_of(const char *text, uint32_t length)
{
    return (uint32_t)hash_text(NULL, 0, text, length).low & (BUCKETS - 1);
}

uint32_t text_of(engine *e, const char *text, uint32_t length)
{
    if (!e->text_buckets && !(e->text_buckets = calloc(BUCKETS, sizeof *e->text_buckets))) {
        e->out_of_memory = true;
        return NONE;
    }
    uint32_t *bucket = &e->text_buckets[bucket_of(text, length)], index;
    for (index = *bucket; index; index = e->texts.at[index - 1].chain) {
        shared_text *known = &e->texts.at[index - 1];
        if (known->length == length && !memcmp(known->text, text, length)) {
            known->refs++;
            return index - 1;
        }
    }
    char *copy = malloc(length + 1u);
    if (!copy) {
        e->out_of_memory = true;
        return NONE;
    }
    memcpy(copy, text, length);
    TAKE(e, free_texts, texts, index);
    if (index == NONE) {
        free(copy);
        return NONE;
    }
    e->texts.at[index] = (shared_text){.refs = 1, .length = length, .text = copy, .chain = *bucket};
    *bucket = index + 1;
    return index;
}

uint32_t text_keep(engine *e, uint32_t index)
{
    if (index != NONE)
        e->texts.at[index].refs++;
    return index;
}

void text_release(engine *e, uint32_t index)
{
    if (index == NONE || --e->texts.at[index].refs)
        return;
    shared_text *gone = &e->texts.at[index];
    uint32_t *at = &e->text_buckets[bucket_of(gone->text, gone->length)];
    while (*at != index + 1)
        at = &e->texts.at[*at - 1].chain;
    *at = gone->chain;
    free(gone->text);
    gone->text = NULL;
    GIVE_BACK(e, free_texts, index);
}

void texts_free(engine *e)
{
    for (uint32_t i = 0; i < e->texts.count; i++)
        free(e->texts.at[i].text);
    free(e->texts.at);
    free(e->free_texts.at);
    free(e->text_buckets);
}
