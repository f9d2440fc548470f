/*
 * A program that gets rights of its own: prints whether exec noticed that, writes, and has a child that writes.
 * usage: rights PROGRAM: runs PROGRAM like dd
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NR_WRITES = 13 };

int main(int argc, char **argv)
{
    int out = open("/dev/null", O_WRONLY), status = 1;
    if (argc != 2 || out < 0)
        return 2;
    printf("%d\n", prctl(PR_GET_DUMPABLE)); /* 1: exec took it for an ordinary program */
    fflush(stdout);
    for (int i = 0; i < NR_WRITES; i++)
        if (write(out, "x", 1) != 1)
            return 2;
    if (fork() == 0) {
        execl(argv[1], argv[1], "if=/dev/zero", "of=/dev/null", "bs=512", "count=37", "status=none", (char *)NULL);
        _exit(127);
    }
    wait(&status);
    return status != 0;
}
