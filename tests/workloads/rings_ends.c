/* Ends other than a normal completion: silent, refused, overflowed, torn down. */
#include "rings.h"

#include <sys/wait.h>

static request *nop_(ring *r)
{
    return expect(add(r, IORING_OP_NOP, -1, NULL, 0, 0), "inline");
}

static request *silent(request *q)
{
    set_flags(q, q->sqe->flags | IOSQE_CQE_SKIP_SUCCESS);
    return ends(q, "silent");
}

/* Four are silent, one is not; a failed one posts a CQE. In a chain, only the last one does. */
static void skip(void)
{
    ring *r = ring_new(16, 0, 0);
    for (int i = 0; i < 4; i++)
        silent(nop_(r));
    nop_(r);
    submit(r, 1);
    reap_n(r, 1);
    request *q = expect(add(r, IORING_OP_READ, 900, arena, 10, 0), "inline");
    set_flags(q, IOSQE_CQE_SKIP_SUCCESS);   /* EBADF */
    submit(r, 1);
    reap_n(r, 1);
    int fd = new_file("skip", 8192, O_RDWR | O_CREAT);
    q = expect(add(r, IORING_OP_READ, fd, arena, 100, 0), "inline");
    set_flags(q, IOSQE_IO_LINK);
    silent(q);
    after(nop_(r), q);
    submit(r, 1);
    reap_n(r, 1);
    close(fd);
    ring_close(r);
}

/* A silent request fails and posts a CQE. The rest of its chain is then silent, whatever the requests asked for. */
static void silent_chain(void)
{
    ring *r = ring_new(16, 0, 0);
    request *culprit = expect(add(r, IORING_OP_READ, 900, arena, 10, 0), "inline"), *before = culprit;   /* EBADF */
    set_flags(culprit, IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS);
    for (int i = 0; i < 3; i++) {
        request *q = after(ends(expect(add(r, IORING_OP_NOP, -1, NULL, 0, 0), "cancelled"), "cancelled"), before);
        set_flags(q, i == 0 ? IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS : i == 1 ? IOSQE_IO_LINK : 0);
        q->culprit = (int64_t)culprit->user_data;
        before = q;
    }
    submit(r, 1);
    reap_n(r, 1);
    one(r, nop_(r));
    ring_close(r);
}

/* 4 completions fit; 12 are posted before any is taken. */
static void overflow(void)
{
    ring *r = ring_new(4, 4, 0);
    for (int batch = 0; batch < 3; batch++) {
        for (int i = 0; i < 4; i++) {
            request *q = nop_(r);
            q->overflow = batch > 0;
            r->overflows += q->overflow;
        }
        submit(r, 0);
    }
    reap_n(r, 12);
    for (int i = 0; i < 4; i++)
        nop_(r);
    submit(r, 4);
    reap_n(r, 4);
    ring_close(r);
}

/* Requests that the kernel refuses. Each ends the batch in which it stands, unless the ring was set up to go on. */
static void refused(void)
{
    for (int all = 0; all < 2; all++) {
        ring *r = ring_new(16, 0, all ? IORING_SETUP_SUBMIT_ALL : 0);
        for (int kind = 0; kind < 4; kind++) {
            nop_(r);
            request *q = ends(expect(add(r, IORING_OP_READ, 900, arena, 10, 0), "refused"), "refused");
            if (kind == 0)
                q->opcode = q->sqe->opcode = 251;
            else if (kind == 1)
                set_flags(q, 0x80);
            else if (kind == 2)
                q->sqe->ioprio = 0xffff;  /* no such class */
            else
                q->opcode = q->sqe->opcode = IORING_OP_STATX, q->sqe->buf_index = 1;
            nop_(r);
            int done = submit(r, 2);
            reap(r);
            if (done == 2)
                enter(r, 1, 1, IORING_ENTER_GETEVENTS);
            reap(r);
        }
        ring_close(r);
    }
}

/* A refused request in a chain cancels the chain. */
static void refused_link(void)
{
    ring *r = ring_new(16, 0, IORING_SETUP_SUBMIT_ALL);
    request *first = ends(expect(add(r, IORING_OP_NOP, -1, NULL, 0, 0), "cancelled"), "cancelled");
    set_flags(first, IOSQE_IO_LINK);
    request *bad = after(ends(expect(add(r, IORING_OP_READ, 900, arena, 10, 0), "refused"), "refused"), first);
    bad->opcode = bad->sqe->opcode = 251;
    first->culprit = (int64_t)bad->user_data;
    set_flags(bad, IOSQE_IO_LINK);
    request *third = after(expect(add(r, IORING_OP_NOP, -1, NULL, 0, 0), "cancelled"), bad);
    third->culprit = (int64_t)bad->user_data;
    submit(r, 3);
    reap_n(r, 3);
    ring_close(r);
}

static void bad_fds(void)
{
    ring *r = ring_new(16, 0, 0);
    static const int opcodes[] = {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_FSYNC, IORING_OP_POLL_ADD, IORING_OP_RECV};
    for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++) {
        bool sync = opcodes[i] == IORING_OP_FSYNC;
        bool memory = opcodes[i] != IORING_OP_POLL_ADD && !sync;
        request *q = add(r, opcodes[i], 900, memory ? arena : NULL, memory ? 10 : 0, 0);
        one(r, expect(q, sync ? "inline|worker" : "inline"));
    }
    one(r, expect(add(r, IORING_OP_READ, -1, arena, 10, 0), "inline"));
    ring_close(r);
}

/* The kernel ends them with the ring, and nobody collects that: a trace may have cancellations, or the ring's end. */
static void leave_in_flight(ring *r, int ends_[2])
{
    static struct __kernel_timespec minute = {60, 0};
    nop_(r);
    ends(expect(add(r, IORING_OP_READ, ends_[0], arena, 64, UINT64_MAX), "poll"), "torn down|cancelled");
    ends(expect(add(r, IORING_OP_TIMEOUT, -1, &minute, 1, 0), "device"), "torn down|cancelled");
    request *q = ends(expect(add(r, IORING_OP_POLL_ADD, ends_[0], NULL, 0, 0), "device"), "torn down|cancelled");
    q->sqe->poll32_events = 1;
    q = add(r, IORING_OP_READ, ends_[0], arena, 64, UINT64_MAX);
    ends(expect(q, "worker|cancelled"), "torn down|cancelled");
    set_flags(q, IOSQE_ASYNC);            /* a worker has looked at it, unless the machine is very busy */
    submit(r, 1);
    reap_n(r, 1);
    pause_ms(20);
}

/* The ring is closed and the program goes on. Then a second ring gets the same descriptor. */
static void teardown_close(void)
{
    int ends_[2];
    checked(pipe(ends_), "pipe");
    ring *r = ring_new(8, 0, 0);
    leave_in_flight(r, ends_);
    int fd = r->fd;
    ring_close(r);
    pause_ms(100);
    ring *again = ring_new(8, 0, 0);
    if (again->fd != fd)
        die("another descriptor");
    one(again, nop_(again));
    ring_close(again);
    close(ends_[0]), close(ends_[1]);
}

/* The process ends with its ring open. */
static void teardown_exit(void)
{
    int ends_[2];
    checked(pipe(ends_), "pipe");
    leave_in_flight(ring_new(8, 0, 0), ends_);
}

/* A child works on the inherited ring, then its parent does. */
static void inherited(void)
{
    ring *r = ring_new(8, 0, 0);
    one(r, nop_(r));
    request *q = nop_(r);                 /* prepared before the fork, submitted by the child; seen by the parent */
    r->pending = 0;
    __atomic_store_n(r->sq_tail, *r->sq_tail + 1, __ATOMIC_RELEASE);
    int pid = (int)checked(fork(), "fork");
    if (!pid)
        _exit(syscall(SYS_io_uring_enter, r->fd, 1, 0, 0, NULL, 0) == 1 ? 0 : 97);
    q->tid = pid;
    log_batch_of(pid, r, 1, 1);
    int status;
    if (waitpid(pid, &status, 0) != pid || status)
        die("the child");
    reap_n(r, 1);
    one(r, nop_(r));
    ring_close(r);
}

const scenario end_scenarios[] = {
    {"skip", skip, "CQE_SKIP_SUCCESS"},
    {"silent-chain", silent_chain, "a chain that breaks at one with CQE_SKIP_SUCCESS"},
    {"overflow", overflow, "more completions than the queue has room for"},
    {"refused", refused, "what the kernel does not begin"},
    {"refused-link", refused_link, "a refused one in a chain"},
    {"bad-fds", bad_fds, "descriptors that are not open"},
    {"teardown-close", teardown_close, "a ring closed with requests in flight"},
    {"teardown-exit", teardown_exit, "a process that ends with requests in flight"},
    {"inherited", inherited, "a ring used by a child"},
    {NULL, NULL, NULL},
};
