/* Cgroups of processes. */
#include "tables/cgroups.h"
#include "tables/descriptors.h"
#include "tables/tasks.h"
#include "tables/texts.h"

enum { V2 = 0, KERNEL_PATH_BYTES = 1023 /* TRACE_CGROUP_PATH_LEN less the zero, kernel/cgroup/cgroup-internal.h */ };

static void set_cgroup(engine *e, process *p, uint32_t hierarchy, uint32_t index)
{
    text_release(e, p->cgroup);
    p->cgroup = index;
    p->hierarchy = hierarchy;
}

/* True if the process' calls are recorded: its cgroup is the chosen one, or lies below that. */
bool cgroup_is_recorded(const engine *e, const process *p)
{
    uint32_t length = e->config.cgroup_length;
    if (!length || (length == 1 && e->config.cgroup[0] == '/'))
        return true;
    if (p->cgroup == NONE)
        return false;
    const shared_text *c = &e->texts.at[p->cgroup];
    return c->length >= length && !memcmp(c->text, e->config.cgroup, length) &&
           (c->length == length || c->text[length] == '/');
}

void on_cgroup_fact(engine *e, process *p, uint32_t hierarchy, const char *path, uint32_t length, int64_t begin)
{
    if (p->cgroup_since == UNKNOWN || p->cgroup_since <= begin) /* else the process moved while /proc was read */
        set_cgroup(e, p, hierarchy, text_of(e, path, length));
}

/*
 * The event names the leader if a whole process moves, and another thread if that thread moves alone. A process has its
 * leader's cgroup, so only the former counts.
 *
 * A process is followed in one hierarchy: the one of its known path, else v2's. A process that somebody puts below v2's
 * root is followed in v2 from then on. A path as long as the kernel's buffer may be cut, so it is unknown.
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
    bool whole = length < KERNEL_PATH_BYTES; /* a path that the kernel cut still says that the process moved */
    set_cgroup(e, p, hierarchy, whole ? text_of(e, (const char *)raw + offset, length) : NONE);
    p->cgroup_since = time;
    if (e->config.cgroup_length) /* the process' calls before the move, or those from now on, are not recorded */
        table_void(e, t->table, time);
}
