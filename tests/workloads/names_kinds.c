/* Files without a directory: pipes, sockets, memory, events. */
#include "names.h"

#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>

/* A call makes and returns the file, which is then used. Its name is the link in /proc. */
static int made(const char *call, long number, enum know know, long a, long b, long c, long d, long e)
{
    int fd = (int)note((what){.call = call, .number = number, .opens = true, .fd = NOTHING, .know = know}, a, b, c, d, e, 0);
    if (fd >= 0)
        use(fd);
    return fd;
}

/* A call that a tracer of the default calls does not see makes the file. It is used before and after. */
static void unseen(int fd)
{
    checked(fd, "unseen");
    remember(fd, NAMES(link_of(fd)), MUST);
    use(fd);
    touch(fd);
}

static void memfd(void)
{
    static const char *const all[] = {"plain", "", "with space", "new\nline", "\xff", "a/b", "x (deleted)"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int fd = made("memfd_create", SYS_memfd_create, MUST, L(all[i]), 0, 0, 0, 0);
        checked(ftruncate(fd, 4096), "ftruncate");
        read_byte(fd);
        round_trip(text("/proc/self/fd/%d", fd), O_RDWR, link_of(fd));
        close_it(fd);
    }
    char longest[250];
    memset(longest, 'm', 249);
    longest[249] = 0;
    close_it(made("memfd_create", SYS_memfd_create, MUST, L(longest), MFD_CLOEXEC, 0, 0, 0));
}

static void pipes(void)
{
    int ends[2], more[2];
    checked(pipe(ends), "pipe");
    unseen(ends[0]);
    unseen(ends[1]);
    checked(pipe2(more, O_NONBLOCK), "pipe2");
    char byte = 'x';
    note((what){.call = "write", .number = SYS_write, .fd = ends[1]}, ends[1], L(&byte), 1, 0, 0, 0);
    note((what){.call = "read", .number = SYS_read, .fd = ends[0]}, ends[0], L(&byte), 1, 0, 0, 0);
    unseen(more[0]);
    unseen(more[1]);
    close_it(ends[0]);
    close_it(ends[1]);
    checked(pipe(ends), "pipe");          /* the same numbers */
    unseen(ends[0]);
    unseen(ends[1]);
    close_it(ends[1]);
    close_it(ends[0]);
    close_it(more[0]);
    close_it(more[1]);
    checked(mkfifo("fifo", 0600), "mkfifo");
    int fifo = open_here("fifo", O_RDWR);
    note((what){.call = "write", .number = SYS_write, .fd = fifo}, fifo, L(&byte), 1, 0, 0, 0);
    note((what){.call = "read", .number = SYS_read, .fd = fifo}, fifo, L(&byte), 1, 0, 0, 0);
    close_it(fifo);
}

static void sockets(void)
{
    int pair[2];
    char byte = 'x';
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "socket"};
    checked(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
    unseen(pair[0]);
    unseen(pair[1]);
    note((what){.call = "write", .number = SYS_write, .fd = pair[1]}, pair[1], L(&byte), 1, 0, 0, 0);
    note((what){.call = "read", .number = SYS_read, .fd = pair[0]}, pair[0], L(&byte), 1, 0, 0, 0);
    int server = made("socket", SYS_socket, MUST, AF_UNIX, SOCK_STREAM, 0, 0, 0);
    checked(bind(server, (struct sockaddr *)&at, sizeof at), "bind");
    checked(listen(server, 1), "listen");
    int client = made("socket", SYS_socket, MUST, AF_UNIX, SOCK_STREAM, 0, 0, 0);
    checked(connect(client, (struct sockaddr *)&at, sizeof at), "connect");
    int accepted = made("accept4", SYS_accept4, MUST, server, 0, 0, 0, 0);
    round_trip("socket", O_PATH, in("socket"));
    int inet = made("socket", SYS_socket, MUST, AF_INET, SOCK_DGRAM, 0, 0, 0);
    int netlink = made("socket", SYS_socket, MUST, AF_NETLINK, SOCK_RAW, 0, 0, 0);
    close_it(pair[0]);
    close_it(pair[1]);
    close_it(accepted);
    close_it(client);
    close_it(server);
    close_it(inet);
    close_it(netlink);
}

static void anonymous(void)
{
    sigset_t none;
    sigemptyset(&none);
    struct perf_event_attr counter = {.type = PERF_TYPE_SOFTWARE, .size = sizeof counter, .config = PERF_COUNT_SW_DUMMY, .disabled = 1};
    struct io_uring_params ring = {0};
    union bpf_attr map = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    const int fds[] = {
        made("eventfd2", SYS_eventfd2, MUST, 0, 0, 0, 0, 0),
        made("epoll_create1", SYS_epoll_create1, MUST, 0, 0, 0, 0, 0),
        made("timerfd_create", SYS_timerfd_create, MUST, CLOCK_MONOTONIC, 0, 0, 0, 0),
        made("inotify_init1", SYS_inotify_init1, MUST, 0, 0, 0, 0, 0),
        made("io_uring_setup", SYS_io_uring_setup, MUST, 4, L(&ring), 0, 0, 0),
        made("perf_event_open", SYS_perf_event_open, MUST, L(&counter), 0, -1, -1, 0),
    };
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close_it(fds[i]);
    int signals = signalfd(-1, &none, 0);
    unseen(signals);
    close_it(signals);
    int bpf = (int)syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map);
    if (bpf >= 0) {
        unseen(bpf);
        close_it(bpf);
    }
}

/* Pseudo file systems that make their own names, which may differ by kernel. */
static void exotic(void)
{
    const int fds[] = {
        made("pidfd_open", SYS_pidfd_open, MAY, getpid(), 0, 0, 0, 0),
        (int)note((what){.call = "openat", .number = SYS_openat, .opens = true, .fd = NOTHING, .dirfd = AT_FDCWD, .know = MAY, .given = "/proc/self/ns/net"},
                  AT_FDCWD, L("/proc/self/ns/net"), O_RDONLY, 0, 0, 0),
        (int)note((what){.call = "openat", .number = SYS_openat, .opens = true, .fd = NOTHING, .dirfd = AT_FDCWD, .know = MAY, .given = "/proc/self/ns/mnt"},
                  AT_FDCWD, L("/proc/self/ns/mnt"), O_RDONLY, 0, 0, 0),
        made("memfd_secret", SYS_memfd_secret, MAY, 0, 0, 0, 0, 0),
        made("mq_open", SYS_mq_open, MAY, L("names-queue"), O_RDWR | O_CREAT, 0600, 0, 0),
        (int)note((what){.call = "openat", .number = SYS_openat, .opens = true, .fd = NOTHING, .dirfd = AT_FDCWD, .know = MAY, .given = "/dev/ptmx"},
                  AT_FDCWD, L("/dev/ptmx"), O_RDWR | O_NOCTTY, 0, 0, 0),
    };
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (fds[i] < 0)
            continue;
        touch(fds[i]);
        close_it(fds[i]);
    }
    syscall(SYS_mq_unlink, "names-queue");
}

const scenario kind_scenarios[] = {
    {"memfd", memfd, "memory with names of all kinds, and opened again"},
    {"pipes", pipes, "pipes whose numbers come again, and one with a name"},
    {"sockets", sockets, "pairs, listening, connected, accepted; the name of one in a folder"},
    {"anonymous", anonymous, "events, timers, watches, rings, counters, maps"},
    {"exotic", exotic, "processes, namespaces, secret memory, queues, terminals"},
    {NULL, NULL, NULL},
};
