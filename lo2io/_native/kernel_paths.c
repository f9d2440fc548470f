/* Paths that calls were given, as the kernel's own programs read them. */
#include "engine.h"

void on_kernel_path(engine *e, task *t, const uint8_t *record, uint32_t size) {}
