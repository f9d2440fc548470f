/* A ring by raw system calls. The log has every act on it. */
#include "rings.h"

#include <sys/mman.h>
#include <time.h>

const char *directory = ".", *device, *wait_for, *ready_file;
const char *running;                      /* the scenario's name */
char *arena;

static uint64_t next_user_data = 1001;
static int nr_rings;
static pthread_mutex_t numbers = PTHREAD_MUTEX_INITIALIZER;

void die(const char *what)
{
    fprintf(stderr, "rings: %s: %s\n", what, strerror(errno));
    _exit(99);
}

int64_t checked(int64_t result, const char *what)
{
    if (result < 0)
        die(what);
    return result;
}

int gettid_(void)
{
    return (int)syscall(SYS_gettid);
}

const char *in(const char *name)
{
    static _Thread_local char paths[8][256];
    static _Thread_local int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

/* Makes a file of so many bytes, all written to the disk, so that its blocks exist. */
int new_file(const char *name, size_t size, int flags)
{
    int fd = (int)checked(open(in(name), O_RDWR | O_CREAT | O_TRUNC, 0600), in(name));
    static char block[1 << 16];
    memset(block, 'x', sizeof block);
    for (size_t at = 0; at < size;) {
        size_t n = size - at < sizeof block ? size - at : sizeof block;
        at += (size_t)checked(pwrite(fd, block, n, (off_t)at), "pwrite");
    }
    checked(fsync(fd), "fsync");
    if (flags == (O_RDWR | O_CREAT))
        return fd;
    close(fd);
    return (int)checked(open(in(name), flags), in(name));
}

void pause_ms(int ms)
{
    struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};
    while (nanosleep(&time, &time) && errno == EINTR)
        ;
}

/* ---- rings ---- */

ring *ring_try(unsigned entries, unsigned cq_entries, unsigned flags, unsigned idle_ms)
{
    struct io_uring_params p = {.flags = flags, .sq_thread_idle = idle_ms};
    if (cq_entries) {
        p.flags |= IORING_SETUP_CQSIZE;
        p.cq_entries = cq_entries;
    }
    int fd = (int)syscall(SYS_io_uring_setup, entries, &p);
    if (fd < 0)
        return NULL;
    ring *r = calloc(1, sizeof *r);
    size_t sq = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    size_t cq = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    r->rings_size = sq > cq ? sq : cq;
    r->sqes_size = p.sq_entries * sizeof(struct io_uring_sqe) << !!(flags & IORING_SETUP_SQE128);
    char *at = mmap(NULL, r->rings_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQ_RING);
    r->sqes = mmap(NULL, r->sqes_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQES);
    if (at == MAP_FAILED || r->sqes == MAP_FAILED)
        die("mmap of a ring");
    r->rings_at = at;
    r->sq_head = (unsigned *)(at + p.sq_off.head), r->sq_tail = (unsigned *)(at + p.sq_off.tail);
    r->sq_mask = (unsigned *)(at + p.sq_off.ring_mask), r->sq_flags = (unsigned *)(at + p.sq_off.flags);
    r->sq_array = (unsigned *)(at + p.sq_off.array);
    r->cq_head = (unsigned *)(at + p.cq_off.head), r->cq_tail = (unsigned *)(at + p.cq_off.tail);
    r->cq_mask = (unsigned *)(at + p.cq_off.ring_mask);
    r->cqes = (struct io_uring_cqe *)(at + p.cq_off.cqes);
    for (unsigned i = 0; i < p.sq_entries; i++)
        r->sq_array[i] = i;
    r->fd = fd, r->flags = p.flags, r->sq_entries = p.sq_entries, r->cq_entries = p.cq_entries, r->features = p.features;
    r->tid = gettid_();
    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_lock(&numbers);
    r->instance = nr_rings++;
    pthread_mutex_unlock(&numbers);
    log_ring(r);
    return r;
}

ring *ring_new(unsigned entries, unsigned cq_entries, unsigned flags)
{
    ring *r = ring_try(entries, cq_entries, flags, 1000);
    if (!r)
        die("io_uring_setup");
    return r;
}

/* The log still uses the ring, so it is not freed. */
void ring_close(ring *r)
{
    munmap(r->sqes, r->sqes_size);
    munmap(r->rings_at, r->rings_size);
    checked(close(r->fd), "close of a ring");
}

int ring_register(const ring *r, unsigned opcode, const void *argument, unsigned n)
{
    int result = (int)syscall(SYS_io_uring_register, r->fd, opcode, argument, n);
    return result < 0 ? -errno : result;
}

/* ---- requests ---- */

void name_file(char *file, int fd)
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, file, 119);
    file[n > 0 && *file == '/' ? n : 0] = 0;
}

request *add(ring *r, int opcode, int fd, const void *address, unsigned length, uint64_t offset)
{
    unsigned tail = *r->sq_tail + r->pending;
    if (tail - __atomic_load_n(r->sq_head, __ATOMIC_ACQUIRE) >= r->sq_entries) {
        errno = EBUSY;
        die("the submission queue is full");
    }
    struct io_uring_sqe *sqe = &r->sqes[(tail & *r->sq_mask) << !!(r->flags & IORING_SETUP_SQE128)];
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = (uint8_t)opcode, sqe->fd = fd, sqe->addr = U(address), sqe->len = length, sqe->off = offset;
    r->pending++;
    request *q = log_request();
    q->sqe = sqe, q->ring = r->fd, q->instance = r->instance, q->opcode = opcode, q->fd = fd, q->offset = offset, q->length = length;
    q->sqpoll = r->flags & IORING_SETUP_SQPOLL;
    q->tid = gettid_();
    if (fd >= 0)
        name_file(q->file, fd);
    sqe->user_data = q->user_data = __atomic_fetch_add(&next_user_data, 1, __ATOMIC_RELAXED);
    return q;
}

void set_flags(request *q, unsigned sqe_flags)
{
    q->sqe_flags = sqe_flags;
    q->sqe->flags = (uint8_t)sqe_flags;
    q->fixed = sqe_flags & IOSQE_FIXED_FILE;
    if (q->fixed)
        q->file_index = q->fd, q->fd = -1, *q->file = 0;
    q->drain = sqe_flags & IOSQE_IO_DRAIN;
}

void set_user_data(request *q, uint64_t user_data)
{
    q->user_data = q->sqe->user_data = user_data;
}

request *set_place(request *q, int place)
{
    q->sqe->file_index = (unsigned)place + 1;
    q->file_index = place;
    if (q->opcode == IORING_OP_CLOSE)
        q->fd = -1, *q->file = 0;
    return q;
}

request *set_file(request *q, const char *path)
{
    snprintf(q->file, sizeof q->file, "%s", path);
    return q;
}

void set_buffer(request *q, unsigned index)
{
    q->sqe->buf_index = (uint16_t)index;
    q->buffer = (int)index;
}

void set_source(request *q, int fd, uint64_t offset)
{
    q->fd2 = q->sqe->splice_fd_in = fd;
    q->sqe->splice_off_in = offset;
    name_file(q->file2, fd);
}

request *expect(request *q, const char *paths)
{
    q->paths = paths;
    return q;
}

request *ends(request *q, const char *status)
{
    q->status = status;
    return q;
}

request *after(request *q, const request *before)
{
    q->previous = (int64_t)before->user_data;
    return q;
}

/* ---- batches ---- */

int enter(ring *r, unsigned asked, unsigned wanted, unsigned flags)
{
    long result;
    do
        result = syscall(SYS_io_uring_enter, r->fd, asked, wanted, flags, NULL, 0);
    while (result < 0 && errno == EINTR && asked == 0);
    int kept = result < 0 ? -errno : (int)result;
    log_batch("io_uring_enter", r, asked, wanted, flags, kept);
    return kept;
}

/* Makes prepared requests visible to the kernel, and enters; with wanted > 0, waits for so many completions. */
int submit(ring *r, unsigned wanted)
{
    unsigned n = r->pending, flags = wanted ? IORING_ENTER_GETEVENTS : 0;
    r->pending = 0;
    __atomic_store_n(r->sq_tail, *r->sq_tail + n, __ATOMIC_RELEASE);
    if (r->flags & IORING_SETUP_SQPOLL) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (__atomic_load_n(r->sq_flags, __ATOMIC_RELAXED) & IORING_SQ_NEED_WAKEUP)
            flags |= IORING_ENTER_SQ_WAKEUP;
        else if (!wanted)
            return (int)n;
    }
    return enter(r, n, wanted, flags);
}

static void account(const ring *r, const struct io_uring_cqe *cqe)
{
    request *q = find_request(r, cqe->user_data);
    if (!q) {
        log_message(r, cqe);
        return;
    }
    q->cqes++;
    q->last_flags = cqe->flags;
    if (cqe->flags & IORING_CQE_F_NOTIF) {
        q->notified = true;
    } else {
        q->cqe_flags = cqe->flags;
        if (q->nr_results < MAX_RESULTS)
            q->results[q->nr_results++] = cqe->res;
    }
    q->done = !(cqe->flags & IORING_CQE_F_MORE);
}

unsigned reap(ring *r)
{
    unsigned head = *r->cq_head, n = 0;
    while (head != __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE)) {
        account(r, &r->cqes[head++ & *r->cq_mask]);
        n++;
    }
    __atomic_store_n(r->cq_head, head, __ATOMIC_RELEASE);
    return n;
}

void reap_n(ring *r, unsigned n)
{
    unsigned taken = reap(r);
    while (taken < n) {
        unsigned room = n - taken < r->cq_entries ? n - taken : r->cq_entries;
        checked(enter(r, 0, room, IORING_ENTER_GETEVENTS), "io_uring_enter");
        taken += reap(r);
    }
}

int64_t one(ring *r, request *q)
{
    submit(r, 1);
    while (!q->done)
        reap_n(r, 1);
    return q->results[0];
}
