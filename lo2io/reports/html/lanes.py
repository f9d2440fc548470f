"""The processes, threads, files and devices that get a lane of their own in pictures: the busiest. The rest share one.

In: a trace and its sums. Out: the number of the lane for each row of a table, and the lanes' names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_I64, CallClass
from lo2io.reports.summary.classes import METADATA
from lo2io.reports.summary.names import file_names
from lo2io.reports.summary.tally import NR_REQUEST_OPS, read_ahead
from lo2io.reports.words import printable, who
from lo2io.units import split_kernel_dev

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lo2io.reports.summary.names import FileName, People
    from lo2io.reports.summary.owners import Owners
    from lo2io.reports.summary.sums import TraceSums
    from lo2io.reports.summary.tally import RequestTally, Sums
    from lo2io.trace.reader import Trace

MAX_PROCESSES: Final = 32
MAX_FILES: Final = 40
MAX_THREADS: Final = 48
MAX_DEVICES: Final = 16
MAX_RINGS: Final = 16
CLASSES: Final = tuple(kind.name.lower() for kind in CallClass)
"""The classes of the tables, by what operations are for."""
_METADATA_HUE, _OTHER_HUE, _WAITING_HUE = 4, 5, 6
_HUES: Final = {
    CallClass.READ: 0, CallClass.WRITE: 1, CallClass.COPY: 2, CallClass.SYNC: 3,
    **dict.fromkeys(METADATA, _METADATA_HUE), CallClass.SEEK: _METADATA_HUE,
    **dict.fromkeys((CallClass.LOCK, CallClass.POLL, CallClass.RING, CallClass.SOCKET, CallClass.FUTEX), _WAITING_HUE),
    **dict.fromkeys((CallClass.PIPE, CallClass.TERMINAL), _WAITING_HUE),
}  # fmt: skip
HUES: Final = tuple(_HUES.get(kind, _OTHER_HUE) for kind in CallClass)
"""Colour of each class, one of the page's seven: similar classes share a colour."""


class Lanes:
    """Lanes of one kind: ``names``, and the lane of each key. Keys without a lane share the last lane, ``others``.

    Args:
        keys: One key for each lane.
        names: One name for each lane.
        nr_keys: All keys are below this number.
        stands: Shape (nr_keys,): the key that stands for each key; None: each key stands for itself.
    """

    def __init__(
        self, keys: Sequence[int], names: Sequence[str], nr_keys: int, stands: NDArray[np.intp] | None = None
    ) -> None:
        self.keys = keys
        self.names = [*names, "others"]
        self.others = len(names)
        self._of_key = np.full(nr_keys + 1, self.others, np.int64)
        self._of_key[list(keys)] = np.arange(self.others)
        if stands is not None:
            self._of_key[:nr_keys] = self._of_key[stands]

    def of(self, keys: NDArray[Any]) -> NDArray[np.int64]:
        """Lane of each key. A key beyond all others gets ``others`` (an unknown key is UINT32_MAX)."""
        lanes: NDArray[np.int64] = self._of_key[np.minimum(keys, len(self._of_key) - 1)]
        return lanes

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class ChosenLanes:
    """The processes, files, threads, devices and rings that get a lane of their own."""

    processes: Lanes
    files: Lanes
    threads: Lanes
    devices: Lanes
    rings: Lanes


def process_lanes(order: Sequence[int], owners: Owners, people: People) -> Lanes:
    """Lanes of the processes. ``order`` has the owners' numbers, the heaviest process first."""
    shown = [row for row in order if row < owners.nr_processes][:MAX_PROCESSES]
    names = people.names(shown)
    return Lanes(shown, [who(people.pid(row), names.get(row)) for row in shown], owners.nr_processes + 1)


def file_lanes(order: Sequence[int], sums: TraceSums) -> Lanes:
    """Lanes of the file groups by path. ``order`` has the heaviest group first."""
    shown = list(order[:MAX_FILES])
    names = file_names(sums.trace, sums.owners, sums.people, shown)
    texts = [file_text(names[group]) for group in shown]
    return Lanes(shown, texts, sums.owners.nr_groups, sums.paths.of)


def file_text(name: FileName) -> str:
    """The text for a file group in pictures, the same as in tables."""
    if name.kind == "named":
        return printable(name.path or "unnamed")
    if name.kind == "unnamed":
        return f"unnamed fds of {who(name.pid, name.process)}"
    return "calls without an fd"


def thread_lanes(trace: Trace, thread_ns: NDArray[np.int64]) -> Lanes:
    """Lanes of the threads that spend most time in calls.

    Args:
        trace: Has the threads' names.
        thread_ns: Time in calls by task; the last entry is of unknown ones.
    """
    nr_tasks = len(thread_ns) - 1
    order = np.argsort(-thread_ns[:nr_tasks], kind="stable")[:MAX_THREADS]
    shown = [int(task) for task in order if thread_ns[task]]
    names = _thread_names(trace, shown)
    return Lanes(shown, [names.get(task, "unknown") for task in shown], nr_tasks)


def _thread_names(trace: Trace, tasks: Sequence[int]) -> Mapping[int, str]:
    comms = trace.texts("threads", "task", "comm", tasks)
    names = {}
    for batch in trace.batches("threads", ["task", "tid"]):
        for row in np.flatnonzero(np.isin(batch["task"], tasks)).tolist():
            task = int(batch["task"][row])
            names[task] = f"{printable(comms.get(task) or 'unknown')} {int(batch['tid'][row])}"
    return names


def device_lanes(trace: Trace, requests: RequestTally) -> Lanes:
    """Lanes of the devices, in the order of ``RequestTally.devices``. Keys are indices into that list."""
    names = {device["device"]: device["name"] for device in trace.metadata["devices"]}
    bytes_of = requests.bytes.reshape(-1, NR_REQUEST_OPS).sum(axis=1)
    shown = np.argsort(-bytes_of, kind="stable")[:MAX_DEVICES].tolist()
    numbers = [int(requests.devices[index]) for index in shown]
    texts = [names.get(number, ":".join(map(str, split_kernel_dev(number)))) for number in numbers]
    return Lanes(shown, [printable(text) for text in texts], len(requests.devices))


def ring_lanes(trace: Trace) -> Lanes:
    """Lanes of the rings that have most requests."""
    ring, requests = trace.column("rings", "ring"), trace.column("rings", "nr_requests")
    order = np.lexsort((ring, -requests.astype(np.int64)))[:MAX_RINGS]
    shown = [int(ring[row]) for row in order if requests[row]]
    return Lanes(shown, [f"ring {number}" for number in shown], int(ring.max(initial=0)) + 1)


def heaviest(sums: TraceSums) -> tuple[list[int], list[int]]:
    """Processes, and file groups by path: by the bytes of calls and ring requests, then by the time in calls."""
    trace, owners, operations = sums.trace, sums.owners, sums.operations
    by_process, by_group = (
        each.bytes_read + each.bytes_written for each in (operations.by_process, operations.by_group)
    )
    copies = [opcode["number"] for opcode in trace.metadata.get("opcodes", ()) if opcode["kind"] == "copy"]
    columns = ["task", "opcode", "handle", "handle2", "bytes_result"]
    for batch in read_ahead(trace.batches("ring_requests", columns)):
        moved = batch["bytes_result"] * (batch["bytes_result"] != UNKNOWN_I64)
        np.add.at(by_process, owners.processes(batch["task"]), moved)
        np.add.at(by_group, owners.groups(batch["handle"]), moved)
        copied = np.isin(batch["opcode"], copies)
        np.add.at(by_group, owners.groups(batch["handle2"][copied]), moved[copied])
    by_path = operations.by_group.merged(sums.paths)
    return _order(by_process, operations.by_process), _order(sums.paths.merged(by_group), by_path)


def _order(moved: NDArray[np.int64], sums: Sums) -> list[int]:
    order = np.lexsort((np.arange(len(moved)), -sums.calls, -sums.time_ns, -moved))
    return [int(key) for key in order if moved[key] or sums.calls[key]]
