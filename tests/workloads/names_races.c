/* Names and descriptors that change during calls. The content of the file shows which one it was. */
#include "names.h"

#include <time.h>

enum { STORM = 600, RACE = 400, THREADS = 4, MAX_STATES = 100000 };

static int64_t next_to(const char *call, long number, int fd, const char *const *names, enum know know, bool opens, long a, long b, long c, long d)
{
    return note((what){.call = call, .number = number, .fd = opens ? NOTHING : fd, .dirfd = NOTHING, .opens = opens, .follows = true,
                       .unseen = true, .names = names, .know = know}, a, b, c, d, 0, 0);
}

static int storm_open(const char *name)
{
    return (int)checked(next_to("openat", SYS_openat, 0, NAMES(in(name)), MUST, true, AT_FDCWD, L(name), O_RDONLY, 0), name);
}

static int storm_read(int fd, const char *const *names, enum know know)
{
    char byte;
    int64_t result = next_to("pread64", SYS_pread64, fd, names, know, false, fd, L(&byte), 1, 0);
    return result == 1 ? byte : (int)result;
}

static void storm_close(int fd)
{
    next_to("close", SYS_close, fd, names_of(fd), MUST, false, fd, 0, 0, 0);
    remember(fd, NULL, NONE);
}

/* One number for three files in turn, as fast as possible. */
static void storm(void)
{
    static const char *const names[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++)
        make(names[i], names[i]);
    use(-1);
    for (int i = 0; i < STORM; i++) {
        int fd = storm_open(names[i * i % 3]);
        if (i % 2 == 0 && storm_read(fd, names_of(fd), MUST) != *names[i * i % 3])
            die("storm");
        storm_close(fd);
    }
}

static pthread_barrier_t start;
static atomic_int rounds, met, stop;      /* rounds: of the other thread; met: how often its act fell into a call */

/* Gives each thread a CPU of its own, if there are several; else they take turns of milliseconds. */
static cpu_set_t all;

static void pin(int index)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0, n = index % CPU_COUNT(&all); cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && n-- == 0)
            CPU_SET(cpu, &one);
    checked(sched_setaffinity(0, sizeof one, &one), "sched_setaffinity");
}

static void other_begins(void)
{
    pin(1);
    pthread_barrier_wait(&start);
}

static void make_thread(pthread_t *thread, void *(*run)(void *), void *argument, unsigned threads)
{
    pthread_barrier_init(&start, NULL, threads);
    checked(sched_getaffinity(0, sizeof all, &all), "sched_getaffinity");
    stop = 0;
    rounds = 0;
    met = 0;
    checked(-pthread_create(thread, NULL, run, argument), "thread");
}

/* Waits until the other thread has really begun, which may take long. */
static void race_begins(void)
{
    pin(0);
    pthread_barrier_wait(&start);
    while (!atomic_load(&rounds))
        sched_yield();
    use(-1);                              /* the marker before the call that follows */
}

static void race_ends(pthread_t thread)
{
    stop = 1;
    pthread_join(thread, NULL);
    checked(sched_setaffinity(0, sizeof all, &all), "sched_setaffinity");
}

/* On a busy machine, the threads may take turns. Goes on until they have met several times, but not for ever. */
static bool race_on(int i)
{
    if (i % 8 == 0)
        sched_yield();
    return i < RACE || (atomic_load(&met) < 40 && i < RACE * 8);
}

/* The file of a, b, ... that the call met; -EBADF: none. */
static void settle(int byte)
{
    if (byte > 0)
        atomic_fetch_add(&met, 1), correct(MAY, NAMES(in(text("%c", byte))));
    else
        correct(ANY, NULL);
}

static void *read_while(void *fd)
{
    other_begins();
    use(-1);
    for (int i = 0; !stop && i < RACE * 10; i++) {
        atomic_fetch_add(&rounds, 1);
        settle(storm_read((int)(long)fd, NULL, ANY));
    }
    return NULL;
}

/* One thread opens and closes; the other reads the number, and meets one of both files, or none. */
static void close_race(void)
{
    pthread_t thread;
    make("a", "a");
    make("b", "b");
    int number = open("a", O_RDONLY);
    close(number);
    make_thread(&thread, read_while, (void *)(long)number, 2);
    race_begins();
    for (int i = 0; race_on(i); i++) {
        int fd = storm_open(i % 2 ? "b" : "a");
        if (fd != number)
            die("close-race");
        if (i % 8 == 1)
            sched_yield();
        storm_close(fd);
    }
    race_ends(thread);
}

/* One thread puts one of two files over the number; the other reads it. */
static void dup_race(void)
{
    pthread_t thread;
    make("a", "a");
    make("b", "b");
    int a = open_here("a", O_RDONLY), b = open_here("b", O_RDONLY), number = 40;
    checked(dup2(a, number), "dup2");
    make_thread(&thread, read_while, (void *)(long)number, 2);
    race_begins();
    for (int i = 0; race_on(i); i++) {
        int from = i % 2 ? a : b;
        next_to("dup2", SYS_dup2, 0, names_of(from), MUST, true, from, number, 0, 0);
    }
    race_ends(thread);
    close_it(a);
    close_it(b);
    close(number);
}

static void *open_and_read(void *which)
{
    const char *name = which;
    pin(*name);
    pthread_barrier_wait(&start);
    use(-1);
    for (int i = 0; i < RACE; i++) {
        int fd = (int)checked(next_to("openat", SYS_openat, 0, NAMES(in(name)), MUST, true, AT_FDCWD, L(name), O_RDONLY, 0), name);
        if (storm_read(fd, NAMES(in(name)), MUST) != *name)
            die("open-race");
        next_to("close", SYS_close, fd, NAMES(in(name)), MUST, false, fd, 0, 0, 0);
    }
    return NULL;
}

/* Four threads, each with its own file, on numbers that wander from thread to thread. */
static void open_race(void)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    pthread_t threads[THREADS];
    pthread_barrier_init(&start, NULL, THREADS);
    checked(sched_getaffinity(0, sizeof all, &all), "sched_getaffinity");
    for (int i = 0; i < THREADS; i++)
        make(names[i], names[i]);
    for (int i = 0; i < THREADS; i++)
        checked(-pthread_create(&threads[i], NULL, open_and_read, (void *)names[i]), "thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* ---- renames during calls ---- */

static atomic_int state;                  /* renames that have ended */

/* No name comes twice: in state s, the folders are d.((s + 1) / 2) and e.(s / 2). */
static const char *leaf_of(int s)
{
    return in(text("d.%d/e.%d/f", (s + 1) / 2, s / 2));
}

static void rename_step(int s)
{
    if (s % 2 == 0)
        checked(rename(text("d.%d", s / 2), text("d.%d", s / 2 + 1)), "rename");
    else
        checked(rename(text("d.%d/e.%d", (s + 1) / 2, s / 2), text("d.%d/e.%d", (s + 1) / 2, s / 2 + 1)), "rename");
    atomic_store(&state, s + 1);
}

static void *rename_on(void *unused)
{
    (void)unused;
    other_begins();
    for (int s = 0; !stop && s < MAX_STATES; s++) {
        rename_step(s);
        atomic_fetch_add(&rounds, 1);
        for (volatile int i = 0; i < 2000; i++)
            ;
    }
    return NULL;
}

/* Any name that the file had between two moments, but no mixture of two. */
static void rename_race(void)
{
    pthread_t thread;
    make_folder("d.0");
    make_folder("d.0/e.0");
    make("d.0/e.0/f", "f");
    int dir = (int)checked(open("d.0/e.0", O_RDONLY | O_DIRECTORY), "e.0");
    state = 0;
    make_thread(&thread, rename_on, NULL, 2);
    race_begins();
    for (int i = 0; race_on(i); i++) {
        const char *names[64];
        int n = 0, before = atomic_load(&state);
        int fd = (int)checked(next_to("openat", SYS_openat, 0, NULL, ANY, true, dir, L("f"), O_RDONLY, 0), "f");
        int after = atomic_load(&state) + 1;
        for (int s = before; s <= after && n < 63; s++)
            names[n++] = leaf_of(s);
        names[n] = NULL;
        atomic_fetch_add(&met, n > 2);
        correct(n < 63 ? MAY : ANY, names);
        next_to("close", SYS_close, fd, names, n < 63 ? MAY : ANY, false, fd, 0, 0, 0);
    }
    race_ends(thread);
    close(dir);
}

static void *swap_on(void *unused)
{
    (void)unused;
    other_begins();
    while (!stop)
        checked(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE), "renameat2"), atomic_fetch_add(&rounds, 1);
    return NULL;
}

/* One of two files, by one of two names; the inode number is that of the opened one. */
static void swap_race(void)
{
    pthread_t thread;
    make("a", "a");
    make("b", "b");
    make_thread(&thread, swap_on, NULL, 2);
    race_begins();
    for (int i = 0; race_on(i); i++) {
        int fd = (int)checked(next_to("openat", SYS_openat, 0, NAMES(in("a"), in("b")), MAY, true, AT_FDCWD, L("a"), O_RDONLY, 0), "a");
        storm_read(fd, names_of(fd), MAY);
        storm_close(fd);
        atomic_store(&met, rounds);
    }
    race_ends(thread);
}

static void *unlink_on(void *unused)
{
    (void)unused;
    other_begins();
    while (!stop) {
        unlink("a");
        close(open("a", O_RDWR | O_CREAT, 0600));
        for (volatile int i = 0; i < 5000; i++)
            ;
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

static void unlink_race(void)
{
    pthread_t thread;
    make("a", "a");
    make_thread(&thread, unlink_on, NULL, 2);
    race_begins();
    for (int i = 0; race_on(i); i++) {
        int fd = (int)next_to("openat", SYS_openat, 0, NAMES(in("a"), text("%s (deleted)", in("a"))), MAY, true, AT_FDCWD, L("a"), O_RDONLY, 0);
        if (fd < 0)
            continue;
        storm_read(fd, names_of(fd), MAY);
        storm_close(fd);
        atomic_fetch_add(&met, 1);
    }
    race_ends(thread);
}

/* ---- while a call waits ---- */

static int ends[2], other;

static void wait_ms(int ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000L}, NULL);
}

static void *put_over(void *how)
{
    wait_ms(50);                          /* the other thread waits in its read, which has chosen its file long ago */
    if (how) {
        checked(dup2(other, ends[0]), "dup2");
    } else {
        close(ends[0]);
        if (open("b", O_RDONLY) != ends[0])
            die("blocked");
    }
    checked(write(ends[1], "x", 1), "write");
    return NULL;
}

static void blocked_read(void *how)
{
    pthread_t thread;
    char byte = 0;
    checked(pipe(ends), "pipe");
    other = open_here("a", O_RDONLY);
    remember(ends[0], NAMES(link_of(ends[0])), MAY);
    checked(-pthread_create(&thread, NULL, put_over, how), "thread");
    /* A tracer may say the pipe or unknown, but not the file that is there at the end. */
    if (note((what){.call = "read", .number = SYS_read, .fd = ends[0]}, ends[0], L(&byte), 1, 0, 0, 0) != 1 || byte != 'x')
        die("blocked");
    pthread_join(thread, NULL);
    remember(ends[0], NAMES(how ? in("a") : in("b")), MUST);
    read_byte(ends[0]);
    close_it(ends[0]);
    close_it(other);
    close(ends[1]);
}

static void blocked(void)
{
    make("a", "a");
    make("b", "b");
    blocked_read(NULL);
    blocked_read(blocked);
}

static void *open_other_end(void *unused)
{
    (void)unused;
    wait_ms(20);
    int a = open_here("a", O_RDONLY), b = open_here("b", O_RDONLY);
    close_it(a);
    int fifo = open_here("fifo", O_WRONLY);
    read_byte(b);
    close_it(b);
    close_it(fifo);
    return NULL;
}

/* An open that waits for the other end gets its number after others have used it. */
static void blocked_open(void)
{
    pthread_t thread;
    make("a", "a");
    make("b", "b");
    checked(mkfifo("fifo", 0600), "mkfifo");
    checked(-pthread_create(&thread, NULL, open_other_end, NULL), "thread");
    int fd = open_here("fifo", O_RDONLY);
    pthread_join(thread, NULL);
    use(fd);
    close_it(fd);
}

const scenario race_scenarios[] = {
    {"storm", storm, "one number, three files, at full speed"},
    {"close-race", close_race, "a number that another thread opens and closes all the time"},
    {"dup-race", dup_race, "a number over which another thread puts files all the time"},
    {"open-race", open_race, "four threads, each with its file, share the numbers"},
    {"rename-race", rename_race, "two folders above a file are renamed while it is opened"},
    {"swap-race", swap_race, "two files swap names while they are opened"},
    {"unlink-race", unlink_race, "a file is deleted and made while it is opened"},
    {"blocked", blocked, "the number gets another file while a read of it waits"},
    {"blocked-open", blocked_open, "others open and close while an open waits"},
    {NULL, NULL, NULL},
};
