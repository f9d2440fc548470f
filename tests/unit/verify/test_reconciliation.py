"""The comparison with the kernel's own accounts, as a trace carries it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from build.otf2_builder import correct

from lo2io.model import Completeness, Totals, TraceEnd
from lo2io.verify import read_reconciliation, render, verify

if TYPE_CHECKING:
    from pathlib import Path

SHORT = "captured only 0 % of 10 MiB that your command wrote; the cause is not known"
SAID = "captured 100 % of 163,840 block requests, 99.97 % of read bytes"
PROVEN = Completeness(0, 0, 0, 0, 0, 7, True)


def test_the_words_travel_with_the_trace(maker: Any, write: Any, tmp_path: Path) -> None:
    """They are a property; verify repeats them after the four counters, and in JSON."""
    facts = {"RECONCILIATION": SAID, "SHORTFALL": SHORT}
    write(maker.make(), end=TraceEnd(1_000_000, 2_000_000, PROVEN, Totals(), facts))
    said, short = read_reconciliation(tmp_path)
    assert (said, short) == (SAID, SHORT)
    text = render(verify(tmp_path), PROVEN, said)
    assert text.splitlines()[-1].endswith(f" in flight; {SAID}")
    document = json.loads(render(verify(tmp_path), PROVEN, said, short, json=True))
    assert (document["reconciliation"], document["shortfall"]) == (SAID, SHORT)


def test_too_small_a_share_is_not_complete(tmp_path: Path) -> None:
    """Whatever the counts prove, the verdict is another one, with the reason."""
    text = render(verify(correct().write(tmp_path / "T")), PROVEN, "", SHORT)
    assert f"The recording is incomplete ({SHORT}): 7 samples" in text


def test_traces_that_say_nothing(tmp_path: Path) -> None:
    """Other tools' traces, and recordings that could not be compared."""
    trace = correct().write(tmp_path / "T")
    assert read_reconciliation(trace) == ("", "")
    assert render(verify(trace), PROVEN).splitlines()[-1].endswith(" in flight")
