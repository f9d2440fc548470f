/* Descriptors: tables of slots, the handles in them, the open file descriptions behind those. Who changes them: tables/descriptors.c. */
#ifndef LO2IO_FDS_H
#define LO2IO_FDS_H

#include "input/vectors.h"

typedef struct {
    uint32_t refs, number, file;
    uint32_t moving;              /* pending calls that move the position */
    int64_t position, last_moved; /* position UNKNOWN: not known */
    uint8_t overlapped;           /* such calls overlapped since moving was 0 */
    uint32_t open_flags;          /* NONE: unknown */
    uint32_t ring, ring_number;   /* index + 1 of the ring it is, 0: none that is known; and its number, for slots are used again */
    uint32_t ring_fact;           /* what fdinfo said, for a ring not known yet: index + 1 */
    uint8_t append;               /* enum appends */
    uint8_t foreign;              /* moved by others too, or no position at all: never followed again */
    uint8_t name_source;
    bool has_identity;            /* the kernel's own programs have told which one it is: */
    uint32_t generation;          /* ... of the inode */
    uint64_t address, device, inode;
    int64_t first_use;            /* of a call on it, or its opening; UNKNOWN: none that was seen */
} description;

typedef struct {
    uint32_t refs;                /* slots (own and inherited) and pending calls */
    uint32_t number, description, parent, process, task, open_flags;
    int32_t fd;
    int64_t open_time;
    uint8_t origin, used, ended;
} handle;

/*
 * What shares a table can end a slot while somebody else's call is about to find out what is in it. `ending`: pending
 * calls that may end what is there; `blind`: of them, those that may end what is put there meanwhile, too (the slot was
 * thought empty at their entry, or they put something there). When the last one of each was left. A close that is not blind
 * is `spent` once its number has been given to somebody else, for then it had freed it; unless it is `tainted`: a blind one
 * came meanwhile, which may have freed it instead. `installs`: how often a number was given that way.
 */
typedef struct { int64_t since, settled, blind_settled; uint32_t handle; uint16_t ending, blind;
                 uint16_t spent, installs;
                 uint16_t movers; /* pending calls that move the position of what is there, or will be */
                 uint8_t cloexec; bool inherited : 1, tainted : 1; } slot;
typedef struct { uint32_t refs; uint64_t address; /* the kernel's; 0: not told yet */ int64_t since; uint32_t ranges; int64_t ranges_settled; /* of close_range, as `blind` */
                 VEC(slot) slots; } fd_table;

enum appends { APPENDS_NOT = 0, APPENDS = 1, APPENDS_MAYBE = 2 };

#endif
