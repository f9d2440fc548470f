/* Requests that worker threads execute. */
#include "rings.h"

#include <dirent.h>
#include <sched.h>
#include <sys/stat.h>
#include <time.h>

enum { SIZE = 1 << 16 };

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* The worker of this process that is amid a call of the kernel that opens a FIFO: /proc/PID/task/TID/wchan. 0: none is. */
static pid_t sleeping_worker(void)
{
    DIR *tasks = opendir("/proc/self/task");
    pid_t found = 0;
    for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
        char path[300], text[64] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/wchan", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(text, sizeof text, file) && (strstr(text, "fifo") || strstr(text, "wait_for_partner")))
            found = atoi(entry->d_name);
        if (file)
            fclose(file);
    }
    closedir(tasks);
    return found;
}

/* Gives a worker that sleeps, and returns a time at which it did. */
static int64_t until_a_worker_sleeps(pid_t *worker)
{
    while (!(*worker = sleeping_worker()))
        pause_ms(1);
    return nanoseconds();
}

/* True if the thread and this one share a CPU from now on: until Linux 6.2, programs may not place workers. */
static bool share_a_cpu(pid_t thread)
{
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    checked(sched_setaffinity(0, sizeof here, &here), "sched_setaffinity");
    return !sched_setaffinity(thread, sizeof here, &here);
}

/* From now on no other thread gets this CPU before this one sleeps, or the other way round. */
static void go_first(bool on)
{
    struct sched_param how = {.sched_priority = on};
    checked(sched_setscheduler(0, on ? SCHED_FIFO : SCHED_OTHER, &how), "sched_setscheduler");
}

/* Keeps the CPU for so long, and returns how long at least. */
static int64_t spin_ms(int ms)
{
    int64_t begin = nanoseconds(), now = begin;
    while (now < begin + ms * 1000000ll)
        now = nanoseconds();
    return now - begin;
}

/* Requests that the program itself sends to a worker. */
static void async(void)
{
    ring *r = ring_new(32, 0, 0);
    int fd = new_file("async", SIZE, O_RDWR | O_CREAT);
    request *q;
    for (unsigned i = 0; i < 4; i++) {
        q = add(r, IORING_OP_READ, fd, arena, 100 + i, 0);
        set_flags(q, IOSQE_ASYNC);
        one(r, expect(q, "worker"));
    }
    q = add(r, IORING_OP_NOP, -1, NULL, 0, 0);
    set_flags(q, IOSQE_ASYNC);
    one(r, expect(q, "worker"));
    for (unsigned i = 0; i < 8; i++) {
        q = add(r, IORING_OP_READ, fd, arena + i * 4096, 4096, i * 4096);
        set_flags(q, IOSQE_ASYNC);
        expect(q, "worker");
    }
    submit(r, 8);
    reap_n(r, 8);
    close(fd);
    ring_close(r);
}

/*
 * Buffered writes. If they may block (ext4), they go to workers, hashed by file: one after another. Those that the program
 * itself sends are not hashed, for the kernel has not looked up their file yet.
 */
static void hashed(void)
{
    ring *r = ring_new(32, 0, 0);
    int fds[2] = {new_file("hashed", SIZE, O_RDWR | O_CREAT), new_file("hashed2", SIZE, O_RDWR | O_CREAT)};
    for (unsigned files = 1; files <= 2; files++) {
        for (unsigned i = 0; i < 8; i++)
            expect(add(r, IORING_OP_WRITE, fds[i % files], arena + i * 4096, 4096, i * 4096), "inline|worker");
        submit(r, 8);
        reap_n(r, 8);
    }
    for (unsigned i = 0; i < 8; i++) {
        request *q = add(r, IORING_OP_WRITE, fds[0], arena + i * 4096, 4096, i * 4096);
        set_flags(q, IOSQE_ASYNC);
        expect(q, "worker");
    }
    submit(r, 8);
    reap_n(r, 8);
    close(fds[0]), close(fds[1]);
    ring_close(r);
}

/* The first one goes to a worker, which continues with the rest of its chain. */
static void worker_links(void)
{
    ring *r = ring_new(8, 0, 0);
    int fd = new_file("worker-links", SIZE, O_RDWR | O_CREAT);
    request *q[4];
    q[0] = add(r, IORING_OP_WRITE, fd, arena, 1000, 0);
    set_flags(q[0], IOSQE_IO_LINK | IOSQE_ASYNC);
    q[1] = add(r, IORING_OP_FSYNC, fd, NULL, 0, 0);
    set_flags(q[1], IOSQE_IO_LINK);
    q[2] = add(r, IORING_OP_READ, fd, arena, 500, 0);
    set_flags(q[2], IOSQE_IO_LINK);
    q[3] = add(r, IORING_OP_NOP, -1, NULL, 0, 0);
    for (int i = 0; i < 4; i++) {
        expect(q[i], "worker");
        if (i)
            after(q[i], q[i - 1]);
    }
    submit(r, 4);
    reap_n(r, 4);
    q[0] = add(r, IORING_OP_READ, 900, arena, 1000, 0);   /* EBADF, on a worker; the rest is cancelled */
    set_flags(q[0], IOSQE_IO_LINK | IOSQE_ASYNC);
    q[1] = after(expect(add(r, IORING_OP_FSYNC, fd, NULL, 0, 0), "cancelled"), q[0]);
    q[1]->culprit = (int64_t)q[0]->user_data;
    expect(q[0], "inline|worker");
    submit(r, 2);
    reap_n(r, 2);
    close(fd);
    ring_close(r);
}

/* Each blocks a worker: reads of pipes, which are unbounded work. All are woken at the end. */
static void blocked(void)
{
    enum { N = 3 };
    ring *r = ring_new(8, 0, 0);
    int ends_[N][2];
    for (int i = 0; i < N; i++) {
        checked(pipe(ends_[i]), "pipe");
        request *q = add(r, IORING_OP_READ, ends_[i][0], arena + i * 4096, 64, UINT64_MAX);
        set_flags(q, IOSQE_ASYNC);
        expect(q, "worker");
    }
    submit(r, 0);
    pause_ms(30);
    for (int i = 0; i < N; i++) {
        checked(write(ends_[i][1], arena, (size_t)(i + 1)), "write");
        reap_n(r, 1);
    }
    request *q = add(r, IORING_OP_READ, ends_[0][0], arena, 64, UINT64_MAX);
    set_flags(q, IOSQE_ASYNC);
    expect(q, "worker|cancelled");        /* the latter if no worker had time to look at it */
    submit(r, 0);
    pause_ms(30);
    request *c = expect(add(r, IORING_OP_ASYNC_CANCEL, -1, (void *)(uintptr_t)q->user_data, 0, 0), "inline");
    c->target = (int64_t)q->user_data;    /* EALREADY, for it runs; its own result is EINTR or ECANCELED */
    submit(r, 2);
    reap_n(r, 2);
    for (int i = 0; i < N; i++)
        close(ends_[i][0]), close(ends_[i][1]);
    ring_close(r);
}

/*
 * A worker opens one end of a FIFO, and waits until somebody opens the other one. Then it is ready, and this thread keeps the CPU that
 * both share. Each round takes longer: the note says for how long at least it waited, and was ready.
 */
static void fifo(void)
{
    ring *r = ring_new(8, 0, 0);
    char path[120], note[80];
    cpu_set_t before;
    checked(sched_getaffinity(0, sizeof before, &before), "sched_getaffinity");
    snprintf(path, sizeof path, "%s", in("fifo"));
    checked(mkfifo(path, 0600), "mkfifo");
    for (int i = 0; i < 3; i++) {
        request *q = expect(add(r, IORING_OP_OPENAT, AT_FDCWD, path, 0, 0), "worker");
        set_flags(q, IOSQE_ASYNC);
        submit(r, 0);
        pid_t worker;
        int64_t slept = until_a_worker_sleeps(&worker);
        pause_ms(5 * (i + 1));
        bool shares = share_a_cpu(worker);
        go_first(true);
        slept = nanoseconds() - slept;
        int other = (int)checked(open(path, O_WRONLY), "open");
        int64_t spun = spin_ms(2 * (i + 1));
        go_first(false);
        snprintf(note, sizeof note, "fifo %llu %lld %lld", (unsigned long long)q->user_data, (long long)slept,
                 shares ? (long long)spun : 0ll);
        log_note(strdup(note));
        reap_n(r, 1);
        checked(sched_setaffinity(0, sizeof before, &before), "sched_setaffinity");
        sched_setaffinity(worker, sizeof before, &before); /* it may have ended */
        close((int)q->results[0]), close(other);
    }
    ring_close(r);
}

/* With one worker of each kind allowed, the second request waits for the first. */
static void limited(void)
{
    ring *r = ring_new(16, 0, 0);
    unsigned most[2] = {1, 1};
    int fd = new_file("limited", SIZE, O_RDWR | O_CREAT);
    checked(ring_register(r, IORING_REGISTER_IOWQ_MAX_WORKERS, most, 2), "limiting workers");
    for (unsigned i = 0; i < 6; i++)
        expect(add(r, IORING_OP_FSYNC, fd, NULL, 0, 0), "worker");
    submit(r, 6);
    reap_n(r, 6);
    close(fd);
    ring_close(r);
}

const scenario worker_scenarios[] = {
    {"async", async, "IOSQE_ASYNC"},
    {"hashed", hashed, "buffered writes, one after the other"},
    {"worker-links", worker_links, "chains that go on in a worker"},
    {"blocked", blocked, "workers that wait, and one that is cancelled"},
    {"fifo", fifo, "workers that wait for a known time"},
    {"limited", limited, "one worker of each kind"},
    {NULL, NULL, NULL},
};
