/*
 * Requests of one kind through a ring, as fast as possible:
 *
 *     rings MODE N PATH RESULT      RESULT gets JSON: wall clock and CPU time of the loop alone
 *
 * MODE       a request is
 * nop        a NOP; one call submits and collects 32
 * cached     a read of 4 KiB from the cached file PATH, 32 by one call
 * direct     a read of 4 KiB past the page cache from PATH, anywhere in the file; 32 are always under way
 *
 * Raw system calls, so that no library is needed. Exit code 1 if a request fails or does not complete exactly once.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4096, DEPTH = 32 };

static int ring_fd, fd;
static unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
static struct io_uring_sqe *sqes;
static struct io_uring_cqe *cqes;
static uint64_t blocks, seed = 88172645463325252ULL;
static unsigned char *done;
static char buffers[DEPTH][BYTES] __attribute__((aligned(BYTES)));
static unsigned free_buffers[DEPTH], nr_free;
static unsigned *buffer_of;

static uint64_t any(void) /* xorshift64, Marsaglia 2003 */
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static int make_ring(void)
{
    struct io_uring_params p = {0};
    ring_fd = (int)syscall(SYS_io_uring_setup, DEPTH, &p);
    if (ring_fd < 0 || !(p.features & IORING_FEAT_SINGLE_MMAP))
        return 1;
    size_t sq = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    size_t cq = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    char *at = mmap(NULL, sq > cq ? sq : cq, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_fd,
                    IORING_OFF_SQ_RING);
    sqes = mmap(NULL, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_fd,
                IORING_OFF_SQES);
    if (at == MAP_FAILED || sqes == MAP_FAILED)
        return 1;
    sq_tail = (unsigned *)(at + p.sq_off.tail);
    sq_mask = (unsigned *)(at + p.sq_off.ring_mask);
    sq_array = (unsigned *)(at + p.sq_off.array);
    cq_head = (unsigned *)(at + p.cq_off.head);
    cq_tail = (unsigned *)(at + p.cq_off.tail);
    cq_mask = (unsigned *)(at + p.cq_off.ring_mask);
    cqes = (struct io_uring_cqe *)(at + p.cq_off.cqes);
    return 0;
}

static void prepare(long number, int nop)
{
    unsigned tail = *sq_tail, index = tail & *sq_mask, buffer = free_buffers[--nr_free];
    struct io_uring_sqe *sqe = &sqes[index];
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = nop ? IORING_OP_NOP : IORING_OP_READ;
    sqe->fd = nop ? -1 : fd;
    sqe->user_data = (uint64_t)number;
    buffer_of[number] = buffer;
    if (!nop) {
        sqe->addr = (uint64_t)(uintptr_t)buffers[buffer];
        sqe->len = BYTES;
        sqe->off = any() % blocks * BYTES;
    }
    sq_array[index] = index;
    __atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
}

/* The number of collected requests; -1: one failed, or came twice. */
static int collect(int nop)
{
    unsigned head = *cq_head, tail = __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE);
    int count = (int)(tail - head);
    for (; head != tail; head++) {
        struct io_uring_cqe *cqe = &cqes[head & *cq_mask];
        if (cqe->res != (nop ? 0 : BYTES) || done[cqe->user_data]++)
            return -1;
        free_buffers[nr_free++] = buffer_of[cqe->user_data];
    }
    __atomic_store_n(cq_head, head, __ATOMIC_RELEASE);
    return count;
}

static int loop(long requests, int nop, int all_at_once)
{
    long begun = 0, ended = 0;
    while (ended < requests) {
        long room = DEPTH - (begun - ended), left = requests - begun;
        int batch = (int)(room < left ? room : left);
        for (int i = 0; i < batch; i++)
            prepare(begun + i, nop);
        begun += batch;
        long wanted = all_at_once ? begun - ended : 1;
        if (syscall(SYS_io_uring_enter, ring_fd, batch, wanted, IORING_ENTER_GETEVENTS, NULL, 0) != batch)
            return 1;
        int count = collect(nop);
        if (count < 0)
            return 1;
        ended += count;
    }
    return 0;
}

static double seconds(struct timeval t) { return (double)t.tv_sec + t.tv_usec / 1e6; }

static double cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

static int make_ready(long requests, const char *path, int direct)
{
    struct stat s;
    fd = open(path, O_RDONLY | (direct ? O_DIRECT : 0));
    done = calloc((size_t)requests, 1);
    buffer_of = calloc((size_t)requests, sizeof *buffer_of);
    if (fd < 0 || fstat(fd, &s) || s.st_size < BYTES || !done || !buffer_of)
        return 1;
    blocks = (uint64_t)s.st_size / BYTES;
    memset(buffer_of, 1, (size_t)requests * sizeof *buffer_of); /* page faults now, not in the loop */
    memset(done, 1, (size_t)requests);
    memset(done, 0, (size_t)requests);
    for (nr_free = 0; nr_free < DEPTH; nr_free++)
        free_buffers[nr_free] = nr_free;
    return make_ring();
}

int main(int argc, char **argv)
{
    struct timespec begin, end;
    long requests = argc == 5 ? atol(argv[2]) : 0;
    int nop = argc == 5 && !strcmp(argv[1], "nop"), direct = argc == 5 && !strcmp(argv[1], "direct");
    if (requests <= 0 || !(nop || direct || !strcmp(argv[1], "cached"))) {
        fprintf(stderr, "usage: rings nop|cached|direct N PATH RESULT\n");
        return 2;
    }
    if (make_ready(requests, argv[3], direct)) {
        perror("rings: prepare");
        return 1;
    }
    double cpu = cpu_s();
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (loop(requests, nop, !direct)) {
        perror("rings: a request failed");
        return 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    cpu = cpu_s() - cpu;
    FILE *file = fopen(argv[4], "w");
    if (!file)
        return 1;
    double wall = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    fprintf(file, "{\"wall_s\": %.6f, \"cpu_s\": %.6f}\n", wall, cpu);
    return fclose(file) != 0;
}
