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

/* Whether its calls are in the recording: it is in the cgroup that was chosen, or below. */
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
    if (p->cgroup_since == UNKNOWN || p->cgroup_since <= begin) /* else it moved while /proc was being read */
        set_cgroup(e, p, hierarchy, text_of(e, path, length));
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
    set_cgroup(e, p, hierarchy, whole ? text_of(e, (const char *)raw + offset, length) : NONE);
    p->cgroup_since = time;
    if (e->config.cgroup_length) /* what it did before, or does from now on, is not recorded */
        table_void(e, t->table, time);
}
