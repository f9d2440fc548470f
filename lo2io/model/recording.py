"""The content of ``spool.json``: everything about a recording besides its samples."""

from __future__ import annotations

from typing import NamedTuple

from lo2io.frozen import dataclass
from lo2io.model.job import Job  # noqa: TC001 - spool/format.py reads the types of the members
from lo2io.model.layers import SLOW_FROM_NS, any_among_events


@dataclass(frozen=True, slots=True)
class EventCounts:
    """The kernel's counts for one event, by CPU in the order of the spool's CPUs."""

    name: str
    counts: tuple[int, ...]
    lost: tuple[int, ...] | None
    """Lost samples; None: this kernel does not count them (before 6.0)."""
    slack: tuple[int, ...] | None = None
    """The true count may be larger by this much: it was read while the event went on. None: it is exact."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of a command from its start to its end, with the children that it waited for: wait4(2), getrusage(2)."""

    wall_ns: int
    """From the command's start to its end."""
    user_ns: int
    system_ns: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    minor_faults: int | None = None
    """None: of a lo2io that did not count them."""


@dataclass(frozen=True, slots=True)
class Account:
    """Counts of the kernel over a part of the recording, to compare with the captured I/O."""

    source: str
    """The file with the numbers: ``diskstats``, ``proc_io`` or ``cgroup_io``."""
    subject: str
    """The device's name, the process' id, or the cgroup's path."""
    device: int | None
    """Kernel ``dev_t`` of the device; None: all devices."""
    names: tuple[str, ...]
    """The meaning of each number: ``reads``, ``read_bytes`` …"""
    values: tuple[int, ...]
    """Increase from ``begin_ns`` to ``end_ns``."""
    begin_ns: int
    """On the spool's clock."""
    end_ns: int
    begin_slack_ns: int = 0
    """Duration of the first look, from ``begin_ns`` on. The account may or may not have what happened during it."""
    end_slack_ns: int = 0
    """Duration of the last look, from ``end_ns`` on."""


@dataclass(frozen=True, slots=True)
class ClockSync:
    """One reading of three clocks, at most ``error_ns`` apart."""

    time_ns: int
    """The spool's clock, which is that of the perf samples."""
    monotonic_ns: int
    realtime_ns: int
    error_ns: int


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of ``/proc/PID/mountinfo``."""

    id: int
    device: int
    """``st_dev`` from stat(2)."""
    mount_point: str
    fs_type: str
    source: str


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """One disk or partition."""

    device: int
    """Kernel ``dev_t`` in tracepoints: major << 20 | minor."""
    name: str
    """For example ``vda``."""
    scheduler: str | None
    rotational: bool | None
    size_bytes: int | None
    model: str | None = None
    disk: int | None = None
    """For a partition: kernel ``dev_t`` of its disk."""
    start_sector: int | None = None
    """For a partition: its first sector on the disk, in units of 512 bytes."""
    image: str | None = None
    """For a loop device: path of the file or device that it shows."""
    image_direct: bool | None = None
    """For a loop device: it reads and writes its image past the page cache."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """The place of one logical CPU in the machine."""

    cpu: int
    core: int
    package: int


@dataclass(frozen=True, slots=True)
class Absence:
    """A time in which a CPU may have been online without being recorded."""

    cpu: int
    begin_ns: int
    """On the spool's clock: the last moment at which lo2io knew the CPU to be recorded or offline."""
    end_ns: int | None
    """When the CPU's recording began, or the CPU was seen offline. None: the CPU was not recorded to the end."""


class Misses(NamedTuple):
    """Numbers of missing calls and records that no event counts: members of :class:`SpoolMeta` with the same names."""

    nr_left_out: int = 0
    missed_runs: int = 0
    facts_lost: int = 0
    foreign_calls: int = 0
    tasks_lost: int = 0


NO_MISSES = Misses()


@dataclass(frozen=True, slots=True)
class KernelStack:
    """The kernel's functions in which a thread slept."""

    stack: int
    """The number by which stretches without a CPU name the stack."""
    functions: tuple[str, ...]
    """The innermost first; empty texts stand for functions whose names are not known."""


@dataclass(frozen=True, slots=True)
class UserStack:
    """Where a program made a slow call, by frame pointers. Frames are the innermost first."""

    stack: int
    """The number by which calls name the stack."""
    build_ids: tuple[str, ...]
    """Of each frame's file, 40 hexadecimal digits; empty: not known."""
    offsets: tuple[int, ...]
    """Of each frame's address in its file; the address itself, where the file is not known."""
    top: int = 0
    """The word at the stack's end less the address of the frame ``beside``; 0: not known."""
    beside: int = 0


@dataclass(frozen=True, slots=True)
class SpoolMeta:
    """``spool.json``: everything that converting needs besides the buffers' files.

    ``events[i]`` is the engine's event index i. ``formats`` has the text of its ``format`` file, byte for byte.
    """

    lo2io_version: str
    complete: bool
    mode: str
    """``process`` or ``system``."""
    command: tuple[str, ...]
    roots: tuple[int, ...]
    """Pids of the processes that are recorded with their descendants; empty in system mode."""
    recorder_pid: int
    hostname: str
    kernel: str
    machine: str
    cpus: tuple[Cpu, ...]
    """Every CPU with a buffer, in the order of the buffers' files."""
    events: tuple[str, ...]
    formats: tuple[str, ...]
    header_page: str
    clock: str
    """``perf`` (the kernel's local clock) or ``monotonic_raw`` …"""
    syncs: tuple[ClockSync, ...]
    start_ns: int
    """The moment on the spool's clock at which tracepoints were enabled."""
    stop_ns: int | None
    """The moment at which they were disabled. None: the recording did not stop in good order."""
    ring_bytes: int
    ring_bytes_wanted: int
    opener: str
    """``python-perf`` or ``native``."""
    scope: str
    """``system`` (by CPU, descendants chosen when converting) or ``inherit`` (by task)."""
    counts: tuple[EventCounts, ...]
    """Empty unless ``complete``."""
    mounts: tuple[Mount, ...]
    devices: tuple[BlockDevice, ...]
    exit_code: int | None = None
    filters: tuple[tuple[str, ...], ...] = ()
    """Pairs of an event and the filter that the kernel applied to it. Dropped samples are not counted either."""
    notices: tuple[str, ...] = ()
    """Messages that the user saw while recording: buffers halved, disk full, events that this kernel lacks …"""
    lacking: tuple[str, ...] = ()
    """Requested events that this kernel does not have."""
    filter: str = ""
    """The user's filter. Converting applies all of it; ``filters`` has the kernel's part."""
    cgroup: str = ""
    """Only this cgroup and those below it were recorded: its path in its hierarchy."""
    chosen_cpus: tuple[int, ...] = ()
    """Only these CPUs were recorded; empty: all CPUs."""
    segments: tuple[str, ...] = ()
    """Folders of the spool with the buffers' files, in order; empty: these files are in the spool itself."""
    recording_start_ns: int | None = None
    """The recording's beginning, if the part before ``start_ns`` was not kept. None: ``start_ns`` is the beginning."""
    accounts: tuple[Account, ...] = ()
    usage: Usage | None = None
    """Usage of the command. None: there was no command, or it goes on, or the spool has only a part of its life."""
    own_pids: tuple[int, ...] = ()
    """Further processes of lo2io beside the recorder: they wrote traces during the recording."""
    sample_rate: int = 1
    """One of this many requests of rings is written, chosen by its number; 1: all."""
    backend: str = "perf"
    """The recorder of system calls: ``perf``, samples in the buffers, or ``bpf``, lo2io's programs in the kernel."""
    hook: str = ""
    """Where these programs saw calls: ``raw``, the pair of tracepoints that all calls pass, or ``single``, each call's
    own. Empty: perf recorded the calls."""
    layers: tuple[str, ...] = ()
    """Layers between calls and disks that these programs recorded, of :data:`~lo2io.model.layers.LAYERS`."""
    kernel_stacks: tuple[KernelStack, ...] = ()
    """Stacks of threads that slept; empty unless ``complete``."""
    user_stacks: tuple[UserStack, ...] = ()
    """Stacks of programs in slow calls, by frame pointers; empty unless ``complete``."""
    slow_from_ns: int = SLOW_FROM_NS
    """The layer ``stacks`` took the program's stack of calls that last this long ..."""
    slow_one_of: int = 1
    """... of one in so many of them."""
    kernel_facts: bool = False
    """True if these programs recorded the files and paths of calls."""
    kernel_events: tuple[str, ...] = ()
    """Events that these programs recorded besides system calls. All other events are samples."""
    nr_left_out: int = 0
    """Calls that the programs left out because of the filter. No count has their entries and exits."""
    missed_runs: int = 0
    """How often the kernel skipped a program of lo2io because another one was running on that CPU. The skipped
    program's facts are lost."""
    facts_lost: int = 0
    """Lost records of facts: their buffer was full. They may be about names and about requests of libaio, never about
    whole calls."""
    foreign_calls: int = 0
    """Calls that programs at the raw pair saw and cannot name: of x32 programs, and of 32-bit programs on a machine for
    which lo2io does not know the numbers of such calls."""
    tasks_lost: int = 0
    """Lost records of forks, names, exits and mappings: perf's buffers were full."""
    absences: tuple[Absence, ...] = ()
    """CPUs that came online, and when their events were not recorded."""
    nr_bytes: int | None = None
    """The size of all files of buffers, facts and clock readings together. None: a flight recorder wrote them, or the
    recording was cut off."""
    boot_id: str = ""
    """``/proc/sys/kernel/random/boot_id``: recordings of one boot have one clock. Empty: not known."""
    job: Job | None = None
    """The job of which this node's recording is a part. None: the machine was recorded alone."""

    @property
    def has_kernel_records(self) -> bool:
        """True if each CPU has two files: its buffer's, and one from lo2io's programs in the kernel."""
        return self.backend == "bpf" or self.kernel_facts

    @property
    def compat_unseen(self) -> bool:
        """True if calls were recorded at tracepoints of their own. The kernel has none for 32-bit programs' calls."""
        single = self.hook == "single" or self.backend == "perf"
        return single and any(event.startswith("syscalls:") for event in self.events)

    @property
    def has_event_files(self) -> bool:
        """True if each CPU has a file of events from these programs, too."""
        return bool(self.kernel_events) or any_among_events(self.layers)
