/* The workload `calls` on files, by one thread: positions, opens, errors, duplicates, sizes, copies. */
#include "calls.h"

/* 10 writes of 100 B, then reads at the position, past a seek, at the end. */
void positions(void)
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
    do_read(fd, 0, 1030);              /* no bytes wanted, none read */
    do_close(fd);
}

void explicit_offsets(void)
{
    int fd = (int)do_openat(in("b"), O_RDWR | O_CREAT | O_TRUNC);
    for (int i = 0; i < 7; i++)
        do_pwrite(fd, 512, i * 512);
    for (int i = 0; i < 23; i++)
        do_pread(fd, 64, i * 160);
    do_pread(fd, 100, 3550);           /* short: 34 */
    do_pread(fd, 100, 1 << 20);        /* beyond the end: 0 */
    do_pread(fd, 100, -2);             /* EINVAL */
    do_pread(fd, 100, -1);             /* EINVAL: only to preadv2, -1 means the position */
    do_vector("pwritev", fd, 300, 4000, 0);
    do_vector("preadv", fd, 300, 4000, 0);
    do_vector("pwritev2", fd, 30, 5000, 0);
    do_vector("preadv2", fd, 30, 5000, 0);
    do_vector("preadv2", fd, 30, 0, 1);   /* offset -1: at the position, which moves */
    do_vector("pwritev2", fd, 30, 30, 1);
    do_read(fd, 8, 60);                   /* p-calls have not moved it */
    do_close(fd);
}

void every_open(void)
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
    do_blind("write", how, 70, 0);        /* its flags are in user memory, so it might append */
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

void errors(void)
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

/* The same number for three files: a name must not outlive its file. */
void reused_fds(void)
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

void duplicates(void)
{
    int fd = (int)do_openat(in("a"), O_RDONLY);
    do_read(fd, 10, 0);
    int copy = (int)do_dup(fd);
    do_read(copy, 10, 10);                /* both have one position */
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
    do_read(fourth, 10, 70);              /* still open */
    int writer = (int)do_openat(in("d"), O_WRONLY | O_CREAT | O_TRUNC);
    do_write(writer, 10, 0);
    do_fcntl(writer, F_SETFL, O_APPEND);
    do_blind("write", writer, 10, 10);
    do_fcntl(writer, F_SETFL, 0);
    do_lseek(writer, 3, SEEK_SET);
    do_write(writer, 4, 3);
    do_flock(writer, LOCK_EX);
    do_flock(writer, LOCK_UN);
    do_close(writer);
    do_close_range(copy, other, 0);
    do_read(copy, 1, NONE);               /* EBADF */
    do_close_range(third, fourth, 4);     /* CLOSE_RANGE_CLOEXEC */
    do_read(fourth, 10, 80);
    do_close_range(5, 4, 0);              /* EINVAL */
    do_close_range(third, ~0U >> 1, 0);
    do_read(third, 1, NONE);              /* EBADF */
}

void sizes_and_syncs(void)
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

void copies(void)
{
    int from = (int)do_openat(in("b"), O_RDONLY), to = (int)do_openat(in("t"), O_RDWR | O_CREAT | O_TRUNC);
    int64_t at = 100, out = 0;
    what w = {"sendfile", SYS_sendfile, from, to, 1000, NONE, 0};
    note(w, to, from, L(&at), 1000, 0, 0);      /* from's position stays, to's moves */
    do_blind("read", from, 10, 0);              /* a pointer decides whether a copy moves a position */
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
