/*
 * Sends known requests to a block device, and prints them: the ground truth of test_record_block.py.
 *
 * usage: direct DEVICE     (a block device of at least 8 MiB whose content does not matter)
 *
 * Each request is sent after the one before has ended, so none can be merged. JSON lines on standard output:
 *   operation (read, write, flush, discard, write zeroes), sector, bytes (0 for a flush)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void die(const char *what)
{
    fprintf(stderr, "direct: %s: %s\n", what, strerror(errno));
    exit(1);
}

static char lines[1 << 16];
static size_t length;

static void say(const char *operation, int64_t offset, int64_t bytes)
{
    length += (size_t)snprintf(lines + length, sizeof lines - length,
                               "{\"operation\": \"%s\", \"sector\": %lld, \"bytes\": %lld}\n", operation,
                               (long long)offset / 512, (long long)bytes);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    int fd = open(argv[1], O_RDWR | O_DIRECT | O_EXCL);
    char *buffer = aligned_alloc(4096, 1 << 20);
    if (fd < 0 || !buffer)
        die(argv[1]);
    memset(buffer, 'x', 1 << 20);
    for (int i = 0; i < 23; i++) {                    /* growing sizes, not in order */
        int64_t offset = (int64_t)(i * 7 % 23) * (128 << 10), bytes = (1 + i % 16) * 4096;
        if (pwrite(fd, buffer, (size_t)bytes, offset) != bytes)
            die("pwrite");
        say("write", offset, bytes);
        if (i % 5 == 4) {
            if (fsync(fd))
                die("fsync");
            say("flush", 0, 0);
        }
    }
    for (int i = 0; i < 11; i++) {
        int64_t offset = (int64_t)i * (64 << 10);
        if (pread(fd, buffer, 8192, offset) != 8192)
            die("pread");
        say("read", offset, 8192);
    }
    for (int i = 0; i < 5; i++)                       /* the same sectors again and again */
        if (pwrite(fd, buffer, 4096, 4 << 20) != 4096)
            die("pwrite");
        else
            say("write", 4 << 20, 4096);
    uint64_t range[2] = {5 << 20, 256 << 10};
    if (ioctl(fd, BLKDISCARD, range))
        die("BLKDISCARD");
    say("discard", (int64_t)range[0], (int64_t)range[1]);
    range[0] = 6 << 20, range[1] = 64 << 10;
    if (ioctl(fd, BLKZEROOUT, range))
        die("BLKZEROOUT");
    say("write zeroes", (int64_t)range[0], (int64_t)range[1]);
    close(fd);
    fputs(lines, stdout);
    return 0;
}
