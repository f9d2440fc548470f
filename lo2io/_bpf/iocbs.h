/*
 * What io_submit(2) was given: records IOCB.
 */
#ifndef LO2IO_BPF_IOCBS_H
#define LO2IO_BPF_IOCBS_H

#include "core.h"
#include "files.h"
#include "ring_types.h"

#define LO2_MAX_IOCBS 4096         /* of one call; a context is rarely made for so many */

struct lo2_iocbs {
    struct lo2_moment *moment;
    __u64 array;                   /* of pointers, in the program's memory */
};

static long lo2_write_iocb(__u32 place, struct lo2_iocbs *iocbs)
{
    struct lo2_moment *moment = iocbs->moment;
    lo2_kernel_iocb record = { .place = place };
    struct lo2_iocb iocb;

    if (bpf_probe_read_user(&record.iocb, sizeof record.iocb, (const void *)(iocbs->array + place * sizeof(__u64))) ||
        bpf_probe_read_user(&iocb, sizeof iocb, (const void *)record.iocb)) {
        moment->cpu->misses.unreadable++;
        return 1;
    }
    record.data = iocb.data;
    record.offset = iocb.offset;
    record.length = iocb.length;
    record.fd = iocb.fd;
    record.opcode = iocb.opcode;
    lo2_look_at_descriptor(moment, iocb.fd);
    lo2_tell(moment, LO2_FILE_OF_REQUEST);
    lo2_fill_head(&record.head, moment, LO2_KERNEL_IOCB, 0);
    lo2_write_fact(moment->cpu, moment->ring, &record, sizeof record);
    return 0;
}

/* At the entry: at the exit they may be others already. */
INLINE void lo2_iocbs_at_entry(struct lo2_moment *moment)
{
    __s64 count = lo2_argument(moment, moment->call->iocbs_count);
    struct lo2_iocbs iocbs = { moment, lo2_argument(moment, moment->call->iocbs) };

    if (count > 0)
        bpf_loop(count < LO2_MAX_IOCBS ? count : LO2_MAX_IOCBS, lo2_write_iocb, &iocbs, 0);
}

#endif
