/*
 * While I/O of a process was under way, did one of its threads compute? docs/explanation/rules/overlap.md has the rules.
 *
 * Rows come in the order of their ends, moments are needed in the order of time. So the newest moments of each process wait
 * in order, until no row can begin before them any more. Rows that begin earlier than that are known beforehand.
 */
#include <stdlib.h>
#include <string.h>

#include "sums/derive.h"

enum { LEAST_ROOM = 16, NEAR_STEPS = 16 };
/* The table of requests may be read far ahead of that of calls. In one queue, each call would be put before them all. */
enum { OF_CALLS, OF_REQUESTS, NR_QUEUES };
#define NOBODY UINT32_MAX

typedef struct { int64_t time_ns; uint32_t task, what; } moment;

typedef struct {
    moment *at;               /* those from first to end, by time */
    size_t first, end, room;
} moment_queue;

typedef struct {
    moment_queue waiting[NR_QUEUES];
    int64_t known;            /* the next one of the known moments */
    int64_t now, io_ns, certain_ns; /* certain: no thread can have computed */
    int64_t under_way, free;  /* I/O; threads outside of calls */
    bool alone;               /* it has one thread and no rings: each of its calls is all that it does */
} process_state;

typedef struct {
    int64_t calls, alive;     /* under way; 0 or 1 */
    int64_t since, since_io;  /* it is free: from when on, and how long I/O of its process had been under way by then */
    int64_t free_ns, free_io_ns; /* it was free; it was free while I/O was under way */
    int64_t called_ns, away_ns, doubt_ns; /* in calls; of it without a CPU; in calls whose time without a CPU is unknown */
} thread_state;

struct lo2_overlap {
    lo2_overlap_config config;
    process_state *processes;
    thread_state *threads;
};

/* How each kind of moment changes its thread's calls and life, and its process' I/O. */
static const struct { int8_t calls, alive, io; } CHANGES[] = {
    [LO2_BIRTH] = {0, 1, 0}, [LO2_EXIT] = {0, -1, 0},
    [LO2_CALL] = {1, 0, 0}, [LO2_RETURN] = {-1, 0, 0},
    [LO2_IO_CALL] = {1, 0, 1}, [LO2_IO_RETURN] = {-1, 0, -1},
    [LO2_IO_BEGIN] = {0, 0, 1}, [LO2_IO_END] = {0, 0, -1},
};

/* ---- the course of a process ---- */

static bool is_free(const thread_state *t) { return t->alive > 0 && !t->calls; }

static void change_thread(process_state *p, thread_state *t, uint32_t what)
{
    bool was_free = is_free(t);
    t->calls += CHANGES[what].calls;
    t->alive += CHANGES[what].alive;
    if (was_free == is_free(t))
        return;
    if (was_free) {
        t->free_ns += p->now - t->since;
        t->free_io_ns += p->io_ns - t->since_io;
        p->free--;
    } else {
        t->since = p->now;
        t->since_io = p->io_ns;
        p->free++;
    }
}

static void step(lo2_overlap *o, process_state *p, int64_t time, uint32_t task, uint32_t what)
{
    int64_t passed = time > p->now ? time - p->now : 0;
    if (p->under_way > 0) {
        p->io_ns += passed;
        p->certain_ns += p->free ? 0 : passed;
    }
    p->now += passed;
    p->under_way += CHANGES[what].io;
    if (task != NOBODY)
        change_thread(p, &o->threads[task], what);
}

/* The queue whose first moment comes first; NULL: nothing waits. */
static moment_queue *next_queue(process_state *p)
{
    moment_queue *next = NULL;
    for (moment_queue *q = p->waiting; q < p->waiting + NR_QUEUES; q++)
        if (q->first < q->end && (!next || q->at[q->first].time_ns < next->at[next->first].time_ns))
            next = q;
    return next;
}

static void advance(lo2_overlap *o, size_t number, int64_t until)
{
    process_state *p = &o->processes[number];
    const lo2_overlap_moment *known = o->config.known;
    int64_t last = o->config.first_known[number + 1];
    for (;;) {
        moment_queue *q = next_queue(p);
        bool there = p->known < last;
        if (q && (!there || q->at[q->first].time_ns <= known[p->known].time_ns)) {
            const moment *next = &q->at[q->first];
            if (next->time_ns > until)
                return;
            step(o, p, next->time_ns, next->task, next->what);
            q->first++;
        } else if (there && known[p->known].time_ns <= until) {
            const lo2_overlap_moment *next = &known[p->known++];
            step(o, p, next->time_ns, (uint32_t)next->task, (uint32_t)next->what);
        } else
            return;
    }
}

void lo2_overlap_advance(lo2_overlap *o, int64_t until)
{
    for (size_t number = 0; number < o->config.nr_processes; number++)
        if (next_queue(&o->processes[number]))
            advance(o, number, until);
}

/* ---- moments that wait ---- */

static bool make_room(moment_queue *q)
{
    if (q->end < q->room)
        return true;
    size_t nr = q->end - q->first;
    if (nr > q->room / 2 || !q->room) {
        size_t room = q->room ? 2 * q->room : LEAST_ROOM;
        moment *grown = realloc(q->at, room * sizeof *grown);
        if (!grown)
            return false;
        q->at = grown;
        q->room = room;
    }
    memmove(q->at, q->at + q->first, nr * sizeof *q->at);
    q->first = 0;
    q->end = nr;
    return true;
}

static bool put(moment_queue *q, int64_t time, uint32_t task, uint32_t what)
{
    if (!make_room(q))
        return false;
    size_t low = q->first, high = q->end;
    for (int near = 0; near < NEAR_STEPS && low < high; near++) { /* most come nearly in order */
        if (q->at[high - 1].time_ns <= time)
            low = high;
        else
            high--;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (q->at[middle].time_ns <= time)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(q->at + low + 1, q->at + low, (q->end - low) * sizeof *q->at);
    q->at[low] = (moment){time, task, what};
    q->end++;
    return true;
}

static int64_t within(const lo2_overlap *o, int64_t time)
{
    const lo2_overlap_config *c = &o->config;
    return time < c->start_ns ? c->start_ns : time > c->stop_ns ? c->stop_ns : time;
}

/* ---- rows ---- */

typedef struct { int64_t begin, end; size_t process; uint32_t task; bool io; } stretch;

/* A call without an end lasts as long as its thread. */
static stretch call_at(const lo2_overlap *o, const lo2_sum_rows *r, size_t i)
{
    const lo2_overlap_config *c = &o->config;
    uint32_t task = r->task[i];
    bool known = task < c->nr_tasks;
    int64_t end = r->end_time_ns[i];
    if (end == UNKNOWN)
        end = known && c->threads[task].begin_ns <= c->threads[task].end_ns ? c->threads[task].end_ns : c->stop_ns;
    int64_t begin = within(o, r->begin_time_ns[i]);
    return (stretch){begin, end > begin ? within(o, end) : begin, known ? (size_t)c->context->process_of_task[task] : c->nr_processes,
                     task, c->is_io[kind_of_row(c->context, r, i)]};
}

static void add_unknown(lo2_overlap *o, int64_t length)
{
    lo2_overlap_sums *sums = &o->config.by_process[o->config.nr_processes];
    sums->io_ns += length;
    sums->unknown_ns += length;
}

bool lo2_overlap_add_calls(lo2_overlap *o, const lo2_sum_rows *r, const int64_t *away_ns, int64_t from_ns)
{
    for (size_t i = 0; i < r->nr; i++) {
        stretch s = call_at(o, r, i);
        int64_t length = s.end - s.begin;
        if (s.process == o->config.nr_processes) {
            add_unknown(o, s.io ? length : 0);
            continue;
        }
        thread_state *t = &o->threads[s.task];
        t->called_ns += length;
        if (away_ns && away_ns[i] != UNKNOWN)
            t->away_ns += away_ns[i];
        else
            t->doubt_ns += length;
        process_state *p = &o->processes[s.process];
        moment_queue *q = &p->waiting[OF_CALLS];
        if (p->alone) {
            p->io_ns += s.io ? length : 0;
            p->certain_ns += s.io ? length : 0;
        } else if (r->begin_time_ns[i] >= from_ns && !(put(q, s.begin, s.task, s.io ? LO2_IO_CALL : LO2_CALL) &&
                                                       put(q, s.end, s.task, s.io ? LO2_IO_RETURN : LO2_RETURN)))
            return false;
    }
    return true;
}

bool lo2_overlap_add_requests(lo2_overlap *o, size_t nr, const uint32_t *task, const int64_t *begin_ns,
                              const int64_t *end_ns, int64_t from_ns)
{
    for (size_t i = 0; i < nr; i++) {
        int64_t begin = within(o, begin_ns[i]), end = within(o, end_ns[i]);
        size_t process = task[i] < o->config.nr_tasks ? (size_t)o->config.context->process_of_task[task[i]] : o->config.nr_processes;
        moment_queue *q = o->processes[process].waiting + OF_REQUESTS;
        if (process == o->config.nr_processes)
            add_unknown(o, end > begin ? end - begin : 0);
        else if (begin_ns[i] >= from_ns && !(put(q, begin, NOBODY, LO2_IO_BEGIN) &&
                                             put(q, end > begin ? end : begin, NOBODY, LO2_IO_END)))
            return false;
    }
    return true;
}

size_t lo2_overlap_early(const lo2_overlap *o, const lo2_sum_rows *r, int64_t from_ns, lo2_overlap_moment *moments)
{
    size_t nr = 0;
    for (size_t i = 0; i < r->nr; i++) {
        if (r->begin_time_ns[i] >= from_ns)
            continue;
        stretch s = call_at(o, r, i);
        if (s.process == o->config.nr_processes || o->processes[s.process].alone)
            continue;
        moments[nr++] = (lo2_overlap_moment){s.begin, s.task, s.io ? LO2_IO_CALL : LO2_CALL};
        moments[nr++] = (lo2_overlap_moment){s.end, s.task, s.io ? LO2_IO_RETURN : LO2_RETURN};
    }
    return nr;
}

/* ---- what is proven ---- */

typedef struct { int64_t least, most; } bounds;

static int64_t at_least_0(int64_t value) { return value > 0 ? value : 0; }

/* How long a thread computed while I/O of its process was under way: the CPU time outside of its calls bounds it. */
static bounds computed(const lo2_overlap_thread *thread, const thread_state *t)
{
    if (thread->cpu_ns == UNKNOWN)
        return (bounds){0, t->free_io_ns};
    int64_t least = thread->cpu_ns - (t->called_ns - t->away_ns);
    int64_t most = at_least_0(thread->cpu_ns - (t->called_ns - t->away_ns - t->doubt_ns));
    return (bounds){thread->born ? at_least_0(least - (t->free_ns - t->free_io_ns)) : 0,
                    most < t->free_io_ns ? most : t->free_io_ns};
}

void lo2_overlap_finish(lo2_overlap *o)
{
    const lo2_overlap_config *c = &o->config;
    for (size_t number = 0; number < c->nr_processes; number++) {
        advance(o, number, INT64_MAX);
        c->by_process[number].io_ns = o->processes[number].io_ns;
    }
    for (size_t task = 0; task < c->nr_tasks; task++) { /* at first the bounds: overlapped_ns at least, unknown_ns at most */
        lo2_overlap_sums *sums = &c->by_process[c->context->process_of_task[task]];
        if (c->threads[task].begin_ns > c->threads[task].end_ns)
            continue;
        bounds b = computed(&c->threads[task], &o->threads[task]);
        sums->overlapped_ns = b.least > sums->overlapped_ns ? b.least : sums->overlapped_ns;
        sums->unknown_ns += b.most;
    }
    for (size_t number = 0; number < c->nr_processes; number++) {
        lo2_overlap_sums *sums = &c->by_process[number];
        int64_t open_ns = sums->io_ns - o->processes[number].certain_ns;
        int64_t most = sums->unknown_ns < open_ns ? sums->unknown_ns : open_ns;
        sums->overlapped_ns = sums->overlapped_ns < most ? sums->overlapped_ns : most;
        sums->unknown_ns = most - sums->overlapped_ns;
        sums->unoverlapped_ns = sums->io_ns - most;
    }
}

/* ---- life ---- */

lo2_overlap *lo2_overlap_new(const lo2_overlap_config *config)
{
    lo2_overlap *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->config = *config;
    o->processes = calloc(config->nr_processes + 1, sizeof *o->processes);
    o->threads = calloc(config->nr_tasks + 1, sizeof *o->threads);
    if (!o->processes || !o->threads) {
        lo2_overlap_free(o);
        return NULL;
    }
    for (size_t number = 0; number < config->nr_processes; number++) {
        o->processes[number].now = config->start_ns;
        o->processes[number].known = config->first_known[number];
        o->processes[number].alone = config->is_alone[number];
    }
    return o;
}

void lo2_overlap_free(lo2_overlap *o)
{
    if (!o)
        return;
    for (size_t number = 0; o->processes && number < o->config.nr_processes; number++)
        for (size_t queue = 0; queue < NR_QUEUES; queue++)
            free(o->processes[number].waiting[queue].at);
    free(o->processes);
    free(o->threads);
    free(o);
}
