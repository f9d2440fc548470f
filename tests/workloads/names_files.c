/* Files opened in all ways, and names of all kinds. */
#include "names.h"

#include <linux/openat2.h>

static void plain(void)
{
    make_folder("sub");
    make("sub/a", "a");
    int top = open_as(".", O_RDONLY | O_DIRECTORY, folder);
    int sub = open_here("sub", O_RDONLY | O_DIRECTORY);
    round_trip(in("sub/a"), O_RDONLY, in("sub/a"));
    round_trip("sub/a", O_RDWR, in("sub/a"));
    round_trip("./sub/../sub//a", O_RDONLY, in("sub/a"));
    round_trip(text("/proc/../%s/sub/./a", folder), O_RDONLY, in("sub/a"));
    int fd = (int)checked(open_at(sub, "a", O_RDONLY, in("sub/a")), "a");
    read_byte(fd);
    close_it(fd);
    fd = (int)checked(open_at(sub, "../sub/a", O_RDONLY, in("sub/a")), "a");
    read_byte(fd);
    close_it(fd);
    fd = (int)note((what){.call = "open", .number = SYS_open, .opens = true, .fd = NOTHING, .dirfd = AT_FDCWD, .names = NAMES(in("sub/a")), .given = "sub/a"},
                   L("sub/a"), O_RDONLY, 0, 0, 0, 0);
    read_byte(fd);
    close_it(fd);
    fd = (int)note((what){.call = "creat", .number = SYS_creat, .opens = true, .fd = NOTHING, .dirfd = AT_FDCWD, .names = NAMES(in("made")), .given = "made"},
                   L("made"), 0600, 0, 0, 0, 0);
    use(fd);
    close_it(fd);
    round_trip("new", O_RDWR | O_CREAT | O_EXCL, in("new"));
    round_trip("new", O_WRONLY | O_TRUNC | O_APPEND, in("new"));
    open_at(top, "absent", O_RDONLY, NULL);
    open_at(top, "new", O_RDWR | O_CREAT | O_EXCL, NULL);
    round_trip("..", O_RDONLY, directory);
    round_trip("/", O_RDONLY, "/");
    round_trip(".", O_PATH, folder);
    checked(chdir("sub"), "sub");
    round_trip("a", O_RDONLY, in("sub/a"));
    round_trip("../new", O_RDONLY, in("new"));
    close_it(sub);
    close_it(top);
}

static void symlinks(void)
{
    make_folder("real");
    make("real/a", "a");
    checked(symlink("real", "dir-link"), "symlink");
    checked(symlink("dir-link/a", "chain1"), "symlink");
    checked(symlink("chain1", "chain2"), "symlink");
    checked(symlink(in("chain2"), "chain3"), "symlink");
    checked(symlink("loop", "loop"), "symlink");
    checked(symlink("absent", "dangling"), "symlink");
    round_trip("dir-link/a", O_RDONLY, in("real/a"));
    round_trip("chain3", O_RDONLY, in("real/a"));
    round_trip("chain3", O_PATH | O_NOFOLLOW, in("chain3"));
    open_at(AT_FDCWD, "loop", O_RDONLY, NULL);
    open_at(AT_FDCWD, "chain1", O_RDONLY | O_NOFOLLOW, NULL);
    round_trip("dangling", O_RDWR | O_CREAT, in("absent"));
    int link = open_as("dir-link", O_RDONLY | O_DIRECTORY, in("real"));
    int fd = open_at(link, "a", O_RDONLY, in("real/a"));
    checked(rename("real/a", "real/b"), "rename");
    read_byte(fd);
    close_it(fd);
    close_it(link);
}

static void odd_names(void)
{
    static const char *const odd[] = {
        "new\nline", "\n", "tab\there", "\xff\xfe not utf-8", "\xc3\x28", "\xed\xa0\x80", "caf\xc3\xa9", "quo\"te'", "back\\slash\\n",
        "\\xff", "\\012", " ", "  spaces  ", " (deleted)", "a (deleted)", "-rf", "pipe:[1]", "socket:[2]", "anon_inode:[eventfd]",
        "\x01\x1b[31m\x7f", "%s%n", "$(id)", "a;b,c=d", "memfd:x", "...", "~", "*", "\xe2\x80\xae" "abc", "a\rb", "#12 (deleted)",
    };
    char longest[256];
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        make(odd[i], "o");
        round_trip(odd[i], O_RDONLY, in(odd[i]));
    }
    for (int length = 1; length <= 255; length += length < 70 ? 1 : 37) {
        for (int i = 0; i < length; i++)
            longest[i] = (char)('A' + (i + length) % 58);
        longest[length] = 0;
        make_folder(longest);
        make(text("%s/%s", longest, longest), "x");
        round_trip(text("%s/%s", longest, longest), O_RDONLY, in(text("%s/%s", longest, longest)));
    }
    memset(longest, '\xff', 255);
    make_folder(longest);
    make(text("%s/\n", longest), "x");
    round_trip(text("%s/\n", longest), O_RDONLY, in(text("%s/\n", longest)));
}

/* Makes a path of folders with the longest names, until it has so many bytes, less one for each deeper `leaf`. */
static char *dig(size_t bytes, size_t component)
{
    char *path = strdup(folder), name[256];
    memset(name, 'd', sizeof name);
    for (size_t left; (left = bytes - strlen(path)) > 1;) {
        size_t length = left - 1 < component ? left - 1 : component;
        if (left - 1 - length == 1)
            length += length < 255 ? 1 : -1;  /* a slash alone is no component */
        name[length] = 0;
        if (mkdir(name, 0755) < 0 && errno != EEXIST)
            die(name);
        checked(chdir(name), name);
        char *longer = (char *)text("%s/%s", path, name);
        free(path);
        path = longer;
        name[length] = 'd';
    }
    return path;
}

/* Removes the folders of dig(), from the bottom up, for other tools fail at such depths. */
static void fill(const char *path)
{
    char *at = strdup(path);
    while (strlen(at) > strlen(folder)) {
        char *name = strrchr(at, '/') + 1;
        checked(chdir(".."), "..");
        checked(rmdir(name), "rmdir");
        name[-1] = 0;
    }
    free(at);
}

static void dig_and_use(size_t bytes, size_t component, enum know know)
{
    checked(chdir(folder), folder);
    char *path = dig(bytes - 2, component);
    const char *file = text("%s/f", path);
    make("f", "f");
    int fd = (int)note((what){.call = "openat", .number = SYS_openat, .opens = true, .fd = NOTHING, .dirfd = NOTHING, .know = know,
                              .names = NAMES(file)}, AT_FDCWD, L("f"), O_RDWR, 0, 0, 0);
    read_byte(fd);
    if (strlen(file) < 4096)
        round_trip(file, O_RDONLY, file);
    close_it(fd);
    checked(unlink("f"), "unlink");
    fill(path);
    free(path);
}

static void long_paths(void)
{
    dig_and_use(1000, 1, MUST);
    dig_and_use(2400, 100, MUST);
    dig_and_use(4094, 255, MUST);
    dig_and_use(4095, 255, MUST);
    dig_and_use(4095, 3, MUST);
    dig_and_use(4095, 14, MUST);
}

/* Longer than any path argument can be. Such files have names, but no tracer must know them whole. */
static void deep_paths(void)
{
    dig_and_use(4096, 255, MAY);
    dig_and_use(4097, 200, MAY);
    dig_and_use(5000, 255, MAY);
    dig_and_use(9000, 40, MAY);
    dig_and_use(12000, 255, MAY);
    dig_and_use(5200, 12, MAY);
}

static void o_path(void)
{
    make("a", "a");
    make_folder("d");
    make("d/b", "b");
    int a = open_here("a", O_PATH), d = open_here("d", O_PATH | O_DIRECTORY);
    touch(a);
    touch(d);
    int b = open_at(d, "b", O_RDONLY, in("d/b"));
    read_byte(b);
    read_byte(a);
    int again = open_as(text("/proc/self/fd/%d", a), O_RDWR, in("a"));
    read_byte(again);
    close_it(again);
    close_it(b);
    close_it(d);
    close_it(a);
}

static int open_how(int dirfd, const char *given, uint64_t resolve, const char *name)
{
    struct open_how how = {.flags = O_RDONLY, .resolve = resolve};
    return (int)note((what){.call = "openat2", .number = SYS_openat2, .opens = true, .fd = NOTHING, .dirfd = dirfd, .names = NAMES(name), .given = given},
                     dirfd, L(given), L(&how), sizeof how, 0, 0);
}

static void resolve(void)
{
    make_folder("root");
    make_folder("root/d");
    make("root/d/a", "a");
    make("b", "b");
    checked(symlink("/d/a", "root/absolute"), "symlink");
    checked(symlink("../b", "root/out"), "symlink");
    checked(symlink("d", "root/in"), "symlink");
    int root = open_here("root", O_RDONLY | O_DIRECTORY);
    static const struct {
        const char *given;
        uint64_t resolve;
        const char *name;
    } all[] = {
        {"d/a", 0, "root/d/a"},
        {"d/a", RESOLVE_BENEATH, "root/d/a"},
        {"d/../d/a", RESOLVE_BENEATH, "root/d/a"},
        {"/d/a", RESOLVE_IN_ROOT, "root/d/a"},
        {"absolute", RESOLVE_IN_ROOT, "root/d/a"},
        {"in/a", RESOLVE_BENEATH, "root/d/a"},
        {"../../../d/a", RESOLVE_IN_ROOT, "root/d/a"},
        {"d/a", RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS, "root/d/a"},
        {"d/a", RESOLVE_CACHED, "root/d/a"},
        {"../b", 0, "b"},
        {"out", 0, "b"},
        {"out", RESOLVE_BENEATH, NULL},
        {"../b", RESOLVE_BENEATH, NULL},
        {"in/a", RESOLVE_NO_SYMLINKS, NULL},
        {"/d/a", RESOLVE_BENEATH, NULL},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int fd = open_how(root, all[i].given, all[i].resolve, all[i].name ? in(all[i].name) : "");
        if ((fd >= 0) != !!all[i].name)
            die(all[i].given);
        if (fd < 0)
            continue;
        read_byte(fd);
        close_it(fd);
    }
    close_it(root);
}

static void by_handle(void)
{
    make_folder("d");
    make("d/a", "a");
    struct {
        struct file_handle head;
        char bytes[128];
    } handle = {.head.handle_bytes = 128};
    int mount;
    checked(name_to_handle_at(AT_FDCWD, "d/a", &handle.head, &mount, 0), "name_to_handle_at");
    int top = open_as(".", O_RDONLY | O_DIRECTORY, folder);
    for (int i = 0; i < 2; i++) {
        int fd = (int)checked(note((what){.call = "open_by_handle_at", .number = SYS_open_by_handle_at, .opens = true, .fd = NOTHING,
                                          .names = NAMES(i ? in("e/a") : in("d/a"))},
                                   top, L(&handle), O_RDONLY, 0, 0, 0), "open_by_handle_at");
        read_byte(fd);
        close_it(fd);
        checked(i ? 0 : rename("d", "e"), "rename");
    }
    close_it(top);
}

static void reopened(void)
{
    make("a", "a");
    make("gone", "g");
    int a = open_here("a", O_RDONLY), gone = open_here("gone", O_RDONLY);
    int ends[2];
    checked(unlink("gone"), "unlink");
    checked(pipe2(ends, O_CLOEXEC), "pipe2");
    round_trip(text("/proc/self/fd/%d", a), O_RDWR, in("a"));
    round_trip(text("/dev/fd/%d", a), O_RDONLY, in("a"));
    round_trip(text("/proc/%d/fd/%d", getpid(), a), O_RDONLY, in("a"));
    round_trip(text("/proc/self/fd/%d", gone), O_RDONLY, text("%s (deleted)", in("gone")));
    round_trip(text("/proc/self/fd/%d", ends[0]), O_RDONLY | O_NONBLOCK, link_of(ends[0]));
    round_trip("/proc/self/exe", O_RDONLY, NULL);
    round_trip("/proc/self/cwd/a", O_RDONLY, in("a"));
    round_trip("/proc/self/root/proc/self/cwd/a", O_RDONLY, in("a"));
    read_byte(gone);
    close_it(gone);
    close_it(a);
    close(ends[0]);
    close(ends[1]);
}

static void virtual_files(void)
{
    int me = getpid(), tid = gettid_();
    round_trip("/proc/self/status", O_RDONLY, text("/proc/%d/status", me));
    round_trip("/proc/thread-self/stat", O_RDONLY, text("/proc/%d/task/%d/stat", me, tid));
    round_trip("/proc/self/fd", O_RDONLY | O_DIRECTORY, text("/proc/%d/fd", me));
    round_trip("/proc/sys/kernel/pid_max", O_RDONLY, "/proc/sys/kernel/pid_max");
    round_trip("/proc/meminfo", O_RDONLY, "/proc/meminfo");
    round_trip("/proc/self/mounts", O_RDONLY, text("/proc/%d/mounts", me));
    round_trip("/proc", O_RDONLY | O_DIRECTORY, "/proc");
    round_trip("/dev/null", O_RDWR, "/dev/null");
    round_trip("/dev/zero", O_RDONLY, "/dev/zero");
    round_trip("/dev/urandom", O_RDONLY, "/dev/urandom");
    round_trip("/dev/shm", O_RDONLY | O_DIRECTORY, "/dev/shm");
    round_trip("/sys/kernel/mm", O_RDONLY | O_DIRECTORY, "/sys/kernel/mm");
    round_trip("/sys/devices/system/cpu/online", O_RDONLY, "/sys/devices/system/cpu/online");
    int shared = (int)checked(open_at(AT_FDCWD, text("/dev/shm/names-%d", me), O_RDWR | O_CREAT, text("/dev/shm/names-%d", me)), "/dev/shm");
    use(shared);
    close_it(shared);
    checked(unlink(text("/dev/shm/names-%d", me)), "unlink");
}

static void tmpfile_(void)
{
    int fd = open_as(".", O_TMPFILE | O_RDWR, NULL);
    use(fd);
    checked(linkat(AT_FDCWD, text("/proc/self/fd/%d", fd), AT_FDCWD, "named", AT_SYMLINK_FOLLOW), "linkat");
    use(fd);
    round_trip("named", O_RDONLY, in("named"));
    close_it(fd);
    for (int i = 0; i < 3; i++)
        round_trip(".", O_TMPFILE | O_WRONLY | O_EXCL, NULL);
}

const scenario file_scenarios[] = {
    {"plain", plain, "absolute, relative, to a directory's descriptor; made, truncated, absent"},
    {"symlinks", symlinks, "a file by a chain of links; a link itself"},
    {"odd-names", odd_names, "new lines, invalid UTF-8, what looks like the kernel's own names, all lengths"},
    {"long-paths", long_paths, "up to 4,095 bytes, in few and in 1,000 components"},
    {"deep-paths", deep_paths, "longer than that: reached by chdir"},
    {"o-path", o_path, "descriptors that only name a file"},
    {"resolve", resolve, "openat2 in all its ways"},
    {"by-handle", by_handle, "open_by_handle_at, before and after a rename above"},
    {"reopened", reopened, "through /proc/self/fd, /dev/fd, /proc/self/cwd: files, deleted ones, pipes"},
    {"virtual-files", virtual_files, "/proc, /dev, /sys, /dev/shm"},
    {"o-tmpfile", tmpfile_, "a file without a name, which gets one later"},
    {NULL, NULL, NULL},
};
