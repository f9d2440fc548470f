/* What every native file includes first. */
#ifndef LO2IO_ALL_H
#define LO2IO_ALL_H
#include <stddef.h>
#include <stdint.h>
#include "tracepoints.h"
#include "columns.h"
#include "ring_columns.h"
#include "lo2io.h"
#include "capture.h"
#include "facts.h"
#include "kernel_records.h"
#include "otf2_events.h"
#include "otf2_reader.h"
#include "perfetto.h"
#endif
