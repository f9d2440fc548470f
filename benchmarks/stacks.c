/*
 * Calls below a row of functions, for the price of their stacks:
 *
 *     stacks DEPTH N DATA RESULT
 *
 * N reads of 4 KiB that are in the page cache, below DEPTH frames of 256 bytes. RESULT gets nanoseconds of CPU a read.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, FRAME = 256 };

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static double __attribute__((noinline)) read_below(int depth, int fd, long n)
{
    static char buffer[PAGE];
    volatile char frame[FRAME];
    double begin, found;
    frame[0] = (char)depth;
    if (depth > 1) {
        found = read_below(depth - 1, fd, n);
    } else {
        begin = cpu_ns();
        for (long i = 0; i < n; i++)
            if (pread(fd, buffer, PAGE, 0) != PAGE)
                exit(1);
        found = (cpu_ns() - begin) / (double)n;
    }
    return found + 0 * frame[0];
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    int fd = open(argv[3], O_RDONLY);
    FILE *result = fopen(argv[4], "w");
    if (fd < 0 || !result)
        return 1;
    fprintf(result, "%f\n", read_below(atoi(argv[1]), fd, atol(argv[2])));
    return fclose(result) != 0;
}
