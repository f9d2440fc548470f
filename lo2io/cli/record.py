"""The commands that record: a program, running processes, or the whole machine."""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lo2io.cli import declared
from lo2io.cli.declared import Declared, parse_rate, parse_seconds, parse_size
from lo2io.cli.messages import import_summary, print_completeness, print_summary, progress_bar, say, status_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from lo2io.capture.options import RecordRequest
    from lo2io.cli.standby import Standby
    from lo2io.finishing import Recorded
    from lo2io.folder import Folder

RECORD, SYSTEM_WIDE = "record", "system-wide"


class Option(NamedTuple):
    """One option or argument of the commands that record, as the command line has it."""

    name: str
    """The field of :class:`~lo2io.capture.options.RecordRequest` that takes the value."""
    declared: Declared
    default: bool | None = None
    """None: without the option, the default of the field holds."""
    parse: Callable[[Any], Any] | None = None
    """Turns the command line's value into the field's value."""
    only: str | None = None
    """The one command that has the option; None: both have it."""


OPTIONS = (
    Option(
        "command",
        Declared(list[str], (), "The command to run and record.", "[-- CMD…]"),
        parse=tuple,
    ),
    Option(
        "all_cpus",
        Declared(
            bool,
            ("-a", "--all-cpus"),
            "Record every CPU; the default.",
        ),
        default=False,
        only=SYSTEM_WIDE,
    ),
    Option(
        "output",
        Declared(
            Path,
            ("-o", "--output"),
            "Directory of the trace. [default: lo2io-NAME-TIME]",
            "T",
        ),
    ),
    Option(
        "pids",
        Declared(
            list[int],
            ("-p", "--pid"),
            "Record a running process; repeat for several.",
            "PID",
        ),
        parse=tuple,
        only=RECORD,
    ),
    Option("wanted", declared.EVENTS, parse=tuple),
    Option(
        "duration_s",
        Declared(str, ("--duration",), "With -p: end the recording after this time, e.g. 500ms, 30s, 1h.", "TIME"),
        parse=parse_seconds,
        only=RECORD,
    ),
    Option(
        "duration_s",
        Declared(str, ("--duration",), "End the recording after this time, e.g. 500ms, 30s, 1h.", "TIME"),
        parse=parse_seconds,
        only=SYSTEM_WIDE,
    ),
    Option(
        "until_last",
        Declared(bool, ("--until-last",), "Record until all descendants of CMD have ended, too, or Ctrl-C."),
        default=False,
        only=RECORD,
    ),
    Option("cpus", declared.CPUS, only=SYSTEM_WIDE),
    Option("cgroup", declared.CGROUP, only=SYSTEM_WIDE),
    Option("expressions", declared.FILTER, parse=tuple),
    Option(
        "last_s",
        Declared(str, ("--last",), "Keep only the newest part of the recording, e.g. 60s.", "TIME"),
        parse=parse_seconds,
        only=SYSTEM_WIDE,
    ),
    Option(
        "max_bytes",
        Declared(str, ("--max-size",), "Keep only the newest part, up to this size, e.g. 2GiB.", "SIZE"),
        parse=parse_size,
        only=SYSTEM_WIDE,
    ),
    Option(
        "trigger",
        Declared(
            str,
            ("--trigger",),
            "Write the kept part whenever a block request ('latency > 100ms') or a call ('latency > 100ms and "
            "operation == sync') fits.",
            "EXPR",
        ),
        only=SYSTEM_WIDE,
    ),
    Option(
        "user",
        Declared(str, ("--user",), "Run CMD as this user. [default: under sudo, the user who called it]", "NAME"),
    ),
    Option(
        "ring_bytes",
        Declared(str, ("--ring",), "Size of each CPU's buffer, e.g. 8MiB.", "SIZE"),
        parse=parse_size,
    ),
    Option("backend", declared.BACKEND),
    Option(
        "names",
        Declared(
            str,
            ("--names",),
            "Get the names of files from programs in the kernel, or from /proc. [default: kernel where allowed]",
            choices=("kernel", "proc"),
        ),
    ),
    Option(
        "hook",
        Declared(
            str,
            ("--hook",),
            "Let programs in the kernel watch all calls (raw), or each recorded call alone (single), which "
            "spares the other calls. [default: auto, single for few calls]",
            choices=("auto", "raw", "single"),
        ),
    ),
    Option("layers", declared.LAYERS, parse=declared.parse_layers),
    Option("stacks", declared.STACKS, parse=declared.parse_stacks),
    Option(
        "opener",
        Declared(
            str,
            ("--opener",),
            "Open perf events by the kernel's Python binding, or by lo2io itself. "
            "[default: the binding where installed]",
            choices=("python-perf", "native"),
        ),
    ),
    Option(
        "scope",
        Declared(
            str,
            ("--scope",),
            "system: record on every CPU, choose CMD's tasks when converting; "
            "inherit: record CMD's tasks alone. [default: system where allowed]",
            choices=("system", "inherit"),
        ),
        only=RECORD,
    ),
    Option("block_records", declared.BLOCK_RECORDS),
    Option(
        "sched",
        Declared(bool, ("--sched",), "Record which thread runs on which CPU, too."),
        default=False,
    ),
    Option("sample_rate", declared.SAMPLE, parse=parse_rate),
    Option(
        "alone",
        Declared(
            bool,
            ("--alone",),
            "For one rank of a job of srun, mpirun …: record this rank alone, into T. "
            "[default: one recorder a node, into T/host=NAME]",
        ),
        default=False,
    ),
    Option("force", declared.FORCE, default=False),
    Option(
        "keep_spool",
        Declared(bool, ("--keep-spool",), "Keep the raw recording, in T/spool."),
        default=False,
    ),
    Option(
        "convert",
        Declared(bool, ("--convert/--no-convert",), "Convert now, or later by `lo2io convert`."),
        default=True,
    ),
    Option(
        "quiet",
        Declared(
            bool,
            ("-q", "--quiet"),
            "Print only errors, the line on completeness, and where a spool was kept.",
        ),
        default=False,
    ),
    Option("as_json", declared.JSON, default=False),
)
"""The options in the order of the commands' help."""
_PARSE = {option.name: option.parse for option in OPTIONS if option.parse}


def options_of(command: str) -> list[Option]:
    """The options of one of the two commands."""
    return [option for option in OPTIONS if option.only in {None, command}]


def _request(given: dict[str, Any], *, system: bool = False) -> RecordRequest:
    """The request: parsed options, and the defaults of :class:`~lo2io.capture.options.RecordRequest` for all others.

    Raises:
        UsageError: A value cannot be parsed.
    """
    from lo2io.capture.options import RecordRequest

    fields = {
        name: _PARSE[name](value) if name in _PARSE else value for name, value in given.items() if value is not None
    }
    return RecordRequest(system=system, **fields)


def run(command: str, given: dict[str, Any]) -> int:
    """Record, then report the result.

    Args:
        command: ``record`` or ``system-wide``.
        given: Name of an option → its value as read from the command line; None or absent: not given.

    Returns:
        The exit code.

    Raises:
        Lo2ioError: A value cannot be parsed, or recording failed.
    """
    quiet, as_json = bool(given.get("quiet")), bool(given.get("as_json"))
    others = {name: value for name, value in given.items() if name not in {"quiet", "as_json", "all_cpus"}}
    # Early: what this process imports from here on, the other imports at the same time.
    standby = _stand_by(given, quiet=quiet) if command == RECORD else None  # a recording of the machine would see it
    request = _request(others, system=command == SYSTEM_WIDE)
    from lo2io import pipeline

    line = status_line(quiet=quiet)
    recorded = pipeline.record(
        request,
        say(quiet=quiet, line=line),
        progress_bar,
        say(quiet=False, line=line),
        line.show if line else None,
        prepare=partial(_prepare, quiet=quiet),
        hand_over=standby.hand_over if standby else None,
    )
    return _report(recorded, quiet=quiet, as_json=as_json)


def _prepare(*, quiet: bool) -> None:
    """Import what finishing a recording needs, while Python can still keep compiled modules."""
    from lo2io import finishing  # noqa: F401 - a process that stands by has not imported it
    from lo2io.convert.convert import import_stages

    import_stages()
    if not quiet:
        import_summary()


def _stand_by(given: dict[str, Any], *, quiet: bool) -> Standby | None:
    """A process that imports meanwhile, and then converts and reports.

    None: there is nothing to import, or no CPU or process for it; the report goes to stdout, whose reader may end this
    process by a signal; or lo2io waits for all its descendants, among which that process would be.
    """
    if given.get("convert") is False or given.get("as_json") or given.get("until_last"):
        return None
    if "numpy" in sys.modules or len(os.sched_getaffinity(0)) == 1:
        return None

    from lo2io.cli.standby import Standby, interruptible

    def finish(request: RecordRequest, exit_code: int, spool: Folder, trace: Folder) -> int:
        from lo2io import finishing

        def progress(place: Path) -> Any:
            return interruptible(progress_bar(place))

        recorded = finishing.finish(request, exit_code, spool, trace, say=say(quiet=False), progress=progress)
        return _report(recorded, quiet=quiet, as_json=False)

    with contextlib.suppress(OSError):
        return Standby(partial(_prepare, quiet=quiet), finish)
    return None


def _report(recorded: Recorded, *, quiet: bool, as_json: bool) -> int:
    """Report what was converted here, and return the exit code."""
    if recorded.converted and (as_json or not (quiet or recorded.host)):
        print_summary(recorded.converted.trace, as_json=as_json, to_stdout=as_json)
    if recorded.converted and (quiet or recorded.host):  # of many nodes, one line each
        print_completeness(recorded.converted, host=recorded.host)
    return recorded.exit_code
