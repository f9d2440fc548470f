/* Threads and processes: who is recorded, who shares which fd table. */
#include "rings/rings.h"

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

static uint32_t process_new(engine *e, uint32_t pid, uint32_t ppid, uint32_t parent_number)
{
    uint32_t index;
    TAKE(e, free_processes, processes, index);
    if (index == NONE)
        return NONE;
    e->processes.at[index] = (process){.number = e->next_process++, .pid = pid, .ppid = ppid,
                                       .parent_number = parent_number, .oldest = NONE, .newest = NONE,
                                       .cgroup = NONE, .cgroup_since = UNKNOWN, .command = NONE,
                                       .command_since = UNKNOWN};
    e->process_by_pid[pid] = index + 1;
    return index;
}

/* The table's reference goes to the task. */
static uint32_t task_new(engine *e, uint32_t process_index, uint32_t tid, uint32_t table, int64_t start,
                         const char *comm)
{
    uint32_t index;
    TAKE(e, free_tasks, tasks, index);
    if (index == NONE)
        return NONE;
    task *t = &e->tasks.at[index];
    process *p = &e->processes.at[process_index];
    *t = (task){.number = e->next_task++, .process = process_index, .tid = tid, .table = table, .start = start,
                .older = p->newest, .newer = NONE, .alive = true, .exec_exit = UNKNOWN, .usage = USAGE_UNKNOWN};
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

static void queue_task_row(engine *e, const task *t, int64_t exit)
{
    const process *p = &e->processes.at[t->process];
    if (!VEC_ROOM(&e->task_queue, e->task_queue.count + 1)) {
        e->out_of_memory = true;
        return;
    }
    task_row *row = &e->task_queue.at[e->task_queue.count++];
    *row = (task_row){t->number, p->number, p->pid, t->tid, p->ppid, p->parent_number, t->start, exit, {0},
                      text_keep(e, p->cgroup), text_keep(e, p->command), task_kind(t), p->command_cut, t->usage};
    memcpy(row->comm, t->comm, sizeof row->comm);
}

static void process_end(engine *e, uint32_t index)
{
    const process *p = &e->processes.at[index];
    if (e->process_by_pid[p->pid] == index + 1)
        e->process_by_pid[p->pid] = 0;
    text_release(e, p->cgroup);
    text_release(e, p->command);
    GIVE_BACK(e, free_processes, index);
}

void task_write_end(engine *e, task *t, int64_t time)
{
    uint32_t index = (uint32_t)(t - e->tasks.at), process_index = t->process;
    if (e->rings)
        ring_thread_moved_on(e, t, e->totals.last_time_ns);
    if (t->ring_worker)
        ring_worker_exited(e, t);
    call_abandon(e, t, time);
    if (t->held)
        kernel_facts_due(e, t);
    if (t->iocbs)
        iocbs_drop(e, t);
    ring_thread_ended(e, t, e->totals.last_time_ns);
    if (is_recorded(e, t))
        queue_task_row(e, t, time);
    if (e->task_by_tid[t->tid] == index + 1)
        e->task_by_tid[t->tid] = 0;
    t->alive = false;
    table_release(e, t->table, time);
    leave_process(e, t);
    GIVE_BACK(e, free_tasks, index);
    if (e->processes.at[process_index].nr_tasks)
        return;
    if (e->processes.at[process_index].rings)
        ring_abandon_all(e, process_index, time);
    process_end(e, process_index);
}

/*
 * An EXIT right behind the COMM of an exec need not be an end. If the program gets other rights than its caller (set-uid,
 * set-gid, file capabilities) or may not be read by it, exec ends the perf events of the task, which writes an EXIT, and
 * the task lives on (begin_new_exec in fs/exec.c, perf_event_exit_task). What comes next tells: task_lives(), or nothing.
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
        task_write_end(e, t, time);
}

void task_lives(task *t)
{
    t->in_exec = false;
    t->exec_exit = UNKNOWN;
}

void task_end_unseen(engine *e, task *t)
{
    e->totals.nr_gone_in_exec += t->exec_exit != UNKNOWN && is_recorded(e, t);
    task_write_end(e, t, t->exec_exit);
}

static int64_t told(uint64_t value) { return value > INT64_MAX ? UNKNOWN : (int64_t)value; }

/* The kernel tells user from system time as cputime_adjust does (kernel/sched/cputime.c): in the proportion of the ticks. */
void on_kernel_usage(task *t, const uint8_t *record)
{
    lo2_kernel_usage told_of;
    memcpy(&told_of, record, sizeof told_of);
    double ticks = (double)told_of.user + (double)told_of.system;
    int64_t cpu = told(told_of.cpu_ns), system = UNKNOWN, user = UNKNOWN;
    if (cpu != UNKNOWN) {
        double part = ticks > 0 ? (double)cpu * ((double)told_of.system / ticks) : 0;
        system = part < (double)cpu ? (int64_t)part : cpu;
        user = cpu - system;
    }
    t->usage = (task_usage){cpu, user, system, told(told_of.block_delay_ns), told(told_of.major_faults),
                            told(told_of.voluntary), told(told_of.involuntary)};
}

/* A tid or pid that comes again ended unseen. */
static void forget_old(engine *e, uint32_t tid)
{
    task *old = task_of(e, tid);
    if (old)
        task_end_unseen(e, old);
}

/*
 * Whether a process that nothing selects is recorded. In all_tasks mode the ones that are not are lo2io's own: the
 * recorder, and by inheritance what is forked by it from now on.
 */
static bool by_default(const engine *e, uint32_t pid)
{
    for (uint32_t i = 0; i < e->config.nr_own_pids; i++)
        if (pid == e->config.own_pids[i])
            return false;
    return e->config.all_tasks && pid != e->config.recorder_pid;
}

/* A process whose FORK is seen, of a parent thread that is not known. */
static bool born_recorded(engine *e, uint32_t pid, uint32_t ppid)
{
    uint32_t parent = process_of(e, ppid);
    return by_default(e, pid) && ppid != e->config.recorder_pid && (parent == NONE || e->processes.at[parent].recorded);
}

/* A child process's table: the parent's itself if it called clone with CLONE_FILES, else a copy. */
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
    char comm[16] = {0};
    if (parent) {
        task_lives(parent);
        memcpy(comm, parent->comm, sizeof comm);
    }
    uint32_t process_index = parent ? parent->process : NONE, table;
    if (!parent && pid == ppid) /* a new thread, made by one that is not known: its process may be */
        process_index = process_of(e, pid);
    if (process_index == NONE && !e->config.all_tasks)
        return;
    if (process_index != NONE && e->processes.at[process_index].pid == pid) {
        table = parent ? parent->table : e->tasks.at[e->processes.at[process_index].oldest].table;
        e->tables.at[table].refs++;
    } else {
        process from = {.number = NONE, .cgroup = NONE, .cgroup_since = UNKNOWN, .command = NONE, .command_since = UNKNOWN};
        if (parent)
            from = e->processes.at[process_index];
        table = table_of_child(e, parent, time);
        process_index = table == NONE ? NONE : process_new(e, pid, ppid, from.recorded ? from.number : NONE);
        if (process_index == NONE)
            return;
        process *child = &e->processes.at[process_index];
        child->recorded = parent ? from.recorded : born_recorded(e, pid, ppid);
        child->from_exec = from.from_exec;
        child->cgroup = text_keep(e, from.cgroup);
        child->hierarchy = from.hierarchy;
        child->cgroup_since = from.cgroup_since;
        child->command = text_keep(e, from.command);
        child->command_cut = from.command_cut;
        child->command_since = from.command_since;
        child->fresh = true;
        if (parent)
            e->processes.at[parent->process].nr_forks++;
    }
    uint32_t index = task_new(e, process_index, tid, table, time, comm);
    task *maker = task_of(e, ptid);
    if (index != NONE && maker && maker->process == process_index)
        ring_thread_born(e, &e->tasks.at[index], maker, time);
}

static uint32_t recorded_number(engine *e, uint32_t pid)
{
    uint32_t index = process_of(e, pid);
    return index != NONE && e->processes.at[index].recorded ? e->processes.at[index].number : NONE;
}

/* A task known from a fact or a sample only. */
static uint32_t adopt(engine *e, uint32_t pid, uint32_t tid, uint32_t ppid, const char *comm)
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
        e->processes.at[process_index].recorded = by_default(e, pid);
    }
    return task_new(e, process_index, tid, table, UNKNOWN, comm);
}

task *task_for_sample(engine *e, uint32_t tid)
{
    task *t = task_of(e, tid);
    if (t || !e->config.all_tasks || tid >= TID_LIMIT || tid == 0)
        return t;
    uint32_t pid = e->pid_by_tid[tid] ? e->pid_by_tid[tid] - 1 : tid;
    uint32_t index = adopt(e, pid, tid, NONE, NULL);
    return index == NONE ? NULL : &e->tasks.at[index];
}

/* exec by a thread that is not the leader: the kernel gives it the leader's tid (de_thread, fs/exec.c). */
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
    gone->pending.active = false;
    gone->held = gone->held_last = 0;
    task_write_end(e, &e->tasks.at[caller], time);
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
    command_ends(e, p, time);
    if (p->from_exec) {
        p->from_exec = false;
        p->recorded = true;
        t->start = time;
    }
    table_exec(e, t, time);
}

/* What the facts will tell of threads: one may be seen at work shortly before its first fact has its turn. */
void note_pid(engine *e, const lo2_fact_task *fact)
{
    if (fact->tid < TID_LIMIT && fact->pid < TID_LIMIT && !e->pid_by_tid[fact->tid])
        e->pid_by_tid[fact->tid] = fact->pid + 1;
}

process *on_task_fact(engine *e, const lo2_fact_task *fact, int64_t begin)
{
    if (fact->tid >= TID_LIMIT || fact->pid >= TID_LIMIT)
        return NULL;
    if (e->exit_by_tid[fact->tid] && e->exit_by_tid[fact->tid] >= begin)
        return NULL; /* it exited while /proc was being read */
    task *t = task_of(e, fact->tid);
    bool selects = fact->flags & LO2_FACT_TASK_SELECT, new_process = process_of(e, fact->pid) == NONE;
    if (!t) {
        bool wanted = e->config.all_tasks || selects || !new_process;
        uint32_t index = wanted ? adopt(e, fact->pid, fact->tid, fact->ppid, fact->comm) : NONE;
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
    return p;
}

/* Whose table /proc/PID/fd shows: the leader's, or any thread's if the leader is gone. */
task *task_for_fact(engine *e, uint32_t pid)
{
    uint32_t process_index = process_of(e, pid);
    task *leader = task_of(e, pid);
    if (process_index == NONE || (leader && leader->process == process_index))
        return process_index == NONE ? NULL : leader;
    return &e->tasks.at[e->processes.at[process_index].oldest];
}
