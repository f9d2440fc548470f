/* Names of files: a look at /proc counts only when it proves which handle it saw. */
#include <fcntl.h>
#include <sys/stat.h>

#include "engine.h"

enum { ORIGIN_BEFORE = 3, ORIGIN_UNSEEN = 4, NAME_PROC = 1, NAME_CALL = 2 };

/* Takes over, or refutes, the position that a fact shows of a description at rest. */
static void compare_position(description *d, const lo2_fact_fd *fact, int64_t begin)
{
    if (S_ISFIFO(fact->mode) || S_ISSOCK(fact->mode) || S_ISCHR(fact->mode)) {
        d->foreign = 1;
        d->position = UNKNOWN;
        return;
    }
    bool at_rest = !d->moving && (d->last_moved == UNKNOWN || d->last_moved <= begin);
    if (d->foreign || fact->position == UNKNOWN || !at_rest)
        return;
    if (d->position == UNKNOWN) {
        d->position = fact->position;
    } else if (d->position != fact->position) {
        d->foreign = 1;
        d->position = UNKNOWN;
    }
}

/* The flags of a description nobody saw opened. */
static void learn_flags(engine *e, slot *s, description *d, uint32_t open_flags)
{
    if (d->open_flags != NONE || open_flags == NONE)
        return;
    d->open_flags = open_flags;
    d->append = (open_flags & O_APPEND) ? APPENDS : APPENDS_NOT;
    s->cloexec = (open_flags & O_CLOEXEC) != 0;
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
    if (!s || (s->since != UNKNOWN && s->since > begin)) { /* it changed while /proc was being read */
        e->totals.nr_names_refused++;
        return;
    }
    if (s->handle == NONE) {
        uint32_t d = description_new(e);
        uint8_t origin = end <= e->config.start_ns ? ORIGIN_BEFORE : ORIGIN_UNSEEN;
        uint32_t index = d == NONE ? NONE : handle_new(e, t, fact->fd, d, origin);
        if (index == NONE)
            return;
        *s = (slot){.since = s->since, .handle = index};
    }
    description *d = description_of(e, s->handle);
    learn_flags(e, s, d, fact->open_flags);
    compare_position(d, fact, begin);
    e->totals.nr_names_verified++;
    if (d->file != NONE && d->name_source == NAME_PROC)
        return;
    uint32_t file = file_of(e, fact, path);
    if (file != NONE) {
        d->file = file;
        d->name_source = NAME_PROC;
    }
}

/* The path as the program gave it: relative to what it was relative to, and of a file that stat(2) did not see. */
void name_from_call(engine *e, description *d, const char *path, uint32_t length)
{
    const lo2_fact_fd as_given = {.mount = NONE, .path_length = length};
    uint32_t file = length ? file_of(e, &as_given, path) : NONE;
    if (file != NONE) {
        d->file = file;
        d->name_source = NAME_CALL;
    }
}
