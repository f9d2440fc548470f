"""The options of one recording: what the user asked for, and what the pipeline has made of it.

An option of the command line is a field of :class:`RecordRequest` and a line of the table in ``lo2io/cli/record.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from lo2io.model import CallFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lo2io.folder import Folder

DEFAULT_RING_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Converter:
    """The command that makes a trace of a flight recorder's window: a process of its own.

    Both get the window's spool and the directory of the trace to make. The command's last line on stderr says what
    came of it; after an error that line begins with ``lo2io: ``, and indented lines behind it say what helps.
    """

    run: Callable[[Path, Path], list[str]]
    """What is started, program first."""
    show: Callable[[Path, Path], str]
    """The same as the user would type it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRequest:
    """What the user asked ``record`` or ``system-wide`` for, and why one would change it.

    Attributes:
        command: Program and arguments to start and record …
        pids: … or processes that run, recorded with all their threads until they end or a signal stops it.
        output: Directory of the trace; None: one named by what is recorded and by the time.
        wanted: Groups, calls and tracepoints to record, as ``--events`` has them.
        expressions: Filters; what is recorded fits all of them.
        user: Whom the command runs as; by default the one who called sudo, else whoever runs lo2io.
        ring_bytes: Per CPU, a power of two. Larger if samples are lost under load, smaller if locked memory is scarce.
        backend: ``bpf`` has programs in the kernel record the calls, which costs half as much and leaves neighbours
            alone; ``perf`` has perf events do it. None: the former where it is allowed.
        names: ``kernel`` has these programs tell about files and paths, ``proc`` looks into ``/proc``, which sees less.
            None: the former where it is allowed.
        opener: ``python-perf`` or ``native``. Native puts samples on CLOCK_MONOTONIC, as other tools' logs are.
        scope: ``system`` opens per CPU and selects when converting; ``inherit`` opens for the tasks alone, which needs
            no rights but knows system calls only and costs each context switch some µs. None: system if allowed.
        duration_s: End the recording after so long, whatever runs on; not with a command unless ``system``.
        until_last: With ``command``: record until all that it started has ended, too.
        force: Replace a trace that is there.
        keep_spool: Leave the spool beside the trace, and beside each that is written meanwhile.
        convert: Convert when recording has ended.
        system: Record every process of the machine; then ``command`` only says when to end, and there may be none.
        cpus: With ``system``: only these CPUs, as the kernel writes lists of them: ``0-3,6``.
        cgroup: With ``system``: only this cgroup and those below it.
        block_records: One of :data:`~lo2io.model.trace.BLOCK_RECORDS`; None: as ``system`` has it.
        sched: Record switches of threads, too.
        sample_rate: Of the requests of rings, one in so many is to be written when converting; recorded are all.
        last_s: With ``system``: keep only the newest so many seconds …
        max_bytes: … or so much that the spool never takes more than so many bytes …
        trigger: … and write them as a trace of their own whenever a block request or call is slow: ``latency > 100ms``.
    """

    command: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    output: Path | None = None
    wanted: tuple[str, ...] = ()
    expressions: tuple[str, ...] = ()
    user: str | None = None
    ring_bytes: int = DEFAULT_RING_BYTES
    backend: str | None = None
    names: str | None = None
    opener: str | None = None
    scope: str | None = None
    duration_s: float | None = None
    until_last: bool = False
    force: bool = False
    keep_spool: bool = False
    convert: bool = True
    system: bool = False
    cpus: str | None = None
    cgroup: str | None = None
    block_records: str | None = None
    sched: bool = False
    sample_rate: int = 1
    last_s: float | None = None
    max_bytes: int | None = None
    trigger: str | None = None

    @property
    def is_flight(self) -> bool:
        """Only the newest part is kept."""
        return self.last_s is not None or self.max_bytes is not None


@dataclass(frozen=True, slots=True)
class RecordOptions(RecordRequest):
    """A request, and what the pipeline has made of it: what is recorded, and where to.

    Attributes:
        spool: Directory to create. Choose a disk that the recorded program does not use, and that is fast.
        events: Full tracepoint names. Fewer cost less; each costs the recorded program about 0.4 µs when it happens.
        optional: Of these, the ones a kernel may lack; they are left out with a notice.
        newer: Event to the one that took its place: a kernel has one of the two, and lacks nothing.
        filters: Event to what the kernel lets pass of it, in the kernel's syntax; where it refuses, all of it passes.
        filter: The request's expressions as one, for the spool.
        left_out: Which calls the programs in the kernel leave out by it.
        scan_period_s: Rest between two looks at open files; shorter names more short-lived ones. 0: none but at the
            start and the stop.
        converter: Makes traces of windows; needed with ``last_s`` and ``max_bytes``.
        notices: What the user must know of this choice; told first, and kept in the spool …
        unnamed: … and what only if files are named by ``/proc``.
        tracefs: Where tracefs is mounted; None: find it.
        folder: The spool's directory if it is made already; None: ``spool`` is to be made.
        umask: The command's; None: as lo2io's is.
    """

    spool: Path
    events: tuple[str, ...]
    optional: frozenset[str] = frozenset()
    newer: Mapping[str, str] = field(default_factory=dict)
    filters: Mapping[str, str] = field(default_factory=dict)
    filter: str = ""
    left_out: CallFilter = field(default_factory=CallFilter)
    scan_period_s: float = 0.1
    converter: Converter | None = None
    notices: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()
    tracefs: Path | None = None
    folder: Folder | None = None
    umask: int | None = None

    @classmethod
    def made_of(cls, request: RecordRequest, **found: Any) -> RecordOptions:
        """All that was asked for, and what was found for it: the fields of this class."""
        return cls(**{each.name: getattr(request, each.name) for each in fields(RecordRequest)}, **found)
