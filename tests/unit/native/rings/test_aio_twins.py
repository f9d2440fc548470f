"""The native engine and a slow one agree on requests of libaio, whatever programs do with their iocbs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from build.ringrig import PID
from build.sqerig import CONTEXT, SqeRig
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference.aio import CANCELED, Aio

SETTINGS = settings(
    max_examples=int(os.environ.get("LO2IO_EXAMPLES", "25")),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
THREADS = (PID, PID + 1, PID + 2)
CONTEXTS = (CONTEXT, CONTEXT + 4096)
IOCBS, DATA = (0x1000, 0x2000, 0x3000), (0, 7)
RESULTS = (0, 512, -5, CANCELED)
NAMES = st.tuples(st.sampled_from(IOCBS), st.sampled_from(DATA))
EVENTS = st.tuples(st.sampled_from(IOCBS), st.sampled_from(DATA), st.sampled_from(RESULTS))
MOVES = st.lists(
    st.tuples(
        st.sampled_from(("submit", "submit", "enter", "leave", "collect", "collect", "destroy")),
        st.integers(0, len(THREADS) - 1),
        st.sampled_from(CONTEXTS),
        st.lists(NAMES, min_size=1, max_size=3),
        st.lists(EVENTS, min_size=1, max_size=3),
        st.integers(-1, 3),
    ),
    max_size=40,
)


def play(rig: SqeRig, twin: Aio, move: tuple, taken: dict[int, int]) -> None:  # type: ignore[type-arg]
    """One move of a thread, if it is possible, for both engines."""
    kind, who, context, iocbs, events, ret = move
    tid = THREADS[who]
    if kind == "leave" and tid in taken:
        rig.leave("io_submit", taken[tid], tid)
        twin.leave(tid, taken.pop(tid))
    if kind == "leave" or tid in taken:
        return
    if kind in {"submit", "enter"}:
        time = None
        for place, (iocb, data) in enumerate(iocbs):
            time = rig.iocb(place, time=time, tid=tid, iocb=iocb, data=data)
        twin.enter(tid, context, iocbs, rig.enter("io_submit", tid, ctx_id=context, nr=len(iocbs)))
        taken[tid] = min(ret, len(iocbs))
        if kind == "submit":
            play(rig, twin, ("leave", who, context, iocbs, events, ret), taken)
    elif kind == "collect":
        twin.collect(context, events, rig.collect(*events, context=context, tid=tid) - 10)
    elif context not in {twin.calls[other].context for other in taken}:
        twin.destroy(context, rig.call("io_destroy", 0, tid, ctx=context))


@SETTINGS
@given(MOVES)
def test_engines_agree(moves: list[tuple]) -> None:  # type: ignore[type-arg]
    """Results, bounds and inferred columns, request by request; and how many events fit no request."""
    with tempfile.TemporaryDirectory() as folder:
        rig, twin, taken = SqeRig(Path(folder)), Aio(), dict[int, int]()
        for tid in THREADS[1:]:
            rig.fork(PID, tid, PID)
        for move in moves:
            play(rig, twin, move, taken)
        for who in range(len(THREADS)):
            play(rig, twin, ("leave", who, CONTEXT, [], [], 0), taken)
        rig.run()
    columns = ("user_data", "submit_time_ns", "result", "complete_time_ns", "end_before_time_ns", "inferred", "status")
    rows = sorted(rig.of("ring_requests", "id", *columns))
    assert [row[1:] for row in rows] == [(*request.row(), request.status) for request in twin.over()]
    assert rig.totals.nr_orphan_cqes == twin.orphans
