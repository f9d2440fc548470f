"""The directory of a trace: only lo2io's files are removed, and no half-written file stays."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING
from unittest.mock import Mock, call

import pytest

from lo2io import pipeline
from lo2io.capture.options import RecordRequest
from lo2io.errors import UsageError
from lo2io.folder import Folder, sudo_caller
from lo2io.trace import directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def make_trace(path: Path) -> None:
    """A trace directory as lo2io leaves it."""
    for name in ("lo2io", "traces"):
        (path / name).mkdir(parents=True)
    (path / "traces.otf2").write_text("old")
    (path / "traces/0.evt").touch()
    (path / "lo2io/operations.arrow").touch()


@contextlib.contextmanager
def recorded_into(path: Path, *, force: bool = False) -> Iterator[Folder]:
    """Opens directories like a recording; returns the spool's."""
    with directory.locked_directory(path) as trace, directory.fresh_directory(trace, force=force) as spool:
        yield spool
        spool.close()


@contextlib.contextmanager
def converted_into(path: Path, spool: Path, *, force: bool = False) -> Iterator[Path]:
    """Opens directories like a conversion; returns the one to write into."""
    with (
        Folder.open(spool) as read,
        directory.locked_directory(path) as trace,
        directory.whole_trace(trace, read, force=force) as part,
    ):
        yield part.place


def names(folder: Path) -> list[str]:
    """The names in a folder."""
    return sorted(entry.name for entry in folder.iterdir())


def test_an_interrupt_right_after_the_folder_was_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the unfinished trace is removed whenever the interrupt comes."""
    trace, spool = tmp_path / "T", tmp_path / "spool"
    make_trace(trace)
    spool.mkdir()
    make = Folder.make

    def interrupted(folder: Folder, name: str) -> Folder:
        made = make(folder, name)
        signal.raise_signal(signal.SIGINT)
        return made

    monkeypatch.setattr(Folder, "make", interrupted)
    with pytest.raises(KeyboardInterrupt), converted_into(trace, spool, force=True):
        pass
    assert names(trace) == ["lo2io", "traces", "traces.otf2"]


def test_an_interrupt_waits_until_events_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that stays open makes lo2io end seconds later. The spool stays, and the exit code is the signal's."""
    closed = []

    def close() -> None:
        signal.raise_signal(signal.SIGINT)
        closed.append("event")

    def record(_: object, _tell: object, _show: object, later: contextlib.ExitStack) -> Mock:
        later.callback(close)
        return Mock(exit_code=0)

    monkeypatch.setattr(pipeline, "record_spool", record)
    said: list[str] = []
    recorded = pipeline.record(RecordRequest(command=("true",), output=tmp_path / "T", alone=True), said.append)
    assert closed == ["event"]
    assert (recorded.exit_code, recorded.converted) == (128 + signal.SIGINT, None)
    assert names(tmp_path / "T") == ["spool"]
    assert "the spool is kept" in said[-1]


def test_a_former_trace_is_removed_only_after_success(tmp_path: Path) -> None:
    """A recording that fails before its start leaves the former trace unchanged; a successful one replaces it."""
    trace = tmp_path / "T"
    make_trace(trace)
    with pytest.raises(RuntimeError), recorded_into(trace, force=True):  # noqa: PT012 - what it does meanwhile
        assert names(trace) == [".replaced", "spool"]
        raise RuntimeError
    assert (trace / "traces.otf2").read_text() == "old"
    assert names(trace) == ["lo2io", "traces", "traces.otf2"]
    with recorded_into(trace, force=True) as spool:
        spool.write("spool.json", b"")
    assert names(trace) == ["spool"]


@pytest.mark.parametrize(
    "left",
    [
        ["spool/cpu-0003.calls", "spool/cpu-0003.ring", "spool/facts.ring", "spool/.reserve", "spool/spool.json.new"],
        ["spool/seg-000007/cpu-0003.ring", "spool/.seg-000006/segment.json", "spool/.control", "spool/spool.json"],
        [".part/traces/0.evt", ".part/traces.def", ".part/lo2io/files.arrow.part"],
        [".replaced/traces.otf2", ".replaced/lo2io/metadata.json", "spool/facts.ring"],
    ],
)
def test_all_that_a_killed_recorder_leaves_may_be_replaced(tmp_path: Path, left: list[str]) -> None:
    """Files of a spool, cut off or kept, an unfinished trace, and a former trace put aside."""
    for name in left:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    with pytest.raises(UsageError, match="it exists") as caught, recorded_into(tmp_path):
        pass
    assert "--force" in caught.value.remedy
    with recorded_into(tmp_path, force=True) as spool:
        spool.write("spool.json", b"")
    assert names(tmp_path) == ["spool"]


@pytest.mark.parametrize(
    "name",
    [
        *("lo2io/cli/app.py", "traces/notes.txt", "spool/mail", "letter", "traces.otf2/x"),
        *(".part/x", ".replaced/x", "spool/seg-000001/x"),
    ],
)
def test_what_is_not_ours_is_never_removed(tmp_path: Path, name: str) -> None:
    """Folders of the same names with other contents belong to somebody else, with --force and without."""
    trace, spool = tmp_path / "T", tmp_path / "S"
    file = trace / name
    file.parent.mkdir(parents=True)
    file.write_text("precious")
    spool.mkdir()
    for force in (False, True):
        with pytest.raises(UsageError, match="lo2io did not write"), recorded_into(trace, force=force):
            pass
        if name.startswith(("lo2io", "traces", ".")):
            writing = converted_into(trace, spool, force=force)
            with pytest.raises(UsageError, match=r"lo2io did not write|already"), writing:
                pass
    assert file.read_text() == "precious"


def test_links_are_not_followed_into_others_files(tmp_path: Path) -> None:
    """Through a link to a directory, lo2io records into that directory; directory and link stay."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    make_trace(tmp_path / "link")
    with recorded_into(tmp_path / "link", force=True) as spool:
        spool.write("spool.json", b"")
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "real") == ["spool"]


def test_an_empty_directory_of_the_users_stays(tmp_path: Path) -> None:
    """A failed recording removes a directory only if it made that directory itself."""
    (tmp_path / "mine").mkdir()
    for name in ("mine", "new"):
        with pytest.raises(RuntimeError), recorded_into(tmp_path / name):
            raise RuntimeError
    assert names(tmp_path) == ["mine"]
    assert names(tmp_path / "mine") == []


def test_two_recordings_in_one_second_have_two_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second gets a number."""
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as held:
        traces = [held.enter_context(directory.locked_directory(None, "T")) for _ in range(3)]
        assert [str(trace.path) for trace in traces] == ["T", "T-2", "T-3"]


@pytest.mark.parametrize("name", ["traces/3.evt", "traces/3.evt.part", "lo2io/metadata.json.part", "flat/traces/3.evt"])
def test_what_a_killed_conversion_left_makes_way(tmp_path: Path, name: str) -> None:
    """The next conversion does not refuse what lo2io wrote itself, nor does a recording."""
    trace, spool = tmp_path / "T", tmp_path / "S"
    spool.mkdir()
    for next_one in (converted_into(trace, spool), recorded_into(trace, force=True)):
        left = trace / ".part" / name
        left.parent.mkdir(parents=True)
        left.touch()
        with next_one:
            assert not left.exists()


def test_what_lo2io_never_writes_stays(tmp_path: Path) -> None:
    """Somebody else's file may lie in a folder of the same name."""
    trace, spool = tmp_path / "T", tmp_path / "S"
    spool.mkdir()
    foreign = trace / ".part/flat/notes"
    foreign.mkdir(parents=True)
    with pytest.raises(UsageError, match=r"did not write its '\.part'"), converted_into(trace, spool):
        pass
    assert foreign.exists()


def test_half_a_trace_does_not_stay(tmp_path: Path) -> None:
    """A conversion that stops leaves nothing that would stop the next one, and does not touch a spool beside it."""
    trace, spool = tmp_path / "T", tmp_path / "T/spool"
    spool.mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt), converted_into(trace, spool) as part:  # noqa: PT012
        make_trace(part)
        raise KeyboardInterrupt
    assert names(trace) == ["spool"]
    with converted_into(trace, spool) as part:
        make_trace(part)
        assert names(trace) == [".part", "spool"]
    assert names(trace) == ["lo2io", "spool", "traces", "traces.otf2"]
    with pytest.raises(UsageError, match="already"), converted_into(trace, spool):
        pass
    with pytest.raises(UsageError, match="spool itself"), converted_into(spool, spool, force=True):
        pass


def test_a_trace_is_replaced_by_a_whole_one_alone(tmp_path: Path) -> None:
    """If converting with --force stops, the old trace stays. After success, the old trace's further files are gone."""
    trace, spool = tmp_path / "T", tmp_path / "S"
    make_trace(trace)
    (trace / "traces.marker").touch()
    spool.mkdir()
    with pytest.raises(RuntimeError), converted_into(trace, spool, force=True) as part:  # noqa: PT012
        make_trace(part)
        raise RuntimeError
    assert names(trace) == ["lo2io", "traces", "traces.marker", "traces.otf2"]
    with converted_into(trace, spool, force=True) as part:
        make_trace(part)
        (part / "traces.otf2").write_text("new")
    assert names(trace) == ["lo2io", "traces", "traces.otf2"]
    assert (trace / "traces.otf2").read_text() == "new"


@pytest.mark.parametrize(
    ("euid", "uid", "gid", "caller"),
    [
        (0, "65534", "65533", (65534, 65533)),
        (0, "0", "0", None),
        (0, "0", "7", None),
        (0, "65534", "x", None),
        (0, "x", "7", None),
        (0, "65534", "", None),
        (65534, "65534", "65533", None),
    ],
)
def test_who_called_sudo(
    euid: int, uid: str, gid: str, caller: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only root asks, and only two numbers are an answer."""
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    assert sudo_caller({"SUDO_UID": uid, "SUDO_GID": gid}) == caller
    assert sudo_caller({}) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_who_called_sudo_gets_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that lo2io made belongs to the user of sudo, but not the target of a link inside."""
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65533")
    (tmp_path / "shadow").touch()
    (tmp_path / "S").mkdir()
    with converted_into(tmp_path / "T", tmp_path / "S") as part:
        make_trace(part)
        (part / "traces/out").symlink_to(tmp_path / "shadow")
    given = (tmp_path / "T").rglob("*")
    assert {path.lstat().st_uid for path in given} == {65534}
    assert (tmp_path / "shadow").stat().st_uid == 0


@pytest.mark.parametrize("made", [False, True])
def test_only_a_directory_that_lo2io_made_is_given_away(made: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what others put there; the spool with all that it holds."""
    given = Mock()
    monkeypatch.setattr(pipeline, "give_away", given)
    spool, trace = Mock(), Mock()
    trace.parent = spool if made else None
    pipeline._give_to_caller(spool, trace)
    assert given.mock_calls == [call(spool), *([call(trace, contents=False)] if made else [])]
