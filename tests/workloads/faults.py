"""Touches pages of a mapped file, and prints what the kernel says of each touch, as JSON.

Arguments: the file, whether its descriptor stays open (``open``) or is closed after mapping (``closed``), and a file
to write to. With ``ahead`` the descriptor stays open, and the kernel reads ahead.

Each result is ``[page, cold, majors, inside, filled]``: the page's number in the file; 1 if mincore(2) says that the
page is not in memory; the thread's major faults during the touch; 1 if a write(2) touches the page, 0 if the program
does; how many pages of the file came into the page cache meanwhile, by cachestat(2).
"""

import ctypes
import json
import mmap
import os
import random
import resource
import sys

PAGE = mmap.PAGESIZE
TOUCHES, WRITES = 60, 10
CACHESTAT = 451
"""include/uapi/asm-generic/unistd.h; since Linux 6.5."""


def majors() -> int:
    """Major faults of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def pages_cached(fd: int) -> int:
    """Pages of the file in the page cache."""
    span, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    if ctypes.CDLL(None, use_errno=True).syscall(CACHESTAT, fd, span, found, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found[0]


def main() -> None:
    """Touch pages in a random order."""
    path, keeps, target = sys.argv[1:]
    fd, out = os.open(path, os.O_RDWR), os.open(target, os.O_WRONLY | os.O_CREAT)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    mapped = mmap.mmap(fd, 0)  # it has a descriptor of its own
    if keeps != "ahead":
        mapped.madvise(mmap.MADV_RANDOM)
    seen = os.open(path, os.O_RDONLY)
    if keeps == "closed":
        os.close(fd)
    at = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    mincore, told = ctypes.CDLL(None).mincore, ctypes.create_string_buffer(1)
    results = []
    pages = random.Random(7).sample(range(len(mapped) // PAGE), TOUCHES + WRITES)  # noqa: S311 - the same in each run
    for number, page in enumerate(pages):
        inside = number >= TOUCHES
        view = memoryview(mapped)[page * PAGE : page * PAGE + 8]
        mincore(ctypes.c_void_p(at + page * PAGE), ctypes.c_size_t(PAGE), told)
        before, cached = majors(), pages_cached(seen)
        if inside:
            os.pwrite(out, view, 0)
        else:
            view[0]
        results.append([page, 1 - (told.raw[0] & 1), majors() - before, int(inside), pages_cached(seen) - cached])
    print(json.dumps(results))


main()
