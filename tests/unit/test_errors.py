"""Errors of the kernel as messages for the user."""

from __future__ import annotations

import errno
import os

import pytest

from lo2io.errors import CaptureError, refusal


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EPERM, errno.ENOSYS, errno.EMFILE])
def test_a_refusal_names_what_helps(number: int) -> None:
    """The limit, or the filter."""
    found = refusal("record", OSError(number, os.strerror(number)))
    assert isinstance(found, CaptureError)
    assert found.answer == os.strerror(number)
    assert ("ulimit" in found.remedy) == (number in {errno.EAGAIN, errno.EMFILE})
    assert found.remedy


def test_a_thread_that_the_kernel_refuses_is_a_refusal() -> None:
    """Python raises a RuntimeError for it; other RuntimeErrors are faults of a program."""
    assert refusal("record", RuntimeError("can't start new thread"))
    assert refusal("record", MemoryError())
    assert refusal("record", ModuleNotFoundError("No module named 'x'"))
    assert refusal("record", RuntimeError("dictionary changed size during iteration")) is None
    assert refusal("record", ValueError("x")) is None
    assert refusal("record", OSError("no number")) is None


def test_a_refusal_names_the_file() -> None:
    """If the kernel's answer is about one."""
    with pytest.raises(OSError, match="none") as caught:
        os.open("/none", os.O_RDONLY)
    assert "(/none)" in str(refusal("read", caught.value))
