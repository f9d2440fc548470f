/* What requests of libaio ask for, as the kernel's own programs read it. */
#include "engine.h"

void on_kernel_iocb(engine *e, task *t, const uint8_t *record, uint32_t size) {}
