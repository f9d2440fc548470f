"""The stacks of slow calls: a number for each, by whichever way tells most.

In: what the engine hands out in the order of time (``lo2_told``), and the stacks that the kernel took by frame
pointers. Out: the number of each call's stack, and the frames of all stacks. Equal stacks have one number.
"""

from __future__ import annotations

import contextlib
import struct
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from lo2io.native._lib import lib
from lo2io.unwind.modules import Module, damage, find_file
from lo2io.unwind.perf_maps import PerfMap
from lo2io.unwind.spaces import Spaces
from lo2io.unwind.trampolines import PREFIX, Trampoline, trampoline_of
from lo2io.unwind.walk import Copied, End, Step, Way, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lo2io.model import ClockSync, Columns, UserStack
    from lo2io.unwind.spaces import CodeAt, Space
    from lo2io.unwind.tables import Rules

_TOLD: Final = struct.Struct("<IHHII")
_COPY: Final = struct.Struct(f"<4I{lib.LO2_STACK_REGISTERS}Q")
_MAX_OPEN: Final = 64
"""Files that are open at one time."""
_MAX_RULES: Final = 1 << 16
"""Places of code whose rules are kept."""
_MAX_MAPS: Final = 64
"""Maps of made code that are kept."""
_MAX_FRAMES: Final = 1 << 22
"""Frames of all different stacks that are kept. Calls with further ones have a stack by frame pointers, or none."""


class FrameAt(NamedTuple):
    """A frame: a place in a file."""

    build_id: str
    """Of the file; empty: not known, or the code is in no file."""
    offset: int
    """Of the return address in the file; without a file: the address."""
    way: Way
    function: str = ""
    """Of code that is in no file."""


class ProgramStack(NamedTuple):
    """The functions that led to a call, the innermost first."""

    stack: int
    frames: tuple[FrameAt, ...]
    end: End


class _Made(NamedTuple):
    """The process in which code lies that is in no file."""

    pid: int
    uid: int
    born_ns: int | None


class _Found(NamedTuple):
    """As :class:`FrameAt`, before names are looked up."""

    build_id: str
    offset: int
    way: Way
    made: _Made | None = None


class Stacks:
    """Numbers the stacks of one recording.

    Args:
        by_frame_pointers: The stacks that the kernel took.
        syncs: Readings of the spool's clock together with CLOCK_REALTIME.
    """

    def __init__(self, by_frame_pointers: Sequence[UserStack], syncs: Sequence[ClockSync] = ()) -> None:
        self._by_frame_pointers = {stack.stack: stack for stack in by_frame_pointers}
        self._first = 1 + max(self._by_frame_pointers, default=-1)
        self._numbers: dict[tuple[tuple[_Found, ...], End], int] = {}
        self._frames: dict[_Found, _Found] = {}
        """Each different frame, once."""
        self._nr_frames = 0
        self._used: set[int] = set()
        self._spaces = Spaces()
        self._files = _Files()
        self._maps: dict[_Made, PerfMap] = {}
        """What processes had written when a Python function of theirs was met first."""
        self._real_ns = syncs[0].realtime_ns - syncs[0].time_ns if syncs else None
        self.paths: dict[str, None] = {}
        """Files of code in which frames lie."""

    def take(self, told: bytes, rows: Columns) -> None:
        """Read what belongs to a batch, and give its calls the numbers of their stacks.

        Args:
            told: ``lo2_told``, one after the other.
            rows: The batch's ``call_stacks``, whose column ``stack`` is set.
        """
        numbers, at = rows["stack"], 0
        while at + _TOLD.size <= len(told):
            size, kind, _, row, _ = _TOLD.unpack_from(told, at)
            body = told[at + _TOLD.size : at + _TOLD.size + size]
            if kind == lib.LO2_TOLD_RECORD:
                self._spaces.take(body)
            else:
                numbers[row] = self._number(body, int(numbers[row]))
            at += _TOLD.size + (size + 7 & ~7)
        self._used.update(numbers.tolist())

    def _number(self, body: bytes, taken: int) -> int:
        """The number of a copied stack. ``taken``: the one that the kernel took of the same call."""
        pid, uid, _, _, *registers = _COPY.unpack_from(body)
        space = self._spaces.of(pid)
        if space is None:
            return taken
        made = _Made(pid, uid, space.born_ns)
        steps, end = walk(Copied(registers, body[_COPY.size :]), space, partial(self._rules_at, made))
        other = self._by_frame_pointers.get(taken)
        if len(steps) < 2 and other:  # noqa: PLR2004 - the tables have told nothing
            return taken
        frames = [_frame(step, made) for step in steps]
        if end is not End.WHOLE and other and (rest := _beyond(frames, other)):
            frames, end = frames + [_pointed(place, space, made) for place in rest], End.UNKNOWN
        if not frames:
            return taken
        for step in steps:
            if step.code.build_id:
                self.paths[step.code.path] = None
        key = tuple(frames), end
        if key not in self._numbers:
            self._nr_frames += len(frames)
            if self._nr_frames > _MAX_FRAMES:
                return taken
            once = tuple(self._frames.setdefault(frame, frame) for frame in frames)
            self._numbers[once, end] = self._first + len(self._numbers)
        return self._numbers[key]

    def _rules_at(self, made: _Made, code: CodeAt, address: int, called: CodeAt | None) -> Rules | None:
        """How the caller is found of a function of a file, or of Python."""
        if not code.is_made:
            return self._files.rules_at(code, address)
        trampoline = self._files.trampoline(called) if called else None
        if trampoline is None:
            return None
        begin, name = self._map_of(made, self._maps).at(address)
        # The call returns after this address.
        return trampoline.rules if name.startswith(PREFIX) and address + 1 == begin + trampoline.back else None

    def _map_of(self, made: _Made, maps: dict[_Made, PerfMap]) -> PerfMap:
        if made not in maps:
            if len(maps) >= _MAX_MAPS:
                maps.clear()
            maps[made] = PerfMap(made.pid, made.uid, self._born_ns(made))
        return maps[made]

    def unwound(self) -> Iterator[ProgramStack]:
        """The stacks that were unwound. Names of code that programs made are looked up now."""
        maps: dict[_Made, PerfMap] = {}
        for (frames, end), number in self._numbers.items():
            named = []
            for build_id, offset, way, made in frames:
                function = ""
                if made:
                    _, function = self._map_of(made, maps).at(offset - 1)
                named.append(FrameAt(build_id, offset, way, function))
            yield ProgramStack(number, tuple(named), end)

    def close(self) -> None:
        """Close the files of code."""
        self._files.close()

    def by_frame_pointers(self) -> list[UserStack]:
        """The stacks by frame pointers that calls have."""
        return [stack for number, stack in self._by_frame_pointers.items() if number in self._used]

    def _born_ns(self, made: _Made) -> int:
        return 0 if made.born_ns is None or self._real_ns is None else made.born_ns + self._real_ns


def _frame(step: Step, made: _Made) -> _Found:
    code = step.code
    if code.build_id:
        return _Found(code.build_id, code.offset + step.address - code.begin, step.way)
    return _Found("", step.address, step.way, made if code.is_made else None)


def _pointed(place: tuple[str, int], space: Space, made: _Made) -> _Found:
    """A frame by frame pointers. Without a build id, its place is its address."""
    build_id, offset = place
    code = None if build_id else space.at(offset - 1)
    return _Found(build_id, offset, Way.FRAME_POINTERS, made if code and code.is_made else None)


def _beyond(frames: Sequence[_Found], other: UserStack) -> list[tuple[str, int]]:
    """Build id and offset of the frames that frame pointers tell beyond those that were unwound.

    Empty: the two stacks are not the same. Frame pointers may lack the innermost caller, so the others must be equal
    one by one.
    """
    places = list(zip(other.build_ids, other.offsets, strict=True))
    for missing in (0, 1):
        unwound = [frame[:2] for frame in frames[1 + missing :]]
        if unwound and unwound == places[1 : 1 + len(unwound)] and len(places) > 1 + len(unwound):
            return places[1 + len(unwound) :]
    return []


class _Files:
    """The files of code, opened by what the records tell, and the newest ones kept open."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[str, str], Module | None] = OrderedDict()
        self._rules: dict[tuple[str, int], Rules | None] = {}
        self._trampolines: dict[tuple[str, str], Trampoline | None] = {}

    def rules_at(self, code: CodeAt, address: int) -> Rules | None:
        """What the unwind tables of the code's file say of an address; None: nothing, or there is no such file."""
        if not code.build_id:
            return None
        place = code.build_id, code.offset + address - code.begin
        if place not in self._rules:
            if len(self._rules) >= _MAX_RULES:
                self._rules.clear()
            self._rules[place] = self._read(code, place[1])
        return self._rules[place]

    def _read(self, code: CodeAt, offset: int) -> Rules | None:
        module = self._module(code)
        if module is None:
            return None
        with contextlib.suppress(*damage()):
            return module.rules_at(offset)
        return None

    def trampoline(self, code: CodeAt) -> Trampoline | None:
        """What the file of a piece of code copies for each Python function; None: nothing, or there is no such file."""
        place = code.build_id, code.path
        if place not in self._trampolines:
            if len(self._trampolines) >= _MAX_RULES:
                self._trampolines.clear()
            module = self._module(code)
            self._trampolines[place] = trampoline_of(module) if module else None
        return self._trampolines[place]

    def _module(self, code: CodeAt) -> Module | None:
        key = code.build_id, code.path
        if key not in self._open:
            self._open[key] = find_file(*key) if code.build_id else None
            if len(self._open) > _MAX_OPEN:
                _, oldest = self._open.popitem(last=False)
                if oldest:
                    oldest.close()
        self._open.move_to_end(key)
        return self._open[key]

    def close(self) -> None:
        """Close all files."""
        for module in self._open.values():
            if module:
                module.close()
        self._open.clear()
