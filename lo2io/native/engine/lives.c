/* How threads and processes begin, become other programs, and end. */
#include "calls/calls.h"
#include "calls/fuse.h"
#include "calls/kernel_facts.h"
#include "calls/outside.h"
#include "engine/lives.h"
#include "rings/iocbs.h"
#include "rings/rings.h"
#include "tables/commands.h"
#include "tables/descriptors.h"
#include "tables/rows.h"
#include "tables/tasks.h"
#include "tables/texts.h"

enum { CLONE_FILES_FLAG = 0x400 }; /* include/uapi/linux/sched.h */

/* ---- ends ---- */

static void task_ends(engine *e, task *t, int64_t time)
{
    uint32_t process_index = t->process;
    if (e->rings)
        ring_thread_moved_on(e, t, e->totals.last_time_ns);
    if (t->ring_worker)
        ring_worker_exited(e, t);
    call_abandon(e, t, time);
    if (t->held)
        kernel_facts_due(e, t);
    if (t->iocbs)
        iocbs_drop(e, t);
    outside_drop(e, t);
    ring_thread_ended(e, t, e->totals.last_time_ns);
    if (is_recorded(e, t))
        emit_task(e, t, task_kind(t), time);
    if (!task_remove(e, t, time))
        return;
    if (e->processes.at[process_index].rings)
        ring_abandon_all(e, process_index, time);
    process_remove(e, process_index);
}

/*
 * Right after the COMM of an exec, an EXIT need not be the task's end. The program may get other rights than its
 * caller (set-uid, set-gid, file capabilities), or be unreadable to it. Then exec ends the task's perf events, which
 * writes an EXIT, and the task lives on (begin_new_exec in fs/exec.c, perf_event_exit_task). The task's next record
 * proves that it lives (task_lives()). If none comes, the EXIT was the end.
 */
void on_task_exit(engine *e, int64_t time, uint32_t tid)
{
    task *t = task_of(e, tid);
    if (t && t->in_exec) {
        t->in_exec = false;
        t->exec_exit = time;
        return;
    }
    if (tid < TID_LIMIT)
        e->exit_by_tid[tid] = time;
    if (t)
        task_ends(e, t, time);
}

void task_end_unseen(engine *e, task *t)
{
    e->totals.nr_gone_in_exec += t->exec_exit != UNKNOWN && is_recorded(e, t);
    task_ends(e, t, t->exec_exit);
}

/* Ends the task that had this tid: its end was not seen, for the tid is given again. */
static void forget_old(engine *e, uint32_t tid)
{
    task *old = task_of(e, tid);
    if (old)
        task_end_unseen(e, old);
}

/* ---- beginnings ---- */

/*
 * Makes a task for an unknown thread that created another one in its own process, if the process is unknown, too. Threads
 * are created while /proc is read, before the TASK fact comes.
 */
static task *unknown_maker(engine *e, uint32_t pid, uint32_t tid)
{
    bool wanted = e->config.all_tasks && tid < TID_LIMIT && process_of(e, pid) == NONE;
    uint32_t index = wanted ? task_adopt(e, pid, tid, NONE, NULL) : NONE;
    return index == NONE ? NULL : &e->tasks.at[index];
}

/* Is a new process recorded whose parent thread is not known? */
static bool born_recorded(engine *e, uint32_t pid, uint32_t ppid)
{
    uint32_t parent = process_of(e, ppid);
    return is_recorded_by_default(e, pid) && ppid != e->config.recorder_pid && (parent == NONE || e->processes.at[parent].recorded);
}

/* The child's table: the parent's own if the parent called clone with CLONE_FILES, else a copy. */
static uint32_t table_of_child(engine *e, const task *parent, int64_t time)
{
    if (!parent)
        return table_new(e, time);
    const pending_call *call = &parent->pending;
    if (!call->active || e->calls[call->call].kind != LO2_CALL_CLONE || !(call->flags & CLONE_FILES_FLAG))
        return table_copy(e, parent->table, call->active ? call->begin : UNKNOWN);
    e->tables.at[parent->table].refs++;
    return parent->table;
}

void on_fork(engine *e, int64_t time, uint32_t pid, uint32_t ppid, uint32_t tid, uint32_t ptid)
{
    if (tid >= TID_LIMIT || pid >= TID_LIMIT)
        return;
    forget_old(e, tid);
    task *parent = task_of(e, ptid);
    if (!parent && pid == ppid)
        parent = unknown_maker(e, pid, ptid);
    char comm[16] = {0};
    if (parent) {
        task_lives(parent);
        memcpy(comm, parent->comm, sizeof comm);
    }
    uint32_t process_index = parent ? parent->process : NONE, table;
    if (!parent && pid == ppid) /* an unknown thread has made a new thread: their process may be known */
        process_index = process_of(e, pid);
    if (process_index == NONE && !e->config.all_tasks)
        return;
    if (process_index != NONE && e->processes.at[process_index].pid == pid) {
        table = parent ? parent->table : e->tasks.at[e->processes.at[process_index].oldest].table;
        e->tables.at[table].refs++;
    } else {
        process from = {.number = NONE, .cgroup = NONE, .cgroup_since = UNKNOWN, .command = NONE, .command_since = UNKNOWN,
                        .rank = NONE};
        if (parent)
            from = e->processes.at[process_index];
        table = table_of_child(e, parent, time);
        process_index = table == NONE ? NONE : process_new(e, pid, ppid, from.recorded ? from.number : NONE);
        if (process_index == NONE)
            return;
        process *child = &e->processes.at[process_index];
        child->recorded = parent ? from.recorded : born_recorded(e, pid, ppid);
        child->from_exec = from.from_exec;
        child->compat = from.compat;
        child->cgroup = text_keep(e, from.cgroup);
        child->hierarchy = from.hierarchy;
        child->cgroup_since = from.cgroup_since;
        child->command = text_keep(e, from.command);
        child->command_cut = from.command_cut;
        child->command_since = from.command_since;
        child->rank = from.rank;
        child->fresh = true;
        if (parent)
            e->processes.at[parent->process].nr_forks++;
    }
    uint32_t index = task_new(e, process_index, tid, table, time, comm);
    task *maker = task_of(e, ptid);
    if (index != NONE && maker && maker->process == process_index)
        ring_thread_born(e, &e->tasks.at[index], maker, time);
}

/* ---- exec, and names ---- */

/* A thread that is not the leader calls exec: the kernel gives it the leader's tid (de_thread, fs/exec.c). */
static task *take_over_leader(engine *e, uint32_t pid, int64_t time)
{
    uint32_t process_index = process_of(e, pid);
    if (process_index == NONE || e->processes.at[process_index].nr_tasks != 1)
        return NULL;
    uint32_t caller = e->processes.at[process_index].oldest;
    task old = e->tasks.at[caller];
    e->tables.at[old.table].refs++;
    uint32_t index = task_new(e, process_index, pid, old.table, time, old.comm);
    if (index == NONE)
        return NULL;
    task *heir = &e->tasks.at[index], *gone = &e->tasks.at[caller];
    heir->pending = old.pending;
    heir->held = old.held;
    heir->held_last = old.held_last;
    heir->fuse_first = old.fuse_first;
    heir->fuse_last = old.fuse_last;
    fuse_taken_over(e, heir);
    gone->pending.active = false;
    gone->held = gone->held_last = gone->fuse_first = 0;
    task_ends(e, &e->tasks.at[caller], time);
    return &e->tasks.at[index];
}

void on_comm(engine *e, int64_t time, uint32_t pid, uint32_t tid, const char *comm, size_t length, bool exec)
{
    task *t = task_of(e, tid);
    if (!t && exec && tid == pid)
        t = take_over_leader(e, pid, time);
    if (!t)
        return;
    memset(t->comm, 0, sizeof t->comm);
    memcpy(t->comm, comm, length < sizeof t->comm ? length : sizeof t->comm);
    ring_thread_named(e, t, time, true);
    task_lives(t);
    if (!exec)
        return;
    t->in_exec = true;
    rings_exec(e, t->process, time);
    process *p = &e->processes.at[t->process];
    p->compat = false;
    command_ends(e, p, time);
    if (p->from_exec) {
        p->from_exec = false;
        p->recorded = true;
        t->start = time;
    }
    table_exec(e, t, time);
}

/* Counts a recorded program of 32 bits, once. */
void count_compat(engine *e, const task *t)
{
    process *p = &e->processes.at[t->process];
    if (!e->config.compat_unseen || p->compat || !is_recorded(e, t))
        return;
    p->compat = true;
    e->totals.nr_compat_programs++;
}

/* ---- what /proc said ---- */

process *on_task_fact(engine *e, const lo2_fact_task *fact, int64_t begin)
{
    if (fact->tid >= TID_LIMIT || fact->pid >= TID_LIMIT)
        return NULL;
    if (e->exit_by_tid[fact->tid] && e->exit_by_tid[fact->tid] >= begin)
        return NULL; /* the thread exited while /proc was read */
    task *t = task_of(e, fact->tid);
    bool selects = fact->flags & LO2_FACT_TASK_SELECT, new_process = process_of(e, fact->pid) == NONE;
    if (!t) {
        bool wanted = e->config.all_tasks || selects || !new_process;
        uint32_t index = wanted ? task_adopt(e, fact->pid, fact->tid, fact->ppid, fact->comm) : NONE;
        if (index == NONE)
            return NULL;
        t = &e->tasks.at[index];
    }
    if (!t->comm[0])
        memcpy(t->comm, fact->comm, sizeof t->comm);
    ring_thread_named(e, t, e->totals.last_time_ns, false);
    process *p = &e->processes.at[t->process];
    if (p->ppid == NONE && p->pid == fact->pid) {
        p->ppid = fact->ppid;
        p->parent_number = recorded_number(e, fact->ppid);
    }
    if (selects && (!p->recorded || new_process)) {
        p->from_exec = (fact->flags & LO2_FACT_TASK_FROM_EXEC) != 0;
        p->recorded = !p->from_exec;
    }
    if (fact->flags & LO2_FACT_TASK_COMPAT && p->command_since < begin) /* else it may be about the program before the exec */
        count_compat(e, t);
    return p;
}
