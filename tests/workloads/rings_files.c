/* Requests on files that need no partner: no operation, reads and writes, registered files and buffers, metadata. */
#include "rings.h"

#include <linux/openat2.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { SIZE = 1 << 16 };

/* Batches of many sizes. One is submitted without waiting and collected later. user_data uses all of its 64 bits. */
static void nop(void)
{
    static const unsigned sizes[] = {1, 2, 8, 13, 64};
    ring *r = ring_new(64, 0, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (unsigned k = 0; k < sizes[i]; k++)
            expect(add(r, IORING_OP_NOP, -1, NULL, 0, 0), "inline");
        submit(r, sizes[i]);
        reap_n(r, sizes[i]);
    }
    static const uint64_t wide[] = {0, 1, 1ull << 31, 1ull << 32, 1ull << 53, (1ull << 53) + 1, 1ull << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        set_user_data(expect(add(r, IORING_OP_NOP, -1, NULL, 0, 0), "inline"), wide[i]);
    submit(r, 0);
    reap(r);
    enter(r, 0, 0, 0);                    /* nothing to do */
    enter(r, 0, 0, IORING_ENTER_GETEVENTS);
    for (int i = 0; i < 3; i++)
        expect(add(r, IORING_OP_NOP, -1, NULL, 0, 0), "inline");
    r->pending = 0;                       /* three are visible; two are asked for, then one */
    __atomic_store_n(r->sq_tail, *r->sq_tail + 3, __ATOMIC_RELEASE);
    enter(r, 2, 0, 0);
    enter(r, 5, 1, IORING_ENTER_GETEVENTS);
    reap(r);
    ring_close(r);
}

extern unsigned long count;

/* --count N of them, as fast as possible, and one line for all. */
static void flood(void)
{
    static struct io_uring_sqe *sqe;
    ring *r = ring_new(64, 0, 0);
    int fd = new_file("flood", SIZE, O_RDWR | O_CREAT);
    for (unsigned long left = count; left;) {
        unsigned n = left < 32 ? (unsigned)left : 32, head;
        for (unsigned i = 0; i < n; i++) {
            sqe = &r->sqes[(*r->sq_tail + i) & *r->sq_mask];
            *sqe = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = fd, .addr = U(arena), .len = 512,
                                         .off = (left - i) % 128 * 512, .user_data = left - i};
        }
        __atomic_store_n(r->sq_tail, *r->sq_tail + n, __ATOMIC_RELEASE);
        if (syscall(SYS_io_uring_enter, r->fd, n, n, IORING_ENTER_GETEVENTS, NULL, 0) != n)
            die("io_uring_enter");
        for (head = *r->cq_head; head != __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE); head++)
            if (r->cqes[head & *r->cq_mask].res != 512)
                die("a short read");
        __atomic_store_n(r->cq_head, head, __ATOMIC_RELEASE);
        left -= n;
    }
    ring_close(r);
}

/* Many requests that look alike. They complete in the order of submission, each with its own result. */
static void equal(void)
{
    ring *r = ring_new(32, 0, 0);
    int fd = new_file("equal", SIZE, O_RDWR | O_CREAT);
    for (int batch = 0; batch < 2; batch++) {
        for (unsigned i = 0; i < 16; i++) {
            request *q = i % 2 ? add(r, IORING_OP_READ, fd, arena, 100 + i, i) : add(r, IORING_OP_NOP, -1, NULL, 0, 0);
            set_user_data(expect(q, "inline"), 7);
        }
        submit(r, 16);
        reap_n(r, 16);
    }
    ring_close(r);
}

static void vectors(ring *r, int fd, int opcode, const char *paths)
{
    static struct iovec parts[3];
    parts[0] = (struct iovec){arena, 1000}, parts[1] = (struct iovec){arena, 0}, parts[2] = (struct iovec){arena, 24};
    one(r, expect(add(r, opcode, fd, parts, 3, 4096), paths));
}

/* Buffered, from pages in memory. If buffered writes may block (ext4), a worker does them. */
static void cached(void)
{
    ring *r = ring_new(16, 0, 0);
    int fd = new_file("cached", SIZE, O_RDWR | O_CREAT);
    for (unsigned i = 0; i < 7; i++)
        one(r, expect(add(r, IORING_OP_READ, fd, arena, 512 * (i + 1), i * 4096), "inline"));
    one(r, expect(add(r, IORING_OP_READ, fd, arena, 4096, SIZE - 100), "inline|worker|device"));   /* short: 100 */
    one(r, expect(add(r, IORING_OP_READ, fd, arena, 4096, 2 * SIZE), "inline|worker|device"));     /* beyond the end: 0 */
    one(r, expect(add(r, IORING_OP_READ, fd, arena, 60, UINT64_MAX), "inline"));   /* at the position */
    one(r, expect(add(r, IORING_OP_READ, fd, arena, 40, UINT64_MAX), "inline"));
    vectors(r, fd, IORING_OP_READV, "inline");
    for (unsigned i = 0; i < 5; i++)
        one(r, expect(add(r, IORING_OP_WRITE, fd, arena, 100 + i, i * 4096), "inline|worker"));
    vectors(r, fd, IORING_OP_WRITEV, "inline|worker");
    for (unsigned i = 0; i < 8; i++)      /* and eight reads at once */
        expect(add(r, IORING_OP_READ, fd, arena + 4096 * i, 4096, 4096 * i), "inline");
    submit(r, 8);
    reap_n(r, 8);
    close(fd);
    fd = open(in("cached"), O_RDONLY);
    one(r, expect(add(r, IORING_OP_WRITE, fd, arena, 10, 0), "inline"));   /* EBADF: read only */
    one(r, expect(add(r, IORING_OP_READ, fd, (void *)8, 10, 0), "inline|worker"));   /* EFAULT */
    close(fd);
    ring_close(r);
}

/* Buffered, from dropped pages: by the disk, a worker or, if others brought them back, the page cache. */
static void uncached(void)
{
    ring *r = ring_new(16, 0, 0);
    int fd = new_file("uncached", 64 * SIZE, O_RDWR | O_CREAT);
    checked(-posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), "posix_fadvise");
    for (unsigned i = 0; i < 4; i++)
        expect(add(r, IORING_OP_READ, fd, arena + i * 4096, 4096, i * 16 * SIZE), "device|inline|worker");
    submit(r, 4);
    reap_n(r, 4);
    close(fd);
    ring_close(r);
}

static void fixed_buffers(void)
{
    ring *r = ring_new(16, 0, 0);
    int fd = new_file("buffers", SIZE, O_RDWR | O_CREAT);
    struct iovec buffers[2] = {{arena, 1 << 15}, {arena + (1 << 15), 1 << 15}};
    checked(ring_register(r, IORING_REGISTER_BUFFERS, buffers, 2), "registering buffers");
    for (unsigned i = 0; i < 6; i++) {
        int write = i % 3 == 2;
        request *q = add(r, write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED, fd, buffers[i % 2].iov_base, 300 + i,
                         i * 4096);
        set_buffer(q, i % 2);
        one(r, expect(q, write ? "inline|worker" : "inline"));
    }
    request *q = add(r, IORING_OP_READ_FIXED, fd, arena, 512, 0);
    set_buffer(q, 9);                     /* EFAULT: there is none */
    one(r, q);
    checked(ring_register(r, IORING_UNREGISTER_BUFFERS, NULL, 0), "unregistering buffers");
    close(fd);
    ring_close(r);
}

static void fixed_files(void)
{
    ring *r = ring_new(16, 0, 0);
    int files[4] = {new_file("first", SIZE, O_RDWR | O_CREAT), -1, new_file("third", SIZE, O_RDWR | O_CREAT), -1};
    checked(ring_register(r, IORING_REGISTER_FILES, files, 4), "registering files");
    for (unsigned i = 0; i < 6; i++) {
        request *q = add(r, IORING_OP_READ, i % 2 ? 2 : 0, arena, 200 + i, i * 512);
        set_flags(q, IOSQE_FIXED_FILE);
        set_file(q, in(i % 2 ? "third" : "first"));
        one(r, expect(q, "inline"));
    }
    request *q = add(r, IORING_OP_WRITE, 2, arena, 77, 0);
    set_flags(q, IOSQE_FIXED_FILE);
    set_file(q, in("third"));
    one(r, expect(q, "inline|worker"));
    q = add(r, IORING_OP_FSYNC, 0, NULL, 0, 0);
    set_flags(q, IOSQE_FIXED_FILE);
    set_file(q, in("first"));
    one(r, expect(q, "worker"));
    q = add(r, IORING_OP_READ, 1, arena, 5, 0);
    set_flags(q, IOSQE_FIXED_FILE);       /* EBADF: an empty place */
    one(r, expect(q, "inline"));
    q = add(r, IORING_OP_READ, 40, arena, 5, 0);
    set_flags(q, IOSQE_FIXED_FILE);       /* EBADF: beyond the table */
    one(r, expect(q, "inline"));
    int taken = new_file("second", SIZE, O_RDWR | O_CREAT);
    struct io_uring_files_update update = {.offset = 1, .fds = U(&taken)};
    checked(ring_register(r, IORING_REGISTER_FILES_UPDATE, &update, 1), "updating files");
    q = add(r, IORING_OP_READ, 1, arena, 5, 0);
    set_flags(q, IOSQE_FIXED_FILE);
    set_file(q, in("second"));
    one(r, expect(q, "inline"));
    checked(ring_register(r, IORING_UNREGISTER_FILES, NULL, 0), "unregistering files");
    for (int i = 0; i < 4; i += 2)
        close(files[i]);
    close(taken);
    ring_close(r);
}

static request *read_place(ring *r, int place, unsigned length, const char *path, unsigned flags)
{
    request *q = add(r, IORING_OP_READ, place, arena, length, 512);
    set_flags(q, IOSQE_FIXED_FILE | flags);
    return set_file(q, path);
}

static request *open_place(ring *r, const char *path)
{
    request *q = add(r, IORING_OP_OPENAT, AT_FDCWD, path, 0, 0);
    q->sqe->open_flags = O_RDWR;
    return q;
}

/* Files without a descriptor: opened into the table of registered ones, used there, closed there. */
static void places(void)
{
    ring *r = ring_new(16, 0, 0);
    int none[5] = {-1, -1, -1, -1, -1}, kept = new_file("kept", SIZE, O_RDWR | O_CREAT);
    char path[120], other[120];
    close(new_file("placed", SIZE, O_RDWR | O_CREAT)), close(new_file("other", SIZE, O_RDWR | O_CREAT));
    snprintf(path, sizeof path, "%s", in("placed")), snprintf(other, sizeof other, "%s", in("other"));
    checked(ring_register(r, IORING_REGISTER_FILES, none, 5), "registering places");
    checked(one(r, expect(set_place(open_place(r, path), 1), "inline|worker")), "OPENAT");
    one(r, expect(read_place(r, 1, 33, path, 0), "inline"));
    request *q = set_place(add(r, IORING_OP_CLOSE, 0, NULL, 0, 0), 1);
    one(r, expect(set_file(q, path), "inline|worker"));
    q = open_place(r, other);             /* the kernel chooses the place */
    q->sqe->file_index = IORING_FILE_INDEX_ALLOC;
    q->file_index = (int)checked(one(r, expect(q, "inline|worker")), "OPENAT");
    one(r, expect(read_place(r, q->file_index, 34, other, 0), "inline"));
    q = set_place(open_place(r, path), 3); /* opened, read and closed in one chain */
    set_flags(q, IOSQE_IO_LINK);
    request *second = after(read_place(r, 3, 35, path, IOSQE_IO_LINK), q);
    after(set_place(add(r, IORING_OP_CLOSE, 0, NULL, 0, 0), 3), second);
    submit(r, 3);
    reap_n(r, 3);
    int again = (int)checked(open(other, O_RDONLY), other);
    one(r, expect(add(r, IORING_OP_CLOSE, again, NULL, 0, 0), "inline|worker"));
    one(r, expect(add(r, IORING_OP_READ, kept, arena, 36, 0), "inline"));   /* descriptors have not changed */
    close(kept);
    ring_close(r);
}

/* Past the page cache: queued to the disk, completed by its interrupt. */
static void direct(void)
{
    ring *r = ring_new(32, 0, 0);
    int fd = device ? (int)checked(open(device, O_RDWR | O_DIRECT), device) : new_file("direct", 4 * SIZE, O_RDWR | O_DIRECT);
    for (unsigned i = 0; i < 5; i++)
        one(r, expect(add(r, IORING_OP_READ, fd, arena, PAGE, i * PAGE), "device"));
    for (unsigned i = 0; i < 3; i++)
        one(r, expect(add(r, IORING_OP_WRITE, fd, arena, PAGE, i * PAGE), "device|worker"));
    for (unsigned i = 0; i < 16; i++)
        /* no neighbours that could be merged */
        expect(add(r, IORING_OP_READ, fd, arena + i * PAGE, PAGE, i * 3 * PAGE), "device");
    submit(r, 16);
    reap_n(r, 16);
    one(r, expect(add(r, IORING_OP_READ, fd, arena + 1, 100, 1), "inline"));   /* EINVAL: not aligned */
    close(fd);
    ring_close(r);
}

/* Each in its own batch. Opcodes that the kernel always gives to a worker are marked so. */
static void metadata(void)
{
    ring *r = ring_new(8, 0, 0);
    int fd = new_file("metadata", SIZE, O_RDWR | O_CREAT);
    struct statx status;
    static struct open_how how;
    one(r, expect(add(r, IORING_OP_FSYNC, fd, NULL, 0, 0), "worker"));
    request *q = add(r, IORING_OP_FSYNC, fd, NULL, 0, 0);
    q->sqe->fsync_flags = IORING_FSYNC_DATASYNC;
    one(r, expect(q, "worker"));
    one(r, expect(add(r, IORING_OP_FALLOCATE, fd, (void *)(long)(2 * SIZE), 0, 0), "worker"));
    one(r, expect(add(r, IORING_OP_SYNC_FILE_RANGE, fd, NULL, SIZE, 0), "worker"));
    q = add(r, IORING_OP_STATX, AT_FDCWD, in("metadata"), STATX_SIZE, U(&status));
    one(r, expect(q, "worker"));
    q = add(r, IORING_OP_OPENAT, AT_FDCWD, in("metadata"), 0, 0);
    q->sqe->open_flags = O_RDONLY;
    int opened = (int)checked(one(r, expect(q, "inline|worker")), "OPENAT");
    one(r, expect(add(r, IORING_OP_READ, opened, arena, 31, 0), "inline"));
    one(r, expect(add(r, IORING_OP_CLOSE, opened, NULL, 0, 0), "inline|worker"));
    one(r, expect(add(r, IORING_OP_READ, opened, arena, 31, 0), "inline"));   /* EBADF */
    how = (struct open_how){.flags = O_RDWR | O_CREAT, .mode = 0600};
    q = add(r, IORING_OP_OPENAT2, AT_FDCWD, in("made"), sizeof how, U(&how));
    opened = (int)checked(one(r, expect(q, "worker")), "OPENAT2");
    one(r, expect(add(r, IORING_OP_WRITE, opened, arena, 17, 0), "inline|worker"));
    one(r, expect(add(r, IORING_OP_CLOSE, opened, NULL, 0, 0), "inline|worker"));
    q = add(r, IORING_OP_OPENAT, AT_FDCWD, in("absent"), 0, 0);
    one(r, expect(q, "inline|worker"));   /* ENOENT */
    one(r, expect(add(r, IORING_OP_MKDIRAT, AT_FDCWD, in("folder"), 0700, 0), "worker"));
    q = add(r, IORING_OP_RENAMEAT, AT_FDCWD, in("made"), (unsigned)AT_FDCWD, U(in("folder/moved")));
    one(r, expect(q, "worker"));
    one(r, expect(add(r, IORING_OP_UNLINKAT, AT_FDCWD, in("folder/moved"), 0, 0), "worker"));
    q = add(r, IORING_OP_UNLINKAT, AT_FDCWD, in("folder"), 0, 0);
    q->sqe->unlink_flags = AT_REMOVEDIR;
    one(r, expect(q, "worker"));
    one(r, expect(add(r, IORING_OP_UNLINKAT, AT_FDCWD, in("absent"), 0, 0), "worker"));   /* ENOENT */
    one(r, expect(add(r, IORING_OP_CLOSE, 900, NULL, 0, 0), "inline"));                   /* EBADF */
    close(fd);
    ring_close(r);
}

/* Two parts each, to and from a socket; a received message is shorter than there is room for. */
static void messages(void)
{
    static struct iovec parts[2];
    static struct msghdr out, into;
    ring *r = ring_new(8, 0, 0);
    int pair[2];
    checked(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), "socketpair");
    parts[0] = (struct iovec){arena, 1000}, parts[1] = (struct iovec){arena + 4096, 24};
    out.msg_iov = into.msg_iov = parts;
    out.msg_iovlen = into.msg_iovlen = 2;
    one(r, expect(add(r, IORING_OP_SENDMSG, pair[0], &out, 1, 0), "inline|worker"));
    one(r, expect(add(r, IORING_OP_RECVMSG, pair[1], &into, 1, 0), "inline|worker"));
    checked(send(pair[0], arena, 10, 0), "send");
    one(r, expect(add(r, IORING_OP_RECVMSG, pair[1], &into, 1, 0), "inline|worker"));
    for (int i = 0; i < 2; i++)
        close(pair[i]);
    ring_close(r);
}

/* fd is the target; another field has the source. */
static void splice_(void)
{
    ring *r = ring_new(8, 0, 0);
    int fd = new_file("splice", SIZE, O_RDWR | O_CREAT), first[2], second[2];
    if (pipe(first) || pipe(second))
        die("pipe");
    request *q = add(r, IORING_OP_SPLICE, first[1], NULL, 1000, UINT64_MAX);
    set_source(q, fd, 100);
    one(r, expect(q, "worker"));
    q = add(r, IORING_OP_TEE, second[1], NULL, 600, 0);
    set_source(q, first[0], 0);
    one(r, expect(q, "worker"));
    q = add(r, IORING_OP_SPLICE, fd, NULL, 600, 4096);
    set_source(q, second[0], UINT64_MAX);
    one(r, expect(q, "worker"));
    for (int i = 0; i < 2; i++)
        close(first[i]), close(second[i]);
    close(fd);
    ring_close(r);
}

const scenario file_scenarios[] = {
    {"nop", nop, "batches of many sizes, user_data of all widths"},
    {"flood", flood, "--count N cached reads at full speed; prints no requests"},
    {"equal", equal, "many requests with the same user_data"},
    {"cached", cached, "buffered reads and writes of cached pages"},
    {"uncached", uncached, "buffered reads of pages that are not in memory"},
    {"fixed-buffers", fixed_buffers, "READ_FIXED and WRITE_FIXED"},
    {"fixed-files", fixed_files, "registered files"},
    {"places", places, "files opened, read and closed as registered ones"},
    {"direct", direct, "O_DIRECT, of --device or of a file"},
    {"metadata", metadata, "fsync, open, close, rename and others"},
    {"messages", messages, "SENDMSG and RECVMSG, each of two parts"},
    {"splice", splice_, "SPLICE and TEE"},
    {NULL, NULL, NULL},
};
