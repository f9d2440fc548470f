"""The commands as Typer has them. Each only hands its options to a stage.

Stages are imported when a command needs them, so that ``lo2io --help`` answers at once.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lo2io._version import __version__
from lo2io.cli.clocks import clocks
from lo2io.cli.declared import parse_rate
from lo2io.cli.diff import diff
from lo2io.cli.export import export
from lo2io.cli.merge import merge
from lo2io.cli.messages import print_completeness, progress_bar
from lo2io.cli.options import BlockRecords, Events, Filter, Force, Json, Sample, TraceArgument, option
from lo2io.cli.query import query
from lo2io.cli.record import RECORD, SYSTEM_WIDE, options_of, run
from lo2io.cli.replay import replay
from lo2io.cli.report import report
from lo2io.cli.top import top
from lo2io.cli.why import why

if TYPE_CHECKING:
    from collections.abc import Callable

    from lo2io.cli.declared import Declared

app = typer.Typer(
    name="lo2io",
    help="Record the storage I/O of programs as the kernel sees it, and write an OTF2 trace.",
    no_args_is_help=True,
    suggest_commands=False,  # click suggests commands already; typer would repeat that
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
tracepoints_app = typer.Typer(
    help="Show what each tracepoint means to lo2io.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(tracepoints_app, name="tracepoints")

COMMAND_LINE = {"allow_interspersed_args": False}
"""Options after the recorded command belong to that command."""


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


def _takes(command: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a function the options of a command as its parameters, which Typer reads from its signature."""

    def annotation(of: Declared) -> Any:
        return Annotated[of.type if of.type is bool else of.type | None, option(of)]

    def give(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.Signature(
            [
                inspect.Parameter(
                    each.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=each.default,
                    annotation=annotation(each.declared),
                )
                for each in options_of(command)
            ]
        )
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return give


@app.command(
    context_settings=COMMAND_LINE,
    epilog=(
        "Examples: `lo2io record -o T -- dd if=/dev/zero of=f bs=1M count=64 conv=fsync` | "
        "`lo2io record -p 1234 -e syscalls` (Ctrl-C ends it, the process goes on)"
    ),
)
@_takes(RECORD)
def record(**given: Any) -> None:
    """Record the I/O of a command, or of running processes.

    All their threads and children are recorded, too.
    """
    raise typer.Exit(run(RECORD, given))


@app.command(
    SYSTEM_WIDE,
    context_settings=COMMAND_LINE,
    epilog=(
        "Examples: `lo2io system-wide -a -o T --duration 30s` | "
        "`lo2io system-wide -a -e block --cpus 0-3 -- make -j4` (ends when make does)"
    ),
)
@_takes(SYSTEM_WIDE)
def system_wide(**given: Any) -> None:
    """Record the I/O of the whole machine.

    Recording ends with Ctrl-C, SIGTERM, after --duration, or when CMD ends.
    """
    raise typer.Exit(run(SYSTEM_WIDE, given))


app.command(epilog="Examples: `sudo lo2io top` | `sudo lo2io top --by file -d 2s -n 1 | cat`")(top)


@app.command(epilog="Examples: `lo2io convert T/spool -o T` | `lo2io convert /mnt/spool -o /tmp/T --force`")
def convert(
    spool: Annotated[Path, typer.Argument(metavar="SPOOL", help="Directory that a recording left.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="T", help="Directory of the trace.")],
    filters: Filter = None,
    block_records: BlockRecords = None,
    sample: Sample = None,
    force: Force = False,
) -> None:
    """Turn a recorded spool into an OTF2 trace.

    Any machine and any user can do this.
    """
    from lo2io.convert.convert import convert as convert_spool
    from lo2io.finishing import keep_sums
    from lo2io.signals import ended_by_signals

    with ended_by_signals(), progress_bar(spool) as progress:
        converted = convert_spool(
            spool,
            output,
            force=force,
            progress=progress,
            filters=tuple(filters or ()),
            block_records=block_records,
            sample_rate=parse_rate(sample),
        )
        if trouble := keep_sums(output):
            print(f"lo2io: {trouble}", file=sys.stderr)
    print(output)
    print_completeness(converted)


app.command(
    epilog="Examples: `srun --ntasks-per-node=1 lo2io clocks -o T` | `mpirun --map-by ppr:1:node lo2io clocks -o T`"
)(clocks)


@app.command(epilog="Examples: `lo2io dump T` | `sudo lo2io dump /var/lib/lo2io/T`")
def dump(trace: TraceArgument) -> None:
    """Write what a running flight recorder keeps as a trace.

    A flight recorder is a recording with --last or --max-size. The recording goes on.
    """
    from lo2io import pipeline

    print(pipeline.dump(trace))


app.command(
    epilog="Examples: `lo2io report T --filter 'latency > 10ms' --from 2s --to 5s` | "
    "`lo2io report T --html T.html --open` | `lo2io report T --json | jq '.calls[] | [.name, .share]'`"
)(report)

app.command(
    epilog="Examples: `lo2io why T` | `lo2io why T --file '/data/**' --slowest 1` | `lo2io why T --call 12345`"
)(why)
app.command(
    epilog="Examples: `lo2io diff before after` | `lo2io diff before after --filter \"path ~ '/data/**'\" --json`"
)(diff)
app.command(
    epilog="Examples: `lo2io export T --to parquet -o tables` | `lo2io export T --to csv -O tables=operations:files`"
)(export)
app.command(
    epilog='Examples: `lo2io query T "select path, sum(bytes_result) from calls group by path order by 2 desc"` | '
    "`lo2io query T --to csv - < slow.sql > slow.csv`"
)(query)
app.command(
    epilog="Examples: `lo2io merge T` | `mpirun -n 4 lo2io merge T` | `lo2io merge T --flatten -o flat` | "
    "`lo2io merge T --with scorep-run/traces.otf2`"
)(merge)
app.command(epilog="Examples: `lo2io replay T --on /mnt/scratch` | `lo2io replay T --on /dev/sdx --by device`")(replay)


@app.command(epilog="Examples: `lo2io verify T` | `lo2io verify T --json`")
def verify(trace: TraceArgument, as_json: Json = False) -> None:
    """Check any OTF2 trace against the rules for I/O.

    For a trace of lo2io, also tell whether its recording is proven complete.
    """
    from lo2io import verify as rules
    from lo2io.rights import confine

    confine([trace])
    found = rules.verify(trace)
    print(rules.render(found, rules.read_completeness(trace), *rules.read_reconciliation(trace), json=as_json))
    raise typer.Exit(rules.exit_code(found))


@app.command(epilog="Examples: `lo2io doctor` | `srun --ntasks-per-node=1 lo2io doctor`")
def doctor(as_json: Json = False) -> None:
    """Check whether recording can work, here or on many nodes.

    For each problem, name the least change that helps. Started on several nodes by srun or mpirun, one rank prints one
    table of all. Without mpi4py, each rank prints its own.
    """
    from lo2io.catalog.catalog import load_catalog
    from lo2io.cluster.diagnosis import gather_diagnoses
    from lo2io.cluster.mpi import is_of_many
    from lo2io.errors import UsageError
    from lo2io.reports.doctor import nodes as report_nodes
    from lo2io.reports.doctor import report as report_doctor

    diagnosis = report_doctor.diagnose(load_catalog())
    if is_of_many():
        to_text = report_nodes.to_json if as_json else report_nodes.render
        try:
            code = gather_diagnoses(diagnosis, lambda hosts: print(to_text(hosts), flush=True))
        except UsageError as error:
            print(f"lo2io: {error}; {error.remedy}", file=sys.stderr)
        else:
            raise typer.Exit(code)
    print(report_doctor.to_json(diagnosis) if as_json else report_doctor.render(diagnosis))
    raise typer.Exit(diagnosis.exit_code)


@tracepoints_app.command(
    "list", epilog="Examples: `lo2io tracepoints list` | `lo2io tracepoints list -e +metadata --json`"
)
def tracepoints_list(events: Events = None, as_json: Json = False) -> None:
    """List calls and tracepoints by group; `*` marks those recorded by default."""
    from lo2io.catalog.catalog import load_catalog
    from lo2io.reports import tracepoints

    print(tracepoints.render_list(load_catalog(), tuple(events or ()), json=as_json))


@tracepoints_app.command("show", epilog="Examples: `lo2io tracepoints show pread64` | `lo2io tracepoints show opcodes`")
def tracepoints_show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A group, call, tracepoint, opcode, or `opcodes`.")],
    as_json: Json = False,
) -> None:
    """Say what a tracepoint's fields mean, or what an opcode of io_uring does."""
    from lo2io.catalog.catalog import load_catalog
    from lo2io.reports import tracepoints

    print(tracepoints.render_show(load_catalog(), name, json=as_json))


@tracepoints_app.command("check", epilog="Examples: `lo2io tracepoints check` | `lo2io tracepoints check --json`")
def tracepoints_check(as_json: Json = False) -> None:
    """Compare lo2io's description of each tracepoint with the running kernel's formats."""
    from lo2io.catalog.catalog import load_catalog
    from lo2io.kernel.tracefs import find_tracefs
    from lo2io.reports import tracepoints

    findings = tracepoints.check(load_catalog(), find_tracefs())
    print(tracepoints.render_check(findings, json=as_json))
    raise typer.Exit(1 if any(finding.is_error for finding in findings) else 0)
