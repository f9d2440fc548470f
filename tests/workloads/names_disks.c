/* File systems on disks of the test's own: --disk ext4=/dev/loop0, and so on. */
#include "names.h"

#include <linux/btrfs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

static const char *type;

static void mount_disk(void)
{
    checked(unshare(CLONE_NEWNS), "unshare");
    checked(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "mount");
    checked(mount(disk_of(type), "m", type, 0, NULL), "mount");
}

static void common(void)
{
    make_folder("m/d");
    make("m/d/a", "a");
    round_trip("m/d/a", O_RDWR, in("m/d/a"));
    int fd = open_here("m/d/a", O_RDONLY);
    checked(rename("m/d/a", "m/b"), "rename");
    read_byte(fd);
    round_trip("m/b", O_RDONLY, in("m/b"));
    checked(unlink("m/b"), "unlink");
    read_byte(fd);
    close_it(fd);
    for (int i = 0; i < 5; i++) {
        fd = open_as(text("m/d/%d", i), O_RDWR | O_CREAT, in(text("m/d/%d", i)));
        use(fd);
        close_it(fd);
        checked(unlink(text("m/d/%d", i)), "unlink");
    }
    round_trip("m", O_RDONLY | O_DIRECTORY, in("m"));
    round_trip(disk_of(type), O_RDONLY, disk_of(type));
}

/* A file opened by a handle: its directories were not read, so memory has no name of it, and /proc shows a wrong one. */
static void by_handle_cold(void)
{
    struct {
        struct file_handle head;
        char bytes[128];
    } handle = {.head.handle_bytes = 128};
    int mount_id;
    make_folder("m/deep");
    make("m/deep/f", "f");
    checked(name_to_handle_at(AT_FDCWD, "m/deep/f", &handle.head, &mount_id, 0), "name_to_handle_at");
    checked(umount2("m", 0), "umount2");
    checked(mount(disk_of(type), "m", type, 0, NULL), "mount");
    int top = open_as("m", O_RDONLY | O_DIRECTORY, in("m"));
    int fd = (int)checked(note((what){.call = "open_by_handle_at", .number = SYS_open_by_handle_at, .opens = true, .fd = NOTHING, .know = MAY,
                                      .names = NAMES(in("m/deep/f"))}, top, L(&handle), O_RDONLY, 0, 0, 0), "open_by_handle_at");
    read_byte(fd);
    round_trip("m/deep/f", O_RDONLY, in("m/deep/f"));
    close_it(fd);
    close_it(top);
}

static void in_common(void)
{
    mount_disk();
    common();
    by_handle_cold();
}

static void in_btrfs(void)
{
    struct btrfs_ioctl_vol_args volume = {.name = "sub"};
    mount_disk();
    common();
    int top = (int)checked(open("m", O_RDONLY), "m");
    checked(ioctl(top, BTRFS_IOC_SUBVOL_CREATE, &volume), "subvolume");
    make("m/sub/f", "f");
    int sub = (int)checked(open("m/sub", O_RDONLY), "m/sub");
    struct btrfs_ioctl_vol_args_v2 copy = {.fd = sub, .name = "copy"};
    checked(ioctl(top, BTRFS_IOC_SNAP_CREATE_V2, &copy), "snapshot");
    close(sub);
    close(top);
    round_trip("m/sub/f", O_RDONLY, in("m/sub/f"));
    int first = open_here("m/sub/f", O_RDONLY), second = open_here("m/copy/f", O_RDONLY);
    read_byte(first);                     /* the same inode number in two subvolumes */
    read_byte(second);
    make_folder("s");
    checked(mount(disk_of(type), "s", type, 0, "subvol=sub"), "mount");
    round_trip("s/f", O_RDWR, in("s/f"));
    checked(rename("m/copy", "m/renamed"), "rename");
    read_byte(second);
    round_trip("m/renamed/f", O_RDONLY, in("m/renamed/f"));
    round_trip("m/sub", O_RDONLY | O_DIRECTORY, in("m/sub"));
    round_trip("s", O_RDONLY | O_DIRECTORY, in("s"));
    close_it(first);
    close_it(second);
}

static void ext4(void)
{
    type = "ext4";
    make_folder("m");
    in_child(in_common);
}

static void xfs(void)
{
    type = "xfs";
    make_folder("m");
    in_child(in_common);
}

static void btrfs(void)
{
    type = "btrfs";
    make_folder("m");
    in_child(in_btrfs);
}

const scenario disk_scenarios[] = {
    {"ext4", ext4, "on a disk; a file opened by its handle before anybody looked for its name"},
    {"xfs", xfs, "the same"},
    {"btrfs", btrfs, "subvolumes and snapshots: equal inode numbers, devices of their own"},
    {NULL, NULL, NULL},
};
