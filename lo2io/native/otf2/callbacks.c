#include <stdbool.h>
#include <string.h>

#include "api/all.h"

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
