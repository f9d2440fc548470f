"""A process does to a recording of the whole machine what processes of any user can do: the recording goes on."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workloads import served
from workloads.record import LO2IO

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.requires("root", "tracefs", "events")]

HOSTILE = """
import mmap, os, select, sys
folder = os.fsencode(sys.argv[1])
for name in (b"code", b"x\\r1000-" + b"2" * 30 + b" r-xp 0 08:01 77 y"):
    with open(folder + b"/" + name, "rb") as file:
        globals()[name] = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
watching, pipe = select.epoll(), os.pipe()
for _ in range(400):
    watching.register(os.dup(pipe[0]))
copies = [os.dup(watching.fileno()) for _ in range(20)]
with open("/proc/self/comm", "w") as comm:
    comm.write("x\\rTgid:y")
print("ready", flush=True)
zero = os.open("/dev/zero", os.O_RDONLY)
while True:
    os.pread(zero, 1 << 20, 0)
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Path]:
    """A process that runs on, and beside it a program whose path is no UTF-8."""
    folder = tmp_path / os.fsdecode(b"h\xff")
    folder.mkdir()
    content = bytearray(Path(sys.executable).read_bytes())
    (segments,) = struct.unpack_from("<Q", content, 32)
    for at in range(segments, segments + 64 * 56, 56):
        if content[at : at + 4] == b"\x04\0\0\0":  # a note, at an offset that no file has
            struct.pack_into("<Q", content, at + 8, 1 << 63)
    for name in ("code", "x\r1000-" + "2" * 30 + " r-xp 0 08:01 77 y"):
        (folder / name).write_bytes(content)
    shutil.copy2("/bin/cat", folder)
    environment = {**os.environ, "OMPI_COMM_WORLD_RANK": "1" * 5000}
    with contextlib.ExitStack() as running:
        for command in (
            [sys.executable, "-c", HOSTILE, str(folder)],
            ["sh", "-c", 'echo ready; while "$0/cat" "$0/code" >/dev/null; do :; done', str(folder)],
        ):
            process = running.enter_context(
                subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            running.callback(process.kill)
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
        yield tmp_path


@pytest.mark.parametrize("more", [(), ("--last", "30s"), ("--last", "30s", "--trigger", "latency > 1us")])
def test_a_hostile_process_ends_no_recording(hostile: Path, more: tuple[str, ...]) -> None:
    """Names of threads, files and programs, its environment and its descriptors: names are looked up to the end."""
    trace = hostile / "T"
    done = served.lo2io("system-wide", "--stacks", "50us", "--duration", "1s", "-o", str(trace), *more)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "no names are looked up" not in done.stderr
    (whole, *_) = (folder for folder in (trace, *trace.glob("dump-*")) if (folder / "traces.otf2").exists())
    assert open_trace(whole).rows("operations") > 0


@pytest.mark.requires("bindfs")
def test_a_server_that_does_not_answer_stops_no_recording(tmp_path: Path) -> None:
    """Somebody has a file of a FUSE file system open whose server has stopped, as with a dead NFS server."""
    (tmp_path / "below").mkdir()
    (tmp_path / "below/file").write_text("x")
    place = tmp_path / "mounted"
    place.mkdir()
    options = "--no-allow-other", "-o", "attr_timeout=0,entry_timeout=0"
    server = subprocess.Popen(["bindfs", "-f", *options, tmp_path / "below", place])
    holder: subprocess.Popen[str] | None = None
    try:
        deadline = time.monotonic() + 20
        while not place.is_mount():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # Of a process of its own: a fork of this one would wait for the server when it closes the file.
        holder = subprocess.Popen(
            ["sh", "-c", 'exec 5<"$0"; echo ready; read x; cat <&5', place / "file"], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert holder.stdout
        assert holder.stdout.readline() == "ready\n"
        server.send_signal(signal.SIGSTOP)
        done = subprocess.run(
            [LO2IO, "system-wide", "--duration", "1s", "-o", tmp_path / "T"],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        server.send_signal(signal.SIGCONT)
        assert holder.communicate("\n")[0] == "x"
        assert done.returncode == 0, done.stderr
        found = open_trace(tmp_path / "T").files["path"].to_pylist()
        assert str(place / "file") in found
    finally:
        server.send_signal(signal.SIGCONT)
        if holder:
            holder.kill()
            holder.wait()
        subprocess.run(["umount", place], check=False)
        server.terminate()
        server.wait()
