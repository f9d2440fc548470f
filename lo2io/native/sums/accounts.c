/* System calls added up as the kernel adds them up in /proc/PID/io (lo2io/convert/reconcile.py compares both). */
#include "api/all.h"

enum { NOT_A_DESCRIPTOR = 9, CANNOT_SEEK = 29 }; /* EBADF, ESPIPE: found before the kernel asks the file */

static void add(int64_t *sum, int64_t value) { *sum = (int64_t)((uint64_t)*sum + (uint64_t)value); }

size_t lo2_account_calls(const lo2_account_sums *sums, const lo2_account_rows *rows, size_t from)
{
    for (size_t row = from; row < rows->nr; row++) {
        int64_t end = rows->end_time_ns[row], moved = rows->bytes_result[row];
        uint32_t task = rows->task[row];
        uint16_t call = rows->call[row];
        if (end < sums->begin_ns || end > sums->end_ns || task == UINT32_MAX || call >= sums->nr_calls)
            continue;
        if (task >= sums->nr_tasks)
            return row;
        bool counts = rows->error[row] != NOT_A_DESCRIPTOR && rows->error[row] != CANNOT_SEEK;
        if (moved == INT64_MIN)
            moved = 0;
        if (sums->reads[call]) {
            add(&sums->rchar[task], moved);
            sums->syscr[task] += counts;
        }
        if (sums->writes[call]) {
            add(&sums->wchar[task], moved);
            sums->syscw[task] += counts;
        }
    }
    return rows->nr;
}
