/* Kinds of rings, several of them, and several threads. */
#include "rings.h"

#include <sys/stat.h>

enum { SIZE = 1 << 16 };

static request *nop_(ring *r)
{
    return expect(add(r, IORING_OP_NOP, -1, NULL, 0, 0), "inline");
}

static void several(void)
{
    ring *all[3] = {ring_new(4, 0, 0), ring_new(8, 32, 0), ring_new(16, 0, IORING_SETUP_COOP_TASKRUN)};
    for (unsigned i = 0; i < 7; i++)
        for (unsigned k = 0; k < 3; k++)
            if (i % (k + 1) == 0)
                one(all[k], nop_(all[k]));
    for (int k = 0; k < 3; k++)
        ring_close(all[k]);
}

typedef struct {
    ring *r;
    int fd;
    unsigned n, index;
} share;

static void *share_main(void *argument)
{
    share *s = argument;
    for (unsigned i = 0; i < s->n; i++) {
        pthread_mutex_lock(&s->r->lock);
        one(s->r, expect(add(s->r, IORING_OP_READ, s->fd, arena, 100 * (s->index + 1) + i, 0), "inline"));
        pthread_mutex_unlock(&s->r->lock);
    }
    return NULL;
}

/* Four threads take turns on one ring. */
static void threads(void)
{
    enum { N = 4 };
    ring *r = ring_new(8, 0, 0);
    int fd = new_file("threads", SIZE, O_RDWR | O_CREAT);
    share shares[N];
    pthread_t all[N];
    for (unsigned i = 0; i < N; i++) {
        shares[i] = (share){r, fd, 5 + i, i};
        if (pthread_create(&all[i], NULL, share_main, &shares[i]))
            die("pthread_create");
    }
    for (int i = 0; i < N; i++)
        pthread_join(all[i], NULL);
    close(fd);
    ring_close(r);
}

static void wait_done(ring *r, request *q)
{
    while (!q->done) {
        reap(r);
        if (!q->done)
            sched_yield();
    }
}

/* The ring's thread submits: inline reads, a worker's sync, a pipe's read. It sleeps once in between. */
static void sqpoll(void)
{
    ring *r = ring_try(8, 0, IORING_SETUP_SQPOLL, 20);
    if (!r)
        die("io_uring_setup");
    int fd = new_file("sqpoll", SIZE, O_RDWR | O_CREAT), ends_[2];
    checked(pipe(ends_), "pipe");
    for (unsigned i = 0; i < 6; i++) {
        request *q = expect(add(r, IORING_OP_READ, fd, arena, 100 + i, 0), "inline");
        submit(r, 0);
        wait_done(r, q);
        if (i == 3)
            pause_ms(100);
    }
    request *q = expect(add(r, IORING_OP_FSYNC, fd, NULL, 0, 0), "worker");
    submit(r, 1);
    wait_done(r, q);
    q = expect(add(r, IORING_OP_READ, ends_[0], arena, 64, UINT64_MAX), "poll");
    q->waker = gettid_();
    submit(r, 0);
    pause_ms(50);
    checked(write(ends_[1], "word", 4), "write");
    wait_done(r, q);
    close(fd), close(ends_[0]), close(ends_[1]);
    ring_close(r);
}

/* A thread that polls an idle ring for a second. */
static void sqpoll_idle(void)
{
    ring *r = ring_try(8, 0, IORING_SETUP_SQPOLL, 5000);
    if (!r)
        die("io_uring_setup");
    request *q = nop_(r);
    submit(r, 0);
    wait_done(r, q);
    pause_ms(1000);
    q = nop_(r);
    submit(r, 0);
    wait_done(r, q);
    ring_close(r);
}

/* Entries of twice the size. */
static void wide(void)
{
    ring *r = ring_new(4, 0, IORING_SETUP_SQE128);
    int fd = new_file("wide", SIZE, O_RDWR | O_CREAT);
    for (unsigned i = 0; i < 7; i++)
        one(r, expect(add(r, IORING_OP_READ, fd, arena, 100 + i, 10 * i), "inline"));
    close(fd);
    ring_close(r);
}

/* Task work runs only while the program waits. */
static void defer(void)
{
    ring *r = ring_new(16, 0, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
    int fd = new_file("defer", SIZE, O_RDWR | O_CREAT), ends_[2];
    int disk = device ? (int)checked(open(device, O_RDWR | O_DIRECT), device) : new_file("defer2", SIZE, O_RDWR | O_DIRECT);
    checked(pipe(ends_), "pipe");
    for (unsigned i = 0; i < 3; i++)
        one(r, expect(add(r, IORING_OP_READ, fd, arena, 100 + i, 0), "inline"));
    for (unsigned i = 0; i < 4; i++)
        expect(add(r, IORING_OP_READ, disk, arena + i * PAGE, PAGE, i * PAGE), "device");
    submit(r, 4);
    reap_n(r, 4);
    one(r, expect(add(r, IORING_OP_FSYNC, fd, NULL, 0, 0), "worker"));
    request *q = expect(add(r, IORING_OP_READ, ends_[0], arena, 64, UINT64_MAX), "poll");
    q->waker = gettid_();
    submit(r, 0);
    checked(write(ends_[1], "word", 4), "write");
    reap_n(r, 1);
    close(fd), close(disk), close(ends_[0]), close(ends_[1]);
    ring_close(r);
}

/* The waiter looks for completions, without interrupts, which few disks can do. Waiting never sleeps. */
static void iopoll(void)
{
    ring *r = ring_new(16, 0, IORING_SETUP_IOPOLL);
    int disk = device ? (int)checked(open(device, O_RDWR | O_DIRECT), device) : new_file("iopoll", SIZE, O_RDWR | O_DIRECT);
    for (unsigned i = 0; i < 8; i++) {
        request *q = add(r, IORING_OP_READ, disk, arena, PAGE, i * PAGE);
        for (submit(r, 0); !q->done; reap(r)) {
            pause_ms(1);
            checked(enter(r, 0, 1, IORING_ENTER_GETEVENTS), "io_uring_enter");
        }
        if (q->results[0] < 0) {
            log_note("this disk cannot be polled");
            break;
        }
    }
    close(disk);
    ring_close(r);
}

/* Disabled first, enabled later. The ring's own descriptor is registered, and entered by its place. */
static void registered_ring(void)
{
    ring *r = ring_new(8, 0, IORING_SETUP_R_DISABLED);
    nop_(r);
    r->pending = 0;
    __atomic_store_n(r->sq_tail, *r->sq_tail + 1, __ATOMIC_RELEASE);
    enter(r, 1, 0, 0);                    /* EBADFD */
    checked(ring_register(r, IORING_REGISTER_ENABLE_RINGS, NULL, 0), "enabling the ring");
    enter(r, 1, 1, IORING_ENTER_GETEVENTS);
    reap_n(r, 1);
    struct io_uring_rsrc_update place = {.offset = -1U, .data = (uint64_t)r->fd};
    checked(ring_register(r, IORING_REGISTER_RING_FDS, &place, 1), "registering the ring");
    for (int i = 0; i < 3; i++) {
        nop_(r);
        __atomic_store_n(r->sq_tail, *r->sq_tail + 1, __ATOMIC_RELEASE);
        r->pending = 0;
        long result = syscall(SYS_io_uring_enter, place.offset, 1, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_REGISTERED_RING,
                              NULL, 0);
        log_batch("io_uring_enter", r, 1, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_REGISTERED_RING, result);
        reap(r);
    }
    ring_close(r);
}

/*
 * Made and used before the recording (then --ready FILE is written), and used again when --wait-for FILE is there.
 * Earlier requests have the status "before". One read begins before and ends after.
 */
static void older_than_recording(unsigned flags)
{
    struct stat status;
    int ends_[2], fd = new_file("older", SIZE, O_RDWR | O_CREAT);
    ring *r = ring_new(8, 0, flags);
    checked(pipe(ends_), "pipe");
    request *q = ends(nop_(r), "before");
    submit(r, 0);
    wait_done(r, q);
    request *waiting = ends(expect(add(r, IORING_OP_READ, ends_[0], arena, 64, UINT64_MAX), "poll"), "before");
    submit(r, 0);
    if (ready_file)
        close((int)checked(open(ready_file, O_WRONLY | O_CREAT, 0600), ready_file));
    while (wait_for && stat(wait_for, &status))
        pause_ms(5);
    for (unsigned i = 0; i < 5; i++) {
        q = expect(add(r, IORING_OP_READ, fd, arena, 100 + i, 0), "inline");
        submit(r, 0);
        wait_done(r, q);
    }
    q = expect(add(r, IORING_OP_FSYNC, fd, NULL, 0, 0), "worker");
    submit(r, 0);
    wait_done(r, q);
    checked(write(ends_[1], "late", 4), "write");
    wait_done(r, waiting);
    close(fd), close(ends_[0]), close(ends_[1]);
    ring_close(r);
}

static void older(void)
{
    older_than_recording(0);
}

static void older_sqpoll(void)
{
    older_than_recording(IORING_SETUP_SQPOLL);
}

const scenario ring_scenarios[] = {
    {"several", several, "three rings in one process"},
    {"threads", threads, "four threads on one ring"},
    {"sqpoll", sqpoll, "a thread of the kernel submits"},
    {"sqpoll-idle", sqpoll_idle, "and has nothing to do for a second"},
    {"wide", wide, "SQE128"},
    {"defer", defer, "DEFER_TASKRUN and SINGLE_ISSUER"},
    {"iopoll", iopoll, "completions without interrupts, where the disk can"},
    {"registered-ring", registered_ring, "a ring disabled at first, and entered by its registered place"},
    {"older", older, "a ring older than the recording"},
    {"older-sqpoll", older_sqpoll, "the same, with a thread of the kernel that submits"},
    {NULL, NULL, NULL},
};
