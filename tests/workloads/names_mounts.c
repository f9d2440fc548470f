/* Mounts of all kinds, each in a child with its own mount namespace, with which the mounts end. */
#include "names.h"

#include <linux/mount.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#ifndef SYS_open_tree
#define SYS_open_tree 428
#define SYS_fsopen 430
#define SYS_fsconfig 431
#define SYS_fsmount 432
#endif

static void own_mounts(void)
{
    checked(unshare(CLONE_NEWNS), "unshare");
    checked(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "mount");
}

static void mount_tmpfs(const char *at)
{
    checked(mount("none", at, "tmpfs", 0, "size=1m"), at);
}

static void in_bind(void)
{
    own_mounts();
    checked(mount("a", "b", NULL, MS_BIND, NULL), "mount");
    checked(mount("a/f", "g", NULL, MS_BIND, NULL), "mount");
    round_trip("a/f", O_RDONLY, in("a/f"));
    round_trip("b/f", O_RDONLY, in("b/f"));
    round_trip("g", O_RDONLY, in("g"));
    round_trip("b/e/h", O_RDONLY, in("b/e/h"));
    round_trip("b", O_RDONLY | O_DIRECTORY, in("b"));
    checked(mount("b/e", "c", NULL, MS_BIND, NULL), "mount");
    int fd = open_here("c/h", O_RDONLY);
    checked(rename("a/e", "a/E"), "rename");
    read_byte(fd);
    round_trip("c/h", O_RDONLY, in("c/h"));
    round_trip("b/E/h", O_RDONLY, in("b/E/h"));
    close_it(fd);
}

static void bind(void)
{
    make_folder("a");
    make_folder("a/e");
    make_folder("b");
    make_folder("c");
    make("a/f", "f");
    make("a/e/h", "h");
    make("g", "g");
    int outside = open_here("a/f", O_RDONLY);
    in_child(in_bind);
    read_byte(outside);
    close_it(outside);
}

static void in_tmpfs(void)
{
    own_mounts();
    int below = open_here("t/f", O_RDONLY);
    mount_tmpfs("t");
    make("t/f", "1");
    int first = open_here("t/f", O_RDONLY);
    mount_tmpfs("t");                     /* the second hides the first */
    make("t/f", "2");
    make_folder("t/u");
    mount_tmpfs("t/u");
    make("t/u/g", "3");
    if (read_byte(below) != '0' || read_byte(first) != '1')
        die("hidden files");
    round_trip("t/f", O_RDONLY, in("t/f"));
    int inner = open_here("t/u/g", O_RDONLY);
    make_folder("v");
    checked(mount("t", "v", NULL, MS_MOVE, NULL), "mount");
    read_byte(inner);
    round_trip("v/u/g", O_RDONLY, in("v/u/g"));
    round_trip("t/f", O_RDONLY, in("t/f"));
    int dir = open_here("v/u", O_RDONLY | O_DIRECTORY);
    /* No path leads there any more, so the files have no known path. But they are still the same files. */
    checked(umount2("v/u", MNT_DETACH), "umount2");
    read_byte(inner);
    int gone = (int)note((what){.call = "openat", .number = SYS_openat, .opens = true, .fd = NOTHING, .dirfd = dir, .know = MAY},
                         dir, L("g"), O_RDONLY, 0, 0, 0);
    read_byte(gone);
    close_it(gone);
    close_it(dir);
    close_it(inner);
    close_it(first);
    close_it(below);
}

static void tmpfs(void)
{
    make_folder("t");
    make("t/f", "0");
    in_child(in_tmpfs);
}

static void in_detached(void)
{
    own_mounts();
    int tree = (int)checked(syscall(SYS_open_tree, AT_FDCWD, "d", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC), "open_tree");
    int fs = (int)checked(syscall(SYS_fsopen, "tmpfs", 0), "fsopen");
    checked(syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0), "fsconfig");
    int new = (int)checked(syscall(SYS_fsmount, fs, 0, 0), "fsmount");
    const int trees[] = {tree, new};
    for (int i = 0; i < 2; i++) {
        int fd = (int)note((what){.call = "openat", .number = SYS_openat, .opens = true, .fd = NOTHING, .dirfd = trees[i], .know = MAY},
                           trees[i], L("f"), O_RDWR | O_CREAT, 0600, 0, 0);
        read_byte(fd);
        close_it(fd);
    }
    close(new);
    close(fs);
    close(tree);
}

static void detached(void)
{
    make_folder("d");
    make("d/f", "f");
    in_child(in_detached);
}

/* A call whose descriptor has a link from inside of the chroot in /proc. */
static int open_inside(const char *given, const char *name)
{
    return (int)checked(note((what){.call = "openat", .number = SYS_openat, .opens = true, .fd = NOTHING, .dirfd = AT_FDCWD, .inside = true,
                                    .names = NAMES(name), .given = given},
                             AT_FDCWD, L(given), O_RDONLY, 0, 0, 0), given);
}

static void in_chroot(void)
{
    int before = open_as("../f", O_RDONLY, in("f"));
    checked(chroot(in("root")), "chroot");
    int up = open_inside("../f", in("f"));  /* the working directory is still outside */
    checked(chdir("/"), "chdir");
    int a = open_inside("/f", in("root/f"));
    int b = open_inside("d/g", in("root/d/g"));
    int c = open_inside("../../f", in("root/f"));
    read_byte(a);
    read_byte(b);
    read_byte(c);
    read_byte(before);
    read_byte(up);
    checked(chroot("d"), "chroot");
    int d = open_inside("/g", in("root/d/g"));
    read_byte(d);
    close_it(before);
    close_it(up);
    close_it(a);
    close_it(b);
    close_it(c);
    close_it(d);
}

static void chroots(void)
{
    make("f", "o");
    make_folder("work");
    make_folder("root");
    make_folder("root/d");
    make("root/f", "f");
    make("root/d/g", "g");
    checked(chdir("work"), "chdir");
    in_child(in_chroot);
    checked(chdir(folder), folder);
}

static void in_pivot(void)
{
    own_mounts();
    int before = open_here("outside", O_RDONLY);
    mount_tmpfs("root");
    make_folder("root/old");
    make_folder("root/d");
    make("root/d/f", "f");
    int early = open_here("root/d/f", O_RDONLY);
    checked(chdir("root"), "chdir");
    checked(syscall(SYS_pivot_root, ".", "old"), "pivot_root");
    checked(chdir("/"), "chdir");
    int a = open_inside("/d/f", "/d/f");
    int b = open_inside(text("/old%s", in("outside")), text("/old%s", in("outside")));
    read_byte(a);
    read_byte(b);
    read_byte(early);
    read_byte(before);
    close_it(a);
    close_it(b);
    close_it(early);
    close_it(before);
}

static void pivot(void)
{
    make("outside", "o");
    make_folder("root");
    in_child(in_pivot);
}

static void in_overlay(void)
{
    own_mounts();
    checked(mount("overlay", "merged", "overlay", 0, text("lowerdir=%s,upperdir=%s,workdir=%s", in("lower"), in("upper"), in("work"))), "overlay");
    round_trip("merged/low", O_RDONLY, in("merged/low"));
    round_trip("merged/up", O_RDONLY, in("merged/up"));
    round_trip("merged/d/both", O_RDONLY, in("merged/d/both"));
    round_trip("lower/low", O_RDONLY, in("lower/low"));
    int low = open_here("merged/low", O_RDONLY);
    int copied = open_here("merged/low", O_RDWR);  /* now upper has one, too */
    checked(pwrite(copied, "L", 1, 0), "pwrite");
    read_byte(low);
    read_byte(copied);
    round_trip("merged/low", O_RDONLY, in("merged/low"));
    round_trip("upper/low", O_RDONLY, in("upper/low"));
    round_trip("merged/new", O_RDWR | O_CREAT, in("merged/new"));
    checked(rename("merged/new", "merged/d/new2"), "rename");
    round_trip("merged/d/new2", O_RDWR, in("merged/d/new2"));
    round_trip("merged/d", O_RDONLY | O_DIRECTORY, in("merged/d"));
    checked(unlink("merged/low"), "unlink");
    read_byte(low);
    close_it(low);
    close_it(copied);
}

static void overlay(void)
{
    static const char *const folders[] = {"lower", "lower/d", "upper", "upper/d", "work", "merged"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        make_folder(folders[i]);
    make("lower/low", "l");
    make("lower/d/both", "l");
    make("upper/up", "u");
    make("upper/d/both", "u");
    in_child(in_overlay);
}

const scenario mount_scenarios[] = {
    {"bind", bind, "one folder and one file at several places"},
    {"tmpfs", tmpfs, "mounts over folders, over mounts, inside of mounts, moved, taken away with files open"},
    {"detached", detached, "mounts that stand nowhere"},
    {"chroot", chroots, "two, one inside of the other, with files of outside"},
    {"pivot-root", pivot, "another root for a mount namespace"},
    {"overlayfs", overlay, "upper, lower, both; copied up"},
    {NULL, NULL, NULL},
};
