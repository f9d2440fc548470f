/* Descriptors that processes and threads share or pass on: sockets, threads, fork, vfork, spawn, clone, exec. */
#include "calls.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* An fd that arrives over a socket: its opening is not seen. */
void received_fd(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair))
        die("socketpair");
    int fd = (int)do_openat(in("a"), O_RDONLY);
    char byte = 'x', control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (sendmsg(pair[0], &message, 0) != 1 || recvmsg(pair[1], &message, 0) != 1)
        die("SCM_RIGHTS");
    int received;
    memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof received);
    set_name(received, name_of(fd));
    do_close(fd);
    do_blind("read", received, 12, 0);
    do_pread(received, 12, 100);
    do_close(received);
    set_name(pair[0], "socket"), set_name(pair[1], "socket");
    do_close(pair[0]);
    do_close(pair[1]);
}

static void *thread_main(void *argument)
{
    const char *name = argument;
    resume();
    int fd = (int)do_openat(in(name), O_RDWR | O_CREAT | O_TRUNC);
    for (int i = 0; i < 17; i++)
        do_write(fd, 31, i * 31);
    for (int i = 0; i < 23; i++)
        do_pread(fd, 5, i * 5);
    do_close(fd);
    leave();
    return NULL;
}

/* Threads use one shared fd in turns: its position is followed across threads. */
static int shared_fd;

static void *thread_shares(void *argument)
{
    resume();
    do_read(shared_fd, 9, L(argument));
    int fd = (int)do_openat(in("b"), O_RDONLY);   /* left open for the main thread */
    leave();
    return (void *)L(fd);
}

void threads(void)
{
    pthread_t ids[3];
    const char *files[] = {"t1", "t2", "t3"};
    leave();
    for (int i = 0; i < 3; i++)
        if (pthread_create(&ids[i], NULL, thread_main, (void *)files[i]))
            die("pthread_create");
    for (int i = 0; i < 3; i++)
        pthread_join(ids[i], NULL);
    resume();
    shared_fd = (int)do_openat(in("a"), O_RDONLY);
    do_read(shared_fd, 9, 0);
    void *left = NULL;
    leave();
    if (pthread_create(&ids[0], NULL, thread_shares, (void *)9))
        die("pthread_create");
    pthread_join(ids[0], &left);
    resume();
    do_read(shared_fd, 9, 18);
    do_read((int)L(left), 3, 0);
    do_close((int)L(left));
    do_close(shared_fd);
}

static void wait_for(pid_t pid)
{
    int status;
    if (pid < 0)
        die("start a child");
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "calls: a child ended with %x\n", status);
        _exit(95);
    }
}

static int clone_main(void *argument)
{
    resume();
    do_read((int)L(argument), 4, 20);
    leave();
    _exit(0);
}

static void *thread_execs(void *argument)
{
    char position[8];
    resume();
    do_read((int)L(argument), 4, 24);
    leave();
    snprintf(position, sizeof position, "%d", 28);
    execl(self, self, directory, log_path, "exec", position, (char *)NULL);
    _exit(94);
}

static _Noreturn void forked(int fd)
{
    resume();
    do_read(fd, 4, 0);
    do_close(fd);                         /* the parent's stays open */
    do_read(fd, 4, NONE);                 /* EBADF */
    int own = (int)do_openat(in("f"), O_WRONLY | O_CREAT | O_TRUNC);
    do_write(own, 13, 0);
    do_close(own);
    do_read(21, 4, 0);
    leave();
    _exit(0);
}

static _Noreturn void exec_by_a_thread(int fd)
{
    pthread_t id;
    if (pthread_create(&id, NULL, thread_execs, (void *)L(fd)))
        _exit(93);
    for (;;)
        pause();
}

void children(void)
{
    int fd = 20, opened_fd = (int)do_openat(in("a"), O_RDONLY);
    do_dup3(opened_fd, fd, 0);
    int cloexec = (int)do_openat(in("b"), O_RDONLY | O_CLOEXEC);
    do_dup3(cloexec, 21, O_CLOEXEC);
    leave();
    pid_t pid = fork();
    if (pid == 0)
        forked(fd);
    wait_for(pid);
    resume();
    do_read(fd, 4, 4);
    do_lseek(21, 0, SEEK_SET);

    leave();
    pid = vfork();
    if (pid == 0) {
        execl(self, self, directory, log_path, "exec", "8", (char *)NULL);
        _exit(94);
    }
    wait_for(pid);
    resume();

    char *arguments[] = {self, (char *)directory, log_path, "exec", "12", NULL};
    extern char **environ;
    leave();
    if (posix_spawn(&pid, self, NULL, NULL, arguments, environ))
        die("posix_spawn");
    wait_for(pid);
    resume();
    do_read(fd, 4, 16);

    /* Another process that shares memory and fd table, made without the threads library. */
    static char stack[1 << 16] __attribute__((aligned(16)));
    leave();
    wait_for(clone(clone_main, stack + sizeof stack, CLONE_VM | CLONE_FILES | SIGCHLD, (void *)L(fd)));

    pid = fork();
    if (pid == 0)
        exec_by_a_thread(fd);
    wait_for(pid);
    resume();
    do_read(fd, 4, 32);
    do_close(opened_fd);
    do_close(fd);
    do_close(cloexec);
    do_close(21);
}

/* After an exec: fd 20 is still open, 21 is not. */
void after_exec(int64_t position)
{
    set_name(20, in("a"));
    resume();
    do_read(20, 4, position);
    do_read(21, 4, NONE);                     /* EBADF */
    leave();
}
