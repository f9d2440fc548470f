"""The chain of one call: its time adds up, its requests are its own, and what is not recorded is said."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from build.tablemaker import COMPLETE, READ, WRITE, Row, make_batch, meta, write_trace
from rich.console import Console

from lo2io.errors import UsageError
from lo2io.model import UNKNOWN_U32, EventCompleteness
from lo2io.reports.text.why import render_chain
from lo2io.reports.why.chain import Chain, WrittenBack, explain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SDA = 8 << 20
THREADS = [
    {"task": 0, "process": 7, "pid": 100, "tid": 101, "comm": b"app"},
    {"task": 1, "process": 8, "pid": 200, "tid": 200, "comm": b"other"},
]
FILES = [{"file": 0, "path": b"/data/f", "mode": 0o100644}]
HANDLES = [{"handle": 0, "process": 7, "file": 0, "fd": 3}]
CALL = {
    "id": 5, "task": 0, "pid": 100, "tid": 101, "call": READ, "handle": 0, "cpu": 1, "offset_bytes": 8192,
    "bytes_request": 4096, "bytes_result": 4096, "begin_time_ns": 1000, "end_time_ns": 11_000,
}  # fmt: skip


def request(number: int, begin: int, end: int, task: int | None = 0, **more: Any) -> Row:
    """A read of 4 KiB that is 100 ns in the queue."""
    who = {} if task is None else {"task": task}
    times = {"insert_time_ns": begin, "issue_time_ns": begin + 100, "complete_time_ns": end}
    return {
        "id": number,
        "device": SDA,
        "bytes_request": 4096,
        "bytes_issued": 4096,
        "sector": 64,
        **times,
        **who,
        **more,
    }


def stretch(begin: int, end: int, state: int, task: int = 0) -> Row:
    """A stretch without a CPU."""
    return {"task": task, "begin_time_ns": begin, "end_time_ns": end, "state": state}


@pytest.fixture
def explained(tmp_path: Path) -> Callable[..., Chain]:
    """The chain of the call 5."""

    def chain(events: tuple[str, ...] = ("sched:sched_switch", "block:block_rq_issue"), **tables: list[Row]) -> Chain:
        tables.setdefault("operations", [CALL])
        counted = tuple(EventCompleteness(event, 0, 9, 0, 9) for event in events)
        batch = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, **tables)
        trace = write_trace(tmp_path, [batch], completeness=replace(COMPLETE, events=counted))
        return explain(trace, [5])[0]

    return chain


def test_times_add_up(explained: Callable[..., Chain]) -> None:
    """Stretches of the call's thread during the call, and the rest on a CPU; no others'."""
    chain = explained(
        off_cpu=[
            *(stretch(2000, 7000, 1), stretch(7500, 8500, 0), stretch(8600, 8700, 1)),
            *(stretch(500, 900, 2), stretch(11_000, 12_000, 2), stretch(3000, 4000, 3, task=1)),
        ]
    )
    assert [(share.what, share.time_ns) for share in chain.shares] == [
        ("waiting for a device", 5100), ("on a CPU", 3900), ("preempted", 1000),
    ]  # fmt: skip
    assert sum(share.time_ns for share in chain.shares) == chain.duration_ns == 10_000
    assert chain.unknown == ()


@pytest.mark.parametrize(
    ("state", "row", "waker", "told"),
    [
        (1, 1, 200, "woken by an interrupt or by other 200"),
        (1, UNKNOWN_U32, 0, "woken by an interrupt on an idle CPU"),
        (2, 1, 200, "woken by other 200"),
        (2, UNKNOWN_U32, 200, "woken by other 200"),
        (2, UNKNOWN_U32, 201, "woken by thread 201"),
    ],
)
def test_who_ended_a_wait(explained: Callable[..., Chain], state: int, row: int, waker: int, told: str) -> None:
    """Interrupts end waits for a device: who ran there then may have nothing to do with the wakeup.

    A waker without a row is looked up by its tid: it was about to end.
    """
    woken = {"wake_time_ns": 6900, "waker": row, "waker_tid": waker}
    chain = explained(off_cpu=[stretch(2200, 7100, state) | woken])
    assert [step.text.rpartition(", ")[2] for step in chain.steps if "no CPU" in step.text] == [told]


def test_a_tid_that_two_threads_had_names_neither(tmp_path: Path) -> None:
    """One of them woke the thread."""
    tasks = [*THREADS, {"task": 2, "process": 9, "pid": 200, "tid": 200, "comm": b"later"}]
    woken = {"wake_time_ns": 6900, "waker_tid": 200}
    batch = make_batch(
        tasks=tasks, handles=HANDLES, files=FILES, operations=[CALL], off_cpu=[stretch(2200, 7100, 2) | woken]
    )
    (chain,) = explain(write_trace(tmp_path, [batch], spool=meta(layers=("waits",))), [5])
    assert any(step.text.endswith("woken by thread 200") for step in chain.steps)


def test_requests(explained: Callable[..., Chain], golden: Callable[[str, str], None]) -> None:
    """Requests that its thread submitted meanwhile are its own. Others at the device between them are counted."""
    chain = explained(
        off_cpu=[stretch(2200, 7100, 1)],
        requests=[
            *(request(10, 2000, 7000), request(11, 500, 900), request(12, 12_000, 13_000)),
            *(request(20, 500, 2001, task=1), request(21, 6999, 9000, task=None), request(22, 3000, 4000, task=None)),
            *(
                request(23, 500, 1999, task=1),
                request(24, 7000, 8000, task=1),
                request(25, 500, 9000, 1, device=SDA + 1),
            ),
        ],
    )
    assert [(step.at_ns, step.duration_ns) for step in chain.steps] == [(0, 0), (1000, 5000), (1200, 4900), (10_000, 0)]
    assert [(each.submitter, each.requests) for each in chain.others] == [
        ("the kernel or a thread that is not recorded", 2), ("other", 1),
    ]  # fmt: skip
    text = io.StringIO()
    render_chain(chain, Console(file=text, width=120, no_color=True))
    golden("why.txt", text.getvalue())


def test_what_became_of_written_pages(tmp_path: Path) -> None:
    """Rows of the thread and the call's start alone; the last of them counts, and what nobody has written."""
    mine = {"task": 0, "call_begin_ns": 1000, "bytes": 4096}
    charges = [
        mine | {"request": 10, "complete_time_ns": 31_000},
        mine | {"request": 11, "complete_time_ns": 21_000},
        mine,
        mine | {"request": 11, "task": 1, "complete_time_ns": 51_000},
        mine | {"request": 10, "call_begin_ns": 900, "complete_time_ns": 41_000},
    ]
    requests = [request(10, 20_000, 31_000, None, reason=4), request(11, 20_000, 21_000, None)]
    batch = make_batch(
        tasks=THREADS, handles=HANDLES, files=FILES, operations=[CALL], requests=requests, write_backs=charges
    )
    (chain,) = explain(write_trace(tmp_path, [batch], spool=meta(layers=("parts", "dirty"))), [5])
    assert chain.written_back == WrittenBack(8192, 2, 30_000, ("sync",), 4096)
    text = io.StringIO()
    render_chain(chain, Console(file=text, width=120, no_color=True))
    assert "8 KiB by 2 requests (sync), the last 30 µs after its start; 4 KiB not yet" in text.getvalue()


def test_what_is_not_recorded_is_said(explained: Callable[..., Chain]) -> None:
    """Without switches no share is known; without block events there are no requests."""
    chain = explained(events=("syscalls:sys_enter_read",))
    assert [(share.what, share.time_ns) for share in chain.shares] == [("not known", 10_000)]
    assert [sentence.split(":")[0] for sentence in chain.unknown] == [
        "The recording does not tell when threads had a CPU", "The recording has no block requests.",
    ]  # fmt: skip


def test_a_stretch_without_an_end(explained: Callable[..., Chain]) -> None:
    """If the switch back was lost, the shares are not known."""
    chain = explained(off_cpu=[{**stretch(2000, 0, 1), "end_time_ns": -(2**63)}])
    assert [share.what for share in chain.shares] == ["not known"]
    assert chain.unknown == ("The end of a stretch without a CPU was not seen.",)


@pytest.mark.parametrize(
    ("call", "answer"), [({**CALL, "id": 6}, "no such call"), ({**CALL, "end_time_ns": -(2**63)}, "end is not known")]
)
def test_calls_that_cannot_be_explained(explained: Callable[..., Chain], call: Row, answer: str) -> None:
    """A call that is not there, and one that did not end."""
    with pytest.raises(UsageError, match=answer):
        explained(operations=[call])


def test_the_order_is_that_of_the_request(tmp_path: Path) -> None:
    """Several calls come in the order in which they were asked for."""
    calls = [CALL, {**CALL, "id": 9, "call": WRITE}]
    trace = write_trace(tmp_path, [make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=calls)])
    assert [chain.call for chain in explain(trace, [9, 5])] == ["write", "read"]


ASKED = {
    "id": 7, "ring": 0, "task": 0, "pid": 100, "tid": 101, "opcode": 3, "path": 4, "handle": 0,
    "submit_time_ns": 1000, "punt_time_ns": 1100, "issue_time_ns": 2000, "complete_time_ns": 9000,
    "queued_ns": 1000, "executing_ns": 7000, "waiting_ns": 0,
}  # fmt: skip
"""A request that a worker executes."""


def of_request(folder: Path, layers: tuple[str, ...], **changes: Any) -> Chain:
    """The chain of the request 7, whose worker has two stretches, and one on its way to the request."""
    works = [{"id": 7, "ring": 0, "task": 1, "begin_time_ns": 2000, "end_time_ns": 9000}]
    times = [(1500, 1600, 1700), (3000, 7000, 7500), (8000, 8000, 8100)]
    waits = [
        {"task": 1, "begin_time_ns": out, "wake_time_ns": wake, "end_time_ns": end, "state": 2 if wake > out else 0}
        | {"request": 7, "reason": 0}
        for out, wake, end in times
    ]
    batch = make_batch(
        tasks=THREADS,
        handles=HANDLES,
        files=FILES,
        ring_requests=[{**ASKED, **changes}],
        ring_works=works,
        off_cpu=waits if "workers" in layers else [],
        requests=[request(8, 3000, 6900, task=None, ring_request=7)],
    )
    (chain,) = explain(write_trace(folder, [batch], spool=meta(layers=layers)), [7])
    return chain


def test_a_request_of_a_ring(tmp_path: Path) -> None:
    """Its phases; the execution by a worker is divided, and no stretch outside of it counts. Shares are its time."""
    chain = of_request(tmp_path, ("waits", "workers"))
    shares = {share.what: share.time_ns for share in chain.shares}
    assert shares == {"blocked": 4000, "executing": 2400, "queued": 1000, "run queue": 500, "preempted": 100}
    assert (chain.kind, chain.call, chain.file, chain.duration_ns) == ("request", "FSYNC", "/data/f", 8000)
    text = io.StringIO()
    render_chain(chain, Console(file=text, width=120, no_color=True))
    assert "request 7" in text.getvalue()
    assert "other executes it" in text.getvalue()
    assert any("sda: read of 4 KiB" in step.text for step in chain.steps)


def test_a_request_whose_worker_was_not_recorded(tmp_path: Path) -> None:
    """Its execution is one share, and the layers that would tell more are named."""
    chain = of_request(tmp_path, ("waits",), error=5)
    assert [(share.what, share.time_ns) for share in chain.shares] == [("executing", 7000), ("queued", 1000)]
    assert any("--layers waits,workers" in sentence for sentence in chain.unknown)
    assert chain.error == "EIO"


def test_a_request_of_unknown_phases(tmp_path: Path) -> None:
    """Nothing is shared out."""
    chain = of_request(tmp_path, ("waits", "workers"), queued_ns=-(2**63), opcode=255)
    assert [(share.what, share.time_ns) for share in chain.shares] == [("not known", 8000)]
    assert chain.call == "opcode 255"


@pytest.mark.parametrize(
    ("column", "answer"), [("submit_time_ns", "start is not known"), ("complete_time_ns", "end is not known")]
)
def test_requests_that_cannot_be_explained(tmp_path: Path, column: str, answer: str) -> None:
    """One whose start or end was not seen."""
    with pytest.raises(UsageError, match=answer):
        of_request(tmp_path, ("waits",), **{column: -(2**63)})


def test_names_in_steps_cannot_move_the_cursor(explained: Callable[..., Chain]) -> None:
    """A step may have the name of a thread."""
    chain = explained()
    step = replace(chain.steps[0], text="woken by \x1b[2J")
    text = io.StringIO()
    render_chain(replace(chain, steps=(step,)), Console(file=text, width=120, no_color=True))
    assert r"woken by \x1b[2J" in text.getvalue()
    assert "\x1b" not in text.getvalue()
