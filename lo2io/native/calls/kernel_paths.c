/*
 * Paths that calls were given, as BPF programs read them. Rows of `paths` follow the row of their call: the call that
 * the thread has just left or, if the call's paths are read at its entry (execve, chdir, chroot ...), the next one. If
 * records were lost, such a path must bear the time of the entry. The directory is known if its names reach the root and
 * did not move. A path that was not read whole is unknown.
 */
#include "calls/kernel_paths.h"
#include "tables/descriptions.h"
#include "tables/kernel_names.h"
#include "tables/rows.h"

enum { MOST_PATHS = 2 };

void on_kernel_path(engine *e, task *t, const uint8_t *record, uint32_t size)
{
    lo2_kernel_path path;
    memcpy(&path, record, sizeof path);
    const char *given = (const char *)record + sizeof path, *names = given + path.path_length;
    int64_t time = (int64_t)path.head.time_ns;
    left_call *left = &t->left;
    if (!left->operation || time > left->end)
        return;
    if (time < left->begin && (e->config.records_lost || !e->calls[left->call].reads_first)) /* perhaps another call's */
        return;
    if (path.place < left->next_place || path.place >= MOST_PATHS) { /* as after damage */
        e->totals.nr_undecoded++;
        return;
    }
    bool known = kernel_directory_of(e, path.flags, names, path.names_length);
    uint32_t length = path.flags & LO2_PATH_CUT ? 0 : path.path_length, directory = known ? e->name.count : 0;
    char *texts = malloc((size_t)length + directory + 2);
    if (!texts || !ROW_ROOM(e, e->path_queue)) {
        free(texts);
        e->out_of_memory = true;
        return;
    }
    left->next_place = path.place + 1;
    memcpy(texts, given, length);
    memcpy(texts + length, directory ? e->name.at : "/", directory ? directory : 1);
    e->path_queue.at[e->path_queue.count++] = (path_row){left->operation, length, known && !directory ? 1 : directory, path.place,
                                                         path.flags & LO2_PATH_CUT ? NAME_UNKNOWN : NAME_KERNEL, texts};
    paths_flush(e);
}

void paths_free(engine *e)
{
    for (uint32_t i = e->paths_out; i < e->path_queue.count; i++)
        free(e->path_queue.at[i].texts);
    free(e->path_queue.at);
}
