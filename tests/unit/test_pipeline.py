"""The directory of a trace: nothing is removed that is not lo2io's, and nothing half-written stays."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lo2io import directory
from lo2io.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def make_trace(path: Path) -> None:
    """As lo2io leaves it."""
    for name in ("lo2io", "traces"):
        (path / name).mkdir(parents=True)
    (path / "traces.otf2").write_text("old")
    (path / "traces/0.evt").touch()
    (path / "lo2io/operations.arrow").touch()


def test_a_former_trace_is_removed_only_after_success(tmp_path: Path) -> None:
    """A recording that fails before it began leaves the former trace as it was; one that went well replaces it."""
    trace = tmp_path / "T"
    make_trace(trace)
    with pytest.raises(RuntimeError), directory.fresh_directory(trace, force=True):  # noqa: PT012 - what it does meanwhile
        assert [entry.name for entry in trace.iterdir()] == [".replaced"]
        raise RuntimeError
    assert (trace / "traces.otf2").read_text() == "old"
    assert sorted(entry.name for entry in trace.iterdir()) == ["lo2io", "traces", "traces.otf2"]
    with directory.fresh_directory(trace, force=True) as spool:
        spool.mkdir()
    assert [entry.name for entry in trace.iterdir()] == ["spool"]


@pytest.mark.parametrize("name", ["lo2io/cli.py", "traces/notes.txt", "spool/mail", "letter", "traces.otf2/x"])
def test_what_is_not_ours_is_never_removed(tmp_path: Path, name: str) -> None:
    """Folders of the same names with other contents are somebody's, with --force and without."""
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("precious")
    for force in (False, True):
        with pytest.raises(UsageError, match="no trace"), directory.fresh_directory(tmp_path, force=force):
            pass
        if name.startswith(("lo2io", "traces")):
            writing = directory.whole_trace(tmp_path, tmp_path / "elsewhere", force=force)
            with pytest.raises(UsageError, match=r"none of a trace|already"), writing:
                pass
    assert file.read_text() == "precious"


def test_links_are_not_followed_into_others_files(tmp_path: Path) -> None:
    """A link to a directory is recorded into, the directory and the link stay."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    make_trace(tmp_path / "link")
    with directory.fresh_directory(tmp_path / "link", force=True) as spool:
        spool.mkdir()
    assert (tmp_path / "link").is_symlink()
    assert [entry.name for entry in (tmp_path / "real").iterdir()] == ["spool"]


def test_an_empty_directory_of_the_users_stays(tmp_path: Path) -> None:
    """Only one that was made for the recording goes when nothing came of it."""
    (tmp_path / "mine").mkdir()
    for name in ("mine", "new"):
        with pytest.raises(RuntimeError), directory.fresh_directory(tmp_path / name, force=False):
            raise RuntimeError
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine"]


def test_two_recordings_in_one_second_have_two_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second gets a number."""
    monkeypatch.chdir(tmp_path)
    assert [str(directory.new_directory("T")) for _ in range(3)] == ["T", "T-2", "T-3"]


def test_half_a_trace_does_not_stay(tmp_path: Path) -> None:
    """What stops converting leaves nothing that would stop the next one; a spool beside it is left alone."""
    trace, spool = tmp_path / "T", tmp_path / "T/spool"
    spool.mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt), directory.whole_trace(trace, spool, force=False):  # noqa: PT012
        make_trace(trace)
        raise KeyboardInterrupt
    assert list(trace.iterdir()) == [spool]
    with directory.whole_trace(trace, spool, force=False):
        make_trace(trace)
    with pytest.raises(UsageError, match="already"), directory.whole_trace(trace, spool, force=False):
        pass
    with pytest.raises(UsageError, match="spool itself"), directory.whole_trace(spool, spool, force=True):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_who_called_sudo_gets_the_trace(tmp_path: Path) -> None:
    """All of it but what has another name elsewhere, or is a link."""
    trace = tmp_path / "T"
    make_trace(trace)
    (tmp_path / "shadow").touch()
    os.link(tmp_path / "shadow", trace / "traces.def")
    (trace / "out").symlink_to(tmp_path / "shadow")
    assert directory.sudo_caller({"SUDO_UID": "65534", "SUDO_GID": "65533"}) == (65534, 65533)
    assert directory.sudo_caller({"SUDO_UID": "0", "SUDO_GID": "0"}) is None
    assert directory.sudo_caller({}) is None
    directory.give_away(trace, (65534, 65533))
    assert {path.stat().st_uid for path in (trace, *trace.glob("*/*"), trace / "traces.otf2")} == {65534}
    assert (tmp_path / "shadow").stat().st_uid == 0
