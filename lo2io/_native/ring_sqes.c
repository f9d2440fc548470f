/* What requests of rings ask for, as the kernel's own programs read it. */
#include "engine.h"

void on_kernel_sqe(engine *e, task *t, const uint8_t *record, uint32_t size) {}
