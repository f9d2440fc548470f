"""Which way of opening events follows which refusal, and what errors say."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from lo2io.capture import opening
from lo2io.capture.events import python_perf
from lo2io.capture.events.opened import INHERIT, SYSTEM, opening_failed
from lo2io.capture.options import RecordOptions
from lo2io.errors import AccessError, CaptureError

if TYPE_CHECKING:
    from lo2io.model.notices import Notice

REFUSAL = AccessError("open events", "Permission denied", "sudo")


def opened(monkeypatch: pytest.MonkeyPatch, *answers: object, **options: Any) -> tuple[object, list[str], list[str]]:
    """What is opened if the kernel gives these answers, which scopes were tried, and the notices."""
    attempt, notices = Mock(side_effect=answers), list["Notice"]()
    monkeypatch.setattr(opening, "_attempt", attempt)
    given = RecordOptions(Path("S"), ("a:b",), command=("true",), **options)
    try:
        found: object = opening._open_perf(given, (), (), notices.append, cpus=(0,), cgroup=None)
    except AccessError as error:
        found = error
    return found, [call.kwargs["scope"] for call in attempt.mock_calls], [notice.text for notice in notices]


def test_without_rights_events_are_opened_per_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a notice says so. If that is refused, too, the first refusal is told."""
    assert opened(monkeypatch, "all") == ("all", [SYSTEM], [])
    found, scopes, notices = opened(monkeypatch, REFUSAL, "own")
    assert (found, scopes) == ("own", [SYSTEM, INHERIT])
    assert notices == ["events are recorded per task, not per CPU: Permission denied"]
    assert opened(monkeypatch, REFUSAL, AccessError("x", "y", "z")) == (REFUSAL, [SYSTEM, INHERIT], [])


@pytest.mark.parametrize(
    "options", [{"system": True}, {"scope": SYSTEM}, {"scope": INHERIT}, {"opener": "python-perf"}]
)
def test_what_the_user_has_chosen_has_no_other_way(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal is the answer."""
    assert opened(monkeypatch, REFUSAL, **options) == (REFUSAL, [options.get("scope", SYSTEM)], [])


@pytest.mark.parametrize(
    ("number", "kind", "remedy"),
    [
        (errno.EACCES, AccessError, "sudo"),
        (errno.EPERM, AccessError, "sudo"),
        (errno.EMFILE, CaptureError, "ulimit -n"),
        (errno.ENFILE, CaptureError, "ulimit -n"),
        (errno.ENOSYS, CaptureError, "a kernel with perf events"),
        (errno.ENOENT, CaptureError, "a kernel with perf events"),
        (errno.EINVAL, CaptureError, "--opener native"),
    ],
)
def test_each_refusal_has_its_remedy(tmp_path: Path, number: int, kind: type[Exception], remedy: str) -> None:
    """The setting that refuses is told with its value."""
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/perf_event_paranoid").write_text("3\n")
    error = opening_failed("a:b", OSError(number, "no"), tmp_path)
    assert type(error) is kind
    assert remedy in error.remedy
    assert ("perf_event_paranoid is 3;" in error.answer) == (kind is AccessError)


def test_events_of_the_binding_are_told_apart_by_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two events on two CPUs: ids rise event by event, the list goes CPU by CPU. Another order is an error."""
    ids = {10: 1, 11: 3, 12: 2, 13: 4}
    monkeypatch.setattr(python_perf.abi, "event_id", ids.__getitem__)
    assert python_perf._sort_fds([10, 11, 12, 13, 10], 2, [0, 1]) == [[10, 12], [11, 13]]
    for fds in ([10, 12, 11, 13], [10, 11, 12]):
        with pytest.raises(CaptureError, match="apart"):
            python_perf._sort_fds(fds, 2, [0, 1])
