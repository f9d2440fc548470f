/* Adds up what reads found in the page cache: by process and by file group. */
#include "sums/derive.h"

enum { NR_VERDICTS = LO2_CACHE_MISS + 1 };

static void add_read(const lo2_cache_sums *sums, size_t place, const lo2_cache_rows *r, size_t i, int64_t page_bytes)
{
    size_t key = place * NR_VERDICTS + (size_t)r->cache[i];
    sums->reads[key]++;
    sums->bytes[key] += r->bytes_result[i] > 0 ? r->bytes_result[i] : 0;
    sums->missed_bytes[place] += r->cache_missed_pages[i] == UINT32_MAX ? 0 : r->cache_missed_pages[i] * page_bytes;
    if (r->cache[i] >= LO2_CACHE_HIT && r->cache_wait_ns[i] > 0) /* other reads wait for the device, not for pages */
        sums->wait_ns[place] += r->cache_wait_ns[i];
}

void lo2_cache_add(const lo2_sum_context *c, const lo2_cache_rows *r, int64_t page_bytes,
                   const lo2_cache_sums *by_process, const lo2_cache_sums *by_group)
{
    for (size_t i = 0; i < r->nr; i++) {
        if (r->cache[i] <= LO2_CACHE_NO_READ || r->cache[i] >= NR_VERDICTS)
            continue;
        add_read(by_process, (size_t)c->process_of_task[at_most(r->task[i], c->nr_tasks)], r, i, page_bytes);
        add_read(by_group, (size_t)c->group_of_handle[at_most(r->handle[i], c->nr_handles)], r, i, page_bytes);
    }
}
