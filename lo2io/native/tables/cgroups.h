/* Cgroups of processes. */
#ifndef LO2IO_CGROUPS_H
#define LO2IO_CGROUPS_H

#include "tables/state.h"

void on_cgroup_fact(engine *e, process *p, uint32_t hierarchy, const char *path, uint32_t length, int64_t begin);
bool cgroup_is_recorded(const engine *e, const process *p);
void on_cgroup_attach(engine *e, const lo2_event *event, const uint8_t *raw, uint32_t raw_size, int64_t time);

#endif
