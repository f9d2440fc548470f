"""The writer's memory for ring requests does not grow with their number: three times as many take no more.

A process of its own writes each trace, from one batch that is written again and again, later each time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from build.otf2_batches import CALLS, META, OPCODES, BatchMaker, complete
from build.scalereader import peak_bytes

from lo2io.model import UNKNOWN_I64, RingStatus, Totals, TraceEnd
from lo2io.otf2.write.writer import Otf2Writer
from lo2io.verify import verify

if TYPE_CHECKING:
    from lo2io.model import Batch

MIB = 1 << 20
SLACK_BYTES = 2 * MIB
"""As in test_scale.py; what leaks 8 bytes a request takes more."""
TRIES = 4
"""A busy machine may need more than one."""
ROUNDS, REQUESTS = 150, 1_000
"""So many that no file of events is below 4 MiB: up to there libotf2's buffers grow."""
VERIFIED_ROUNDS = 40
"""Of a trace that is read, too, which takes longer than to write it. Its files of events have several chunks."""
THREADS = 2
BEGIN, ISSUED, COMPLETE = range(3)
ENDLESS = ("silent", "late")
"""Scenarios in which no request ends."""
SPAN = 1_000_000
FIRST = 10 * SPAN
"""Nanoseconds of a round."""
TIMES = ("time_ns", "call_begin_time_ns", "begin_time_ns", "end_time_ns", "queue_time_ns")


def poller(maker: BatchMaker) -> None:
    """An SQ thread: it never makes a call, so nothing it does waits for one; most files are known late."""
    for number in range(REQUESTS):
        at = FIRST + 900 * number
        maker.ring_event(2 * number + 1, BEGIN, at)
        maker.ring_event(2 * number + 1, ISSUED, at + 10, handle=0 if number % 3 else 2**32 - 1)
        maker.ring_event(2 * number + 1, COMPLETE, at + 20, handle=0, bytes=512)


def silent(maker: BatchMaker) -> None:
    """Requests that have no end, within calls and without; of some the row comes before their start is written."""
    for number in range(REQUESTS):
        at = FIRST + 900 * number
        call = {"call": at - 5} if number % 2 else {}
        maker.ring_event(2 * number + 1, BEGIN, at, **call)
        maker.ring_event(2 * number + 1, ISSUED, at + 10, **call)
        maker.row("ring_requests", id=2 * number + 1, status=RingStatus.SILENT)
        if number % 4 == 3:
            maker.call("io_uring_enter", at - 5, at + 100)


def calls(maker: BatchMaker) -> None:
    """Batches of 50 within calls that sleep in between, with all that a ring has beside; a worker executes each."""
    for start in range(0, REQUESTS, 50):
        at = FIRST + 900 * start
        for number in range(start, start + 50):
            maker.ring_event(2 * number + 1, BEGIN, at + 10, at, user_data=number)
        for number in range(start, start + 50):
            when = at + 100 * (number - start + 1)
            maker.ring_event(2 * number + 1, ISSUED, when, at, handle=0)
            maker.ring_event(2 * number + 1, COMPLETE, when + 50, at, handle=0, traits=number % 64)
            maker.row("ring_works", id=2 * number + 1, task=1, begin_time_ns=when, end_time_ns=when + 50)
            maker.row("ring_states", time_ns=when + 50, in_flight=start + 50 - number)
        for sleep in range(at + 75, at + 4_000, 100):
            maker.row("off_cpu", begin_time_ns=sleep, end_time_ns=sleep + 90, state=3)
        number = maker.call("io_uring_enter", at, at + 40_000)
        maker.row("batches", id=number, asked=50, submitted=50)


def late(maker: BatchMaker, task: int = 0) -> None:
    """Two threads by turns: a call's row comes two rounds after its requests, which have no end."""
    ids = {"task": task, "pid": 100, "tid": 100 + task}
    begin = FIRST + task * SPAN
    maker.call("io_uring_enter", begin - THREADS * SPAN, begin - 1, **ids)
    for number in range(10 * REQUESTS * task, 10 * REQUESTS * task + REQUESTS):
        much = {"user_data": 2**64 - 1, "sqe_flags": 127, "previous": 2 * number + 3}
        maker.ring_event(2 * number + 1, BEGIN, begin + 10, begin, **much, **ids)
        maker.ring_event(2 * number + 1, ISSUED, begin + 20, begin, **ids)
        maker.row("ring_requests", id=2 * number + 1, status=RingStatus.SILENT)


def batches(name: str) -> list[Batch]:
    """The batches that are written by turns."""
    if name == "late":
        turns = [BatchMaker(first_id=5 * REQUESTS + 20 * REQUESTS * task) for task in range(THREADS)]
        for task, maker in enumerate(turns):
            late(maker, task)
        return [maker.make() for maker in turns]
    maker = BatchMaker(first_id=5 * REQUESTS)
    {"poller": poller, "silent": silent, "calls": calls}[name](maker)
    return [maker.make()]


def later(batch: Batch, rounds: int) -> None:
    """Make it one of so many rounds later."""
    for table in (batch.operations, batch.ring_events, batch.ring_works, batch.ring_states, batch.off_cpu):
        for name in TIMES:
            if name in table:
                table[name][table[name] != UNKNOWN_I64] += rounds * SPAN
    for table in (batch.operations, batch.ring_events, batch.ring_works, batch.ring_requests, batch.batches):
        table["id"][:] += rounds * 20 * REQUESTS
    done = rounds * len(batch.operations["id"])
    for table in (batch.ring_events, batch.off_cpu):
        table["before"][:] += done
    batch.native.first_operation += done


def write(directory: Path, name: str, rounds: int) -> dict[str, int]:
    """Write so many rounds of a scenario; the peak of memory."""
    start = BatchMaker()
    for task in range(THREADS):
        start.task(task)
    start.row("handles", handle=0, fd=3, origin=3)
    start.row("rings")
    turns = batches(name)
    meta = replace(META, events=("sched:sched_switch",))
    with Otf2Writer(directory, meta, CALLS, OPCODES) as writer:
        writer.write(start.make())
        for number in range(rounds):
            batch = turns[number % len(turns)]
            writer.write(batch)
            later(batch, len(turns))
        writer.close(TraceEnd(FIRST - 5 * SPAN, FIRST + rounds * SPAN, complete(), Totals()))
    return {"peak_bytes": peak_bytes()}


def written(directory: Path, name: str, rounds: int) -> int:
    """The peak of memory of a process that writes so many rounds."""
    directory.mkdir()
    done = subprocess.run(
        [sys.executable, __file__, str(directory), name, str(rounds)],
        stdout=subprocess.PIPE,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return int(answer["peak_bytes"])


@pytest.mark.parametrize("name", ["poller", "silent", "late", "calls"])
def test_memory_does_not_grow_with_the_number_of_requests(tmp_path: Path, name: str) -> None:
    """150,000 requests against 450,000; a trace of 40,000 holds all of them."""
    small, large = (written(tmp_path / str(rounds), name, rounds) for rounds in (ROUNDS, 3 * ROUNDS))
    for number in range(TRIES):  # perhaps other processes kept the writer waiting, and batches waited for it
        if large - small >= SLACK_BYTES:
            large = min(large, written(tmp_path / f"again-{number}", name, 3 * ROUNDS))
    assert large - small < SLACK_BYTES, f"{small / MIB:.1f} MiB, {large / MIB:.1f} MiB"
    written(tmp_path / "verified", name, VERIFIED_ROUNDS)
    verdict = verify(tmp_path / "verified")
    assert set(verdict.broken) - {"ring.reference"} == ({"operation.in-flight"} if name in ENDLESS else set())
    assert verdict.counts.operations == VERIFIED_ROUNDS * REQUESTS


if __name__ == "__main__":
    print(json.dumps(write(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
