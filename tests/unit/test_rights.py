"""Rights that lo2io gives up. Each test does so in a process of its own, for nothing brings them back."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import socket
import stat
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lo2io import rights
from lo2io.signals import end_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
NOBODY = 65534
LANDLOCK = 444
PR_GET_PDEATHSIG = 2


def in_child(action: Callable[[], Any]) -> Any:
    """The result of an action in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            rights.own_process()
            os.write(writer, json.dumps(action()).encode())
        except BaseException:  # noqa: BLE001 - pytest must not go on in the child
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text)


def status() -> dict[str, str]:
    """The process' ids and rights, as the kernel tells them."""
    lines = Path("/proc/thread-self/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def answer(action: Callable[[], Any]) -> str:
    """The name of the error with which the kernel answers; empty: none."""
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return ""


def has_landlock() -> bool:
    """True if the kernel can restrict writing."""
    return bool(rights._libc.syscall(LANDLOCK, None, 0, 1) >= 2)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder that everybody can reach, with a trace of nobody's and one of root's."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for trace, owner in (("nobodys", NOBODY), ("roots", 0)):
            (folder / trace / "lo2io").mkdir(parents=True, mode=0o700)
            (folder / trace / "lo2io" / "file").touch(0o600)
            for each in (folder / trace, folder / trace / "lo2io", folder / trace / "lo2io" / "file"):
                os.chown(each, owner, owner)
            (folder / trace).chmod(0o700)
        yield folder


def test_root_keeps_only_its_rights_to_files(tmp_path: Path) -> None:
    """No program gives rights back, not even one that root runs."""

    def confined() -> dict[str, str]:
        rights.confine([tmp_path], [tmp_path])
        return status()

    found = in_child(confined)
    wanted = sum(1 << capability for capability in rights.FILES)
    assert (int(found["CapEff"], 16), int(found["CapPrm"], 16), int(found["CapInh"], 16)) == (wanted, wanted, 0)
    assert found["NoNewPrivs"] == "1"


def test_a_recording_keeps_what_it_uses() -> None:
    """Modules, raw disks, the clock and the network are not among it."""

    def recording() -> dict[str, str]:
        rights.keep_for_recording()
        return status()

    before, found = int(status()["CapEff"], 16), in_child(recording)
    assert int(found["CapEff"], 16) == before & sum(1 << capability for capability in rights.Capability)
    assert found["NoNewPrivs"] == "1"


def test_writing_elsewhere_is_refused(tmp_path: Path) -> None:
    """Inside of the output's folder all works: to make, rename across folders, cut and remove."""
    if not has_landlock():
        pytest.skip("the kernel has no Landlock that can allow renames")
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for each in (inside, outside):
        each.mkdir()
        (each / "there").write_text("x")

    def work(folder: Path) -> dict[str, str]:
        (moved := folder / "folder").mkdir()
        (folder / "file").write_text("x")
        (folder / "file").rename(moved / "file")
        os.truncate(moved / "file", 0)
        (moved / "file").unlink()
        moved.rmdir()
        return {}

    def attempts() -> list[Any]:
        rights.confine([tmp_path], [inside])
        work(inside)
        Path(os.devnull).write_text("x")
        (outside / "there").read_text()
        tried: tuple[Callable[[], Any], ...] = (
            lambda: (outside / "there").write_text("y"),
            lambda: os.truncate(outside / "there", 0),
            (outside / "there").unlink,
            (outside / "new").mkdir,
            lambda: (outside / "link").symlink_to("/etc/passwd"),
            lambda: (inside / "there").rename(outside / "moved"),
            lambda: socket.create_connection(("127.0.0.1", 9), timeout=1),
            lambda: os.kill(os.getppid(), 0),
        )
        return [answer(each) for each in tried]

    found = in_child(attempts)
    assert found[:5] == ["EACCES"] * 5
    assert found[5] in {"EACCES", "EXDEV"}
    version = rights._libc.syscall(LANDLOCK, None, 0, 1)
    assert found[6] == ("EACCES" if version >= 4 else "ECONNREFUSED")
    assert found[7] == ("EPERM" if version >= 6 else "")
    assert [each.name for each in outside.iterdir()] == ["there"]


@pytest.mark.parametrize(
    ("trace", "output", "becomes"),
    [("nobodys", "nobodys", True), ("nobodys", ".", False), ("roots", "nobodys", False)],
)
def test_under_sudo_it_becomes_the_caller_if_that_user_may(
    place: Path, monkeypatch: pytest.MonkeyPatch, trace: str, output: str, *, becomes: bool
) -> None:
    """The caller must be able to read the trace and to write the output. If not, root goes on with fewer rights."""
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    monkeypatch.setenv("SUDO_GID", str(NOBODY))
    monkeypatch.setattr("sys.path", ["/usr", "/nowhere"])

    def confined() -> list[Any]:
        rights.confine([place / trace], [place / output])
        (place / trace / "lo2io" / "file").read_bytes()
        (place / output / "new").touch()
        return [status(), (place / output / "new").stat().st_uid]

    found, owner = in_child(confined)
    uid = NOBODY if becomes else 0
    assert [found["Uid"].split(), found["Gid"].split()] == [[str(uid)] * 4] * 2
    assert (int(found["CapEff"], 16) == 0) == becomes
    assert (found["Groups"].strip() == str(NOBODY)) == becomes
    assert owner == uid


@pytest.mark.parametrize("trace", ["nobodys", "roots"])
def test_a_process_still_ends_with_its_parent(place: Path, monkeypatch: pytest.MonkeyPatch, trace: str) -> None:
    """The kernel forgets the signal that a process wants at its parent's end when the process' ids change."""
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    monkeypatch.setenv("SUDO_GID", str(NOBODY))
    monkeypatch.setattr("sys.path", ["/usr"])

    def confined() -> int:
        end_with(os.getppid(), signal.SIGKILL)
        rights.confine([place / trace])
        number = ctypes.c_int()
        rights._libc.prctl(PR_GET_PDEATHSIG, ctypes.byref(number))
        return number.value

    assert in_child(confined) == signal.SIGKILL


def test_a_caller_who_cannot_read_lo2io_is_not_become(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It imports more of itself later, perhaps from root's home."""
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    monkeypatch.setenv("SUDO_GID", str(NOBODY))
    monkeypatch.setattr("sys.path", [str(place / "roots")])

    def confined() -> int:
        rights.confine([place / "nobodys"])
        return os.geteuid()

    assert in_child(confined) == 0
    assert stat.S_IMODE((place / "roots").stat().st_mode) == 0o700


def test_a_process_of_somebody_else_keeps_its_rights(tmp_path: Path) -> None:
    """A program that calls lo2io's functions goes on as before."""
    before = status()["CapEff"]
    rights.keep_for_recording()
    rights.confine([tmp_path], [tmp_path])
    assert status()["CapEff"] == before
