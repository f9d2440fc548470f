/*
 * System calls in a loop:
 *
 *     calls getppid N FILE        a call that no recorder records: shows its price. FILE gets nanoseconds a call
 *     calls files N DIRECTORY     open, read, read to the end, close, over and over, in 512 files (made before): 4 N calls
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 512, BYTES = 4096 };

static int count_getppid(long rounds, const char *path)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long i = 0; i < rounds; i++)
        syscall(SYS_getppid);
    clock_gettime(CLOCK_MONOTONIC, &end);
    FILE *file = fopen(path, "w");
    if (!file)
        return 1;
    double ns = (end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec);
    fprintf(file, "%.1f\n", ns / rounds);
    return fclose(file) != 0;
}

static int read_files(long rounds, const char *directory)
{
    char buffer[BYTES] = "", name[32];
    if (chdir(directory))
        return 1;
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%d", i);
        int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (fd < 0 || write(fd, buffer, BYTES) != BYTES || close(fd))
            return 1;
    }
    for (long i = 0; i < rounds; i++) {
        snprintf(name, sizeof name, "%ld", i * 7919 % FILES);
        int fd = open(name, O_RDONLY);
        if (fd < 0 || read(fd, buffer, BYTES) != BYTES || read(fd, buffer, BYTES) != 0 || close(fd))
            return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    long rounds = argc == 4 ? atol(argv[2]) : 0;
    if (rounds > 0 && !strcmp(argv[1], "getppid"))
        return count_getppid(rounds, argv[3]);
    if (rounds > 0 && !strcmp(argv[1], "files"))
        return read_files(rounds, argv[3]);
    fprintf(stderr, "usage: calls getppid N FILE | calls files N DIRECTORY\n");
    return 2;
}
