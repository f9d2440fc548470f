/* libaio by its system calls, and the C library's POSIX aio. */
#include "rings.h"

#include <aio.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <sys/uio.h>
#include <time.h>

enum { SIZE = 1 << 16, MOST = 32 };

/* A context is a ring in the log, with "fd" -1, for it has no descriptor. */
static ring *context(unsigned n, aio_context_t *made)
{
    *made = 0;
    checked(syscall(SYS_io_setup, n, made), "io_setup");
    ring *r = calloc(1, sizeof *r);
    static int next = 1000;
    r->fd = -1, r->instance = next++, r->sq_entries = r->cq_entries = n, r->tid = gettid_();
    log_ring(r);
    return r;
}

/* The io_uring opcode that does the same. */
static int opcode_of(int command)
{
    static const int opcodes[] = {
        [IOCB_CMD_PREAD] = IORING_OP_READ, [IOCB_CMD_PWRITE] = IORING_OP_WRITE, [IOCB_CMD_FSYNC] = IORING_OP_FSYNC,
        [IOCB_CMD_FDSYNC] = IORING_OP_FSYNC, [IOCB_CMD_POLL] = IORING_OP_POLL_ADD,
        [IOCB_CMD_PREADV] = IORING_OP_READV, [IOCB_CMD_PWRITEV] = IORING_OP_WRITEV,
    };
    return opcodes[command];
}

static request *iocb(ring *r, struct iocb *c, int opcode, int fd, unsigned length, uint64_t offset)
{
    static uint64_t next = 5001;
    *c = (struct iocb){.aio_lio_opcode = (uint16_t)opcode, .aio_fildes = (uint32_t)fd, .aio_buf = U(arena),
                       .aio_nbytes = length, .aio_offset = (int64_t)offset, .aio_data = next};
    request *q = log_request();
    q->ring = -1, q->instance = r->instance, q->fd = fd, q->user_data = next++, q->tid = gettid_();
    q->opcode = opcode_of(opcode);
    q->offset = offset, q->length = length;
    name_file(q->file, fd);
    return q;
}

static int submit_all(ring *r, aio_context_t context, struct iocb **list, int n)
{
    long result = syscall(SYS_io_submit, context, n, list);
    int kept = result < 0 ? -errno : (int)result;
    log_batch("io_submit", r, n, 0, 0, kept);
    return kept;
}

static int get_events(ring *r, aio_context_t context, int least, int most, bool p)
{
    struct io_event events[MOST];
    struct timespec time = {10, 0};
    long result;
    int error;
    do { /* work that is left of earlier rings interrupts it in this thread */
        result = p ? syscall(SYS_io_pgetevents, context, least, most, events, &time, NULL)
                   : syscall(SYS_io_getevents, context, least, most, events, &time);
        error = result < 0 ? errno : 0;
        log_batch(p ? "io_pgetevents" : "io_getevents", r, most, least, 0, error ? -error : result);
    } while (error == EINTR);
    for (int i = 0; i < result; i++) {
        request *q = find_request(r, events[i].data);
        q->results[q->nr_results++] = events[i].res;
        q->cqes = 1, q->done = true;
    }
    return (int)result;
}

static void libaio(void)
{
    aio_context_t contexts[2];
    ring *rings[2] = {context(MOST, &contexts[0]), context(8, &contexts[1])};
    int fd = new_file("libaio", SIZE, O_RDWR | O_DIRECT);
    struct iocb blocks[MOST], *list[MOST];
    static const int sizes[] = {1, 3, 8};
    for (int round = 0; round < 3; round++)
        for (int which = 0; which < 2; which++) {
            int n = sizes[round], taken = 0;
            for (int i = 0; i < n; i++) {
                list[i] = &blocks[i];
                iocb(rings[which], list[i], (i + which) % 3 ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE, fd, PAGE, (uint64_t)i * PAGE);
            }
            checked(submit_all(rings[which], contexts[which], list, n), "io_submit");
            while (taken < n)
                taken += (int)checked(get_events(rings[which], contexts[which], n - taken, MOST, which), "io_getevents");
        }
    int cached = new_file("libaio-cached", SIZE, O_RDWR | O_CREAT);   /* done within io_submit */
    for (int i = 0; i < 5; i++) {
        list[i] = &blocks[i];
        iocb(rings[0], list[i], IOCB_CMD_PREAD, cached, 100, 0);
    }
    submit_all(rings[0], contexts[0], list, 5);
    get_events(rings[0], contexts[0], 2, 3, false);
    get_events(rings[0], contexts[0], 0, MOST, false);
    struct iocb bad = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = 900, .aio_nbytes = 10, .aio_buf = U(arena)};
    list[0] = &bad;
    submit_all(rings[0], contexts[0], list, 1);       /* EBADF */
    iocb(rings[0], &blocks[0], IOCB_CMD_PREAD, fd, PAGE, 0);
    list[0] = &blocks[0], list[1] = &bad;
    submit_all(rings[0], contexts[0], list, 2);       /* 1: the first one is good */
    get_events(rings[0], contexts[0], 1, MOST, false);
    for (int i = 0; i < 2; i++)
        checked(syscall(SYS_io_destroy, contexts[i]), "io_destroy");
    close(fd), close(cached);
}

/* One request, submitted alone. */
static request *lone(ring *r, aio_context_t context, struct iocb *c, int opcode, int fd, unsigned length, uint64_t offset)
{
    request *q = iocb(r, c, opcode, fd, length, offset);
    if (opcode == IOCB_CMD_PREADV || opcode == IOCB_CMD_PWRITEV) {
        static struct iovec vectors[2];
        vectors[0] = (struct iovec){arena, 1000}, vectors[1] = (struct iovec){arena + PAGE, 24};
        c->aio_buf = U(vectors), c->aio_nbytes = q->length = 2;
    } else if (opcode == IOCB_CMD_POLL) {
        c->aio_buf = POLLIN, c->aio_nbytes = 0, c->aio_offset = 0;
    } else if (opcode == IOCB_CMD_FSYNC || opcode == IOCB_CMD_FDSYNC) {
        c->aio_buf = c->aio_nbytes = 0, c->aio_offset = 0;
    }
    checked(submit_all(r, context, &c, 1), "io_submit");
    return q;
}

/* Ends of all kinds, collected by a call. */
static void ends_of_all_kinds(ring *r, aio_context_t context)
{
    static const struct { int opcode, length, offset; } asked[] = {
        {IOCB_CMD_PREAD, PAGE, SIZE - 100}, {IOCB_CMD_PREAD, PAGE, SIZE}, {IOCB_CMD_PWRITE, 777, 5},
        {IOCB_CMD_FSYNC, 0, 0}, {IOCB_CMD_FDSYNC, 0, 0}, {IOCB_CMD_PREADV, 0, 300}, {IOCB_CMD_PWRITEV, 0, 300},
    };
    struct iocb c;
    int fd = new_file("libaio-ends", SIZE, O_RDWR | O_CREAT);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        lone(r, context, &c, asked[i].opcode, fd, (unsigned)asked[i].length, (uint64_t)asked[i].offset);
        get_events(r, context, 1, MOST, false);
    }
    char *kept = arena;
    arena = (char *)PAGE;                             /* EFAULT */
    lone(r, context, &c, IOCB_CMD_PREAD, fd, 100, 0);
    arena = kept;
    get_events(r, context, 1, MOST, false);
    close(fd);
}

struct collector {
    ring *r;
    aio_context_t context;
    int wanted;
};

static void *collect(void *argument)
{
    const struct collector *c = argument;
    for (int taken = 0; taken < c->wanted;)
        taken += (int)checked(get_events(c->r, c->context, 1, 1, false), "io_getevents");
    return NULL;
}

/* Polls that end one by one, while two threads collect. */
static void two_collectors(ring *r, aio_context_t context)
{
    enum { N = 16 };
    struct iocb blocks[N];
    int pipes[N][2];
    struct collector half = {r, context, N / 2};
    pthread_t threads[2];
    for (int i = 0; i < N; i++) {
        checked(pipe(pipes[i]), "pipe");
        lone(r, context, &blocks[i], IOCB_CMD_POLL, pipes[i][0], 0, 0);
    }
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, collect, &half);
    for (int i = N; i--;)
        checked(write(pipes[i][1], "x", 1), "write");
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < N; i++)
        close(pipes[i][0]), close(pipes[i][1]);
}

/* fs/aio.c: struct aio_ring. */
struct memory_ring {
    unsigned id, nr, head, tail, magic, compat, incompat, header_length;
    struct io_event events[];
};

/* Collects without a call, from the queue that the kernel has mapped. */
static void collect_from_memory(ring *r, aio_context_t context)
{
    struct memory_ring *memory = (struct memory_ring *)context;
    struct iocb c;
    int fd = new_file("libaio-memory", SIZE, O_RDWR | O_DIRECT);
    for (int i = 0; i < 3; i++) {
        request *q = lone(r, context, &c, IOCB_CMD_PREAD, fd, PAGE, (uint64_t)i * PAGE);
        if (i == 2)
            break;
        while (__atomic_load_n(&memory->tail, __ATOMIC_ACQUIRE) == memory->head)
            pause_ms(1);
        c.aio_data = 0;                                /* a later reader finds 0 here */
        memory->head = (memory->head + 1) % memory->nr;
        q->status = "unseen", q->done = true;
    }
    get_events(r, context, 1, MOST, false);
    close(fd);
}

static void libaio_ends(void)
{
    aio_context_t context_;
    ring *r = context(MOST, &context_);
    struct iocb waits[2];
    struct io_event unused;
    int pipes[2];
    ends_of_all_kinds(r, context_);
    two_collectors(r, context_);
    collect_from_memory(r, context_);
    checked(pipe(pipes), "pipe");
    lone(r, context_, &waits[0], IOCB_CMD_POLL, pipes[0], 0, 0);
    if (syscall(SYS_io_cancel, context_, &waits[0], &unused) < 0 && errno != EINPROGRESS)
        die("io_cancel");
    get_events(r, context_, 1, MOST, false);
    lone(r, context_, &waits[0], IOCB_CMD_POLL, pipes[0], 0, 0)->status = "torn down";
    lone(r, context_, &waits[1], IOCB_CMD_POLL, pipes[0], 0, 0)->status = "torn down";
    checked(syscall(SYS_io_destroy, context_), "io_destroy");
    close(pipes[0]), close(pipes[1]);
}

static void wait_aio(const struct aiocb *block)
{
    const struct aiocb *list[1] = {block};
    while (aio_error(block) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
}

/* The C library's threads, which call pread and pwrite. */
static void posix_aio(void)
{
    int fd = new_file("posix", SIZE, O_RDWR | O_CREAT);
    for (int i = 0; i < 6; i++) {
        struct aiocb block = {.aio_fildes = fd, .aio_buf = arena, .aio_nbytes = 100 + (size_t)i, .aio_offset = i * 512};
        checked(i % 2 ? aio_write(&block) : aio_read(&block), "aio");
        wait_aio(&block);
        request *q = log_request();
        q->ring = -1, q->instance = -1, q->fd = fd, q->opcode = i % 2 ? IORING_OP_WRITE : IORING_OP_READ;
        q->tid = gettid_(), q->user_data = 9001 + (unsigned)i, q->paths = "call", q->cqes = 1;
        q->results[q->nr_results++] = aio_return(&block);
    }
    close(fd);
}

const scenario aio_scenarios[] = {
    {"libaio", libaio, "two contexts, batches of several sizes"},
    {"libaio-ends", libaio_ends, "errors, short reads, polls, two collectors, io_cancel, io_destroy, no call at all"},
    {"posix-aio", posix_aio, "aio_read and aio_write of the C library"},
    {NULL, NULL, NULL},
};
