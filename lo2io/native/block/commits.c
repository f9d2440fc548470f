/*
 * Commits of journals, as BPF programs record them in the journals' threads (bpf/programs/journal.h). A thread has at
 * most one commit under way. A record about another transaction ends that commit. So does a record about a moment that
 * the commit has already reached. In both cases, records in between were lost.
 */
#include "block/commits.h"

static void end_commit(engine *e, uint32_t place)
{
    if (ROW_ROOM(e, e->commit_queue))
        e->commit_queue.at[e->commit_queue.count++] = e->commits.at[place];
    else
        e->out_of_memory = true;
    e->commits.at[place] = e->commits.at[--e->commits.count];
}

/* True if the commit under way can meet this moment now. */
static bool goes_on(const commit *c, const lo2_kernel_commit *told)
{
    if (c->device != told->device || c->transaction != told->transaction)
        return false;
    for (uint32_t moment = told->moment; moment < LO2_COMMIT_MOMENTS; moment++)
        if (c->met[moment] != UNKNOWN)
            return false;
    return true;
}

void on_kernel_commit(engine *e, const uint8_t *content, uint32_t length, int64_t time)
{
    lo2_kernel_commit told;
    if (length >= sizeof told)
        memcpy(&told, content, sizeof told);
    if (length < sizeof told || told.moment >= LO2_COMMIT_MOMENTS) {
        e->totals.nr_undecoded++;
        return;
    }
    uint32_t place = 0;
    while (place < e->commits.count && e->commits.at[place].tid != told.head.tid)
        place++;
    if (place < e->commits.count && !goes_on(&e->commits.at[place], &told)) {
        end_commit(e, place);
        place = e->commits.count;
    }
    if (place == e->commits.count) {
        if (!VEC_ROOM(&e->commits, place + 1)) {
            e->out_of_memory = true;
            return;
        }
        e->commits.at[e->commits.count++] = (commit){{UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN},
                                                     told.device, told.transaction, told.head.tid};
    }
    e->commits.at[place].met[told.moment] = time;
    if (told.moment == LO2_COMMIT_ENDS)
        end_commit(e, place);
}

void commits_finish(engine *e)
{
    while (e->commits.count)
        end_commit(e, 0);
}

bool commits_flush(engine *e)
{
    lo2_commit_columns *c = &e->batch->commits;
    for (; e->commits_out < e->commit_queue.count; e->commits_out++) {
        const commit *from = &e->commit_queue.at[e->commits_out];
        uint32_t row = e->batch->nr_commits;
        if (row == e->batch->capacity)
            return false;
        c->device[row] = from->device;
        c->transaction[row] = from->transaction;
        c->tid[row] = from->tid;
        c->begin_time_ns[row] = from->met[LO2_COMMIT_STARTS];
        c->locking_time_ns[row] = from->met[LO2_COMMIT_LOCKS];
        c->flushing_time_ns[row] = from->met[LO2_COMMIT_FLUSHES];
        c->logging_time_ns[row] = from->met[LO2_COMMIT_LOGS];
        c->end_time_ns[row] = from->met[LO2_COMMIT_ENDS];
        e->batch->nr_commits++;
    }
    e->commit_queue.count = e->commits_out = 0;
    return true;
}

void commits_free(engine *e)
{
    free(e->commits.at);
    free(e->commit_queue.at);
}
