/*
 * Makes calls in functions of known names: in a row of callers, below a frame that is larger than what lo2io copies of a
 * stack, in a handler of a signal, in a thread, and below code that it makes itself, whose name it writes to /tmp/perf-PID.map.
 * usage: stacks FILE [stop]: it stops first, until it gets SIGCONT
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Neither inlined nor left by a jump to what it calls: each has a frame, also when the compiler optimizes. */
#define CALLED __attribute__((noinline, noclone))
#define RETURNS __asm__ volatile("" ::: "memory")

enum { SLOW_NS = 2000000, LARGE = 16384 };

static int questions[2], answers[2];

/* Answers each question late: most reads of an answer wait. */
static void answer_late(void)
{
    struct timespec wait = { .tv_nsec = SLOW_NS };
    char byte;
    close(questions[1]);
    while (read(questions[0], &byte, 1) == 1) {
        nanosleep(&wait, NULL);
        if (write(answers[1], "x", 1) != 1)
            _exit(2);
    }
    _exit(0);
}

static CALLED void read_answer(void)
{
    char byte = '?';
    if (write(questions[1], &byte, 1) != 1 || read(answers[0], &byte, 1) != 1)
        exit(2);
    RETURNS;
}

static CALLED void ask(int times)
{
    for (int i = 0; i < times; i++)
        read_answer();
    RETURNS;
}

static CALLED void ask_below_much(void)
{
    volatile char much[LARGE];
    memset((void *)much, 1, sizeof much);
    read_answer();
    RETURNS;
}

static CALLED void on_signal(int number)
{
    (void)number;
    read_answer();
    RETURNS;
}

static CALLED void be_interrupted(void)
{
    struct sigaction action = { .sa_handler = on_signal };
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    RETURNS;
}

static CALLED void *ask_in_thread(void *nothing)
{
    read_answer();
    RETURNS;
    return nothing;
}

/* Calls a function from code that no file has, and that keeps a frame pointer. */
static CALLED void call_from_made(void (*function)(void))
{
    /* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
    static const unsigned char code[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3 };
    void *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char name[64];
    FILE *map;
    if (made == MAP_FAILED)
        exit(2);
    memcpy(made, code, sizeof code);
    if (mprotect(made, 4096, PROT_READ | PROT_EXEC))
        exit(2);
    snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
    map = fopen(name, "w");
    if (!map || fprintf(map, "%lx %zx made_code\n", (unsigned long)made, sizeof code) < 0 || fclose(map))
        exit(2);
    ((void (*)(void (*)(void)))made)(function);
    RETURNS;
}

static CALLED void flush_log(int fd)
{
    if (fsync(fd))
        exit(2);
    RETURNS;
}

static CALLED void commit(int fd)
{
    static char block[1 << 20];
    memset(block, 'x', sizeof block);
    if (write(fd, block, sizeof block) != sizeof block)
        exit(2);
    flush_log(fd);
    RETURNS;
}

static CALLED void run(const char *path)
{
    pthread_t thread;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0)
        exit(2);
    ask(3);
    ask_below_much();
    be_interrupted();
    if (pthread_create(&thread, NULL, ask_in_thread, NULL) || pthread_join(thread, NULL))
        exit(2);
    commit(fd);
    call_from_made(read_answer);
    RETURNS;
}

int main(int argc, char **argv)
{
    if (argc < 2 || pipe(questions) || pipe(answers))
        return 2;
    if (argc > 2)
        raise(SIGSTOP);
    if (fork() == 0)
        answer_late();
    run(argv[1]);
    close(questions[1]);
    return wait(NULL) < 0; /* else a read of the other process would still be under way */
}
