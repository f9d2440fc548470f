"""A comparison of the captured I/O with the kernel's own counts over the same span.

In: the spool's accounts, and every batch of the engine, unfiltered. Out: a :class:`Reconciliation` for each number of
the accounts, and the text of the line that ends a command. This module writes nothing. ``lo2io/kernel/accounts.py``
tells what the kernel counts, and when. docs/explanation/reconciliation.md explains the differences that are no losses.

An operation that ended while an account was being read may or may not be in the account. So each captured number is a
range, and the comparison takes the value nearest to the kernel's.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, Reconciliation, RequestOp
from lo2io.native._lib import ffi, lib
from lo2io.native.columns import array_members, pointer_to
from lo2io.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from lo2io.model import Account, Batch, CallSpec, Columns, Completeness, SpoolMeta

COMPLETE_EVENT: Final = "block:block_rq_complete"
MARGIN_NS: Final = 100_000
"""The kernel counts a request some time after the tracepoint, and the clocks agree to within some µs."""
REMEMBERED_BATCHES: Final = 8
"""The second completion of a write comes within this many batches of the first."""
_FEW_BYTES: Final = 64 << 10
"""The exec of a script and a few programs reads no more by itself."""
_EXEC_BYTES: Final = 4 << 10
"""The exec of one program reads no more by itself: the first page of the program or its loader, in parts."""
LEAST_SHARE: Final = 0.9
"""The least share of the kernel's accounts that a recording must have captured. Below it, the report warns."""
_COMPAT_MACHINES: Final = frozenset({"x86_64", "aarch64"})
"""Here tracepoints of calls leave 32-bit programs out (ARCH_TRACE_IGNORE_COMPAT_SYSCALLS, include/linux/ftrace.h)."""
_DISK_COUNTS: Final = ("reads", "writes", "discards", "flushes")
_INFERRED: Final = 3
"""``requests.status`` of a request that has ended, though its completion is missing."""
_NR_OPERATIONS: Final = len(RequestOp)
_ROWS: Final = array_members("lo2_account_rows")
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


class Reconciler:
    """Counts what the accounts count. It takes batches as a writer does.

    Args:
        meta: The recording. It has the accounts.
        calls: The calls by the codes of ``operations.call``.
    """

    def __init__(self, meta: SpoolMeta, calls: Sequence[CallSpec]) -> None:
        self._meta = meta
        self._disks = _Disks([a for a in meta.accounts if a.source == "diskstats"])
        self._groups = _Groups([a for a in meta.accounts if a.source == "cgroup_io"])
        self._processes = _Processes([a for a in meta.accounts if a.source == "proc_io"], calls)

    def write(self, batch: Batch) -> None:
        """Count a batch's rows."""
        self._disks.add(batch.completions)
        self._groups.add(batch.requests)
        self._processes.add(batch.operations, batch.tasks)

    def close(self) -> tuple[Reconciliation, ...]:
        """Every number of every account, except those that are 0 on both sides."""
        rows: list[Reconciliation] = []
        for part in (self._disks, self._processes, self._groups):
            for index, account in enumerate(part.accounts):
                found = part.captured(index)
                for name, counted in zip(account.names, account.values, strict=True):
                    least, most = found.get(name, (0, 0))
                    reason = self._reason(account, name)
                    captured = None if reason else min(max(counted, least), most)
                    if counted or captured:
                        who = (account.source, account.subject, account.device, name)
                        by_exec = self._processes.read_by_exec(index) if name == "rchar" else 0
                        at_borders = 0 if reason else most - least
                        rows.append(Reconciliation(*who, counted, captured, at_borders, reason, by_exec))
        return tuple(rows)

    def _reason(self, account: Account, name: str) -> str:
        """Why a number cannot be compared; empty: it can."""
        if account.begin_ns < self._meta.start_ns - MARGIN_NS:
            return "the recording does not reach back to the account's beginning"
        if self._meta.chosen_cpus:
            return "only some CPUs were recorded"
        if account.source == "proc_io":
            return self._call_reason(name)
        if account.source == "cgroup_io" and name not in {"read_bytes", "write_bytes"}:
            return "the cgroup's account counts bios, not requests"
        return _event_reason(self._meta, (COMPLETE_EVENT,))

    def _call_reason(self, name: str) -> str:
        if name in {"read_bytes", "write_bytes"}:
            return "counted when pages get dirty and bios are sent, not by calls"
        if self._meta.cgroup:
            return "only a cgroup was recorded"
        if self._meta.nr_left_out:
            return "the filter left calls out in the kernel"
        account = "read" if name in {"rchar", "syscr"} else "write"
        return _event_reason(self._meta, self._processes.events(account))


def _event_reason(meta: SpoolMeta, events: Iterable[str]) -> str:
    filtered = {name for name, _ in meta.filters}
    for event in events:
        if event not in meta.events:
            return f"{event} was not recorded"
        if event in filtered:
            return f"the kernel filtered {event}"
    return ""


class _Disks:
    """Requests as ``/proc/diskstats`` counts them: at their completion, for all senders."""

    def __init__(self, accounts: Sequence[Account]) -> None:
        self.accounts = sorted(accounts, key=lambda account: account.device or 0)
        self._devices = np.array([account.device for account in self.accounts], np.uint32)
        self._window = _Window(self.accounts)
        self._nr = np.zeros((2, len(self.accounts), _NR_OPERATIONS), np.int64)
        self._bytes = np.zeros_like(self._nr)
        self._written: deque[NDArray[np.uint64]] = deque(maxlen=REMEMBERED_BATCHES)

    def add(self, rows: Columns) -> None:
        if not len(self.accounts) or not rows or not len(rows["device"]):
            return
        place, known = _places(self._devices, rows["device"])
        operation = rows["operation"].astype(np.intp)
        # An empty bio that asks for a flush is a write of its own. Passthrough commands carry nothing and do not count.
        asked = rows["asked_flush"] != 0
        operation[asked & (operation == RequestOp.FLUSH)] = RequestOp.WRITE
        again = self._completed_again(rows, asked)
        ends = (rows["ends"] != 0) | asked
        ends &= ~(asked & (operation == RequestOp.OTHER)) & ~(again & (rows["sector"] != 0))
        sure, perhaps = self._window.split(place, rows["time_ns"])
        # At sector 0, this completion looks like the end of an empty bio, which always has sector 0.
        sure, perhaps = sure & ~again, perhaps | (sure & again)
        for which, chosen in enumerate((known & sure, known & perhaps)):
            key = (which, place[chosen], operation[chosen])
            np.add.at(self._nr, key, ends[chosen].astype(np.int64))
            np.add.at(self._bytes, key, rows["bytes"][chosen])

    def _completed_again(self, rows: Columns, asked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Writes with a flush before or after them complete twice (block/blk-flush.c), the second time without data.

        They keep their sector, so a write at this sector is looked for among the newest completions.
        """
        keys = rows["sector"] + rows["device"].astype(np.uint64) * _MIX
        self._written.append(keys[(rows["bytes"] > 0) & (rows["operation"] != RequestOp.READ)])
        again = np.zeros(len(asked), np.bool_)
        if asked.any():
            wanted, which, number = np.unique(keys[asked], return_inverse=True, return_counts=True)
            writes = np.zeros(len(wanted), np.int64)
            for written in self._written:
                index = np.searchsorted(wanted, written).clip(0, len(wanted) - 1)
                np.add.at(writes, index[wanted[index] == written], 1)
            order = np.argsort(which, kind="stable")
            rank = np.empty(len(which), np.int64)
            rank[order] = np.arange(len(which)) - np.repeat(np.cumsum(number) - number, number)
            again[asked] = rank < writes[which]  # at most this many: each write completes once more
        return again

    def captured(self, index: int) -> dict[str, tuple[int, int]]:
        """The range of each number. Kernels without a letter for write zeroes call this operation *other*."""
        writes = [
            RequestOp.WRITE, RequestOp.WRITE_ZEROES, RequestOp.SECURE_ERASE, RequestOp.OTHER, RequestOp.ZONE,
        ]  # fmt: skip
        parts = {"read": [RequestOp.READ], "write": writes, "discard": [RequestOp.DISCARD]}
        found = {}
        for name, operations in parts.items():
            found[f"{name}s"] = _least_most(self._nr[:, index, operations])
            found[f"{name}_bytes"] = _least_most(self._bytes[:, index, operations])
        found["flushes"] = _least_most(self._nr[:, index, [RequestOp.FLUSH]])
        return found


class _Groups:
    """Bytes of the recorded requests by device: only a cgroup's, if only a cgroup was recorded."""

    def __init__(self, accounts: Sequence[Account]) -> None:
        self.accounts = sorted(accounts, key=lambda account: account.device or 0)
        self._devices = np.array([account.device for account in self.accounts], np.uint32)
        self._window = _Window(self.accounts)
        self._bytes = np.zeros((2, len(self.accounts), _NR_OPERATIONS), np.int64)

    def add(self, rows: Columns) -> None:
        if not len(self.accounts) or not rows or not len(rows["device"]):
            return
        place, known = _places(self._devices, rows["device"])
        unseen = rows["status"] == _INFERRED
        moved = np.where((rows["error"] != 0) | unseen, rows["bytes_issued"], rows["bytes_result"])
        begin = np.where(rows["insert_time_ns"] != UNKNOWN_I64, rows["insert_time_ns"], rows["issue_time_ns"])
        known &= ((rows["status"] == 0) | unseen) & (moved != UNKNOWN_I64)
        sure, perhaps = self._window.split(place, begin)
        for which, chosen in enumerate((known & sure, known & perhaps)):
            key = (which, place[chosen], rows["operation"][chosen].astype(np.intp))
            np.add.at(self._bytes, key, moved[chosen])

    def captured(self, index: int) -> dict[str, tuple[int, int]]:
        """The range of each number."""
        return {
            "read_bytes": _least_most(self._bytes[:, index, [RequestOp.READ]]),
            "write_bytes": _least_most(self._bytes[:, index, [RequestOp.WRITE]]),
        }


class _Processes:
    """Calls of a process and its descendants, as ``/proc/PID/io`` counts them."""

    _SUMS: Final = ("rchar", "wchar", "syscr", "syscw")

    def __init__(self, accounts: Sequence[Account], calls: Sequence[CallSpec]) -> None:
        self.accounts = accounts
        self._calls = calls
        self._reads = np.array(["read" in call.accounts for call in calls], np.bool_)
        self._writes = np.array(["write" in call.accounts for call in calls], np.bool_)
        self._sums = np.zeros((len(self._SUMS), 0), np.int64)
        self._tasks: list[tuple[int, int, int, int]] = []

    def events(self, account: str) -> list[str]:
        """The tracepoints of the calls that add to ``read`` or to ``write``."""
        calls = [call for call in self._calls if account in call.accounts]
        return [event for call in calls for event in (call.enter_event, call.exit_event)]

    def add(self, rows: Columns, tasks: Columns) -> None:
        if not self.accounts:
            return
        if tasks:
            names = ("task", "process", "parent_process", "pid")
            self._tasks.extend(zip(*(tasks[name].tolist() for name in names), strict=True))
        if not rows or not len(rows["call"]):
            return
        native = ffi.new("lo2_account_rows *", {"nr": len(rows["call"])})
        for name, (kind, _) in _ROWS.items():
            setattr(native, name, pointer_to(rows[name], kind))
        added = 0
        while (added := lib.lo2_account_calls(self._native_sums(), native, added)) < native.nr:
            self._make_room(int(rows["task"][added]) + 1)

    def _native_sums(self) -> Any:
        account, native = self.accounts[0], ffi.new("lo2_account_sums *")
        native.begin_ns, native.end_ns = account.begin_ns, account.end_ns + account.end_slack_ns
        native.reads, native.writes = pointer_to(self._reads, "bool"), pointer_to(self._writes, "bool")
        native.nr_calls, native.nr_tasks = len(self._calls), self._sums.shape[1]
        for name, sums in zip(self._SUMS, self._sums, strict=True):
            setattr(native, name, pointer_to(sums, "int64_t"))
        return native

    def _make_room(self, tasks: int) -> None:
        short = tasks - self._sums.shape[1]
        if short > 0:
            more = max(short, self._sums.shape[1])
            self._sums = np.concatenate((self._sums, np.zeros((len(self._SUMS), more), np.int64)), axis=1)

    def captured(self, index: int) -> dict[str, tuple[int, int]]:
        """The sums over the process and all its descendants."""
        tree = self._tree(int(self.accounts[index].subject))
        chosen = [task for task, process, _, _ in self._tasks if process in tree and task < self._sums.shape[1]]
        sums = self._sums[:, chosen].sum(axis=1).tolist()
        return {name: (total, total) for name, total in zip(self._SUMS, sums, strict=True)}

    def read_by_exec(self, index: int) -> int:
        """The most bytes that the execs of the process and its descendants may have read by themselves."""
        return _FEW_BYTES + _EXEC_BYTES * len(self._tree(int(self.accounts[index].subject)))

    def _tree(self, pid: int) -> set[int]:
        """The instances of the process and its descendants. If a pid was used again, its first instance counts."""
        instances = [process for _, process, _, number in self._tasks if number == pid]
        children: dict[int, list[int]] = {}
        for _, process, parent, _ in self._tasks:
            children.setdefault(parent, []).append(process)
        tree: set[int] = set()
        new = [min(instances)] if instances else []
        while new:
            process = new.pop()
            if process not in tree:
                tree.add(process)
                new.extend(children.get(process, ()))
        return tree


class _Window:
    """The spans of accounts, with a margin around both ends."""

    def __init__(self, accounts: Sequence[Account]) -> None:
        def times(values: Iterable[int]) -> NDArray[np.int64]:
            return np.array(list(values), np.int64)

        self._outer_begin = times(a.begin_ns - MARGIN_NS for a in accounts)
        self._inner_begin = times(a.begin_ns + a.begin_slack_ns + MARGIN_NS for a in accounts)
        self._inner_end = times(a.end_ns - MARGIN_NS for a in accounts)
        self._outer_end = times(a.end_ns + a.end_slack_ns + MARGIN_NS for a in accounts)

    def split(self, place: NDArray[np.intp], time_ns: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Rows that are surely in their account, and rows that may be."""
        sure = (time_ns > self._inner_begin[place]) & (time_ns < self._inner_end[place])
        near = (time_ns >= self._outer_begin[place]) & (time_ns <= self._outer_end[place])
        return sure, near & ~sure


def _places(devices: NDArray[np.uint32], wanted: NDArray[np.uint32]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The index of each device, and True if the device has an account."""
    place = np.searchsorted(devices, wanted).clip(0, len(devices) - 1)
    return place, devices[place] == wanted


def _least_most(numbers: NDArray[np.int64]) -> tuple[int, int]:
    sure, perhaps = numbers.sum(axis=1).tolist()
    return sure, sure + perhaps


def reconciliation_line(rows: Sequence[Reconciliation]) -> str:
    """``captured 100 % of 163,840 block requests, 99.97 % of read bytes``; empty if nothing could be compared.

    Bytes are those of the command's calls, if there is a command; else the cgroup's; else the disks'.
    """
    compared = [row for row in rows if row.captured is not None]
    requests = [row for row in compared if row.source == "diskstats" and row.name in _DISK_COUNTS]
    parts = []
    total = sum(row.counted for row in requests)
    if total or any(row.captured for row in requests):
        parts.append(f"{_share(requests, '{:,}'.format)} of {total:,} block request{'' if total == 1 else 's'}")
    for source, names in (
        ("proc_io", ("rchar", "wchar")),
        ("cgroup_io", ("read_bytes", "write_bytes")),
        ("diskstats", ("read_bytes", "write_bytes")),
    ):
        found = [[row for row in compared if row.source == source and row.name == name] for name in names]
        words = zip(found, ("read", "written"), strict=True)
        said = [
            f"{_bytes_share(group)} of {word} bytes"
            for group, word in words
            if any(row.counted or row.captured for row in group)
        ]
        if said:
            parts += said
            break
    return f"captured {', '.join(parts)}" if parts else ""


def shortfall_line(rows: Sequence[Reconciliation], meta: SpoolMeta, proof: Completeness) -> str:
    """``captured only 0 % of 10.0 MiB that your command wrote; likely causes: …``; empty if enough was captured.

    A recording of processes answers for the account of these processes. The disks' account has everybody's requests,
    and losses of these are reported elsewhere.

    Args:
        rows: The result of :meth:`Reconciler.close`.
        meta: The spool's description. It tells which causes are possible.
        proof: The losses by the tracepoints' own counts.
    """
    compared = [row for row in rows if row.captured is not None]
    parts = []
    for source, names, words in (
        ("proc_io", ("rchar",), "that your command read"),
        ("proc_io", ("wchar",), "that your command wrote"),
        ("cgroup_io", ("read_bytes",), "that the cgroup read"),
        ("diskstats", _DISK_COUNTS, "block requests"),
    ):
        chosen = [row for row in compared if row.source == source and row.name in names]
        if source == "diskstats" and meta.mode == "process":
            continue
        counted = sum(row.counted for row in chosen)
        missing = sum(max(0, row.counted - (row.captured or 0)) for row in chosen)
        if missing > sum(row.by_exec for row in chosen) and counted - missing < LEAST_SHARE * counted:
            amount = f"{counted:,}" if source == "diskstats" else format_bytes(counted)
            parts.append((source, f"{_percent(counted - missing, counted)} of {amount} {words}"))
    if not parts:
        return ""
    causes = _likely_causes({source for source, _ in parts}, meta, proof)
    said = f"likely cause{'' if len(causes) == 1 else 's'}: {'; '.join(causes)}" if causes else "the cause is not known"
    return f"captured only {', '.join(text for _, text in parts)}; {said}"


def _likely_causes(sources: set[str], meta: SpoolMeta, proof: Completeness) -> list[str]:
    """Likely causes, by the facts of the recording."""
    causes = []
    if proof.lost and not proof.whole:
        causes.append(f"the {proof.lost:,} events that are missing")
    if "proc_io" in sources and meta.machine in _COMPAT_MACHINES:
        if meta.backend == "perf":
            causes.append("32-bit programs, whose calls perf does not see (--backend bpf --hook raw does)")
        elif meta.hook == "single":
            causes.append("32-bit programs, whose calls do not pass the tracepoints of single calls (--hook raw)")
    if "proc_io" in sources and meta.scope == "inherit":
        causes.append("set-uid or set-gid programs, at which the kernel ends inherited events (--scope system)")
    return causes


def _bytes_share(rows: Sequence[Reconciliation]) -> str:
    """A percentage; or the missing bytes if they are few: exec reads these itself, and a percentage would alarm."""
    short = sum(row.counted - (row.captured or 0) for row in rows if row.name == "rchar")
    if 0 < short <= _FEW_BYTES and 100 * short > sum(row.counted for row in rows):
        return f"all but {format_bytes(short)}"
    return _share(rows, format_bytes)


def _share(rows: Sequence[Reconciliation], words: Callable[[int], str]) -> str:
    """The percentage. It is 100 only if every row is complete: a surplus of one disk does not fill a gap of another."""
    counted = sum(row.counted for row in rows)
    missing = sum(max(0, row.counted - (row.captured or 0)) for row in rows)
    surplus = sum(max(0, (row.captured or 0) - row.counted) for row in rows)
    if not counted:
        return f"{words(surplus)} too many"
    if missing:
        more = f" (and {words(surplus)} not counted)" if surplus else ""
        return f"{_percent(counted - missing, counted)}{more}"
    return f"{max(-(-10_000 * (counted + surplus) // counted), 10_001) / 100:g} %" if surplus else "100 %"


def _percent(part: int, whole: int) -> str:
    """The share, rounded down: at most 99.99 % unless nothing is missing."""
    return f"{10_000 * part // whole / 100:g} %"
