/* All native files include this first. */
#ifndef LO2IO_ALL_H
#define LO2IO_ALL_H
#include <stddef.h>
#include <stdint.h>
#include "api/tracepoints.h"
#include "api/columns.h"
#include "api/ring_columns.h"
#include "api/lo2io.h"
#include "api/capture.h"
#include "api/facts.h"
#include "bpf/programs/records.h"
#include "bpf/programs/samples.h"
#include "bpf/programs/config.h"
#include "api/otf2_events.h"
#include "api/otf2_reader.h"
#include "api/perfetto.h"
#include "api/sums.h"
#include "api/merge.h"
#endif
