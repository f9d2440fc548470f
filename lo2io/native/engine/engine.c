/* The engine merges the streams by time and hands each record to the module that knows its kind. */
#include <errno.h>
#include <stdio.h>

#include "block/requests.h"
#include "block/commits.h"
#include "block/dirty.h"
#include "block/parts.h"
#include "calls/faults.h"
#include "calls/fuse.h"
#include "calls/futexes.h"
#include "calls/stacks.h"
#include "cache/cache.h"
#include "calls/calls.h"
#include "calls/kernel_facts.h"
#include "calls/kernel_paths.h"
#include "calls/off_cpu.h"
#include "calls/proc_facts.h"
#include "engine/gaps.h"
#include "engine/kernel_records.h"
#include "engine/lives.h"
#include "engine/samples.h"
#include "rings/iocbs.h"
#include "rings/rings.h"
#include "tables/cgroups.h"
#include "tables/commands.h"
#include "tables/files.h"
#include "tables/inodes.h"
#include "tables/rows.h"
#include "tables/tasks.h"
#include "tables/texts.h"

enum { /* include/uapi/linux/perf_event.h */
    RECORD_MMAP = 1, RECORD_LOST = 2, RECORD_COMM = 3, RECORD_EXIT = 4, RECORD_THROTTLE = 5, RECORD_FORK = 7,
    RECORD_SAMPLE = 9, RECORD_MMAP2 = 10,
    MISC_COMM_EXEC = 1 << 13,
    MMAP_NAME_AT = 40, /* header, pid, tid, address, length, offset */
    MMAP2_NAME_AT = 72 /* ... build id, or device and inode; protection, flags */
};

/* ---- the heap of streams, earliest record first ---- */

static stream_head head_of(stream *s) { return (stream_head){s->entries[s->next].time, s}; }

static bool before(stream_head a, stream_head b)
{
    return a.time < b.time || (a.time == b.time && a.s < b.s); /* streams lie in the order of their indices */
}

static void sift_down(engine *e, uint32_t at)
{
    stream_head moving = e->heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= e->heap_count)
            break;
        if (child + 1 < e->heap_count && before(e->heap[child + 1], e->heap[child]))
            child++;
        if (!before(e->heap[child], moving))
            break;
        e->heap[at] = e->heap[child];
        at = child;
    }
    e->heap[at] = moving;
}

static int fail(engine *e, const char *what, const char *path)
{
    snprintf(e->error, sizeof e->error, "%s %s: %s", what, path, strerror(errno));
    return -1;
}

static int no_memory(engine *e)
{
    snprintf(e->error, sizeof e->error, "out of memory");
    return -1;
}

/* Reads all TASK facts before the merge begins. */
static int note_pids(engine *e, const lo2_stream *config)
{
    lo2_totals totals = {0};
    stream s = {.fd = -1};
    int have = stream_open(&s, config, 0, e->config.buffer_bytes);
    while (have >= 0 && (have = stream_fill(&s, &e->clock, &totals)) > 0) {
        for (; s.next < s.nr_entries; s.next++) {
            const uint8_t *record = s.buffer + s.entries[s.next].offset;
            lo2_fact_task fact;
            uint32_t type;
            uint16_t size;
            memcpy(&type, record, 4);
            memcpy(&size, record + 6, 2);
            if (type != LO2_FACT_TASK || size < 8 + sizeof fact)
                continue;
            memcpy(&fact, record + 8, sizeof fact);
            note_pid(e, &fact);
        }
    }
    if (have < 0)
        fail(e, "reading", stream_path(&s));
    stream_close(&s);
    return have;
}

static int start_streams(engine *e)
{
    const char *path;
    if (e->config.records_lost && gaps_find(e, &path)) /* rereads all files, so only if records were lost */
        return fail(e, "reading", path);
    for (uint32_t i = 0; e->config.all_tasks && i < e->config.nr_streams; i++)
        if (e->streams[i].kind == LO2_STREAM_FACTS && note_pids(e, &e->config.streams[i]))
            return -1;
    for (uint32_t i = 0; i < e->config.nr_streams; i++) {
        int have = stream_fill(&e->streams[i], &e->clock, &e->totals);
        if (have < 0)
            return fail(e, "reading", stream_path(&e->streams[i]));
        if (have)
            e->heap[e->heap_count++] = head_of(&e->streams[i]);
    }
    for (uint32_t i = e->heap_count / 2; i-- > 0;)
        sift_down(e, i);
    e->started = true;
    return 0;
}

static int advance(engine *e)
{
    stream *s = e->heap[0].s;
    int have = ++s->next < s->nr_entries ? 1 : stream_fill(s, &e->clock, &e->totals);
    if (have < 0)
        return fail(e, "reading", stream_path(s));
    e->heap[0] = have ? head_of(s) : e->heap[--e->heap_count];
    if (e->heap_count)
        sift_down(e, 0);
    return 0;
}

/* ---- records ---- */

static void on_lost(engine *e, const stream *s, const uint8_t *record, int64_t time)
{
    uint64_t lost;
    int64_t before; /* input/stream.c wrote this time over the event's id */
    memcpy(&before, record + 8, 8);
    memcpy(&lost, record + 16, 8);
    add_loss(e, s, before == UNKNOWN ? e->config.start_ns : before, time, lost);
}

static void on_fact(engine *e, const uint8_t *record, uint32_t type, uint16_t size)
{
    const uint8_t *body = record + 8;
    if (type == LO2_FACT_TASK && size >= 8 + sizeof(lo2_fact_task)) {
        lo2_fact_task fact; /* a copy, for records need not be aligned */
        memcpy(&fact, body, sizeof fact);
        int64_t begin = not_before(fact_when(&e->clock, fact.begin_time_ns));
        process *p = on_task_fact(e, &fact, begin);
        lo2_fact_cgroup cgroup = {0};
        size_t at = sizeof fact + sizeof cgroup;
        if (p && size >= 8 + at) {
            memcpy(&cgroup, body + sizeof fact, sizeof cgroup);
            if (cgroup.path_length <= size - 8 - at)
                on_cgroup_fact(e, p, cgroup.hierarchy, (const char *)body + at, cgroup.path_length, begin);
        }
    } else if (type == LO2_FACT_FD && size >= 8 + sizeof(lo2_fact_fd)) {
        lo2_fact_fd fact;
        memcpy(&fact, body, sizeof fact);
        if (fact.path_length > size - 8 - sizeof fact)
            return;
        fact_moment begin = fact_when(&e->clock, fact.begin_time_ns), end = fact_when(&e->clock, fact.time_ns);
        if (begin.doubt == JUMPED || end.doubt == JUMPED)
            e->totals.nr_names_refused++;
        else
            on_fd_fact(e, &fact, (const char *)body + sizeof fact, not_before(begin), end.time);
    } else if (type == LO2_FACT_COMMAND && size >= 8 + sizeof(lo2_fact_command)) {
        lo2_fact_command fact;
        memcpy(&fact, body, sizeof fact);
        uint32_t process_index = process_of(e, fact.pid);
        if (process_index == NONE || fact.length > size - 8 - sizeof fact)
            return;
        on_command(e, &e->processes.at[process_index], (const char *)body + sizeof fact, fact.length, fact.cut,
                   not_before(fact_when(&e->clock, fact.begin_time_ns)));
    } else if (type == LO2_FACT_RANK && size >= 8 + sizeof(lo2_fact_rank)) {
        lo2_fact_rank fact;
        memcpy(&fact, body, sizeof fact);
        uint32_t process_index = process_of(e, fact.pid);
        if (process_index != NONE)
            e->processes.at[process_index].rank = fact.rank;
    } else if (type == LO2_FACT_RING && size >= 8 + sizeof(lo2_fact_ring)) {
        on_ring_fact(e, body);
    } else if (type == LO2_FACT_MAPPING) {
        tell_mappings(e, record, size);
    }
}

/*
 * A thread maps executable memory. In an exec, the mapping follows the COMM, and also an EXIT in the middle of the
 * exec. Each exec maps the vDSO (arch/x86/entry/vdso/vma.c): a 32 bit program has the vDSO below 4 GiB, a 64 bit
 * program beside its stack, far above.
 */
static void on_mapping(engine *e, const uint8_t *record, uint16_t size, size_t name_at)
{
    static const char vdso[] = "[vdso]";
    uint32_t tid;
    uint64_t address;
    memcpy(&tid, record + 12, 4);
    memcpy(&address, record + 16, 8);
    task *t = task_of(e, tid);
    if (!t)
        return;
    task_lives(t);
    if (!(address >> 32) && size >= name_at + sizeof vdso && !memcmp(record + name_at, vdso, sizeof vdso))
        count_compat(e, t);
}

static void on_record(engine *e, const stream *s, const uint8_t *record, int64_t time)
{
    uint32_t type, ids[4];
    uint16_t misc, size;
    memcpy(&type, record, 4);
    memcpy(&misc, record + 4, 2);
    memcpy(&size, record + 6, 2);
    if (s->kind == LO2_STREAM_FACTS) {
        on_fact(e, record, type, size);
    } else if (type == RECORD_SAMPLE) {
        on_sample(e, s, record, size, time);
    } else if ((type == RECORD_FORK || type == RECORD_EXIT) && size >= 32) {
        memcpy(ids, record + 8, sizeof ids); /* pid, ppid, tid, ptid */
        if (type == RECORD_FORK)
            on_fork(e, time, ids[0], ids[1], ids[2], ids[3]);
        else
            on_task_exit(e, time, ids[2]);
        if (type == RECORD_FORK ? ids[0] != ids[1] : ids[0] == ids[2])
            tell_mappings(e, record, size);
    } else if (type == RECORD_COMM && size > 24) {
        memcpy(ids, record + 8, 8);
        size_t length = strnlen((const char *)record + 16, size - 24u);
        on_comm(e, time, ids[0], ids[1], (const char *)record + 16, length < 15 ? length : 15,
                (misc & MISC_COMM_EXEC) != 0);
        if (misc & MISC_COMM_EXEC)
            tell_mappings(e, record, size);
    } else if (type == RECORD_MMAP && size > MMAP_NAME_AT) {
        on_mapping(e, record, size, MMAP_NAME_AT);
    } else if (type == RECORD_MMAP2 && size > MMAP2_NAME_AT) {
        on_mapping(e, record, size, MMAP2_NAME_AT);
        tell_mappings(e, record, size);
    } else if (type == RECORD_LOST && size >= 32) {
        on_lost(e, s, record, time);
        tell_mappings(e, record, size);
    } else if (type == RECORD_THROTTLE) {
        e->totals.nr_throttled++;
    }
}

static void dispatch(engine *e, stream *s)
{
    const struct lo2_entry *entry = &s->entries[s->next];
    e->nr_records++;
    if (e->totals.first_time_ns == UNKNOWN)
        e->totals.first_time_ns = entry->time;
    e->totals.last_time_ns = entry->time;
    if (entry->time >= e->gap_mark)
        gaps_pass(e, entry->time);
    if (stream_of_programs(s))
        on_kernel_record(e, s, entry->offset, entry->time);
    else
        on_record(e, s, s->buffer + entry->offset, entry->time);
    s->last_time = entry->time;
}

/* False if the batch has no room for all rows that wait. */
static bool flush_queues(engine *e)
{
    return tables_flush(e) && cache_flush(e) && parts_flush(e) && dirty_flush(e) && commits_flush(e) &&
           faults_flush(e) && fuse_flush(e) && stacks_flush(e) && futexes_flush(e) && rings_flush(e) &&
           ring_requests_flush(e) && iocbs_flush(e);
}

/* Writes the rows that wait; true if none waits any more. A ring that rings_flush gives up may cause further rows. */
static bool flush(engine *e)
{
    while (e->rows_wait) {
        e->rows_wait = false;
        if (!flush_queues(e)) {
            e->rows_wait = true;
            return false;
        }
    }
    return true;
}

/* Ends everything that is still alive at the end of the spool; false if the batch is full. */
static bool finish(engine *e)
{
    if (!requests_finish(e))
        return false;
    dirty_finish(e);
    commits_finish(e);
    for (; e->finish_task < e->tasks.count; e->finish_task++) {
        if (!batch_has_room(e) || !flush(e))
            return false;
        if (e->tasks.at[e->finish_task].alive)
            task_end_unseen(e, &e->tasks.at[e->finish_task]);
    }
    fuse_finish(e);
    return rings_finish(e) && ring_requests_finish(e) && cache_finish(e) && flush(e);
}

int lo2_engine_run(lo2_engine *e, lo2_batch *batch)
{
    e->batch = batch;
    batch->nr_operations = batch->nr_handle_events = batch->nr_handles = batch->nr_files = batch->nr_paths = 0;
    batch->nr_tasks = batch->nr_requests = batch->nr_request_events = batch->nr_losses = batch->text_length = 0;
    batch->nr_completions = batch->nr_switches = batch->nr_off_cpu = 0;
    batch->nr_ring_requests = batch->nr_ring_events = batch->nr_ring_works = batch->nr_ring_states = 0;
    batch->nr_batches = batch->nr_rings = batch->nr_iocbs = 0;
    batch->nr_request_parts = batch->nr_write_backs = batch->nr_fills = batch->nr_evictions = batch->nr_faults = 0;
    batch->nr_commits = batch->nr_fuse_requests = batch->nr_call_stacks = batch->nr_futexes = batch->told_length = 0;
    batch->first_operation = e->nr_operations;
    if (!e->started && start_streams(e))
        return -1;
    uint32_t fit = 0;
    while (!e->finishing) {
        if (e->requests.ended) { /* rows of ended requests take the room of other rows */
            if (!requests_flush(e))
                return 1;
            fit = 0;
        }
        if (!flush(e) || (!fit && !(fit = batch_records_fit(e))))
            return e->out_of_memory ? no_memory(e) : 1;
        fit--;
        if (!e->heap_count) {
            e->finishing = true;
            break;
        }
        dispatch(e, e->heap[0].s);
        if (e->out_of_memory)
            return no_memory(e);
        if (advance(e))
            return -1;
    }
    bool is_last = finish(e);
    return e->out_of_memory ? no_memory(e) : !is_last;
}

/* ---- life of the engine ---- */

static bool copy_config(engine *e, const lo2_config *config)
{
    size_t nr_types = config->nr_types, nr_calls = config->nr_calls;
    e->config = *config;
    e->events = malloc(nr_types * sizeof *e->events + 1);
    e->min_raw = calloc(nr_types + 1, sizeof *e->min_raw);
    e->calls = malloc(nr_calls * sizeof *e->calls + 1);
    e->streams = calloc(config->nr_streams + 1, sizeof *e->streams);
    e->heap = calloc(config->nr_streams + 1, sizeof *e->heap);
    e->seen = calloc((size_t)config->nr_streams * config->nr_events + 1, sizeof *e->seen);
    e->task_by_tid = calloc(TID_LIMIT, sizeof *e->task_by_tid);
    e->process_by_pid = calloc(TID_LIMIT, sizeof *e->process_by_pid);
    e->exit_by_tid = calloc(TID_LIMIT, sizeof *e->exit_by_tid);
    e->pid_by_tid = calloc(TID_LIMIT, sizeof *e->pid_by_tid);
    if (!e->events || !e->min_raw || !e->calls || !e->streams || !e->heap || !e->seen || !e->task_by_tid ||
        !e->process_by_pid || !e->exit_by_tid || !e->pid_by_tid)
        return false;
    memcpy(e->events, config->events_by_type, nr_types * sizeof *e->events);
    memcpy(e->calls, config->calls, nr_calls * sizeof *e->calls);
    e->common_bytes = config->pid_offset + 4 > config->type_offset + 2 ? config->pid_offset + 4 : config->type_offset + 2;
    for (size_t type = 0; type < nr_types; type++) {
        uint32_t need = e->common_bytes;
        for (int f = 0; f < LO2_NR_FIELDS; f++) {
            const lo2_field *field = &e->events[type].fields[f];
            if (e->events[type].role == LO2_ROLE_ENTER && f == LO2_FIELD_PATH)
                continue; /* the reader of the path checks the size itself: entries that BPF programs wrote have no path */
            if (field->size && (uint32_t)field->offset + field->size > need)
                need = (uint32_t)field->offset + field->size;
        }
        e->min_raw[type] = need;
    }
    return true;
}

lo2_engine *lo2_engine_new(const lo2_config *config, char *error, size_t error_size)
{
    engine *e = calloc(1, sizeof *e);
    if (!e || !copy_config(e, config)) {
        snprintf(error, error_size, "out of memory");
        lo2_engine_free(e);
        return NULL;
    }
    e->tell = (listeners){ring_descriptor_ended, ring_description_gone, requests_end_with_ring_request};
    e->next_id = 1;
    e->completions = config->completions;
    e->totals.first_time_ns = e->totals.last_time_ns = e->lost_until = UNKNOWN;
    e->gap_mark = INT64_MAX;
    e->clock = (facts_clock){config->syncs, config->nr_syncs, config->clock_error_ns};
    for (uint32_t i = 0; i < config->nr_streams; i++)
        e->streams[i].fd = -1;
    for (uint32_t i = 0; i < config->nr_streams; i++) {
        if (stream_open(&e->streams[i], &config->streams[i], i, config->buffer_bytes)) {
            snprintf(error, error_size, "opening %s: %s", stream_path(&e->streams[i]), strerror(errno));
            lo2_engine_free(e);
            return NULL;
        }
    }
    return e;
}

const char *lo2_engine_error(const lo2_engine *e) { return e->error; }
const lo2_totals *lo2_engine_totals(const lo2_engine *e) { return &e->totals; }

const uint64_t *lo2_engine_seen(const lo2_engine *e, uint32_t stream_index)
{
    return &e->seen[(size_t)stream_index * e->config.nr_events];
}

uint64_t lo2_engine_bytes_read(const lo2_engine *e)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < e->config.nr_streams; i++)
        sum += e->streams[i].bytes_read;
    return sum;
}

void lo2_engine_free(lo2_engine *e)
{
    if (!e)
        return;
    for (uint32_t i = 0; e->streams && i < e->config.nr_streams; i++)
        stream_close(&e->streams[i]);
    for (uint32_t i = 0; i < e->tables.count; i++)
        free(e->tables.at[i].slots.at);
    files_free(e);
    paths_free(e);
    requests_free(&e->requests);
    rings_free(e);
    ring_requests_free(e);
    iocbs_free(e);
    texts_free(e);
    kernel_facts_free(e);
    cache_free(e);
    parts_free(e);
    dirty_free(e);
    faults_free(e);
    fuse_free(e);
    stacks_free(e);
    commits_free(e);
    futexes_free(e);
    inodes_free(e);
    void *owned[] = {e->events, e->min_raw, e->calls, e->streams, e->heap, e->seen, e->task_by_tid,
                     e->process_by_pid, e->exit_by_tid, e->pid_by_tid, e->tasks.at, e->free_tasks.at,
                     e->processes.at, e->free_processes.at,
                     e->tables.at, e->free_tables.at, e->handles.at, e->free_handles.at, e->descriptions.at,
                     e->free_descriptions.at, e->handle_queue.at, e->event_queue.at,
                     e->task_queue.at, e->flushers.at, e->write_back_queue.at, e->name.at, e->gaps.at, e};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
}
