"""Names of error numbers, as the kernel's headers and strace write them.

``errno.errorcode`` holds one name for each number and takes an alias for some of them: ENOTSUP for EOPNOTSUPP and
EDEADLOCK for EDEADLK. It lacks EHWPOISON.

Source: include/uapi/asm-generic/errno.h (the aliases), include/linux/errno.h (the kernel's own numbers), Linux 6.18.
"""

from __future__ import annotations

import errno
import os
from typing import Final

INTERRUPTIONS: Final = (errno.EINTR, 512, 513, 514, 516)
"""Every error by which a call says that a signal ended it.

The kernel restarts a call that returned 512 to 516, or turns the number into EINTR, only after the tracepoint of its
exit (``arch_do_signal_or_restart``). So a trace holds the number that the program never sees.
"""

_ALIASES: Final = frozenset({"EWOULDBLOCK", "EDEADLOCK", "ENOTSUP"})
_KERNEL: Final = {
    512: "ERESTARTSYS",
    513: "ERESTARTNOINTR",
    514: "ERESTARTNOHAND",
    515: "ENOIOCTLCMD",
    516: "ERESTART_RESTARTBLOCK",
    517: "EPROBE_DEFER",
    518: "EOPENSTALE",
    519: "ENOPARAM",
    521: "EBADHANDLE",
    522: "ENOTSYNC",
    523: "EBADCOOKIE",
    524: "ENOTSUPP",
    525: "ETOOSMALL",
    526: "ESERVERFAULT",
    527: "EBADTYPE",
    528: "EJUKEBOX",
    529: "EIOCBQUEUED",
    530: "ERECALLCONFLICT",
    531: "ENOGRACE",
}
"""Numbers that no program should see; some drivers return one all the same."""
_NAMES: Final = (
    {133: "EHWPOISON"}
    | _KERNEL
    | {
        number: name
        for name, number in vars(errno).items()
        if name.startswith("E") and isinstance(number, int) and name not in _ALIASES
    }
)


def error_text(number: int) -> str:
    """The C library's text for an error. A call to be restarted was interrupted by a signal."""
    return "Interrupted by a signal, to be restarted" if number in INTERRUPTIONS[1:] else os.strerror(number)


def error_name(number: int) -> str:
    """``EAGAIN``; ``errno 600`` for a number without a name."""
    return _NAMES.get(number, f"errno {number}")
