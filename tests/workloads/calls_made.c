/* One function per call of the workload `calls`. */
#include "calls.h"

#include <sys/uio.h>

char buffer[1 << 16];

static long opened(const char *call, const char *path, long fd)
{
    entry *x = NULL; /* this thread's last entry is that of the open */
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

const char *in(const char *name)
{
    static _Thread_local char paths[8][MAX_PATH];
    static _Thread_local int next;
    char *path = paths[next++ % 8];
    snprintf(path, MAX_PATH, "%s/%s", directory, name);
    return path;
}

long do_openat(const char *path, int flags)
{
    what w = {"openat", SYS_openat, -1, -1, NONE, NONE, 0};
    return opened("openat", path, note(w, AT_FDCWD, L(path), flags, 0600, 0, 0));
}

long do_openat2(const char *path, int flags)
{
    struct {
        uint64_t flags, mode, resolve;    /* struct open_how, for some C libraries lack <linux/openat2.h> */
    } how = {.flags = (uint64_t)flags, .mode = flags & O_CREAT ? 0600 : 0};
    what w = {"openat2", SYS_openat2, -1, -1, NONE, NONE, 0};
    return opened("openat2", path, note(w, AT_FDCWD, L(path), L(&how), sizeof how, 0, 0));
}

#ifdef SYS_open
long do_open(const char *path, int flags)
{
    what w = {"open", SYS_open, -1, -1, NONE, NONE, 0};
    return opened("open", path, note(w, L(path), flags, 0600, 0, 0, 0));
}

long do_creat(const char *path)
{
    what w = {"creat", SYS_creat, -1, -1, NONE, NONE, 0};
    return opened("creat", path, note(w, L(path), 0600, 0, 0, 0, 0));
}
#endif

long do_close(int fd)
{
    what w = {"close", SYS_close, fd, -1, NONE, NONE, 0};
    long result = note(w, fd, 0, 0, 0, 0, 0);
    set_name(fd, "");
    return result;
}

long do_close_range(int first, int last, unsigned flags)
{
    what w = {"close_range", SYS_close_range, first, last, NONE, NONE, 0};
    long result = note(w, first, last, flags, 0, 0, 0);
    for (int fd = first; result == 0 && !flags && fd <= last && fd < MAX_FDS; fd++)
        set_name(fd, "");
    return result;
}

long do_read(int fd, size_t n, int64_t at)
{
    what w = {"read", SYS_read, fd, -1, (int64_t)n, at, 0};
    return note(w, fd, L(buffer), L(n), 0, 0, 0);
}

long do_write(int fd, size_t n, int64_t at)
{
    what w = {"write", SYS_write, fd, -1, (int64_t)n, at, 0};
    return note(w, fd, L(buffer), L(n), 0, 0, 0);
}

long do_blind(const char *call, int fd, size_t n, int64_t at)
{
    what w = {call, strcmp(call, "read") ? SYS_write : SYS_read, fd, -1, (int64_t)n, at, 1};
    return note(w, fd, L(buffer), L(n), 0, 0, 0);
}

long do_pread(int fd, size_t n, int64_t at)
{
    what w = {"pread64", SYS_pread64, fd, -1, (int64_t)n, at < 0 ? NONE : at, 0};
    return note(w, fd, L(buffer), L(n), at, 0, 0);
}

long do_pwrite(int fd, size_t n, int64_t at)
{
    what w = {"pwrite64", SYS_pwrite64, fd, -1, (int64_t)n, at, 0};
    return note(w, fd, L(buffer), L(n), at, 0, 0);
}

long do_vector(const char *call, int fd, size_t n, int64_t at, int at_position)
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

long do_lseek(int fd, int64_t offset, int whence)
{
    what w = {"lseek", SYS_lseek, fd, -1, NONE, offset, 0};
    return note(w, fd, offset, whence, 0, 0, 0);
}

long do_plain(const char *call, long number, int fd)
{
    what w = {call, number, fd, -1, NONE, NONE, 0};
    return note(w, fd, 0, 0, 0, 0, 0);
}

long do_dup(int fd)
{
    what w = {"dup", SYS_dup, fd, -1, NONE, NONE, 0};
    long copy = note(w, fd, 0, 0, 0, 0, 0);
    set_name((int)copy, name_of(fd));
    return copy;
}

long do_dup3(int fd, int to, int flags)
{
    what w = {"dup3", SYS_dup3, fd, to, NONE, NONE, 0};
    long copy = note(w, fd, to, flags, 0, 0, 0);
    if (copy >= 0)
        set_name(to, name_of(fd));
    return copy;
}

#ifdef SYS_dup2
long do_dup2(int fd, int to)
{
    what w = {"dup2", SYS_dup2, fd, to, NONE, NONE, 0};
    long copy = note(w, fd, to, 0, 0, 0, 0);
    if (copy >= 0 && to != fd)
        set_name(to, name_of(fd));
    return copy;
}
#endif

long do_fcntl(int fd, int command, long argument)
{
    what w = {"fcntl", SYS_fcntl, fd, -1, NONE, NONE, 0};
    long result = note(w, fd, command, argument, 0, 0, 0);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
        set_name((int)result, name_of(fd));
    return result;
}

long do_flock(int fd, int operation)
{
    what w = {"flock", SYS_flock, fd, -1, NONE, NONE, 0};
    return note(w, fd, operation, 0, 0, 0, 0);
}
