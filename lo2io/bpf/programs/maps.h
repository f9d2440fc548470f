/* The maps and sections that share config.h's structures between the programs and with user space. */
#ifndef LO2IO_BPF_MAPS_H
#define LO2IO_BPF_MAPS_H

#include "kernel_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "config.h"

/* Each has a section of its own, so that its map has the layout of the struct. */
const volatile struct lo2_bpf_told lo2 SEC(".rodata.lo2io") = {};
volatile struct lo2_bpf_switch lo2_switch SEC(".data.lo2io") = {};

/*
 * Counts ends of descriptors, or of a whole table (fd -1), by a hash of table and fd. A CPU's knowledge about a descriptor
 * holds until any CPU counts an end of it. Addresses alone prove nothing, for the next file may get the same one.
 */
#define LO2_ENDS 4096
__u32 lo2_ends[LO2_ENDS] SEC(".bss.lo2io") = {};

/*
 * 1: somebody who is recorded has filled a file whose address_space has this hash. Pages of other files are taken out without
 * a record, for reclaim takes out pages of the whole machine.
 */
__u8 lo2_filled[LO2_FILLED] SEC(".bss.lo2io") = {};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);        /* user space sets this to the number of possible CPUs before loading */
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct lo2_bpf_cpu);
} lo2_cpus SEC(".maps");

struct lo2_bpf_ring {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, LO2_BUFFER_HEAD + 4096 + LO2_BUFFER_SLACK); /* a struct lo2_bpf_buffer; user space sets the size */
};

/*
 * Each CPU has a buffer for calls and, next to it, one for events. Both kinds are in one map of maps, because user space
 * waits for the kernel once for each map of maps.
 */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, 2);        /* LO2_RINGS for each CPU, set like those of lo2_cpus */
    __type(key, __u32);
    __array(values, struct lo2_bpf_ring);
} lo2_rings SEC(".maps");

/* Wakes the reader: a program cannot wake anybody through an array. The records in this buffer mean nothing. */
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} lo2_bell SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);        /* 1 << 10 if processes are selected */
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct lo2_bpf_selected);
} lo2_selected SEC(".maps");

/* Of the layer `waits`. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);        /* LO2_MAX_SLEEPERS if the layer is recorded */
    __type(key, __u32);
    __type(value, struct lo2_bpf_sleeper);
} lo2_sleepers SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);        /* LO2_MAX_STACKS if the layer is recorded */
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct lo2_bpf_stack);
} lo2_stacks SEC(".maps");

/* Of the layer `stacks`. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);        /* LO2_MAX_BEGUN if the layer is recorded */
    __type(key, __u32);
    __type(value, struct lo2_bpf_begun);
} lo2_begun SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);        /* LO2_MAX_USER_STACKS if the layer is recorded */
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct lo2_bpf_user_stack);
} lo2_user_stacks SEC(".maps");

/* Of the layer `faults`. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);        /* LO2_MAX_FAULTS if the layer is recorded */
    __type(key, __u32);
    __type(value, struct lo2_bpf_fault);
} lo2_faults SEC(".maps");

/* perf events that count an event on a CPU, at CPU * LO2_MAX_SAMPLED + place of the event. */
struct {
    __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
    __uint(max_entries, LO2_MAX_SAMPLED); /* that many for each CPU, set like those of lo2_cpus */
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
} lo2_counters SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
    __uint(max_entries, 1);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
} lo2_cgroup SEC(".maps");

#endif
