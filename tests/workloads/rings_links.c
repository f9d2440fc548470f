/* Requests that depend on others: links, drains, timeouts, cancellation. */
#include "rings.h"

static request *nop_(ring *r)
{
    return expect(add(r, IORING_OP_NOP, -1, NULL, 0, 0), "inline");
}

/* n no-operations in a chain. */
static void chain(ring *r, int n, unsigned flag)
{
    request *before = NULL;
    for (int i = 0; i < n; i++) {
        request *q = nop_(r);
        set_flags(q, i < n - 1 ? flag : 0);
        if (before)
            after(q, before);
        before = q;
    }
}

/* Chains of two, three and eight; two chains and two free requests in one batch; a chain cut by the batch's end. */
static void links(void)
{
    ring *r = ring_new(32, 0, 0);
    static const int lengths[] = {2, 3, 8};
    for (int i = 0; i < 3; i++) {
        chain(r, lengths[i], IOSQE_IO_LINK);
        submit(r, (unsigned)lengths[i]);
        reap_n(r, (unsigned)lengths[i]);
    }
    nop_(r);
    chain(r, 3, IOSQE_IO_LINK);
    chain(r, 2, IOSQE_IO_LINK);
    nop_(r);
    submit(r, 7);
    reap_n(r, 7);
    request *last = expect(add(r, IORING_OP_NOP, -1, NULL, 0, 0), "inline|worker");
    set_flags(last, IOSQE_IO_LINK);       /* with no request after it: Linux 6.18 gives it to a worker */
    submit(r, 1);
    reap_n(r, 1);
    int fd = new_file("links", 8192, O_RDWR | O_CREAT);
    request *first = expect(add(r, IORING_OP_READ, fd, arena, 100, 0), "inline");
    set_flags(first, IOSQE_IO_LINK);
    request *second = after(expect(add(r, IORING_OP_READ, fd, arena, 200, 0), "inline"), first);
    set_flags(second, IOSQE_IO_LINK);
    after(expect(add(r, IORING_OP_READ, fd, arena, 300, 0), "inline"), second);
    submit(r, 3);
    reap_n(r, 3);
    close(fd);
    ring_close(r);
}

/* A hard link holds even if the request before it fails. */
static void hard_links(void)
{
    ring *r = ring_new(8, 0, 0);
    request *first = expect(add(r, IORING_OP_READ, 900, arena, 10, 0), "inline");   /* EBADF */
    set_flags(first, IOSQE_IO_HARDLINK);
    request *second = after(nop_(r), first);
    set_flags(second, IOSQE_IO_HARDLINK);
    after(nop_(r), second);
    submit(r, 3);
    reap_n(r, 3);
    ring_close(r);
}

static request *victim(request *q, const request *before, const request *culprit)
{
    q->culprit = (int64_t)culprit->user_data;
    return expect(after(q, before), "cancelled");
}

/* The second of four fails, the third and the fourth never run. A short read breaks a chain, too. */
static void broken_chain(void)
{
    ring *r = ring_new(16, 0, 0);
    request *first = nop_(r);
    set_flags(first, IOSQE_IO_LINK);
    request *culprit = after(expect(add(r, IORING_OP_READ, 900, arena, 10, 0), "inline"), first);
    set_flags(culprit, IOSQE_IO_LINK);
    request *third = victim(nop_(r), culprit, culprit);
    set_flags(third, IOSQE_IO_LINK);
    victim(nop_(r), third, culprit);
    submit(r, 4);
    reap_n(r, 4);
    int fd = new_file("broken", 100, O_RDWR | O_CREAT);
    culprit = expect(add(r, IORING_OP_READ, fd, arena, 4096, 0), "inline");
    set_flags(culprit, IOSQE_IO_LINK);
    third = victim(nop_(r), culprit, culprit);
    set_flags(third, IOSQE_IO_LINK);
    victim(nop_(r), third, culprit);
    submit(r, 3);
    reap_n(r, 3);
    close(fd);
    ring_close(r);
}

static struct __kernel_timespec *span(int ms)
{
    static struct __kernel_timespec times[16];
    static int next;
    struct __kernel_timespec *time = &times[next++ % 16];
    *time = (struct __kernel_timespec){ms / 1000, ms % 1000 * 1000000LL};
    return time;
}

/* A read in time cancels the timeout. A late one is ended by the timeout: ETIME. */
static void link_timeout(void)
{
    ring *r = ring_new(8, 0, 0);
    int ends_[2];
    checked(pipe(ends_), "pipe");
    request *q = expect(add(r, IORING_OP_READ, ends_[0], arena, 64, UINT64_MAX), "poll");
    set_flags(q, IOSQE_IO_LINK);
    request *limit = after(add(r, IORING_OP_LINK_TIMEOUT, -1, span(60000), 1, 0), q);
    expect(limit, "device|cancelled");    /* nobody can see whether it was armed */
    submit(r, 0);
    checked(write(ends_[1], "in time", 7), "write");
    reap_n(r, 2);
    q = expect(add(r, IORING_OP_READ, ends_[0], arena, 64, UINT64_MAX), "poll");
    set_flags(q, IOSQE_IO_LINK);
    limit = after(add(r, IORING_OP_LINK_TIMEOUT, -1, span(20), 1, 0), q);
    limit->target = (int64_t)q->user_data;
    expect(limit, "device");
    submit(r, 2);
    reap_n(r, 2);
    q = nop_(r);                          /* done before the timeout is armed */
    set_flags(q, IOSQE_IO_LINK);
    expect(after(add(r, IORING_OP_LINK_TIMEOUT, -1, span(60000), 1, 0), q), "cancelled|device");
    submit(r, 2);
    reap_n(r, 2);
    close(ends_[0]), close(ends_[1]);
    ring_close(r);
}

/* A drained request waits for all before it, and all after it wait for it. */
static void drain(void)
{
    ring *r = ring_new(16, 0, 0);
    int ends_[2];
    checked(pipe(ends_), "pipe");
    request *q = nop_(r);
    set_flags(q, IOSQE_IO_DRAIN);         /* with no request to wait for */
    q->paths = "inline|worker";
    submit(r, 1);
    reap_n(r, 1);
    expect(add(r, IORING_OP_READ, ends_[0], arena, 64, UINT64_MAX), "poll|worker");
    q = nop_(r);
    set_flags(q, IOSQE_IO_DRAIN);
    q->paths = "inline|worker";
    q = nop_(r);                          /* the kernel drains it, too, while one before it waits */
    q->paths = "inline|worker";
    submit(r, 0);
    checked(write(ends_[1], "go", 2), "write");
    reap_n(r, 3);
    for (int i = 0; i < 3; i++) {
        q = nop_(r);
        if (i == 1)
            set_flags(q, IOSQE_IO_DRAIN);
        q->paths = "inline|worker";
    }
    submit(r, 3);
    reap_n(r, 3);
    close(ends_[0]), close(ends_[1]);
    ring_close(r);
}

static void timeouts(void)
{
    ring *r = ring_new(8, 0, 0);
    one(r, expect(add(r, IORING_OP_TIMEOUT, -1, span(10), 1, 0), "device"));          /* ETIME */
    request *q = expect(add(r, IORING_OP_TIMEOUT, -1, span(60000), 1, 2), "device");    /* ends with two completions */
    submit(r, 0);
    nop_(r), nop_(r);
    submit(r, 3);
    reap_n(r, 3);
    q = expect(add(r, IORING_OP_TIMEOUT, -1, span(60000), 1, 0), "device");
    submit(r, 0);
    request *removal = expect(add(r, IORING_OP_TIMEOUT_REMOVE, -1, (void *)(uintptr_t)q->user_data, 0, 0), "inline");
    removal->target = (int64_t)q->user_data;
    submit(r, 2);
    reap_n(r, 2);
    one(r, expect(add(r, IORING_OP_TIMEOUT_REMOVE, -1, (void *)1, 0, 0), "inline"));    /* ENOENT */
    q = expect(add(r, IORING_OP_TIMEOUT, -1, span(60000), 1, 0), "device");
    submit(r, 0);
    removal = expect(add(r, IORING_OP_TIMEOUT_REMOVE, -1, (void *)(uintptr_t)q->user_data, 0, U(span(10))), "inline");
    removal->sqe->timeout_flags = IORING_TIMEOUT_UPDATE;
    removal->target = (int64_t)q->user_data;
    submit(r, 2);                         /* earlier, so that it fires */
    reap_n(r, 2);
    ring_close(r);
}

static void cancel_one(ring *r, const request *q, const char *paths)
{
    request *c = expect(add(r, IORING_OP_ASYNC_CANCEL, -1, (void *)(uintptr_t)q->user_data, 0, 0), paths);
    c->target = (int64_t)q->user_data;
    submit(r, 2);
    reap_n(r, 2);
}

/* Cancels waiting requests: an internal poll, an explicit one, a timeout, a worker's read; a missing one; all at once. */
static void cancels(void)
{
    ring *r = ring_new(16, 0, 0);
    int ends_[2];
    checked(pipe(ends_), "pipe");
    request *q = expect(add(r, IORING_OP_READ, ends_[0], arena, 64, UINT64_MAX), "poll");
    submit(r, 0);
    cancel_one(r, q, "inline");
    q = expect(add(r, IORING_OP_POLL_ADD, ends_[0], NULL, 0, 0), "device");
    q->sqe->poll32_events = 1;
    submit(r, 0);
    cancel_one(r, q, "inline");
    q = expect(add(r, IORING_OP_TIMEOUT, -1, span(60000), 1, 0), "device");
    submit(r, 0);
    cancel_one(r, q, "inline");
    one(r, expect(add(r, IORING_OP_ASYNC_CANCEL, -1, (void *)1, 0, 0), "inline|worker"));   /* ENOENT */
    for (int i = 0; i < 3; i++)
        expect(add(r, IORING_OP_READ, ends_[0], arena, 64, UINT64_MAX), "poll");
    submit(r, 0);
    request *c = expect(add(r, IORING_OP_ASYNC_CANCEL, ends_[0], NULL, 0, 0), "inline|worker");
    c->sqe->cancel_flags = IORING_ASYNC_CANCEL_ALL | IORING_ASYNC_CANCEL_FD;
    submit(r, 4);
    reap_n(r, 4);
    request *first = expect(add(r, IORING_OP_READ, ends_[0], arena, 64, UINT64_MAX), "poll");
    set_flags(first, IOSQE_IO_LINK);      /* its link ends with it */
    victim(nop_(r), first, first);
    submit(r, 0);
    c = expect(add(r, IORING_OP_ASYNC_CANCEL, -1, (void *)(uintptr_t)first->user_data, 0, 0), "inline");
    c->target = (int64_t)first->user_data;
    submit(r, 3);
    reap_n(r, 3);
    close(ends_[0]), close(ends_[1]);
    ring_close(r);
}

const scenario link_scenarios[] = {
    {"links", links, "chains of several lengths"},
    {"hard-links", hard_links, "chains that hold though one fails"},
    {"broken-chain", broken_chain, "a culprit and its victims"},
    {"link-timeout", link_timeout, "a limit that is kept, and one that is not"},
    {"drain", drain, "requests that wait for all before them"},
    {"timeouts", timeouts, "by time, by completions, removed, changed"},
    {"cancels", cancels, "ASYNC_CANCEL of what waits"},
    {NULL, NULL, NULL},
};
