/* Files as the kernel's own programs name them. */
#include "engine.h"

void on_kernel_file(engine *e, task *t, const uint8_t *record, uint32_t size) {}
