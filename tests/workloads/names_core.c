/* The journal, common calls, and what is known about each descriptor. */
#include "names.h"

#include <stdarg.h>

enum { MAX_ENTRIES = 1 << 18, TEXT_BYTES = 64 << 20, MAX_FDS = 1024, MARK = 0x4e000000, PROC_FD = 1000 };

typedef struct {
    uint32_t know, number_of_names;
    int32_t pid, tid, fd;
    int64_t result;
    uint64_t inode, mount;
    uint32_t major, minor, mode, links;
    uint32_t names, link, given, given2, directory, directory2;  /* offsets into the text; 0: none */
    uint8_t follows, opens, inside, looked;
    char call[24], scenario[24];
} entry;

typedef struct {
    _Atomic uint32_t count;
    _Atomic uint32_t used;
    entry entries[MAX_ENTRIES];
    char text[TEXT_BYTES];
} journal;

const char *directory, *running = "", *self_path, *journal_path;
char folder[4096];
static journal *log_;
static _Thread_local entry *last;
static struct {
    const char *names[64];
    enum know know;
} known[MAX_FDS];

void die(const char *what)
{
    fprintf(stderr, "names: %s: %s: %s\n", running, what, strerror(errno));
    _exit(99);
}

int64_t checked(int64_t result, const char *what)
{
    if (result < 0) {
        if (result != -1)
            errno = (int)-result;
        die(what);
    }
    return result;
}

int gettid_(void)
{
    return (int)syscall(SYS_gettid);
}

void open_journal(const char *path, bool create)
{
    int fd = (int)checked(open(path, O_RDWR | (create ? O_CREAT | O_TRUNC : 0), 0600), path);
    if (create)
        checked(ftruncate(fd, sizeof(journal)), "ftruncate");
    log_ = mmap(NULL, sizeof(journal), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (log_ == MAP_FAILED)
        die("mmap");
    close(fd);
    journal_path = path;
    if (create)
        atomic_store(&log_->used, 1);
    int proc = (int)checked(open("/proc", O_PATH | O_CLOEXEC), "/proc");
    checked(dup3(proc, PROC_FD, O_CLOEXEC), "dup3");
    close(proc);
}

static uint32_t reserve(size_t bytes)
{
    uint32_t at = atomic_fetch_add(&log_->used, (uint32_t)bytes);
    if (at + bytes > TEXT_BYTES)
        die("the journal is full");
    return at;
}

static uint32_t keep(const char *bytes, size_t length)
{
    uint32_t at = reserve(length + 1);
    memcpy(log_->text + at, bytes, length);
    return at;
}

const char *text(const char *format, ...)
{
    char *line;
    va_list list;
    va_start(list, format);
    checked(vasprintf(&line, format, list), "vasprintf");
    va_end(list);
    return line;                          /* kept for good, for it may be a name */
}

const char *in(const char *name)
{
    return text("%s/%s", folder, name);
}

void make(const char *path, const char *content)
{
    int fd = (int)checked(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600), path);
    checked(write(fd, content, strlen(content)), "write");
    close(fd);
}

void make_folder(const char *path)
{
    checked(mkdir(path, 0755), path);
}

void begin_scenario(const char *name)
{
    running = name;
    snprintf(folder, sizeof folder, "%s/%s", directory, name);
    make_folder(folder);
    checked(chdir(folder), folder);
}

void remember(int fd, const char *const *names, enum know know)
{
    if (fd < 0 || fd >= MAX_FDS)
        return;
    size_t n = 0;
    for (; names && names[n] && n < 63; n++)
        known[fd].names[n] = names[n];
    known[fd].names[n] = NULL;
    known[fd].know = know;
}

const char *const *names_of(int fd)
{
    static const char *const none[] = {NULL};
    return fd >= 0 && fd < MAX_FDS ? known[fd].names : none;
}

enum know know_of(int fd)
{
    return fd >= 0 && fd < MAX_FDS && known[fd].names[0] ? known[fd].know : NONE;
}

static ssize_t read_link(int fd, char *to, size_t size)
{
    char path[48];
    snprintf(path, sizeof path, "thread-self/fd/%d", fd);
    return readlinkat(PROC_FD, path, to, size);
}

const char *link_of(int fd)
{
    char link[4097];
    ssize_t length = checked(read_link(fd, link, sizeof link - 1), "readlink");
    link[length] = 0;
    return text("%s", link);
}

/* What the kernel itself shows of the descriptor now. */
static void look(entry *x, int fd)
{
    char link[4097];
    struct statx s;
    ssize_t length = read_link(fd, link, sizeof link);
    x->link = length < 0 ? 0 : keep(link, (size_t)length);
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &s) < 0)
        return;
    x->looked = 1;
    x->inode = s.stx_ino, x->major = s.stx_dev_major, x->minor = s.stx_dev_minor;
    x->mode = s.stx_mode, x->links = s.stx_nlink;
    x->mount = s.stx_mask & STATX_MNT_ID ? s.stx_mnt_id : 0;
}

/* Takes one piece of the text, whatever other threads take at the same time. */
static void keep_names(entry *x, enum know know, const char *const *names)
{
    size_t length = 0, n = 0;
    x->know = know, x->names = x->number_of_names = 0;
    for (; names && names[n]; n++)
        length += strlen(names[n]) + 1;
    if (!n)
        return;
    uint32_t at = reserve(length);
    x->names = at, x->number_of_names = (uint32_t)n;
    for (; *names; at += strlen(*names++) + 1)
        memcpy(log_->text + at, *names, strlen(*names));
}

void correct(enum know know, const char *const *names)
{
    keep_names(last, know, names);
}

static uint32_t directory_of(const char *given, int dirfd)
{
    char path[4096];
    ssize_t length;
    if (!given || *given == '/')
        return 0;
    if (dirfd == NOTHING || dirfd == AT_FDCWD) {
        length = readlinkat(PROC_FD, "self/cwd", path, sizeof path);
        return length < 0 ? 0 : keep(path, (size_t)length);
    }
    return names_of(dirfd)[0] ? keep(names_of(dirfd)[0], strlen(names_of(dirfd)[0])) : 0;
}

static void mark(uint32_t id)
{
    syscall(SYS_lseek, -1, MARK + id, SEEK_SET);
}

int64_t note(what w, long a, long b, long c, long d, long e, long f)
{
    uint32_t id = atomic_fetch_add(&log_->count, 1);
    if (id >= MAX_ENTRIES)
        die("the journal is full");
    entry *x = last = &log_->entries[id];
    *x = (entry){.pid = getpid(), .tid = gettid_(), .fd = w.fd, .follows = w.follows, .opens = w.opens, .inside = w.inside};
    snprintf(x->call, sizeof x->call, "%s", w.call);
    snprintf(x->scenario, sizeof x->scenario, "%s", running);
    if (w.given)
        x->given = keep(w.given, strlen(w.given)), x->directory = directory_of(w.given, w.dirfd);
    if (w.given2)
        x->given2 = keep(w.given2, strlen(w.given2)), x->directory2 = directory_of(w.given2, w.dirfd2);
    const char *const *names = w.names;
    const char *shown[] = {NULL, NULL};
    enum know know = w.know;
    if (!w.opens) {
        if (!names && w.fd >= 0 && know != ANY)
            names = names_of(w.fd), know = w.know == MUST ? know_of(w.fd) : w.know;
        if (w.fd < 0 && !names)
            know = NONE;
        if (w.fd >= 0 && !w.unseen)
            look(x, w.fd);
    }
    if (!w.follows)
        mark(id);
    long result = syscall(w.number, a, b, c, d, e, f);
    x->result = result < 0 ? -errno : result;
    if (w.opens && x->result < 0)
        know = NONE, names = NULL;
    if (w.opens && x->result >= 0) {
        if (!w.unseen)
            look(x, (int)x->result);
        shown[0] = x->link ? log_->text + x->link : NULL;
        if (!names)
            names = shown;
        remember((int)x->result, names, know);
    }
    keep_names(x, know, names);
    return x->result;
}

void wait_for(pid_t child)
{
    int status;
    checked(waitpid(child, &status, 0), "waitpid");
    if (!WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "names: %s: a child ended with status %#x\n", running, (unsigned)status);
        _exit(99);
    }
}

void in_child(void (*run)(void))
{
    pid_t child = (pid_t)checked(fork(), "fork");
    if (!child) {
        run();
        _exit(0);
    }
    wait_for(child);
}

/* ---- common calls ---- */

int open_at(int dirfd, const char *given, int flags, const char *name)
{
    return (int)note((what){.call = "openat", .number = SYS_openat, .opens = true, .fd = NOTHING, .dirfd = dirfd,
                            .dirfd2 = NOTHING, .names = name ? NAMES(name) : NULL, .given = given},
                     dirfd, L(given), flags, 0600, 0, 0);
}

int open_as(const char *given, int flags, const char *name)
{
    return (int)checked(open_at(AT_FDCWD, given, flags, name), given);
}

int open_here(const char *name, int flags)
{
    return open_as(name, flags, in(name));
}

int64_t read_byte(int fd)
{
    char byte = 0;
    int64_t result = note((what){.call = "pread64", .number = SYS_pread64, .fd = fd}, fd, L(&byte), 1, 0, 0, 0);
    return result == 1 ? byte : result;
}

int64_t use(int fd)
{
    return note((what){.call = "lseek", .number = SYS_lseek, .fd = fd}, fd, 0, SEEK_CUR, 0, 0, 0);
}

int64_t touch(int fd)
{
    return note((what){.call = "fcntl", .number = SYS_fcntl, .fd = fd}, fd, F_GETFD, 0, 0, 0, 0);
}

int64_t close_it(int fd)
{
    int64_t result = note((what){.call = "close", .number = SYS_close, .fd = fd}, fd, 0, 0, 0, 0, 0);
    remember(fd, NULL, NONE);
    return result;
}

void round_trip(const char *given, int flags, const char *name)
{
    int fd = open_as(given, flags, name);
    if (flags & O_PATH)
        touch(fd);
    else
        use(fd);
    close_it(fd);
}

/* ---- printing the notes ---- */

static void print_bytes(FILE *to, const char *key, uint32_t at)
{
    if (!at) {
        fprintf(to, ", \"%s\": null", key);
        return;
    }
    fprintf(to, ", \"%s\": \"", key);
    for (const char *c = log_->text + at; *c; c++)
        fprintf(to, "%02x", (unsigned char)*c);
    fputs("\"", to);
}

static void print_names(FILE *to, const entry *x)
{
    fprintf(to, ", \"names\": [");
    const char *name = log_->text + x->names;
    for (uint32_t i = 0; i < x->number_of_names; i++, name += strlen(name) + 1) {
        fprintf(to, "%s\"", i ? ", " : "");
        for (const char *c = name; *c; c++)
            fprintf(to, "%02x", (unsigned char)*c);
        fputs("\"", to);
    }
    fputs("]", to);
}

void print_journal(FILE *to)
{
    static const char *const knows[] = {"must", "may", "none", "any"};
    uint32_t count = atomic_load(&log_->count);
    for (uint32_t id = 0; id < count; id++) {
        const entry *x = &log_->entries[id];
        fprintf(to, "{\"id\": %u, \"scenario\": \"%s\", \"pid\": %d, \"tid\": %d, \"call\": \"%s\", \"result\": %lld", id,
                x->scenario, x->pid, x->tid, x->call, (long long)x->result);
        fprintf(to, ", \"fd\": %d, \"opens\": %d, \"follows\": %d, \"inside\": %d, \"know\": \"%s\"",
                x->fd == NOTHING ? -1 : x->fd, x->opens, x->follows, x->inside, knows[x->know]);
        print_names(to, x);
        print_bytes(to, "link", x->link);
        print_bytes(to, "given", x->given);
        print_bytes(to, "given2", x->given2);
        print_bytes(to, "directory", x->directory);
        print_bytes(to, "directory2", x->directory2);
        if (x->looked)
            fprintf(to, ", \"inode\": %llu, \"major\": %u, \"minor\": %u, \"mode\": %u, \"links\": %u, \"mount\": %llu",
                    (unsigned long long)x->inode, x->major, x->minor, x->mode, x->links, (unsigned long long)x->mount);
        fputs("}\n", to);
    }
}
