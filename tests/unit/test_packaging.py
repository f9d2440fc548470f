"""What packages bring beside the program is accepted by those who read it: man, systemd, sudo, the shells."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MANUAL = runpy.run_path(str(ROOT / "scripts/man_pages.py"))
COMMANDS = runpy.run_path(str(ROOT / "scripts/reference_cli.py"))["commands"]()
PROGRAM = Path(sys.executable).with_name("lo2io")


def test_each_command_has_a_manual_page(tmp_path: Path) -> None:
    """It has no fault for groff, and the sections that every page has."""
    files = [Path(file) for file in MANUAL["write"](tmp_path)]
    assert [file.stem for file in files] == ["-".join(("lo2io", *words)) for words in COMMANDS]
    for file in files:
        command = ["groff", "-Kutf8", "-man", "-Tutf8", "-ww", "-P-cbou", str(file)]
        shown = subprocess.run(command, capture_output=True, text=True, check=True)
        assert not shown.stderr
        assert all(title in shown.stdout for title in ("NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO"))


def test_a_manual_page_has_the_options_and_examples_of_the_help(tmp_path: Path) -> None:
    """They stand as the command tells them, each example on a line."""
    MANUAL["write"](tmp_path)
    command = ["groff", "-Kutf8", "-man", "-Tascii", "-P-cbou", str(tmp_path / "lo2io-convert.1")]
    lines = [
        line.strip() for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    ]
    assert "lo2io-convert - Turn a recorded spool into an OTF2 trace" in lines
    assert "lo2io convert [OPTIONS] SPOOL" in lines
    assert "lo2io convert T/spool -o T" in lines
    assert any(line.startswith("-o, --output T") for line in lines)


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """systemd-analyze finds no fault, with the program of this environment in place of the installed one."""
    unit = tmp_path / "lo2io-flight.service"
    text = (ROOT / "packaging/lo2io-flight.service").read_text(encoding="utf-8")
    unit.write_text(text.replace("/usr/bin/lo2io", str(PROGRAM)), encoding="utf-8")
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_units_command_lines_parse() -> None:
    """The options that the unit gives lo2io exist."""
    lines = (ROOT / "packaging/lo2io-flight.service").read_text(encoding="utf-8").splitlines()
    starts = [line.partition("=")[2] for line in lines if line.startswith("Exec") and "/usr/bin/lo2io" in line]
    for line in starts:
        words = f"{PROGRAM} {line.removeprefix('/usr/bin/lo2io ')} --help"
        subprocess.run(["sh", "-c", words], capture_output=True, check=True)
    assert len(starts) == 2


def test_sudo_accepts_its_rules() -> None:
    """They have no fault for visudo."""
    subprocess.run(["/usr/sbin/visudo", "-cf", str(ROOT / "packaging/sudoers")], capture_output=True, check=True)


@pytest.mark.parametrize(
    ("typed", "completed"), [(("lo2io", "repo"), "report"), (("lo2io", "report", "--htm"), "--html")]
)
def test_bash_completes(typed: tuple[str, ...], completed: str) -> None:
    """Commands and their options, by the function that --install-completion installs."""
    script = subprocess.run(
        [PROGRAM], env={**os.environ, "_LO2IO_COMPLETE": "source_bash"}, capture_output=True, text=True, check=False
    ).stdout
    asked = f"{script}\nCOMP_WORDS=({' '.join(typed)})\nCOMP_CWORD={len(typed) - 1}\n_lo2io_completion lo2io\n"
    path = f"{PROGRAM.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f'{asked}echo "${{COMPREPLY[@]}}"'],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [completed]
