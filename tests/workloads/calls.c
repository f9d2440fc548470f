/*
 * Makes every core call a known number of times, and says what it did: the ground truth of test_record_calls.py.
 *
 * usage: calls DIRECTORY LOG     (fd 0 must be a readable file of 64 bytes)
 *
 * Each thread brackets what counts by two calls nobody else makes (resume(), leave()), so that loaders, C libraries and
 * the upkeep of the log itself do not matter. What was done is kept in a shared mapping, for that needs no call. At the end
 * it is written as JSON lines to standard output, after the last marker:
 *   tid, call, fd, fd2, path, path2, requested, offset, known, result
 * `offset` is the true position, null where there is none; `known` says whether a tracer that saw every call must know
 * it. `result` is the return value or -errno. path is the file behind fd, null if fd was not open.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif

enum { MAX_ENTRIES = 4096, MAX_PATH = 160, MAX_FDS = 1024 };
#define NONE INT64_MIN                    /* no such thing: printed as null */
enum { MARK_BEGIN = 0x10201, MARK_END = 0x10202 };

typedef struct {
    int32_t tid, fd, fd2, known;
    int64_t requested, offset, result;
    char call[20], path[MAX_PATH], path2[MAX_PATH];
} entry;

typedef struct {
    _Atomic uint32_t count;
    entry entries[MAX_ENTRIES];
} journal;

static journal *log_;
static const char *directory;
static char names[MAX_FDS][MAX_PATH];    /* what is behind each fd of this process */
static char *self;
static char *log_path;

static void die(const char *what)
{
    fprintf(stderr, "calls: %s: %s\n", what, strerror(errno));
    _exit(99);
}

static const char *name_of(int fd)
{
    return fd >= 0 && fd < MAX_FDS ? names[fd] : "";
}

static void set_name(int fd, const char *path)
{
    if (fd >= 0 && fd < MAX_FDS)
        snprintf(names[fd], MAX_PATH, "%s", path);
}

typedef struct {
    const char *call;
    long number;
    int fd, fd2;
    int64_t requested, offset;
    int guessable;                        /* the offset is true, but need not be known */
} what;

static long note(what w, long a, long b, long c, long d, long e, long f)
{
    char path[MAX_PATH], path2[MAX_PATH];
    snprintf(path, sizeof path, "%s", name_of(w.fd));
    snprintf(path2, sizeof path2, "%s", name_of(w.fd2));
    long result = syscall(w.number, a, b, c, d, e, f);
    if (result < 0)
        result = -errno;
    uint32_t index = atomic_fetch_add(&log_->count, 1);
    if (index >= MAX_ENTRIES)
        _exit(98);
    entry *x = &log_->entries[index];
    *x = (entry){.tid = (int32_t)syscall(SYS_gettid), .fd = w.fd, .fd2 = w.fd2, .known = !w.guessable,
                 .requested = w.requested, .offset = w.offset, .result = result};
    snprintf(x->call, sizeof x->call, "%s", w.call);
    memcpy(x->path, path, sizeof path);
    memcpy(x->path2, path2, sizeof path2);
    return result;
}

#define L(x) ((long)(x))

static void resume(void)
{
    syscall(SYS_lseek, -1, MARK_BEGIN, SEEK_SET);
}

static void leave(void)
{
    syscall(SYS_lseek, -1, MARK_END, SEEK_SET);
}

/* ---- one function per call; the last argument is where the file position truly is ---- */

static char buffer[1 << 16];

static long opened(const char *call, const char *path, long fd)
{
    entry *x = NULL; /* this thread's last entry is the open's */
    int32_t tid = (int32_t)syscall(SYS_gettid);
    for (uint32_t i = atomic_load(&log_->count); i-- > 0 && !x;)
        if (log_->entries[i].tid == tid)
            x = &log_->entries[i];
    if (!x || strcmp(x->call, call))
        _exit(97);
    x->fd = fd >= 0 ? (int32_t)fd : -1;
    if (fd >= 0) {
        set_name((int)fd, path);
        snprintf(x->path, MAX_PATH, "%s", path);
    }
    return fd;
}

static const char *in(const char *name)
{
    static _Thread_local char paths[8][MAX_PATH];
    static _Thread_local int next;
    char *path = paths[next++ % 8];
    snprintf(path, MAX_PATH, "%s/%s", directory, name);
    return path;
}

static long do_openat(const char *path, int flags)
{
    what w = {"openat", SYS_openat, -1, -1, NONE, NONE, 0};
    return opened("openat", path, note(w, AT_FDCWD, L(path), flags, 0600, 0, 0));
}

static long do_openat2(const char *path, int flags)
{
    struct {
        uint64_t flags, mode, resolve;    /* struct open_how: not every C library brings <linux/openat2.h> */
    } how = {.flags = (uint64_t)flags, .mode = flags & O_CREAT ? 0600 : 0};
    what w = {"openat2", SYS_openat2, -1, -1, NONE, NONE, 0};
    return opened("openat2", path, note(w, AT_FDCWD, L(path), L(&how), sizeof how, 0, 0));
}

#ifdef SYS_open
static long do_open(const char *path, int flags)
{
    what w = {"open", SYS_open, -1, -1, NONE, NONE, 0};
    return opened("open", path, note(w, L(path), flags, 0600, 0, 0, 0));
}

static long do_creat(const char *path)
{
    what w = {"creat", SYS_creat, -1, -1, NONE, NONE, 0};
    return opened("creat", path, note(w, L(path), 0600, 0, 0, 0, 0));
}
#endif

static long do_close(int fd)
{
    what w = {"close", SYS_close, fd, -1, NONE, NONE, 0};
    long result = note(w, fd, 0, 0, 0, 0, 0);
    set_name(fd, "");
    return result;
}

static long do_close_range(int first, int last, unsigned flags)
{
    what w = {"close_range", SYS_close_range, first, last, NONE, NONE, 0};
    long result = note(w, first, last, flags, 0, 0, 0);
    for (int fd = first; result == 0 && !flags && fd <= last && fd < MAX_FDS; fd++)
        set_name(fd, "");
    return result;
}

static long do_read(int fd, size_t n, int64_t at)
{
    what w = {"read", SYS_read, fd, -1, (int64_t)n, at, 0};
    return note(w, fd, L(buffer), L(n), 0, 0, 0);
}

static long do_write(int fd, size_t n, int64_t at)
{
    what w = {"write", SYS_write, fd, -1, (int64_t)n, at, 0};
    return note(w, fd, L(buffer), L(n), 0, 0, 0);
}

/* As read or write, where a tracer may not know the position. */
static long do_blind(const char *call, int fd, size_t n, int64_t at)
{
    what w = {call, strcmp(call, "read") ? SYS_write : SYS_read, fd, -1, (int64_t)n, at, 1};
    return note(w, fd, L(buffer), L(n), 0, 0, 0);
}

/* A negative offset is none a file has: the call fails, and its row has no offset. */
static long do_pread(int fd, size_t n, int64_t at)
{
    what w = {"pread64", SYS_pread64, fd, -1, (int64_t)n, at < 0 ? NONE : at, 0};
    return note(w, fd, L(buffer), L(n), at, 0, 0);
}

static long do_pwrite(int fd, size_t n, int64_t at)
{
    what w = {"pwrite64", SYS_pwrite64, fd, -1, (int64_t)n, at, 0};
    return note(w, fd, L(buffer), L(n), at, 0, 0);
}

static long do_vector(const char *call, int fd, size_t n, int64_t at, int at_position)
{
    struct iovec parts[3] = {{buffer, n / 2}, {buffer, 0}, {buffer, n - n / 2}};
    what w = {call, 0, fd, -1, NONE, at, 0};
    if (!strcmp(call, "readv"))
        w.number = SYS_readv;
    else if (!strcmp(call, "writev"))
        w.number = SYS_writev;
    else if (!strcmp(call, "preadv"))
        w.number = SYS_preadv;
    else if (!strcmp(call, "pwritev"))
        w.number = SYS_pwritev;
    else if (!strcmp(call, "preadv2"))
        w.number = SYS_preadv2;
    else
        w.number = SYS_pwritev2;
    return note(w, fd, L(parts), 3, at_position ? -1 : at, at_position ? -1 : 0, 0);
}

static long do_lseek(int fd, int64_t offset, int whence)
{
    what w = {"lseek", SYS_lseek, fd, -1, NONE, offset, 0};
    return note(w, fd, offset, whence, 0, 0, 0);
}

static long do_plain(const char *call, long number, int fd)
{
    what w = {call, number, fd, -1, NONE, NONE, 0};
    return note(w, fd, 0, 0, 0, 0, 0);
}

static long do_dup(int fd)
{
    what w = {"dup", SYS_dup, fd, -1, NONE, NONE, 0};
    long copy = note(w, fd, 0, 0, 0, 0, 0);
    set_name((int)copy, name_of(fd));
    return copy;
}

static long do_dup3(int fd, int to, int flags)
{
    what w = {"dup3", SYS_dup3, fd, to, NONE, NONE, 0};
    long copy = note(w, fd, to, flags, 0, 0, 0);
    if (copy >= 0)
        set_name(to, name_of(fd));
    return copy;
}

#ifdef SYS_dup2
static long do_dup2(int fd, int to)
{
    what w = {"dup2", SYS_dup2, fd, to, NONE, NONE, 0};
    long copy = note(w, fd, to, 0, 0, 0, 0);
    if (copy >= 0 && to != fd)
        set_name(to, name_of(fd));
    return copy;
}
#endif

static long do_fcntl(int fd, int command, long argument)
{
    what w = {"fcntl", SYS_fcntl, fd, -1, NONE, NONE, 0};
    long result = note(w, fd, command, argument, 0, 0, 0);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
        set_name((int)result, name_of(fd));
    return result;
}

/* ---- what is done ---- */

/* 10 writes of 100 B, then reads at the position, past a seek, at the end. */
static void positions(void)
{
    int fd = (int)do_openat(in("a"), O_RDWR | O_CREAT | O_TRUNC);
    for (int i = 0; i < 10; i++)
        do_write(fd, 100, i * 100);
    do_vector("writev", fd, 24, 1000, 0);
    do_read(fd, 10, 1024);             /* end of file: 0 */
    do_lseek(fd, 1000, SEEK_SET);
    do_read(fd, 100, 1000);            /* short: 24 */
    do_lseek(fd, -24, SEEK_CUR);
    do_vector("readv", fd, 10, 1000, 0);
    do_lseek(fd, 0, SEEK_END);
    do_lseek(fd, -1, SEEK_SET);        /* EINVAL: the position stays */
    do_lseek(fd, 1, 77);               /* EINVAL */
    do_write(fd, 6, 1024);
    do_read(fd, 0, 1030);              /* nothing asked, nothing got */
    do_close(fd);
}

static void explicit_offsets(void)
{
    int fd = (int)do_openat(in("b"), O_RDWR | O_CREAT | O_TRUNC);
    for (int i = 0; i < 7; i++)
        do_pwrite(fd, 512, i * 512);
    for (int i = 0; i < 23; i++)
        do_pread(fd, 64, i * 160);
    do_pread(fd, 100, 3550);           /* short: 34 */
    do_pread(fd, 100, 1 << 20);        /* beyond the end: 0 */
    do_pread(fd, 100, -2);             /* EINVAL */
    do_pread(fd, 100, -1);             /* EINVAL: it means the position to preadv2 only */
    do_vector("pwritev", fd, 300, 4000, 0);
    do_vector("preadv", fd, 300, 4000, 0);
    do_vector("pwritev2", fd, 30, 5000, 0);
    do_vector("preadv2", fd, 30, 5000, 0);
    do_vector("preadv2", fd, 30, 0, 1);   /* offset -1: at the position, which moves */
    do_vector("pwritev2", fd, 30, 30, 1);
    do_read(fd, 8, 60);                   /* p-calls did not move it */
    do_close(fd);
}

static void every_open(void)
{
#ifdef SYS_open
    int fd = (int)do_creat(in("c"));
    do_write(fd, 11, 0);
    do_read(fd, 1, 11);                   /* EBADF: write only */
    do_close(fd);
    fd = (int)do_open(in("c"), O_RDONLY);
    do_read(fd, 100, 0);
    do_write(fd, 1, 11);                  /* EBADF: read only */
    do_close(fd);
    do_open(in("absent"), O_RDONLY);      /* ENOENT */
#endif
    int how = (int)do_openat2(in("o"), O_RDWR | O_CREAT | O_TRUNC);
    do_blind("write", how, 70, 0);        /* its flags are user memory: it might append */
    do_lseek(how, 10, SEEK_SET);
    do_read(how, 10, 10);
    do_close(how);
    int append = (int)do_openat(in("c"), O_WRONLY | O_APPEND | O_CREAT);
    do_blind("write", append, 5, 11);
    do_blind("write", append, 5, 16);
    do_close(append);
    do_openat(in("absent/x"), O_RDONLY);  /* ENOENT */
    do_openat(in("c"), O_CREAT | O_EXCL); /* EEXIST */
    do_openat(in("c/x"), O_RDONLY);       /* ENOTDIR */
    do_openat2(in("absent"), O_RDONLY);   /* ENOENT */
    int folder = (int)do_openat(directory, O_RDONLY | O_DIRECTORY);
    do_read(folder, 10, 0);               /* EISDIR */
    do_close(folder);
    do_openat(directory, O_WRONLY);       /* EISDIR */
}

static void errors(void)
{
    do_read(-1, 10, NONE);
    do_read(900, 10, NONE);
    do_write(900, 10, NONE);
    do_pread(900, 10, 5);
    do_lseek(900, 0, SEEK_SET);
    do_close(900);
    do_close(-1);
    do_plain("fsync", SYS_fsync, 900);
    do_dup(900);
    do_dup3(900, 901, 0);
    do_fcntl(900, F_GETFL, 0);
}

/* The same number, three files: a name must never outlive its file. */
static void reused_fds(void)
{
    const char *all[] = {"r1", "r2", "r3"};
    int first = -1;
    for (int i = 0; i < 3; i++) {
        int fd = (int)do_openat(in(all[i]), O_RDWR | O_CREAT | O_TRUNC);
        if (first < 0)
            first = fd;
        if (fd != first)
            _exit(96);
        do_write(fd, (size_t)(1 + i), 0);
        do_close(fd);
        do_write(fd, 3, NONE);            /* EBADF */
    }
}

static void duplicates(void)
{
    int fd = (int)do_openat(in("a"), O_RDONLY);
    do_read(fd, 10, 0);
    int copy = (int)do_dup(fd);
    do_read(copy, 10, 10);                /* one position for both */
    do_read(fd, 10, 20);
    int other = (int)do_openat(in("b"), O_RDONLY);
    do_dup3(copy, other, O_CLOEXEC);      /* b is closed silently */
    do_read(other, 10, 30);
    do_dup3(fd, fd, 0);                   /* EINVAL */
#ifdef SYS_dup2
    do_dup2(fd, 200);
    do_read(200, 10, 40);
    do_dup2(fd, fd);                      /* changes nothing */
    do_read(fd, 10, 50);
    do_close(200);
#else
    do_lseek(fd, 60, SEEK_SET);
#endif
    int third = (int)do_fcntl(fd, F_DUPFD, 300);
    do_lseek(fd, 60, SEEK_SET);
    do_read(third, 10, 60);
    int fourth = (int)do_fcntl(fd, F_DUPFD_CLOEXEC, 300);
    do_fcntl(fourth, F_SETFD, 0);
    do_fcntl(fourth, F_GETFD, 0);
    do_fcntl(fourth, F_GETFL, 0);
    do_close(fd);
    do_read(fourth, 10, 70);              /* lives on */
    int writer = (int)do_openat(in("d"), O_WRONLY | O_CREAT | O_TRUNC);
    do_write(writer, 10, 0);
    do_fcntl(writer, F_SETFL, O_APPEND);
    do_blind("write", writer, 10, 10);
    do_fcntl(writer, F_SETFL, 0);
    do_lseek(writer, 3, SEEK_SET);
    do_write(writer, 4, 3);
    do_close(writer);
    do_close_range(copy, other, 0);
    do_read(copy, 1, NONE);               /* EBADF */
    do_close_range(third, fourth, 4);     /* CLOSE_RANGE_CLOEXEC */
    do_read(fourth, 10, 80);
    do_close_range(5, 4, 0);              /* EINVAL */
    do_close_range(third, ~0U >> 1, 0);
    do_read(third, 1, NONE);              /* EBADF */
}

static void sizes_and_syncs(void)
{
    int fd = (int)do_openat(in("s"), O_RDWR | O_CREAT | O_TRUNC);
    what w = {"ftruncate", SYS_ftruncate, fd, -1, 10000, NONE, 0};
    note(w, fd, 10000, 0, 0, 0, 0);
    w.requested = -5;
    note(w, fd, -5, 0, 0, 0, 0);          /* EINVAL */
    w = (what){"fallocate", SYS_fallocate, fd, -1, 8192, 4096, 0};
    note(w, fd, 0, 4096, 8192, 0, 0);
    w = (what){"truncate", SYS_truncate, -1, -1, 12288, NONE, 0};
    note(w, L(in("s")), 12288, 0, 0, 0, 0);
    w.requested = 1;
    note(w, L(in("absent")), 1, 0, 0, 0, 0); /* ENOENT */
    do_lseek(fd, 0, SEEK_END);
    do_write(fd, 8, 12288);
    w = (what){"sync_file_range", SYS_sync_file_range, fd, -1, 4096, 4096, 0};
    note(w, fd, 4096, 4096, 2, 0, 0);
    do_plain("fdatasync", SYS_fdatasync, fd);
    do_plain("fsync", SYS_fsync, fd);
    do_plain("fsync", SYS_fsync, fd);
    do_plain("syncfs", SYS_syncfs, fd);
    do_plain("sync", SYS_sync, -1);
    do_close(fd);
}

static void copies(void)
{
    int from = (int)do_openat(in("b"), O_RDONLY), to = (int)do_openat(in("t"), O_RDWR | O_CREAT | O_TRUNC);
    int64_t at = 100, out = 0;
    what w = {"sendfile", SYS_sendfile, from, to, 1000, NONE, 0};
    note(w, to, from, L(&at), 1000, 0, 0);      /* from's position stays, to's moves */
    do_blind("read", from, 10, 0);              /* whether a copy moves a position stands behind a pointer */
    do_blind("write", to, 10, 1000);
    note(w, to, from, 0, 1000, 0, 0);           /* both move */
    do_blind("read", from, 10, 1010);
    w = (what){"copy_file_range", SYS_copy_file_range, from, to, 300, NONE, 0};
    at = 0, out = 3000;
    note(w, from, L(&at), to, L(&out), 300, 0);
    int ends[2];
    if (pipe2(ends, 0))
        die("pipe2");
    set_name(ends[0], "pipe"), set_name(ends[1], "pipe");
    w = (what){"splice", SYS_splice, from, ends[1], 200, NONE, 0};
    at = 0;
    note(w, from, L(&at), ends[1], 0, 200, 0);
    do_read(ends[0], 150, NONE);
    w = (what){"splice", SYS_splice, ends[0], to, 100, NONE, 0};
    out = 5000;
    note(w, ends[0], 0, to, L(&out), 100, 0);   /* short: 50 */
    do_write(ends[1], 17, NONE);
    do_read(ends[0], 17, NONE);
    do_lseek(ends[0], 0, SEEK_SET);             /* ESPIPE */
    do_close(ends[0]);
    do_close(ends[1]);
    do_lseek(to, 7, SEEK_SET);
    do_write(to, 2, 7);
    do_close(from);
    do_close(to);
}

/* An fd that arrives over a socket: nobody saw it opened. */
static void received_fd(void)
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

/* Threads in turns on one fd, which they share: a position followed over threads. */
static int shared_fd;

static void *thread_shares(void *argument)
{
    resume();
    do_read(shared_fd, 9, L(argument));
    int fd = (int)do_openat(in("b"), O_RDONLY);   /* left open for the main thread */
    leave();
    return (void *)L(fd);
}

static void threads(void)
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

static void children(void)
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

    /* A process of its own that shares memory and fd table, made without the threads library. */
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

/* After an exec: fd 20 came through, 21 did not. */
static void after_exec(int64_t position)
{
    set_name(20, in("a"));
    resume();
    do_read(20, 4, position);
    do_read(21, 4, NONE);                     /* EBADF */
    leave();
}

/* ---- the log ---- */

static void map_log(void)
{
    int fd = open(log_path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *log_))
        die(log_path);
    log_ = mmap(NULL, sizeof *log_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (log_ == MAP_FAILED)
        die("mmap");
    close(fd);
}

static void print_number(const char *key, int64_t value)
{
    if (value == NONE)
        printf(", \"%s\": null", key);
    else
        printf(", \"%s\": %lld", key, (long long)value);
}

static void print_text(const char *key, const char *text)
{
    if (*text)
        printf(", \"%s\": \"%s\"", key, text);
    else
        printf(", \"%s\": null", key);
}

static void print_log(void)
{
    for (uint32_t i = 0; i < atomic_load(&log_->count); i++) {
        const entry *x = &log_->entries[i];
        printf("{\"tid\": %d, \"call\": \"%s\", \"fd\": %d, \"fd2\": %d", x->tid, x->call, x->fd, x->fd2);
        print_text("path", x->path);
        print_text("path2", x->path2);
        print_number("requested", x->requested);
        print_number("offset", x->offset);
        printf(", \"known\": %s, \"result\": %lld}\n", x->known ? "true" : "false", (long long)x->result);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    self = "/proc/self/exe", directory = argv[1], log_path = argv[2];
    map_log();
    if (argc > 4) {
        after_exec(atoll(argv[4]));
        return 0;
    }
    char link[MAX_PATH] = {0};
    if (readlink("/proc/self/fd/0", link, sizeof link - 1) < 0)
        die("fd 0");
    set_name(0, link);
    resume();
    do_blind("read", 0, 40, 0);
    do_blind("read", 0, 40, 40);              /* short: 24 */
    positions();
    explicit_offsets();
    every_open();
    errors();
    reused_fds();
    duplicates();
    sizes_and_syncs();
    copies();
    received_fd();
    threads();
    children();
    leave();
    print_log();
    return 0;
}
