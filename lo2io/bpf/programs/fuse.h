/*
 * The layer `fuse`: requests that the kernel sends to the server of a FUSE file system.
 *
 *   thread of a call    FUSE_SEND ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄ goes on
 *   server              reads the request ── writes the reply: FUSE_END
 *
 * FUSE_END is written whoever ends the request, because the server need not be a recorded process. The engine knows whose request
 * it was. A request without a reply, such as FORGET, fires neither tracepoint.
 */
#ifndef LO2IO_BPF_FUSE_H
#define LO2IO_BPF_FUSE_H

#include "events.h"
#include "fits.h"
#include "vfs_types.h"

struct fuse_conn {
    __u32 dev;
} KERNEL_TYPE;

struct fuse_mount {
    struct fuse_conn *fc;
} KERNEL_TYPE;

struct fuse_in_header {
    __u32 len;
    __u32 opcode;
    __u64 unique;
} KERNEL_TYPE;

struct fuse_out_header {
    __u32 len;
    __s32 error;
} KERNEL_TYPE;

struct fuse_req {
    struct {
        struct fuse_in_header h;
    } in;
    struct {
        struct fuse_out_header h;
    } out;
    struct fuse_mount *fm;
} KERNEL_TYPE;

typedef void (*btf_trace_fuse_request_send)(void *, const struct fuse_req *);
typedef void (*btf_trace_fuse_request_end)(void *, const struct fuse_req *);

#define LO2_LAYER_FITS_fuse \
    (LO2_HAS(fuse_request_send) && LO2_HAS(fuse_request_end) && bpf_core_field_exists(struct fuse_req, fm))

/* FUSE may be a module, whose types bpf_rdonly_cast does not know: so not LO2_READ. */
#define LO2_FUSE_READ(pointer, type, field) \
    ({ \
        const type *lo2_object = (const type *)(pointer); \
        typeof(((type *)0)->field) lo2_value; \
        if (bpf_core_read(&lo2_value, sizeof lo2_value, &lo2_object->field)) \
            lo2_value = 0; \
        lo2_value; \
    })

INLINE int lo2_write_fuse(lo2_kernel_fuse_send *record, const struct fuse_req *request)
{
    const struct fuse_mount *mount = LO2_FUSE_READ(request, struct fuse_req, fm);
    __u32 number;
    struct lo2_bpf_cpu *cpu = lo2_this_cpu(&number);

    if (!cpu)
        return 0;
    record->head.tid = bpf_get_current_task_btf()->pid;
    record->connection = LO2_FUSE_READ(LO2_FUSE_READ(mount, struct fuse_mount, fc), struct fuse_conn, dev);
    record->unique = LO2_FUSE_READ(request, struct fuse_req, in.h.unique);
    lo2_write_event(cpu, lo2_ring_for(number, LO2_RING_EVENTS), &record->head, sizeof *record);
    return 0;
}

SEC("tp_btf/fuse_request_send")
int lo2_fuse_fuse_request_send(__u64 *context)
{
    const struct fuse_req *request = (const struct fuse_req *)context[0];
    lo2_kernel_fuse_send record = { .head.type = LO2_KERNEL_FUSE_SEND };

    if (!lo2_switch.on || !LO2_LAYER_FITS_fuse || !lo2_is_recorded(bpf_get_current_task_btf()))
        return 0;
    record.opcode = LO2_FUSE_READ(request, struct fuse_req, in.h.opcode);
    record.bytes = LO2_FUSE_READ(request, struct fuse_req, in.h.len);
    return lo2_write_fuse(&record, request);
}

SEC("tp_btf/fuse_request_end")
int lo2_fuse_fuse_request_end(__u64 *context)
{
    const struct fuse_req *request = (const struct fuse_req *)context[0];
    lo2_kernel_fuse_end record = { .head.type = LO2_KERNEL_FUSE_END };

    if (!lo2_switch.on || !LO2_LAYER_FITS_fuse)
        return 0;
    record.error = LO2_FUSE_READ(request, struct fuse_req, out.h.error);
    record.bytes = LO2_FUSE_READ(request, struct fuse_req, out.h.len);
    return lo2_write_fuse(&record, request);
}

#endif
