/*
 * Common parts of the workload `names`: each call is noted with the true names of its files.
 *
 * The journal lies in a mapped file, so that children and programs started by exec write into it without a call.
 */
#ifndef NAMES_H
#define NAMES_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define L(x) ((long)(x))
#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NOTHING INT32_MIN                 /* no descriptor or directory */

/* What a tracer that reads the kernel's own tables must know about the descriptor's file. */
enum know {
    MUST,                                 /* one of the names */
    MAY,                                  /* one of the names, or that it is unknown */
    NONE,                                 /* nothing: the descriptor is not open, or its file cannot be known */
    ANY                                   /* this program cannot tell either */
};

typedef struct {
    const char *call;
    long number;
    int fd;                               /* the argument; NOTHING if there is none. Opens: their result */
    int dirfd, dirfd2;                    /* of the paths; NOTHING, AT_FDCWD: the working directory */
    enum know know;
    bool opens, follows, unseen;          /* returns a descriptor; has no marker of its own; without a look at it */
    bool inside;                          /* /proc shows it from inside of a chroot, `names` from outside */
    const char *const *names;             /* true ones; NULL: those of the descriptor's opening */
    const char *given, *given2;           /* paths as passed */
} what;

/* Makes and notes the call; -errno if it failed. */
int64_t note(what w, long a, long b, long c, long d, long e, long f);
/* Adds true names to the note of this thread's last call, if they became known later. */
void correct(enum know know, const char *const *names);

/* ---- names_core.c ---- */

extern const char *directory, *running, *self_path, *journal_path;
extern char folder[4096];                 /* of the scenario: directory/scenario, and the working directory */

_Noreturn void die(const char *what);
int64_t checked(int64_t result, const char *what);
void open_journal(const char *path, bool create);
void print_journal(FILE *to);
void begin_scenario(const char *name);
const char *in(const char *name);         /* folder/name, as a string that stays */
const char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
void remember(int fd, const char *const *names, enum know know);
const char *const *names_of(int fd);
enum know know_of(int fd);
void make(const char *path, const char *content);
void make_folder(const char *path);
int gettid_(void);
/* A child process in which the scenario goes on. It must end with exit code 0. */
void in_child(void (*run)(void));
void wait_for(pid_t child);
const char *link_of(int fd);              /* the link in /proc/self/fd */

/* ---- common calls ---- */
int open_at(int dirfd, const char *given, int flags, const char *name);
int open_as(const char *given, int flags, const char *name);
int open_here(const char *name, int flags);       /* in the scenario's folder, by the bare name */
int64_t read_byte(int fd);                /* the byte at offset 0, or -errno */
int64_t use(int fd);                      /* lseek(fd, 0, SEEK_CUR), which changes nothing, on any file */
int64_t touch(int fd);                    /* fcntl(F_GETFD), which O_PATH allows, too */
int64_t close_it(int fd);
void round_trip(const char *given, int flags, const char *name);  /* opened, used, closed */

typedef struct {
    const char *name;
    void (*run)(void);
    const char *about;
} scenario;

extern const scenario file_scenarios[], change_scenarios[], mount_scenarios[], kind_scenarios[], pass_scenarios[],
    race_scenarios[], path_scenarios[], disk_scenarios[];
extern const char *disk_of(const char *type);
int after_exec(char **arguments);         /* main() of the program that the scenario `exec` starts */

#endif
