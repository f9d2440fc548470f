#include "all.h"
lo2_engine *lo2_engine_new(const lo2_config *config, char *error, size_t error_size) { return NULL; }
int lo2_engine_run(lo2_engine *engine, lo2_batch *batch) { return -1; }
const char *lo2_engine_error(const lo2_engine *engine) { return "not built"; }
const lo2_totals *lo2_engine_totals(const lo2_engine *engine) { return NULL; }
const uint64_t *lo2_engine_seen(const lo2_engine *engine, uint32_t stream) { return NULL; }
uint64_t lo2_engine_bytes_read(const lo2_engine *engine) { return 0; }
void lo2_engine_free(lo2_engine *engine) {}
