/*
 * One kind of event in a loop, as fast as possible:
 *
 *     events MODE N PATH RESULT     RESULT gets nanoseconds a round
 *     events MODE N PATH RESULT K   the same of the thread's CPU time, as the lower quartile of K parts of the loop: what
 *                                   other programs do to the machine meanwhile counts little
 *
 * MODE       a round is
 * getppid    a call that is not recorded
 * pread      a pread of 4 KiB from the cached file PATH
 * open       an open and a close of PATH
 * seek       an lseek and a read of 4 KiB from the cached file PATH
 * pwrite     a pwrite of 64 B into the first 64 KiB of PATH
 * fstat      an fstat of PATH, open all the time
 * direct     a pread of 4 KiB past the page cache from PATH, one at a time, over all of it
 * switch     a byte through a pipe to another process on the same CPU, and one back: two switches of the CPU
 * wake       a call that wakes all who wait for a futex: nobody does
 * futex      the turn goes to another thread on the same CPU, and back: each waits for the other one at a futex
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4096, SMALL_BYTES = 64, SMALL_WRITES = 1024, MOST_PARTS = 100 };

static int fd, there[2], back[2];
static long blocks;
static _Atomic int turn; /* 0: of the thread that counts the rounds; 1: of the other one */
static const char *path;
static char buffer[BYTES] __attribute__((aligned(BYTES)));

static int one_getppid(long i) { (void)i; return syscall(SYS_getppid) < 0; }
static int one_pread(long i) { return pread(fd, buffer, BYTES, i % blocks * BYTES) != BYTES; }
static int one_seek(long i) { return lseek(fd, i % blocks * BYTES, SEEK_SET) < 0 || read(fd, buffer, BYTES) != BYTES; }
static int one_fstat(long i) { struct stat s; (void)i; return fstat(fd, &s); }

static int one_pwrite(long i)
{
    return pwrite(fd, buffer, SMALL_BYTES, i % SMALL_WRITES * SMALL_BYTES) != SMALL_BYTES;
}

static int one_open(long i)
{
    (void)i;
    int opened = open(path, O_RDONLY);
    return opened < 0 || close(opened);
}

static int one_switch(long i)
{
    (void)i;
    return write(there[1], buffer, 1) != 1 || read(back[0], buffer, 1) != 1;
}

static long on_futex(int operation, int value)
{
    return syscall(SYS_futex, &turn, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static int one_wake(long i) { (void)i; return on_futex(FUTEX_WAKE, 1) != 0; }

/* Ends the own turn and waits for the next one. */
static int one_futex(long i)
{
    (void)i;
    int own = turn;
    turn = !own;
    on_futex(FUTEX_WAKE, 1);
    while (turn != own)
        on_futex(FUTEX_WAIT, !own);
    return 0;
}

static void *other_turns(void *unused)
{
    while (turn != 1)
        on_futex(FUTEX_WAIT, 0);
    for (;;)
        one_futex(0);
    return unused;
}

static void echo(void)
{
    close(there[1]);
    while (read(there[0], buffer, 1) == 1)
        if (write(back[1], buffer, 1) != 1)
            break;
    _exit(0);
}

static int prepare(const char *mode)
{
    struct stat s;
    fd = open(path, strcmp(mode, "pwrite") ? O_RDONLY | (strcmp(mode, "direct") ? 0 : O_DIRECT) : O_RDWR);
    if (fd < 0 || fstat(fd, &s) || s.st_size < BYTES)
        return 1;
    blocks = s.st_size / BYTES;
    bool futex = !strcmp(mode, "futex");
    if (!futex && strcmp(mode, "switch"))
        return 0;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) || pipe(there) || pipe(back))
        return 1;
    pthread_t other;
    if (futex)
        return pthread_create(&other, NULL, other_turns, NULL);
    pid_t child = fork();
    if (child == 0)
        echo();
    return child < 0;
}

static const struct { const char *name; int (*round)(long); } MODES[] = {
    {"getppid", one_getppid}, {"pread", one_pread}, {"seek", one_seek}, {"pwrite", one_pwrite}, {"open", one_open},
    {"fstat", one_fstat}, {"direct", one_pread}, {"switch", one_switch},
    {"wake", one_wake}, {"futex", one_futex},
};

static double now_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Nanoseconds a round: the lower quartile of the parts, by this clock; below 0: a round failed. */
static double time_parts(int (*round)(long), long rounds, int parts, clockid_t clock)
{
    double found[MOST_PARTS];
    for (int part = 0; part < parts; part++) {
        long from = rounds * part / parts, to = rounds * (part + 1) / parts;
        double begin = now_ns(clock);
        for (long i = from; i < to; i++)
            if (round(i))
                return -1;
        found[part] = (now_ns(clock) - begin) / (to - from);
    }
    qsort(found, parts, sizeof *found, compare);
    return found[parts / 4];
}

int main(int argc, char **argv)
{
    int (*round)(long) = NULL;
    bool is_given = argc == 5 || argc == 6;
    long rounds = is_given ? atol(argv[2]) : 0;
    int parts = argc == 6 ? atoi(argv[5]) : 1;
    for (size_t i = 0; is_given && i < sizeof MODES / sizeof *MODES; i++)
        if (!strcmp(argv[1], MODES[i].name))
            round = MODES[i].round;
    if (!round || parts < 1 || parts > MOST_PARTS || rounds < parts) {
        fprintf(stderr, "usage: events MODE N PATH RESULT [K]; see the top of events.c for the modes\n");
        return 2;
    }
    path = argv[3];
    if (prepare(argv[1])) {
        perror("events: prepare");
        return 1;
    }
    double ns = time_parts(round, rounds, parts, argc == 6 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
    if (ns < 0) {
        perror("events");
        return 1;
    }
    FILE *file = fopen(argv[4], "w");
    if (!file)
        return 1;
    fprintf(file, "%.1f\n", ns);
    return fclose(file) != 0;
}
