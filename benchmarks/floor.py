"""Runs a command while an empty program runs at each of some tracepoints, to measure the kernel's own cost.

A recorder that records these events by programs cannot cost less.

    python floor.py TRACEPOINT,TRACEPOINT… COMMAND…        raw tracepoints, such as sys_enter
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

from lo2io.bpf import libbpf

_RAW_TRACEPOINT = 17
"""``BPF_PROG_TYPE_RAW_TRACEPOINT`` of include/uapi/linux/bpf.h."""
_INSTRUCTIONS = bytes.fromhex("b700000000000000 9500000000000000")
"""``r0 = 0``, ``exit``"""
_INSTRUCTION_BYTES = 8


def attach(tracepoint: str) -> int:
    """Let an empty program run at a raw tracepoint until the descriptor that this returns is closed."""
    load = libbpf.library().bpf_prog_load
    load.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p]
    number = len(_INSTRUCTIONS) // _INSTRUCTION_BYTES
    program = libbpf.check(load(_RAW_TRACEPOINT, b"empty", b"GPL", _INSTRUCTIONS, number, None))
    try:
        return libbpf.open_raw_tracepoint(tracepoint, program)
    finally:
        os.close(program)


def main() -> int:
    """Attach, run the command, and end with its exit code."""
    tracepoints, *command = sys.argv[1:]
    attached = [attach(tracepoint) for tracepoint in tracepoints.split(",")]
    code = subprocess.run(command, check=False).returncode
    for descriptor in attached:
        os.close(descriptor)
    return code


if __name__ == "__main__":
    sys.exit(main())
