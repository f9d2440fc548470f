/* Callbacks of libotf2, which writes all files but those of events. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "api/all.h"

/*
 * libotf2 asks for a second chunk as soon as the first is full. It hears "no memory", asks whether to flush, hears
 * "yes", writes the chunk, gives it back, and gets it again. Else it would collect up to 128 MiB before it writes any.
 */
enum { FLUSH = 1 }; /* OTF2_FlushType */

static void *allocate(void *user, uint8_t file_type, uint64_t location, void **chunk, uint64_t size)
{
    return *chunk ? NULL : (*chunk = malloc(size));
}

static void free_all(void *user, uint8_t file_type, uint64_t location, void **chunk, bool final)
{
    free(*chunk);
    *chunk = NULL;
}

static uint8_t pre_flush(void *user, uint8_t file_type, uint64_t location, void *caller, bool final) { return FLUSH; }

void *lo2_otf2_allocate_callback(void) { return (void *)allocate; }

void *lo2_otf2_free_all_callback(void) { return (void *)free_all; }

void *lo2_otf2_pre_flush_callback(void) { return (void *)pre_flush; }

/*
 * OTF2_CollectiveCallbacks of a process that is not the first one of its archive: it makes neither the folder nor the anchor.
 * With plain files, libotf2 asks for the rank, and whether the first process has made the folder (OTF2_Archive.c). The answer
 * is yes.
 */
enum { SUCCESS = 0, ERROR = 1, TYPE_INT64 = 8 }; /* OTF2_CallbackCode, OTF2_Type */

static int rank(void *user, void *context, uint32_t *rank)
{
    *rank = 1;
    return SUCCESS;
}

static int size(void *user, void *context, uint32_t *size)
{
    *size = 2;
    return SUCCESS;
}

static int broadcast(void *user, void *context, void *values, uint32_t nr_values, uint8_t type, uint32_t root)
{
    if (type == TYPE_INT64) /* an error code */
        memset(values, 0, nr_values * sizeof(int64_t));
    return SUCCESS;
}

static int refuse(void) { return ERROR; }

const void *lo2_otf2_other_rank(void)
{
    enum { RELEASE = 0, SIZE = 1, RANK = 2, BROADCAST = 6, NR_CALLBACKS = 11 }; /* their places in the structure */
    static void *callbacks[NR_CALLBACKS];
    for (int i = RELEASE + 1; i < NR_CALLBACKS; i++)
        callbacks[i] = (void *)refuse;
    callbacks[SIZE] = (void *)size;
    callbacks[RANK] = (void *)rank;
    callbacks[BROADCAST] = (void *)broadcast;
    return callbacks;
}
