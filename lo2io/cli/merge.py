"""`lo2io merge`: one archive of the traces of many nodes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lo2io.errors import UsageError
from lo2io.rights import confine
from lo2io.signals import ended_by_signals

if TYPE_CHECKING:
    from lo2io.cluster.application import Request

Recording = Annotated[Path, typer.Argument(metavar="T", help="Directory of a recording on many nodes: T/host=NAME.")]


With = Annotated[
    Path | None,
    typer.Option(
        "--with", metavar="ARCHIVE", help="The application's own OTF2 archive, as of Score-P, becomes a part."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="DIRECTORY",
        help="Where the archive goes; else T, or T/merged of one machine's trace.",
    ),
]
Clock = Annotated[
    str | None,
    typer.Option(
        "--clock",
        help="The clock of the application's archive: monotonic, raw, realtime, tai or tsc. With calls, lo2io finds "
        "the offset by calls that both recorded.",
    ),
]
Offset = Annotated[
    float | None, typer.Option("--offset", metavar="SECONDS", help="What to add to the application's times.")
]
Keep = Annotated[bool, typer.Option("--keep-corrections", help="Align no clocks: use T/host=NAME/lo2io/clock.arrow.")]

Flat = Annotated[
    bool,
    typer.Option(
        "--flatten", help="Rewrite all events, for readers that know neither mapping tables nor offsets of clocks."
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        "--executor",
        metavar="HOW",
        help="Who shares the work: mpi, as mpirun and srun imply, or processes, one for each CPU.",
    ),
]


def merge(
    recording: Recording,
    application: With = None,
    output: Output = None,
    clock: Clock = None,
    offset: Offset = None,
    keep_corrections: Keep = False,
    executor: By = None,
    flat: Flat = False,
) -> None:
    """Make one OTF2 archive of the traces of many nodes.

    The archive is T/traces.otf2. Events stay in the nodes' traces and are linked, not copied. Nodes without a whole
    trace are left out, and named. After a further node was recorded, merge again. With --with, the application's own
    archive becomes a part, also of one machine's trace.
    """
    from lo2io.cli.progress import share_progress
    from lo2io.cluster.executors import shared
    from lo2io.cluster.merge import merge as merge_nodes
    from lo2io.cluster.merge import output_of

    request = _request(application, clock, offset)
    place = output or output_of(recording)
    read = [application if application.is_dir() else application.parent] if application else []
    with ended_by_signals(), shared(executor) as share:
        if share is None:  # another rank tells what was merged
            return
        if not share.by_messages:  # MPI has files of its own, in folders of its own
            confine([recording, *read], [recording, _existing(place)])
        with share_progress("merging") as progress:
            merged = merge_nodes(
                recording,
                lambda done, of: progress(done / of),
                keep_corrections=keep_corrections,
                request=request,
                output=place,
                share=share,
                flat=flat,
            )
    print(place)
    locations, events = (sum(host[name] for host in merged.hosts) for name in ("locations", "events"))
    print(f"lo2io: {len(merged.hosts):,} hosts, {locations:,} locations, {events:,} events", file=sys.stderr)
    for host, reason in merged.left_out.items():
        print(f"lo2io: left out {host}: {reason}", file=sys.stderr)
    errors = [host["error_ns"] for host in merged.hosts]
    methods = ", ".join(dict.fromkeys(host["clock"] for host in merged.hosts))
    doubt = "an unknown error" if None in errors else f"{max(errors) / 1e3:,.1f} µs"
    print(f"lo2io: clocks: {methods}; times are right within {doubt}", file=sys.stderr)
    if merged.application is not None:
        _say_application(merged.application)
    for notice in merged.notices:
        print(f"lo2io: {notice}", file=sys.stderr)


def _existing(place: Path) -> Path:
    """The folder, or the nearest one above it that exists, in which it will be made."""
    return next(folder for folder in (place, *place.absolute().parents) if folder.is_dir())


def _request(application: Path | None, clock: str | None, offset: float | None) -> Request | None:
    from lo2io.cluster.application import Request
    from lo2io.cluster.bridging import BY_CALLS, CLOCKS

    if application is None:
        if clock is not None or offset is not None:
            raise UsageError("merge", "--clock and --offset are of an application's archive", "name it with --with")
        return None
    if clock is not None and offset is not None:
        raise UsageError("merge", "--clock and --offset exclude each other", "name one of them")
    if clock is not None and clock not in {*CLOCKS, BY_CALLS}:
        raise UsageError("merge", f"there is no clock {clock!r}", f"name one of {', '.join(CLOCKS)}, {BY_CALLS}")
    return Request(application, clock, offset)


def _say_application(found: dict[str, Any]) -> None:
    error = "an unknown error" if found["error_ns"] is None else f"{found['error_ns'] / 1e3:,.1f} µs"
    print(
        f"lo2io: the application: {found['locations']:,} locations, {found['events']:,} events, "
        f"{found['joined']:,} of {found['processes']:,} processes joined, "
        f"{found['joined_threads']:,} of {found['threads']:,} threads",
        file=sys.stderr,
    )
    print(f"lo2io: its clock: {found['clock']}; its times are right within {error}", file=sys.stderr)
