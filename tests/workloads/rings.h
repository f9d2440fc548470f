/*
 * Common parts of the workload `rings`: a ring by raw system calls, and the log of all acts on it.
 *
 * It needs only the C library and <linux/io_uring.h> of Linux 6.1. Later constants are defined here.
 */
#ifndef RINGS_H
#define RINGS_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#ifndef IORING_SETUP_SQE128
#define IORING_SETUP_SQE128 (1U << 10)
#endif
#ifndef IORING_SETUP_NO_SQARRAY
#define IORING_SETUP_NO_SQARRAY (1U << 16)
#endif
#define NO_NUMBER INT64_MIN               /* unknown or none: not printed */
#define L(x) ((long)(x))
#define U(x) ((uint64_t)(uintptr_t)(x))

enum { MAX_RESULTS = 16, PAGE = 4096, ARENA = 1 << 20 };

/* A request, with its known values. */
typedef struct request {
    struct io_uring_sqe *sqe;             /* until it is submitted */
    int ring, instance, opcode, fd, tid;
    /* user_data: of the link before it, of the request that broke the chain, of the one that it cancels */
    int64_t previous, culprit, target;
    int64_t waker;                        /* tid */
    uint64_t user_data, offset;
    unsigned length, sqe_flags, cqe_flags, last_flags, nr_results, cqes;
    int64_t results[MAX_RESULTS];
    bool fixed, sqpoll, drain, overflow, notified, done;
    const char *paths, *status;           /* "inline|worker": one of these */
    const char *scenario;
    int fd2;                              /* of splice and tee: the file that they read; -1 none */
    int file_index, buffer;               /* places of a registered file and buffer; -1 none */
    char file[120], file2[120];           /* behind fd and fd2 when prepared; empty: none, or a file without a directory */
} request;

typedef struct {
    int fd, instance, tid;
    const char *scenario;
    unsigned flags, sq_entries, cq_entries, overflows, features;
    unsigned *sq_head, *sq_tail, *sq_mask, *sq_array, *sq_flags, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    void *rings_at;
    size_t rings_size, sqes_size;
    unsigned pending;                     /* prepared, not yet submitted */
    pthread_mutex_t lock;                 /* of both queues, if several threads use the ring */
} ring;

/* ---- rings_core.c ---- */

extern const char *directory, *device, *wait_for, *ready_file, *running;
extern char *arena;                       /* ARENA bytes, aligned to a page */

_Noreturn void die(const char *what);
int64_t checked(int64_t result, const char *what);
int gettid_(void);
const char *in(const char *name);
int new_file(const char *name, size_t size, int flags);
void pause_ms(int ms);

ring *ring_new(unsigned entries, unsigned cq_entries, unsigned flags);
ring *ring_try(unsigned entries, unsigned cq_entries, unsigned flags, unsigned idle_ms);
void ring_close(ring *r);
int ring_register(const ring *r, unsigned opcode, const void *argument, unsigned n);

/* A new request, with the next user_data. It stays in the queue until submit(). */
request *add(ring *r, int opcode, int fd, const void *address, unsigned length, uint64_t offset);
void set_flags(request *q, unsigned sqe_flags);
void set_user_data(request *q, uint64_t user_data);
/* The file that splice and tee read. */
void set_source(request *q, int fd, uint64_t offset);
/* The place of the registered file that the request opens or closes; the registered file on which it works. */
request *set_place(request *q, int place);
request *set_file(request *q, const char *path);
void set_buffer(request *q, unsigned index);
void name_file(char *file, int fd);       /* room for 120 bytes */
request *expect(request *q, const char *paths);
request *ends(request *q, const char *status);
/* q follows `before` in a chain. */
request *after(request *q, const request *before);

int submit(ring *r, unsigned wanted);
int enter(ring *r, unsigned asked, unsigned wanted, unsigned flags);
/* Takes all CQEs from the completion queue; returns their number. */
unsigned reap(ring *r);
/* Enters until so many completions in all have been taken. */
void reap_n(ring *r, unsigned n);
/* Prepares, submits and completes one at a time. */
int64_t one(ring *r, request *q);

/* ---- rings_log.c ---- */

request *log_request(void);
request *find_request(const ring *r, uint64_t user_data);
void log_message(const ring *r, const struct io_uring_cqe *cqe);
void log_batch(const char *call, const ring *r, int64_t asked, int64_t wanted, int64_t flags, int64_t result);
/* Like log_batch, for another process' call. */
void log_batch_of(int tid, const ring *r, int64_t asked, int64_t result);
void log_ring(ring *r);
void log_note(const char *text);
void print_log(FILE *to);

/* ---- scenarios ---- */

typedef struct {
    const char *name;
    void (*run)(void);
    const char *about;
} scenario;

extern const scenario file_scenarios[], poll_scenarios[], link_scenarios[], end_scenarios[], worker_scenarios[],
    ring_scenarios[], aio_scenarios[];

#endif
