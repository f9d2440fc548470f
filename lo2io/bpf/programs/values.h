/* Values behind a call's pointers that its row needs: the bytes of all iovecs, and the flags of struct open_how. */
#ifndef LO2IO_BPF_VALUES_H
#define LO2IO_BPF_VALUES_H

#include "core.h"

/* include/uapi/linux/uio.h, of 64 bit programs; and struct compat_iovec of include/linux/compat.h. */
#define LO2_MAX_VECTORS 1024       /* UIO_MAXIOV: the kernel refuses more */
struct lo2_vector {
    __u64 base, length;
};
struct lo2_compat_vector {
    __u32 base, length;
};

/* The first version of struct open_how in include/uapi/linux/openat2.h: the kernel refuses less. */
struct lo2_open_how {
    __u64 flags, mode, resolve;
};

/* `names->sum` has the total. If a variable had it, the verifier would follow the variable's values, vector by vector. */
struct lo2_vectors {
    struct lo2_bpf_names *names;
    bool compat;
};

INLINE bool lo2_read_how(const struct lo2_moment *moment, struct lo2_open_how *how)
{
    const volatile struct lo2_bpf_call *call = moment->call;
    const void *pointer = (const void *)lo2_argument(moment, call->how);

    if (call->how_size && lo2_argument(moment, call->how_size) < sizeof *how)
        return false;
    return !bpf_probe_read_user(how, sizeof *how, pointer);
}

static long lo2_add_vector(__u32 index, struct lo2_vectors *vectors)
{
    struct lo2_bpf_names *names = vectors->names;
    const struct lo2_vector *all = (const struct lo2_vector *)names->record;
    const struct lo2_compat_vector *small = (const struct lo2_compat_vector *)names->record;
    __u64 total = names->sum;

    if (vectors->compat)
        total += (__s64)(__s32)small[index % LO2_MAX_VECTORS].length;
    else
        total += all[index % LO2_MAX_VECTORS].length;
    if (total < names->sum || total >> 63) { /* the kernel refuses such a sum (lib/iov_iter.c) */
        names->sum = (__u64)INT64_MIN;
        return 1;
    }
    names->sum = total;
    return 0;
}

/* Bytes of `count` iovecs; INT64_MIN: they cannot be read, or there are too many. */
static __noinline __s64 lo2_read_vectors(struct lo2_bpf_cpu *cpu, __u64 pointer, __u64 count, bool compat)
{
    struct lo2_vectors vectors = { .names = &cpu->names, .compat = compat };
    __u64 size = compat ? sizeof(struct lo2_compat_vector) : sizeof(struct lo2_vector);

    barrier_var(count);
    if (count > LO2_MAX_VECTORS)
        return INT64_MIN;
    if (bpf_probe_read_user(cpu->names.record, count * size, (const void *)pointer)) {
        cpu->misses.unreadable++;
        return INT64_MIN;
    }
    cpu->names.sum = 0;
    bpf_loop(count, lo2_add_vector, &vectors, 0);
    return cpu->names.sum;
}

/* At the exit, before CALL or EXIT is written: sets moment->value. */
INLINE void lo2_look_at_values(struct lo2_moment *moment)
{
    const volatile struct lo2_bpf_call *call = moment->call;
    struct lo2_open_how how = {};

    if (call->vector) {
        moment->value = lo2_read_vectors(moment->cpu, lo2_argument(moment, call->vector),
                                         lo2_argument(moment, call->vector_count), moment->compat);
    } else if (call->how) {
        if (lo2_read_how(moment, &how))
            moment->value = how.flags;
    }
}

#endif
