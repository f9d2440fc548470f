"""The whole flow from a command to a trace. Only this module knows every stage.

Capture writes a spool. The engine turns the spool into batches. Writers take each batch at the same time, each in a
thread of its own. The summary is read back from the tables. Nothing flows back.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lo2io.capture.launch import become, resolve_user
from lo2io.capture.launchers import find_place
from lo2io.capture.options import RecordOptions
from lo2io.capture.recording import record as record_spool
from lo2io.catalog.catalog import ENDING, left_out, load_catalog
from lo2io.cluster.hosts import host_directory
from lo2io.convert.convert import check_block_records, import_stages
from lo2io.errors import Lo2ioError
from lo2io.finishing import Recorded, convert_command, converter, finish
from lo2io.folder import Folder, private_umask
from lo2io.model import CallFilter
from lo2io.signals import interrupt_number, interrupted_by_signals, interrupts_held_back
from lo2io.spool.format import META_NAME
from lo2io.trace.directory import fresh_directory, give_away, locked_directory
from lo2io.trace.names import SPOOL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lo2io.capture.launchers import Place
    from lo2io.capture.meeting import Meeting
    from lo2io.capture.options import RecordRequest
    from lo2io.catalog.catalog import Selection
    from lo2io.model.notices import Notice
    from lo2io.model.status import Status

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
"""Where ranks meet: a file system in this node's memory. The folder that they make there is closed to other users."""


def record(
    request: RecordRequest,
    say: Callable[[str], None],
    progress: Callable[[Path], Any] = lambda _: contextlib.nullcontext(),
    warn: Callable[[str], None] | None = None,
    show: Callable[[Status | None], None] | None = None,
    *,
    prepare: Callable[[], None] = import_stages,
    hand_over: Callable[[RecordRequest, int, Folder, Folder, Callable[[], None]], int | None] | None = None,
) -> Recorded:
    """Record a command, running processes or the whole machine into a trace.

    Args:
        request: The user's choices.
        say: Takes messages for the user.
        warn: Takes messages that ``--quiet`` must not hide; None: ``say`` takes them.
        progress: A function of the spool. Its context gives :func:`convert` a progress callback.
        show: As for ``capture.recording.record``.
        prepare: Imports what converting and the report need, when recording has ended. A thread that imported during
            the recording would keep Python's lock from the thread that drains the buffers.
        hand_over: Lets another process call :func:`finish` with these arguments, and report. The function returns the
            exit code, and the result has no ``converted``. It returns None if the other process has gone before its
            work, and raises ChildProcessError if amid its work. It calls its last argument while that process works.
            Nodes of a job finish their recordings themselves.

    Raises:
        Lo2ioError: As ``capture.recording.record``. If converting fails, a message says so, and nothing is raised: the
            spool stays, and the exit code is the command's, unless that is 0.
    """
    urgent = warn or say

    def tell(notice: Notice) -> None:
        (urgent if notice.is_urgent else say)(notice.text)

    check_block_records(request.block_records)
    selection, chosen, droppable = _select(request)
    spool: Folder | None = None
    place = None if request.alone else find_place()
    if place:
        hand_over = None
    with (
        _met(request, place, urgent) as meeting,
        private_umask() as umask,
        interrupted_by_signals(),
        _output(request, place) as (trace, host),
        contextlib.ExitStack() as later,
    ):
        job = replace(place.job, host=host, ranks=meeting.ranks if meeting else ()) if place else None
        try:
            with fresh_directory(trace, force=request.force) as spool:
                options = _options(request, spool, selection, chosen, droppable, umask=umask, job=job, meeting=meeting)
                with _kept(spool, trace, urgent):
                    exit_code = record_spool(options, tell, show, later).exit_code
            _give_to_caller(spool, trace)  # before converting, which the user who called sudo does if that user may
            recorded = None
            if hand_over:
                there = partial(hand_over, request, exit_code, spool, trace, later.close)
                recorded = _finish_there(there, exit_code, trace, urgent)
            with interrupts_held_back():  # an interrupt would leave events open, and lo2io's end would take seconds
                later.close()  # before converting here, which starts threads
            if recorded is None:
                recorded = finish(request, exit_code, spool, trace, say=urgent, progress=progress, prepare=prepare)
        except KeyboardInterrupt as interrupt:
            with interrupts_held_back():  # else a second signal would hide where the spool is
                recorded = Recorded(_interrupted_code(interrupt), trace.path, None)
                if spool is None or not trace.is_folder(SPOOL):
                    return recorded
                urgent(f"interrupted while stopping; the spool is kept: `{convert_command(trace.path)}`")
                _give_to_caller(spool, trace)
    return replace(recorded, host=host)


@contextlib.contextmanager
def _met(request: RecordRequest, place: Place | None, say: Callable[[str], None]) -> Iterator[Meeting | None]:
    """As one of several ranks: meet the others of this node. The leader goes on, the others become their commands.

    Raises:
        SystemExit: The leader could not record. Its message says why.
    """
    if place is None or request.system or not request.command:
        yield None
        return
    from lo2io.capture.meeting import meet  # noqa: PLC0415 - only ranks meet

    meeting = meet(SHARED_MEMORY, place, _job_output(request, place))
    if isinstance(meeting, int):
        if meeting:
            raise SystemExit(meeting)
        become(request.command, resolve_user(request.user)[0])
    with meeting:
        meeting.gather(place.local_size)
        if meeting.missing:
            say(f"{meeting.missing} of {place.local_size} ranks of this node did not come: they are not recorded here")
        yield meeting


@contextlib.contextmanager
def _output(request: RecordRequest, place: Place | None) -> Iterator[tuple[Folder, str]]:
    """The directory of the trace, locked; and this node's name, if it is one of a job's nodes."""
    if place is None:
        with locked_directory(request.output, _default_name(request)) as trace:
            yield trace, ""
        return
    with host_directory(_job_output(request, place), place.job.host) as (trace, host):
        yield trace, host


def _job_output(request: RecordRequest, place: Place) -> Path:
    """The directory of a job's recording. Without a wish, all nodes find the same name: it has no time."""
    if request.output is not None:
        return request.output
    name = Path(request.command[0]).name if request.command else "system"
    return Path(f"lo2io-{name}-{'.'.join(filter(None, (place.job.id, place.job.step)))}".replace(" ", "-"))


def _give_to_caller(spool: Folder, trace: Folder) -> None:
    """Under sudo, the spool and a directory that lo2io made belong to the user who called it."""
    give_away(spool)
    if trace.parent is not None:
        give_away(trace, contents=False)


def _interrupted_code(interrupt: KeyboardInterrupt) -> int:
    """The command's exit code, if it has ended with another than 0; else the one that the signal would have caused."""
    _, *command = interrupt.args or (None,)
    return command[0] if command else 128 + interrupt_number(interrupt)


@contextlib.contextmanager
def _kept(spool: Folder, trace: Folder, say: Callable[[str], None]) -> Iterator[None]:
    """If recording fails after its start, tell where the spool is, and give it to the user who called sudo."""
    try:
        yield
    except Exception:
        if spool.fd >= 0 and spool.is_file(META_NAME):
            give_away(spool)
            say(f"recording ended early; the spool is kept: `{convert_command(trace.path)}`")
        raise


def _select(request: RecordRequest) -> tuple[Selection, str, CallFilter]:
    """The events to record, the filter that the spool keeps, and the calls that programs may leave out."""
    selection, chosen, droppable = load_catalog().select(_event_names(request)), "", CallFilter()
    if request.expressions:
        # A recording without a filter starts without these imports.
        from lo2io.filter.for_events import choose  # noqa: PLC0415
        from lo2io.filter.for_programs import choose_calls  # noqa: PLC0415

        selection, chosen = choose(request.expressions, selection, load_catalog())
        droppable = choose_calls(request.expressions, selection.events, load_catalog())
    return selection, chosen, droppable


def _finish_there(
    hand_over: Callable[[], int | None], exit_code: int, trace: Folder, say: Callable[[str], None]
) -> Recorded | None:
    """The result, if another process finishes the recording; None: that process has gone."""
    try:
        code = hand_over()
    except ChildProcessError:
        say(f"converting failed; the spool is kept: `{convert_command(trace.path)}`")
        code = exit_code or Lo2ioError.exit_code
    return None if code is None else Recorded(code, trace.path, None)


def _event_names(request: RecordRequest) -> tuple[str, ...]:
    """The names that choose events: first those of the mode and options, as far as known, then the user's."""
    wanted = [name for name, on in (("cgroup", request.system), ("sched", request.sched)) if on]
    known = load_catalog().groups()
    return (*(f"+{name}" for name in wanted if name in known), *request.wanted)


def _unnamed(request: RecordRequest, selection: Selection) -> tuple[str, ...]:
    """Warn if files stay unnamed. Without the ends of descriptors, a descriptor's number may stand for another file."""
    missing = left_out(load_catalog().calls, ENDING, selection.events)
    if not any(event.startswith("syscalls:") for event in selection.events):
        return ()
    if request.cpus is not None:
        return ("files stay unnamed: calls on other CPUs are not seen",)
    remedy = "-e +close,+descriptor adds what is needed"
    return (f"files stay unnamed: {', '.join(missing)} left out ({remedy})",) if missing else ()


def _options(
    request: RecordRequest, spool: Folder, selection: Selection, chosen: str, droppable: CallFilter, **place: Any
) -> RecordOptions:
    return RecordOptions.made_of(
        request,
        spool=spool.path,
        folder=spool,
        events=selection.events,
        optional=selection.optional,
        newer=selection.newer,
        filters=selection.filters,
        filter=chosen,
        left_out=droppable,
        unnamed=_unnamed(request, selection),
        converter=converter(request.block_records),
        **place,
    )


def _default_name(request: RecordRequest) -> str:
    others = "system" if request.system else f"pid-{'-'.join(map(str, request.pids))}"
    name = Path(request.command[0]).name if request.command else others
    return f"lo2io-{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def dump(trace: Path) -> Path:
    """Ask the recording that writes ``trace`` to write what it keeps as a trace of its own, and to go on.

    Returns:
        The place of the new trace.

    Raises:
        UsageError: Nothing records into ``trace``, or the recording keeps everything.
        AccessError: The recorder belongs to another user.
        CaptureError: The trace could not be written.
    """
    from lo2io.capture.flight.request import ask_for_dump  # noqa: PLC0415 - recording does not need it

    return ask_for_dump(trace)
