/* Threads and processes: who is recorded, who shares which table of descriptors. */
#include "tables/descriptors.h"
#include "tables/tasks.h"
#include "tables/texts.h"

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

uint32_t process_new(engine *e, uint32_t pid, uint32_t ppid, uint32_t parent_number)
{
    uint32_t index;
    TAKE(e, free_processes, processes, index);
    if (index == NONE)
        return NONE;
    e->processes.at[index] = (process){.number = e->next_process++, .pid = pid, .ppid = ppid,
                                       .parent_number = parent_number, .oldest = NONE, .newest = NONE,
                                       .cgroup = NONE, .cgroup_since = UNKNOWN, .command = NONE,
                                       .command_since = UNKNOWN, .rank = NONE};
    e->process_by_pid[pid] = index + 1;
    return index;
}

uint32_t task_new(engine *e, uint32_t process_index, uint32_t tid, uint32_t table, int64_t start, const char *comm)
{
    uint32_t index;
    TAKE(e, free_tasks, tasks, index);
    if (index == NONE)
        return NONE;
    task *t = &e->tasks.at[index];
    process *p = &e->processes.at[process_index];
    *t = (task){.number = e->next_task++, .process = process_index, .tid = tid, .table = table, .start = start,
                .older = p->newest, .newer = NONE, .alive = true, .exec_exit = UNKNOWN};
    memset(&t->usage, 0xff, sizeof t->usage);
    if (comm)
        memcpy(t->comm, comm, sizeof t->comm);
    *(p->newest == NONE ? &p->oldest : &e->tasks.at[p->newest].newer) = index;
    p->newest = index;
    p->nr_tasks++;
    e->task_by_tid[tid] = index + 1;
    return index;
}

static void leave_process(engine *e, const task *t)
{
    process *p = &e->processes.at[t->process];
    *(t->older == NONE ? &p->oldest : &e->tasks.at[t->older].newer) = t->newer;
    *(t->newer == NONE ? &p->newest : &e->tasks.at[t->newer].older) = t->older;
    p->nr_tasks--;
}

bool task_remove(engine *e, task *t, int64_t time)
{
    uint32_t index = (uint32_t)(t - e->tasks.at), process_index = t->process;
    if (e->task_by_tid[t->tid] == index + 1)
        e->task_by_tid[t->tid] = 0;
    t->alive = false;
    table_release(e, t->table, time);
    leave_process(e, t);
    GIVE_BACK(e, free_tasks, index);
    return !e->processes.at[process_index].nr_tasks;
}

void process_remove(engine *e, uint32_t index)
{
    const process *p = &e->processes.at[index];
    if (e->process_by_pid[p->pid] == index + 1)
        e->process_by_pid[p->pid] = 0;
    text_release(e, p->cgroup);
    text_release(e, p->command);
    GIVE_BACK(e, free_processes, index);
}

void task_lives(task *t)
{
    t->in_exec = false;
    t->exec_exit = UNKNOWN;
}

void on_kernel_usage(task *t, const uint8_t *record) { memcpy(&t->usage, record, sizeof t->usage); }

/* In all_tasks mode, all processes are recorded but lo2io's own: the recorder, and those that it makes from now on. */
bool is_recorded_by_default(const engine *e, uint32_t pid)
{
    for (uint32_t i = 0; i < e->config.nr_own_pids; i++)
        if (pid == e->config.own_pids[i])
            return false;
    return e->config.all_tasks && pid != e->config.recorder_pid;
}

uint32_t recorded_number(engine *e, uint32_t pid)
{
    uint32_t index = process_of(e, pid);
    return index != NONE && e->processes.at[index].recorded ? e->processes.at[index].number : NONE;
}

uint32_t task_adopt(engine *e, uint32_t pid, uint32_t tid, uint32_t ppid, const char *comm)
{
    uint32_t process_index = process_of(e, pid), table = NONE;
    if (process_index != NONE) {
        table = e->tasks.at[e->processes.at[process_index].oldest].table;
        e->tables.at[table].refs++;
    }
    if (table == NONE && (table = table_new(e, UNKNOWN)) == NONE)
        return NONE;
    if (process_index == NONE) {
        process_index = process_new(e, pid, ppid, recorded_number(e, ppid));
        if (process_index == NONE)
            return NONE;
        e->processes.at[process_index].recorded = is_recorded_by_default(e, pid);
    }
    return task_new(e, process_index, tid, table, UNKNOWN, comm);
}

task *task_for_sample(engine *e, uint32_t tid)
{
    task *t = task_of(e, tid);
    if (t || !e->config.all_tasks || tid >= TID_LIMIT || tid == 0)
        return t;
    uint32_t pid = e->pid_by_tid[tid] ? e->pid_by_tid[tid] - 1 : tid;
    uint32_t index = task_adopt(e, pid, tid, NONE, NULL);
    return index == NONE ? NULL : &e->tasks.at[index];
}

/* Notes which process a thread belongs to. A thread can do something shortly before its first fact has its turn. */
void note_pid(engine *e, const lo2_fact_task *fact)
{
    if (fact->tid < TID_LIMIT && fact->pid < TID_LIMIT && !e->pid_by_tid[fact->tid])
        e->pid_by_tid[fact->tid] = fact->pid + 1;
}

/* The task whose table /proc/PID/fd shows: the leader, or any thread if the leader is gone. */
task *task_for_fact(engine *e, uint32_t pid)
{
    uint32_t process_index = process_of(e, pid);
    task *leader = task_of(e, pid);
    if (process_index == NONE || (leader && leader->process == process_index))
        return process_index == NONE ? NULL : leader;
    return &e->tasks.at[e->processes.at[process_index].oldest];
}
