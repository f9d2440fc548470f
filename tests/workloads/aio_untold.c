/*
 * Submits requests of libaio that lo2io's programs cannot read: those beyond the first 4,096 of a call, and one whose
 * iocb is not in memory. The kernel takes them all. Prints how many it took. argv: a file of a page or more.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MANY = 5000, PAGE = 4096 };

static struct iocb blocks[MANY], *list[MANY];
static struct io_event events[MANY];
static char byte;

static long checked(long result)
{
    if (result < 0) {
        perror("aio_untold");
        exit(1);
    }
    return result;
}

static void submit_and_collect(aio_context_t context, long n)
{
    long taken = checked(syscall(SYS_io_submit, context, n, list));
    for (long left = taken; left;)
        left -= checked(syscall(SYS_io_getevents, context, 1, left, events, NULL));
    printf("%ld\n", taken);
}

int main(int argc, char **argv)
{
    aio_context_t context = 0;
    int fd = argc == 2 ? open(argv[1], O_RDWR) : -1;
    checked(fd);
    checked(syscall(SYS_io_setup, 2 * MANY, &context));
    for (int i = 0; i < MANY; i++) {
        blocks[i] = (struct iocb){.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = (__u32)fd, .aio_buf = (__u64)(size_t)&byte,
                                  .aio_nbytes = 1, .aio_data = (__u64)i};
        list[i] = &blocks[i];
    }
    submit_and_collect(context, MANY);
    checked(pwrite(fd, blocks, sizeof *blocks, 0));
    void *mapped = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    list[1] = mapped == MAP_FAILED ? NULL : mapped; /* nobody has touched this page */
    submit_and_collect(context, 2);
    return 0;
}
