/*
 * Common parts of the workload `calls`: each call is noted with the file behind its descriptor.
 *
 * The journal lies in a mapped file, so that children and programs started by exec write into it without a call.
 */
#ifndef CALLS_H
#define CALLS_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif

enum { MAX_ENTRIES = 4096, MAX_PATH = 160, MAX_FDS = 1024 };
#define NONE INT64_MIN                    /* no value: printed as null */
#define L(x) ((long)(x))

typedef struct {
    int32_t tid, fd, fd2, known;
    int64_t requested, offset, result;
    char call[20], path[MAX_PATH], path2[MAX_PATH];
} entry;

typedef struct {
    _Atomic uint32_t count;
    entry entries[MAX_ENTRIES];
} journal;

typedef struct {
    const char *call;
    long number;
    int fd, fd2;
    int64_t requested, offset;
    int guessable;                        /* the offset is true, but a tracer need not know it */
} what;

/* ---- calls_log.c ---- */

extern journal *log_;
extern const char *directory;
extern char *self, *log_path;

void die(const char *what);
/* The file behind a descriptor of this process; empty: none. */
const char *name_of(int fd);
void set_name(int fd, const char *path);
/* Makes and notes the call; -errno if it failed. */
long note(what w, long a, long b, long c, long d, long e, long f);
/* The thread's calls count from the former on, until the latter. */
void resume(void);
void leave(void);
void map_log(void);
void print_log(void);

/* ---- calls_made.c: one function per call; the last argument is the true file position ---- */

extern char buffer[1 << 16];

/* A path in the directory. */
const char *in(const char *name);
long do_openat(const char *path, int flags);
long do_openat2(const char *path, int flags);
long do_open(const char *path, int flags);
long do_creat(const char *path);
long do_close(int fd);
long do_close_range(int first, int last, unsigned flags);
long do_read(int fd, size_t n, int64_t at);
long do_write(int fd, size_t n, int64_t at);
/* Like read or write, where a tracer may not know the position. */
long do_blind(const char *call, int fd, size_t n, int64_t at);
/* No file has a negative offset: the call fails, and its row has no offset. */
long do_pread(int fd, size_t n, int64_t at);
long do_pwrite(int fd, size_t n, int64_t at);
long do_vector(const char *call, int fd, size_t n, int64_t at, int at_position);
long do_lseek(int fd, int64_t offset, int whence);
long do_plain(const char *call, long number, int fd);
long do_dup(int fd);
long do_dup3(int fd, int to, int flags);
long do_dup2(int fd, int to);
long do_fcntl(int fd, int command, long argument);
long do_flock(int fd, int operation);

/* ---- calls_files.c ---- */

void positions(void);
void explicit_offsets(void);
void every_open(void);
void errors(void);
void reused_fds(void);
void duplicates(void);
void sizes_and_syncs(void);
void copies(void);

/* ---- calls_shared.c ---- */

void received_fd(void);
void threads(void);
void children(void);
void after_exec(int64_t position);

#endif
