/* Rows of the tables `fills` and `evictions`. They come in floods, when a call ends or memory is reclaimed, so they wait in queues. */
#include "cache/cache.h"

void row_of_fill(engine *e, const cache_fill *row)
{
    if (ROW_ROOM(e, e->fill_queue))
        e->fill_queue.at[e->fill_queue.count++] = *row;
    else
        e->out_of_memory = true;
}

void row_of_eviction(engine *e, const cache_eviction *row)
{
    if (ROW_ROOM(e, e->eviction_queue))
        e->eviction_queue.at[e->eviction_queue.count++] = *row;
    else
        e->out_of_memory = true;
}

static bool flush_fills(engine *e)
{
    lo2_fill_columns *c = &e->batch->fills;
    for (; e->fills_out < e->fill_queue.count; e->fills_out++) {
        const cache_fill *f = &e->fill_queue.at[e->fills_out];
        uint32_t row = e->batch->nr_fills;
        if (row == e->batch->capacity)
            return false;
        c->time_ns[row] = f->time;
        c->task[row] = f->task;
        c->tid[row] = f->tid;
        c->cause[row] = f->cause;
        c->device[row] = f->device;
        c->inode[row] = f->inode;
        c->file[row] = f->file;
        c->first_page[row] = f->first;
        c->pages[row] = f->pages;
        c->page_bytes[row] = f->page_bytes;
        c->why[row] = f->why;
        c->used_pages[row] = f->used;
        c->first_use[row] = f->first_use;
        e->batch->nr_fills++;
    }
    e->fill_queue.count = e->fills_out = 0;
    return true;
}

static bool flush_evictions(engine *e)
{
    lo2_eviction_columns *c = &e->batch->evictions;
    for (; e->evictions_out < e->eviction_queue.count; e->evictions_out++) {
        const cache_eviction *v = &e->eviction_queue.at[e->evictions_out];
        uint32_t row = e->batch->nr_evictions;
        if (row == e->batch->capacity)
            return false;
        c->time_ns[row] = v->time;
        c->task[row] = v->task;
        c->tid[row] = v->tid;
        c->cause[row] = v->cause;
        c->device[row] = v->device;
        c->inode[row] = v->inode;
        c->file[row] = v->file;
        c->first_page[row] = v->first;
        c->pages[row] = v->pages;
        c->page_bytes[row] = v->page_bytes;
        e->batch->nr_evictions++;
    }
    e->eviction_queue.count = e->evictions_out = 0;
    return true;
}

bool cache_flush(engine *e)
{
    return (!e->fill_queue.count || flush_fills(e)) && (!e->eviction_queue.count || flush_evictions(e));
}

void cache_rows_free(engine *e)
{
    free(e->fill_queue.at);
    free(e->eviction_queue.at);
}
