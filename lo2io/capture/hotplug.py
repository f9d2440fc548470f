"""CPUs that go and come during a recording.

The events of a CPU that goes offline stay as they are. They count no more, can be read, and stay dead when the CPU
comes back (kernel/events/core.c: perf_event_exit_cpu removes them from the CPU's context). So a CPU that comes, or
comes back, gets new events and a new buffer, opened as the others were. The buffer's bytes are appended to the CPU's
file.

The kernel tells when a CPU goes and when it comes, with one exception: while the machine falls asleep, CPUs go without
a message (kernel/cpu.c: freeze_secondary_cpus). The kernel sends only the message of their return
(thaw_secondary_cpus). Somebody may also have made the kernel send that message (/sys/devices/system/cpu/cpuN/uevent).
So the events of such a CPU may be alive, and are switched off before new ones are opened.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lo2io.errors import CaptureError, Lo2ioError
from lo2io.frozen import dataclass
from lo2io.kernel import sysfs
from lo2io.model import Absence
from lo2io.model.notices import Notice

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from lo2io.capture.events.opened import OpenEvents
    from lo2io.capture.session import Session
    from lo2io.model import Cpu
    from lo2io.spool.writer import SpoolWriter

_NETLINK_KOBJECT_UEVENT = 15
"""include/uapi/linux/netlink.h"""
_KERNELS_GROUP = 1
_ABOUT_CPU = re.compile(rb"(offline|online)@/devices/system/cpu/cpu(\d+)\0")
_MESSAGE_BYTES = 8 << 10
_EMPTY_S = 2.0
"""The longest wait until a CPU's old buffer is empty."""


@dataclass(frozen=True, slots=True)
class Moves:
    """CPUs that went offline or came online, as messages tell. A CPU may have done both."""

    gone: frozenset[int] = frozenset()
    come: frozenset[int] = frozenset()


class Messages(Protocol):
    """Tells which CPUs have moved."""

    def read(self) -> Moves:
        """The CPUs that moved since the last call."""
        ...

    def close(self) -> None:
        """End. Nobody calls the object after this."""
        ...


class Uevents:
    """The kernel's own messages about CPUs. Another network namespace gets none of them."""

    def __init__(self) -> None:
        import socket  # noqa: PLC0415 - the command runs by now

        self._socket: socket.socket | None = None
        with contextlib.suppress(OSError):
            made = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, _NETLINK_KOBJECT_UEVENT
            )
            try:
                made.bind((0, _KERNELS_GROUP))
            except OSError:
                made.close()
                raise
            self._socket = made

    def read(self) -> Moves:
        """See :class:`Messages`."""
        gone: set[int] = set()
        come: set[int] = set()
        if self._socket is None:
            return Moves()
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    message = self._socket.recv(_MESSAGE_BYTES)
                except BlockingIOError:
                    raise
                except OSError:  # ENOBUFS: messages were lost, but the list of CPUs still tells
                    break
                if match := _ABOUT_CPU.match(message):
                    (gone if match[1] == b"offline" else come).add(int(match[2]))
        return Moves(frozenset(gone), frozenset(come))

    def close(self) -> None:
        """See :class:`Messages`."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Hotplug:
    """Looks after the CPUs.

    Args:
        session: The recording.
        writer: Its spool.
        note: Takes notices.
        reopen: Opens the events of one CPU like those of the session; None: this is impossible.
        takes_new: False: CPUs can only come back.
        is_wanted: Tells whether a CPU is to be sampled.
        rescan: Makes the scanner look at all tasks that exist at the given time, CLOCK_MONOTONIC.
        messages: By default :class:`Uevents`.
        root: The folder above ``sys``.
    """

    def __init__(
        self,
        session: Session,
        writer: SpoolWriter,
        note: Callable[[Notice], None],
        *,
        reopen: Callable[[int], OpenEvents] | None,
        is_wanted: Callable[[int], bool],
        rescan: Callable[[int], None],
        takes_new: bool = True,
        messages: Messages | None = None,
        root: Path = Path("/"),
    ) -> None:
        self.new_cpus: tuple[Cpu, ...] = ()
        """CPUs that were unknown at the start, in the order of their buffers."""
        self._session = session
        self._writer = writer
        self._reopen = reopen
        self._takes_new = takes_new
        self._is_wanted = is_wanted
        self._rescan = rescan
        self._note = note
        self._messages = Uevents() if messages is None else messages
        self._root = root
        self._live = set(session.opened.cpus)
        self._refused: set[int] = set()
        self._awaited: set[int] = set()
        """CPUs that were seen to come before the kernel's message said so."""
        self._lock = threading.Lock()
        self._looked_ns = session.start_ns
        """The last look, on the spool's clock. A CPU that comes may have come right after it."""

    def look(self) -> None:
        """Handle the CPUs that went or came since the last look. One thread looks at a time."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        now, online = self._now_ns(), set(sysfs.read_online_cpus(self._root))
        moves = self._messages.read()
        slept = (moves.come - moves.gone - self._awaited) & self._live & online if self._reopen else frozenset()
        gone = moves.gone | slept
        self._awaited -= moves.come
        self._refused &= online
        self._session.absences = tuple(
            each if each.cpu in online or each.end_ns is not None else replace(each, end_ns=now)
            for each in self._session.absences
        )
        for cpu in gone - online - self._live:  # it came and went between two looks
            self._note_absence(cpu, now)
        for cpu in sorted(self._live & ((self._live - online) | gone)):
            self._live.discard(cpu)
            self._awaited.discard(cpu)
            if cpu in slept:
                self._session.opened.switch_off(cpu)
            self._note(Notice(f"CPU {cpu} went offline: its records so far are kept"))
        for cpu in sorted(online - self._live - self._refused):
            if self._session.is_draining:
                self._add(cpu)
            else:  # the recording is over, or will be at once
                self._refused.add(cpu)
                self._note_absence(cpu, None)
            if cpu not in moves.come:
                self._awaited.add(cpu)
        self._looked_ns = now

    def close(self) -> None:
        """End with the recording."""
        self._messages.close()

    def _add(self, cpu: int) -> None:
        if self._reopen is None:
            if cpu in self._session.opened.cpus:  # the events of tasks go on there by themselves
                self._live.add(cpu)
            else:
                self._refuse(cpu, "events of tasks are recorded on the CPUs that were there at the start")
            return
        if not self._takes_new and cpu not in self._session.opened.cpus:
            self._refuse(cpu, "a recording that keeps only its newest part cannot add CPUs")
            return
        try:
            extra = self._reopen(cpu)
        except Lo2ioError as error:
            self._refuse(cpu, str(error))
            return
        if not self._empty_rings():
            self._give_back(extra)
            self._refuse(cpu, "the bytes of its former buffer could not be written")
            return
        opened = self._session.opened
        if cpu not in opened.cpus:
            self.new_cpus += tuple(each for each in sysfs.read_cpus(self._root) if each.cpu == cpu)
        try:
            self._writer.add_ring(cpu)
        except OSError as error:
            self._give_back(extra)
            self._refuse(cpu, error.strerror or str(error))
            return
        wanted = self._is_wanted(cpu)
        opened.add(extra, sampled=wanted)
        self._session.watch(extra.leaders[0], len(opened.rings) - 1)
        lacking = self._add_to_kernel(cpu) if wanted else ""
        extra.switch_leaders(on=True)
        if wanted:
            extra.switch_tracepoints(on=True)
        # Programs run there from the start and count what they cannot write. perf's events were not open.
        self._note_absence(cpu, None if lacking else self._now_ns())
        self._live.add(cpu)
        self._rescan(time.monotonic_ns())
        self._note(Notice(f"CPU {cpu} came online: it is recorded from now on{lacking}"))

    def _add_to_kernel(self, cpu: int) -> str:
        """Give a new CPU buffers for the programs' output. If that fails, return a text to add to the notice."""
        kernel = self._session.opened.kernel
        if kernel is None:
            return ""
        try:
            if cpu in kernel.cpus:  # a CPU that came back keeps its former buffer
                kernel.count_again(cpu)
                return ""
            kernel.add_cpu(cpu)
        except (OSError, CaptureError) as error:
            return f", but some of its records are lost: {error}"
        return ""

    def _empty_rings(self) -> bool:
        """True if all bytes in the buffers of offline CPUs are written: new bytes are appended to these."""
        opened = self._session.opened
        dead = [ring for ring, cpu in zip(opened.rings, opened.ring_cpus, strict=True) if cpu not in self._live]
        end = time.monotonic() + _EMPTY_S
        while any(ring.fill_bytes for ring in dead):
            if time.monotonic() > end:
                return False
            self._session.drain_now()
            time.sleep(0.005)
        return True

    def _refuse(self, cpu: int, why: str) -> None:
        self._refused.add(cpu)
        self._note_absence(cpu, None)
        self._note(Notice(f"CPU {cpu} came online and is not recorded: {why}"))

    def _note_absence(self, cpu: int, end_ns: int | None) -> None:
        """Note that a CPU's events were not all recorded or counted: from the last look on, and up to this time."""
        self._session.absences += (Absence(cpu, self._looked_ns, end_ns),)

    def _now_ns(self) -> int:
        return self._session.to_spool_clock(time.monotonic_ns())

    @staticmethod
    def _give_back(extra: OpenEvents) -> None:
        extra.unmap()
        extra.close()
