/*
 * Makes slow calls in functions of known names. Build it with -fno-omit-frame-pointer and without optimization.
 * usage: stacks FILE
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 3, SLOW_NS = 20000000 };

static int ends[2];

/* The other end answers late, so that the read is slow on purpose. */
static void answer_late(void)
{
    struct timespec wait = { .tv_nsec = SLOW_NS };
    for (int i = 0; i < ROUNDS; i++) {
        nanosleep(&wait, NULL);
        if (write(ends[1], "x", 1) != 1)
            _exit(2);
    }
    _exit(0);
}

static void read_answer(void)
{
    char byte;
    if (read(ends[0], &byte, 1) != 1)
        exit(2);
}

static void ask(void)
{
    for (int i = 0; i < ROUNDS; i++)
        read_answer();
}

static void flush_log(int fd)
{
    if (fsync(fd))
        exit(2);
}

static void commit(int fd)
{
    static char block[1 << 20];
    memset(block, 'x', sizeof block);
    if (write(fd, block, sizeof block) != sizeof block)
        exit(2);
    flush_log(fd);
}

static void run(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0)
        exit(2);
    ask();
    commit(fd);
}

int main(int argc, char **argv)
{
    if (argc != 2 || pipe(ends))
        return 2;
    if (fork() == 0)
        answer_late();
    run(argv[1]);
    return 0;
}
