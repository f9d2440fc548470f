"""Runs a command while a small program runs at each of some tracepoints, to measure the least that a recorder costs.

    python floor.py empty TRACEPOINT,TRACEPOINT… COMMAND…        raw tracepoints, such as sys_enter
    python floor.py record TRACEPOINT,TRACEPOINT… COMMAND…

An empty program is the kernel's own cost of running one. A program that records does only what no recorder can leave
out: it reads the clock, takes room in a buffer of its CPU, and writes 32 bytes there. The 32 bytes are the time, the
thread, the tracepoint's first argument and a mark. The program checks nothing, names nothing and waits for no reader.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from functools import partial

from lo2io.bpf import libbpf

_RAW_TRACEPOINT = 17
"""``BPF_PROG_TYPE_RAW_TRACEPOINT`` of include/uapi/linux/bpf.h."""
_INSTRUCTION_BYTES = 8
_HEAD_BYTES = 64
"""Each CPU's part of the memory begins with its fill level, in a cache line of its own."""
_PART_BITS, _RECORD_BYTES = 20, 32

_CPU_NUMBER, _CLOCK, _THREAD = 8, 5, 14
"""``bpf_get_smp_processor_id``, ``bpf_ktime_get_ns`` and ``bpf_get_current_pid_tgid`` of ``enum bpf_func_id``."""
_LEAST_WORDS = 4
_R0, _R1, _R6, _R7, _R8 = 0, 1, 6, 7, 8


def _instruction(code: int, to: int = 0, of: int = 0, offset: int = 0, number: int = 0) -> bytes:
    """One ``struct bpf_insn``."""
    return struct.pack("<BBhi", code, to | of << 4, offset, number)


_set = partial(_instruction, 0xB7)
_move = partial(_instruction, 0xBF)
_add = partial(_instruction, 0x0F)
_mask = partial(_instruction, 0x57)
_shift = partial(_instruction, 0x67)
_load = partial(_instruction, 0x79)
_store = partial(_instruction, 0x7B)
_fetch_and_add = partial(_instruction, 0xDB, number=0x01)
_EXIT = _instruction(0x95)


def _call(function: int) -> bytes:
    return _instruction(0x85, number=function)


def _value_of(to: int, memory: int) -> bytes:
    """Load the address of a map's only value."""
    return _instruction(0x18, to, 2, number=memory) + _instruction(0)


def _recording(memory: int, nr_parts: int) -> bytes:
    """Instructions that write a record into the CPU's part of the memory, round and round."""
    last = (1 << _PART_BITS) - _RECORD_BYTES
    return b"".join(
        [
            _move(_R6, _R1),
            _call(_CPU_NUMBER),
            _mask(_R0, number=nr_parts - 1),
            _shift(_R0, number=_PART_BITS),
            _value_of(_R7, memory),
            _add(_R7, _R0),
            _set(_R8, number=_RECORD_BYTES),
            _fetch_and_add(_R7, _R8),
            _mask(_R8, number=last),
            _add(_R8, _R7),
            _call(_CLOCK),
            _store(_R8, _R0, _HEAD_BYTES),
            _call(_THREAD),
            _store(_R8, _R0, _HEAD_BYTES + 8),
            _load(_R0, _R6),
            _store(_R8, _R0, _HEAD_BYTES + 16),
            _set(_R0, number=1),
            _store(_R8, _R0, _HEAD_BYTES + 24),
            _set(_R0),
            _EXIT,
        ]
    )


def attach(tracepoint: str, instructions: bytes) -> int:
    """Let a program run at a raw tracepoint until the descriptor that this returns is closed."""
    load = libbpf.library().bpf_prog_load
    load.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p]
    number = len(instructions) // _INSTRUCTION_BYTES
    program = libbpf.check(load(_RAW_TRACEPOINT, b"floor", b"GPL", instructions, number, None))
    try:
        return libbpf.open_raw_tracepoint(tracepoint, program)
    finally:
        os.close(program)


def main() -> int:
    """Attach, run the command, and end with its exit code; 2: the command line is wrong."""
    if len(sys.argv) < _LEAST_WORDS or sys.argv[1] not in ("empty", "record"):
        print("usage: floor.py empty|record TRACEPOINT,TRACEPOINT… COMMAND…", file=sys.stderr)
        return 2
    kind, tracepoints, *command = sys.argv[1:]
    instructions = _set(_R0) + _EXIT
    opened = []
    if kind == "record":
        nr_parts = 1 << ((os.cpu_count() or 1) - 1).bit_length()
        opened.append(libbpf.create_memory((nr_parts << _PART_BITS) + _HEAD_BYTES))
        instructions = _recording(opened[0], nr_parts)
    opened += [attach(tracepoint, instructions) for tracepoint in tracepoints.split(",")]
    code = subprocess.run(command, check=False).returncode
    for descriptor in opened:
        os.close(descriptor)
    return code


if __name__ == "__main__":
    sys.exit(main())
