"""Tries whether the kernel takes lo2io's programs, by loading and attaching them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lo2io.bpf import loader
from lo2io.errors import AccessError
from lo2io.kernel import abi

if TYPE_CHECKING:
    from collections.abc import Sequence

_TRIED_RING_BYTES = 64 << 10


def try_bpf(cpu: int, tracepoint_id: int | None, layers: Sequence[str]) -> tuple[str, ...]:
    """Load and attach lo2io's programs as a recording does, and unload them. Nothing is recorded.

    Args:
        cpu: An online CPU.
        tracepoint_id: Id of the entry of a system call. None: it could not be read; then no program is attached to this
            tracepoint.
        layers: Layers whose tracepoints this kernel has.

    Returns:
        Those of the layers whose programs fit the kernel's types.

    Raises:
        AccessError: The kernel refuses the programs, or lacks something that they need.
        CaptureError: There is not enough memory.
    """
    call = loader.BpfCall(enter_event=tracepoint_id or 0, exit_event=0, enter_index=0, exit_index=1, flags=0, nr_args=0)
    config = loader.BpfConfig(recorder=os.getpid(), layers=tuple(layers))
    with loader.load_programs(config, [call], [cpu], _TRIED_RING_BYTES) as programs:
        programs.attach_raw()
        if tracepoint_id is None:
            return programs.layers
        try:
            fd = abi.event_open(
                abi.EventAttr(type=abi.TYPE_TRACEPOINT, config=tracepoint_id, flags=abi.DISABLED), -1, cpu
            )
        except OSError as error:
            remedy = "run as root, or with CAP_BPF and CAP_PERFMON"
            raise AccessError("open a tracepoint of every task", error.strerror or str(error), remedy) from error
        try:
            programs.attach(fd, 0, entry=True)
        finally:
            os.close(fd)
        return programs.layers
