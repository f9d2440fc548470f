/* The journal of the workload `calls`, and the markers between which a thread's calls count. */
#include "calls.h"

#include <sys/mman.h>

enum { MARK_BEGIN = 0x10201, MARK_END = 0x10202 };

journal *log_;
const char *directory;
char *self, *log_path;
static char names[MAX_FDS][MAX_PATH];    /* the file behind each fd of this process */

void die(const char *what)
{
    fprintf(stderr, "calls: %s: %s\n", what, strerror(errno));
    _exit(99);
}

const char *name_of(int fd)
{
    return fd >= 0 && fd < MAX_FDS ? names[fd] : "";
}

void set_name(int fd, const char *path)
{
    if (fd >= 0 && fd < MAX_FDS)
        snprintf(names[fd], MAX_PATH, "%s", path);
}

long note(what w, long a, long b, long c, long d, long e, long f)
{
    char path[MAX_PATH], path2[MAX_PATH];
    snprintf(path, sizeof path, "%s", name_of(w.fd));
    snprintf(path2, sizeof path2, "%s", name_of(w.fd2));
    long result = syscall(w.number, a, b, c, d, e, f);
    if (result < 0)
        result = -errno;
    uint32_t index = atomic_fetch_add(&log_->count, 1);
    if (index >= MAX_ENTRIES)
        _exit(98);
    entry *x = &log_->entries[index];
    *x = (entry){.tid = (int32_t)syscall(SYS_gettid), .fd = w.fd, .fd2 = w.fd2, .known = !w.guessable,
                 .requested = w.requested, .offset = w.offset, .result = result};
    snprintf(x->call, sizeof x->call, "%s", w.call);
    memcpy(x->path, path, sizeof path);
    memcpy(x->path2, path2, sizeof path2);
    return result;
}

void resume(void)
{
    syscall(SYS_lseek, -1, MARK_BEGIN, SEEK_SET);
}

void leave(void)
{
    syscall(SYS_lseek, -1, MARK_END, SEEK_SET);
}

void map_log(void)
{
    int fd = open(log_path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *log_))
        die(log_path);
    log_ = mmap(NULL, sizeof *log_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (log_ == MAP_FAILED)
        die("mmap");
    close(fd);
}

static void print_number(const char *key, int64_t value)
{
    if (value == NONE)
        printf(", \"%s\": null", key);
    else
        printf(", \"%s\": %lld", key, (long long)value);
}

static void print_text(const char *key, const char *text)
{
    if (*text)
        printf(", \"%s\": \"%s\"", key, text);
    else
        printf(", \"%s\": null", key);
}

void print_log(void)
{
    for (uint32_t i = 0; i < atomic_load(&log_->count); i++) {
        const entry *x = &log_->entries[i];
        printf("{\"tid\": %d, \"call\": \"%s\", \"fd\": %d, \"fd2\": %d", x->tid, x->call, x->fd, x->fd2);
        print_text("path", x->path);
        print_text("path2", x->path2);
        print_number("requested", x->requested);
        print_number("offset", x->offset);
        printf(", \"known\": %s, \"result\": %lld}\n", x->known ? "true" : "false", (long long)x->result);
    }
}
