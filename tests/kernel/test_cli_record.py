"""``lo2io record`` for its user: the command's streams and exit code, the trace, the summary."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from workloads.record import LO2IO, Recorded, record

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "tracefs", "events")


def lo2io(cwd: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, without a traceback."""
    done = subprocess.run([str(LO2IO), *arguments], capture_output=True, text=True, cwd=cwd, check=False, **options)  # type: ignore[call-overload]
    assert "Traceback" not in done.stderr
    return done  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_the_exit_code_is_the_commands(tmp_path: Path, script: str, code: int) -> None:
    """128 + n for signals; in each case the trace is whole."""
    done = lo2io(tmp_path, "record", "-q", "-o", "T", "--", "sh", "-c", script)
    assert done.returncode == code
    assert lo2io(tmp_path, "verify", "T").returncode == 0


def test_streams_environment_and_folder_pass_through(tmp_path: Path) -> None:
    """Input and stdout pass unchanged; lo2io's own messages are on stderr only."""
    script = 'cat; echo "$COLOUR"; pwd; echo oops >&2'
    environment = {**os.environ, "COLOUR": "green"}
    done = lo2io(tmp_path, "record", "-o", "T", "--", "sh", "-c", script, input="in\n", env=environment)
    assert done.stdout == f"in\ngreen\n{tmp_path}\n"
    assert done.stderr.startswith("oops\n")
    assert "Open it" in done.stderr
    quiet = lo2io(tmp_path, "record", "-q", "-o", "U", "--", "cat", input="in\n")
    assert quiet.stdout == "in\n"
    (line,) = quiet.stderr.splitlines()
    assert line.startswith(("complete: ", "incomplete: ", "your command: complete"))


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_json_is_the_summary_on_stdout(tmp_path: Path, quiet: tuple[str, ...]) -> None:
    """The same that ``report --json`` prints later."""
    done = lo2io(tmp_path, "record", "--json", *quiet, "-o", "T", "--", "true")
    assert done.returncode == 0
    assert json.loads(done.stdout) == json.loads(lo2io(tmp_path, "report", "--json", "T").stdout)


def test_a_pipeline_ends_at_once(tmp_path: Path) -> None:
    """The process that closes the events holds no end of the user's pipes."""
    command = f"{LO2IO} record -q -o T -- seq 10 2>/dev/null | head -1; echo done"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=True, timeout=60)
    assert done.stdout == "1\ndone\n"


def test_two_at_once_in_one_folder(tmp_path: Path) -> None:
    """Each has a directory of its own, with its own command only."""
    command = [str(LO2IO), "record", "-q", "--", "true"]
    both = [subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) for _ in range(3)]
    assert [each.wait() for each in both] == [0, 0, 0]
    traces = [open_trace(path) for path in tmp_path.iterdir()]
    assert len(traces) == 3
    assert len({tuple(set(trace.operations["tid"].to_pylist())) for trace in traces}) == 3


def test_converting_later_and_as_nobody_gives_the_same(tmp_path: Path) -> None:
    """With the spool kept, and with converting put off: the same tables, without any right but reading the spool."""
    (tmp_path / "in").write_bytes(bytes(1_234))
    first = lo2io(tmp_path, "record", "-q", "--keep-spool", "-o", "T", "--", "sh", "-c", "cat in; true")
    assert first.returncode == 0
    (tmp_path / "open").mkdir()
    shutil.chown(tmp_path / "open", "nobody")
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)
    nobody = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    refused = lo2io(tmp_path, "convert", "T/spool", "-o", "open/T", **nobody)
    assert (refused.returncode, "Permission denied" in refused.stderr) == (4, True)
    for path in (tmp_path / "T", tmp_path / "T/spool", *(tmp_path / "T/spool").iterdir()):
        shutil.chown(path, "nobody")
    done = lo2io(tmp_path, "convert", "T/spool", "-o", "open/T", **nobody)
    assert (done.returncode, done.stdout) == (0, "open/T\n"), done.stderr
    one, two = open_trace(tmp_path / "T"), open_trace(tmp_path / "open/T")
    assert [row["result"] for row in Recorded(one, 0, "", "").calls("read")].count(1_234) == 1
    for table in ("operations", "handles", "files", "threads", "requests", "losses"):
        assert getattr(one, table).equals(getattr(two, table))
    again = lo2io(tmp_path, "convert", "T/spool", "-o", "open/T", **nobody)
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert lo2io(tmp_path, "convert", "--force", "T/spool", "-o", "open/T", **nobody).returncode == 0
    later = lo2io(tmp_path, "record", "-q", "--no-convert", "-o", "L", "--", "true")
    assert "lo2io convert L/spool -o L" in later.stderr
    assert lo2io(tmp_path, "convert", "L/spool", "-o", "L").returncode == 0


@pytest.mark.requires("perf", "dd")
@pytest.mark.usefixtures("busy_cpus")
def test_both_openers_see_the_same(tmp_path: Path) -> None:
    """The same calls with the same results, in the same order."""
    (tmp_path / "in").write_bytes(bytes(100_000))

    def rows(recorded: Recorded) -> list[tuple[object, ...]]:
        return [tuple(row[c] for c in ("call", "fd", "bytes_request", "result")) for row in recorded.operations()]

    command = ["dd", f"if={tmp_path}/in", f"of={tmp_path}/out", "bs=1000", "status=none"]
    found = [
        rows(record(tmp_path / name, command, "--opener", name, "-e", "syscalls")) for name in ("native", "python-perf")
    ]
    assert found[0] == found[1]
    assert sum(row[0] == "write" for row in found[0]) == 100


BIRTHS = """
import os, subprocess, sys
for _ in range(2):
    if os.fork() == 0:
        os.execvp("head", ["head", "-c7", "/dev/zero"])
    os.wait()
os.waitpid(os.posix_spawn("/usr/bin/head", ["head", "-c7", "/dev/zero"], dict(os.environ)), 0)
subprocess.run(["head", "-c7", "/dev/zero"])
if os.fork() == 0:
    import threading
    threading.Thread(target=lambda: os.execvp("head", ["head", "-c7", "/dev/zero"])).start()
    import time
    time.sleep(60)
os.wait()
"""


@pytest.mark.requires("head")
@pytest.mark.usefixtures("busy_cpus")
def test_children_however_born_and_no_neighbours(tmp_path: Path) -> None:
    """fork, posix_spawn, vfork, and exec by a thread: each child's write is there once, and a neighbour's are not."""
    neighbour = subprocess.Popen(["dd", "if=/dev/zero", "of=/dev/null", "bs=7"], stderr=subprocess.DEVNULL)
    try:
        recorded = record(tmp_path / "T", ["/usr/bin/python3", "-c", BIRTHS])
    finally:
        neighbour.kill()
        neighbour.wait()
    writes = [row for row in recorded.calls("write") if row["bytes_request"] == 7]
    assert [row["result"] for row in writes] == [7] * 5
    tids = set(recorded.trace.operations["tid"].to_pylist())
    assert len({row["tid"] for row in writes}) == 5
    assert neighbour.pid not in tids


def test_another_user_runs_the_command_and_sudos_caller_owns_the_trace(tmp_path: Path) -> None:
    """Ids, home and the trace's owner; a notice only if the user was not named."""
    script = "id -u; id -g; id -G; echo $HOME $USER"
    chosen = lo2io(tmp_path, "record", "-o", "T", "--user", "nobody", "--", "sh", "-c", script)
    assert chosen.stdout == "65534\n65534\n65534\n/nonexistent nobody\n"
    assert "called sudo" not in chosen.stderr
    assert (tmp_path / "T").stat().st_uid == 0
    sudo = {**os.environ, "SUDO_UID": "65534", "SUDO_GID": "65534", "SUDO_USER": "nobody"}
    default = lo2io(tmp_path, "record", "-o", "U", "--keep-spool", "--", "sh", "-c", script, env=sudo)
    assert default.stdout == chosen.stdout
    assert "the command runs as nobody, who called sudo" in default.stderr
    files = [tmp_path / "U", *(tmp_path / "U").rglob("*")]
    assert {path.stat().st_uid for path in files} == {65534}
    root = lo2io(tmp_path, "record", "-q", "-o", "V", "--user", "root", "--", "id", "-u", env=sudo)
    assert root.stdout == "0\n"
