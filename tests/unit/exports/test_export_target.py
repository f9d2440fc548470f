"""The target of an export is whole afterwards, or as before; no other file is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from build.tablemaker import make_batch, write_trace

from lo2io.cli.report import report
from lo2io.errors import Lo2ioError, UsageError
from lo2io.exports import formats, target
from lo2io.exports.target import MARKER, MARKER_FORMAT, ExportSummary, open_output
from lo2io.folder import Folder

MAGIC = b"LO2\n"


def names(folder: Path) -> list[str]:
    """Everything in a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def write_folder(path: Path, text: str, *, force: bool = False) -> None:
    """An export that is a folder of two files."""
    with open_output(path, force=force, folder=True, facts={"to": "x"}) as part:
        (part / "sub").mkdir()
        (part / "sub/a").write_text(text)
        (part / "b").write_text(text)


def write_file(path: Path, text: bytes, *, force: bool = False) -> None:
    """An export that is a file."""
    with open_output(path, force=force, magic=MAGIC) as part:
        part.write_bytes(MAGIC + text)


# ---- whole, or not there ----


def test_it_has_its_name_at_the_end_alone(tmp_path: Path) -> None:
    """Meanwhile it lies in a folder beside it that is nobody else's: renaming it is one step."""
    with open_output(tmp_path / "F", force=False) as part:
        part.write_bytes(b"x")
        (place,) = tmp_path.iterdir()
        assert names(place) == ["F"]
        assert place.stat().st_mode & 0o777 == 0o700
    assert names(tmp_path) == ["F"]
    assert (tmp_path / "F").read_bytes() == b"x"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError, Lo2ioError])
@pytest.mark.parametrize("folder", [False, True])
def test_what_fails_leaves_everything_as_it_was(tmp_path: Path, error: type[BaseException], *, folder: bool) -> None:
    """Ctrl-C, SIGTERM, a defect, an unreadable table: the former export stays, the new one goes."""
    make = write_folder if folder else write_file
    make(tmp_path / "F", "old" if folder else b"old")  # type: ignore[operator]
    before = names(tmp_path)
    arguments: dict[str, Any] = {"folder": True} if folder else {"magic": MAGIC}

    def fail(part: Path) -> None:
        (part / "c" if folder else part).write_bytes(b"new")
        raise error("stop")

    with pytest.raises(error), open_output(tmp_path / "F", force=True, **arguments) as part:
        fail(part)
    assert names(tmp_path) == before
    assert (tmp_path / "F/b" if folder else tmp_path / "F").read_bytes().endswith(b"old")


def test_a_full_disk_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    """The kernel's answer, and that another place may help."""
    with pytest.raises(Lo2ioError, match="No space left") as caught, open_output(tmp_path / "F", force=False):
        raise OSError(28, os.strerror(28))
    assert caught.value.remedy == "free space there, or choose another place"
    with pytest.raises(Lo2ioError, match="denied") as caught, open_output(tmp_path / "F", force=False):
        raise OSError(13, os.strerror(13))
    assert caught.value.remedy == "choose another place"  # there is room, but not for everybody
    assert names(tmp_path) == []


def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file, every folder, and last the folder that has the name."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    write_folder(tmp_path / "F", "x")
    part = next(path for path in synced if path.endswith(".part"))
    assert sorted(synced[:-1]) == [part, f"{part}/F", *(f"{part}/F/{name}" for name in ("b", MARKER, "sub", "sub/a"))]
    assert synced[-1] == str(tmp_path)


# ---- what may be replaced ----


def test_replacing_takes_force(tmp_path: Path) -> None:
    """For files and folders alike; the old content is gone."""
    write_file(tmp_path / "F", b"1")
    write_folder(tmp_path / "D", "1")
    with pytest.raises(UsageError, match="it exists") as caught:
        write_file(tmp_path / "F", b"2")
    assert "--force" in caught.value.remedy
    with pytest.raises(UsageError, match="it exists"):
        write_folder(tmp_path / "D", "2")
    write_file(tmp_path / "F", b"2", force=True)
    with open_output(tmp_path / "D", force=True, folder=True) as part:
        (part / "c").touch()
    assert names(tmp_path) == ["D", "D/c", f"D/{MARKER}", "F"]
    assert (tmp_path / "F").read_bytes() == MAGIC + b"2"


def test_an_empty_folder_needs_no_force(tmp_path: Path) -> None:
    """It has nothing to lose."""
    (tmp_path / "D").mkdir()
    write_folder(tmp_path / "D", "1")
    assert "D/b" in names(tmp_path)


def test_what_is_no_export_is_never_replaced(tmp_path: Path) -> None:
    """Sources, another program's file, a link, a folder with one file more: force or not."""
    (tmp_path / "text").write_text("mine")
    (tmp_path / "link").symlink_to("text")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/mine").touch()
    write_folder(tmp_path / "more", "x")
    (tmp_path / "more/sub/mine").symlink_to("/etc")
    write_folder(tmp_path / "other", "x")
    (tmp_path / "other" / MARKER).write_text(json.dumps({"format": "other", "files": ["b", "sub/a"]}))
    write_folder(tmp_path / "spoilt", "x")
    (tmp_path / "spoilt" / MARKER).write_text("[]")
    own = {"format": MARKER_FORMAT, "files": ["b", "sub/a"]}
    for name, content in (("deep", "[" * 100_000), ("long", " " * (1 << 20) + json.dumps(own))):
        write_folder(tmp_path / name, "x")
        (tmp_path / name / MARKER).write_text(content)
    before = names(tmp_path)
    for name in ("text", "link", "folder", "more"):
        with pytest.raises(UsageError, match="is not such an export"):
            write_file(tmp_path / name, b"", force=True)
    for name in ("text", "link", "folder", "more", "other", "spoilt", "deep", "long"):
        with pytest.raises(UsageError, match="is not a folder of such an export"):
            write_folder(tmp_path / name, "", force=True)
    with pytest.raises(UsageError, match="there is no folder"):
        write_file(tmp_path / "none/F", b"")
    assert names(tmp_path) == before
    assert (tmp_path / "text").read_text() == "mine"


@pytest.mark.parametrize("name", ["-", "/dev/null", "pipe"])
def test_no_export_goes_through_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """An export is whole before it has its name.

    So streams, to which other tools write, are refused, with the reason.
    """
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    for write, content in ((write_file, b""), (write_folder, "")):
        with pytest.raises(UsageError, match="when it is whole"):
            write(Path(name), content, force=True)
    assert names(tmp_path) == ["pipe"]


def test_a_folder_that_is_no_export_is_not_gone_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``-o ~`` is refused at once, however much lies there."""
    (tmp_path / "home/a").mkdir(parents=True)

    def read(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(Path, "rglob", read)
    with pytest.raises(UsageError, match="is not a folder of such an export"):
        write_folder(tmp_path / "home", "", force=True)


@pytest.mark.parametrize("nth", [1, 2])
def test_ended_while_one_replaces_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    """Ctrl-C between the two renames, or after them: one of both is there, whole, and nothing else."""
    write_folder(tmp_path / "D", "old")
    rename, calls = Folder.rename, iter(range(1, 9))

    def interrupted(*arguments: Any) -> None:
        rename(*arguments)
        if next(calls) == nth:
            raise KeyboardInterrupt

    monkeypatch.setattr(Folder, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_folder(tmp_path / "D", "new", force=True)
    assert names(tmp_path) == ["D", "D/b", f"D/{MARKER}", "D/sub", "D/sub/a"]
    assert (tmp_path / "D/b").read_text() == {1: "old", 2: "new"}[nth]


def test_what_came_up_meanwhile_stays(tmp_path: Path) -> None:
    """An export takes minutes: somebody else may have taken the name."""

    def work(part: Path) -> None:
        part.write_bytes(MAGIC)
        (tmp_path / "F").write_text("mine")

    with (
        pytest.raises(UsageError, match="not such an export"),
        open_output(tmp_path / "F", force=True, magic=MAGIC) as part,
    ):
        work(part)
    assert names(tmp_path) == ["F"]
    assert (tmp_path / "F").read_text() == "mine"


def test_a_folder_that_cannot_get_its_name_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The former one returns if the new one cannot take its place."""
    write_folder(tmp_path / "D", "old")
    before = names(tmp_path)
    rename = Folder.rename

    def refuse(self: Folder, name: str, *target: Any) -> None:
        if self.path.name.endswith(".part") and name == "D":
            raise PermissionError(1, os.strerror(1))
        rename(self, name, *target)

    monkeypatch.setattr(Folder, "rename", refuse)
    with pytest.raises(Lo2ioError, match="not permitted"):
        write_folder(tmp_path / "D", "new", force=True)
    assert names(tmp_path) == before
    assert (tmp_path / "D/b").read_text() == "old"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_under_sudo_it_belongs_to_who_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like a trace."""
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1235")
    write_folder(tmp_path / "D", "x")
    write_file(tmp_path / "F", b"x")
    for name in names(tmp_path):
        found = (tmp_path / name).stat()
        assert (found.st_uid, found.st_gid) == (1234, 1235), name


# ---- formats and their options ----


def test_formats_and_options_are_checked_before_anything_is_read() -> None:
    """Each refusal lists the possible values."""
    with pytest.raises(UsageError, match="there is no such format") as caught:
        formats.find_format("pdf")
    assert "parquet, csv" in caught.value.remedy
    with pytest.raises(UsageError, match="no such option") as caught:
        formats.read_options("csv", ["compression=zstd"])
    assert caught.value.remedy == "options are tables, text: write -O NAME=VALUE"
    with pytest.raises(UsageError, match="cannot be 'gzip'") as caught:
        formats.read_options("parquet", ["compression=gzip"])
    assert caught.value.remedy == "allowed values are zstd, snappy, none"
    with pytest.raises(UsageError, match="no such option"):
        formats.read_options("parquet", ["tables"])
    assert formats.read_options("parquet", ["tables=a=b"]) == {"tables": "a=b", "compression": "zstd"}


@pytest.mark.parametrize("name", formats.FORMATS)
def test_every_format_has_its_module(name: str) -> None:
    """The command line's formats can be imported; a default is among the values."""
    found = formats.FORMATS[name]
    module = __import__(found.module, fromlist=["export"])
    assert callable(module.export)
    assert found.suffix.startswith(".")


# ---- the command ----

RUN = (sys.executable, "-c", "from lo2io.cli.main import main; main()", "export")
SLOW = """
import sys, time
from lo2io.exports.tables import parquet
def export(trace, target, progress, **options):
    (target / "half").write_text("x")
    print("begun", flush=True)
    time.sleep(60)
parquet.export = export
from lo2io.cli.main import main
main()
"""


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command, its streams captured."""
    return subprocess.run([*RUN, *words], cwd=cwd, capture_output=True, text=True, check=False)


def test_the_command(tmp_path: Path) -> None:
    """The name on stdout, a summary on stderr; without -o, the export is named after the trace."""
    calls = [{"id": n, "begin_time_ns": n, "end_time_ns": n + 1, "pid": n} for n in range(5)]
    write_trace(tmp_path / "T", [make_batch(operations=calls)])
    done = run("T", "--to", "csv", "--filter", "pid == 1, 2, 4", "--until", "@3", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "T.csv\n")
    assert done.stderr.startswith("lo2io: 4 rows, ")  # two calls and two devices
    assert (tmp_path / "T.csv/operations.csv").read_text().count("\n") == 3
    again = run("T", "--to", "csv", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (2, "")
    assert "--force" in again.stderr
    assert run("T", "--to", "csv", "--force", cwd=tmp_path).returncode == 0
    assert (tmp_path / "T.csv/operations.csv").read_text().count("\n") == 6
    assert run("T.csv", "--to", "csv", cwd=tmp_path).returncode == 5


@pytest.mark.parametrize("damage", ["cut", "overwritten"])
@pytest.mark.parametrize("words", [(), ("--until", "@5")])
def test_a_damaged_trace(tmp_path: Path, damage: str, words: tuple[str, ...]) -> None:
    """The table is named, and nothing is left behind, even if the damage shows during the work."""
    calls = [{"id": n, "begin_time_ns": n, "result": n * 7919 % 1000} for n in range(1000)]
    table = write_trace(tmp_path / "T", [make_batch(operations=calls)]).path / "lo2io/operations.arrow"
    whole = table.read_bytes()
    middle = len(whole) // 2
    table.write_bytes(whole[:middle] if damage == "cut" else whole[:2500] + bytes(middle) + whole[2500 + middle :])
    done = run("T", "--to", "parquet", *words, cwd=tmp_path)
    assert done.returncode == 5
    assert f"cannot read the table {table.relative_to(tmp_path)}" in done.stderr
    assert "convert the spool again" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["T"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_ended_amid_the_work(tmp_path: Path, number: int, code: int) -> None:
    """Nothing is left behind."""
    write_trace(tmp_path / "T", [make_batch()])
    command = [sys.executable, "-c", SLOW, "export", str(tmp_path / "T"), "--to", "parquet"]
    command += ["-o", str(tmp_path / "P")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        assert process.wait() == code
    assert [path.name for path in tmp_path.iterdir()] == ["T"]


def test_nothing_is_written_into_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whatever name: recording could not replace it any more."""
    trace = write_trace(tmp_path / "T", [make_batch()])
    (tmp_path / "link").symlink_to("T")
    before = names(tmp_path)
    monkeypatch.chdir(tmp_path / "T")
    for place in ("x", "lo2io/x", "../link/x", "../T"):
        with pytest.raises(UsageError, match="this place is in the trace"):
            formats.export(trace, "parquet", Path(place), lambda _: None, force=True)
    with pytest.raises(UsageError, match="this place is in the trace"):
        report(tmp_path / "link", html=Path("x.html"))
    assert names(tmp_path) == before


def test_a_folder_tells_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Format, options, trace and files; the size is the sum of all files."""
    trace = write_trace(tmp_path / "T", [make_batch()])
    notes = ("something has no place in it",)

    class Fake:
        @staticmethod
        def export(_: Any, part: Path, __: Any, **options: str) -> ExportSummary:
            (part / "a").write_text(options["compression"])
            return ExportSummary(7, notes=notes)

    monkeypatch.setattr(formats, "import_module", lambda _: Fake)
    summary = formats.export(trace, "parquet", tmp_path / "P", lambda _: None, options=["compression=snappy"])
    marker = json.loads((tmp_path / "P" / MARKER).read_text())
    assert marker.pop("lo2io")
    assert marker == {
        "format": target.MARKER_FORMAT,
        "to": "parquet",
        "options": {"compression": "snappy", "tables": ""},
        "trace": str(tmp_path / "T"),
        "schema_version": 1,
        "files": ["a"],
    }
    assert summary == ExportSummary(7, 6 + (tmp_path / "P" / MARKER).stat().st_size, notes)
