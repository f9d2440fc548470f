"""Which code a result was measured with, and whether this code has changed since.

A fingerprint covers the code of lo2io that a benchmark runs, without comments, docstrings and blank lines. It is kept
with each result. A commit cannot name itself, and most commits change nothing that is measured. So a table is current
while the fingerprint of its result is that of the files beside it, whatever the commit's name. Else the table says that
it is older than the code.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import re
import tokenize
import tomllib
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FIGURES_THEMSELVES = (":!benchmarks/results", ":!benchmarks/README.md", ":!docs")
"""What may differ from a commit that is measured, as git's pathspecs: results, and pages with tables."""
MEASURED = ("lo2io", "tracepoints", "setup.py")
NOT_WHILE_RECORDING = (
    *("lo2io/exports/", "lo2io/native/perfetto/", "lo2io/native/sums/", "lo2io/native/api/sums.h"),
    *("lo2io/otf2/foreign/", "lo2io/otf2/read/"),
    *("lo2io/api/", "lo2io/reports/", "lo2io/top/", "lo2io/verify/"),
    *(f"lo2io/cli/{name}.py" for name in ("diff", "export", "merge", "query", "replay", "report", "top", "why")),
    *("lo2io/cluster/merge.py", "lo2io/native/merge/", "lo2io/otf2/merge/"),
)
"""Rooms that neither recording nor converting enters, and files of other rooms. No other C file may use a name of
``sums.h`` (a test holds that)."""
OF_NO_BENCHMARK = ("lo2io/cli/why.py", "lo2io/cluster/nodes.py", "lo2io/reports/why/")
"""No benchmark with kept results runs this code. Measured commands load none of it but the options of `lo2io why` (a
test holds that)."""
OF_FLIGHT_RECORDERS = "lo2io/capture/flight/"
FLIGHT_RECORDERS = frozenset(("machine", "rates"))
"""Benchmarks with flight recorders. No other command that is measured loads this room (a test holds that)."""
RECORDING_ALONE = frozenset(
    ("overhead", "machine", "rates", "prices", "rings", "backends", "hooks", "layers", "stacks")
)
"""Benchmarks without reports. All others are measured with all rooms."""
ENGINE = ("block", "cache", "calls", "engine", "rings", "tables")
ONLY_WHILE_CONVERTING = (
    "lo2io/cli/standby.py",
    *(f"lo2io/convert/{name}.py" for name in ("completeness", "engine", "reconcile", "streams")),
    *(f"lo2io/trace/{name}" for name in ("columns.py", "reader.py", "ring_columns.py", "selection/", "writer.py")),
    "lo2io/native/columns.py",
    "lo2io/spool/reader.py",
    "lo2io/unwind/",
    "lo2io/otf2/",
    "lo2io/native/api/otf2_events.h",
    *(f"lo2io/native/{room}/" for room in (*ENGINE, "otf2")),
)
"""What `lo2io record --no-convert` does not run. It does not load these modules. The recorder's rooms of C may not use
these rooms (check_c_rooms.py), and they use nothing of the header (a test holds that)."""
UNCONVERTED = RECORDING_ALONE - {"backends"}
"""Benchmarks that record with --no-convert."""
OF_LAYERS = {"stacks": "lo2io/bpf/programs/stacks.h"}
"""Benchmark → the program code of a layer that only this benchmark chooses. From all other recordings' programs the
kernel's verifier removes this code, since the layers are constants there. So these programs are the same, instruction
for instruction."""
GENERATED = frozenset(("_lib.c",))
C_COMMENT = re.compile(r'("(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\')|/\*.*?\*/|//[^\n]*', re.DOTALL)


def fingerprint(root: Path, benchmark: str) -> str:
    """The SHA-256 of the code that a benchmark measures, of the repository at ``root``, as hexadecimal digits."""
    rooms = (*OF_NO_BENCHMARK, *(NOT_WHILE_RECORDING if benchmark in RECORDING_ALONE else ()))
    if benchmark not in FLIGHT_RECORDERS:
        rooms += (OF_FLIGHT_RECORDERS,)
    layers = (file for chooser, file in OF_LAYERS.items() if benchmark != chooser)
    return _digest(root, (*rooms, *(ONLY_WHILE_CONVERTING if benchmark in UNCONVERTED else ()), *layers))


@cache
def _digest(root: Path, left_out: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for name, code in _all_code(root).items():
        if not name.startswith(left_out):
            digest.update(f"{name}\0{code}\0".encode())
    return digest.hexdigest()


@cache
def _all_code(root: Path) -> dict[str, str]:
    """The code of each measured file, by its path."""
    files = [root / name for name in MEASURED if (root / name).is_file()]
    for name in MEASURED:
        files += [path for path in (root / name).rglob("*") if path.suffix in READERS and path.name not in GENERATED]
    files += (root / "benchmarks").glob("*.c")
    return {
        str(path.relative_to(root)): READERS[path.suffix](path.read_text(encoding="utf-8")) for path in sorted(files)
    }


@cache
def python_code(text: str) -> str:
    """Lines of code, without comments, docstrings and blank lines; the same under every version of Python."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, at = token.start
            lines[row - 1] = lines[row - 1][:at]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for row in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                lines[row - 1] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


def c_code(text: str) -> str:
    """The words of C, without comments."""
    return " ".join(C_COMMENT.sub(lambda found: found[1] or " ", text).split())


def toml_code(text: str) -> str:
    """Keys and values of TOML."""
    return json.dumps(tomllib.loads(text), default=str)


READERS = {".py": python_code, ".c": c_code, ".h": c_code, ".toml": toml_code}
"""By a file's suffix: what of its text is measured."""
