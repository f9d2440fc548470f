/* Until ring_requests.c is there. */
#include "rings.h"
#define WEAK __attribute__((weak))
WEAK void on_ring(engine *e, const lo2_event *event, const uint8_t *raw, uint32_t tid, uint16_t cpu, int64_t time)
{ (void)e; (void)event; (void)raw; (void)tid; (void)cpu; (void)time; }
WEAK void ring_thread_moved_on(engine *e, task *t, int64_t time) { (void)e; (void)t; (void)time; }
WEAK void ring_requests_abandon(engine *e, uint32_t ring_index, bool torn_down) { (void)e; (void)ring_index; (void)torn_down; }
WEAK void ring_worker_exited(engine *e, task *t, int64_t time) { (void)e; (void)t; (void)time; }
WEAK void ring_worker_switched(engine *e, task *t, bool leaves, int64_t time) { (void)e; (void)t; (void)leaves; (void)time; }
WEAK uint64_t ring_request_at(engine *e, task *t, int64_t time) { (void)e; (void)t; (void)time; return 0; }
WEAK bool ring_requests_finish(engine *e) { (void)e; return true; }
WEAK bool ring_requests_flush(engine *e) { (void)e; return true; }
WEAK void ring_requests_free(engine *e) { (void)e; }
