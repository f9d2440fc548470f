"""The options of one recording: the user's choices, and what the pipeline made of them.

An option of the command line is a field of :class:`RecordRequest` and a line of the table in ``lo2io/cli/record.py``.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import TYPE_CHECKING, Any

from lo2io.frozen import dataclass
from lo2io.model import CallFilter
from lo2io.model.layers import SlowCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lo2io.capture.meeting import Meeting
    from lo2io.folder import Folder
    from lo2io.model.job import Job

DEFAULT_RING_BYTES = 4 << 20
AUTO, RAW, SINGLE = HOOKS = ("auto", "raw", "single")
"""Where programs see calls; see :class:`RecordRequest`."""


@dataclass(frozen=True, slots=True)
class Converter:
    """The command that makes a trace of a flight recorder's window: a process of its own.

    Both functions get the window's spool and the directory of the trace to make. The command's last line on stderr
    tells the result. After an error, this line begins with ``lo2io: ``, and indented lines after it name a remedy.
    """

    run: Callable[[Path, Path], list[str]]
    """The command to start, program first."""
    show: Callable[[Path, Path], str]
    """The same command as the user would type it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRequest:
    """The user's choices for ``record`` or ``system-wide``, and why one would change each.

    Attributes:
        command: Program and arguments to start and record. Either this or ``pids`` is given.
        pids: Running processes, recorded with all their threads until they end or a signal stops the recording.
        output: Directory of the trace; None: a name made of the recorded program and the time.
        wanted: Groups, calls and tracepoints to record, written as for ``--events``.
        expressions: Filters. Recorded I/O matches all of them.
        user: The user that the command runs as; by default the one who called sudo, else lo2io's user.
        ring_bytes: Per CPU, a power of two. Larger if samples are lost under load, smaller if locked memory is scarce.
        backend: With ``bpf``, programs in the kernel record calls, which costs half as much and leaves neighbours
            alone. With ``perf``, perf events record them. None: ``bpf`` if allowed.
        names: With ``kernel``, these programs name files and paths. With ``proc``, lo2io looks into ``/proc``, which
            shows fewer. None: ``kernel`` if allowed.
        hook: Where these programs see calls. ``raw``: at the two tracepoints that all calls pass, which costs a
            recorded call less. ``single``: at each recorded call's own, which costs all others less. ``auto``: by the
            number of recorded calls.
        layers: Layers between a call and the disk that programs record too, of :data:`~lo2io.model.layers.LAYERS`.
            None: those that are recorded by default.
        stacks: Record the layer ``stacks``, too, and take the stacks of these calls. A stack costs its call some µs.
            None: of calls from 1 ms on, if the layer is recorded.
        opener: ``python-perf`` or ``native``. Native puts samples on CLOCK_MONOTONIC, as other tools' logs are.
        scope: ``system`` opens per CPU and selects when converting. ``inherit`` opens for the tasks alone: that needs
            no rights, but records system calls only and costs each context switch some µs. None: ``system`` if allowed.
        duration_s: End the recording after this time. Not with a command unless ``system``.
        until_last: With ``command``: record until all its descendants have ended, too.
        force: Replace an existing trace.
        keep_spool: Leave the spool beside the trace, and beside each trace of a window.
        convert: Convert when recording has ended.
        system: Record every process of the machine. A ``command`` is optional then and only tells when to end.
        cpus: With ``system``: only these CPUs, written as the kernel writes lists: ``0-3,6``.
        cgroup: With ``system``: only this cgroup and those below it.
        block_records: One of :data:`~lo2io.model.trace.BLOCK_RECORDS`; None: the default for ``system``.
        sched: Record switches of threads, too.
        sample_rate: Converting writes one of this many requests of rings. All are recorded.
        last_s: With ``system``: keep only the newest part, of this many seconds.
        max_bytes: With ``system``: keep only the newest part, so that the spool never exceeds this size.
        trigger: Write the kept part as a trace of its own whenever a request or call fits: ``latency > 100ms``.
        alone: As a rank of a job: record without the other ranks, into ``output`` itself.
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
    hook: str = AUTO
    layers: tuple[str, ...] | None = None
    stacks: SlowCalls | None = None
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
    alone: bool = False

    @property
    def slow_calls(self) -> SlowCalls:
        """The calls whose stacks the layer ``stacks`` takes."""
        return self.stacks or SlowCalls()

    @property
    def is_flight(self) -> bool:
        """True if only the newest part is kept."""
        return self.last_s is not None or self.max_bytes is not None


@dataclass(frozen=True, slots=True)
class RecordOptions(RecordRequest):
    """A request with the pipeline's additions: what to record, and where to.

    Attributes:
        spool: Directory to create. Choose a fast disk that the recorded program does not use.
        events: Full tracepoint names. Each event costs the recorded program about 0.4 µs.
        optional: Those of the events that a kernel may lack: they are left out with a notice.
        newer: Event → the event that replaced it. A kernel has one of the two, so neither counts as missing.
        filters: Event → its filter in the kernel's syntax. If the kernel refuses a filter, all of its event passes.
        filter: The request's expressions as one, for the spool.
        left_out: The calls that programs in the kernel leave out because of the filter.
        scan_period_s: Rest between two looks at open files. A shorter rest names more short-lived files. 0: look only
            at the start and the stop.
        converter: Makes traces of windows; needed with ``last_s`` and ``max_bytes``.
        notices: Notices about these choices. The user gets them first, and the spool keeps them.
        unnamed: Further notices, only if ``/proc`` names files.
        tracefs: Where tracefs is mounted; None: find it.
        folder: The spool's directory, if it exists already; None: ``spool`` is to be made.
        umask: The command's umask; None: lo2io's.
        job: The job of which this recording is a part; None: it is alone.
        meeting: The other ranks of this node, whose commands are recorded with ``command``; None: there are none.
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
    job: Job | None = None
    meeting: Meeting | None = None

    @classmethod
    def made_of(cls, request: RecordRequest, **found: Any) -> RecordOptions:
        """The request's options and the pipeline's additions: the fields of this class."""
        return cls(**{each.name: getattr(request, each.name) for each in fields(RecordRequest)}, **found)
