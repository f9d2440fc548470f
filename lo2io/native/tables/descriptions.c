/* Open file descriptions: the file, name, flags and position of each. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tables/descriptions.h"
#include "tables/files.h"
#include "tables/inodes.h"
#include "tables/kernel_names.h"

enum { MINOR_BITS = 20 };
static const uint32_t BTRFS = 0x9123683e; /* include/uapi/linux/magic.h */

uint32_t description_new(engine *e)
{
    uint32_t index;
    TAKE(e, free_descriptions, descriptions, index);
    if (index != NONE)
        e->descriptions.at[index] = (description){.number = e->next_description++, .file = NONE, .position = UNKNOWN,
                                                  .last_moved = UNKNOWN, .open_flags = NONE, .first_use = UNKNOWN,
                                                  .append = APPENDS_MAYBE, .foreign = e->config.moves_unseen};
    return index;
}

void description_release(engine *e, uint32_t index)
{
    description *d = &e->descriptions.at[index];
    if (--d->refs)
        return;
    if (d->ring || d->ring_fact)
        e->tell.description_gone(e, index);
    GIVE_BACK(e, free_descriptions, index);
}

/*
 * A fact shows the position of a description at rest. If no position is known, the description takes over the fact's. If
 * the known position differs, the description's position is no longer followed.
 */
void compare_position(description *d, uint32_t mode, int64_t position, int64_t begin)
{
    if (S_ISFIFO(mode) || S_ISSOCK(mode) || S_ISCHR(mode)) {
        d->foreign = 1;
        d->position = UNKNOWN;
        return;
    }
    bool at_rest = !d->moving && (d->last_moved == UNKNOWN || d->last_moved <= begin);
    if (d->foreign || position == UNKNOWN || !at_rest)
        return;
    if (d->position == UNKNOWN) {
        d->position = position;
    } else if (d->position != position) {
        d->foreign = 1;
        d->position = UNKNOWN;
    }
}

/* Takes over the flags of a description whose opening was not seen. */
void learn_flags(engine *e, const slot *s, description *d, uint32_t open_flags)
{
    if (d->open_flags != NONE || open_flags == NONE)
        return;
    d->open_flags = open_flags;
    d->append = (open_flags & O_APPEND) ? APPENDS : APPENDS_NOT;
    if (!s->inherited)
        e->handles.at[s->handle].open_flags = open_flags;
}

void description_named(engine *e, description *d, const file_facts *facts, const char *path)
{
    uint32_t file = file_of(e, facts, path);
    if (file != NONE) {
        d->file = file;
        d->name_source = facts->source;
    }
}

/* The path as the program gave it: perhaps relative, and of a file on which nobody called stat(2). */
void name_from_call(engine *e, description *d, const char *path, uint32_t length)
{
    const file_facts as_given = {.generation = UNKNOWN, .mount = NONE, .links = NONE, .path_length = length, .source = NAME_CALL};
    if (length)
        description_named(e, d, &as_given, path);
}

static uint8_t cached_as(const lo2_kernel_file *of)
{
    /* include/uapi/linux/magic.h */
    enum { TMPFS = 0x01021994, RAMFS = (int)0x858458f6, HUGETLBFS = (int)0x958458f6, OVERLAYFS = 0x794c7630 };
    switch ((int)of->magic) {
    case TMPFS: /* also that of device nodes */
    case RAMFS:
    case HUGETLBFS:
        if (S_ISREG(of->mode))
            return CACHED_MEMORY;
        break;
    case OVERLAYFS: return S_ISREG(of->mode) ? CACHED_BELOW : CACHED_NOT;
    default: break;
    }
    if (!(of->flags & LO2_FILE_CACHED))
        return CACHED_NOT;
    return S_ISBLK(of->mode) ? CACHED_DEVICE : S_ISREG(of->mode) ? CACHED_PAGES : CACHED_NOT;
}

void description_learns(engine *e, uint32_t index, const lo2_kernel_file *of, const char *names)
{
    description *d = &e->descriptions.at[index];
    d->has_identity = true;
    d->address = of->file;
    d->inode = of->inode;
    d->device = of->device;
    d->generation = of->generation;
    d->cached = cached_as(of);
    if (d->name_source == NAME_KERNEL || !kernel_name_of(e, of, names))
        return;
    uint64_t device = makedev(of->device >> MINOR_BITS, of->device & ((1u << MINOR_BITS) - 1));
    const file_facts facts = {.device = of->magic == BTRFS ? 0 : device, .inode = of->inode, .generation = of->generation,
                              .mode = of->mode, .mount = of->mount, .links = of->links,
                              .path_length = e->name.count, .source = NAME_KERNEL};
    description_named(e, d, &facts, e->name.at);
    if (d->file != NONE)
        inode_shown(e, of->device, of->inode, of->generation, d->file);
}
