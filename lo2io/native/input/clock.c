/*
 * Converts times from the clock of facts (CLOCK_MONOTONIC) to the spool's clock. Now and then, both clocks are read at
 * one moment. Between two readings, the clocks drift apart evenly. If they moved apart by more than the kernel's clocks
 * ever drift, one of them jumped at an unknown time, for example because the machine was suspended. Then a fact is placed by its
 * distance from the nearer reading, and the error of its time has no bound.
 */
#include <math.h>

#include "input/clock.h"

/* NTP slews CLOCK_MONOTONIC by at most this rate (MAXFREQ, include/linux/timex.h). Other clocks drift far less. */
static const double MAX_DRIFT = 500e-6;
enum { LONG_NS = 1000000000 }; /* readings so far apart also tell the drift outside of them */

static int64_t rounded(double ns) { return ns > -4e18 && ns < 4e18 ? (int64_t)ns : 0; }

/* The ns by which the spool's clock gained on CLOCK_MONOTONIC between two readings. *steady: drift can explain them. */
static double parted(const lo2_sync *a, const lo2_sync *b, bool *steady)
{
    double elapsed = (double)minus(b->monotonic_ns, a->monotonic_ns);
    double step = (double)minus(minus(b->time_ns, a->time_ns), minus(b->monotonic_ns, a->monotonic_ns));
    *steady = fabs(step) <= elapsed * MAX_DRIFT + (double)a->error_ns + (double)b->error_ns;
    return step;
}

static fact_moment from_reading(const facts_clock *c, const lo2_sync *s, int64_t monotonic, double drift, double doubt)
{
    int64_t past = minus(monotonic, s->monotonic_ns);
    return (fact_moment){plus(plus(s->time_ns, past), rounded((double)past * drift)), c->margin, doubt < (double)JUMPED ? (int64_t)doubt : JUMPED};
}

/*
 * A time before the first reading or after the last: assumes the drift between the two nearest readings, if that is
 * known.
 */
static fact_moment outside(const facts_clock *c, uint32_t nearest, uint32_t inner, int64_t monotonic)
{
    const lo2_sync *s = &c->syncs[nearest], *a = &c->syncs[nearest < inner ? nearest : inner];
    double drift = 0, past = fabs((double)minus(monotonic, s->monotonic_ns));
    if (nearest != inner && minus(a[1].monotonic_ns, a->monotonic_ns) >= LONG_NS) {
        bool steady;
        double step = parted(a, a + 1, &steady);
        if (steady)
            drift = step / (double)minus(a[1].monotonic_ns, a->monotonic_ns);
    }
    return from_reading(c, s, monotonic, drift, past * MAX_DRIFT);
}

fact_moment fact_when(const facts_clock *c, uint64_t fact_time)
{
    int64_t monotonic = (int64_t)fact_time;
    uint32_t n = c->nr_syncs, after = 0;
    if (!n)
        return (fact_moment){monotonic, c->margin, 0};
    while (after < n && c->syncs[after].monotonic_ns < monotonic)
        after++;
    if (after == 0)
        return outside(c, 0, n > 1 ? 1 : 0, monotonic);
    if (after == n)
        return outside(c, n - 1, n > 1 ? n - 2 : 0, monotonic);
    const lo2_sync *a = &c->syncs[after - 1], *b = a + 1;
    double elapsed = (double)minus(b->monotonic_ns, a->monotonic_ns);
    bool steady;
    double step = parted(a, b, &steady);
    if (steady)
        return from_reading(c, a, monotonic, step / elapsed, 0);
    bool later = minus(b->monotonic_ns, monotonic) < minus(monotonic, a->monotonic_ns);
    return from_reading(c, later ? b : a, monotonic, 0, (double)JUMPED);
}
