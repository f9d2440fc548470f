/*
 * For LD_PRELOAD: one request for memory by one library is answered as on a machine that has none left. Pieces of memory
 * that the library takes and gives back are counted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);
static uintptr_t begin, end;
static long left, held;
static int refused;

static int find(struct dl_phdr_info *info, size_t size, void *name)
{
    (void)size;
    if (!strstr(info->dlpi_name, name))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X)) {
            begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            end = begin + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

/* Refuse the library's request of this number, from 1. Returns 0 if the library is not loaded. */
int refuse_memory(const char *library, long number)
{
    left = number;
    refused = 0;
    return dl_iterate_phdr(find, (void *)library);
}

/* Whether that request came. */
int memory_was_refused(void)
{
    return refused;
}

/* Pieces of memory that the library has, by its own calls. */
long memory_held(void)
{
    return held;
}

static int calls(const void *caller)
{
    return (uintptr_t)caller >= begin && (uintptr_t)caller < end;
}

static int refuses(const void *caller)
{
    if (!calls(caller) || left <= 0 || --left)
        return 0;
    errno = ENOMEM;
    refused = 1;
    return 1;
}

static void *counted(const void *caller, void *given)
{
    held += given && calls(caller);
    return given;
}

void *malloc(size_t size)
{
    const void *caller = __builtin_return_address(0);
    return refuses(caller) ? NULL : counted(caller, __libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    const void *caller = __builtin_return_address(0);
    return refuses(caller) ? NULL : counted(caller, __libc_calloc(count, size));
}

void *realloc(void *memory, size_t size)
{
    const void *caller = __builtin_return_address(0);
    if (refuses(caller))
        return NULL;
    void *given = __libc_realloc(memory, size);
    return memory ? given : counted(caller, given);
}

void free(void *memory)
{
    held -= memory && calls(__builtin_return_address(0));
    __libc_free(memory);
}
