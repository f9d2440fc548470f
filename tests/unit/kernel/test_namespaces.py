"""Namespaces in which processes have other numbers, or clocks other times, than in the kernel's records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lo2io.errors import AccessError
from lo2io.kernel.namespaces import check_namespaces

if TYPE_CHECKING:
    from pathlib import Path

FIRST = "pid:[4026531836]"
ZERO = "monotonic           0         0\nboottime            0         0\n"


def machine(folder: Path, space: str | None, offsets: str | None) -> Path:
    """A ``/proc`` with these facts about the reading process."""
    (folder / "proc/self/ns").mkdir(parents=True)
    if space is not None:
        (folder / "proc/self/ns/pid").symlink_to(space)
    if offsets is not None:
        (folder / "proc/self/timens_offsets").write_text(offsets)
    return folder


@pytest.mark.parametrize(("space", "offsets"), [(FIRST, ZERO), (FIRST, None), (None, None)])
def test_the_host_is_recorded_and_kernels_without_namespaces(
    tmp_path: Path, space: str | None, offsets: str | None
) -> None:
    """Numbers and times mean the same to the kernel and here."""
    check_namespaces(machine(tmp_path, space, offsets))


def test_another_pid_namespace_is_refused(tmp_path: Path) -> None:
    """The kernel's numbers are nobody's here; the remedy is to have the host's."""
    with pytest.raises(AccessError, match="outside of this PID namespace") as caught:
        check_namespaces(machine(tmp_path, "pid:[4026532193]", ZERO))
    assert "--pid host" in caught.value.remedy


@pytest.mark.parametrize("offset", ["86400         0", "0         7", "-3         0"])
def test_another_clock_is_refused(tmp_path: Path, offset: str) -> None:
    """A time namespace moves the clock of facts, not that of samples."""
    with pytest.raises(AccessError, match="time namespace"):
        check_namespaces(machine(tmp_path, FIRST, f"monotonic           {offset}\nboottime            0         0\n"))
