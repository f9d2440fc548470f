"""The commands that record: a program, running processes, or the whole machine."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import click
import typer

from lo2io.cli.options import (
    Backend,
    BlockRecords,
    Cgroup,
    Cpus,
    Events,
    Filter,
    Force,
    Json,
    Sample,
    import_summary,
    parse_rate,
    parse_seconds,
    parse_size,
    print_completeness,
    print_summary,
    progress_bar,
    say,
    status_line,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lo2io.capture.options import RecordRequest

RECORD, SYSTEM_WIDE = "record", "system-wide"


class _Option(NamedTuple):
    """One option or argument of the commands that record, as the command line has it."""

    name: str
    """The field of :class:`~lo2io.capture.options.RecordRequest` that takes the value."""
    declared: Any
    """Its type, and its help text for Typer."""
    default: bool | None = None
    """None: without the option, the default of the field holds."""
    parse: Callable[[Any], Any] | None = None
    """Turns Typer's value into the field's value."""
    only: str | None = None
    """The one command that has the option; None: both have it."""


_OPTIONS = (
    _Option(
        "command",
        Annotated[list[str] | None, typer.Argument(metavar="[-- CMD…]", help="The command to run and record.")],
        parse=tuple,
    ),
    _Option(
        "all_cpus",
        Annotated[bool, typer.Option("-a", "--all-cpus", help="Record every CPU; the default.")],
        default=False,
        only=SYSTEM_WIDE,
    ),
    _Option(
        "output",
        Annotated[
            Path | None,
            typer.Option("-o", "--output", metavar="T", help="Directory of the trace. [default: lo2io-NAME-TIME]"),
        ],
    ),
    _Option(
        "pids",
        Annotated[
            list[int] | None,
            typer.Option("-p", "--pid", metavar="PID", help="Record a running process; repeat for several."),
        ],
        parse=tuple,
        only=RECORD,
    ),
    _Option("wanted", Events, parse=tuple),
    _Option(
        "duration_s",
        Annotated[
            str | None,
            typer.Option(
                "--duration", metavar="TIME", help="With -p: end the recording after this time, e.g. 500ms, 30s, 1h."
            ),
        ],
        parse=parse_seconds,
        only=RECORD,
    ),
    _Option(
        "duration_s",
        Annotated[
            str | None,
            typer.Option("--duration", metavar="TIME", help="End the recording after this time, e.g. 500ms, 30s, 1h."),
        ],
        parse=parse_seconds,
        only=SYSTEM_WIDE,
    ),
    _Option(
        "until_last",
        Annotated[
            bool,
            typer.Option("--until-last", help="Record until all descendants of CMD have ended, too, or Ctrl-C."),
        ],
        default=False,
        only=RECORD,
    ),
    _Option("cpus", Cpus, only=SYSTEM_WIDE),
    _Option("cgroup", Cgroup, only=SYSTEM_WIDE),
    _Option("expressions", Filter, parse=tuple),
    _Option(
        "last_s",
        Annotated[
            str | None,
            typer.Option("--last", metavar="TIME", help="Keep only the newest part of the recording, e.g. 60s."),
        ],
        parse=parse_seconds,
        only=SYSTEM_WIDE,
    ),
    _Option(
        "max_bytes",
        Annotated[
            str | None,
            typer.Option("--max-size", metavar="SIZE", help="Keep only the newest part, up to this size, e.g. 2GiB."),
        ],
        parse=parse_size,
        only=SYSTEM_WIDE,
    ),
    _Option(
        "trigger",
        Annotated[
            str | None,
            typer.Option(
                "--trigger",
                metavar="EXPR",
                help="Write the kept part whenever a block request ('latency > 100ms') or a call ('latency > 100ms and "
                "operation == sync') fits.",
            ),
        ],
        only=SYSTEM_WIDE,
    ),
    _Option(
        "user",
        Annotated[
            str | None,
            typer.Option(
                "--user", metavar="NAME", help="Run CMD as this user. [default: under sudo, the user who called it]"
            ),
        ],
    ),
    _Option(
        "ring_bytes",
        Annotated[str | None, typer.Option("--ring", metavar="SIZE", help="Size of each CPU's buffer, e.g. 8MiB.")],
        parse=parse_size,
    ),
    _Option("backend", Backend),
    _Option(
        "names",
        Annotated[
            str | None,
            typer.Option(
                "--names",
                click_type=click.Choice(("kernel", "proc")),
                help="Get the names of files from programs in the kernel, or from /proc. "
                "[default: kernel where allowed]",
            ),
        ],
    ),
    _Option(
        "hook",
        Annotated[
            str | None,
            typer.Option(
                "--hook",
                click_type=click.Choice(("auto", "raw", "single")),
                help="Let programs in the kernel watch all calls (raw), or each recorded call alone (single), which "
                "spares the other calls. [default: auto, single for few calls]",
            ),
        ],
    ),
    _Option(
        "opener",
        Annotated[
            str | None,
            typer.Option(
                "--opener",
                click_type=click.Choice(("python-perf", "native")),
                help="Open perf events by the kernel's Python binding, or by lo2io itself. "
                "[default: the binding where installed]",
            ),
        ],
    ),
    _Option(
        "scope",
        Annotated[
            str | None,
            typer.Option(
                "--scope",
                click_type=click.Choice(("system", "inherit")),
                help="system: record on every CPU, choose CMD's tasks when converting; "
                "inherit: record CMD's tasks alone. [default: system where allowed]",
            ),
        ],
        only=RECORD,
    ),
    _Option("block_records", BlockRecords),
    _Option(
        "sched",
        Annotated[bool, typer.Option("--sched", help="Record which thread runs on which CPU, too.")],
        default=False,
    ),
    _Option("sample_rate", Sample, parse=parse_rate),
    _Option("force", Force, default=False),
    _Option(
        "keep_spool",
        Annotated[bool, typer.Option("--keep-spool", help="Keep the raw recording, in T/spool.")],
        default=False,
    ),
    _Option(
        "convert",
        Annotated[bool, typer.Option("--convert/--no-convert", help="Convert now, or later by `lo2io convert`.")],
        default=True,
    ),
    _Option(
        "quiet",
        Annotated[bool, typer.Option("-q", "--quiet", help="Print only errors and the line on completeness.")],
        default=False,
    ),
    _Option("as_json", Json, default=False),
)
"""The options in the order of the commands' help."""
_PARSE = {option.name: option.parse for option in _OPTIONS if option.parse}


def _takes(command: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a function the options of a command as its parameters, which Typer reads from its signature."""
    options = [option for option in _OPTIONS if option.only in {None, command}]

    def give(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.Signature(
            [
                inspect.Parameter(
                    option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=option.declared
                )
                for option in options
            ]
        )
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return give


@_takes(RECORD)
def record(*, quiet: bool, as_json: bool, **given: Any) -> None:
    """Record the I/O of a command, or of running processes.

    All their threads and children are recorded, too.
    """
    _record(_request(given), quiet=quiet, as_json=as_json)


@_takes(SYSTEM_WIDE)
def system_wide(
    *,
    all_cpus: bool,  # noqa: ARG001 - perf has this option; this command always does so
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Record the I/O of the whole machine.

    Recording ends with Ctrl-C, SIGTERM, after --duration, or when CMD ends.
    """
    _record(_request(given, system=True), quiet=quiet, as_json=as_json)


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


def _record(request: RecordRequest, *, quiet: bool, as_json: bool) -> None:
    """Record, then report the result."""
    from lo2io import pipeline

    line = status_line(quiet=quiet)
    recorded = pipeline.record(
        request,
        say(quiet=quiet, line=line),
        progress_bar,
        say(quiet=False, line=line),
        line.show if line else None,
        meanwhile=(lambda: None) if quiet else import_summary,
    )
    if recorded.converted and (as_json or not quiet):
        print_summary(recorded.converted.trace, as_json=as_json, to_stdout=as_json)
    if recorded.converted and quiet:
        print_completeness(recorded.converted)
    raise typer.Exit(recorded.exit_code)
