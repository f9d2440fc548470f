"""Marks in lo2io's code that tell which lines a process has reached (see ``reached.py``).

In a process that has called :func:`install`, each statement of lo2io sets a byte of the file ``python`` in the folder
that LO2IO_REACHED names. A native part that is built with ``C_HOOK`` and ``C_FLAGS`` sets a byte of the file ``c`` for
each block of machine code. Processes that it starts do so, too. A line has a number: that of its file, plus its own.
"""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import itertools
import json
import mmap
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "LO2IO_REACHED"
NAME = "__reached__"
"""The global variable that is the file's memory."""
C_BYTES = 4 << 20
"""The native part's code is smaller."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
C_HOOK = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
extern const char __ehdr_start __attribute__((visibility("hidden")));
static char *reached;
__attribute__((constructor)) static void begin(void)
{
    const char *folder = getenv("LO2IO_REACHED");
    char path[4096];
    int fd = -1;
    if (folder && snprintf(path, sizeof(path), "%s/c", folder) < (int)sizeof(path))
        fd = open(path, O_RDWR);
    void *memory = fd < 0 ? MAP_FAILED : mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    reached = memory == MAP_FAILED ? 0 : memory;
}
__attribute__((visibility("default"))) void __sanitizer_cov_trace_pc(void)
{
    if (reached)
        reached[(const char *)__builtin_return_address(0) - &__ehdr_start - 1] = 1;
}
""".replace("SIZE", str(C_BYTES))
"""gcc calls it at the beginning of each block of a file that it compiles with C_FLAGS."""
C_FLAGS = ("-O0", "-g", "-fsanitize-coverage=trace-pc")


def files(root: Path) -> list[Path]:
    """The files of lo2io that may be changed. ``native/build.py`` runs before there is a lo2io."""
    found = (
        path.relative_to(root) for path in (root / "lo2io").rglob("*.*") if path.name not in {"_lib.c", "build.py"}
    )
    return sorted(path for path in found if path.suffix == ".py" or (path.suffix == ".c" and "native" in path.parts))


def numbered(texts: dict[str, str]) -> tuple[dict[str, int], int]:
    """The number of each file, to which a line's own is added, and the number of all lines."""
    *numbers, end = itertools.accumulate((text.count("\n") + 2 for text in texts.values()), initial=0)
    return dict(zip(texts, numbers, strict=True)), end


def statements(body: list[ast.stmt], *, inside: bool = False) -> Iterator[tuple[list[ast.stmt], ast.stmt, bool]]:
    """Each statement: the list that it stands in, itself, and whether it stands in a function."""
    for statement in list(body):
        yield body, statement, inside
        within = inside or isinstance(statement, FUNCTIONS)
        parts = [statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]
        for part, name in itertools.product(parts, ("body", "orelse", "finalbody")):
            yield from statements(getattr(part, name, []), inside=within)


def is_text(statement: ast.stmt) -> bool:
    """Tell whether it is a docstring."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def marked(text: bytes, first: int) -> ast.Module:
    """The program in which each statement of a function sets the byte of its line."""
    tree = ast.parse(text)
    for body, statement, inside in statements(tree.body):
        if inside and not is_text(statement):
            mark = ast.parse(f"{NAME}[{first + statement.lineno}] = 1").body[0]
            for node in ast.walk(mark):
                ast.copy_location(node, statement)
            body.insert(next(at for at, each in enumerate(body) if each is statement), mark)
    return tree


def install() -> None:
    """From now on, modules of lo2io that this process imports set their bytes."""
    folder = Path(os.environ[VARIABLE])
    with (folder / "python").open("r+b") as file:
        setattr(builtins, NAME, mmap.mmap(file.fileno(), 0))
    first = json.loads((folder / "first.json").read_text())
    usual = importlib.machinery.SourceFileLoader.source_to_code

    def source_to_code(self: Any, data: Any, path: str, **options: Any) -> Any:
        if path not in first:
            return usual(self, data, path, **options)
        return compile(marked(data, first[path]), path, "exec", dont_inherit=True)

    importlib.machinery.SourceFileLoader.source_to_code = source_to_code  # type: ignore[assignment,method-assign]


def python_begin(text: str, line: int) -> int | None:
    """The line at which the statement of a line begins; None: it runs when the module is imported."""
    begins: dict[int, bool] = {}
    for _, statement, inside in statements(ast.parse(text).body):
        decorators = getattr(statement, "decorator_list", [])
        begins[min(each.lineno for each in (statement, *decorators))] = inside
        if isinstance(statement, FUNCTIONS):
            begins[statement.lineno] = inside
    begin = max(each for each in begins if each <= line)
    return begin if begins[begin] else None


def c_blocks(library: Path) -> dict[int, tuple[str, int]]:
    """Where marks stand in the machine code: place → file, as the compiler was told, and line."""
    shown = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", library], check=True, stdout=subprocess.PIPE, text=True
    )
    calls = re.findall(
        r"^ *([0-9a-f]+):\s+call +\S+ <__sanitizer_cov_trace_pc(?:@plt)?>\n *([0-9a-f]+):", shown.stdout, re.MULTILINE
    )
    command = ["addr2line", "-e", library]
    asked = "\n".join(call for call, _ in calls)
    lines = subprocess.run(command, input=asked, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    found = {}
    for (_, after), line in zip(calls, lines, strict=True):
        file, _, number = line.partition(" (")[0].rpartition(":")
        if number.isdecimal():
            found[int(after, 16) - 1] = (os.path.normpath(file), int(number))
    return found
