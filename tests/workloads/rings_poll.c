/* Requests that wait for a partner: pipes, sockets, polls, messages from ring to ring. */
#include "rings.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

/* Another thread that writes on request; its tid is the waker's. */
typedef struct {
    pthread_t thread;
    int orders[2], done[2], tid;
} writer;

typedef struct {
    int fd, n;
} order;

static void *writer_main(void *argument)
{
    writer *w = argument;
    order o;
    char word = 'x';
    w->tid = gettid_();
    checked(write(w->done[1], &word, 1), "write");
    while (read(w->orders[0], &o, sizeof o) == sizeof o && o.n) {
        checked(write(o.fd, arena + ARENA / 2, (size_t)o.n), "write");
        checked(write(w->done[1], &word, 1), "write");
    }
    return NULL;
}

static void hear(writer *w)
{
    char word;
    checked(read(w->done[0], &word, 1), "read");
}

static void writer_start(writer *w)
{
    if (pipe(w->orders) || pipe(w->done) || pthread_create(&w->thread, NULL, writer_main, w))
        die("starting a thread");
    hear(w);
}

static void writer_end(writer *w)
{
    order o = {0, 0};
    checked(write(w->orders[1], &o, sizeof o), "write");
    pthread_join(w->thread, NULL);
    for (int i = 0; i < 2; i++)
        close(w->orders[i]), close(w->done[i]);
}

/* Makes the other thread write n bytes now. */
static void let_write(writer *w, int fd, int n)
{
    order o = {fd, n};
    checked(write(w->orders[1], &o, sizeof o), "write");
    hear(w);
}

static request *woken(request *q, const writer *w)
{
    q->waker = w->tid;
    return expect(q, "poll");
}

static void pipe_reads(void)
{
    ring *r = ring_new(8, 0, 0);
    writer w;
    int ends_[2];
    writer_start(&w);
    checked(pipe(ends_), "pipe");
    for (int i = 0; i < 5; i++) {
        woken(add(r, IORING_OP_READ, ends_[0], arena, 4096, UINT64_MAX), &w);
        submit(r, 0);
        let_write(&w, ends_[1], 10 + i);
        reap_n(r, 1);
    }
    let_write(&w, ends_[1], 33);          /* the bytes are there already: nobody wakes */
    one(r, expect(add(r, IORING_OP_READ, ends_[0], arena, 4096, UINT64_MAX), "inline"));
    one(r, expect(add(r, IORING_OP_WRITE, ends_[1], arena, 99, UINT64_MAX), "inline"));
    writer_end(&w);
    close(ends_[0]), close(ends_[1]);
    ring_close(r);
}

static void socket_reads(void)
{
    ring *r = ring_new(8, 0, 0);
    writer w;
    int pair[2];
    writer_start(&w);
    checked(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
    for (int i = 0; i < 3; i++) {
        woken(add(r, IORING_OP_RECV, pair[0], arena, 4096, 0), &w);
        submit(r, 0);
        let_write(&w, pair[1], 20 + i);
        reap_n(r, 1);
    }
    one(r, expect(add(r, IORING_OP_SEND, pair[1], arena, 55, 0), "inline"));
    one(r, expect(add(r, IORING_OP_RECV, pair[0], arena, 4096, 0), "inline"));
    request *q = add(r, IORING_OP_RECV, pair[0], arena, 4096, 0);
    q->sqe->msg_flags = MSG_DONTWAIT;     /* the result is EAGAIN */
    one(r, expect(q, "inline"));
    writer_end(&w);
    close(pair[0]), close(pair[1]);
    ring_close(r);
}

/*
 * Explicit polls differ from internal ones: they are queued like requests to a device. The multi-shot one posts five
 * CQEs.
 */
static void polls(void)
{
    ring *r = ring_new(8, 0, 0);
    writer w;
    int ends_[2];
    writer_start(&w);
    checked(pipe(ends_), "pipe");
    request *q = expect(add(r, IORING_OP_POLL_ADD, ends_[0], NULL, 0, 0), "device");
    q->sqe->poll32_events = POLLIN, q->waker = w.tid;
    submit(r, 0);
    let_write(&w, ends_[1], 5);
    reap_n(r, 1);
    q = expect(add(r, IORING_OP_POLL_ADD, ends_[0], NULL, 0, 0), "inline");
    q->sqe->poll32_events = POLLIN;       /* ready already */
    one(r, q);
    checked(read(ends_[0], arena, 4096), "read");
    q = expect(add(r, IORING_OP_POLL_ADD, ends_[0], NULL, IORING_POLL_ADD_MULTI, 0), "device");
    q->sqe->poll32_events = POLLIN, q->waker = w.tid;
    submit(r, 0);
    for (int i = 0; i < 4; i++) {
        let_write(&w, ends_[1], 5);
        reap_n(r, 1);
        checked(read(ends_[0], arena, 4096), "read");
    }
    request *removal = expect(add(r, IORING_OP_POLL_REMOVE, -1, (void *)(uintptr_t)q->user_data, 0, 0), "inline");
    removal->target = (int64_t)q->user_data;
    submit(r, 2);
    reap_n(r, 2);                         /* the removal and, ECANCELED, the poll */
    writer_end(&w);
    close(ends_[0]), close(ends_[1]);
    ring_close(r);
}

/* Polls that a timer ends: an interrupt wakes them, whichever thread it comes upon. */
static void timer_polls(void)
{
    const struct itimerspec soon = {.it_value.tv_nsec = 1000000};
    ring *r = ring_new(8, 0, 0);
    int fd = (int)checked(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), "timerfd_create");
    for (int i = 0; i < 5; i++) {
        request *q = expect(add(r, IORING_OP_POLL_ADD, fd, NULL, 0, 0), "device");
        q->sqe->poll32_events = POLLIN;
        submit(r, 0);
        checked(timerfd_settime(fd, 0, &soon, NULL), "timerfd_settime");
        reap_n(r, 1);
        checked(read(fd, arena, 8), "read");
    }
    close(fd);
    ring_close(r);
}

static int listener(struct sockaddr_in *address, int type)
{
    socklen_t size = sizeof *address;
    int fd = (int)checked(socket(AF_INET, type, 0), "socket");
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    checked(bind(fd, (struct sockaddr *)address, size), "bind");
    if (type == SOCK_STREAM)
        checked(listen(fd, 16), "listen");
    checked(getsockname(fd, (struct sockaddr *)address, &size), "getsockname");
    return fd;
}

static int connected(const struct sockaddr_in *address, int type)
{
    int fd = (int)checked(socket(AF_INET, type, 0), "socket");
    checked(connect(fd, (const struct sockaddr *)address, sizeof *address), "connect");
    return fd;
}

static void cancel(ring *r, request *q)
{
    request *c = add(r, IORING_OP_ASYNC_CANCEL, -1, (void *)(uintptr_t)q->user_data, 0, 0);
    c->target = (int64_t)q->user_data;
    expect(c, "inline");
    submit(r, 2);
    reap_n(r, 2);
}

/* One accept, three connections; then cancelled. */
static void accept_multishot(void)
{
    ring *r = ring_new(8, 0, 0);
    struct sockaddr_in address;
    int fd = listener(&address, SOCK_STREAM), clients[3];
    request *q = expect(add(r, IORING_OP_ACCEPT, fd, NULL, 0, 0), "poll");
    q->sqe->ioprio = IORING_ACCEPT_MULTISHOT;
    submit(r, 0);
    for (int i = 0; i < 3; i++) {
        clients[i] = connected(&address, SOCK_STREAM);
        reap_n(r, 1);
    }
    cancel(r, q);
    for (int i = 0; i < 3; i++)
        close(clients[i]), close((int)q->results[i]);
    q = expect(add(r, IORING_OP_ACCEPT, fd, NULL, 0, 0), "poll");   /* and a plain one */
    submit(r, 0);
    clients[0] = connected(&address, SOCK_STREAM);
    reap_n(r, 1);
    close(clients[0]), close((int)q->results[0]), close(fd);
    ring_close(r);
}

/*
 * Connections that become registered files, in free places; and a registered listener, whose connections are
 * descriptors.
 */
static void accept_places(void)
{
    enum { PLACES = 16, FIRST = 7, SECOND = 9, LISTENER = 0 };
    ring *r = ring_new(8, 0, 0);
    struct sockaddr_in address;
    int fd = listener(&address, SOCK_STREAM), places[PLACES], clients[3];
    for (int i = 0; i < PLACES; i++)
        places[i] = i == FIRST || i == SECOND ? -1 : fd;
    checked(ring_register(r, IORING_REGISTER_FILES, places, PLACES), "registering places");
    request *q = expect(add(r, IORING_OP_ACCEPT, fd, NULL, 0, 0), "poll");
    q->sqe->ioprio = IORING_ACCEPT_MULTISHOT, q->sqe->file_index = IORING_FILE_INDEX_ALLOC;
    q->file_index = SECOND;               /* the place that was filled last */
    submit(r, 0);
    for (int i = 0; i < 2; i++) {
        clients[i] = connected(&address, SOCK_STREAM);
        reap_n(r, 1);
    }
    cancel(r, q);
    checked(write(clients[0], arena, 44), "write");
    q = add(r, IORING_OP_RECV, FIRST, arena, 64, 0);
    set_flags(q, IOSQE_FIXED_FILE);
    one(r, expect(q, "inline"));
    q = add(r, IORING_OP_ACCEPT, LISTENER, NULL, 0, 0);
    set_flags(q, IOSQE_FIXED_FILE);
    expect(q, "poll");
    submit(r, 0);
    clients[2] = connected(&address, SOCK_STREAM);
    reap_n(r, 1);
    checked(write(clients[2], arena, 55), "write");
    one(r, expect(add(r, IORING_OP_RECV, (int)q->results[0], arena, 64, 0), "inline"));
    close((int)q->results[0]);
    for (int i = 0; i < 3; i++)
        close(clients[i]);
    close(fd);
    ring_close(r);
}

/* One receive into provided buffers: four packets, then the buffers are used up (ENOBUFS). */
static void recv_multishot(void)
{
    enum { BUFFERS = 4, LENGTH = 256 };
    ring *r = ring_new(8, 0, 0);
    writer w;
    int pair[2];
    writer_start(&w);
    checked(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), "socketpair");
    request *q = add(r, IORING_OP_PROVIDE_BUFFERS, BUFFERS, arena, LENGTH, 0);
    one(r, expect(q, "inline"));
    q = add(r, IORING_OP_RECV, pair[0], NULL, 0, 0);
    set_flags(q, IOSQE_BUFFER_SELECT);
    q->sqe->ioprio = IORING_RECV_MULTISHOT;
    woken(q, &w);
    submit(r, 0);
    for (int i = 0; i < BUFFERS; i++) {
        let_write(&w, pair[1], 40 + i);
        reap_n(r, i == BUFFERS - 1 ? 2 : 1);
    }
    writer_end(&w);
    close(pair[0]), close(pair[1]);
    ring_close(r);
}

/* Two completions each: the result, and later the notification that the memory is free again. */
static void send_zc(void)
{
    ring *r = ring_new(8, 0, 0);
    struct sockaddr_in address;
    int to = listener(&address, SOCK_DGRAM), from = connected(&address, SOCK_DGRAM);
    for (unsigned i = 0; i < 3; i++) {
        request *q = expect(add(r, IORING_OP_SEND_ZC, from, arena, 1000 + i, 0), "inline");
        submit(r, 1);
        while (!q->notified)
            reap_n(r, 1);
        checked(read(to, arena + 8192, 4096), "read");
    }
    close(from), close(to);
    int stream = listener(&address, SOCK_STREAM);
    from = connected(&address, SOCK_STREAM);
    to = (int)checked(accept(stream, NULL, NULL), "accept");
    request *q = expect(add(r, IORING_OP_SEND_ZC, from, arena, 5000, 0), "inline");
    submit(r, 1);
    for (int got = 0; got < 5000;)
        got += (int)checked(read(to, arena + 8192, 8192), "read");
    while (!q->notified)
        reap_n(r, 1);
    close(from), close(to), close(stream);
    ring_close(r);
}

/* A completion on another ring, where no request asked for it. */
static void msg_ring(void)
{
    ring *from = ring_new(8, 0, 0), *to = ring_new(8, 0, 0);
    for (unsigned i = 0; i < 4; i++) {
        one(from, expect(add(from, IORING_OP_MSG_RING, to->fd, NULL, 70 + i, 0xabc000 + i), "inline"));
        reap_n(to, 1);
    }
    one(to, expect(add(to, IORING_OP_NOP, -1, NULL, 0, 0), "inline"));
    one(from, expect(add(from, IORING_OP_MSG_RING, 0, NULL, 1, 1), "inline"));   /* EBADFD: no ring */
    ring_close(to);
    ring_close(from);
}

/* Waits for a time that nothing cuts short: the call returns by itself. */
static void partial_wait(void)
{
    struct { uint64_t sigmask; uint32_t size, pad; uint64_t ts; } wait = {.size = 8};
    struct __kernel_timespec time = {0, 20000000};
    ring *r = ring_new(8, 0, 0);
    wait.ts = U(&time);
    long result = syscall(SYS_io_uring_enter, r->fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &wait, sizeof wait);
    log_batch("io_uring_enter", r, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, result < 0 ? -errno : result);
    one(r, expect(add(r, IORING_OP_NOP, -1, NULL, 0, 0), "inline"));
    ring_close(r);
}

const scenario poll_scenarios[] = {
    {"pipe-reads", pipe_reads, "reads of a pipe that another thread fills"},
    {"socket-reads", socket_reads, "receives that another thread ends"},
    {"polls", polls, "explicit polls, single and multi-shot"},
    {"timer-polls", timer_polls, "polls that a timer's interrupt ends"},
    {"accept-multishot", accept_multishot, "one accept, three connections"},
    {"accept-places", accept_places, "connections as registered files, and those of a registered listener"},
    {"recv-multishot", recv_multishot, "one receive into provided buffers"},
    {"send-zc", send_zc, "zero-copy sends and their notifications"},
    {"msg-ring", msg_ring, "messages from one ring to another"},
    {"partial-wait", partial_wait, "a wait that ends by its time"},
    {NULL, NULL, NULL},
};
