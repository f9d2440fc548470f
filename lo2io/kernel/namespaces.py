"""Whether this process counts pids and times as the kernel's records do.

Samples and lo2io's own programs tell the numbers of the first PID namespace; ``/proc``, fork(2) and the records about
new tasks tell those of the reader's own (pid_namespaces(7); kernel/events/core.c: ``perf_event_pid``). Times of both
are the kernel's ``CLOCK_MONOTONIC``, while a time namespace may have another (time_namespaces(7)). So they mean the
same only outside of all such.
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
    """Make sure that pids and times are the same here as in the kernel's records.

    What ``/proc`` does not tell is taken to be so: kernels without such namespaces.

    Raises:
        AccessError: They do not: no sample could be told to be of a process.
    """
    try:
        space = str((root / "proc/self/ns/pid").readlink())
    except OSError:
        space = _FIRST
    if space != _FIRST:
        raise AccessError(
            _TRIED,
            "the kernel tells of processes by their numbers outside of this PID namespace",
            "record from the host, by --cgroup or --pid; or start the container with the host's PIDs (--pid host)",
        )
    try:
        offsets = (root / "proc/self/timens_offsets").read_text(encoding="ascii").split()
    except OSError:
        offsets = []
    if "monotonic" in offsets and offsets[offsets.index("monotonic") + 1 :][:2] != ["0", "0"]:
        raise AccessError(
            _TRIED, "the kernel tells times of another clock than this time namespace has", "record from the host"
        )
