/*
 * What requests of io_uring ask for: records SQE, read off the submission queue while the kernel prepares the request.
 * The program reads the entry that the kernel took last, if its user_data and opcode are the request's.
 */
#ifndef LO2IO_BPF_SQES_H
#define LO2IO_BPF_SQES_H

#include "core.h"
#include "files.h"
#include "ring_types.h"

enum { /* include/uapi/linux/io_uring.h */
    LO2_SETUP_SQE128 = 1 << 10, LO2_SETUP_NO_SQARRAY = 1 << 16,
    LO2_SQE_FIXED_FILE = 1, LO2_SQE_BUFFER_SELECT = 32,
    LO2_SQE_LATER = 2 | 4 | 8 | 16, /* DRAIN, LINK, HARDLINK, ASYNC */
    LO2_RECVSEND_FIXED_BUF = 4, LO2_SEND_VECTORIZED = 32,
    LO2_OP_READV = 1, LO2_OP_WRITEV = 2, LO2_OP_SENDMSG = 9, LO2_OP_RECVMSG = 10, LO2_OP_FALLOCATE = 17, LO2_OP_CLOSE = 19,
    LO2_OP_FADVISE = 24, LO2_OP_SEND = 26, LO2_OP_MSG_RING = 40, LO2_OP_SEND_ZC = 47, LO2_OP_SENDMSG_ZC = 48
};
#define LO2_SPLICE_FIXED (1u << 31)
#define LO2_NO_BYTES (~0ull)

enum { LO2_SQE_BYTES = 64 };

/* The address of the entry of the submission queue that was taken last (io_get_sqe, io_uring/io_uring.c); 0: there is none. */
INLINE __u64 lo2_last_sqe(const struct io_ring_ctx *ctx, __u32 flags)
{
    __u32 entries = LO2_READ(ctx, struct io_ring_ctx, sq_entries);
    __u32 head = (LO2_READ(ctx, struct io_ring_ctx, cached_sq_head) - 1) & (entries - 1);
    __u64 array, at;

    if (!(flags & LO2_SETUP_NO_SQARRAY)) {
        array = (__u64)LO2_READ(ctx, struct io_ring_ctx, sq_array);
        if (array)
            head = LO2_READ((const __u32 *)array + head, struct io_uring, head);
    }
    if (head >= entries)
        return 0;
    at = (__u64)head * LO2_SQE_BYTES;
    if (flags & LO2_SETUP_SQE128) {
        at += at;
        barrier_var(at); /* the verifier would not know how large it is after a shift by a variable */
    }
    return (__u64)LO2_READ(ctx, struct io_ring_ctx, sq_sqes) + at;
}

/* Word by word, for a copy of the whole would take a call. */
INLINE bool lo2_read_sqe(__u64 entry, struct lo2_sqe *sqe)
{
    const struct bpf_perf_event_value *first, *second;

    if (!LO2_CAN_CAST || !bpf_core_type_exists(struct bpf_perf_event_value))
        return !bpf_probe_read_kernel(sqe, sizeof *sqe, (const void *)entry);
    first = bpf_rdonly_cast((const void *)entry, bpf_core_type_id_kernel(struct bpf_perf_event_value));
    second = bpf_rdonly_cast((const void *)(entry + 3 * sizeof(__u64)), bpf_core_type_id_kernel(struct bpf_perf_event_value));
    sqe->begin = first->counter;
    sqe->offset = first->enabled;
    sqe->length = second->counter;
    sqe->user_data = second->enabled;
    sqe->end = second->running;
    return true;
}

/* The file in a place of the ring's files, or 0. The submitter has locked the ring, so nothing changes there now. */
INLINE __u64 lo2_registered(const struct io_ring_ctx *ctx, __u32 place)
{
    const struct io_ring_ctx___before *before = (const struct io_ring_ctx___before *)ctx;
    __u64 file = 0;

    if (bpf_core_field_exists(struct io_file_table, data)) {
        struct io_rsrc_node **nodes = LO2_READ(ctx, struct io_ring_ctx, file_table.data.nodes);
        if (place >= LO2_READ(ctx, struct io_ring_ctx, file_table.data.nr))
            return 0;
        /* An empty place has no node, and reads as 0. */
        file = LO2_READ(LO2_READ(nodes + place, struct hlist_head, first), struct io_rsrc_node, file_ptr);
    } else if (bpf_core_field_exists(struct io_ring_ctx___before, nr_user_files)) {
        if (place >= BPF_CORE_READ(before, nr_user_files) ||
            bpf_probe_read_kernel(&file, sizeof file, BPF_CORE_READ(before, file_table.files) + place))
            return 0;
    }
    return file & ~7ull;
}

/* The bytes of a request whose `len` does not count them. `address` is the entry's. */
INLINE __u64 lo2_sqe_bytes(const struct io_kiocb *request, const lo2_asked *asked, __u64 address)
{
    const void *data;

    switch (asked->opcode) {
    case LO2_OP_FALLOCATE: return address;
    case LO2_OP_FADVISE: return address ? address : asked->length;
    case LO2_OP_READV:
    case LO2_OP_WRITEV:
        if (asked->flags & LO2_SQE_BUFFER_SELECT || !bpf_core_field_exists(struct io_async_rw, iter))
            return LO2_NO_BYTES;
        data = LO2_READ(request, struct io_kiocb, async_data); /* since Linux 6.10, the vectors have been imported by now */
        return data ? LO2_READ(data, struct io_async_rw, iter.count) : LO2_NO_BYTES;
    case LO2_OP_SEND:
    case LO2_OP_SEND_ZC:
        if (!(asked->ioprio & LO2_SEND_VECTORIZED))
            return LO2_NO_BYTES;
        /* fallthrough */
    case LO2_OP_SENDMSG:
    case LO2_OP_RECVMSG:
    case LO2_OP_SENDMSG_ZC:
        if (asked->flags & LO2_SQE_BUFFER_SELECT || asked->ioprio & LO2_RECVSEND_FIXED_BUF ||
            !bpf_core_field_exists(struct io_async_rw, iter)) /* such kernels have imported the message's vectors, too */
            return LO2_NO_BYTES;
        data = LO2_READ(request, struct io_kiocb, async_data);
        return data ? LO2_READ(data, struct io_async_msghdr, msg.msg_iter.count) : LO2_NO_BYTES;
    default: return LO2_NO_BYTES;
    }
}

INLINE bool lo2_changes_places(__u8 opcode) { return lo2.config.asks[opcode] & LO2_ASKS_PLACES; }

/*
 * Invalidates what CPUs know about the descriptors and the places of rings that a request changes. Call this when the
 * request is submitted, and when it is done. Arguments: addresses of the ring and of the request.
 */
LO2_ONCE int lo2_forget_asked(__u64 ctx, __u64 address)
{
    const struct io_kiocb *request = (const struct io_kiocb *)address;
    __u8 opcode = LO2_READ(request, struct io_kiocb, opcode);
    __u64 table;
    __s32 fd = -1;

    if (!lo2_changes_places(opcode))
        return 0;
    lo2_forget(ctx, -1);
    if (opcode == LO2_OP_MSG_RING) { /* it may fill a place of another ring */
        table = (__u64)BPF_CORE_READ(request, file, private_data);
        lo2_forget(table, -1);
    }
    if (opcode != LO2_OP_CLOSE)
        return 0;
    if (bpf_core_field_exists(struct io_close, fd))
        fd = LO2_READ(request, struct io_close, fd);
    table = (__u64)BPF_CORE_READ(bpf_get_current_task_btf(), files);
    lo2_forget(table, fd);
    return 0;
}

/*
 * Tells which file a request names, by a place of a ring or by a descriptor. Leaves the file's address in the CPU's
 * look.
 */
LO2_ONCE int lo2_tell_asked(__u64 ctx, __u32 number, __u32 registered)
{
    struct lo2_moment moment = { .task = bpf_get_current_task_btf() };
    __u64 table = ctx, file;
    __u32 cpu_number, ends;

    moment.cpu = lo2_this_cpu(&cpu_number);
    if (!moment.cpu)
        return 0;
    if (!registered)
        table = lo2_number(&moment.cpu->names, LO2_READ(moment.task, struct task_struct, files));
    ends = lo2_count_ends(moment.cpu, table, number);
    lo2_fence(&moment.cpu->names);
    file = registered ? lo2_registered((const struct io_ring_ctx *)ctx, number) : lo2_file_at(moment.task, number);
    lo2_look_at(moment.cpu, file, number, table, ends, registered ? LO2_FILE_SLOT : 0);
    lo2_tell(&moment, LO2_FILE_OF_REQUEST);
    return 0;
}

/* Address of the file that a request names; 0: not known. A request that runs later may find another file in the place. */
INLINE __u64 lo2_asked_file(const struct lo2_moment *moment, __u64 ctx, __u32 number, bool registered, bool later)
{
    if (registered && later)
        return 0;
    lo2_tell_asked(ctx, number, registered);
    return moment->cpu->look.file;
}

/* The address in an entry: which memory, or how many bytes. */
INLINE __u64 lo2_address_in(__u64 entry)
{
    return LO2_READ(entry + __builtin_offsetof(struct lo2_sqe, address), struct bpf_perf_event_value, counter);
}

/* A request that is being submitted. */
struct lo2_submission {
    const struct io_kiocb *request;
    const struct io_ring_ctx *ctx;
    __u32 ring_flags;
    bool typed;                    /* `request` is an argument of a typed tracepoint */
};

/* A number in the request. */
#define LO2_OF_SUBMISSION(submission, member)     ((submission)->typed ? (submission)->request->member : LO2_READ((submission)->request, struct io_kiocb, member))

/* Tells of the files that a request names. False: another program has the CPU. */
INLINE bool lo2_tell_files(const struct lo2_submission *submission, struct lo2_bpf_cpu *cpu, lo2_asked *asked)
{
    struct lo2_moment moment = { .cpu = cpu };
    bool later, closes_place;
    __u64 ring;

    if (!lo2_take_cpu(cpu))
        return false;
    later = LO2_OF_SUBMISSION(submission, flags) & LO2_SQE_LATER ||
            LO2_READ(submission->ctx, struct io_ring_ctx, submit_state.link.head);
    ring = lo2_number(&cpu->names, submission->ctx);
    closes_place = asked->opcode == LO2_OP_CLOSE && asked->file_index;
    /*
     * Read twice. A value kept over the call would make the verifier follow each opcode of lo2_sqe_bytes apart (0.9 s
     * more).
     */
    if (lo2.config.asks[asked->opcode] & LO2_ASKS_FILE)
        asked->file = lo2_asked_file(&moment, ring, closes_place ? asked->file_index - 1 : asked->fd,
                                     closes_place || asked->flags & LO2_SQE_FIXED_FILE, later);
    if (lo2.config.asks[asked->opcode] & LO2_ASKS_TWO_FILES)
        asked->file2 = lo2_asked_file(&moment, ring, asked->file_index, asked->op_flags & LO2_SPLICE_FIXED, later);
    if (lo2_changes_places(asked->opcode))
        lo2_forget_asked(ring, lo2_as_number(submission->request));
    lo2_give_back(cpu);
    return true;
}

/*
 * Reads what a request asks for while it is being submitted, and writes FILE for the files that the request names. These
 * records have earlier times than the submission. False: the request's entry could not be read, the entry is not wanted,
 * or another program has the CPU.
 */
INLINE bool lo2_ask(const struct lo2_submission *submission, struct lo2_bpf_cpu *cpu, lo2_asked *asked)
{
    struct lo2_sqe sqe;
    __u64 entry;

    if (!lo2.config.facts || !bpf_core_field_exists(struct io_kiocb, cqe)) /* before 5.19; nor is there the tracepoint */
        return false;
    if (!cpu || !lo2_is_recorded(bpf_get_current_task_btf()))
        return false;
    entry = lo2_last_sqe(submission->ctx, submission->ring_flags);
    if (!entry || !lo2_read_sqe(entry, &sqe) || sqe.user_data != LO2_OF_SUBMISSION(submission, cqe.user_data) ||
        (__u8)sqe.begin != LO2_OF_SUBMISSION(submission, opcode)) {
        __sync_fetch_and_add(&cpu->misses.unreadable, 1);
        return false;
    }
    lo2_copy(&asked->opcode, &sqe.begin, sizeof sqe.begin);
    asked->offset = sqe.offset;
    lo2_copy(&asked->length, &sqe.length, sizeof sqe.length);
    lo2_copy(&asked->buf_index, &sqe.end, sizeof sqe.end);
    asked->file = asked->file2 = 0;
    asked->bytes = LO2_NO_BYTES;
    if (lo2.config.asks[asked->opcode] & LO2_ASKS_BYTES)
        asked->bytes = lo2_sqe_bytes((const struct io_kiocb *)lo2_as_number(submission->request), asked, lo2_address_in(entry));
    return !(lo2.config.asks[asked->opcode] & ~LO2_ASKS_BYTES) || lo2_tell_files(submission, cpu, asked);
}

/* For a submission that perf records. What the request asks for becomes a record of its own, before perf's sample. */
INLINE void lo2_write_sqe(const struct io_kiocb *request)
{
    struct lo2_moment moment = { .task = bpf_get_current_task_btf() };
    struct lo2_submission submission = { .request = request, .ctx = LO2_READ(request, struct io_kiocb, ctx) };
    lo2_kernel_sqe record = {};
    __u32 cpu_number;

    submission.ring_flags = LO2_READ(submission.ctx, struct io_ring_ctx, flags);
    moment.cpu = lo2_this_cpu(&cpu_number);
    if (!lo2_ask(&submission, moment.cpu, &record.asked) || !lo2_take_cpu(moment.cpu))
        return;
    moment.ring = lo2_ring(&cpu_number);
    if (moment.cpu->slot.occupied)
        lo2_flush_slot(moment.cpu, moment.ring);
    moment.time_ns = bpf_ktime_get_ns();
    record.request = (__u64)request;
    record.ring = lo2_number(&moment.cpu->names, submission.ctx);
    record.user_data = LO2_READ(request, struct io_kiocb, cqe.user_data);
    lo2_fill_head(&record.head, &moment, LO2_KERNEL_SQE, 0);
    lo2_write_fact(moment.cpu, moment.ring, &record, sizeof record);
    lo2_give_back(moment.cpu);
}

#endif
