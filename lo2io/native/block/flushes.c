/*
 * Who asked for a flush. A bio that wants the disk's cache emptied names its thread. A kernel thread issues the flush
 * later, for all bios that have asked since the last one. By then the thread may have ended, and its tid may be
 * another's. So the bio keeps what the thread was.
 */
#include "block/flushes.h"
#include "tables/tasks.h"

enum { MOST_FLUSH_BIOS = 4096 }; /* bounds the memory, for some devices never issue a flush (device mapper) */

uint32_t disk_of(const engine *e, uint32_t device)
{
    for (uint32_t i = 0; i < e->config.nr_partitions; i++)
        if (e->config.partitions[i].partition == device)
            return e->config.partitions[i].disk;
    return device;
}

submitter submitter_of(engine *e, uint32_t tid)
{
    const task *t = task_of(e, tid);
    if (!t)
        return (submitter){.task = NONE, .tid = tid};
    return (submitter){.task = t->number, .task_index = (uint32_t)(t - e->tasks.at), .tid = tid,
                       .pid = e->processes.at[t->process].pid, .recorded = is_recorded(e, t)};
}

task *submitter_alive(engine *e, const submitter *who)
{
    task *t = who->task == NONE ? NULL : &e->tasks.at[who->task_index];
    return t && t->alive && t->number == who->task ? t : NULL;
}

bool submitter_is_recorded(engine *e, const submitter *who)
{
    const task *t = submitter_alive(e, who);
    return t ? is_recorded(e, t) : who->recorded;
}

void flush_wanted(engine *e, const block_sample *s, uint32_t tid)
{
    request_set *set = &e->requests;
    if (!(s->flags & LO2_RQ_PREFLUSH))
        return;
    if (set->flush_bios.count == MOST_FLUSH_BIOS) { /* forgets the older half */
        set->flush_bios.count /= 2;
        memcpy(set->flush_bios.at, set->flush_bios.at + set->flush_bios.count,
               set->flush_bios.count * sizeof *set->flush_bios.at);
    }
    if (!VEC_ROOM(&set->flush_bios, set->flush_bios.count + 1)) {
        e->out_of_memory = true;
        return;
    }
    set->flush_bios.at[set->flush_bios.count++] = (flush_bio){disk_of(e, s->device), submitter_of(e, tid)};
}

/* A flush belongs to the first recorded thread that asked for it, else the first, else its issuer. */
submitter flush_owner(engine *e, uint32_t device, submitter issuer)
{
    request_set *set = &e->requests;
    uint32_t kept = 0;
    submitter owner = issuer;
    bool asked = false;
    for (uint32_t i = 0; i < set->flush_bios.count; i++) {
        flush_bio bio = set->flush_bios.at[i];
        if (bio.device != device) {
            set->flush_bios.at[kept++] = bio;
        } else if (!asked || (!submitter_is_recorded(e, &owner) && submitter_is_recorded(e, &bio.who))) {
            owner = bio.who;
            asked = true;
        }
    }
    set->flush_bios.count = kept;
    return owner;
}
