"""The kernel's refusals of programs, in the user's words: what it said, and the least that helps."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from lo2io.bpf import libbpf
from lo2io.errors import AccessError

ROOT = Path("/")
_LOCKDOWN_REMEDY = ", or boot without lockdown=confidentiality"
_OLD_REMEDY = ", or boot Linux 5.17 or later"
"""The latest thing that the programs need is bpf_loop (include/uapi/linux/bpf.h of 5.17)."""
_UNKNOWN = {errno.EINVAL, errno.E2BIG, 524}
"""How a kernel answers to helpers, maps and attributes it does not know; 524: ENOTSUPP of include/linux/errno.h."""


def refused(tried: str, error: OSError) -> AccessError:
    """What the user is told where programs are not loaded or attached.

    Args:
        tried: In words.
        error: What bpf(2) or libbpf answered.
    """
    answer = os.strerror(error.errno or 0)
    if error.errno == errno.EPERM:  # before the verifier: it has nothing to say
        return AccessError(tried, answer, "run as root, or with CAP_BPF and CAP_PERFMON")
    said = libbpf.last_words()
    more = _LOCKDOWN_REMEDY if _is_locked_down() else _OLD_REMEDY if error.errno in _UNKNOWN else ""
    remedy = f"record with --names proc{more}"
    return AccessError(tried, f"{answer} ({said})" if said else answer, remedy)


def _is_locked_down() -> bool:
    """Whether the kernel lets no program read its memory (Documentation of lockdown in kernel_lockdown(7))."""
    try:
        return "[confidentiality]" in (ROOT / "sys/kernel/security/lockdown").read_text(encoding="ascii")
    except OSError:
        return False
