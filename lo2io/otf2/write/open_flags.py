"""The flags of open(2) on each architecture, as OTF2's flags."""

from __future__ import annotations

from lo2io.otf2.values import value

_GENERIC_FLAGS = {"O_DIRECT": 0o40000, "O_LARGEFILE": 0o100000, "O_DIRECTORY": 0o200000, "O_NOFOLLOW": 0o400000}
"""include/uapi/asm-generic/fcntl.h."""
_ARM_FLAGS = {"O_DIRECTORY": 0o40000, "O_NOFOLLOW": 0o100000, "O_DIRECT": 0o200000, "O_LARGEFILE": 0o400000}
"""arch/arm64/include/uapi/asm/fcntl.h. arm has the same; powerpc differs in O_DIRECT and O_LARGEFILE."""
_PPC_FLAGS = {**_ARM_FLAGS, "O_LARGEFILE": 0o200000, "O_DIRECT": 0o400000}
O_CLOEXEC = 0o2000000


def open_flags(machine: str) -> list[tuple[int, int, int, int]]:
    """For each open(2) flag: (mask, value, creation flags, status flags). ``machine`` is uname's name."""
    own = (
        _ARM_FLAGS if machine.startswith(("arm", "aarch64")) else _PPC_FLAGS if machine[:3] == "ppc" else _GENERIC_FLAGS
    )
    temporary, sync, data_sync = 0o20000000 | own["O_DIRECTORY"], 0o4010000, 0o10000
    creation = [
        (0o100, 0o100, "CREATE"),
        (0o200, 0o200, "EXCLUSIVE"),
        (0o400, 0o400, "NO_CONTROLLING_TERMINAL"),
        (0o1000, 0o1000, "TRUNCATE"),
        (own["O_LARGEFILE"], own["O_LARGEFILE"], "LARGEFILE"),
        # O_TMPFILE includes O_DIRECTORY, and O_SYNC includes O_DSYNC, so the masks tell them apart.
        (temporary, own["O_DIRECTORY"], "DIRECTORY"),
        (temporary, temporary, "TEMPORARY_FILE"),
        (own["O_NOFOLLOW"], own["O_NOFOLLOW"], "NO_FOLLOW"),
        (0o10000000, 0o10000000, "PATH"),
    ]
    status = [
        (0o2000, 0o2000, "APPEND"),
        (0o4000, 0o4000, "NON_BLOCKING"),
        (0o20000, 0o20000, "ASYNC"),
        (sync, sync, "SYNC"),
        (sync, data_sync, "DATA_SYNC"),
        (own["O_DIRECT"], own["O_DIRECT"], "AVOID_CACHING"),
        (0o1000000, 0o1000000, "NO_ACCESS_TIME"),
        (O_CLOEXEC, O_CLOEXEC, "CLOSE_ON_EXEC"),
    ]
    return [(mask, bits, value(f"IO_CREATION_FLAG_{name}"), 0) for mask, bits, name in creation] + [
        (mask, bits, 0, value(f"IO_STATUS_FLAG_{name}")) for mask, bits, name in status
    ]
