/* Writes 1 MiB to the file argv[1] by the entry for 32 bit calls, which perf's tracepoints leave out. */
#include <fcntl.h>
#include <sys/mman.h>

enum { COMPAT_WRITE = 4, NR_WRITES = 16, SIZE = 64 << 10 }; /* number: arch/x86/entry/syscalls/syscall_32.tbl */

int main(int argc, char **argv)
{
    int fd = argc > 1 ? open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
    void *low = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (fd < 0 || low == MAP_FAILED)
        return 2;
    for (int i = 0; i < NR_WRITES; i++) {
        long result;
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(COMPAT_WRITE), "b"(fd), "c"(low), "d"(SIZE) : "memory", "r8", "r9", "r10", "r11");
        if ((int)result != SIZE)
            return 3;
    }
    return 0;
}
