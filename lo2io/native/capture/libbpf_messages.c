/*
 * What libbpf says, kept for errors and printed nowhere. libbpf says thousands of lines about each object. A function in
 * Python would have to wait for the interpreter's lock at each of them.
 */
#define _GNU_SOURCE /* vasprintf */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/all.h"

enum { LEVEL_INFORMATION = 1, ROOM = 1 << 16 }; /* enum libbpf_print_level: from this level on, messages help only libbpf's developers */

/* The end of all that was said. The verifier's log is one message of up to 16 MiB, and its end tells what is wrong. */
static char kept[ROOM];
static size_t length;

static int keep(int level, const char *format, va_list arguments)
{
    char *text;
    int size = level < LEVEL_INFORMATION ? vasprintf(&text, format, arguments) : -1;
    if (size < 0)
        return 0;
    size_t added = (size_t)size < ROOM - 1 ? (size_t)size : ROOM - 1;
    size_t stays = length < ROOM - 1 - added ? length : ROOM - 1 - added;
    memmove(kept, kept + length - stays, stays);
    memcpy(kept + stays, text + size - added, added);
    length = stays + added;
    kept[length] = 0;
    free(text);
    return size;
}

void *lo2_libbpf_keeper(void) { return (void *)keep; }

const char *lo2_libbpf_messages(void) { return kept; }

void lo2_libbpf_forget(void)
{
    length = 0;
    kept[0] = 0;
}
