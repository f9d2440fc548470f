"""File positions, as the slow engine follows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.model import CallKind

if TYPE_CHECKING:
    from reference.pending import Pending

Offset = tuple[int | None, int]
"""A call's offset and its source."""
EXPLICIT, FOLLOWED, KERNEL = 1, 2, 3
DATA = (CallKind.READ, CallKind.WRITE)
RWF_APPEND, RWF_NOAPPEND = 0x10, 0x20


def signed(value: int, bits: int) -> int:
    """The bits as a signed number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def begin_moving(op: Pending) -> None:
    """The call may move the positions of its files."""
    kind = op.spec.kind
    handles = [op.handle, op.handle2] if kind is CallKind.COPY else [op.handle]
    if kind in DATA and is_positioned(op):
        return
    if kind not in (*DATA, CallKind.SEEK, CallKind.COPY):
        return
    for handle in handles:
        if handle is None or handle.description in op.moves:
            continue
        description = handle.description
        for other in description.moving:
            other.overlapped = op.overlapped = True
        description.moving.append(op)
        op.moves.append(description)
        op.position = description.position


def can_move(op: Pending) -> bool:
    """True if the call moves its file's position, whatever the file is."""
    return op.spec.kind in (CallKind.SEEK, CallKind.COPY) or (op.spec.kind in DATA and not is_positioned(op))


def is_positioned(op: Pending) -> bool:
    """True if the offset is an argument. To preadv2 and pwritev2, which have flags, -1 means the position."""
    if "offset" not in op.values:
        return False
    takes_minus_one = op.spec.kind in DATA and "flags" in op.spec.fields
    return not (takes_minus_one and signed(op.values["offset"], 64) == -1)


def appends_to(op: Pending, by_file: bool | None) -> bool | None:
    """True if the call appends, by its own flags and by the file's O_APPEND; None: not known."""
    flags = op.values.get("flags", 0)
    if op.spec.kind is not CallKind.WRITE or flags & RWF_NOAPPEND:
        return False
    return True if flags & RWF_APPEND else by_file


def end_moving(op: Pending, time: int, ret: int | None) -> None:
    """Advance the position; ``ret`` None: the result is unknown."""
    for description in op.moves:
        description.moving.remove(op)
        description.last_moved = time
        kind = op.spec.kind
        if ret is None:
            description.move_to(None)
        elif ret < 0:
            continue
        elif kind is CallKind.SEEK:
            description.move_to(None if op.overlapped else ret)
        elif ret == 0:
            continue
        elif kind is CallKind.COPY or appends_to(op, description.append) is not False:
            description.move_to(None)
        elif description.position is not None:
            description.move_to(description.position + ret)


def offset_of(op: Pending, *, of_its_file: bool) -> Offset:
    """The offset by the arguments, or by the known position at the entry, which may be another file's."""
    if is_positioned(op):
        offset = signed(op.values["offset"], 64)
        appends = appends_to(op, op.handle is not None and op.handle.description.append) is True
        impossible = op.spec.kind in DATA and offset < 0
        return (None, 0) if appends or impossible else (offset, EXPLICIT)
    if op.spec.kind not in DATA or op.overlapped or op.position is None:
        return None, 0
    if appends_to(op, op.moves[0].append) is not False or not of_its_file:
        return None, 0
    return op.position, FOLLOWED


def told_offset(op: Pending, ret: int, offset: Offset) -> tuple[Offset, int | None, bool]:
    """The offset, by the position after the call that a BPF program told.

    Returns:
        The offset; the position from now on, and whether the program's position holds.
    """
    told, kind = op.told_position, op.spec.kind
    usable = told is not None and told >= 0 and op.moves and kind is not CallKind.COPY and not op.overlapped
    if not usable or not op.moves[0].movable or told is None:
        return offset, None, False
    appends = appends_to(op, op.moves[0].append) is not False
    if kind is CallKind.SEEK:
        certain = ret if ret >= 0 else op.position
        return offset, told if certain in (None, told) else None, True
    moved = max(ret, 0)
    certain = None if op.position is None or (appends and moved) else op.position + moved
    if certain not in (None, told):
        return ((None, 0) if offset[1] == FOLLOWED else offset), None, True
    if offset[1] == 0 and told >= moved and (moved or not appends):
        offset = told - moved, KERNEL
    return offset, told, True
