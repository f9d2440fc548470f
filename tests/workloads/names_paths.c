/* Calls with path arguments that return no descriptor. */
#include "names.h"

#include <sys/vfs.h>
#include <sys/xattr.h>

static int64_t path1(const char *call, long number, const char *given, long b, long c, long d)
{
    return note((what){.call = call, .number = number, .fd = NOTHING, .dirfd = AT_FDCWD, .given = given}, L(given), b, c, d, 0, 0);
}

static int64_t path2(const char *call, long number, const char *given, const char *given2)
{
    return note((what){.call = call, .number = number, .fd = NOTHING, .dirfd = AT_FDCWD, .dirfd2 = AT_FDCWD, .given = given, .given2 = given2},
                L(given), L(given2), 0, 0, 0, 0);
}

static int64_t at(const char *call, long number, int dirfd, const char *given, long c, long d, long e)
{
    return note((what){.call = call, .number = number, .fd = NOTHING, .dirfd = dirfd, .given = given}, dirfd, L(given), c, d, e, 0);
}

static int64_t at2(const char *call, long number, int dirfd, const char *given, int dirfd2, const char *given2, long e)
{
    return note((what){.call = call, .number = number, .fd = NOTHING, .dirfd = dirfd, .dirfd2 = dirfd2, .given = given, .given2 = given2},
                dirfd, L(given), dirfd2, L(given2), e, 0);
}

static void one_path(void)
{
    struct stat s;
    struct statfs fs;
    char buffer[256];
    make("a", "a");
    path1("stat", SYS_stat, "a", L(&s), 0, 0);
    path1("lstat", SYS_lstat, in("a"), L(&s), 0, 0);
    path1("stat", SYS_stat, "absent", L(&s), 0, 0);
    path1("access", SYS_access, "a", R_OK, 0, 0);
    path1("mkdir", SYS_mkdir, "d", 0755, 0, 0);
    path1("mkdir", SYS_mkdir, "d", 0755, 0, 0);
    path1("chmod", SYS_chmod, "a", 0644, 0, 0);
    path1("chown", SYS_chown, "a", 0, 0, 0);
    path1("truncate", SYS_truncate, "a", 7, 0, 0);
    path1("statfs", SYS_statfs, "d", L(&fs), 0, 0);
    path1("mknod", SYS_mknod, "d/fifo", S_IFIFO | 0600, 0, 0);
    path1("getxattr", SYS_getxattr, "a", L("user.x"), L(buffer), sizeof buffer);
    path1("chdir", SYS_chdir, "d", 0, 0, 0);
    path1("stat", SYS_stat, "../a", L(&s), 0, 0);
    path1("unlink", SYS_unlink, "fifo", 0, 0, 0);
    path1("chdir", SYS_chdir, "..", 0, 0, 0);
    path1("rmdir", SYS_rmdir, "d", 0, 0, 0);
    path1("unlink", SYS_unlink, in("a"), 0, 0, 0);
    path1("unlink", SYS_unlink, "a", 0, 0, 0);
}

static void two_paths(void)
{
    make("a", "a");
    path2("link", SYS_link, "a", "b");
    path2("rename", SYS_rename, "b", in("c"));
    path2("rename", SYS_rename, in("c"), "b");
    path2("rename", SYS_rename, "absent", "x");
    note((what){.call = "symlink", .number = SYS_symlink, .fd = NOTHING, .dirfd = AT_FDCWD, .given = "s"},
         L("a text, no path"), L("s"), 0, 0, 0, 0);
}

static void relative(void)
{
    struct stat s;
    struct statx x;
    char buffer[256];
    make_folder("d");
    make_folder("d/e");
    make("d/a", "a");
    int d = open_here("d", O_RDONLY | O_DIRECTORY), e = open_here("d/e", O_PATH);
    at("newfstatat", SYS_newfstatat, d, "a", L(&s), 0, 0);
    at("newfstatat", SYS_newfstatat, d, "", L(&s), AT_EMPTY_PATH, 0);
    at("newfstatat", SYS_newfstatat, AT_FDCWD, "d/a", L(&s), 0, 0);
    at("newfstatat", SYS_newfstatat, d, in("d/a"), L(&s), 0, 0);
    at("statx", SYS_statx, d, "absent", 0, STATX_BASIC_STATS, L(&x));
    at("statx", SYS_statx, e, "../a", 0, STATX_BASIC_STATS, L(&x));
    at("faccessat", SYS_faccessat, d, "a", R_OK, 0, 0);
    at("mkdirat", SYS_mkdirat, e, "f", 0755, 0, 0);
    at("fchmodat", SYS_fchmodat, d, "a", 0600, 0, 0);
    at("utimensat", SYS_utimensat, d, "a", 0, 0, 0);
    at("readlinkat", SYS_readlinkat, d, "a", L(buffer), sizeof buffer, 0);
    at2("renameat", SYS_renameat, d, "a", e, "b", 0);
    at2("renameat2", SYS_renameat2, e, "b", d, "a", 1);
    at2("linkat", SYS_linkat, d, "a", AT_FDCWD, "linked", 0);
    note((what){.call = "symlinkat", .number = SYS_symlinkat, .fd = NOTHING, .dirfd = d, .given = "s"},
         L("target"), d, L("s"), 0, 0, 0);
    at("unlinkat", SYS_unlinkat, d, "s", 0, 0, 0);
    at("unlinkat", SYS_unlinkat, e, "f", AT_REMOVEDIR, 0, 0);
    checked(rename("d", "D"), "rename");
    remember(d, NAMES(in("D")), MUST);
    at("newfstatat", SYS_newfstatat, d, "a", L(&s), 0, 0);
    at("newfstatat", SYS_newfstatat, 999, "a", L(&s), 0, 0);
    close(d);
    close(e);
}

/* Strings that the kernel refuses or that are hard to read: NULL, unmapped, of the greatest length. */
static void hard_texts(void)
{
    struct stat s;
    char *pages = mmap(NULL, 4 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        die("mmap");
    checked(munmap(pages + (3 << 12), 1 << 12), "munmap");
    char *end = pages + (3 << 12);
    strcpy(end - 7, "absent");
    path1("stat", SYS_stat, end - 7, L(&s), 0, 0);
    strcpy(pages + 4093, "across");
    path1("stat", SYS_stat, pages + 4093, L(&s), 0, 0);
    path1("stat", SYS_stat, "", L(&s), 0, 0);
    path1("stat", SYS_stat, "\xff\n\x01 x", L(&s), 0, 0);
    char *longest = malloc(5000);
    memset(longest, 'x', 5000);
    for (int i = 0; i < 4095; i += 100)
        longest[i] = '/';
    longest[4095] = 0;
    path1("stat", SYS_stat, longest, L(&s), 0, 0);
    longest[4095] = 'x', longest[4999] = 0;
    note((what){.call = "stat", .number = SYS_stat, .fd = NOTHING, .dirfd = AT_FDCWD, .know = MAY, .given = longest}, L(longest), L(&s), 0, 0, 0, 0);
    note((what){.call = "stat", .number = SYS_stat, .fd = NOTHING}, 0, L(&s), 0, 0, 0, 0);
    note((what){.call = "stat", .number = SYS_stat, .fd = NOTHING}, L(end), L(&s), 0, 0, 0, 0);
    free(longest);
}

const scenario path_scenarios[] = {
    {"one-path", one_path, "stat, mkdir, unlink and their like: absolute, relative, failing"},
    {"two-paths", two_paths, "rename, link, symlink"},
    {"relative-paths", relative, "relative to descriptors"},
    {"hard-texts", hard_texts, "null, invalid, across pages, of the greatest length"},
    {NULL, NULL, NULL},
};
