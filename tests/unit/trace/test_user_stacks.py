"""Callers of functions without a frame of their own, which frame pointers skip; programs that are looked into."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from build.tablemaker import CALLS, COMPLETE, OPCODES, make_batch, meta, write_trace

from lo2io.model.recording import KernelStack, UserStack
from lo2io.model.trace import Totals
from lo2io.trace.user_stacks import _caller
from lo2io.trace.writer import TableWriter

if TYPE_CHECKING:
    from pathlib import Path

LEAF = Mock(returns_from_top=lambda offset: offset == 5, address_of=lambda offset: 7 if offset < 100 else None)


@pytest.mark.parametrize(
    ("offsets", "top", "beside", "caller"),
    [
        ((5, 40), 3, 1, ("b", 43)),
        ((5, 40), 3, 0, ("a", 8)),
        ((5, 40), 0, 1, None),
        ((5, 40), 3, 2, None),
        ((6, 40), 3, 1, None),
        ((5, 40), 60, 1, ("b", 100)),
        ((5, 40), 61, 1, None),
        ((5, 40), -40, 1, None),
    ],
)
def test_the_word_at_the_top_names_it(
    offsets: tuple[int, int], top: int, beside: int, caller: tuple[str, int] | None
) -> None:
    """If the innermost function returns from there, and the word lies in a file that is known."""
    stack = UserStack(1, ("a", "b"), offsets, top, beside)
    assert _caller(stack, {"a": LEAF, "b": LEAF}) == caller
    assert _caller(stack, {"b": LEAF}) is None
    assert _caller(stack, {"a": LEAF}) == (caller if caller and caller[0] == "a" else None)


@pytest.mark.parametrize("layers", [(), ("stacks",)])
def test_programs_are_noted_where_stacks_are(tmp_path: Path, layers: tuple[str, ...]) -> None:
    """Paths of files, and first words of command lines; nothing without stacks."""
    seen: list[str | None] = []
    batch = make_batch(
        files=[{"file": 0, "path": b"/lib/x.so"}],
        tasks=[{"task": 0, "pid": 7, "tid": 7, "cmdline": b"/bin/app -v"}],
        operations=[{"id": 1}],
    )
    with TableWriter(tmp_path, meta(layers=layers), CALLS, OPCODES) as writer:
        writer._modules = Mock(see=seen.extend)
        writer.write(batch)
        writer.close(Totals(), COMPLETE, 0, 10)
    assert {path for path in seen if path} == ({"/lib/x.so", "/bin/app"} if layers else set())


def test_stacks_of_the_kernel_begin_with_the_outermost_function(tmp_path: Path) -> None:
    """As flame graphs want them. The recording has the innermost one first; a function without a name is a ?."""
    stacks = (KernelStack(3, ("io_schedule", "", "do_syscall_64")),)
    trace = write_trace(tmp_path, [], spool=meta(layers=("waits",), kernel_stacks=stacks))
    table = trace.table("kernel_stacks").to_pydict()
    assert (table["stack"], table["functions"]) == ([3], ["do_syscall_64;?;io_schedule"])
