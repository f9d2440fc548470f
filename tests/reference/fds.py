"""Open file descriptions, handles and fd tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lo2io.model import UNKNOWN_U32

if TYPE_CHECKING:
    from collections.abc import Callable

    from reference.pending import Pending
    from reference.ring_objects import Ring
    from reference.tasks import Task

LONG_AGO = -(10**30)
O_APPEND = 0o2000
O_CLOEXEC = 0o2000000
S_IFMT, S_IFIFO, S_IFSOCK, S_IFCHR = 0o170000, 0o010000, 0o140000, 0o020000
OPENED, DUPLICATED, INHERITED, BEFORE, UNSEEN, BY_RING = range(6)

File = tuple[int, int, int, int, bytes]
"""mode, device, inode, mount, path."""


@dataclass(eq=False)
class Description:
    """An open file description: the kernel's struct file."""

    flags: int | None
    """Open flags; None: unknown."""
    append: bool | None = None
    position: int | None = None
    movable: bool = True
    """False for a pipe or a socket, or if somebody outside of the trace moves it: the position stays unknown."""
    name: File | None = None
    name_source: int = 0
    moving: list[Pending] = field(default_factory=list)
    last_moved: int = LONG_AGO
    identity: tuple[int, int, int, int] | None = None
    """Address, device, inode and generation, once a BPF program has told them."""
    first_use: int | None = None
    """Time of the first call on it that was seen, or of its opening."""
    cached: str = "unknown"
    """Where reads find their data: ``reference.cache``."""
    ring: Ring | None = None
    ring_facts: list[dict[str, Any]] = field(default_factory=list)

    def move_to(self, position: int | None) -> None:
        """Set the position, unless it can never be known."""
        self.position = position if self.movable else None


@dataclass(eq=False)
class Handle:
    """One fd of one process, from its start to its end."""

    process: int
    task: int
    fd: int
    origin: int
    description: Description
    parent: Handle | None = None
    cloexec: bool = False
    open_flags: int | None = None
    open_time: int | None = None
    close_time: int | None = None
    ended: bool = False
    wanted: bool = False
    """A call met it."""
    used: bool = False
    """A row names it."""
    name: File | None = None
    name_source: int = 0

    def end(self, time: int | None) -> None:
        """The handle has ended; it keeps its description's name at that time."""
        if not self.ended:
            self.ended = True
            self.close_time = time
            self.name, self.name_source = self.description.name, self.description.name_source


@dataclass(eq=False)
class Slot:
    """A place of a table: a handle, or (``own`` false) a copy of a parent's handle that was not used here yet."""

    handle: Handle
    own: bool
    since: int
    cloexec: bool

    @property
    def description(self) -> Description:
        """The description of the fd."""
        return self.handle.description


@dataclass(eq=False)
class End:
    """A call that may end what a slot holds, or any slot (``fd`` None), from its entry until it is known to be over."""

    op: Pending | None
    fd: int | None
    begin: int
    blind: bool
    """It may also end what comes into the slot later."""
    until: int | None = None
    spent: bool = False
    """A close whose number was given again: it has freed the slot."""
    tainted: bool = False
    """A blind end came during this close, and may have freed the slot in its place: then it is not spent."""

    def is_over(self, begin: int) -> bool:
        """True if the call was over before that time."""
        return self.until is not None and self.until <= begin


class Tables:
    """Makes all handles and keeps them."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.handles: list[Handle] = []
        self.clock = clock

    def make(self, task: Task, fd: int, origin: int, description: Description, time: int | None) -> Handle:
        """A new handle."""
        handle = Handle(task.process.index, task.index, fd, origin, description, open_time=time)
        handle.open_flags = description.flags
        handle.wanted = origin in (OPENED, DUPLICATED) and task.recorded
        if description.first_use is None and origin != BEFORE:
            description.first_use = self.clock()
        self.handles.append(handle)
        return handle

    def use(self, slot: Slot, task: Task, fd: int) -> Handle:
        """The slot's own handle; a copy gets its own now."""
        if not slot.own:
            parent = slot.handle
            slot.handle = self.make(task, fd, INHERITED, parent.description, None)
            slot.handle.parent, slot.handle.cloexec, slot.own = parent, slot.cloexec, True
            slot.handle.open_flags = parent.open_flags
        if slot.description.first_use is None:
            slot.description.first_use = self.clock()
        return slot.handle


class Table:
    """The fd table of one or more threads."""

    def __init__(self, since: int) -> None:
        self.slots: dict[int, Slot] = {}
        self.changed: dict[int, int] = {}
        self.since = since
        self.address = 0
        """The table's address in the kernel, once a fact has told it."""
        self.users = 0
        self.ends: list[End] = []

    def copy(self, begin: int | None, now: int) -> Table:
        """A copy by fork, unshare or exec. The copy's files have been open as long as the original's.

        Args:
            begin: Of the call that copies; None: not known.
            now: When the copy is seen. Slots that others may have changed since the start are unknown.
        """
        shared = self.users > 1
        if shared and (begin is None or any(end.fd is None and not end.is_over(begin) for end in self.ends)):
            return Table(now)
        table = Table(self.since)
        table.ends = [end for end in self.ends if end.until is not None and end.fd is not None]
        table.changed = dict(self.changed)
        for fd in {*self.slots, *self.changed, *(end.fd for end in self.ends if end.fd is not None)}:
            slot = self.slots.get(fd)
            since = self.last_change(fd) if slot is None else slot.since
            if shared and begin is not None and (since > begin or not self.is_steady(fd, begin)):
                table.changed[fd] = now
            elif slot is not None:
                table.slots[fd] = Slot(slot.handle, False, slot.since, slot.cloexec)
        return table

    def is_steady(self, fd: int, begin: int, op: Pending | None = None) -> bool:
        """True if no other call can have ended the slot's file since ``begin``."""
        return self._all_over(self.ends, fd, begin, op)

    def is_safe(self, fd: int, begin: int, op: Pending | None) -> bool:
        """True if no other call can have ended a file that came into the slot since ``begin``."""
        return self._all_over([end for end in self.ends if end.blind or end.tainted], fd, begin, op)

    @staticmethod
    def _all_over(ends: list[End], fd: int, begin: int, op: Pending | None) -> bool:
        own = [end for end in ends if end.op is op and op is not None and end.fd == fd and not end.tainted]
        return all(end.is_over(begin) for end in ends if end.fd in {fd, None} and end not in own and not end.spent)

    def put(self, fd: int, handle: Handle, time: int) -> None:
        """Put a handle into the slot; the caller has ended the old one."""
        self.slots[fd] = Slot(handle, True, time, handle.cloexec)
        self.changed[fd] = time

    def forget(self, time: int) -> None:
        """Make the slot unknown: it may have changed until now."""
        for slot in self.slots.values():
            if slot.own:
                slot.handle.end(None)
        self.slots.clear()
        self.changed.clear()
        self.since = time

    def find(self, fd: int, handle: Handle) -> None:
        """A handle whose opening was not seen has been here since the slot last changed."""
        self.slots[fd] = Slot(handle, True, self.last_change(fd), handle.cloexec)

    def take(self, fd: int, time: int) -> Slot | None:
        """Free a slot."""
        slot = self.slots.pop(fd, None)
        if slot is not None:
            self.changed[fd] = time
        return slot

    def last_change(self, fd: int) -> int:
        """The time when the slot was last filled or freed."""
        return self.changed.get(fd, self.since)


def learn_flags(slot: Slot, flags: int | None) -> None:
    """Take over the flags of a description whose opening was not seen."""
    description = slot.description
    if description.flags is not None or flags is None:
        return
    description.flags = flags
    description.append = bool(flags & O_APPEND)
    slot.cloexec = bool(flags & O_CLOEXEC)
    if slot.own:
        slot.handle.open_flags, slot.handle.cloexec = flags, slot.cloexec


def compare_position(description: Description, mode: int, position: int | None, begin: int) -> None:
    """Take over, or refute, the position in a fact about a description at rest since ``begin``."""
    if mode & S_IFMT in (S_IFIFO, S_IFSOCK, S_IFCHR):
        description.movable = False
        description.move_to(None)
    elif position is not None and not description.moving and description.last_moved <= begin:
        if description.position is None:
            description.move_to(position)
        elif description.position != position:
            description.movable = False
            description.move_to(None)


def new_description(flags: int | None) -> Description:
    """A description just opened: at position 0, if its flags show that it is a file's."""
    return Description(flags) if flags is None else Description(flags, bool(flags & O_APPEND), 0)


def file_row(handle: Handle) -> File | None:
    """The name of a handle, also of an open one."""
    return handle.name if handle.ended else handle.description.name


NO_FILE: File = (0, 0, 0, UNKNOWN_U32, b"")
