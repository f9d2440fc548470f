/*
 * Reads a machine's clocks at one moment. The clocks of nodes are aligned by such readings. Events have times of
 * CLOCK_MONOTONIC, which NTP slews (adjtimex(2)). NTP does not slew CLOCK_MONOTONIC_RAW.
 */
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/timex.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "api/all.h"

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    return clock_gettime(clock, &now) ? INT64_MIN : (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* False: the kernel forbids this process to read the counter (PR_SET_TSC). */
static bool may_read_counter(void)
{
#if defined(__x86_64__)
    int allowed = 0;
    return !prctl(PR_GET_TSC, &allowed, 0, 0, 0) && allowed == PR_TSC_ENABLE;
#else
    return true;
#endif
}

/* 0: this machine has no such counter. */
static uint64_t read_counter(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t count;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
    return count;
#else
    return 0;
#endif
}

void lo2_read_clocks(uint32_t nr_tries, lo2_clock_reading *best)
{
    bool has_counter = may_read_counter(); /* asks the kernel, so it is no part of a reading */
    best->width_ns = INT64_MAX;
    for (uint32_t i = 0; i < nr_tries; i++) {
        lo2_clock_reading now;
        int64_t first = read_clock(CLOCK_MONOTONIC);
        now.tsc = has_counter ? read_counter() : 0;
        now.raw_ns = read_clock(CLOCK_MONOTONIC_RAW);
        now.realtime_ns = read_clock(CLOCK_REALTIME);
        now.tai_ns = read_clock(CLOCK_TAI);
        now.width_ns = read_clock(CLOCK_MONOTONIC) - first;
        now.monotonic_ns = first + now.width_ns / 2;
        now.tsc_ns = now.tsc ? now.monotonic_ns : INT64_MIN;
        if (now.width_ns < best->width_ns)
            *best = now;
    }
    struct timex state = {.modes = 0};
    bool known = adjtimex(&state) >= 0;
    best->is_synchronised = known && !(state.status & STA_UNSYNC);
    best->max_error_us = known ? state.maxerror : INT64_MIN;
    best->estimated_error_us = known ? state.esterror : INT64_MIN;
}
