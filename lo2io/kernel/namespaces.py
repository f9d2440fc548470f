"""Checks that pids and times here are those of the kernel's records.

Samples and lo2io's programs have pids of the first PID namespace. ``/proc``, fork(2) and records about new tasks have
pids of the reader's namespace (pid_namespaces(7); kernel/events/core.c: ``perf_event_pid``). Times in records are the
kernel's ``CLOCK_MONOTONIC``, but a time namespace may have another one (time_namespaces(7)). So pids and times mean the
same only outside of such namespaces.
"""

from __future__ import annotations

from pathlib import Path

from lo2io.errors import AccessError

ROOT = Path("/")
_FIRST = "pid:[4026531836]"
"""``PID_NS_INIT_INO`` (0xEFFFFFFC) of include/uapi/linux/nsfs.h, in older kernels ``PROC_PID_INIT_INO`` of
include/linux/proc_ns.h: a constant since Linux 3.8."""
_TRIED = "record from inside of a container"


def check_namespaces(root: Path = ROOT) -> None:
    """Check that pids and times here are those of the kernel's records.

    If ``/proc`` has no entry for a namespace, the kernel has no such namespaces, and the check passes.

    Raises:
        AccessError: They differ, so no sample could be assigned to a process.
    """
    try:
        space = str((root / "proc/self/ns/pid").readlink())
    except OSError:
        space = _FIRST
    if space != _FIRST:
        raise AccessError(
            _TRIED,
            "the kernel's records have the pids outside of this PID namespace",
            "record from the host, by --cgroup or --pid; or start the container with the host's PIDs (--pid host)",
        )
    try:
        offsets = (root / "proc/self/timens_offsets").read_text(encoding="ascii").split()
    except OSError:
        offsets = []
    if "monotonic" in offsets and offsets[offsets.index("monotonic") + 1 :][:2] != ["0", "0"]:
        raise AccessError(
            _TRIED, "the kernel's records have times of another clock than this time namespace", "record from the host"
        )
