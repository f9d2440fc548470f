/* Page faults of mapped files that needed I/O. */
#ifndef LO2IO_FAULTS_H
#define LO2IO_FAULTS_H

#include "tables/state.h"

void on_kernel_fault(engine *e, const uint8_t *record, uint32_t length, uint16_t cpu, int64_t time);
bool faults_flush(engine *e);
void faults_free(engine *e);

#endif
