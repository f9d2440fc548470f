/* Names of files: a look at /proc counts only when it proves which handle it saw. What the kernel told itself: calls/kernel_files.c. */
#include <fcntl.h>
#include <sys/stat.h>

#include "tables/kernel_names.h"

enum { ORIGIN_BEFORE = 3, ORIGIN_UNSEEN = 4 };

/* Takes over, or refutes, the position that a fact shows of a description at rest. */
void compare_position(description *d, uint32_t mode, int64_t position, int64_t begin)
{
    if (S_ISFIFO(mode) || S_ISSOCK(mode) || S_ISCHR(mode)) {
        d->foreign = 1;
        d->position = UNKNOWN;
        return;
    }
    bool at_rest = !d->moving && (d->last_moved == UNKNOWN || d->last_moved <= begin);
    if (d->foreign || position == UNKNOWN || !at_rest)
        return;
    if (d->position == UNKNOWN) {
        d->position = position;
    } else if (d->position != position) {
        d->foreign = 1;
        d->position = UNKNOWN;
    }
}

/* The flags of a description nobody saw opened. */
void learn_flags(engine *e, const slot *s, description *d, uint32_t open_flags)
{
    if (d->open_flags != NONE || open_flags == NONE)
        return;
    d->open_flags = open_flags;
    d->append = (open_flags & O_APPEND) ? APPENDS : APPENDS_NOT;
    if (!s->inherited)
        e->handles.at[s->handle].open_flags = open_flags;
}

void on_fd_fact(engine *e, const lo2_fact_fd *fact, const char *path, int64_t begin, int64_t end)
{
    task *t = task_for_fact(e, fact->pid);
    if (t && is_own(e, t))
        return; /* its calls are not followed: nothing would end the handle */
    bool seen = t && !e->config.ends_unseen && cgroup_is_recorded(e, &e->processes.at[t->process]);
    slot *s = seen ? slot_at(e, t->table, fact->fd, true) : NULL;
    if (!s || s->since > begin || !slot_is_steady(e, t, s, -1, begin)) { /* it changed, or may have, while /proc was being read */
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
        e->descriptions.at[d].first_use = UNKNOWN; /* a look is no use of it */
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

void description_named(engine *e, description *d, const file_facts *facts, const char *path)
{
    uint32_t file = file_of(e, facts, path);
    if (file != NONE) {
        d->file = file;
        d->name_source = facts->source;
    }
}

/* The path as the program gave it: relative to what it was relative to, and of a file that stat(2) did not see. */
void name_from_call(engine *e, description *d, const char *path, uint32_t length)
{
    const file_facts as_given = {.generation = UNKNOWN, .mount = NONE, .links = NONE, .path_length = length, .source = NAME_CALL};
    if (length)
        description_named(e, d, &as_given, path);
}
