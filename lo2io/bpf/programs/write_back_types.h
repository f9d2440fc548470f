/* The kernel's write-back: the members that the programs read. See kernel_types.h. */
#ifndef LO2IO_BPF_WRITE_BACK_TYPES_H
#define LO2IO_BPF_WRITE_BACK_TYPES_H

#include "kernel_types.h"

enum wb_reason {
    WB_REASON_BACKGROUND,
    WB_REASON_VMSCAN,
    WB_REASON_SYNC,
    WB_REASON_PERIODIC,
    WB_REASON_LAPTOP_TIMER,
    WB_REASON_FS_FREE_SPACE,
    WB_REASON_FORKER_THREAD,
    WB_REASON_FOREIGN_FLUSH
};

struct wb_writeback_work {
    enum wb_reason reason;
} KERNEL_TYPE;

struct bdi_writeback {
    unsigned long state;
} KERNEL_TYPE;

#endif
