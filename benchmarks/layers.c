/*
 * Work that the layers between a call and the disk look at:
 *
 *     layers hit|write|cold|fsync|mmap|fork N DATA RESULT
 *
 *     hit     N reads of 4 KiB that are in the page cache
 *     write   N buffered writes of 64 KiB, over 64 MiB
 *     cold    N reads of 4 KiB, all over the file, none in the page cache
 *     fsync   N times a write of 4 KiB and an fsync
 *     mmap    N pages of a mapping touched for the first time; they are in the page cache
 *     fork    N children that end at once
 *
 * DATA: a file of 64 MiB. RESULT gets nanoseconds a round, and CPU nanoseconds a round of the program and its children.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, LARGE = 65536, FILE_BYTES = 64 << 20, PRIME = 7919 };

static char buffer[LARGE];

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static double cpu_ns(int who)
{
    struct rusage r;
    getrusage(who, &r);
    return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e9 + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e3;
}

static off_t place(long round, long size) { return round * PRIME % (FILE_BYTES / size) * size; }

static int hit(int fd, long n)
{
    for (long i = 0; i < n; i++)
        if (pread(fd, buffer, PAGE, 0) != PAGE)
            return 1;
    return 0;
}

static int write_large(int fd, long n)
{
    for (long i = 0; i < n; i++)
        if (pwrite(fd, buffer, LARGE, i * LARGE % FILE_BYTES) != LARGE)
            return 1;
    return 0;
}

static int cold(int fd, long n)
{
    for (long i = 0; i < n; i++)
        if (pread(fd, buffer, PAGE, place(i, PAGE)) != PAGE)
            return 1;
    return 0;
}

static int sync_each(int fd, long n)
{
    for (long i = 0; i < n; i++)
        if (pwrite(fd, buffer, PAGE, place(i, PAGE)) != PAGE || fsync(fd))
            return 1;
    return 0;
}

static int touch(int fd, long n)
{
    volatile char sum = 0;
    while (n > 0) {
        char *map = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
            return 1;
        for (long at = 0; at < FILE_BYTES && n > 0; at += PAGE, n--)
            sum += map[at];
        munmap(map, FILE_BYTES);
    }
    return 0;
}

static int fork_each(int fd, long n)
{
    (void)fd;
    for (long i = 0; i < n; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        if (child < 0 || waitpid(child, NULL, 0) != child)
            return 1;
    }
    return 0;
}

static const struct { const char *name; int (*run)(int, long); bool cached; } MODES[] = {
    {"hit", hit, true}, {"write", write_large, true}, {"cold", cold, false},
    {"fsync", sync_each, true}, {"mmap", touch, true}, {"fork", fork_each, true},
};

/* The file's pages are in the page cache, or none is; whatever is dirty is written first. */
static int prepare(int fd, bool cached)
{
    if (fsync(fd) || posix_fadvise(fd, 0, 0, cached ? POSIX_FADV_NORMAL : POSIX_FADV_RANDOM))
        return 1;
    if (!cached)
        return posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    for (off_t at = 0; at < FILE_BYTES; at += LARGE)
        if (pread(fd, buffer, LARGE, at) != LARGE)
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    long n = argc == 5 ? atol(argv[2]) : 0;
    for (size_t i = 0; n > 0 && i < sizeof MODES / sizeof *MODES; i++) {
        if (strcmp(argv[1], MODES[i].name))
            continue;
        int fd = open(argv[3], O_RDWR);
        if (fd < 0 || MODES[i].run(fd, n / 10 + 1) || prepare(fd, MODES[i].cached)) /* the first rounds are not timed */
            return 1;
        double wall = now_ns(), cpu = cpu_ns(RUSAGE_SELF) + cpu_ns(RUSAGE_CHILDREN);
        if (MODES[i].run(fd, n))
            return 1;
        wall = now_ns() - wall;
        cpu = cpu_ns(RUSAGE_SELF) + cpu_ns(RUSAGE_CHILDREN) - cpu;
        FILE *file = fopen(argv[4], "w");
        return !file || fprintf(file, "%.1f %.1f\n", wall / n, cpu / n) < 0 || fclose(file);
    }
    fprintf(stderr, "usage: layers hit|write|cold|fsync|mmap|fork N DATA RESULT\n");
    return 2;
}
