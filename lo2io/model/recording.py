"""What a recording is besides its samples: the content of ``spool.json``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EventCounts:
    """What the kernel counted for one event: per CPU, in the order of the spool's CPUs."""

    name: str
    counts: tuple[int, ...]
    lost: tuple[int, ...] | None
    """None: this kernel does not tell (before 6.0)."""
    slack: tuple[int, ...] | None = None
    """By so much the true count may be larger: it was read while the event went on happening. None: by nothing."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a command used from its start to its end, with the children that it waited for: wait4(2), getrusage(2)."""

    wall_ns: int
    """From when it was let go until it had ended."""
    user_ns: int
    system_ns: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int


@dataclass(frozen=True, slots=True)
class Account:
    """What the kernel counted itself over a part of the recording, for comparison with what was captured."""

    source: str
    """``diskstats``, ``proc_io`` or ``cgroup_io``: the file the numbers stand in."""
    subject: str
    """The device's name, the process' id, the cgroup's path."""
    device: int | None
    """Kernel ``dev_t`` the numbers are about; None: all."""
    names: tuple[str, ...]
    """What each number counts: ``reads``, ``read_bytes`` …"""
    values: tuple[int, ...]
    """Increase from ``begin_ns`` to ``end_ns``."""
    begin_ns: int
    """Spool's clock."""
    end_ns: int
    begin_slack_ns: int = 0
    """The first look took so long, from ``begin_ns`` on: what happened meanwhile is in the account or not."""
    end_slack_ns: int = 0
    """The last look, from ``end_ns`` on."""


@dataclass(frozen=True, slots=True)
class ClockSync:
    """One reading of three clocks at the same moment, ``error_ns`` apart at most."""

    time_ns: int
    """The spool's clock: that of the perf samples."""
    monotonic_ns: int
    realtime_ns: int
    error_ns: int


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of ``/proc/PID/mountinfo``."""

    id: int
    device: int
    """``st_dev`` as stat(2) gives it."""
    mount_point: str
    fs_type: str
    source: str


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """One disk or partition."""

    device: int
    """Kernel ``dev_t`` of the tracepoints: major << 20 | minor."""
    name: str
    """``vda``."""
    scheduler: str | None
    rotational: bool | None
    size_bytes: int | None
    model: str | None = None
    disk: int | None = None
    """Of a partition: kernel ``dev_t`` of its disk."""
    start_sector: int | None = None
    """Of a partition: where on its disk it begins, in units of 512 bytes."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """Where one logical CPU sits."""

    cpu: int
    core: int
    package: int


@dataclass(frozen=True, slots=True)
class SpoolMeta:
    """``spool.json``: all that converting needs besides the rings.

    ``events[i]`` is the engine's event index i; ``formats`` its ``format`` file's text, byte for byte.
    """

    lo2io_version: str
    complete: bool
    mode: str
    """``process`` or ``system``."""
    command: tuple[str, ...]
    roots: tuple[int, ...]
    """pids whose descendants are recorded; empty in system mode."""
    recorder_pid: int
    hostname: str
    kernel: str
    machine: str
    cpus: tuple[Cpu, ...]
    """Every CPU with a ring, in the order of the ring files."""
    events: tuple[str, ...]
    formats: tuple[str, ...]
    header_page: str
    clock: str
    """``perf`` (the kernel's local clock) or ``monotonic_raw`` …"""
    syncs: tuple[ClockSync, ...]
    start_ns: int
    """Tracepoints were enabled from here …"""
    stop_ns: int | None
    """… to here, on the spool's clock. None: never stopped in good order."""
    ring_bytes: int
    ring_bytes_wanted: int
    opener: str
    """``python-perf`` or ``native``."""
    scope: str
    """``system`` (per CPU, descendants selected when converting) or ``inherit`` (per task)."""
    counts: tuple[EventCounts, ...]
    """Empty unless ``complete``."""
    mounts: tuple[Mount, ...]
    devices: tuple[BlockDevice, ...]
    exit_code: int | None = None
    filters: tuple[tuple[str, ...], ...] = ()
    """Pairs of an event and the filter the kernel applied to it: what did not pass was not counted either."""
    notices: tuple[str, ...] = ()
    """What the user was told while recording: rings halved, disk full, events this kernel lacks …"""
    lacking: tuple[str, ...] = ()
    """Events that were asked for and that this kernel does not have."""
    filter: str = ""
    """What the user chose by a filter: converting applies all of it, the kernel what ``filters`` says."""
    cgroup: str = ""
    """Only this cgroup and those below it were recorded: path in its hierarchy."""
    chosen_cpus: tuple[int, ...] = ()
    """Only these CPUs were recorded; empty: all."""
    segments: tuple[str, ...] = ()
    """Folders of the spool that hold the ring files, in order; empty: the spool itself holds them."""
    recording_start_ns: int | None = None
    """The recording began here, and what lies before ``start_ns`` was not kept. None: ``start_ns`` is the beginning."""
    accounts: tuple[Account, ...] = ()
    usage: Usage | None = None
    """Of the command; None: there was none, or it goes on, or only a part of its life is here."""
    own_pids: tuple[int, ...] = ()
    """Further processes that were lo2io's own, beside the recorder: they wrote traces meanwhile."""
    sample_rate: int = 1
    """Of so many requests of rings one is written, chosen by its number; 1: all."""
    backend: str = "perf"
    """What recorded system calls: ``perf``, samples in the rings, or ``bpf``, lo2io's programs in the kernel."""
    kernel_facts: bool = False
    """Those programs told which files and paths the calls were about."""
    nr_left_out: int = 0
    """Calls that the programs left out, by the filter: their entries and exits are in no count."""
    missed_runs: int = 0
    """So often the kernel did not run a program of lo2io's because one was running on that CPU: what it would have told
    is lost."""
    facts_lost: int = 0
    """Records of facts that found no room in their ring: of no call, but perhaps of names."""

    @property
    def has_kernel_records(self) -> bool:
        """Each CPU has a file of what lo2io's programs in the kernel wrote, besides its ring's."""
        return self.backend == "bpf" or self.kernel_facts
