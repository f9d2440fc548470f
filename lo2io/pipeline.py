"""The whole flow, from a command to a trace: the only module that knows every stage.

Capture writes a spool; the engine turns it into batches; the writers take each batch at the same time, each in a
thread of its own; the summary is read back from the tables. Nothing flows back.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lo2io.capture.options import Converter
from lo2io.capture.recording import DEFAULT_RING_BYTES, RecordOptions
from lo2io.capture.recording import record as record_spool
from lo2io.catalog.catalog import ENDING, left_out, load_catalog
from lo2io.errors import Lo2ioError, SpoolError, UsageError
from lo2io.folder import Folder, private_umask
from lo2io.model import UNKNOWN_I64, CallFilter, Completeness, TraceEnd
from lo2io.signals import interrupted_by_signals
from lo2io.trace.directory import ANCHOR, SPOOL, fresh_directory, give_away, locked_directory, whole_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lo2io.catalog.catalog import Selection
    from lo2io.convert.reconcile import Reconciler
    from lo2io.convert.streams import Batches
    from lo2io.model import SpoolMeta, Totals
    from lo2io.model.notices import Notice
    from lo2io.model.status import Status

INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""
BLOCK_RECORDS = ("samples", "begin-end", "both")
"""How block requests may stand in a trace; docs/reference/trace.md says what that means."""
BATCHES_HELD = 3
"""Batches that are being written at a time: so far one writer may be ahead of the other."""


@dataclass(frozen=True, slots=True)
class RecordRequest:
    """What the user asked ``record`` or ``system-wide`` for; None and empty mean the default.

    Meanings: ``RecordOptions``.
    """

    command: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    output: Path | None = None
    events: tuple[str, ...] = ()
    user: str | None = None
    ring_bytes: int | None = None
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
    """The whole machine, not only ``command`` or ``pids``."""
    cpus: str | None = None
    """A list as the kernel writes them: ``0-3,6``."""
    cgroup: str | None = None
    filter: tuple[str, ...] = ()
    """Expressions; what is recorded fits all of them."""
    block_records: str | None = None
    """One of :data:`BLOCK_RECORDS`."""
    sched: bool = False
    sample_rate: int | None = None
    """Of so many requests of rings one is written; None: all."""
    last_s: float | None = None
    """Keep only the newest so many seconds …"""
    max_bytes: int | None = None
    """… or so many bytes …"""
    trigger: str | None = None
    """… and write them as a trace whenever this happens."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a recording gave: the command's exit code, and the trace unless converting was put off or failed."""

    exit_code: int
    directory: Path
    converted: Converted | None


@dataclass(frozen=True, slots=True)
class Converted:
    """What converting gave: where the trace lies, and how complete it is."""

    trace: Path
    completeness: Completeness
    reconciliation: str = ""
    """What was captured of what the kernel counted itself, in words; empty: it was not compared."""
    filtered: str = ""
    """What a filter left out, in words; empty: there was none."""
    sampled: str = ""
    """That of the requests of rings not all were written, in words; empty: they were."""
    shortfall: str = ""
    """That too little was captured of what the kernel counted itself, in words; empty: enough was."""


def record(
    request: RecordRequest,
    say: Callable[[str], None],
    progress: Callable[[Path], Any] = lambda _: contextlib.nullcontext(),
    warn: Callable[[str], None] | None = None,
    show: Callable[[Status | None], None] | None = None,
) -> Recorded:
    """Record a command, running processes or the whole machine into a trace.

    Args:
        request: What was asked for.
        say: Takes messages for the user.
        warn: Takes those that the user must see, however quiet it shall be; None: ``say`` does.
        progress: From the spool, a context that gives :func:`convert` its progress callback.
        show: As ``capture.recording.record`` has it.

    Raises:
        Lo2ioError: As ``capture.recording.record``. A failure of converting is said, not raised: the spool stays,
            and the exit code is the command's unless that is 0.
    """
    urgent = warn or say

    def tell(notice: Notice) -> None:
        (urgent if notice.is_urgent else say)(notice.text)

    _check_known(request.block_records)
    selection, chosen, droppable = load_catalog().select(_event_names(request)), "", CallFilter()
    if request.filter:
        # A recording without a filter starts without these.
        from lo2io.filter.for_events import choose  # noqa: PLC0415
        from lo2io.filter.for_programs import choose_calls  # noqa: PLC0415

        selection, chosen = choose(request.filter, selection, load_catalog())
        droppable = choose_calls(request.filter, selection.events, load_catalog())
    with private_umask() as umask, locked_directory(request.output, _default_name(request)) as trace:
        try:
            with fresh_directory(trace, force=request.force) as spool:
                options = _options(request, spool, selection, chosen, droppable)
                options = replace(options, umask=umask)
                exit_code = record_spool(options, tell, show).exit_code
        except KeyboardInterrupt:
            if not trace.is_folder(SPOOL):
                return Recorded(INTERRUPTED, trace.path, None)
            urgent(f"interrupted while stopping; the spool is kept: `{_convert_command(trace.path)}`")
            recorded = Recorded(INTERRUPTED, trace.path, None)
        else:
            recorded = _finish(request, exit_code, spool, trace, say=urgent, progress=progress)
        give_away(spool)
        if trace.parent is not None:
            give_away(trace, contents=False)
    return recorded


def _finish(
    request: RecordRequest,
    exit_code: int,
    spool: Folder,
    trace: Folder,
    *,
    say: Callable[[str], None],
    progress: Callable[[Path], Any],
) -> Recorded:
    """Convert; whatever stops that leaves the spool and says how to go on."""
    directory = trace.path
    if not request.convert:
        say(f"spool kept: convert it with `{_convert_command(directory)}`")
        return Recorded(exit_code, directory, None)
    try:
        with interrupted_by_signals(), progress(spool.place) as advance:
            output = contextlib.nullcontext(trace)
            converted = _convert(spool, output, progress=advance, block_records=request.block_records)
    except KeyboardInterrupt as interrupt:
        number = interrupt.args[0] if interrupt.args else signal.SIGINT
        if trace.is_file(ANCHOR):
            say(f"interrupted when the trace was whole; the spool is kept, too: {directory / SPOOL}")
        else:
            say(f"converting given up; the spool is kept: `{_convert_command(directory)}`")
        return Recorded(exit_code or 128 + number, directory, None)
    except Lo2ioError as error:
        say(f"{error}{'; ' if error.remedy else ''}{error.remedy}")
        say(f"the spool is kept: `{_convert_command(directory)}`")
        return Recorded(exit_code or error.exit_code, directory, None)
    except Exception:
        say(f"converting failed; the spool is kept: `{_convert_command(directory)}`")
        raise
    if not request.keep_spool:
        try:
            spool.discard()
        except KeyboardInterrupt:  # the trace is whole: half a spool beside it is of no use
            spool.discard()
    return Recorded(exit_code, directory, converted)


def _check_known(block_records: str | None) -> None:
    """What a stage does not do yet is refused, not ignored."""
    if block_records not in {None, *BLOCK_RECORDS}:
        raise UsageError(
            f"write block requests as {block_records!r}", "no such kind", f"one of {', '.join(BLOCK_RECORDS)}"
        )


def _event_names(request: RecordRequest) -> tuple[str, ...]:
    """The names to choose events by: the user's, and before them what a mode or option brings, where it is known."""
    wanted = [name for name, on in (("cgroup", request.system), ("sched", request.sched)) if on]
    known = load_catalog().groups()
    return (*(f"+{name}" for name in wanted if name in known), *request.events)


def _unnamed(request: RecordRequest, selection: Selection) -> tuple[str, ...]:
    """Say why files will stay unnamed: who does not see descriptors end cannot know what their numbers stand for."""
    missing = left_out(load_catalog().calls, ENDING, selection.events)
    if not any(event.startswith("syscalls:") for event in selection.events):
        return ()
    if request.cpus is not None:
        return ("files stay unnamed: calls on other CPUs are not seen",)
    remedy = "-e +close,+descriptor adds what is needed"
    return (f"files stay unnamed: {', '.join(missing)} left out ({remedy})",) if missing else ()


def _options(
    request: RecordRequest, spool: Folder, selection: Selection, chosen: str, droppable: CallFilter
) -> RecordOptions:
    return RecordOptions(
        spool=spool.path,
        folder=spool,
        events=selection.events,
        optional=selection.optional,
        newer=selection.newer,
        filters=selection.filters,
        command=request.command,
        pids=request.pids,
        duration_s=request.duration_s,
        until_last=request.until_last,
        ring_bytes=DEFAULT_RING_BYTES if request.ring_bytes is None else request.ring_bytes,
        user=request.user,
        backend=request.backend,
        names=request.names,
        opener=request.opener,
        scope=request.scope,
        system=request.system,
        cpus=request.cpus,
        cgroup=request.cgroup,
        filter=chosen,
        left_out=droppable,
        last_s=request.last_s,
        max_bytes=request.max_bytes,
        trigger=request.trigger,
        sample_rate=request.sample_rate or 1,
        keep_spool=request.keep_spool,
        unnamed=_unnamed(request, selection),
        converter=converter(request.block_records),
    )


def _default_name(request: RecordRequest) -> str:
    others = "system" if request.system else f"pid-{'-'.join(map(str, request.pids))}"
    name = Path(request.command[0]).name if request.command else others
    return f"lo2io-{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def _convert_command(directory: Path) -> str:
    return converter().show(directory / SPOOL, directory)


def converter(block_records: str | None = None) -> Converter:
    """`lo2io convert` as a command, for the windows of a flight recorder.

    Args:
        block_records: One of :data:`BLOCK_RECORDS`; None: as the spool's mode has it.
    """
    options = () if block_records is None else ("--block-records", block_records)

    def arguments(spool: Path, trace: Path) -> list[str]:
        return ["convert", str(spool), "-o", str(trace), *options]

    return Converter(
        run=lambda spool, trace: [sys.executable, "-P", "-m", "lo2io", *arguments(spool, trace)],
        show=lambda spool, trace: shlex.join(["lo2io", *arguments(spool, trace)]),
    )


def dump(trace: Path) -> Path:
    """Have the recording that writes ``trace`` write what it keeps as a trace of its own, and go on.

    Returns:
        Where the new trace lies.

    Raises:
        UsageError: Nothing records into ``trace``, or it keeps everything.
        AccessError: The recorder is another user's.
        CaptureError: The trace could not be written.
    """
    from lo2io.capture.flight.request import ask_for_dump  # noqa: PLC0415 - recording has no need of it

    return ask_for_dump(trace)


def convert(
    spool_path: Path,
    trace: Path,
    *,
    force: bool = False,
    progress: Callable[[int], None] | None = None,
    filters: Sequence[str] = (),
    block_records: str | None = None,
    sample_rate: int | None = None,
) -> Converted:
    """Turn a spool into an OTF2 archive with tables beside it.

    Args:
        spool_path: What ``record`` left.
        trace: Directory of the trace; may exist, and may hold the spool, but no trace unless ``force``.
        force: Replace a trace that is there.
        progress: Called now and then with the bytes of the spool read so far.
        filters: Expressions; what is written fits all of them, and what the recording was filtered by.
        block_records: One of :data:`BLOCK_RECORDS`; None: as the spool's mode has it.
        sample_rate: Of so many requests of rings one is written; None: as was chosen when recording.

    Raises:
        UsageError: A filter or a kind of records that nobody knows; more requests than were chosen when recording;
            there is a trace already, or what is no trace of lo2io; another process writes the spool or the trace.
        SpoolError: The spool cannot be read.
        TraceError: The trace cannot be written.
    """
    with private_umask(), _open_spool(spool_path) as spool:
        return _convert(
            spool,
            locked_directory(trace),
            force=force,
            progress=progress,
            filters=filters,
            block_records=block_records,
            sample_rate=sample_rate,
        )


def _open_spool(path: Path) -> Folder:
    """A spool that nobody writes, held open and locked for reading."""
    try:
        spool = Folder.open(path)
    except OSError as error:
        remedy = "name a spool: T/spool, if --keep-spool or --no-convert left it"
        raise SpoolError(f"read {path}", error.strerror or str(error), remedy) from error
    try:
        spool.lock(shared=True)
    except UsageError as error:
        raise UsageError(f"convert {path}", error.answer, "wait for its end, or try `lo2io dump`") from None
    return spool


def _convert(
    spool_folder: Folder,
    output: contextlib.AbstractContextManager[Folder],
    *,
    force: bool = False,
    progress: Callable[[int], None] | None = None,
    filters: Sequence[str] = (),
    block_records: str | None = None,
    sample_rate: int | None = None,
) -> Converted:
    """As :func:`convert`; what is written into is opened once the spool's description was read."""
    _check_known(block_records)
    # NumPy's linear algebra starts a thread per CPU when it is imported, which spin for a while. Nothing here needs it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # What only converting needs is imported here, so that a recording starts without it.
    from lo2io.convert.reconcile import Reconciler  # noqa: PLC0415
    from lo2io.convert.streams import open_batches  # noqa: PLC0415
    from lo2io.filter.for_events import check_devices  # noqa: PLC0415
    from lo2io.filter.parser import parse_all  # noqa: PLC0415
    from lo2io.filter.rows import Criteria  # noqa: PLC0415
    from lo2io.spool.reader import SpoolReader  # noqa: PLC0415

    with spool_folder.named():
        spool = SpoolReader(spool_folder.place)
        catalog = load_catalog()
        criteria = Criteria(parse_all((spool.meta.filter, *filters)), spool.meta.cgroup)
        check_devices(criteria.filter, spool.meta.devices)
        rate = _sample_rate(spool.meta, sample_rate)
        spool.meta = meta = replace(spool.meta, filter=str(criteria.filter), sample_rate=rate)
        accounts = Reconciler(meta, catalog.calls)
        with (
            output as trace,
            whole_trace(trace, spool_folder, force=force) as part,
            open_batches(
                spool, catalog, criteria, held=BATCHES_HELD, watch=accounts.write, progress=progress
            ) as batches,
        ):
            return replace(_write_trace(part.place, meta, batches, accounts, block_records), trace=trace.path)


def _sample_rate(meta: SpoolMeta, wanted: int | None) -> int:
    """As a filter's, a recording's choice stands: converting may leave out more, never less."""
    if wanted is not None and wanted < meta.sample_rate:
        chosen = f"1/{meta.sample_rate} was chosen when recording"
        raise UsageError(
            f"write 1/{wanted} of the requests", chosen, f"leave --sample out, or 1/{meta.sample_rate} at most"
        )
    return wanted or meta.sample_rate


def _write_trace(
    trace: Path, meta: SpoolMeta, batches: Batches, accounts: Reconciler, block_records: str | None
) -> Converted:
    """Archive and tables, and what is known when all is written."""
    # The engine works while the writers' libraries, which are large, are being loaded.
    from lo2io.convert.reconcile import reconciliation_line, shortfall_line  # noqa: PLC0415
    from lo2io.convert.streams import hand_out  # noqa: PLC0415
    from lo2io.filter.batches import properties  # noqa: PLC0415
    from lo2io.otf2.write.writer import Otf2Writer  # noqa: PLC0415
    from lo2io.reports.summary.losses import completeness, filtered_words, sampled_words  # noqa: PLC0415
    from lo2io.trace.writer import TableWriter  # noqa: PLC0415

    criteria, engine = batches.criteria, batches.engine
    calls, opcodes = engine.catalog.calls, engine.catalog.opcodes
    with (
        TableWriter(trace, meta, calls, opcodes) as tables,
        Otf2Writer(trace, meta, calls, opcodes, block_records=block_records) as otf2,
    ):
        hand_out(batches, (otf2, tables) if criteria else (otf2, tables, accounts), BATCHES_HELD)
        left_out = batches.left_out
        left_out = replace(left_out, calls=left_out.calls + meta.nr_left_out)
        proof = completeness(meta, [engine.seen(i) for i in range(len(meta.cpus))], engine.totals)
        compared = accounts.close()
        line, shortfall = reconciliation_line(compared), shortfall_line(compared, meta, proof)
        sampled = sampled_words(meta.sample_rate, engine.totals.nr_ring_requests)
        facts = properties(criteria, left_out) | {"RECONCILIATION": line, "SHORTFALL": shortfall}
        end = _end(meta, engine.totals, proof, facts)
        otf2.close(end)
        known: dict[str, Any] = {
            "reconciliation": [asdict(row) for row in compared],
            "reconciliation_line": line,
            "shortfall": shortfall,
        }
        if criteria:
            known["filtered"] = asdict(left_out)
        tables.close(engine.totals, proof, end.start_ns, end.stop_ns, known)
    filtered = filtered_words(meta.filter, left_out.calls, left_out.requests, left_out.ring_requests)
    return Converted(trace, proof, line, filtered, sampled, shortfall)


def _end(meta: SpoolMeta, totals: Totals, proof: Completeness, properties: Mapping[str, str]) -> TraceEnd:
    """The trace's span: while tracepoints were enabled, or as far as the spool reaches if it was cut off."""
    stop_ns = meta.stop_ns
    if stop_ns is None:
        stop_ns = meta.start_ns if totals.last_time_ns == UNKNOWN_I64 else max(totals.last_time_ns, meta.start_ns)
    return TraceEnd(meta.start_ns, stop_ns, proof, totals, properties)
