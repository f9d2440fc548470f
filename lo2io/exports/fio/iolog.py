"""Actions as logs that ``fio --read_iolog`` reads, and the job file that replays all of them at once.

In: a plan. Out: a folder with ``job.fio`` and a ``LABEL.iolog`` for each job. fio's HOWTO describes the formats, "Trace
file format v2" and "v3". Experiments with fio 3.33 showed the rest. Version 3 has microseconds. If the first line has
time 0, fio ignores the second line's time. Names end at white space and after 256 bytes. fio 3.33 takes a log of syncs
alone in version 2 only, next to a wait; fio 3.39 takes none. ``--replay_redirect`` makes all files one; fio then
crashes if one of them is closed while another is used.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.exports.fio.actions import ACTIONS
from lo2io.exports.fio.owners import DIRECT, DSYNC, FULL_SYNC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lo2io.exports.fio.plan import Extents, Job, Plan
    from lo2io.model import Columns

JOB_FILE: Final = "job.fio"
MAX_NAME_BYTES: Final = 255
_WHITE: Final = re.compile(rb"[ \t\n\v\f\r\0]")
_VERBS: Final = tuple(action.encode() for action in ACTIONS)
_FIRST_US: Final = 1
MAX_DONE: Final = 256
"""The number of finished files that a job may leave open. Beyond it, finished files are closed amid the log."""
_NS_PER_US: Final = 1000


def is_fit(path: bytes) -> bool:
    """True if an iolog can hold this name: an absolute path, without white space, not too long."""
    return path.startswith(b"/") and len(path) <= MAX_NAME_BYTES and not _WHITE.search(path)


class _Log:
    """The log of one job."""

    def __init__(self, path: Path, job: Job, names: Mapping[int, bytes], *, timed: bool) -> None:
        self._path = path
        self._names = names
        self._timed = timed and job.moves
        self._left = {file: count for file, count in job.uses.items() if file in names}
        self._new = dict.fromkeys(self._left)
        self._done: list[bytes] = []
        self._begun = False
        version = 3 if self._timed else 2
        path.write_bytes(b"fio version %d iolog\n" % version)
        self._wait = not job.moves

    def write(self, rows: Columns, begin_ns: int) -> int:
        """Append a job's next actions; return their number."""
        lines: list[bytes] = []
        times = ((rows["time_ns"] - begin_ns) // _NS_PER_US + _FIRST_US).tolist()
        columns = (rows[name].tolist() for name in ("file", "action", "offset", "length"))
        written = 0
        for time_us, file, action, offset, length in zip(times, *columns, strict=True):
            name = self._names.get(file)
            if name is None:
                continue
            if file in self._new:
                del self._new[file]
                self._open(lines, time_us, name)
            stamp = b"%d " % time_us if self._timed else b""
            lines.append(b"%b%b %b %d %d\n" % (stamp, name, _VERBS[action], offset, length))
            written += 1
            self._left[file] -= 1
            if not self._left[file]:
                del self._left[file]
                self._done.append(name)
                if not self._left or len(self._done) > MAX_DONE:
                    lines += [b"%b%b close\n" % (stamp, done) for done in self._done]
                    self._done.clear()
        with self._path.open("ab") as file_:
            file_.writelines(lines)
        return written

    def _open(self, lines: list[bytes], time_us: int, name: bytes) -> None:
        begin, stamp = (b"%d " % _FIRST_US, b"%d " % time_us) if self._timed else (b"", b"")
        lines.append(b"%b%b add\n" % (stamp if self._begun else begin, name))
        lines.append(b"%b%b open\n" % (stamp, name))
        if self._wait:
            lines.append(b"%b wait 0 0\n" % name)
            self._wait = False
        self._begun = True


def write_logs(
    plan: Plan,
    folder: Path,
    names: Mapping[int, bytes],
    progress: Callable[[float], None],
    *,
    version: int = 3,
    extents: Extents | None = None,
) -> int:
    """Write each job's log; return the number of actions in all logs.

    Args:
        plan: The actions to write.
        folder: An empty folder.
        names: Number of a file → its name in the logs. Actions on files without a name are left out.
        progress: Called with the finished share.
        version: 3: each action has its time, so pauses are replayed, too. 2: actions follow one another at once.
        extents: Notes the parts of the files that are used.

    Raises:
        OSError: A log cannot be written.
        TraceError: A table cannot be read.
    """
    logs = {
        key: _Log(folder / f"{job.label}.iolog", job, names, timed=version == 3)  # noqa: PLR2004 - of the format
        for key, job in plan.jobs.items()
        if not job.uses.keys().isdisjoint(names)
    }
    written = 0
    for rows in plan.actions(progress):
        if extents is not None:
            extents.add(rows)
        keys, order = rows["job"], np.argsort(rows["job"], kind="stable")
        found, starts = np.unique(keys[order], return_index=True)
        for key, mine in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            if key in logs:
                written += logs[key].write({name: values[mine] for name, values in rows.items()}, plan.begin_ns)
    return written


def job_file(plan: Plan, names: Mapping[int, bytes], settings: Mapping[str, str | int]) -> str:
    """The text of ``job.fio``: one section for each log, all started at once.

    fio must run in the folder of the logs.
    """
    lines = ["[global]", *(f"{key}={value}" for key, value in settings.items())]
    for job in plan.jobs.values():
        if job.uses.keys().isdisjoint(names):
            continue
        lines += ["", f"[{job.label}]", f"read_iolog={job.label}.iolog"]
        if job.modes & DIRECT:
            lines.append("direct=1")
        if job.modes & (DSYNC | FULL_SYNC):
            lines.append("sync=sync" if job.modes & FULL_SYNC else "sync=dsync")
    return "\n".join(lines) + "\n"


def default_settings(by: str) -> dict[str, str | int]:
    """Fio's settings: actions of processes one by one; those of disks side by side, past the page cache.

    fio must neither drop pages from the cache nor advise the kernel, for the original did neither.
    """
    quiet: dict[str, str | int] = {"fadvise_hint": 0, "invalidate": 0}
    if by == "device":
        return {"ioengine": "libaio", "iodepth": 64, "direct": 1, **quiet}
    return {"ioengine": "psync", **quiet}
