"""Stacks of programs as rows: each frame with its file and function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.model import Frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lo2io.model import UserStack
    from lo2io.unwind.modules import Module, Modules
    from lo2io.unwind.stacks import ProgramStack


def name_frames(stacks: Sequence[UserStack], unwound: Sequence[ProgramStack], modules: Modules) -> list[Frame]:
    """The frames of all stacks. Files are looked up now: what was removed or replaced since names nothing.

    Memory grows with the number of functions of the files.

    Args:
        stacks: Stacks by frame pointers.
        unwound: Stacks by unwind tables.
        modules: Where files are looked for.
    """
    wanted = [build_id for stack in stacks for build_id in stack.build_ids]
    found = modules.find(wanted + [frame.build_id for stack in unwound for frame in stack.frames])
    try:
        named = [Frame(stack.stack, number, *row) for stack in stacks for number, row in enumerate(_rows(stack, found))]
        for stack in unwound:
            for number, frame in enumerate(stack.frames):
                build_id, offset, file, function = _row(frame.build_id, frame.offset, found)
                function = function or frame.function
                named.append(Frame(stack.stack, number, build_id, offset, file, function, frame.way, stack.end))
        return named
    finally:
        for module in found.values():
            module.close()


def _rows(stack: UserStack, modules: Mapping[str, Module]) -> Iterator[tuple[str, int, str, str]]:
    """Build id, offset, path and function of each frame, the innermost first."""
    for number, (build_id, offset) in enumerate(zip(stack.build_ids, stack.offsets, strict=True)):
        yield _row(build_id, offset, modules)
        if number == 0 and (caller := _caller(stack, modules)):
            yield _row(*caller, modules)


def _row(build_id: str, offset: int, modules: Mapping[str, Module]) -> tuple[str, int, str, str]:
    module = modules.get(build_id)
    if module is None:
        return build_id, offset, "", ""
    return build_id, offset, str(module.path), module.function_at(offset - 1)  # the call precedes its return address


def _caller(stack: UserStack, modules: Mapping[str, Module]) -> tuple[str, int] | None:
    """The caller of a function without a frame of its own, which frame pointers skip. None: not known."""
    first = modules.get(stack.build_ids[0])
    if (
        not stack.top
        or stack.beside >= len(stack.offsets)
        or first is None
        or not first.returns_from_top(stack.offsets[0])
    ):
        return None
    build_id, offset = stack.build_ids[stack.beside], stack.offsets[stack.beside] + stack.top
    module = modules.get(build_id)
    return (
        (build_id, offset) if module is not None and offset > 0 and module.address_of(offset - 1) is not None else None
    )
