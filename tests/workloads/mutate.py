"""Damages copies of a spool, converts each copy, and has the trace verified and reported.

Run as a program: ``mutate.py SPOOL FOLDER FIRST COUNT``. Each number from FIRST on makes other damage, always the same.
A line of JSON for each tells its ``seed``, the exit ``code`` of lo2io, and what was ``wrong``: nothing, for a spool
that is refused in one line, or converted into a trace that can be verified and reported.

Each copy is converted by a fork of this process, with bounded memory and time.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

import lo2io.cli.app  # once for all forks
from lo2io.cli.main import main
from lo2io.errors import Lo2ioError, TraceError

MOST_BYTES = 3 << 30
MOST_S = 60
NUMBERS = (b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f", b"\0\0\x10\0", b"\xff" * 8, b"\0" * 8, b"\xff" * 7 + b"\x7f")
RULE_BROKEN = TraceError.exit_code
"""A number that damage made too large can contradict another one, and ``verify`` then says so of the trace."""
KNOWN = frozenset(kind.exit_code for kind in (Lo2ioError, *Lo2ioError.__subclasses__()))
"""Exit codes of errors that are one line."""


def damage(spool: Path, seed: int) -> None:
    """Change some bytes of some files: flip, replace, remove or repeat them."""
    chance = random.Random(seed)  # noqa: S311
    files = sorted(path for path in spool.iterdir() if path.stat().st_size)
    for _ in range(chance.randint(1, 8)):
        file = chance.choice(files)
        content = bytearray(file.read_bytes())
        at, kind = chance.randrange(len(content)), chance.random()
        if kind < 0.5:
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


def lo2io(output: Path, *words: str) -> int:
    """Run a command line of lo2io in a fork; its exit code, or minus the signal that ended it."""
    child = os.fork()
    if not child:
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


def judge(spool: Path, folder: Path, seed: int) -> dict[str, object]:
    """Damage a copy, and look at what lo2io makes of it."""
    copy, trace, output = folder / "spool", folder / "trace", folder / "output"
    for path in (copy, trace):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(spool, copy)
    damage(copy, seed)
    code = lo2io(output, "convert", str(copy), "-o", str(trace))
    text = output.read_text(errors="replace")
    if code or "Traceback" in text:
        wrong = "" if code in KNOWN and "Traceback" not in text else text[-2000:] or "no word"
        return {"seed": seed, "code": code, "wrong": wrong}
    for words in (("verify",), ("report", "--json")):
        code = lo2io(output, *words, str(trace))
        if code and (words[0], code) != ("verify", RULE_BROKEN):
            return {"seed": seed, "code": code, "wrong": f"{words[0]}: {output.read_text(errors='replace')[-2000:]}"}
    return {"seed": seed, "code": 0, "wrong": ""}


if __name__ == "__main__":
    for number in range(int(sys.argv[3]), int(sys.argv[3]) + int(sys.argv[4])):
        print(json.dumps(judge(Path(sys.argv[1]), Path(sys.argv[2]), number)), flush=True)
