"""The kernel's refusals of programs as errors for the user: the kernel's answer, and the least change that helps."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from lo2io.bpf import libbpf
from lo2io.errors import AccessError

ROOT = Path("/")
_LOCKDOWN_REMEDY = ", or boot without lockdown=confidentiality"
_OLD_REMEDY = ", or boot Linux 5.17 or later"
"""The newest feature that the programs need is bpf_loop (include/uapi/linux/bpf.h of 5.17)."""
_UNKNOWN = {errno.EINVAL, errno.E2BIG, 524}
"""A kernel's errors for unknown helpers, maps and attributes. 524 is ENOTSUPP of include/linux/errno.h."""


def refused(tried: str, error: OSError) -> AccessError:
    """The error for programs that could not be loaded or attached.

    Args:
        tried: The attempt, in words.
        error: The answer of bpf(2) or libbpf.
    """
    answer = os.strerror(error.errno or 0)
    if error.errno == errno.EPERM:  # the kernel refused before the verifier ran, so there is no log
        return AccessError(tried, answer, "run as root, or with CAP_BPF and CAP_PERFMON")
    said = libbpf.last_words()
    more = _LOCKDOWN_REMEDY if _is_locked_down() else _OLD_REMEDY if error.errno in _UNKNOWN else ""
    remedy = f"record with --names proc{more}"
    return AccessError(tried, f"{answer} ({said})" if said else answer, remedy)


def _is_locked_down() -> bool:
    """True if the kernel does not let programs read its memory (kernel_lockdown(7))."""
    try:
        return "[confidentiality]" in (ROOT / "sys/kernel/security/lockdown").read_text(encoding="ascii")
    except OSError:
        return False
