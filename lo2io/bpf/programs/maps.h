/*
 * The maps and sections through which the programs share config.h's structures with user space and with each other.
 */
#ifndef LO2IO_BPF_MAPS_H
#define LO2IO_BPF_MAPS_H

#include "kernel_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "config.h"

/* In a section of their own each, so that the layout of its map is that of the struct. */
const volatile struct lo2_bpf_told lo2 SEC(".rodata.lo2io") = {};
volatile struct lo2_bpf_switch lo2_switch SEC(".data.lo2io") = {};

/* How often descriptors have ended, or all of a table at once (fd -1), counted by a hash of both: what a CPU knows of one
 * holds until another CPU, too, has seen it end. Addresses alone prove nothing: the next file may get the same. */
#define LO2_ENDS 4096
__u32 lo2_ends[LO2_ENDS] SEC(".bss.lo2io") = {};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);        /* as many as there may be CPUs: set before loading */
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct lo2_bpf_cpu);
} lo2_cpus SEC(".maps");

struct lo2_bpf_ring {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);     /* what each CPU gets is user space's to decide */
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, 1);        /* as lo2_cpus */
    __type(key, __u32);
    __array(values, struct lo2_bpf_ring);
} lo2_rings SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, 1);        /* as lo2_cpus */
    __type(key, __u32);
    __array(values, struct lo2_bpf_ring);
} lo2_sample_rings SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);        /* 1 << 10 where processes are selected */
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct lo2_bpf_selected);
} lo2_selected SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
    __uint(max_entries, 1);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
} lo2_cgroup SEC(".maps");

#endif
