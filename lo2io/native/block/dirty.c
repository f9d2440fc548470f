/*
 * Who dirtied the pages that requests write back. The last two dirtyings of each page are kept, in chunks of pages of
 * one file. If there is no room for a new chunk, the chunk that was dirtied least recently makes way. The dirtiers of
 * that chunk's pages are then unknown. A second list holds the kernel's workers that write pages back at present, and
 * their reasons.
 */
#include "block/dirty.h"
#include "cache/cache.h"
#include "hash/hash.h"
#include "tables/inodes.h"
#include "tables/tasks.h"

enum { CHUNK_SHIFT = 4, CHUNK_PAGES = 1 << CHUNK_SHIFT, MOST_CHUNKS = 1 << 17, FIRST_BUCKETS = 1 << 10, MOST_FLUSHERS = 1 << 10 };

/* task NONE: not recorded; time UNKNOWN: there is none; call: start of the thread's call, UNKNOWN: none. */
typedef struct { int64_t time, call; uint32_t task, tid; } dirtying;
typedef struct { dirtying newest, before; } dirty_page;

typedef struct {
    uint64_t device, inode, number;     /* number: first page >> CHUNK_SHIFT */
    uint32_t generation;
    uint32_t chain, older, newer;       /* index + 1; 0: none */
    uint32_t carried;                   /* bit i: a request has carried the newest dirtying of page i */
    dirty_page pages[CHUNK_PAGES];
} chunk;

struct dirty_pages {
    VEC(chunk) chunks;
    uint32_t *buckets;                  /* index + 1 */
    uint32_t nr_buckets, oldest, newest;
    uint32_t page_bytes;
};

/* ---- chunks ---- */

static uint32_t *bucket_of(const struct dirty_pages *d, const chunk *key)
{
    uint64_t hash = HASH_WORDS(key->device, key->inode, key->generation, key->number);
    return &d->buckets[hash & (d->nr_buckets - 1)];
}

static chunk *find(const struct dirty_pages *d, const chunk *key)
{
    for (uint32_t at = *bucket_of(d, key); at; at = d->chunks.at[at - 1].chain) {
        chunk *c = &d->chunks.at[at - 1];
        if (c->number == key->number && c->inode == key->inode && c->device == key->device && c->generation == key->generation)
            return c;
    }
    return NULL;
}

static void link_key(struct dirty_pages *d, uint32_t index)
{
    uint32_t *bucket = bucket_of(d, &d->chunks.at[index]);
    d->chunks.at[index].chain = *bucket;
    *bucket = index + 1;
}

static void unlink_key(struct dirty_pages *d, uint32_t index)
{
    uint32_t *at = bucket_of(d, &d->chunks.at[index]);
    while (*at != index + 1)
        at = &d->chunks.at[*at - 1].chain;
    *at = d->chunks.at[index].chain;
}

static bool make_buckets(struct dirty_pages *d)
{
    if (d->chunks.count < d->nr_buckets)
        return true;
    uint32_t number = d->nr_buckets ? 2 * d->nr_buckets : FIRST_BUCKETS;
    uint32_t *buckets = calloc(number, sizeof *buckets);
    if (!buckets)
        return false;
    free(d->buckets);
    d->buckets = buckets;
    d->nr_buckets = number;
    for (uint32_t i = 0; i < d->chunks.count; i++)
        link_key(d, i);
    return true;
}

static void leave_order(struct dirty_pages *d, const chunk *c)
{
    *(c->older ? &d->chunks.at[c->older - 1].newer : &d->oldest) = c->newer;
    *(c->newer ? &d->chunks.at[c->newer - 1].older : &d->newest) = c->older;
}

static void join_order(struct dirty_pages *d, uint32_t index)
{
    chunk *c = &d->chunks.at[index];
    c->older = d->newest;
    c->newer = 0;
    *(d->newest ? &d->chunks.at[d->newest - 1].newer : &d->oldest) = index + 1;
    d->newest = index + 1;
}

/* A chunk of which nothing is known yet; NULL if memory is short. */
static chunk *make(engine *e, struct dirty_pages *d, const chunk *key)
{
    uint32_t index;
    if (d->chunks.count == MOST_CHUNKS) {
        index = d->oldest - 1;
        leave_order(d, &d->chunks.at[index]);
        unlink_key(d, index);
    } else if (make_buckets(d) && VEC_ROOM(&d->chunks, d->chunks.count + 1)) {
        index = d->chunks.count++;
    } else {
        e->out_of_memory = true;
        return NULL;
    }
    chunk *c = &d->chunks.at[index];
    *c = *key;
    for (uint32_t i = 0; i < CHUNK_PAGES; i++)
        c->pages[i].newest.time = c->pages[i].before.time = UNKNOWN;
    link_key(d, index);
    join_order(d, index);
    return c;
}

static chunk *touch(engine *e, const chunk *key)
{
    struct dirty_pages *d = e->dirty;
    chunk *c = d->nr_buckets ? find(d, key) : NULL;
    if (!c)
        return make(e, d, key);
    leave_order(d, c);
    join_order(d, (uint32_t)(c - d->chunks.at));
    return c;
}

/* ---- dirtyings ---- */

/* The dirtyings of several CPUs may be out of order, because a run of pages is recorded only when it has ended. */
static void dirty(chunk *c, uint32_t place, const dirtying *by)
{
    dirty_page *page = &c->pages[place];
    if (by->time >= page->newest.time) {
        page->before = page->newest;
        page->newest = *by;
        c->carried &= ~(1u << place);
    } else if (by->time > page->before.time) {
        page->before = *by;
    }
}

/* A run is told before its call ends, for no run goes on beyond a call. */
static int64_t call_of(const task *t, int64_t time)
{
    return t && t->pending.active && t->pending.begin <= time ? t->pending.begin : UNKNOWN;
}

void on_kernel_dirty(engine *e, const uint8_t *content, uint32_t length)
{
    lo2_kernel_dirty told;
    if (length >= sizeof told)
        memcpy(&told, content, sizeof told);
    if (length < sizeof told || !are_pages(&told)) {
        e->totals.nr_undecoded++;
        return;
    }
    if (!e->config.dirty || !told.mode)
        return;
    if (!e->dirty && !(e->dirty = calloc(1, sizeof *e->dirty))) {
        e->out_of_memory = true;
        return;
    }
    e->dirty->page_bytes = told.page_bytes;
    const task *t = task_for_sample(e, told.head.tid);
    dirtying by = {.time = (int64_t)told.begin_ns, .call = call_of(t, (int64_t)told.begin_ns), .task = t && is_recorded(e, t) ? t->number : NONE, .tid = told.head.tid};
    chunk key = {.device = told.device, .inode = told.inode, .generation = told.inode ? told.generation : 0};
    chunk *c = NULL;
    for (uint64_t page = told.first_page; page < told.first_page + told.pages; page++) {
        if (!c || page >> CHUNK_SHIFT != key.number) {
            key.number = page >> CHUNK_SHIFT;
            c = touch(e, &key);
        }
        if (!c)
            return;
        dirty(c, page & (CHUNK_PAGES - 1), &by);
    }
}

/* ---- reasons ---- */

static flusher *flusher_of(const engine *e, uint32_t tid)
{
    for (uint32_t i = 0; i < e->flushers.count; i++)
        if (e->flushers.at[i].tid == tid)
            return &e->flushers.at[i];
    return NULL;
}

/* A worker whose end was lost keeps its place until it begins again, or until all places are taken. */
void on_kernel_writeback(engine *e, const uint8_t *content, uint32_t length, int64_t time)
{
    lo2_kernel_writeback told;
    if (length >= sizeof told)
        memcpy(&told, content, sizeof told);
    if (length < sizeof told || told.reason > LO2_WRITE_BACK_FOREIGN_FLUSH) {
        e->totals.nr_undecoded++;
        return;
    }
    if (!e->config.dirty)
        return;
    flusher *known = flusher_of(e, told.head.tid);
    if (!known && !told.reason)
        return;
    if (!told.reason) {
        *known = e->flushers.at[--e->flushers.count];
        return;
    }
    if (!known && e->flushers.count == MOST_FLUSHERS)
        e->flushers.count = 0;
    if (!known && !VEC_ROOM(&e->flushers, e->flushers.count + 1)) {
        e->out_of_memory = true;
        return;
    }
    *(known ? known : &e->flushers.at[e->flushers.count++]) =
        (flusher){.since = time, .tid = told.head.tid, .reason = told.reason};
}

uint8_t write_back_reason(const engine *e, uint32_t tid)
{
    const flusher *known = flusher_of(e, tid);
    return known && known->since > e->lost_until ? known->reason : LO2_WRITE_BACK_NONE;
}

/* ---- rows ---- */

static bool goes_on(const write_back *row, const write_back *next)
{
    return row->request == next->request && row->number == next->number && row->task == next->task && row->tid == next->tid &&
           row->charged == next->charged && row->call == next->call && row->device == next->device && row->inode == next->inode &&
           row->generation == next->generation && row->offset + (int64_t)row->bytes == next->offset;
}

static void add_row(engine *e, request *r, const write_back *next)
{
    if (r) {
        uint32_t tid = next->tid == NONE ? 0 : next->tid; /* the idle thread, 0, writes nothing */
        r->charged = !r->has_charges || r->charged == tid ? tid : 0;
        r->has_charges = true;
    }
    write_back *last = e->write_back_queue.count > e->write_backs_out ? &e->write_back_queue.at[e->write_back_queue.count - 1] : NULL;
    if (last && goes_on(last, next)) {
        last->bytes += next->bytes;
        last->first_dirtied = next->first_dirtied < last->first_dirtied ? next->first_dirtied : last->first_dirtied;
        last->last_dirtied = next->last_dirtied > last->last_dirtied ? next->last_dirtied : last->last_dirtied;
    } else if (ROW_ROOM(e, e->write_back_queue)) {
        e->write_back_queue.at[e->write_back_queue.count++] = *next;
    } else {
        e->out_of_memory = true;
    }
}

/*
 * Charges a page to the thread that dirtied it last before the request was issued. If records were lost after that, nobody is
 * charged: another thread may have dirtied the page later.
 */
static void charge(const engine *e, chunk *c, uint32_t place, int64_t issue, write_back *row)
{
    const dirty_page *page = &c->pages[place];
    const dirtying *by = page->newest.time <= issue ? &page->newest : &page->before;
    if (by == &page->newest)
        c->carried |= 1u << place;
    if (by->time == UNKNOWN || by->time <= e->lost_until || by->time > issue)
        return;
    row->charged = LO2_CHARGED_DIRTIED;
    row->task = by->task;
    row->tid = by->tid;
    row->call = by->call;
    row->first_dirtied = row->last_dirtied = by->time;
}

static void charge_pages(engine *e, request *r, write_back *row, int64_t end)
{
    struct dirty_pages *d = e->dirty;
    const write_back unknown = *row;
    chunk key = {.device = row->device, .inode = row->inode, .generation = row->generation};
    int64_t at = row->offset;
    while (at < end) {
        uint64_t page = (uint64_t)at / d->page_bytes;
        int64_t next = (int64_t)(page + 1) * d->page_bytes;
        key.number = page >> CHUNK_SHIFT;
        chunk *c = d->nr_buckets ? find(d, &key) : NULL;
        *row = unknown;
        row->offset = at;
        row->bytes = (next < end ? next : end) - at;
        if (c)
            charge(e, c, page & (CHUNK_PAGES - 1), r->issue, row);
        add_row(e, r, row);
        at = next;
    }
}

void dirty_written(engine *e, request *r, const part_row *part)
{
    const lo2_kernel_part *p = &part->part;
    if (!e->config.dirty || p->kind != LO2_PART_FILE || r->operation != LO2_RQ_WRITE || r->issue == UNKNOWN)
        return;
    write_back row = {
        .request = part->request, .number = part->number, .task = NONE, .tid = NONE, .charged = LO2_CHARGED_UNKNOWN, .device = p->device,
        .inode = p->inode, .generation = p->generation, .file = part->file, .offset = p->offset, .bytes = p->bytes,
        .call = UNKNOWN,
        .first_dirtied = UNKNOWN, .last_dirtied = UNKNOWN, .issue = r->issue, .complete = r->complete,
    };
    if (p->flags & LO2_PART_DIRECT) {
        row.charged = LO2_CHARGED_DIRECT;
        row.task = r->task;
        row.tid = r->tid;
        row.call = r->call;
    } else if (e->dirty && p->offset != UNKNOWN) {
        charge_pages(e, r, &row, p->offset + p->bytes);
        return;
    }
    add_row(e, r, &row);
}

/* Leaves out a disk's own pages: they may be metadata of a file system, and requests with metadata charge nobody. */
void dirty_finish(engine *e)
{
    const struct dirty_pages *d = e->dirty;
    for (uint32_t i = 0; d && i < d->chunks.count; i++) {
        const chunk *c = &d->chunks.at[i];
        for (uint32_t place = 0; place < CHUNK_PAGES; place++) {
            const dirtying *by = &c->pages[place].newest;
            bool shown = c->inode && (by->task != NONE || e->config.all_tasks);
            if (by->time == UNKNOWN || by->time <= e->lost_until || c->carried >> place & 1 || !shown)
                continue;
            write_back row = {
                .task = by->task, .tid = by->tid, .call = by->call, .charged = LO2_CHARGED_DIRTIED, .device = c->device, .inode = c->inode,
                .generation = c->generation, .file = inode_file(e, c->device, c->inode, c->generation),
                .offset = (int64_t)((c->number << CHUNK_SHIFT | place) * d->page_bytes), .bytes = d->page_bytes,
                .first_dirtied = by->time, .last_dirtied = by->time, .issue = UNKNOWN, .complete = UNKNOWN,
            };
            add_row(e, NULL, &row);
        }
    }
    dirty_free(e);
    e->dirty = NULL;
}

bool dirty_flush(engine *e)
{
    lo2_write_back_columns *c = &e->batch->write_backs;
    for (; e->write_backs_out < e->write_back_queue.count; e->write_backs_out++) {
        const write_back *w = &e->write_back_queue.at[e->write_backs_out];
        uint32_t row = e->batch->nr_write_backs;
        if (row == e->batch->capacity)
            return false;
        c->request[row] = w->request;
        c->number[row] = w->number;
        c->charged[row] = w->charged;
        c->task[row] = w->task;
        c->tid[row] = w->tid;
        c->device[row] = w->device;
        c->inode[row] = w->inode;
        c->file[row] = w->file;
        c->offset_bytes[row] = w->offset;
        c->bytes[row] = w->bytes;
        c->call_begin_ns[row] = w->call;
        c->first_dirtied_ns[row] = w->first_dirtied;
        c->last_dirtied_ns[row] = w->last_dirtied;
        c->issue_time_ns[row] = w->issue;
        c->complete_time_ns[row] = w->complete;
        e->batch->nr_write_backs++;
    }
    e->write_back_queue.count = e->write_backs_out = 0;
    return true;
}

void dirty_free(engine *e)
{
    if (!e->dirty)
        return;
    free(e->dirty->chunks.at);
    free(e->dirty->buckets);
    free(e->dirty);
}
