"""Command lines of processes: how to write them, and the name that tells one process from another.

``comm``, the kernel's name, has 15 bytes. Five processes of one server are all ``postgres``, and every script has its
interpreter's name. The name of a process adds what its command line proves: the title that the process gave itself, or
the script, module or class that an interpreter runs. Nothing else is added.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from lo2io.frozen import dataclass

COMM_LETTERS: Final = 15
"""TASK_COMM_LEN without the zero byte (include/linux/sched.h)."""
_TITLE_LETTERS: Final = 60


@dataclass(frozen=True, slots=True)
class _Interpreter:
    """The options of an interpreter: they tell where its script begins."""

    programs: re.Pattern[str]
    runs: frozenset[str] = frozenset()
    """Options with a value that runs: a module, an archive."""
    inline: frozenset[str] = frozenset()
    """Options before the program's own text, which is not shown."""
    valued: frozenset[str] = frozenset()
    """Options that take the next argument as their value."""
    clusters: bool = True
    """Letters can share a dash."""


_INTERPRETERS: Final = (
    _Interpreter(
        re.compile(r"(python|pypy)[\d.]*"),
        frozenset({"-m"}),
        frozenset({"-c"}),
        frozenset({"-W", "-X", "-Q"}),
    ),
    _Interpreter(
        re.compile(r"java"),
        frozenset({"-jar", "-m", "--module"}),
        valued=frozenset(
            {"-cp", "-classpath", "--class-path", "-p", "--module-path", "--upgrade-module-path", "--add-modules"}
            | {"--add-exports", "--add-opens", "--add-reads", "--limit-modules", "--patch-module"}
        ),
        clusters=False,
    ),
    _Interpreter(
        re.compile(r"node(js)?"),
        inline=frozenset({"-e", "--eval", "-p", "--print", "-pe"}),
        valued=frozenset({"-r", "--require", "--import", "-C", "--conditions", "--loader", "--experimental-loader"}),
        clusters=False,
    ),
    _Interpreter(re.compile(r"perl[\d.]*"), inline=frozenset({"-e", "-E"}), valued=frozenset({"-I"})),
    _Interpreter(re.compile(r"ruby[\d.]*"), inline=frozenset({"-e"}), valued=frozenset({"-I", "-r", "-C"})),
    _Interpreter(
        re.compile(r"-?(sh|dash|bash|ksh|zsh)"),
        inline=frozenset({"-c"}),
        valued=frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"}),
    ),
)


def command_line(raw: str) -> str:
    """The content of ``/proc/PID/cmdline`` as a line for a shell. A title that replaced the line stays as it is."""
    arguments = raw.rstrip("\0").split("\0")
    return arguments[0].strip() if len(arguments) == 1 else shlex.join(arguments)


def arguments_of(line: str) -> list[str]:
    """The arguments of a line that :func:`command_line` wrote, or the words of a title."""
    try:
        return shlex.split(line)
    except ValueError:  # a title with an unpaired quote
        return line.split()


def process_name(comm: str | None, line: str | None) -> str | None:
    """A title as it is, an interpreter with the script that it runs, else ``comm``.

    Args:
        comm: The kernel's name; None: unknown.
        line: The command line, as :func:`command_line` writes it; None: unknown.
    """
    arguments = arguments_of(line) if line else []
    if not arguments or not line:
        return comm
    if arguments[0].endswith(":"):  # "postgres: checkpointer", "nginx: worker process"
        return line if len(line) <= _TITLE_LETTERS else f"{line[: _TITLE_LETTERS - 1]}…"
    program = _base(arguments[0])
    for interpreter in _INTERPRETERS:
        if interpreter.programs.fullmatch(program):
            words = _what_runs(interpreter, arguments[1:])
            changed = comm not in {None, program[:COMM_LETTERS], *(word[:COMM_LETTERS] for word in words)}
            return comm if changed else " ".join([program, *words])
    return comm


def _what_runs(interpreter: _Interpreter, arguments: list[str]) -> list[str]:
    """The words that name what runs: a script, ``-m`` and a module, or ``-c``; empty without any."""
    skips = False
    for place, argument in enumerate(arguments):
        if skips:
            skips = False
        elif not argument.startswith(("-", "+")) or argument == "-":
            return [] if argument == "-" else [_base(argument)]
        elif option := _option(argument, interpreter.runs, clusters=interpreter.clusters):
            return [option, *map(_base, arguments[place + 1 : place + 2])]
        elif option := _option(argument, interpreter.inline, clusters=interpreter.clusters):
            return [option]
        else:
            skips = argument in interpreter.valued
    return []


def _option(argument: str, options: frozenset[str], *, clusters: bool) -> str | None:
    """The one of these options that the argument is or ends with, as ``-uc`` ends with ``-c``."""
    if argument in options:
        return argument
    last = f"-{argument[-1]}"
    return last if clusters and last in options and re.fullmatch(r"-[A-Za-z]{2,4}", argument) else None


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path
