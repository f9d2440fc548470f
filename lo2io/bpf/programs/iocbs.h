/* What io_submit(2) was given, as records IOCB, and what io_getevents(2) returned, as records EVENTS. */
#ifndef LO2IO_BPF_IOCBS_H
#define LO2IO_BPF_IOCBS_H

#include "core.h"
#include "files.h"
#include "ring_types.h"

#define LO2_MAX_IOCBS 4096         /* of one call; few contexts hold more */

struct lo2_iocbs {
    struct lo2_moment *moment;
    __u64 array;                   /* of pointers, in the program's memory */
};

static long lo2_write_iocb(__u32 place, struct lo2_iocbs *iocbs)
{
    struct lo2_moment *moment = iocbs->moment;
    lo2_kernel_iocb record = { .place = place };
    __u32 size = moment->compat ? sizeof(__u32) : sizeof(__u64);
    struct lo2_iocb iocb;

    if (bpf_probe_read_user(&record.iocb, size, (const void *)(iocbs->array + place * size)) ||
        bpf_probe_read_user(&iocb, sizeof iocb, (const void *)record.iocb)) {
        moment->cpu->misses.unreadable++;
        return 1;
    }
    record.data = iocb.data;
    record.offset = iocb.offset;
    record.length = iocb.length;
    record.fd = iocb.fd;
    record.opcode = iocb.opcode;
    record.rw_flags = iocb.rw_flags;
    lo2_look_at_descriptor(moment, iocb.fd);
    lo2_tell(moment, LO2_FILE_OF_REQUEST);
    lo2_fill_head(&record.head, moment, LO2_KERNEL_IOCB, 0);
    lo2_write_fact(moment->cpu, moment->ring, &record, sizeof record);
    return 0;
}

/* At the entry, for the program may change the iocbs before the exit. */
INLINE void lo2_iocbs_at_entry(struct lo2_moment *moment)
{
    __s64 count = lo2_argument(moment, moment->call->iocbs_count);
    struct lo2_iocbs iocbs = { moment, lo2_argument(moment, moment->call->iocbs) };

    if (count > 0)
        bpf_loop(count < LO2_MAX_IOCBS ? count : LO2_MAX_IOCBS, lo2_write_iocb, &iocbs, 0);
}

#define LO2_EVENTS_AT_ONCE 64       /* of one record, which fits into the smallest buffer */
#define LO2_MAX_EVENT_RECORDS 1024  /* of one call: all contexts together hold 65,536 requests (fs.aio-max-nr) */

struct lo2_collected {
    struct lo2_moment *moment;
    __u64 array, count;            /* of struct io_event, in the program's memory */
};

static long lo2_write_events(__u32 number, struct lo2_collected *collected)
{
    struct lo2_moment *moment = collected->moment;
    struct lo2_bpf_cpu *cpu = moment->cpu;
    lo2_kernel_events *record = (lo2_kernel_events *)cpu->names.record;
    __u64 first = (__u64)number * LO2_EVENTS_AT_ONCE, count = collected->count - first, bytes;

    if (count > LO2_EVENTS_AT_ONCE)
        count = LO2_EVENTS_AT_ONCE;
    bytes = count * sizeof(lo2_kernel_event);
    barrier_var(bytes);
    if (bytes > LO2_EVENTS_AT_ONCE * sizeof(lo2_kernel_event))
        return 1;
    if (bpf_probe_read_user(&cpu->names.record[sizeof *record], bytes,
                            (const void *)(collected->array + first * sizeof(lo2_kernel_event)))) {
        cpu->misses.unreadable++;
        return 1;
    }
    record->context = lo2_argument(moment, moment->call->context);
    record->count = count;
    record->reserved = 0;
    lo2_fill_head(&record->head, moment, LO2_KERNEL_EVENTS, 0);
    lo2_write_fact(cpu, moment->ring, record, sizeof *record + bytes);
    return 0;
}

/* At the exit, for the events are not there before. */
INLINE void lo2_events_at_exit(struct lo2_moment *moment)
{
    struct lo2_collected collected = { moment, lo2_argument(moment, moment->call->events), moment->result };
    __u64 records = (collected.count + LO2_EVENTS_AT_ONCE - 1) / LO2_EVENTS_AT_ONCE;

    if (moment->result > 0)
        bpf_loop(records < LO2_MAX_EVENT_RECORDS ? records : LO2_MAX_EVENT_RECORDS, lo2_write_events, &collected, 0);
}

#endif
