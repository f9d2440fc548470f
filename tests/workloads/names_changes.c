/* Names that change: before, while and after a file is open. */
#include "names.h"

static void renamed(void)
{
    make("a", "a");
    int before = open_here("a", O_RDONLY);
    read_byte(before);
    checked(rename("a", "b"), "rename");
    read_byte(before);
    int after = open_here("b", O_RDONLY);
    read_byte(after);
    read_byte(before);
    close_it(before);
    make("a", "A");
    round_trip("a", O_RDONLY, in("a"));
    checked(rename("b", "c"), "rename");
    read_byte(after);
    close_it(after);
    round_trip("c", O_RDONLY, in("c"));
}

static void renamed_above(void)
{
    make_folder("d");
    make_folder("d/e");
    make("d/e/f", "f");
    int file = open_here("d/e/f", O_RDONLY), dir = open_here("d/e", O_RDONLY | O_DIRECTORY);
    checked(rename("d", "moved"), "rename");
    read_byte(file);
    int same = open_at(dir, "f", O_RDONLY, in("moved/e/f"));
    read_byte(same);
    make_folder("d");
    checked(rename("moved/e", "d/e"), "rename");
    int third = open_at(dir, "f", O_RDONLY, in("d/e/f"));
    read_byte(third);
    read_byte(same);
    read_byte(file);
    round_trip("d/e/f", O_RDWR, in("d/e/f"));
    close_it(file);
    close_it(same);
    close_it(third);
    close_it(dir);
}

static void replaced(void)
{
    make("a", "a");
    make("b", "b");
    int a = open_here("a", O_RDONLY), b = open_here("b", O_RDONLY);
    checked(rename("a", "b"), "rename");
    if (read_byte(a) != 'a' || read_byte(b) != 'b')
        die("replaced");
    int now = open_here("b", O_RDONLY);
    if (read_byte(now) != 'a')
        die("replaced");
    close_it(a);
    close_it(b);
    close_it(now);
}

static void exchanged(void)
{
    make("a", "a");
    make("b", "b");
    for (int i = 0; i < 6; i++) {
        int a = open_here("a", O_RDONLY), b = open_here("b", O_RDONLY);
        checked(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE), "renameat2");
        int other = open_here("a", O_RDONLY);
        if (read_byte(a) != "ab"[i % 2] || read_byte(b) != "ba"[i % 2] || read_byte(other) != "ba"[i % 2])
            die("exchanged");
        close_it(a);
        close_it(b);
        close_it(other);
    }
}

static void unlinked(void)
{
    make("a", "a");
    int fd = open_here("a", O_RDWR);
    checked(unlink("a"), "unlink");
    read_byte(fd);
    int second = (int)note((what){.call = "dup", .number = SYS_dup, .opens = true, .fd = fd, .names = names_of(fd)}, fd, 0, 0, 0, 0, 0);
    read_byte(second);
    close_it(fd);
    make("a", "A");
    round_trip("a", O_RDONLY, in("a"));
    read_byte(second);
    checked(unlink("a"), "unlink");
    close_it(second);
    make_folder("d");
    make_folder("d/e");
    int d = open_here("d/e", O_RDONLY | O_DIRECTORY);
    checked(rmdir("d/e"), "rmdir");
    use(d);
    open_at(d, "x", O_RDWR | O_CREAT, NULL);
    open_at(d, "..", O_RDONLY, NULL);
    checked(rmdir("d"), "rmdir");
    use(d);
    close_it(d);
}

/* On ext4, inode numbers are used again at once; only the generation tells such files apart. */
static void again(void)
{
    for (int i = 0; i < 40; i++) {
        const char *name = text("f%d", i % 3 ? 0 : i);
        int fd = open_as(name, O_RDWR | O_CREAT | O_EXCL, in(name));
        use(fd);
        if (i % 2)
            close_it(fd);
        checked(unlink(name), "unlink");
        if (i % 2 == 0) {
            use(fd);
            close_it(fd);
        }
    }
}

static void hard_links(void)
{
    make("a", "a");
    make_folder("d");
    checked(link("a", "b"), "link");
    checked(link("a", "d/c"), "link");
    int a = open_here("a", O_RDONLY), b = open_here("b", O_RDWR), c = open_here("d/c", O_RDONLY);
    read_byte(a);
    read_byte(b);
    read_byte(c);
    checked(unlink("a"), "unlink");
    read_byte(a);
    checked(rename("b", "a"), "rename");
    int now = open_here("a", O_RDONLY);
    read_byte(now);
    read_byte(b);
    round_trip("d/c", O_RDONLY, in("d/c"));
    close_it(a);
    close_it(b);
    close_it(c);
    close_it(now);
}

static void linked_later(void)
{
    int fd = open_here("a", O_RDWR | O_CREAT);
    checked(link("a", "b"), "link");
    checked(unlink("a"), "unlink");
    use(fd);
    round_trip("b", O_RDONLY, in("b"));
    checked(unlink("b"), "unlink");
    use(fd);
    close_it(fd);
}

const scenario change_scenarios[] = {
    {"renamed", renamed, "a file, while it is open and afterwards"},
    {"renamed-above", renamed_above, "the folder of an open file, and the one above it"},
    {"replaced", replaced, "rename onto an open file"},
    {"exchanged", exchanged, "two files swap their names again and again"},
    {"unlinked", unlinked, "open files and folders that are deleted; a new one of the same name"},
    {"again", again, "made and deleted many times: inode numbers come again"},
    {"hard-links", hard_links, "one file by three names, each handle by its own"},
    {"linked-later", linked_later, "the name of its opening goes, another stays"},
    {NULL, NULL, NULL},
};
