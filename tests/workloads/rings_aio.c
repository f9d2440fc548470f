/* libaio by its system calls, and the C library's POSIX aio. */
#include "rings.h"

#include <aio.h>
#include <linux/aio_abi.h>
#include <time.h>

enum { SIZE = 1 << 16, MOST = 32 };

/* A context, in the log as a ring of its own: its "fd" is -1, for it has none. */
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

static request *iocb(ring *r, struct iocb *c, int opcode, int fd, unsigned length, uint64_t offset)
{
    static uint64_t next = 5001;
    *c = (struct iocb){.aio_lio_opcode = (uint16_t)opcode, .aio_fildes = (uint32_t)fd, .aio_buf = U(arena),
                       .aio_nbytes = length, .aio_offset = (int64_t)offset, .aio_data = next};
    request *q = log_request();
    q->ring = -1, q->instance = r->instance, q->fd = fd, q->user_data = next++, q->tid = gettid_();
    q->opcode = opcode == IOCB_CMD_PREAD ? IORING_OP_READ : IORING_OP_WRITE;
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
    do { /* what rings of earlier scenarios still have to do in this thread interrupts it */
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

static void wait_aio(const struct aiocb *block)
{
    const struct aiocb *list[1] = {block};
    while (aio_error(block) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
}

/* Threads of the C library's that call pread and pwrite. */
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
    {"posix-aio", posix_aio, "aio_read and aio_write of the C library"},
    {NULL, NULL, NULL},
};
