"""Runs a program to which the kernel refuses one system call: ``refused.py CALL ERRNO PROGRAM [ARGUMENT…]``.

A seccomp filter answers the call with the error, as those of containers do. Children inherit the filter. Only x86-64.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

NUMBERS = {
    "ioctl": (16,),
    "fork": (56, 57, 58, 435),
    "sched_setaffinity": (203,),
    "rt_sigaction": (13,),
    "rt_sigtimedwait": (128,),
    "waitid": (247,),
    "wait4": (61,),
    "eventfd2": (290,),
    "epoll_create1": (291,),
    "epoll_ctl": (233,),
    "epoll_wait": (232, 281),
    "prlimit64": (302, 97, 160),
    "pidfd_open": (434,),
    "timerfd_create": (283,),
    "fallocate": (285,),
    "ftruncate": (77,),
    "flock": (73,),
}
"""Name of a call → its numbers on x86-64, and those of the calls that libraries use in its place."""
_LOAD, _IS, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06
"""Instructions of linux/bpf_common.h: load a word, compare with a number, take some bits, answer."""
_REQUEST = 24
"""The offset of a call's second argument in ``struct seccomp_data``: the request of ioctl(2)."""
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
"""SECCOMP_RET_* (linux/seccomp.h)."""
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER = 22, 38, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def refuse(numbers: tuple[int, ...], error: int) -> None:
    """Have the kernel answer these calls of this process and its children with an error. Of ioctl(2), those of perf.

    Raises:
        OSError: The kernel takes no filter.
    """
    steps = [(_LOAD, 0, 0, 0)]
    if numbers == NUMBERS["ioctl"]:  # Python itself needs some to start
        steps += [(_IS, 1, 0, numbers[0]), (_RETURN, 0, 0, _ALLOW)]
        steps += [(_LOAD, 0, 0, _REQUEST), (_AND, 0, 0, 0xFF00), (_IS, 0, 1, ord("$") << 8)]
        steps += [(_RETURN, 0, 0, _ERRNO | error)]
        numbers = ()
    steps += [(_IS, len(numbers) - index, 0, number) for index, number in enumerate(numbers)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | error)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = _Program(len(steps), ctypes.cast(code, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0:
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    refuse(NUMBERS[sys.argv[1]], getattr(errno, sys.argv[2]))
    os.execv(sys.argv[3], sys.argv[3:])  # noqa: S606 - no shell is wanted
