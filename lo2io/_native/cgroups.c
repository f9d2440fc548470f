/*
 * Cgroups of processes. Paths are kept once and counted: however many processes come and go, only the paths of those
 * that live, and of rows still to be written, take memory.
 */
#include "engine.h"

enum { BUCKETS = 4096, V2 = 0, KERNEL_PATH_BYTES = 1023 /* TRACE_CGROUP_PATH_LEN less the zero, kernel/cgroup/cgroup-internal.h */ };

static uint64_t hash_path(const char *path, uint32_t length)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < length; i++)
        h = (h ^ (uint8_t)path[i]) * 0x100000001b3u;
    return h ^ (h >> 32);
}

/* The path's index, with a reference for the caller. */
static uint32_t cgroup_of(engine *e, const char *path, uint32_t length)
{
    if (!e->cgroup_buckets && !(e->cgroup_buckets = calloc(BUCKETS, sizeof *e->cgroup_buckets))) {
        e->out_of_memory = true;
        return NONE;
    }
    uint32_t *bucket = &e->cgroup_buckets[hash_path(path, length) % BUCKETS], index;
    for (index = *bucket; index; index = e->cgroups.at[index - 1].chain) {
        cgroup_path *known = &e->cgroups.at[index - 1];
        if (known->length == length && !memcmp(known->path, path, length)) {
            known->refs++;
            return index - 1;
        }
    }
    char *copy = malloc(length + 1u);
    if (!copy) {
        e->out_of_memory = true;
        return NONE;
    }
    memcpy(copy, path, length);
    TAKE(e, free_cgroups, cgroups, index);
    if (index == NONE) {
        free(copy);
        return NONE;
    }
    e->cgroups.at[index] = (cgroup_path){.refs = 1, .length = length, .path = copy, .chain = *bucket};
    *bucket = index + 1;
    return index;
}

uint32_t cgroup_keep(engine *e, uint32_t index)
{
    if (index != NONE)
        e->cgroups.at[index].refs++;
    return index;
}

void cgroup_release(engine *e, uint32_t index)
{
    if (index == NONE || --e->cgroups.at[index].refs)
        return;
    cgroup_path *gone = &e->cgroups.at[index];
    uint32_t *at = &e->cgroup_buckets[hash_path(gone->path, gone->length) % BUCKETS];
    while (*at != index + 1)
        at = &e->cgroups.at[*at - 1].chain;
    *at = gone->chain;
    free(gone->path);
    gone->path = NULL;
    GIVE_BACK(e, free_cgroups, index);
}

static void set_cgroup(engine *e, process *p, uint32_t hierarchy, uint32_t index)
{
    cgroup_release(e, p->cgroup);
    p->cgroup = index;
    p->hierarchy = hierarchy;
}

/* Whether its calls are in the recording: it is in the cgroup that was chosen, or below. */
bool cgroup_is_recorded(const engine *e, const process *p)
{
    uint32_t length = e->config.cgroup_length;
    if (!length || (length == 1 && e->config.cgroup[0] == '/'))
        return true;
    if (p->cgroup == NONE)
        return false;
    const cgroup_path *c = &e->cgroups.at[p->cgroup];
    return c->length >= length && !memcmp(c->path, e->config.cgroup, length) &&
           (c->length == length || c->path[length] == '/');
}

void on_cgroup_fact(engine *e, process *p, uint32_t hierarchy, const char *path, uint32_t length, int64_t begin)
{
    if (p->cgroup_since == UNKNOWN || p->cgroup_since <= begin) /* else it moved while /proc was being read */
        set_cgroup(e, p, hierarchy, cgroup_of(e, path, length));
}

/*
 * The kernel names the leader when a process moves, another thread when that one moves alone: then the process, whose
 * cgroup is its leader's, stays. A process is followed in one hierarchy: the one its path is known of, else v2's, to
 * which one comes over whom somebody puts below v2's root.
 */
void on_cgroup_attach(engine *e, const lo2_event *event, const uint8_t *raw, uint32_t raw_size, int64_t time)
{
    const lo2_field *f = event->fields;
    uint32_t tid = (uint32_t)load_unsigned(raw, f[LO2_FIELD_CGROUP_TID]);
    uint32_t hierarchy = (uint32_t)load_unsigned(raw, f[LO2_FIELD_CGROUP_HIERARCHY]);
    const task *t = task_of(e, tid);
    process *p = t ? &e->processes.at[t->process] : NULL;
    if (!p || p->pid != tid)
        return;
    uint32_t where = (uint32_t)load_unsigned(raw, f[LO2_FIELD_CGROUP_PATH]), offset = where & 0xffff, size = where >> 16;
    if (f[LO2_FIELD_CGROUP_PATH].size != 4 || offset + size > raw_size || !size)
        return;
    uint32_t length = (uint32_t)strnlen((const char *)raw + offset, size);
    if (hierarchy != p->hierarchy && (hierarchy != V2 || length <= 1))
        return;
    bool whole = length < KERNEL_PATH_BYTES; /* it is somewhere else now, even if what is left of the path is too little */
    set_cgroup(e, p, hierarchy, whole ? cgroup_of(e, (const char *)raw + offset, length) : NONE);
    p->cgroup_since = time;
    if (e->config.cgroup_length) /* what it did before, or does from now on, is not recorded */
        table_void(e, t->table, time);
}

void cgroups_free(engine *e)
{
    for (uint32_t i = 0; i < e->cgroups.count; i++)
        free(e->cgroups.at[i].path);
    free(e->cgroups.at);
    free(e->free_cgroups.at);
    free(e->cgroup_buckets);
}
