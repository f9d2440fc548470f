"""Recordings that a program makes, with lo2io as a library."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lo2io
from lo2io.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.requires("root", "tracefs", "events")


def test_a_command(tmp_path: Path) -> None:
    """Its exit code, its calls, and the error of one that cannot be started."""
    file = tmp_path / "file"
    file.write_bytes(b"x" * 777)
    done = lo2io.record(["sh", "-c", f"cat {file} > /dev/null; exit 3"], output=tmp_path / "T")
    assert done.exit_code == 3
    query = "select sum(bytes_result)::int from calls where call = 'read' and path like '%/file'"
    assert done.trace.query(query).fetchall() == [(777,)]
    with pytest.raises(CaptureError):
        lo2io.record(["/nothing"], output=tmp_path / "none")


def test_a_command_of_one_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other rank of the node records nothing, and is not waited for."""
    for name, value in (("RANK", 0), ("SIZE", 2), ("LOCAL_RANK", 0), ("LOCAL_SIZE", 2)):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", str(value))
    done = lo2io.record(["true"], output=tmp_path / "T")
    assert done.exit_code == 0
    assert done.trace.query("select distinct rank from threads").fetchall() == [(0,)]


def test_the_program_itself(tmp_path: Path) -> None:
    """From inside of the block only."""
    file = tmp_path / "file"
    file.write_bytes(b"before")
    with lo2io.record(pid=os.getpid(), output=tmp_path / "T") as recording:
        file.read_bytes()
    file.read_bytes()
    assert recording.exit_code == 0
    query = "select bytes_result from calls where path like '%/file' and bytes_result > 0"
    assert recording.trace.query(query).fetchall() == [(6,)]
    assert Path(recording.trace.path) == tmp_path / "T"


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that other users can enter, also while another pytest closes the one of all tests."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


PROGRAM = """
import os, lo2io
done = lo2io.record(["dd", "if=/dev/zero", "of=file", "bs=4k", "count=128", "oflag=dsync", "status=none"])
assert done.trace.findings()
if not os.fork():
    raise SystemExit
os.wait()
assert done.output.exists()
print(done.output)
for finding in done.trace.findings():
    print(finding.rule, finding.subject)
try:
    lo2io.record(["/nothing"])
except lo2io.Lo2ioError as error:
    print(error.exit_code)
"""


@pytest.mark.parametrize("sudo", [{}, {"SUDO_UID": "65534", "SUDO_GID": "65534", "SUDO_USER": "nobody"}])
def test_without_a_place_for_the_trace(public: Path, sudo: dict[str, str]) -> None:
    """It lies in a temporary folder that ends with the program, not with the program's child; under sudo, too."""
    places = {"TMPDIR": str(public / "temporary")}
    (public / "temporary").mkdir()
    public.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | places | sudo,
        cwd=public,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    place, finding, exit_code = done.stdout.splitlines()
    assert finding == f"sync-per-write {public}/file"
    assert int(exit_code) == CaptureError.exit_code
    assert Path(place).is_relative_to(public / "temporary")
    assert list((public / "temporary").iterdir()) == []
