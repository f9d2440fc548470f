"""Histories of block requests on few sectors, so that requests collide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from reference.histories import SMALL

if TYPE_CHECKING:
    from reference.histories import History

DEVICES = (8 << 20, 253 << 20 | 1)
RWBS = (b"R", b"W", b"WS", b"RA", b"FWFS", b"D", b"DE", b"WZ", b"FF", b"F", b"RSM", b"N")
CALLS = ("enter", "exit", "enter", "exit", "rq_insert", "rq_issue")
EVENTS = ("rq_insert", "rq_issue", "rq_complete", "rq_requeue", "rq_merge", "bio_frontmerge", "bio_queue")


@st.composite
def block_histories(draw: st.DrawFn, *, cpus: int = 2, calls: bool = False) -> History:
    """Block events on few sectors: merges, requeues, splits, partial completions, twins, flushes, errors, bypass.

    With ``calls``, their threads also make calls: one that waits for its requests, and one that does not.
    """
    history: History = [("fact_task", (1_000, 100, 100), {"comm": b"io", "flags": 1})]
    now = 100_000
    more = CALLS if calls else ("rq_insert", "rq_issue", "rq_complete", "rq_complete")
    event = st.tuples(
        st.sampled_from((*EVENTS, *EVENTS, *more)),
        st.integers(0, 9),
        st.integers(0, 3),
        st.sampled_from((b"W", b"W", b"W", b"R", *RWBS)),
        st.sampled_from((0, 1, 5)),
        SMALL,
    )
    for name, place, length, rwbs, step, salt in draw(st.lists(event, max_size=50)):
        now += step
        if name in ("enter", "exit"):
            history.append((name, (now, salt % cpus, 100, ("fsync", "io_submit")[salt % 4 == 3]), {}))
            continue
        if name in ("rq_merge", "bio_frontmerge") and rwbs in (b"F", b"FF", b"FWFS"):
            continue  # a flush has no sectors that another request could touch
        flush = rwbs in (b"F", b"FF") or (rwbs == b"FWFS" and salt % 2 == 0)
        size = 0 if flush else 8 * (length + 1)
        fields: dict[str, Any] = {
            "dev": DEVICES[salt % 8 == 7],
            "sector": 0 if flush else 1000 + 8 * place,
            "nr_sector": size,
            "rwbs": rwbs,
        }
        if name == "rq_complete" and salt % 9 == 8:
            fields["error"] = -5
        tid = 0 if name == "rq_complete" else (100, 100, 100, 55)[salt % 4]
        history.append(("block", (now, salt % cpus, tid, name), fields))
    return history
