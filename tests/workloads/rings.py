"""Runs the workload ``rings`` while lo2io records, and compares its account with the tables of the trace."""

from __future__ import annotations

import errno
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lo2io.catalog.catalog import load_catalog
from workloads.build import build
from workloads.record import Recorded, read_json_lines, record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

Row = dict[str, Any]

EVENTS = "syscalls,io_uring"
"""No block requests: on a machine where others use the disk, some are under way when a recording begins."""
GROUPS = {
    "files": (
        "nop",
        "equal",
        "cached",
        "uncached",
        "fixed-buffers",
        "fixed-files",
        "places",
        "direct",
        "metadata",
        "messages",
        "splice",
    ),
    "waits": (
        *("pipe-reads", "socket-reads", "polls", "accept-multishot", "recv-multishot", "send-zc", "msg-ring"),
        *("timer-polls", "accept-places"),
        *("partial-wait", "timeouts", "cancels", "links", "hard-links", "broken-chain", "link-timeout", "drain"),
    ),
    "ends": (
        *("skip", "silent-chain", "overflow", "refused", "refused-link", "bad-fds", "inherited", "teardown-close"),
        *("async", "hashed", "worker-links", "blocked", "fifo", "limited"),
    ),
    "rings": ("several", "threads", "sqpoll", "wide", "defer", "iopoll", "registered-ring"),
    "exit": ("teardown-exit",),
}
"""Scenarios that are recorded together, in this order."""
WITHOUT_RINGS = {"aio": ("libaio", "libaio-ends", "posix-aio")}
"""Likewise, without io_uring."""
GROUP = {scenario: group for group, scenarios in GROUPS.items() for scenario in scenarios}

SQPOLL, DRAINED, HASHED, OVERFLOWED, NOTIFIED, MULTISHOT, CONTINUED = 1, 2, 4, 8, 16, 32, 64
OLDER = 1024
"""Bits of ``traits``."""
IDENTITY = 64
"""Bit of ``inferred``: the completion was not matched by the request's address; overflows do not tell it."""
SQE_ASYNC = 16
SQE_FLAGS = 0x7F
"""What there is; the kernel uses the higher bits of its own flags for other things."""
REGISTERED_RING = 16
"""Flag of io_uring_enter: the descriptor is none, but a place in a table."""

NO_LOOKUP = frozenset(
    ["OPENAT", "OPENAT2", "CLOSE", "STATX", "UNLINKAT", "RENAMEAT", "MKDIRAT", "PROVIDE_BUFFERS", "NOP", "TIMEOUT"]
)
"""Opcodes whose descriptor, if they have any, no tracepoint tells."""
ON_FILES = frozenset(
    [
        *("READV", "WRITEV", "FSYNC", "READ_FIXED", "WRITE_FIXED", "POLL_ADD", "SYNC_FILE_RANGE", "SENDMSG", "RECVMSG"),
        *("ACCEPT", "CONNECT", "FALLOCATE", "READ", "WRITE", "FADVISE", "SEND", "RECV", "SPLICE", "TEE", "SHUTDOWN"),
        *("SEND_ZC", "SENDMSG_ZC", "CLOSE", "MSG_RING"),
    ]
)
"""Opcodes that name a descriptor or a registered file."""
AT_OFFSET = frozenset(
    ["READ", "WRITE", "READV", "WRITEV", "READ_FIXED", "WRITE_FIXED", "FALLOCATE", "SYNC_FILE_RANGE", "SPLICE"]
)
COUNT_BYTES = frozenset(
    [
        *("READ", "WRITE", "READ_FIXED", "WRITE_FIXED", "RECV", "SEND", "SEND_ZC", "SPLICE", "TEE"),
        "SYNC_FILE_RANGE",
    ]
)
OTHER_BYTES = {"READV": 1024, "WRITEV": 1024, "SENDMSG": 1024, "RECVMSG": 1024, "FALLOCATE": 131072}
"""What the vectors of the workload hold, and the range it allocates; the SQE's length counts something else."""
SQE_BUFFER_SELECT = 32
BYTES = frozenset(
    [
        *("READ", "WRITE", "READV", "WRITEV", "READ_FIXED", "WRITE_FIXED", "RECV", "SEND", "SEND_ZC", "SPLICE", "TEE"),
        *("SENDMSG", "RECVMSG"),
    ]
)


@dataclass(frozen=True)
class Run:
    """One recording of some scenarios."""

    recorded: Recorded
    truth: Sequence[Row]
    folder: Path

    def told(self, kind: str, scenario: str | None = None) -> list[Row]:
        """The program's objects of a kind, of one scenario or of all."""
        rows = (row for row in self.truth if row["kind"] == kind)
        return [row for row in rows if scenario in {None, row["scenario"]}]

    @property
    def told_by_kernel(self) -> bool:
        """True if BPF programs told what requests ask for."""
        return bool(self.recorded.trace.metadata["kernel_facts"])

    @cached_property
    def ring_rows(self) -> dict[int, Row]:
        """The row of each ring by its instance, for the program made them in the order of the table's times."""
        found = {}
        for kind in ("io_uring", "libaio"):
            told = [row for row in self.told("ring") if row["type"] == kind]
            makers = {row["tid"] for row in told}
            rows = [
                row for row in self.recorded.trace.rings.to_pylist() if row["kind"] == kind and row["pid"] in makers
            ]
            rows.sort(key=lambda row: (row["create_time_ns"] or 0, row["ring"]))
            found |= {truth["instance"]: row for truth, row in zip(told, rows, strict=True)}
        return found

    @cached_property
    def request_rows(self) -> dict[int, list[Row]]:
        """The requests of each ring by its number, in the order of their submission."""
        found = defaultdict(list)
        for row in self.recorded.trace.ring_requests.to_pylist():
            found[row["ring"]].append(row)
        for rows in found.values():
            rows.sort(key=lambda row: row["submit_time_ns"] or 0)
        return found

    @cached_property
    def user_data(self) -> dict[int, int]:
        """The user_data of each request, by id."""
        return {row["id"]: row["user_data"] for rows in self.request_rows.values() for row in rows}

    @cached_property
    def threads(self) -> dict[int, Row]:
        """Threads by number."""
        return {row["task"]: row for row in self.recorded.trace.threads.to_pylist()}

    @cached_property
    def paths(self) -> dict[int, str | None]:
        """The file of each handle."""
        files = {row["file"]: row["path"] for row in self.recorded.trace.files.to_pylist()}
        return {row["handle"]: files.get(row["file"]) for row in self.recorded.trace.handles.to_pylist()}

    @cached_property
    def operations(self) -> dict[int, Row]:
        """Rows of calls by id."""
        return {row["id"]: row for row in self.recorded.operations()}

    def requests(self, scenario: str) -> list[tuple[Row, Row]]:
        """Each request of the program's account, with its row: every request has one, and every row one request."""
        pairs = []
        for instance in sorted({row["instance"] for row in self.told("ring", scenario)}):
            ring = self.ring_rows[instance]
            if ring["kind"] != "io_uring":
                continue
            told = [row for row in self.told("request", scenario) if row["instance"] == instance]
            rows = self.request_rows.get(ring["ring"], [])
            pairs += _by_user_data(told, rows)
        return pairs

    def batches(self, instance: int) -> list[tuple[Row, Row, Row]]:
        """Each call of the program's account, with its rows in batches and in operations; thread by thread."""
        ring = self.ring_rows[instance]["ring"]
        rows = [row for row in self.recorded.trace.table("batches").to_pylist() if row["ring"] == ring]
        told = [row for row in self.told("batch") if row["instance"] == instance]
        found = []
        for tid in dict.fromkeys(row["tid"] for row in told):
            mine = [row for row in rows if self.operations[row["id"]]["tid"] == tid]
            said = [row for row in told if row["tid"] == tid]
            found += [(a, b, self.operations[b["id"]]) for a, b in zip(said, mine, strict=True)]
        assert len(found) == len(rows), "batches of threads that made none"
        return found


def _by_user_data(told: Sequence[Row], rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Requests by user_data; equal ones in their order."""
    waiting: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        waiting[row["user_data"]].append(row)
    expected = sorted(row["user_data"] for row in told if row["status"] != "before")
    assert sorted(row["user_data"] for row in rows) == expected
    return [(truth, waiting[truth["user_data"]].pop(0)) for truth in told if truth["status"] != "before"]


def run(
    folder: Path, scenarios: Iterable[str], *options: str | Path, events: str = EVENTS, recorder: Iterable[str] = ()
) -> Run:
    """Record these scenarios in one program, with these options for the program and for the recorder.

    Files lie in the folder.
    """
    work, truth = folder / "work", folder / "truth"
    work.mkdir(parents=True, exist_ok=True)
    command = [build("rings"), "--dir", work, "--truth", truth, *options, *scenarios]
    recorded = record(folder / "T", command, "-e", events, *recorder, attempts=5)
    return Run(recorded, read_truth(truth), work)


def read_truth(path: Path) -> list[Row]:
    """The program's account, line by line, with the name of each opcode number."""
    names = [opcode.name for opcode in load_catalog().opcodes]
    rows = read_json_lines(path.read_text())
    for row in rows:
        number = row.get("opcode_number", -1)
        if number >= 0:
            row["opcode"] = names[number] if number < len(names) else "INVALID"
    return rows


def choice(value: Any) -> set[Any]:
    """The values that the truth allows; none: any."""
    return set(value) if isinstance(value, list) else {value}


def differences(run: Run, truth: Row, row: Row) -> list[str]:
    """Differences between the row and the program's account; one text each."""
    found = []

    def differ(what: str, told: object, seen: object) -> None:
        if told != seen:
            found.append(f"{truth['opcode']} {truth['user_data']}: {what}: told {told}, table {seen}")

    def differ_choice(what: str) -> None:
        allowed = choice(truth[what]) if what in truth else {row[what]}
        if row[what] not in allowed:
            found.append(f"{truth['opcode']} {truth['user_data']}: {what}: told {sorted(allowed)}, table {row[what]}")

    named = truth["opcode"] if truth["opcode"] != "INVALID" else f"opcode {truth['opcode_number']}"
    differ("opcode", named, row["opcode"])
    differ("sqe_flags", truth["sqe_flags"] & SQE_FLAGS | row["sqe_flags"] & SQE_ASYNC, row["sqe_flags"])
    differ_choice("status")
    if not (row["status"] == "silent" and row["path"] == "unknown" and truth["opcode"] in BYTES):
        differ_choice("path")  # if the end is not seen, the path is known only if there is but one
    differ("result", truth.get("result", row["result"]), row["result"])
    differ("error", max(0, -truth.get("result", -row["error"])), row["error"])
    if "result" in truth:
        differ("bytes", _bytes(truth), row["bytes_result"])
        differ("cqe_flags", truth["cqe_flags"], row["cqe_flags"])
    if isinstance(truth["status"], str):  # else the kernel may end it with its ring, seen or not
        differ("nr_completions", truth["cqes"], row["nr_completions"])
    _differ_file(run, truth, row, differ)
    if run.told_by_kernel and row["status"] != "refused":
        _differ_asked(run, truth, row, differ)
    _differ_ties(run, truth, row, differ)
    for bit, told in _traits(truth, row).items():
        differ(f"trait {bit}", told, bool(row["traits"] & bit))
    differ("identity inferred", truth["overflow"], bool(row["inferred"] & IDENTITY))
    return found


def _bytes(truth: Row) -> int | None:
    """All completions that moved bytes; a failed request moved none, unless its other completions did."""
    results = truth.get("results") or [truth["result"]]
    moved = [result for result in results if result >= 0]
    return sum(moved) if moved and truth["opcode"] in BYTES else None


def _looked_up(truth: Row, row: Row) -> int | None:
    """The descriptor that the kernel looked up, if an event has it."""
    if truth["opcode"] in NO_LOOKUP or row["path"] in {"refused", "cancelled"} or truth["fd"] == -1:
        return None
    return int(truth["fd"])


def _differ_file(run: Run, truth: Row, row: Row, differ: Any) -> None:
    def differ_name(file: str, column: str) -> None:
        """The table may lack a name: a short-lived program's files are gone before a look."""
        differ(f"{column} known", True, row[column] is not None)
        path = run.paths.get(row[column])
        differ(file, truth[file], truth[file] if path is None else path)

    fd = _looked_up(truth, row)
    if not run.told_by_kernel or row["status"] == "refused":
        differ("fd", fd, row["fd"])
    if fd is None and run.told_by_kernel:
        return
    if fd is None:
        differ("handle", None, row["handle"])
        return
    source = "file2" if "fd2" in truth else "file"
    if source in truth:
        differ_name(source, "handle")
    elif truth.get("result") == -errno.EBADF:
        differ("handle", None, row["handle"])
    if "fd2" in truth and "file" in truth:
        differ_name("file", "handle2")


def _differ_asked(run: Run, truth: Row, row: Row, differ: Any) -> None:
    """BPF programs read from the submission queue what the program put there."""
    opcode = truth["opcode"]
    offset = truth["offset"] if opcode in AT_OFFSET and truth["offset"] >= 0 else None
    size = truth["length"] if opcode in COUNT_BYTES else OTHER_BYTES.get(opcode)
    chosen_later = size == 0 and truth["sqe_flags"] & SQE_BUFFER_SELECT
    differ("offset", offset, row["offset_bytes"])
    differ("bytes asked for", None if chosen_later else size, row["bytes_request"])
    given = truth["fd"] if truth["fd"] >= 0 else None
    differ("fd", given if opcode in ON_FILES else _looked_up(truth, row), row["fd"])
    differ("file_index", truth.get("file_index"), row["file_index"])
    differ("buffer_index", truth.get("buffer_index"), row["buffer_index"])
    differ("what it asks for known", True, row["op_flags"] is not None)
    known = run.paths.get(row["handle"])
    if (
        opcode not in NO_LOOKUP - {"CLOSE"}
        and "file" in truth
        and "fd2" not in truth
        and truth.get("result") != -errno.EBADF
    ):
        looked_up = row["path"] != "cancelled" and not (truth["fixed"] and _runs_later(truth, row))
        differ("file", truth["file"] if looked_up or known else None, known)


def _runs_later(truth: Row, row: Row) -> bool:
    """True if it may meet another registered file than the one at its submission."""
    return bool(row["sqe_flags"] & 0x1E or row["previous"] or truth["drain"] or truth["opcode"] == "FSYNC")


def _differ_ties(run: Run, truth: Row, row: Row, differ: Any) -> None:
    differ("previous", truth["previous"], run.user_data.get(row["previous"]))
    differ("culprit", truth["culprit"], run.user_data.get(row["culprit"]))
    if "waker" in truth:
        differ("waker", truth["waker"], row["waker_tid"])
    task = run.threads[row["task"]]
    differ("tid of the task", row["tid"], task["tid"])
    if truth["sqpoll"]:
        differ("kind of the submitter", "ring poller", task["kind"])
    else:
        differ("tid", truth["tid"], row["tid"])


def _traits(truth: Row, row: Row) -> dict[int, bool]:
    several = len(truth.get("results", ())) > 1
    told = {SQPOLL: truth["sqpoll"], OVERFLOWED: truth["overflow"], NOTIFIED: truth["notified"]}
    if truth["opcode"] != "SEND_ZC":
        told[MULTISHOT] = several
    if truth["drain"]:
        told[DRAINED] = True
    if truth.get("path") != "worker" and row["path"] != "worker":
        told[HASHED] = told[CONTINUED] = False
    return told
