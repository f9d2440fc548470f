/* Puts rows into a batch. Rows that may come in floods (handles, tasks) wait in queues. */
#include "tables/rows.h"
#include "tables/texts.h"

bool batch_has_room(const engine *e)
{
    const lo2_batch *b = e->batch;
    return b->nr_operations + 1 < b->capacity && b->nr_batches + 1 < b->capacity && b->nr_requests + 2 < b->capacity &&
           b->nr_request_events + 4 < b->capacity && b->nr_losses + 1 < b->capacity &&
           b->nr_completions + 1 < b->capacity && b->nr_switches + 1 < b->capacity &&
           b->nr_off_cpu + 4 < b->capacity;
}

/* No record gives more than 4 rows of a table. */
uint32_t batch_records_fit(const engine *e)
{
    const lo2_batch *b = e->batch;
    const uint32_t used[] = {b->nr_operations, b->nr_batches, b->nr_requests, b->nr_request_events, b->nr_losses,
                             b->nr_completions, b->nr_switches, b->nr_off_cpu};
    uint32_t most = 0;
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        most = used[i] > most ? used[i] : most;
    return most + 4 < b->capacity ? (b->capacity - most - 1) / 4 : batch_has_room(e);
}

static void queue_event(engine *e, handle_event_row row)
{
    if (!ROW_ROOM(e, e->event_queue)) {
        e->out_of_memory = true;
        return;
    }
    e->event_queue.at[e->event_queue.count++] = row;
}

void emit_handle_event(engine *e, int64_t time, uint32_t task_number, uint32_t handle_number)
{
    queue_event(e, (handle_event_row){e->nr_operations, time, task_number, handle_number, 0, 0});
}

void emit_flags_event(engine *e, int64_t time, uint32_t task_number, uint32_t handle_number, uint32_t flags)
{
    queue_event(e, (handle_event_row){e->nr_operations, time, task_number, handle_number, 1, flags});
}

uint32_t emit_operation(engine *e)
{
    uint32_t row = e->batch->nr_operations++;
    e->nr_operations++;
    e->batch->operations.id[row] = e->next_id++;
    return row;
}

void emit_task(engine *e, const task *t, uint8_t kind, int64_t exit)
{
    const process *p = &e->processes.at[t->process];
    if (!ROW_ROOM(e, e->task_queue)) {
        e->out_of_memory = true;
        return;
    }
    task_row *row = &e->task_queue.at[e->task_queue.count++];
    *row = (task_row){t->number, p->number, p->pid, t->tid, p->ppid, p->parent_number, t->start, exit, {0},
                      text_keep(e, p->cgroup), text_keep(e, p->command), p->rank, kind, p->command_cut, t->usage};
    memcpy(row->comm, t->comm, sizeof row->comm);
}

static bool write_text(lo2_batch *b, const char *text, uint32_t length, uint32_t *offset)
{
    if (b->text_capacity - b->text_length < length)
        return false;
    memcpy(b->text + b->text_length, text, length);
    *offset = b->text_length;
    b->text_length += length;
    return true;
}

bool paths_flush(engine *e)
{
    lo2_batch *b = e->batch;
    for (; e->paths_out < e->path_queue.count; e->paths_out++) {
        path_row *p = &e->path_queue.at[e->paths_out];
        uint32_t row = b->nr_paths, offset;
        if (row == b->capacity || !write_text(b, p->texts, p->path_length + p->directory_length, &offset))
            return false;
        b->paths.operation[row] = p->operation;
        b->paths.place[row] = p->place;
        b->paths.source[row] = p->source;
        b->paths.path_offset[row] = offset;
        b->paths.path_length[row] = p->path_length;
        b->paths.directory_offset[row] = offset + p->path_length;
        b->paths.directory_length[row] = p->directory_length;
        b->nr_paths++;
        free(p->texts);
        p->texts = NULL;
    }
    e->path_queue.count = e->paths_out = 0;
    return true;
}

static bool flush_files(engine *e)
{
    lo2_batch *b = e->batch;
    for (; e->files_out < e->file_queue.count; e->files_out++) {
        file_row *f = &e->file_queue.at[e->files_out];
        uint32_t row = b->nr_files, offset;
        if (row == b->capacity || !write_text(b, f->path, f->facts.path_length, &offset))
            return false;
        b->files.file[row] = f->file;
        b->files.mode[row] = f->facts.mode;
        b->files.device[row] = f->facts.device;
        b->files.inode[row] = f->facts.inode;
        b->files.generation[row] = f->facts.generation;
        b->files.links[row] = f->facts.links;
        b->files.mount[row] = f->facts.mount;
        b->files.name_source[row] = f->facts.source;
        b->files.path_offset[row] = offset;
        b->files.path_length[row] = f->facts.path_length;
        b->nr_files++;
        free(f->path);
        f->path = NULL;
    }
    e->file_queue.count = e->files_out = 0;
    return true;
}

static bool flush_handles(engine *e)
{
    lo2_batch *b = e->batch;
    for (; e->handles_out < e->handle_queue.count; e->handles_out++) {
        const handle_row *h = &e->handle_queue.at[e->handles_out];
        uint32_t row = b->nr_handles;
        if (row == b->capacity)
            return false;
        b->handles.handle[row] = h->handle;
        b->handles.process[row] = h->process;
        b->handles.task[row] = h->task;
        b->handles.fd[row] = h->fd;
        b->handles.origin[row] = h->origin;
        b->handles.name_source[row] = h->name_source;
        b->handles.close_on_exec[row] = h->cloexec;
        b->handles.used[row] = h->used;
        b->handles.parent[row] = h->parent;
        b->handles.description[row] = h->description;
        b->handles.file[row] = h->file;
        b->handles.open_flags[row] = h->open_flags;
        b->handles.open_time_ns[row] = h->open_time;
        b->handles.close_time_ns[row] = h->close_time;
        b->nr_handles++;
    }
    e->handle_queue.count = e->handles_out = 0;
    return true;
}

static bool flush_events(engine *e)
{
    lo2_batch *b = e->batch;
    for (; e->events_out < e->event_queue.count; e->events_out++) {
        const handle_event_row *h = &e->event_queue.at[e->events_out];
        uint32_t row = b->nr_handle_events;
        if (row == b->capacity)
            return false;
        b->handle_events.before[row] = h->before;
        b->handle_events.time_ns[row] = h->time;
        b->handle_events.task[row] = h->task;
        b->handle_events.handle[row] = h->handle;
        b->handle_events.kind[row] = h->kind;
        b->handle_events.flags[row] = h->flags;
        b->nr_handle_events++;
    }
    e->event_queue.count = e->events_out = 0;
    return true;
}

static int64_t told(uint64_t value) { return value > INT64_MAX ? UNKNOWN : (int64_t)value; }

/*
 * What a thread has used. CPU time is divided into user and system time in proportion to the ticks, as the kernel does
 * it (cputime_adjust, kernel/sched/cputime.c).
 */
static void row_of_usage(lo2_batch *b, uint32_t row, const lo2_kernel_usage *used)
{
    double ticks = (double)used->user + (double)used->system;
    int64_t cpu = told(used->cpu_ns), system = UNKNOWN, user = UNKNOWN;
    if (cpu != UNKNOWN) {
        double part = ticks > 0 ? (double)cpu * ((double)used->system / ticks) : 0;
        system = part < (double)cpu ? (int64_t)part : cpu;
        user = cpu - system;
    }
    b->tasks.cpu_ns[row] = cpu;
    b->tasks.user_ns[row] = user;
    b->tasks.system_ns[row] = system;
    b->tasks.block_delay_ns[row] = told(used->block_delay_ns);
    b->tasks.major_faults[row] = told(used->major_faults);
    b->tasks.minor_faults[row] = told(used->minor_faults);
    b->tasks.voluntary_switches[row] = told(used->voluntary);
    b->tasks.involuntary_switches[row] = told(used->involuntary);
}

static bool flush_tasks(engine *e)
{
    lo2_batch *b = e->batch;
    for (; e->tasks_out < e->task_queue.count; e->tasks_out++) {
        const task_row *t = &e->task_queue.at[e->tasks_out];
        const shared_text *cgroup = t->cgroup == NONE ? NULL : &e->texts.at[t->cgroup];
        const shared_text *command = t->command == NONE ? NULL : &e->texts.at[t->command];
        uint32_t row = b->nr_tasks, offset, length = (uint32_t)strnlen(t->comm, sizeof t->comm), cgroup_offset = 0;
        uint32_t command_offset = 0;
        if (row == b->capacity || !write_text(b, t->comm, length, &offset) ||
            (cgroup && !write_text(b, cgroup->text, cgroup->length, &cgroup_offset)) ||
            (command && !write_text(b, command->text, command->length, &command_offset)))
            return false;
        b->tasks.task[row] = t->task;
        b->tasks.process[row] = t->process;
        b->tasks.pid[row] = t->pid;
        b->tasks.tid[row] = t->tid;
        b->tasks.ppid[row] = t->ppid;
        b->tasks.parent_process[row] = t->parent_process;
        b->tasks.start_time_ns[row] = t->start;
        b->tasks.exit_time_ns[row] = t->exit;
        b->tasks.comm_offset[row] = offset;
        b->tasks.comm_length[row] = length;
        b->tasks.cgroup_offset[row] = cgroup_offset;
        b->tasks.cgroup_length[row] = cgroup ? cgroup->length : 0;
        b->tasks.cmdline_offset[row] = command_offset;
        b->tasks.cmdline_length[row] = command ? command->length : 0;
        b->tasks.cmdline_cut[row] = t->command_cut;
        b->tasks.rank[row] = t->rank;
        b->tasks.kind[row] = t->kind;
        row_of_usage(b, row, &t->usage);
        b->nr_tasks++;
        text_release(e, t->cgroup);
        text_release(e, t->command);
    }
    e->task_queue.count = e->tasks_out = 0;
    return true;
}

bool tables_flush(engine *e)
{
    bool waiting = e->path_queue.count || e->file_queue.count || e->handle_queue.count || e->event_queue.count ||
                   e->task_queue.count;
    return !waiting || (paths_flush(e) && flush_files(e) && flush_handles(e) && flush_events(e) && flush_tasks(e));
}
