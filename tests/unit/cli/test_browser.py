"""`lo2io report --html PAGE --open`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from build.tablemaker import READ, make_batch, write_trace

from lo2io.cli.browser import browser_for

PROGRAM = Path(sys.executable).parent / "lo2io"
NOBODY = 65534


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of one call."""
    folder = tmp_path_factory.mktemp("open") / "T"
    write_trace(folder, [make_batch(operations=[{"id": 1, "call": READ, "begin_time_ns": 1, "end_time_ns": 5}])])
    return folder


def made_browser(folder: Path) -> str:
    """A program that writes its user and its page into the file `log`, as $BROWSER names it."""
    program = folder / "browser"
    program.write_text(f'#!/bin/sh\necho "$(id -u) $1" >{folder}/log\necho chatter\n')
    program.chmod(0o755)
    return f"{program} %s"


def report(trace: Path, page: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command, without a screen."""
    clean = {name: value for name, value in os.environ.items() if name not in {"DISPLAY", "WAYLAND_DISPLAY"}}
    words = [PROGRAM, "report", trace, "--html", page, "--open"]
    return subprocess.run(words, env=clean | environ, capture_output=True, text=True, check=True)


def test_the_browser_gets_the_page(tmp_path: Path, trace: Path) -> None:
    """It may write where lo2io itself no longer may, and its chatter is not in lo2io's output."""
    page = tmp_path / "pages" / "a page.html"
    page.parent.mkdir()
    done = report(trace, page, BROWSER=made_browser(tmp_path))
    assert (tmp_path / "log").read_text() == f"{os.getuid()} {page.as_uri()}\n"
    assert done.stdout == f"{page}\n"
    assert "not shown" not in done.stderr


def test_without_a_screen_the_page_is_written(tmp_path: Path, trace: Path) -> None:
    """The command succeeds, and says why it showed nothing."""
    page = tmp_path / "page.html"
    done = report(trace, page, BROWSER="")
    assert done.stdout == f"{page}\n"
    assert page.exists()
    assert "lo2io: the page is not shown in a browser: there is no screen: none of DISPLAY" in done.stderr


def test_without_a_browser_the_page_is_written(tmp_path: Path, trace: Path) -> None:
    """Nothing in PATH is a browser."""
    done = report(trace, tmp_path / "page.html", BROWSER="/nowhere/browser %s", PATH=str(tmp_path))
    assert "lo2io: the page is not shown in a browser: no browser was found" in done.stderr


def test_a_failed_report_starts_no_browser(tmp_path: Path) -> None:
    """There is no page then."""
    environ = os.environ | {"BROWSER": made_browser(tmp_path)}
    words = [PROGRAM, "report", tmp_path / "none", "--html", tmp_path / "page.html", "--open"]
    assert subprocess.run(words, env=environ, capture_output=True, check=False).returncode != 0
    assert not (tmp_path / "log").exists()


def test_only_a_page_can_be_shown(trace: Path) -> None:
    """`--open` alone is refused."""
    done = subprocess.run([PROGRAM, "report", trace, "--open"], capture_output=True, text=True, check=False)
    assert (done.returncode, "add --html F" in done.stderr) == (2, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(("mode", "answer"), [(0o644, ""), (0o600, "nobody may not read it")])
def test_under_sudo_it_is_the_caller_s_browser(monkeypatch: pytest.MonkeyPatch, mode: int, answer: str) -> None:
    """Browsers refuse root, and root's browser has none of the user's settings. A page of root alone is not shown."""
    monkeypatch.setattr("sys.executable", "/usr/bin/python3")  # nobody may run it, wherever the tests' own one lies
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        page = folder / "page.html"
        page.touch()
        page.chmod(mode)
        for key, value in {"SUDO_UID": str(NOBODY), "BROWSER": made_browser(folder)}.items():
            monkeypatch.setenv(key, value)
        with browser_for(page) as show:
            assert show() == answer
        told = (folder / "log").read_text() if (folder / "log").exists() else ""
        assert told == ("" if answer else f"{NOBODY} {page.as_uri()}\n")
