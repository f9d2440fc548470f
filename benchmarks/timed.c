/*
 * Runs a command and writes its time by the kernel's own account:
 *
 *     timed FILE COMMAND [ARGUMENT ...]
 *
 * FILE gets one line of JSON: CLOCK_MONOTONIC when this program's main began and when the command had been waited for,
 * user and system time of the command and all its children (wait4), its exit code. Under a tracer, this separates the
 * traced command's costs from the tracer's. Between the command's end and the second time, the only system call is
 * wait4. Exit code: the command's, 128 + n for a signal, 127 if it cannot be started.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
    long long begin = now_ns();
    struct rusage usage;
    int status;
    if (argc < 3) {
        fprintf(stderr, "usage: timed FILE COMMAND [ARGUMENT ...]\n");
        return 2;
    }
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[2], argv + 2);
        fprintf(stderr, "timed: %s: %s\n", argv[2], strerror(errno));
        _exit(127);
    }
    if (child < 0)
        return 127;
    while (wait4(child, &status, 0, &usage) < 0)
        if (errno != EINTR)
            return 127;
    long long end = now_ns();
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    FILE *file = fopen(argv[1], "w");
    if (!file)
        return 127;
    fprintf(file, "{\"begin_ns\": %lld, \"end_ns\": %lld, \"user_s\": %ld.%06ld, \"system_s\": %ld.%06ld, \"exit\": %d}\n",
            begin, end, (long)usage.ru_utime.tv_sec, (long)usage.ru_utime.tv_usec, (long)usage.ru_stime.tv_sec,
            (long)usage.ru_stime.tv_usec, code);
    return fclose(file) ? 127 : code;
}
