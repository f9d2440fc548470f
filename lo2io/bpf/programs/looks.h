/* The record that looks.bpf.c writes for each thread. For a descriptor, it writes a lo2_fact_fd with its frame. */
#ifndef LO2IO_BPF_LOOKS_H
#define LO2IO_BPF_LOOKS_H

/* If two looks at one thread give the same bytes, its TASK and COMMAND facts are the same, too. */
struct lo2_look_task {
    uint64_t born_ns;              /* CLOCK_BOOTTIME */
    uint64_t exec;                 /* another one after each exec */
    uint64_t cgroups;              /* another one in each set of cgroups: an address, which may come again */
    uint64_t cgroup;               /* the id of the cgroup in v2 */
    uint32_t pid, tid, ppid;
    uint32_t is_kernel;            /* a thread of the kernel */
    char comm[16];
};

#endif
