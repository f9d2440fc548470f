/* Descriptors that are passed on: duplicated, inherited, sent, taken, made by a ring. */
#include "names.h"

#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

static int dup_of(const char *call, long number, int fd, long b, long c)
{
    return (int)checked(note((what){.call = call, .number = number, .opens = true, .fd = fd, .names = names_of(fd)}, fd, b, c, 0, 0, 0), call);
}

static void dups(void)
{
    make("a", "a");
    make("b", "b");
    int a = open_here("a", O_RDONLY), b = open_here("b", O_RDONLY);
    int one = dup_of("dup", SYS_dup, a, 0, 0);
    int two = dup_of("dup2", SYS_dup2, a, 77, 0);
    int three = dup_of("dup3", SYS_dup3, b, 77, O_CLOEXEC);
    int four = dup_of("fcntl", SYS_fcntl, b, F_DUPFD, 300);
    int five = dup_of("fcntl", SYS_fcntl, a, F_DUPFD_CLOEXEC, 300);
    int same = dup_of("dup2", SYS_dup2, a, a, 0);
    close_it(a);
    int fds[] = {one, two, three, four, five, b};
    for (size_t i = 0; i < 6; i++)
        read_byte(fds[i]);
    int again = open_here("b", O_RDONLY);  /* a's number */
    if (again != same)
        die("dups");
    read_byte(again);
    dup_of("dup2", SYS_dup2, one, again, 0);
    if (read_byte(again) != 'a')
        die("dups");
    close_it(one);
    close_it(again);
    close_it(three);
    close_it(four);
    close_it(five);
    close_it(b);
}

static int shared_fd;

static void in_inherit(void)
{
    read_byte(shared_fd);
    close_it(shared_fd);
    int fd = open_here("b", O_RDONLY);
    if (fd != shared_fd)
        die("inherit");
    read_byte(fd);
}

static void inherit(void)
{
    make("a", "a");
    make("b", "b");
    shared_fd = open_here("a", O_RDONLY);
    in_child(in_inherit);
    read_byte(shared_fd);
    checked(rename("a", "c"), "rename");
    in_child(in_inherit);
    close_it(shared_fd);
}

/* ---- exec ---- */

static void in_exec(void)
{
    int gone = open_here("a", O_RDONLY | O_CLOEXEC), stays = open_here("b", O_RDONLY);
    int marked = open_here("c", O_RDONLY), clear = open_here("d", O_RDONLY | O_CLOEXEC);
    checked(fcntl(marked, F_SETFD, FD_CLOEXEC), "fcntl");
    checked(fcntl(clear, F_SETFD, 0), "fcntl");
    read_byte(gone);
    char *const arguments[] = {(char *)"names", (char *)"--after-exec", (char *)journal_path, (char *)running, (char *)folder,
                               (char *)text("%d", gone), (char *)text("%d", stays), (char *)text("%d", marked), (char *)text("%d", clear), NULL};
    execv(self_path, arguments);
    die("exec");
}

int after_exec(char **arguments)
{
    running = arguments[1];
    snprintf(folder, sizeof folder, "%s", arguments[2]);
    int gone = atoi(arguments[3]), stays = atoi(arguments[4]), marked = atoi(arguments[5]), clear = atoi(arguments[6]);
    open_journal(arguments[0], false);
    remember(stays, NAMES(in("b")), MUST);
    remember(clear, NAMES(in("d")), MUST);
    read_byte(stays);
    read_byte(clear);
    read_byte(gone);
    read_byte(marked);
    int fd = open_here("e", O_RDONLY);
    if (fd != gone && fd != marked)
        die("exec");
    read_byte(fd);
    close_it(stays);
    fd = open_here("e", O_RDONLY);
    read_byte(fd);
    return 0;
}

static void *exec_in_thread(void *unused)
{
    (void)unused;
    in_exec();
    return NULL;
}

static void in_thread_exec(void)
{
    pthread_t thread;
    checked(-pthread_create(&thread, NULL, exec_in_thread, NULL), "thread");
    pthread_join(thread, NULL);
}

static void execs(void)
{
    for (const char *name = "abcde"; *name; name++)
        make(text("%c", *name), text("%c", *name));
    in_child(in_exec);
    in_child(in_thread_exec);
}

static void spawn(void)
{
    make("a", "a");
    make("e", "e");
    make("b", "b");
    make("d", "d");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    int b = open_here("b", O_RDONLY | O_CLOEXEC), a = open_here("a", O_RDONLY | O_CLOEXEC);
    posix_spawn_file_actions_adddup2(&actions, b, 20);
    posix_spawn_file_actions_addopen(&actions, 21, in("d"), O_RDONLY, 0);
    char *const arguments[] = {(char *)"names", (char *)"--after-exec", (char *)journal_path, (char *)running, (char *)folder,
                               (char *)text("%d", a), (char *)"20", (char *)text("%d", b), (char *)"21", NULL};
    pid_t child;
    checked(-posix_spawn(&child, self_path, &actions, NULL, arguments, environ), "posix_spawn");
    wait_for(child);
    close_it(b);
    close_it(a);
}

/* ---- sent ---- */

static void send_fd(int socket, int fd)
{
    char byte = 'x', control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    checked(sendmsg(socket, &message, 0), "sendmsg");
}

static int receive_fd(int socket, const char *name)
{
    char byte, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    checked(recvmsg(socket, &message, 0), "recvmsg");
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    remember(fd, NAMES(name), MUST);
    return fd;
}

static int pair[2];

static void in_receive(void)
{
    int a = receive_fd(pair[1], in("a"));
    if (read_byte(a) != 'a')
        die("receive");
    close_it(a);
    int b = receive_fd(pair[1], in("b"));  /* the same number */
    if (b != a || read_byte(b) != 'b')
        die("receive");
    close(b);                             /* without a look, like a program */
    b = receive_fd(pair[1], in("a"));
    if (b != a || read_byte(b) != 'a')
        die("receive");
    int pipe = receive_fd(pair[1], "");
    remember(pipe, NAMES(link_of(pipe)), MUST);
    use(pipe);
    int gone = receive_fd(pair[1], "");
    remember(gone, NAMES(in("gone"), text("%s (deleted)", in("gone"))), MUST);
    read_byte(gone);
    int moved = receive_fd(pair[1], in("moved"));
    read_byte(moved);
}

static void sent(void)
{
    int ends[2];
    make("a", "a");
    make("b", "b");
    make("gone", "g");
    make("early", "m");
    checked(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), "socketpair");
    checked(pipe(ends), "pipe");
    int a = open_here("a", O_RDONLY), b = open_here("b", O_RDONLY), gone = open_here("gone", O_RDONLY), early = open_here("early", O_RDONLY);
    checked(unlink("gone"), "unlink");
    checked(rename("early", "moved"), "rename");
    send_fd(pair[0], a);
    send_fd(pair[0], b);
    send_fd(pair[0], a);
    send_fd(pair[0], ends[0]);
    send_fd(pair[0], gone);
    send_fd(pair[0], early);
    close_it(a);
    close_it(b);
    close(ends[0]);
    close(ends[1]);
    /* They are closed here, before the fork, so that the child does not inherit them: only the socket holds them. */
    close_it(gone);
    close_it(early);
    in_child(in_receive);
    close(pair[0]);
    close(pair[1]);
}

static void in_taken(void)
{
    pause();
}

static void taken(void)
{
    make("a", "a");
    make("b", "b");
    int a = open_here("a", O_RDONLY), high = dup_of("dup2", SYS_dup2, a, 50, 0);
    pid_t child = (pid_t)checked(fork(), "fork");
    if (!child)
        in_taken();
    close_it(a);
    close_it(high);
    int pidfd = (int)checked(syscall(SYS_pidfd_open, child, 0), "pidfd_open");
    int b = open_here("b", O_RDONLY);
    int taken = (int)checked(note((what){.call = "pidfd_getfd", .number = SYS_pidfd_getfd, .opens = true, .fd = NOTHING, .names = NAMES(in("a"))},
                                  pidfd, 50, 0, 0, 0, 0), "pidfd_getfd");
    read_byte(taken);
    read_byte(b);
    close_it(taken);
    close_it(b);
    kill(child, 9);
    waitpid(child, NULL, 0);
    close(pidfd);
}

/* ---- shared tables ---- */

static pthread_barrier_t barrier;

static void *open_and_change(void *unused)
{
    (void)unused;
    shared_fd = open_here("a", O_RDONLY);
    pthread_barrier_wait(&barrier);       /* the other thread reads it */
    pthread_barrier_wait(&barrier);
    close_it(shared_fd);
    int fd = open_here("b", O_RDONLY);
    if (fd != shared_fd)
        die("threads");
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void threads(void)
{
    pthread_t thread;
    make("a", "a");
    make("b", "b");
    pthread_barrier_init(&barrier, NULL, 2);
    checked(-pthread_create(&thread, NULL, open_and_change, NULL), "thread");
    pthread_barrier_wait(&barrier);
    if (read_byte(shared_fd) != 'a')
        die("threads");
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    if (read_byte(shared_fd) != 'b')
        die("threads");
    close_it(shared_fd);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
}

static void *unshare_and_change(void *unused)
{
    (void)unused;
    checked(unshare(CLONE_FILES), "unshare");
    close_it(shared_fd);
    int fd = (int)note((what){.call = "openat", .number = SYS_openat, .opens = true, .fd = NOTHING, .dirfd = AT_FDCWD, .names = NAMES(in("b")), .given = "b"},
                       AT_FDCWD, L("b"), O_RDONLY, 0, 0, 0);
    if (fd != shared_fd || read_byte(fd) != 'b')
        die("unshare");
    pthread_barrier_wait(&barrier);       /* now the number is two files in one process */
    pthread_barrier_wait(&barrier);
    note((what){.call = "close", .number = SYS_close, .fd = fd, .names = NAMES(in("b"))}, fd, 0, 0, 0, 0, 0);
    return NULL;
}

static void in_unshared(void)
{
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    shared_fd = open_here("a", O_RDONLY);
    int also = open_here("a", O_RDONLY);
    checked(-pthread_create(&thread, NULL, unshare_and_change, NULL), "thread");
    pthread_barrier_wait(&barrier);
    remember(shared_fd, NAMES(in("a")), MUST);
    if (read_byte(shared_fd) != 'a')
        die("unshare");
    read_byte(also);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
}

static void unshared(void)
{
    make("a", "a");
    make("b", "b");
    in_child(in_unshared);
}

static int in_clone(void *unused)
{
    (void)unused;
    running = "clone-files";
    int fd = open_here("b", O_RDONLY);
    read_byte(fd);
    close_it(shared_fd);
    return fd;
}

static void clone_files(void)
{
    static char stack[1 << 16];
    make("a", "a");
    make("b", "b");
    shared_fd = open_here("a", O_RDONLY);
    int status;
    pid_t child = (pid_t)checked(clone(in_clone, stack + sizeof stack, CLONE_FILES | SIGCHLD, NULL), "clone");
    checked(waitpid(child, &status, 0), "waitpid");
    int fd = WEXITSTATUS(status);         /* another process opened it in the shared table */
    remember(fd, NAMES(in("b")), MUST);
    read_byte(fd);
    remember(shared_fd, NULL, NONE);
    read_byte(shared_fd);
    close_it(fd);
}

static void ranges(void)
{
    make("a", "a");
    make("b", "b");
    int fds[5];
    for (int i = 0; i < 5; i++)
        fds[i] = open_here("a", O_RDONLY);
    checked(close_range(fds[1], fds[3], 0), "close_range");
    for (int i = 1; i < 4; i++)
        remember(fds[i], NULL, NONE);
    read_byte(fds[2]);
    int fd = open_here("b", O_RDONLY);
    if (fd != fds[1])
        die("close_range");
    read_byte(fd);
    read_byte(fds[0]);
    read_byte(fds[4]);
    close_it(fd);
    close_it(fds[0]);
    close_it(fds[4]);
}

/* ---- descriptors that no recorded call returns ---- */

typedef struct {
    int fd;
    unsigned *tail, *mask, *array, *head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
} ring;

static void ring_make(ring *r)
{
    struct io_uring_params p = {0};
    r->fd = (int)checked(syscall(SYS_io_uring_setup, 8, &p), "io_uring_setup");
    size_t sq = p.sq_off.array + p.sq_entries * sizeof(unsigned), cq = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    char *at = mmap(NULL, sq > cq ? sq : cq, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQ_RING);
    r->sqes = mmap(NULL, p.sq_entries * sizeof *r->sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQES);
    if (at == MAP_FAILED || r->sqes == MAP_FAILED)
        die("mmap");
    r->tail = (unsigned *)(at + p.sq_off.tail), r->mask = (unsigned *)(at + p.sq_off.ring_mask);
    r->array = (unsigned *)(at + p.sq_off.array), r->head = (unsigned *)(at + p.cq_off.head);
    r->cq_tail = (unsigned *)(at + p.cq_off.tail), r->cq_mask = (unsigned *)(at + p.cq_off.ring_mask);
    r->cqes = (struct io_uring_cqe *)(at + p.cq_off.cqes);
}

static int ring_do(ring *r, struct io_uring_sqe request)
{
    unsigned tail = *r->tail, index = tail & *r->mask;
    r->sqes[index] = request;
    r->array[index] = index;
    __atomic_store_n(r->tail, tail + 1, __ATOMIC_RELEASE);
    checked(syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0), "io_uring_enter");
    unsigned head = *r->head;
    int result = r->cqes[head & *r->cq_mask].res;
    __atomic_store_n(r->head, head + 1, __ATOMIC_RELEASE);
    return result;
}

static int ring_open(ring *r, const char *name)
{
    int fd = ring_do(r, (struct io_uring_sqe){.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = (uint64_t)(uintptr_t)name, .open_flags = O_RDONLY});
    checked(fd, "open by a ring");
    remember(fd, NAMES(in(name)), MUST);
    return fd;
}

static void by_ring(void)
{
    ring r;
    make("a", "a");
    make("b", "b");
    ring_make(&r);
    int a = ring_open(&r, "a");
    if (read_byte(a) != 'a')
        die("ring");
    checked(ring_do(&r, (struct io_uring_sqe){.opcode = IORING_OP_CLOSE, .fd = a}), "close by a ring");
    int b = ring_open(&r, "b");
    if (b != a || read_byte(b) != 'b')
        die("ring");
    close_it(b);
    int again = open_here("a", O_RDONLY);
    if (again != a || read_byte(again) != 'a')
        die("ring");
    checked(ring_do(&r, (struct io_uring_sqe){.opcode = IORING_OP_CLOSE, .fd = again}), "close by a ring");
    b = ring_open(&r, "b");
    int other = open_here("a", O_RDONLY);
    read_byte(other);
    if (read_byte(b) != 'b')
        die("ring");
    close_it(other);
    close_it(b);
    checked(link("a", "linked"), "link");
    for (int i = 0; i < 20; i++) {        /* the same file by another name, often at the old address */
        int fd = ring_open(&r, i % 2 ? "linked" : "a");
        if (read_byte(fd) != 'a')
            die("ring");
        checked(ring_do(&r, (struct io_uring_sqe){.opcode = IORING_OP_CLOSE, .fd = fd}), "close by a ring");
    }
    close(r.fd);
}

/* Another process replaces an open descriptor: no call of this process shows it. */
static void in_put(void)
{
    static const struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog all = {sizeof program / sizeof *program, (struct sock_filter *)program};
    checked(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl");
    int listener = (int)checked(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &all), "seccomp");
    send_fd(pair[1], listener);
    close(listener);
    int a = open_here("a", O_RDONLY);
    if (a != 60)
        a = dup_of("dup2", SYS_dup2, a, 60, 0);
    read_byte(a);
    syscall(SYS_getppid);                 /* the parent puts b there */
    remember(60, NAMES(in("b")), MUST);
    if (read_byte(60) != 'b')
        die("seccomp");
    close_it(60);
}

static void put(void)
{
    make("a", "a");
    make("b", "b");
    checked(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), "socketpair");
    pid_t child = (pid_t)checked(fork(), "fork");
    if (!child) {
        in_put();
        _exit(0);
    }
    int listener = receive_fd(pair[0], ""), b = open_here("b", O_RDONLY);
    struct seccomp_notif asked = {0};
    checked(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked), "ioctl");
    struct seccomp_notif_addfd add = {.id = asked.id, .flags = SECCOMP_ADDFD_FLAG_SETFD, .srcfd = (uint32_t)b, .newfd = 60};
    checked(ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add), "ioctl");
    struct seccomp_notif_resp answer = {.id = asked.id};
    checked(ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer), "ioctl");
    wait_for(child);
    close_it(b);
    close(listener);
    close(pair[0]);
    close(pair[1]);
}

const scenario pass_scenarios[] = {
    {"dups", dups, "dup, dup2, dup3, F_DUPFD, over open ones and over themselves"},
    {"inherit", inherit, "children with their parent's descriptors, and their own of the same numbers"},
    {"exec", execs, "what is kept and what is closed, from the first and from another thread"},
    {"spawn", spawn, "vfork, dup2 and open in the child, exec"},
    {"sent", sent, "over a socket: files, a pipe, a deleted one, a renamed one; the same number again"},
    {"taken", taken, "pidfd_getfd"},
    {"threads", threads, "one thread opens, another reads; the number means another file later"},
    {"unshared", unshared, "a thread with a table of its own"},
    {"clone-files", clone_files, "a process that shares the table"},
    {"ranges", ranges, "close_range, and numbers that come again"},
    {"by-ring", by_ring, "opened and closed by io_uring"},
    {"put", put, "put over an open one by another process"},
    {NULL, NULL, NULL},
};
