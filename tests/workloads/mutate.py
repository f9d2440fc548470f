"""Damages copies of a spool, of a trace, and of another tool's archive, and has lo2io read each copy.

Run as a program: ``mutate.py ORIGINALS FOLDER FIRST COUNT``. ORIGINALS has a folder of each kind. Each number from
FIRST on makes other damage, always the same. A line of JSON for each tells its ``kind`` and ``seed``, the lowest exit
``code`` of lo2io, and what was ``wrong``. Nothing is wrong with a spool that lo2io refuses in one line, or converts
into a trace that keeps all rules and can be reported. Nothing is wrong with a trace if each command makes its output,
or refuses the trace in one line.

Each copy is read by forks of this process, with bounded memory and time.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import random
import re
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

from lo2io import __path__ as rooms
from lo2io.cli.main import main
from lo2io.errors import Lo2ioError
from lo2io.libraries import prepare_libraries

KINDS = ("spool", "trace", "foreign")
MOST_BYTES = 3 << 30
MOST_S = 60
NUMBERS = (b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f", b"\0\0\x10\0", b"\xff" * 8, b"\0" * 8, b"\xff" * 7 + b"\x7f")
VALUES = ("-7", "18446744073709551615", "1e999", "null", '"\\ud800"', '"\\u001b[2J"', "[]", "{}", "true", "9" * 5000)
"""What stands in a description in JSON instead of another value."""
LIBRARIES = ("numpy", "pyarrow.csv", "pyarrow.parquet")
KNOWN = frozenset(kind.exit_code for kind in (Lo2ioError, *Lo2ioError.__subclasses__()))
"""Exit codes of errors that are one line."""


def damage(folder: Path, seed: int) -> None:
    """Change some bytes of some files: flip, replace, remove or repeat them."""
    chance = random.Random(seed)  # noqa: S311
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    for _ in range(chance.randint(1, 8)):
        file = chance.choice(files)
        content = bytearray(file.read_bytes())
        at, kind = chance.randrange(len(content)), chance.random()
        if file.suffix == ".json" and kind < 0.7:
            content = damaged_description(content, chance)
        elif kind < 0.5:
            content[at] ^= 1 << chance.randrange(8)
        elif kind < 0.8:
            number = chance.choice(NUMBERS)
            content[at : at + len(number)] = number
        elif kind < 0.9:
            del content[at : at + chance.randint(1, 64)]
        else:
            source = chance.randrange(len(content))
            content[at:at] = content[source : source + chance.randint(1, 128)]
        file.write_bytes(content)


def damaged_description(content: bytearray, chance: random.Random) -> bytearray:
    """Exchange a value of the JSON, or leave it out with its name."""
    values = list(re.finditer(rb'"\w+": ("(?:\\.|[^"\\])*"|-?[\d.]+|true|false|null)(?:, *)?', content))
    if not values:
        return content
    found = chance.choice(values)
    if chance.random() < 0.2:
        return content[: found.start()] + content[found.end() :]
    return content[: found.start(1)] + chance.choice(VALUES).encode() + content[found.end(1) :]


def lo2io(output: Path, *words: str) -> int:
    """Run a command line of lo2io in a fork; its exit code, or minus the signal that ended it."""
    child = os.fork()
    if not child:
        if "ASAN_OPTIONS" not in os.environ:  # it maps terabytes of address space, and has a bound of its own
            resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        with output.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        code = 70
        with contextlib.suppress(BaseException):
            try:
                sys.argv = ["lo2io", *words]
                main()
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 0
            except BaseException:  # noqa: BLE001
                sys.excepthook(*sys.exc_info())
        os._exit(code)
    end = time.monotonic() + MOST_S
    while not (found := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(found[1])


def judge(kind: str, original: Path, folder: Path, seed: int) -> dict[str, object]:
    """Damage a copy, and look at what lo2io makes of it."""
    copy, trace = folder / "copy", folder / "trace"
    for path in (copy, trace):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(original, copy)
    damage(copy, seed)
    read = copy if kind != "spool" else trace
    export = ("export", "--to", "parquet", "--force", "-o", str(folder / "out"))
    lines = [(*words, str(read)) for words in (("verify",), ("report", "--json"), export)][kind == "foreign" :]
    codes = []
    if kind == "spool":
        code, wrong = tried(folder / "output", "convert", str(copy), "-o", str(trace))
        if code:
            return {"kind": kind, "seed": seed, "code": code, "wrong": wrong}
    for line in lines:
        code, wrong = tried(folder / "output", *line)
        if code and kind == "spool":  # the trace is lo2io's own
            wrong = wrong or f"{line[0]}: {(folder / 'output').read_text(errors='replace')[-2000:]}"
        if wrong:
            return {"kind": kind, "seed": seed, "code": code, "wrong": wrong}
        codes.append(code)
    return {"kind": kind, "seed": seed, "code": min(codes), "wrong": ""}


def tried(output: Path, *line: str) -> tuple[int, str]:
    """Run a command line: its exit code, and what is wrong with how it ended."""
    code = lo2io(output, *line)
    text = output.read_text(errors="replace")
    fine = (not code or code in KNOWN) and "Traceback" not in text
    return code, "" if fine else f"{line[0]}, exit code {code}: {text[-2000:] or 'no word'}"


def import_all() -> None:
    """Import lo2io and what it reads with, once for all forks: with sanitizers this takes a second."""
    prepare_libraries()
    own = {each.name for each in pkgutil.walk_packages(rooms, "lo2io.")} - {"lo2io.__main__", "lo2io.native.build"}
    for name in (*LIBRARIES, *sorted(own)):
        importlib.import_module(name)


if __name__ == "__main__":
    import_all()
    first, count = map(int, sys.argv[3:])
    for number in range(first, first + count):
        for each in KINDS:
            print(json.dumps(judge(each, Path(sys.argv[1], each), Path(sys.argv[2]), number)), flush=True)
