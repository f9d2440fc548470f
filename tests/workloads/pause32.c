/* A program of 32 bits without a C library: writes a byte each 10 ms until it is killed. */
static long call(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}

void _start(void);
void _start(void)
{
    enum { WRITE = 4, NANOSLEEP = 162 };
    static const struct { long seconds, nanoseconds; } rest = { 0, 10000000 };
    for (;;) {
        call(WRITE, 1, (long)".", 1);
        call(NANOSLEEP, (long)&rest, 0, 0);
    }
}
