"""`lo2io replay`: a recorded workload once more, by fio."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lo2io.cli.options import Filter, Json, SpanBegin, SpanEnd, TraceArgument
from lo2io.libraries import prepare_libraries
from lo2io.signals import ended_by_signals


class By(StrEnum):
    """The unit of the trace that one job of fio repeats."""

    PROCESS = "process"
    THREAD = "thread"
    DEVICE = "device"


On = Annotated[
    Path | None,
    typer.Option(
        "--on", metavar="PLACE", help="A folder for new files, or a scratch disk. All data on the disk is lost."
    ),
]
InPlace = Annotated[
    bool,
    typer.Option("--in-place", help="Use the original files or disks. The replay overwrites them as the trace does."),
]
Copy = Annotated[bool, typer.Option("--copy", help="With a folder: start from copies of the original files.")]
ByOption = Annotated[
    By, typer.Option("--by", help="Run a job for each process or thread; or for each device, with its block requests.")
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Leave out the pauses of the original.")]
Engine = Annotated[
    str | None,
    typer.Option("--engine", metavar="NAME", help="fio's ioengine. [default: psync; libaio for devices]"),
]
Depth = Annotated[
    int | None,
    typer.Option("--depth", metavar="N", min=1, help="fio's iodepth. [default: 1; 64 for devices]"),
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the logs, fio's job file, and the files that were made.")]


def replay(
    trace: TraceArgument,
    on: On = None,
    in_place: InPlace = False,
    copy: Copy = False,
    by: ByOption = By.THREAD,
    no_wait: NoWait = False,
    engine: Engine = None,
    depth: Depth = None,
    keep: Keep = False,
    filters: Filter = None,
    begin: SpanBegin = None,
    until: SpanEnd = None,
    as_json: Json = False,
) -> None:
    """Repeat a trace's I/O on other files or on a disk, with fio.

    Operations, offsets and sizes are those of the trace.
    """
    prepare_libraries()

    from lo2io.exports.fio import replay as replaying
    from lo2io.trace.reader import open_trace
    from lo2io.trace.selection.selection import select

    options = replaying.ReplayOptions(on, in_place, copy, by.value, not no_wait, engine, depth, keep)
    with ended_by_signals():  # so that the new files are removed
        opened = select(open_trace(trace), filters or (), begin=begin, end=until)
        left = replaying.replay(opened, options, lambda text: print(f"lo2io: {text}", file=sys.stderr), as_json=as_json)
    if left is not None:
        print(f"lo2io: left in {left}", file=sys.stderr)
