"""Names of error numbers are those of the kernel's headers."""

from __future__ import annotations

import errno
import re
import subprocess

import pytest

from lo2io.errnos import error_name

HEADERS = "#include <asm/errno.h>\n"


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (errno.EOPNOTSUPP, "EOPNOTSUPP"),
        (errno.EDEADLK, "EDEADLK"),
        (errno.EWOULDBLOCK, "EAGAIN"),
        (errno.ENOENT, "ENOENT"),
        (512, "ERESTARTSYS"),
        (524, "ENOTSUPP"),
        (600, "errno 600"),
    ],
)
def test_names(number: int, name: str) -> None:
    """No alias, the kernel's own numbers, and a number that has no name."""
    assert error_name(number) == name


def test_every_name_is_the_one_of_the_headers() -> None:
    """Each number that <asm/errno.h> defines as a number has the name there; an alias is defined as another name."""
    macros = subprocess.run(
        ["cc", "-E", "-dM", "-x", "c", "-"], input=HEADERS, capture_output=True, text=True, check=True
    ).stdout
    named = {int(number): name for name, number in re.findall(r"^#define (E\w+) (\d+)$", macros, re.MULTILINE)}
    assert len(named) > 100
    assert {number: error_name(number) for number in named} == named
