/* Threads and processes: who is recorded, who shares which fd table. */
#include "engine.h"

enum { CLONE_FILES_FLAG = 0x400 }; /* include/uapi/linux/sched.h */

task *task_of(engine *e, uint32_t tid)
{
    if (tid >= TID_LIMIT || !e->task_by_tid[tid])
        return NULL;
    return &e->tasks.at[e->task_by_tid[tid] - 1];
}

uint32_t process_of(engine *e, uint32_t pid)
{
    return pid < TID_LIMIT && e->process_by_pid[pid] ? e->process_by_pid[pid] - 1 : NONE;
}

static uint32_t process_new(engine *e, uint32_t pid, uint32_t ppid, uint32_t parent_number, uint32_t table)
{
    uint32_t index;
    TAKE(e, free_processes, processes, index);
    if (index == NONE)
        return NONE;
    e->processes.at[index] = (process){.number = e->next_process++, .pid = pid, .ppid = ppid,
                                       .parent_number = parent_number, .table = table};
    e->process_by_pid[pid] = index + 1;
    return index;
}

static uint32_t task_new(engine *e, uint32_t process_index, uint32_t tid, int64_t start, const char *comm)
{
    uint32_t index;
    TAKE(e, free_tasks, tasks, index);
    if (index == NONE)
        return NONE;
    task *t = &e->tasks.at[index];
    *t = (task){.number = e->next_task++, .process = process_index, .tid = tid, .start = start, .alive = true};
    if (comm)
        memcpy(t->comm, comm, sizeof t->comm);
    e->processes.at[process_index].nr_tasks++;
    e->task_by_tid[tid] = index + 1;
    return index;
}

static void queue_task_row(engine *e, const task *t, int64_t exit)
{
    const process *p = &e->processes.at[t->process];
    if (!VEC_ROOM(&e->task_queue, e->task_queue.count + 1)) {
        e->out_of_memory = true;
        return;
    }
    task_row *row = &e->task_queue.at[e->task_queue.count++];
    *row = (task_row){t->number, p->number, p->pid, t->tid, p->ppid, p->parent_number, t->start, exit, {0}};
    memcpy(row->comm, t->comm, sizeof row->comm);
}

/* The last thread of a process is gone: its fd table goes, too. */
static void process_end(engine *e, uint32_t index, int64_t time)
{
    process *p = &e->processes.at[index];
    table_release(e, p->table, time);
    if (e->process_by_pid[p->pid] == index + 1)
        e->process_by_pid[p->pid] = 0;
    if (VEC_ROOM(&e->free_processes, e->free_processes.count + 1))
        e->free_processes.at[e->free_processes.count++] = index;
}

void task_write_end(engine *e, task *t, int64_t time)
{
    uint32_t index = (uint32_t)(t - e->tasks.at), process_index = t->process;
    call_abandon(e, t, time);
    if (e->processes.at[process_index].recorded)
        queue_task_row(e, t, time);
    if (e->task_by_tid[t->tid] == index + 1)
        e->task_by_tid[t->tid] = 0;
    t->alive = false;
    if (VEC_ROOM(&e->free_tasks, e->free_tasks.count + 1))
        e->free_tasks.at[e->free_tasks.count++] = index;
    if (--e->processes.at[process_index].nr_tasks == 0)
        process_end(e, process_index, time);
}

void on_task_exit(engine *e, int64_t time, uint32_t tid)
{
    task *t = task_of(e, tid);
    if (t)
        task_write_end(e, t, time);
}

/* A tid or pid that comes again ended unseen: its EXIT was lost. */
static void forget_old(engine *e, uint32_t tid)
{
    task *old = task_of(e, tid);
    if (old)
        task_write_end(e, old, UNKNOWN);
}

void on_fork(engine *e, int64_t time, uint32_t pid, uint32_t tid, uint32_t ptid)
{
    task *parent = task_of(e, ptid);
    if (tid >= TID_LIMIT || pid >= TID_LIMIT || (!parent && !e->config.all_tasks))
        return;
    forget_old(e, tid);
    parent = task_of(e, ptid);
    char comm[16] = {0};
    if (parent)
        memcpy(comm, parent->comm, sizeof comm);
    uint32_t process_index = parent ? parent->process : NONE;
    if (process_index == NONE || e->processes.at[process_index].pid != pid) {
        uint32_t parent_number = NONE, ppid = 0, table;
        bool recorded = e->config.all_tasks;
        if (parent) {
            process *p = &e->processes.at[process_index];
            bool shares = parent->pending.active && (parent->pending.flags & CLONE_FILES_FLAG) &&
                          e->calls[parent->pending.call].kind == LO2_CALL_CLONE;
            parent_number = p->recorded ? p->number : NONE;
            ppid = p->pid;
            recorded = p->recorded;
            table = shares ? p->table : table_copy(e, p->table);
            if (shares)
                e->tables.at[table].refs++;
        } else {
            table = table_new(e);
        }
        if (table == NONE)
            return;
        process_index = process_new(e, pid, ppid, parent_number, table);
        if (process_index == NONE)
            return;
        e->processes.at[process_index].recorded = recorded;
    }
    task_new(e, process_index, tid, time, comm);
}

static uint32_t adopt(engine *e, uint32_t pid, uint32_t tid, uint32_t ppid, const char *comm)
{
    uint32_t process_index = process_of(e, pid);
    if (process_index == NONE) {
        uint32_t table = table_new(e);
        process_index = table == NONE ? NONE : process_new(e, pid, ppid, NONE, table);
        if (process_index == NONE)
            return NONE;
        e->processes.at[process_index].recorded = e->config.all_tasks;
    }
    return task_new(e, process_index, tid, UNKNOWN, comm);
}

task *task_for_sample(engine *e, uint32_t tid, int64_t time)
{
    (void)time;
    task *t = task_of(e, tid);
    if (t || !e->config.all_tasks || tid >= TID_LIMIT || tid == 0)
        return t;
    uint32_t index = adopt(e, tid, tid, 0, NULL);
    return index == NONE ? NULL : &e->tasks.at[index];
}

/* exec by a thread that is not the leader: the kernel gives it the leader's tid (de_thread, fs/exec.c). */
static task *take_over_leader(engine *e, uint32_t pid, int64_t time)
{
    uint32_t process_index = process_of(e, pid);
    if (process_index == NONE)
        return NULL;
    for (uint32_t i = 0; i < e->tasks.count; i++) {
        if (!e->tasks.at[i].alive || e->tasks.at[i].process != process_index)
            continue;
        char comm[16];
        memcpy(comm, e->tasks.at[i].comm, sizeof comm);
        pending_call pending = e->tasks.at[i].pending;
        e->tasks.at[i].pending.active = false;
        uint32_t index = task_new(e, process_index, pid, time, comm);
        if (index == NONE)
            return NULL;
        e->tasks.at[index].pending = pending;
        task_write_end(e, &e->tasks.at[i], time);
        return &e->tasks.at[index];
    }
    return NULL;
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
    if (!exec)
        return;
    process *p = &e->processes.at[t->process];
    bool first = p->from_exec; /* what was open only until here was the recorder's business */
    if (first) {
        p->from_exec = false;
        p->recorded = true;
        t->start = time;
    }
    table_exec(e, p, t->number, time, first);
}

void on_task_fact(engine *e, int64_t time, const lo2_fact_task *fact)
{
    if (fact->tid >= TID_LIMIT || fact->pid >= TID_LIMIT)
        return;
    task *t = task_of(e, fact->tid);
    if (!t) {
        bool wanted = e->config.all_tasks || (fact->flags & LO2_FACT_TASK_SELECT) || process_of(e, fact->pid) != NONE;
        if (!wanted)
            return;
        uint32_t index = adopt(e, fact->pid, fact->tid, fact->ppid, fact->comm);
        if (index == NONE)
            return;
        t = &e->tasks.at[index];
    }
    process *p = &e->processes.at[t->process];
    if ((fact->flags & LO2_FACT_TASK_SELECT) && !p->recorded) {
        p->from_exec = (fact->flags & LO2_FACT_TASK_FROM_EXEC) != 0;
        p->recorded = !p->from_exec;
    }
}
