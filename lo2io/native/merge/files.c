/*
 * Files and handles. A file of a shared file system is one file for all hosts that mount it from the same source: its
 * scope is the merged archive's root. Any other file belongs to its host, and its name ends with " @host". Handles that no
 * event names are left out, and files without a handle.
 */
#include "merge/merge.h"

/* File systems that several hosts have in common, by their name in mountinfo; "fuse.": with any of the names after it. */
static const char *const shared_file_systems[] = {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "9p",
                                                  "afs", "ocfs2", "gfs2", "orangefs", "glusterfs", "cephfs", "sshfs",
                                                  "juicefs", "daos", "weka", "wekafs", "panfs", "pvfs2", "quobyte"};

static bool is_shared(const char *file_system)
{
    if (!strncmp(file_system, "fuse.", 5))
        file_system += 5;
    for (size_t i = 0; i < sizeof shared_file_systems / sizeof *shared_file_systems; i++)
        if (!strcmp(file_system, shared_file_systems[i]))
            return true;
    return false;
}

static int write_file(lo2_merge *m, const file_row *row, uint32_t ref, uint32_t name, uint32_t scope)
{
    if (row->directory)
        WRITE(m, write_directory, (void *, uint32_t, uint32_t, uint32_t), ref, name, scope);
    else
        WRITE(m, write_regular_file, (void *, uint32_t, uint32_t, uint32_t), ref, name, scope);
    return 0;
}

static int shared_file(lo2_merge *m, const file_row *row, uint32_t *ref)
{
    uint32_t name, source, *known;
    TRY(merge_string(m, row->name, &name));
    TRY(merge_string(m, row->source, &source));
    const uint32_t words[] = {SHARED_FILE, name, source, row->directory};
    TRY(contents_find(m, &m->of_records, words, sizeof words, &known));
    if (*known == NONE) {
        *known = m->next_file++;
        TRY(write_file(m, row, *known, name, m->root));
    }
    *ref = *known;
    return 0;
}

static int file(lo2_merge *m, uint32_t own, uint32_t *ref)
{
    uint32_t place = id_map_get(&m->file_rows, own), name;
    *ref = id_map_get(&m->files, own);
    if (*ref != NONE || place == NONE)
        return 0;
    const file_row *row = &m->part.files.at[place];
    if (is_shared(merge_text(m, row->file_system))) {
        TRY(shared_file(m, row, ref));
    } else {
        *ref = m->next_file++;
        TRY(merge_suffixed(m, row->name, &name));
        TRY(id_map_set(m, &m->local_files, own, 1));
        TRY(write_file(m, row, *ref, name, id_map_get(&m->nodes, row->scope)));
    }
    return id_map_set(m, &m->files, own, *ref);
}

static int handle(lo2_merge *m, const handle_row *row)
{
    uint32_t name, of;
    TRY(file(m, row->file, &of));
    bool local = id_map_get(&m->local_files, row->file) != NONE;
    TRY(local ? merge_suffixed(m, row->name, &name) : merge_string(m, row->name, &name));
    uint32_t ref = id_map_get(&m->handles, row->id);
    WRITE(m, write_handle, (void *, uint32_t, uint32_t, uint32_t, uint8_t, uint32_t, uint32_t, uint32_t), ref, name, of,
          (uint8_t)id_map_get(&m->paradigms, row->paradigm), row->flags, NONE, id_map_get(&m->handles, row->parent));
    if (row->has_state)
        WRITE(m, write_handle_state, (void *, uint32_t, uint8_t, uint32_t), ref, row->access, row->status);
    return 0;
}

/* Marks the handles that events name, and their parents. */
static int mark_used(lo2_merge *m, const uint64_t *used, uint64_t nr_used)
{
    m->used_handles.nr = 0;
    for (size_t i = 0; i < m->part.handles.nr; i++)
        while (m->part.handles.at[i].id >= m->used_handles.nr)
            TRY(PUSH(m, m->used_handles, (uint8_t)(used == NULL)));
    for (uint64_t i = 0; i < nr_used; i++) {
        uint32_t id = (uint32_t)used[i];
        if (used_kind(used[i]) != LO2_USED_HANDLE)
            continue;
        while (id < m->used_handles.nr && !m->used_handles.at[id]) {
            m->used_handles.at[id] = 1;
            uint32_t place = id_map_get(&m->handle_rows, id);
            id = place == NONE ? NONE : m->part.handles.at[place].parent;
        }
    }
    return 0;
}

int merge_handles(lo2_merge *m, const uint64_t *used, uint64_t nr_used)
{
    TRY(mark_used(m, used, nr_used));
    for (size_t i = 0; i < m->part.handles.nr; i++) /* a parent may come later */
        if (m->used_handles.at[m->part.handles.at[i].id])
            TRY(id_map_set(m, &m->handles, m->part.handles.at[i].id, m->next_handle++));
    for (size_t i = 0; i < m->part.handles.nr; i++)
        if (m->used_handles.at[m->part.handles.at[i].id])
            TRY(handle(m, &m->part.handles.at[i]));
    for (size_t i = 0; !used && i < m->part.files.nr; i++) { /* events may name any file */
        uint32_t ref;
        TRY(file(m, m->part.files.at[i].id, &ref));
    }
    return 0;
}
