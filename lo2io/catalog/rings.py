"""io_uring in the files of ``tracepoints/``: roles of its tracepoints, and its opcodes.

docs/reference/tracepoint-files.md explains the keys, docs/explanation/design.md the effects of each role.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lo2io.model import CallKind, IocbCommand, OpcodeSpec, OpcodeTrait, Returns, Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lo2io.catalog.entry import Table

RING_FIELDS = (
    "ctx",
    "req",
    "user_data",
    "opcode",
    "flags",
    "fd",
    "result",
    "other",
    "count",
    "count2",
    "length",
    "offset",
)
"""Field roles of io_uring's tracepoints, in the order of ``enum lo2_field_id``."""
RING_REQUEST_ROLES = {
    "submit": Role.RING_SUBMIT,
    "refuse": Role.RING_REFUSE,
    "file_get": Role.RING_FILE_GET,
    "punt": Role.RING_PUNT,
    "poll_arm": Role.RING_POLL_ARM,
    "wake": Role.RING_WAKE,
    "link": Role.RING_LINK,
    "fail_link": Role.RING_FAIL_LINK,
    "defer": Role.RING_DEFER,
    "overflow": Role.RING_OVERFLOW,
    "complete": Role.RING_COMPLETE,
}
"""Roles of tracepoints in the life of a ring's request."""
RING_LONE_ROLES = {
    "create": Role.RING_CREATE,
    "register": Role.RING_REGISTER,
    "wait": Role.RING_WAIT,
    "task_work": Role.RING_TASK_WORK,
    "local_work": Role.RING_LOCAL_WORK,
    "short_write": Role.RING_SHORT_WRITE,
}
"""Roles of tracepoints that name no request, but a ring or a thread."""
_IDENTITY = ("ctx", "req", "user_data", "opcode")
RING_ROLE_FIELDS: Mapping[Role, tuple[str, ...]] = {
    Role.RING_SUBMIT: (*_IDENTITY, "flags", "count2"),
    Role.RING_REFUSE: (*_IDENTITY, "flags", "result", "length", "offset"),
    Role.RING_FILE_GET: ("ctx", "req", "user_data", "fd"),
    Role.RING_PUNT: (*_IDENTITY, "flags", "count"),
    Role.RING_POLL_ARM: (*_IDENTITY, "count", "count2"),
    Role.RING_WAKE: (*_IDENTITY, "count"),
    Role.RING_LINK: ("ctx", "req", "other"),
    Role.RING_FAIL_LINK: (*_IDENTITY, "other"),
    Role.RING_DEFER: _IDENTITY,
    Role.RING_OVERFLOW: ("ctx", "user_data", "result", "flags"),
    Role.RING_COMPLETE: ("ctx", "req", "user_data", "result", "flags"),
    Role.RING_CREATE: ("ctx", "fd", "flags", "count", "count2"),
    Role.RING_REGISTER: ("ctx", "opcode", "result", "count", "count2"),
    Role.RING_WAIT: ("ctx", "count"),
    Role.RING_TASK_WORK: ("ctx", "count"),
    Role.RING_LOCAL_WORK: ("ctx", "count"),
    Role.RING_SHORT_WRITE: ("ctx", "result", "length", "offset"),
}
"""Role → field roles with a meaning for it. A file must name ``ctx``. A kernel may lack any of the fields."""
OPCODE_KINDS = ("meta", "open", "close", "read", "write", "sync", "copy")
"""Kinds that an opcode can have, as those of calls."""
OPCODE_RETURNS = ("bytes", "fd", "zero", "count", "value")
OPCODE_IO_MODES: Mapping[CallKind, tuple[str, ...]] = {
    CallKind.READ: ("read",),
    CallKind.WRITE: ("write",),
    CallKind.SYNC: ("flush",),
    CallKind.COPY: ("read",),
}
"""Kind → I/O modes that it can have. Other kinds have ``none``."""
OPCODE_TRAITS = tuple(str(trait.name).lower() for trait in OpcodeTrait)
MAX_OPCODES = 255
"""The most opcodes: the number is a byte of the SQE, and 255 means unknown."""
_LEAN_ON = {
    OpcodeTrait.TWO_FILES: OpcodeTrait.FILE,
    OpcodeTrait.LOOKS_UP: OpcodeTrait.FILE,
    OpcodeTrait.MAY_VECTOR: OpcodeTrait.LENGTH,
    OpcodeTrait.NOTIFIES: OpcodeTrait.REPEATS,
}
"""Trait → the trait that it requires."""
_OPCODE = re.compile(r"[A-Z][A-Z0-9_]*")


def read_opcodes(tables: Sequence[Table]) -> tuple[OpcodeSpec, ...]:
    """The ``[[opcode]]`` entries of a file, indexed by their number.

    Raises:
        CatalogError: An entry breaks a rule, or numbers do not go from 0 on without a gap.
    """
    opcodes: list[OpcodeSpec] = []
    for table in tables:
        opcodes.append(_opcode(table))
        if opcodes[-1].number != len(opcodes) - 1:
            table.fail("number", f"{opcodes[-1].number} stands in the place of {len(opcodes) - 1}")
        if opcodes[-1].name in {opcode.name for opcode in opcodes[:-1]}:
            table.fail("name", "described twice")
        for command in opcodes[-1].iocbs:
            if sum(command in opcode.iocbs for opcode in opcodes) > 1:
                table.fail("iocbs", f"{command.name} is also another opcode's")
    return tuple(opcodes)


def _opcode(table: Table) -> OpcodeSpec:
    kind = CallKind[table.one_of("kind", OPCODE_KINDS, "meta").upper()]
    traits = table.names("traits", OPCODE_TRAITS) if "traits" in table.left else ()
    iocbs = table.names("iocbs", IocbCommand.__members__) if "iocbs" in table.left else ()
    opcode = OpcodeSpec(
        number=table.number("number", MAX_OPCODES),
        name=table.text("name", None, _OPCODE),
        kind=kind,
        returns=Returns[table.one_of("returns", OPCODE_RETURNS).upper()],
        io_mode=table.one_of("io_mode", OPCODE_IO_MODES.get(kind, ("none",)), "none"),
        summary=table.text("summary"),
        traits=OpcodeTrait(sum(OpcodeTrait[name.upper()] for name in dict.fromkeys(traits))),
        iocbs=tuple(IocbCommand[name] for name in iocbs),
    )
    table.done()
    for trait, needed in _LEAN_ON.items():
        if trait in opcode.traits and needed not in opcode.traits:
            table.fail("traits", f"{str(trait.name).lower()!r} needs {str(needed.name).lower()!r}")
    if (opcode.returns is Returns.FD) != (kind is CallKind.OPEN):
        table.fail("returns", "kind open returns an fd, and no other kind does")
    return opcode
