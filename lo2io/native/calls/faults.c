/*
 * Page faults of mapped files that needed I/O. One outside of calls is a row of operations, too: a read of its page. One inside of
 * a recorded call is part of that call's time.
 */
#include "calls/calls.h"
#include "calls/faults.h"
#include "tables/inodes.h"
#include "tables/tasks.h"

enum { MOST_SLOTS = 4096 }; /* descriptors among which the mapping's own is sought */

/* A descriptor of the thread's that is open on the file; NONE: it was closed, as most programs do once the file is mapped. */
static uint32_t handle_on(engine *e, const task *t, const lo2_kernel_fault *fault)
{
    const fd_table *table = &e->tables.at[t->table];
    uint32_t count = table->slots.count < MOST_SLOTS ? table->slots.count : MOST_SLOTS;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t handle = table->slots.at[i].handle;
        const description *d = handle == NONE ? NULL : description_of(e, handle);
        if (d && d->has_identity && d->inode == fault->inode && d->device == fault->device &&
            d->generation == fault->generation)
            return handle;
    }
    return NONE;
}

static uint64_t operation_of(engine *e, task *t, const lo2_kernel_fault *fault, uint16_t cpu, int64_t time)
{
    beside read = {
        .call = e->config.fault_call, .cpu = cpu, .begin = (int64_t)fault->begin_ns, .end = time,
        .offset = (int64_t)(fault->page * fault->page_bytes), .bytes = fault->page_bytes, .handle = handle_on(e, t, fault),
    };
    return call_beside(e, t, &read);
}

void on_kernel_fault(engine *e, const uint8_t *record, uint32_t length, uint16_t cpu, int64_t time)
{
    lo2_kernel_fault fault;
    if (length < sizeof fault) {
        e->totals.nr_undecoded++;
        return;
    }
    memcpy(&fault, record, sizeof fault);
    task *t = task_for_sample(e, fault.head.tid);
    if (!t || !is_recorded(e, t))
        return;
    task_lives(t);
    if (!ROW_ROOM(e, e->fault_queue)) {
        e->out_of_memory = true;
        return;
    }
    bool known = fault.begin_ns && fault.mode;
    fault_row *row = &e->fault_queue.at[e->fault_queue.count++];
    *row = (fault_row){
        .record = fault, .task = t->number, .end = time, .inside = t->pending.active, .known = known,
        .file = known ? inode_file(e, fault.device, fault.inode, fault.generation) : NONE,
        .operation = known && !t->pending.active ? operation_of(e, t, &fault, cpu, time) : 0,
    };
}

bool faults_flush(engine *e)
{
    lo2_fault_columns *c = &e->batch->faults;
    for (; e->faults_out < e->fault_queue.count; e->faults_out++) {
        const fault_row *f = &e->fault_queue.at[e->faults_out];
        uint32_t row = e->batch->nr_faults;
        if (row == e->batch->capacity)
            return false;
        c->operation[row] = f->operation;
        c->inside[row] = f->inside;
        c->task[row] = f->task;
        c->tid[row] = f->record.head.tid;
        c->begin_time_ns[row] = f->known ? (int64_t)f->record.begin_ns : UNKNOWN;
        c->end_time_ns[row] = f->end;
        c->address[row] = f->record.address;
        c->device[row] = f->record.device;
        c->inode[row] = f->record.inode;
        c->generation[row] = f->known ? (int64_t)f->record.generation : UNKNOWN;
        c->file[row] = f->file;
        c->offset_bytes[row] = f->known ? (int64_t)(f->record.page * f->record.page_bytes) : UNKNOWN;
        e->batch->nr_faults++;
    }
    e->fault_queue.count = e->faults_out = 0;
    return true;
}

void faults_free(engine *e) { free(e->fault_queue.at); }
