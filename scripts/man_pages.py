#!/usr/bin/env python3
"""Write a manual page for each command from docs/reference/cli.md, which has the commands' own --help.

usage: man_pages.py FOLDER

Only the standard library is imported, for setup.py runs this while it builds a wheel.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SECTION = re.compile(r"^## (lo2io[a-z -]*)\n\n```\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(Arguments|Options|Commands):$", re.MULTILINE)
EXIT_CODE = re.compile(r"^\| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)


def escaped(text: str) -> str:
    """Text as roff takes it: no line is a request, and each hyphen is a minus, as in options."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def literal(text: str) -> str:
    """Lines that stay as they are."""
    return f".nf\n{escaped(text.rstrip())}\n.fi"


def page(command: str, help_text: str, more: str) -> str:
    """The manual page of one command; ``more``: sections for its end."""
    usage, _, rest = help_text.partition("\n\n")
    about, *lists = HEADING.split(rest)
    body, _, examples = (lists[-1] if lists else about).partition("\n\n  Examples:")
    if lists:
        lists[-1] = body
    paragraphs = [" ".join(part.split()) for part in about.strip().split("\n\n")]
    name = command.replace(" ", "-")
    parts = [
        f'.TH {name.upper()} 1 "" lo2io "lo2io"',
        f".SH NAME\n{escaped(name)} \\- {escaped(paragraphs[0].rstrip('.'))}",
        f".SH SYNOPSIS\n{escaped(' '.join(usage.removeprefix('Usage: ').split()))}",
        ".SH DESCRIPTION\n" + "\n.PP\n".join(escaped(paragraph) for paragraph in paragraphs),
    ]
    titles = zip(lists[::2], lists[1::2], strict=True)
    parts += [f".SH {title.upper()}\n{literal(text.strip(chr(10)))}" for title, text in titles if text.strip()]
    if examples:
        lines = re.findall(r"`([^`]*)`", " ".join(examples.split()))
        parts.append(f".SH EXAMPLES\n{literal(chr(10).join(lines))}")
    return "\n".join([*parts, more]) + "\n"


def pages(text: str) -> dict[str, str]:
    """File name → manual page, of all commands in the reference page."""
    found = dict(SECTION.findall(text))
    codes = [row for row in EXIT_CODE.findall(text.partition("\n## ")[0]) if row[0] != "exit code"]
    told = "\n".join(f".TP\n{escaped(code.strip())}\n{escaped(meaning.strip())}" for code, meaning in codes)
    others = {"lo2io": ", ".join(f"{escaped(name.replace(' ', '-'))}(1)" for name in found if name != "lo2io")}
    return {
        f"{command.replace(' ', '-')}.1": page(
            command, help_text, f".SH EXIT STATUS\n{told}\n.SH SEE ALSO\n{others.get(command, 'lo2io(1)')}"
        )
        for command, help_text in found.items()
    }


def write(folder: Path) -> list[str]:
    """Write all pages into a folder; return their files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, text in pages((ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")).items():
        (folder / name).write_text(text, encoding="utf-8")
        files.append(str(folder / name))
    return files


if __name__ == "__main__":
    print(*write(Path(sys.argv[1])), sep="\n")
