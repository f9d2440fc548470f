/*
 * A 32 bit program without a C library. The arguments of its calls differ from those of 64 bit programs, and
 * tests/kernel/test_compat.py knows their order.
 * usage: compat FILE DEVICE (16 MiB at least); makes FILE
 */
typedef unsigned int u32;
typedef unsigned long long u64;

int call(int number, ...); /* with six arguments at most */
__asm__("call:\n"
        "push %ebp\n push %ebx\n push %esi\n push %edi\n"
        "mov 20(%esp), %eax\n mov 24(%esp), %ebx\n mov 28(%esp), %ecx\n mov 32(%esp), %edx\n"
        "mov 36(%esp), %esi\n mov 40(%esp), %edi\n mov 44(%esp), %ebp\n"
        "int $0x80\n"
        "pop %edi\n pop %esi\n pop %ebx\n pop %ebp\n ret\n"
        ".globl _start\n_start:\n mov %esp, %eax\n and $-16, %esp\n sub $12, %esp\n push %eax\n call begin\n");

enum { /* arch/x86/entry/syscalls/syscall_32.tbl */
    EXIT = 1, FORK = 2, WRITE = 4, OPEN = 5, CLOSE = 6, WAITPID = 7, LSEEK = 19, DUP2 = 63, MMAP = 90, SOCKETCALL = 102,
    FSYNC = 118, LLSEEK = 140, READV = 145, WRITEV = 146, PREAD64 = 180, PWRITE64 = 181, MMAP2 = 192, FTRUNCATE64 = 194,
    STAT64 = 195, FCNTL64 = 221, READAHEAD = 225, IO_SETUP = 245, IO_DESTROY = 246, IO_GETEVENTS = 247, IO_SUBMIT = 248,
    FADVISE64_64 = 272, SYNC_FILE_RANGE = 314, FALLOCATE = 324, PWRITEV = 334, PREADV2 = 378, IO_URING_SETUP = 425,
    IO_URING_ENTER = 426, OPENAT2 = 437
};
enum { O_RDWR = 2, O_CREAT = 0100, O_LARGEFILE = 0100000, O_DIRECT = 040000, AT_FDCWD = -100 };
enum { SOCKETPAIR = 8, SEND = 9, RECV = 10 };
enum { GIB4 = 1 }; /* the high half of 4 GiB */

static char page[4096] __attribute__((aligned(4096)));
static struct { u32 base, length; } vectors[2] = {{0, 7}, {0, 5}};
static struct { u64 flags, mode, resolve; } how = {O_RDWR | O_LARGEFILE, 0, 0};

static void large_offsets(const char *path)
{
    u64 position;
    int fd = call(OPEN, path, O_RDWR | O_CREAT | O_LARGEFILE, 0644);

    if (fd < 0)
        call(EXIT, 2);
    call(WRITE, fd, page, 100);
    call(PWRITE64, fd, page, 200, 4096, GIB4);
    call(PREAD64, fd, page, 300, 4096 - 50, GIB4);
    call(WRITEV, fd, vectors, 2);
    call(PWRITEV, fd, vectors, 2, 8192, GIB4);
    call(LLSEEK, fd, GIB4, 5, &position, 0);
    call(WRITE, fd, page, 10);
    call(PREADV2, fd, vectors, 2, -1, -1, 0);
    call(LSEEK, fd, 50, 0);
    call(LSEEK, fd, -20, 1);
    call(READV, fd, vectors, 1);
    call(FALLOCATE, fd, 1, 12288, GIB4, 4096, 0);
    call(FADVISE64_64, fd, 4096, GIB4, 8192, 0, 2);
    call(READAHEAD, fd, 4096, GIB4, 4096);
    call(SYNC_FILE_RANGE, fd, 4096, GIB4, 16384, 0, 2);
    call(FTRUNCATE64, fd, 77, GIB4);
    call(FSYNC, fd);
    call(CLOSE, fd);
}

static void other_arguments(const char *path)
{
    u32 old_mmap[6] = {0, 4096, 1, 1, 0, 8192}, lock[6] = {0, 0, 0, 0, 0, 0}; /* read-only, shared */
    u32 pair[2], make[4] = {1, 1, 0, (u32)pair}, move[4] = {0, (u32)page, 33, 0}; /* AF_UNIX, SOCK_STREAM */
    int fd = call(OPENAT2, AT_FDCWD, path, &how, sizeof how);
    char attributes[96];

    call(MMAP2, 0, 4096, 1, 1, fd, 0x100000); /* 4 GiB in pages */
    old_mmap[4] = fd;
    call(MMAP, old_mmap);
    call(FCNTL64, fd, 13, lock); /* F_SETLK64: F_RDLCK of all */
    call(DUP2, fd, 30);
    call(STAT64, path, attributes);
    call(SOCKETCALL, SOCKETPAIR, make);
    move[0] = pair[0];
    call(SOCKETCALL, SEND, move);
    move[0] = pair[1];
    move[2] = sizeof page;
    call(SOCKETCALL, RECV, move);
    if (call(FORK) == 0) {
        call(WRITE, 30, page, 44);
        call(EXIT, 0);
    }
    call(WAITPID, -1, 0, 0);
}

static void asynchronous(int fd)
{
    static struct { u64 data; u32 key, flags; unsigned short opcode; short priority; u32 fd; u64 buffer, length, offset, rest[2]; } iocb;
    static u64 events[4], parameters[15];
    static struct { unsigned char opcode, flags; short priority; int fd; u64 offset, address; u32 length, flags2; u64 data, rest[3]; } *sqe;
    u32 context = 0, list[1] = {(u32)&iocb}, *offsets = (u32 *)parameters + 10; /* sq_off */
    char *ring;
    int uring;

    iocb.opcode = 1; /* IOCB_CMD_PWRITE */
    iocb.fd = fd;
    iocb.buffer = (u32)page;
    iocb.length = sizeof page;
    iocb.offset = 8192;
    call(IO_SETUP, 3, &context);
    call(IO_SUBMIT, context, 1, list);
    call(IO_GETEVENTS, context, 1, 1, events, 0);
    call(IO_DESTROY, context);
    uring = call(IO_URING_SETUP, 4, parameters);
    ring = (char *)call(MMAP2, 0, 4096, 3, 0x8001, uring, 0); /* SHARED and POPULATE: the queues */
    sqe = (void *)call(MMAP2, 0, 4096, 3, 0x8001, uring, 0x10000); /* IORING_OFF_SQES */
    sqe->opcode = 23; /* IORING_OP_WRITE */
    sqe->fd = fd;
    sqe->offset = 12288;
    sqe->address = (u32)page;
    sqe->length = sizeof page;
    *(u32 *)(ring + offsets[6]) = 0; /* array */
    *(volatile u32 *)(ring + offsets[1]) = 1; /* tail */
    call(IO_URING_ENTER, uring, 1, 1, 1, 0, 0); /* IORING_ENTER_GETEVENTS */
}

__attribute__((used)) void begin(const u32 *stack)
{
    int device;

    vectors[0].base = vectors[1].base = (u32)page;
    large_offsets((const char *)stack[2]);
    other_arguments((const char *)stack[2]);
    device = call(OPEN, stack[3], O_RDWR | O_DIRECT | O_LARGEFILE);
    if (device < 0)
        call(EXIT, 2);
    call(PWRITE64, device, page, sizeof page, 4096, 0);
    asynchronous(device);
    call(EXIT, 0);
}
