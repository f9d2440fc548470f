"""The command line: options in, exit code out. No logic: each command hands its options to the stage that knows.

Stages are imported when a command needs them, so that ``lo2io --help`` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lo2io._version import __version__
from lo2io.errors import Lo2ioError

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(
    name="lo2io",
    help="Record what programs do with their storage through perf events, and write it as an OTF2 trace.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
tracepoints_app = typer.Typer(
    help="What each tracepoint means to lo2io, and whether this kernel agrees.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(tracepoints_app, name="tracepoints")

COMMAND_LINE = {"allow_interspersed_args": False}
"""Options after the command to record are the command's."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a trace that is there.")]
Events = Annotated[
    list[str] | None,
    typer.Option(
        "-e",
        "--events",
        metavar="EVENTS",
        help="Groups, calls or tracepoints, separated by commas; +NAME adds to the default, -NAME takes away. "
        "`lo2io tracepoints list` names them.",
    ),
]
TraceArgument = Annotated[Path, typer.Argument(metavar="T", help="Directory of the trace.")]


def _version(*, value: bool) -> None:
    if value:
        typer.echo(f"lo2io {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(
    context_settings=COMMAND_LINE,
    epilog=(
        "Examples: `lo2io record -o T -- dd if=/dev/zero of=f bs=1M count=64 conv=fsync` | "
        "`lo2io record -p 1234 -e syscalls` (Ctrl-C ends it, the process goes on)"
    ),
)
def record(
    command: Annotated[list[str] | None, typer.Argument(metavar="[--] CMD…", help="What to run and record.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="T", help="Directory of the trace. [default: lo2io-CMD-TIME]"),
    ] = None,
    pids: Annotated[
        list[int] | None,
        typer.Option("-p", "--pid", metavar="PID", help="Record a running process; repeat for several."),
    ] = None,
    events: Events = None,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="NAME", help="Run CMD as this user. [default: under sudo, who called it]"),
    ] = None,
    ring: Annotated[
        str | None, typer.Option("--ring", metavar="SIZE", help="Ring buffer of each CPU, e.g. 8MiB.")
    ] = None,
    opener: Annotated[
        str | None, typer.Option("--opener", help="How events are opened: python-perf or native.")
    ] = None,
    scope: Annotated[
        str | None,
        typer.Option(
            "--scope", help="system: every CPU, descendants picked when converting; inherit: only CMD's tasks."
        ),
    ] = None,
    force: Force = False,
    keep_spool: Annotated[
        bool, typer.Option("--keep-spool", help="Keep what the kernel delivered, in T/spool.")
    ] = False,
    convert: Annotated[
        bool, typer.Option("--convert/--no-convert", help="Convert now, or leave it to `lo2io convert`.")
    ] = True,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Print nothing but errors and the completeness.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run CMD, or watch running processes, and record the I/O of all their threads and children."""
    from lo2io import pipeline

    request = pipeline.RecordRequest(
        command=tuple(command or ()),
        pids=tuple(pids or ()),
        output=output,
        events=tuple(events or ()),
        user=user,
        ring_bytes=_size(ring),
        opener=opener,
        scope=scope,
        force=force,
        keep_spool=keep_spool,
        convert=convert,
    )
    recorded = pipeline.record(request, _say(quiet=quiet), _progress, _say(quiet=False))
    if recorded.converted and (as_json or not quiet):
        _summary(recorded.converted.trace, as_json=as_json, to_stdout=as_json)
    if recorded.converted and quiet:
        print(_completeness_line(recorded.converted.completeness), file=sys.stderr)
    raise typer.Exit(recorded.exit_code)


@app.command(epilog="Examples: `lo2io convert T/spool -o T` | `lo2io convert /mnt/spool -o /tmp/T --force`")
def convert(
    spool: Annotated[Path, typer.Argument(metavar="SPOOL", help="Directory that `lo2io record` left.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="T", help="Directory of the trace.")],
    force: Force = False,
) -> None:
    """Turn a recorded spool into an OTF2 trace. Needs no root, and not the machine that recorded it."""
    from lo2io import pipeline

    with _progress(spool) as progress:
        converted = pipeline.convert(spool, output, force=force, progress=progress)
    print(output)
    print(_completeness_line(converted.completeness), file=sys.stderr)


@app.command(epilog="Examples: `lo2io report T` | `lo2io report T --json | jq .calls`")
def report(trace: TraceArgument, as_json: Json = False) -> None:
    """Say what happened: totals, processes, files, devices, latencies, losses."""
    _summary(trace, as_json=as_json, to_stdout=True)


@app.command(epilog="Examples: `lo2io verify T` | `lo2io verify T --json`")
def verify(trace: TraceArgument, as_json: Json = False) -> None:
    """Check any OTF2 trace against the rules for I/O, and whether its recording is proven complete."""
    from lo2io import verify as rules

    found = rules.verify(trace)
    print(rules.render(found, rules.read_completeness(trace), json=as_json))
    raise typer.Exit(rules.exit_code(found))


@app.command(epilog="Examples: `lo2io doctor` | `lo2io doctor --json`")
def doctor(as_json: Json = False) -> None:
    """Say whether recording can work here, and for each lack the least that helps."""
    from lo2io.catalog import load_catalog
    from lo2io.reports import doctor as report_doctor

    diagnosis = report_doctor.diagnose(load_catalog())
    print(report_doctor.to_json(diagnosis) if as_json else report_doctor.render(diagnosis))
    raise typer.Exit(diagnosis.exit_code)


@tracepoints_app.command(
    "list", epilog="Examples: `lo2io tracepoints list` | `lo2io tracepoints list -e +metadata --json`"
)
def tracepoints_list(events: Events = None, as_json: Json = False) -> None:
    """List calls and tracepoints by group; `*` marks what is recorded by default."""
    from lo2io.catalog import load_catalog
    from lo2io.reports import tracepoints

    print(tracepoints.render_list(load_catalog(), tuple(events or ()), json=as_json))


@tracepoints_app.command("show", epilog="Examples: `lo2io tracepoints show pread64` | `lo2io tracepoints show block`")
def tracepoints_show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A group, a call or a tracepoint.")], as_json: Json = False
) -> None:
    """Say what a tracepoint's fields mean."""
    from lo2io.catalog import load_catalog
    from lo2io.reports import tracepoints

    print(tracepoints.render_show(load_catalog(), name, json=as_json))


@tracepoints_app.command("check", epilog="Examples: `lo2io tracepoints check` | `lo2io tracepoints check --json`")
def tracepoints_check(as_json: Json = False) -> None:
    """Compare what lo2io believes of each tracepoint with the running kernel's formats."""
    from lo2io.catalog import load_catalog
    from lo2io.kernel.tracefs import find_tracefs
    from lo2io.reports import tracepoints

    findings = tracepoints.check(load_catalog(), find_tracefs())
    print(tracepoints.render_check(findings, json=as_json))
    raise typer.Exit(1 if any(finding.is_error for finding in findings) else 0)


# ---- messages ----


def _say(*, quiet: bool) -> Callable[[str], None]:
    def say(message: str) -> None:
        if not quiet:
            print(f"lo2io: {message}", file=sys.stderr)

    return say


def _size(text: str | None) -> int | None:
    from lo2io.units import parse_bytes

    return None if text is None else parse_bytes(text)


def _summary(trace: Path, *, as_json: bool, to_stdout: bool) -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in the pipeline: threads that nothing uses

    from lo2io.reports import summary
    from lo2io.tables import open_trace

    found = summary.summarize(open_trace(trace))
    if as_json:
        print(summary.to_json(found))
    else:
        from lo2io.reports.page import report_console

        summary.render(found, report_console(sys.stdout if to_stdout else sys.stderr))


def _completeness_line(proof: Any) -> str:
    from lo2io.reports.losses import completeness_line

    return completeness_line(proof)


def _progress(spool: Path) -> Any:
    from lo2io.reports.progress import conversion_progress

    return conversion_progress(spool)


def main() -> None:
    """Entry point: the one place where errors become messages and exit codes."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        app()
    except Lo2ioError as error:
        print(f"lo2io: {error}", file=sys.stderr)
        if error.remedy:
            print(f"       {error.remedy}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
