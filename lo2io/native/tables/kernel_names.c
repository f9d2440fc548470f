/*
 * Names of files, put together from the names that BPF programs found on the way from the file up to the root. The
 * result is what /proc/PID/fd would show to a process outside of every chroot (d_path, fs/d_path.c).
 */
#include <stdarg.h>
#include <stdio.h>

#include "tables/kernel_names.h"

/* include/uapi/linux/magic.h; kernels without tmpfs have ramfs in its place */
enum { PIPEFS = 0x50495045, SOCKFS = 0x534f434b, ANON_INODE_FS = 0x09041934, NSFS = 0x6e736673, PID_FS = 0x50494446,
       TMPFS = 0x01021994, SECRETMEM = 0x5345434d };
static const uint32_t HUGETLBFS = 0x958458f6, RAMFS = 0x858458f6;
static const char DELETED[] = " (deleted)";

static char *room_for(engine *e, uint32_t length)
{
    e->name.count = 0;
    if (!VEC_ROOM(&e->name, length + 1)) {
        e->out_of_memory = true;
        return NULL;
    }
    e->name.count = length;
    return e->name.at;
}

__attribute__((format(printf, 2, 3))) static bool named(engine *e, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = length < 0 ? NULL : room_for(e, (uint32_t)length);
    if (!text)
        return false;
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return true;
}

/*
 * Names that the kernel's own file systems make (d_dname): fs/pipe.c, net/socket.c, fs/anon_inodes.c, fs/nsfs.c,
 * fs/pidfs.c, fs/d_path.c.
 */
static bool pseudo_name(engine *e, const lo2_kernel_file *fact, const char *name)
{
    unsigned long long inode = fact->inode;
    switch (fact->magic) {
    case PIPEFS: return named(e, "pipe:[%llu]", inode);
    case SOCKFS: return named(e, "socket:[%llu]", inode);
    case ANON_INODE_FS: return *name && named(e, "anon_inode:%s", name);
    case NSFS: return *name && named(e, "%s:[%llu]", name, inode);
    case PID_FS: return named(e, "anon_inode:[pidfd]");
    case TMPFS:
    case SECRETMEM: return *name && named(e, "/%s%s", name, DELETED);
    default: /* other file systems have a d_dname of their own, or may get one */
        return (fact->magic == HUGETLBFS || fact->magic == RAMFS) && *name && named(e, "/%s%s", name, DELETED);
    }
}

/* True if these are names that a directory can hold: not empty, without a slash, each ended by a zero byte. */
static bool are_names(const char *names, uint32_t length)
{
    if (length && names[length - 1])
        return false;
    for (uint32_t i = 0; i < length; i++)
        if (names[i] == '/' || (!names[i] && (i == 0 || !names[i - 1])))
            return false;
    return true;
}

/* Joins the names, which come from the file upwards, to a path. The path has a slash for each zero byte. */
static bool join(engine *e, const char *names, uint32_t length, uint32_t more)
{
    char *at = are_names(names, length) ? room_for(e, length + more) : NULL;
    if (!at)
        return false;
    for (uint32_t end = length; end;) {
        uint32_t begin = end - 1;
        while (begin && names[begin - 1])
            begin--;
        *at++ = '/';
        memcpy(at, names + begin, end - 1 - begin);
        at += end - 1 - begin;
        end = begin;
    }
    return true;
}

bool kernel_name_of(engine *e, const lo2_kernel_file *fact, const char *names)
{
    uint32_t length = fact->names_length;
    if (fact->flags & LO2_FILE_PSEUDO)
        return (!length || !names[length - 1]) && strlen(length ? names : "") + 1 >= length && pseudo_name(e, fact, length ? names : "");
    if (!(fact->flags & LO2_FILE_WHOLE) || (fact->flags & LO2_FILE_MOVED))
        return false;
    if (!length)
        return named(e, "/");
    uint32_t more = fact->flags & LO2_FILE_DELETED ? sizeof DELETED - 1 : 0;
    if (!join(e, names, length, more))
        return false;
    memcpy(e->name.at + length, DELETED, more);
    return true;
}

bool kernel_directory_of(engine *e, uint8_t flags, const char *names, uint32_t length)
{
    return (flags & LO2_FILE_WHOLE) && !(flags & LO2_FILE_MOVED) && join(e, names, length, 0);
}
