/*
 * Facts about descriptors from /proc. A look counts only if it proves which handle it saw. calls/kernel_files.c has the
 * facts that BPF programs told.
 */
#include <fcntl.h>

#include "calls/proc_facts.h"
#include "tables/cgroups.h"
#include "tables/descriptions.h"
#include "tables/descriptors.h"
#include "tables/tasks.h"

void on_fd_fact(engine *e, const lo2_fact_fd *fact, const char *path, int64_t begin, int64_t end)
{
    task *t = task_for_fact(e, fact->pid);
    if (t && is_own(e, t))
        return; /* its calls are not followed, so nothing would end the handle */
    bool seen = t && !e->config.ends_unseen && cgroup_is_recorded(e, &e->processes.at[t->process]);
    slot *s = seen ? slot_at(e, t->table, fact->fd, true) : NULL;
    /* the slot changed, or may have changed, while /proc was read */
    if (!s || s->since > begin || !slot_is_steady(e, t, s, -1, begin)) {
        e->totals.nr_names_refused++;
        return;
    }
    if (s->handle == NONE) {
        uint32_t d = description_new(e);
        uint8_t origin = end <= e->config.start_ns ? ORIGIN_BEFORE : ORIGIN_UNSEEN;
        uint32_t index = d == NONE ? NONE : handle_new(e, t, fact->fd, d, origin);
        if (index == NONE)
            return;
        slot_set(s, s->since, index, false);
        e->descriptions.at[d].first_use = UNKNOWN; /* a look is not a use */
    }
    description *d = description_of(e, s->handle);
    if (d->open_flags == NONE && fact->open_flags != NONE)
        s->cloexec = (fact->open_flags & O_CLOEXEC) != 0;
    learn_flags(e, s, d, fact->open_flags);
    compare_position(d, fact->mode, s->movers ? UNKNOWN : fact->position, begin);
    e->totals.nr_names_verified++;
    const file_facts facts = {.device = fact->device, .inode = fact->inode, .generation = UNKNOWN, .mode = fact->mode, .mount = fact->mount,
                              .links = NONE, .path_length = fact->path_length, .source = NAME_PROC};
    if (d->file == NONE || d->name_source == NAME_CALL)
        description_named(e, d, &facts, path);
}
