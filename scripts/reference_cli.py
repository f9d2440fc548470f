#!/usr/bin/env python3
"""Write docs/reference/cli.md from each command's --help; --check compares it with the current page."""

import sys
from pathlib import Path

import typer
from typer.testing import CliRunner

from lo2io.cli.app import app

OUTPUT = Path(__file__).parent.parent / "docs/reference/cli.md"
INTRODUCTION = """\
# The command line

Made by `scripts/reference_cli.py` from the commands' own `--help`. Data goes to stdout, messages to stderr.

| exit code | meaning |
|---|---|
| the command's | `record` and `system-wide` with a command: its exit code, or 128 + n if signal n ended it |
| 0 | without a command: recorded and converted, also when a signal or the time ended the recording |
| 1 | an error that none of the others names |
| 2 | an option, event or file that does not fit |
| 3 | the kernel refuses what recording needs: `lo2io doctor` says what helps |
| 4 | not a spool, or one that cannot be read |
| 5 | not a trace, one that breaks the rules, or one that cannot be written |
| 6 | recording without a command had to stop: what was recorded is kept; a window was not written |
| 126, 127 | the command to record cannot be executed, or was not found |
| 130 | Ctrl-C before recording had begun, or while converting: then the spool is kept (143: SIGTERM, 129: SIGHUP) |
"""


def commands() -> list[tuple[str, ...]]:
    """Every command and group, outermost first, each as the words after ``lo2io``."""
    found: list[tuple[str, ...]] = [()]
    for words in found:
        command = typer.main.get_command(app)
        for word in words:
            command = command.commands[word]  # type: ignore[attr-defined]
        found += [(*words, name) for name in getattr(command, "commands", {})]
    return found


def help_text(words: tuple[str, ...]) -> str:
    """The output of ``lo2io WORDS --help``, 80 columns wide."""
    result = CliRunner().invoke(app, [*words, "--help"], prog_name="lo2io", env={"COLUMNS": "80", "NO_COLOR": "1"})
    return "\n".join(line.rstrip() for line in result.output.strip().splitlines())


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    parts += [f"## {' '.join(('lo2io', *words))}\n\n```\n{help_text(words)}\n```\n" for words in commands()]
    return "\n".join(parts)


def main() -> int:
    """Write the page, or compare it with the one that is there."""
    text = page()
    if "--check" not in sys.argv:
        OUTPUT.write_text(text, encoding="utf-8")
        return 0
    if OUTPUT.exists() and OUTPUT.read_text(encoding="utf-8") == text:
        return 0
    print(f"{OUTPUT} is not current: make docs", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
