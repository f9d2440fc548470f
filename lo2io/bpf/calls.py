"""The facts about calls and opcodes that lo2io's programs need. In: catalog and formats. Out: numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.bpf.loader import BpfCall
from lo2io.catalog.call_numbers import NO_NUMBER, call_number, compat_calls
from lo2io.catalog.layouts import ARGUMENT_BYTES, ARGUMENTS_AT, MAX_ARGUMENTS
from lo2io.frozen import dataclass
from lo2io.model import CallKind, CallSpec, OpcodeTrait, Returns
from lo2io.native._lib import lib

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from lo2io.catalog.catalog import Catalog
    from lo2io.model import EventFormat, OpcodeSpec
    from lo2io.model.events import Event

_WITHOUT_HANDLE = frozenset({CallKind.CLOSE_RANGE, CallKind.CLONE, CallKind.UNSHARE})
"""Kinds of calls whose fd does not name the file that the call uses."""
_TRANSFERS = frozenset({CallKind.READ, CallKind.WRITE})


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call that the programs look at.

    Attributes:
        spec: The facts about the call for the programs.
        enter: The event of the call's entry; None: not recorded.
        leave: The event of the call's exit; None: not recorded.
    """

    spec: BpfCall
    enter: Event | None
    leave: Event | None


def plan_calls(
    events: Sequence[Event], catalog: Catalog, droppable: Container[str] = frozenset()
) -> tuple[KernelCall, ...]:
    """The calls among the events, in their order.

    The counters of call i are number 2 i (entries) and 2 i + 1 (exits).

    Args:
        events: The recorded events.
        catalog: The meaning of the events.
        droppable: Names of calls on which only their own rows depend.
    """
    by_name = {event.name: event for event in events}
    calls: dict[str, CallSpec] = {}
    for event in events:
        spec = catalog.by_event.get(event.name)
        if isinstance(spec, CallSpec):
            calls.setdefault(spec.name, spec)
    return tuple(
        _plan(spec, number, by_name.get(spec.enter_event), by_name.get(spec.exit_event), spec.name in droppable)
        for number, spec in enumerate(calls.values())
    )


def _plan(spec: CallSpec, number: int, enter: Event | None, leave: Event | None, is_droppable: bool) -> KernelCall:
    places = {} if enter is None else _places(enter.layout)
    roles = {role: places.get(name, 0) for role, name in spec.fields.items()}

    def argument(role: str) -> int:
        return roles.get(role, 0)

    def behind(role: str) -> int:
        return argument(role) + 1 if argument(role) else 0

    counts_bytes = not spec.vectored and spec.kind is not CallKind.FCNTL
    return KernelCall(
        BpfCall(
            enter_event=enter.id if enter else 0,
            exit_event=leave.id if leave else 0,
            enter_index=2 * number,
            exit_index=2 * number + 1,
            flags=_flags(spec, is_droppable=is_droppable),
            nr_args=max(places.values(), default=0),
            fd=0 if spec.kind in _WITHOUT_HANDLE else argument("fd"),
            fd2=argument("fd2") if spec.kind is CallKind.COPY else 0,
            path=argument("path"),
            path2=argument("path2"),
            dirfd=argument("dirfd"),
            dirfd2=argument("dirfd2"),
            vector=argument("vector"),
            vector_count=argument("count") if "vector" in roles else 0,
            how=argument("how"),
            how_size=behind("how"),
            iocbs=argument("iocbs"),
            iocbs_count=argument("count") if "iocbs" in roles else 0,
            events=argument("events"),
            context=argument("context") if "events" in roles else 0,
            count=argument("count") if counts_bytes else 0,
            filled=0 if enter is None else _filled(enter.layout, (argument("path"), argument("path2"))),
            number=call_number(spec)
            if enter and leave
            else NO_NUMBER,  # if only entry or exit is recorded, the call's own event shows it
            compat=compat_calls(spec) if enter and leave else (),
        ),
        enter,
        leave,
    )


def plan_opcodes(opcodes: Iterable[OpcodeSpec]) -> tuple[int, ...]:
    """Number of an opcode of io_uring → the facts that programs find out about its requests: ``LO2_ASKS_FILE`` etc."""
    return tuple(
        lib.LO2_ASKS_FILE * (OpcodeTrait.FILE in opcode.traits or opcode.kind is CallKind.CLOSE)
        | lib.LO2_ASKS_TWO_FILES * (OpcodeTrait.TWO_FILES in opcode.traits)
        | lib.LO2_ASKS_PLACES * (OpcodeTrait.CHANGES_PLACES in opcode.traits)
        | lib.LO2_ASKS_BYTES * bool(opcode.traits & (OpcodeTrait.COUNTED | OpcodeTrait.MAY_VECTOR))
        for opcode in opcodes
    )


def _places(layout: EventFormat) -> dict[str, int]:
    """Name → number of each argument of a call, from 1 on. Strings that newer kernels add to formats are left out."""
    found = {}
    for field in layout.fields:
        number, rest = divmod(field.offset - ARGUMENTS_AT, ARGUMENT_BYTES)
        if 0 <= number < MAX_ARGUMENTS and rest == 0 and not field.is_data_loc and field.size == ARGUMENT_BYTES:
            found[field.name] = number + 1
    return found


def _filled(layout: EventFormat, paths: Container[int]) -> int:
    """Bit n is set if argument n + 1 is a pointer through which the kernel may write, and none of these paths."""
    places = _places(layout)
    pointers = [field.name for field in layout.fields if "*" in field.ctype and not field.ctype.startswith("const ")]
    return sum(1 << places[name] - 1 for name in pointers if name in places and places[name] not in paths)


def _flags(spec: CallSpec, *, is_droppable: bool) -> int:
    flags: int = (
        lib.LO2_CALL_RETURNS_FD * (spec.returns is Returns.FD)
        | lib.LO2_CALL_MOVES * moves_position(spec)
        | lib.LO2_CALL_CLOSES * (spec.kind is CallKind.CLOSE)
        | lib.LO2_CALL_DROPPABLE
        * (is_droppable and not spec.reads_first)  # a path read at entry is written before the call can be left out
        | lib.LO2_CALL_BYTES * (spec.returns is Returns.BYTES)
        | lib.LO2_CALL_FIRST * spec.reads_first
        | lib.LO2_CALL_ENDS * spec.ends_many
        | lib.LO2_CALL_SLEPT * spec.only_slept
    )
    return flags


def moves_position(spec: CallSpec) -> bool:
    """True if a call may move the position of its file. A call with flags does so at offset -1 (preadv2, pwritev2)."""
    at_offset = "offset" in spec.fields and "flags" not in spec.fields
    return spec.kind is CallKind.SEEK or (spec.kind in _TRANSFERS and not at_offset)
