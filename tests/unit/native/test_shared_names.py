"""Lower rooms repeat some of the C headers, for they lie below the native part: both must agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lo2io.native._lib import ffi, lib

from lo2io.kernel.procfs import MAX_COMMAND_BYTES
from lo2io.model import CallKind, OpcodeTrait, RequestOp, Returns, RingPath, RingStatus, Role
from lo2io.spool import facts
from lo2io.trace.ring_columns import RING_INFERRED, RING_TRAITS

if TYPE_CHECKING:
    import enum
    from collections.abc import Mapping

ENUMERATIONS: dict[str, tuple[type[enum.IntEnum | enum.IntFlag], str]] = {
    "lo2_role": (Role, "LO2_ROLE_"),
    "lo2_call_kind": (CallKind, "LO2_CALL_"),
    "lo2_returns": (Returns, "LO2_RETURNS_"),
    "lo2_rq_op": (RequestOp, "LO2_RQ_"),
    "lo2_ring_path": (RingPath, "LO2_PATH_"),
    "lo2_ring_status": (RingStatus, "LO2_RING_"),
    "lo2_opcode_trait": (OpcodeTrait, "LO2_OPCODE_"),
}


@pytest.mark.parametrize("name", ENUMERATIONS)
def test_enumerations_are_those_of_c(name: str) -> None:
    """The same names have the same numbers."""
    members, prefix = ENUMERATIONS[name]
    numbers = {member: number for number, member in ffi.typeof(f"enum {name}").elements.items()}
    found = {prefix + key: int(member) for key, member in members.__members__.items() if key != "NONE"}
    assert found == numbers


@pytest.mark.parametrize(("name", "words"), [("lo2_ring_trait", RING_TRAITS), ("lo2_ring_inferred", RING_INFERRED)])
def test_every_bit_has_a_word(name: str, words: Mapping[int, str]) -> None:
    """In reports and traces."""
    assert list(words) == sorted(ffi.typeof(f"enum {name}").elements)


def test_bounds_and_types_are_those_of_c() -> None:
    """The length of a command line, and the types of facts."""
    assert MAX_COMMAND_BYTES == lib.LO2_MAX_COMMAND
    ours = {name: getattr(facts, name) for name in vars(facts) if name.startswith(("FACT_", "TASK_"))}
    assert ours == {name: getattr(lib, f"LO2_FACT_{name.removeprefix('FACT_')}") for name in ours}
