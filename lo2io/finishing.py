"""The second half of a recording: from its spool to its trace.

In: a spool and its recording's request. Out: the trace, and the exit code. This module imports nothing that records, so
the process that stands by is ready sooner.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
from typing import TYPE_CHECKING, Any

from lo2io.capture.options import Converter
from lo2io.cluster.layout import host_of
from lo2io.convert.convert import convert_folder, import_stages
from lo2io.errors import Lo2ioError, TraceError
from lo2io.frozen import dataclass
from lo2io.signals import interrupt_number, interrupted_by_signals
from lo2io.trace.names import ANCHOR, SPOOL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lo2io.capture.options import RecordRequest
    from lo2io.convert.convert import Converted
    from lo2io.folder import Folder


@dataclass(frozen=True, slots=True)
class Recorded:
    """The result of a recording: the command's exit code, and the trace, unless converting was put off or failed."""

    exit_code: int
    directory: Path
    converted: Converted | None
    host: str = ""
    """This node's name, as one of a job's nodes; empty: the recording is no part of a job."""


def finish(
    request: RecordRequest,
    exit_code: int,
    spool: Folder,
    trace: Folder,
    *,
    say: Callable[[str], None],
    progress: Callable[[Path], Any],
    prepare: Callable[[], None] = import_stages,
) -> Recorded:
    """Convert. If that fails, the spool stays, and a message says how to go on.

    The arguments are those of :func:`lo2io.pipeline.record`.
    """
    directory = trace.path
    if not request.convert:
        say(f"spool kept: convert it with `{convert_command(directory)}`")
        return Recorded(exit_code, directory, None)
    try:
        with interrupted_by_signals(), progress(spool.place) as advance:
            prepare()
            output = contextlib.nullcontext(trace)
            converted = convert_folder(spool, output, progress=advance, block_records=request.block_records)
    except KeyboardInterrupt as interrupt:
        number = interrupt_number(interrupt)
        if trace.is_file(ANCHOR):
            say(f"interrupted when the trace was whole; the spool is kept, too: {directory / SPOOL}")
        else:
            say(f"converting given up; the spool is kept: `{convert_command(directory)}`")
        return Recorded(exit_code or 128 + number, directory, None)
    except Lo2ioError as error:
        say(f"{error}{'; ' if error.remedy else ''}{error.remedy}")
        say(f"the spool is kept: `{convert_command(directory)}`")
        return Recorded(exit_code or error.exit_code, directory, None)
    except Exception:
        say(f"converting failed; the spool is kept: `{convert_command(directory)}`")
        raise
    if trouble := keep_sums(directory):
        say(trouble)
    if not request.keep_spool:
        try:
            spool.discard()
        except KeyboardInterrupt:  # the trace is complete, and half a spool beside it would be of no use
            spool.discard()
    return Recorded(exit_code, directory, converted)


def converter(block_records: str | None = None) -> Converter:
    """Make the command `lo2io convert` for the windows of a flight recorder.

    Args:
        block_records: One of :data:`~lo2io.model.trace.BLOCK_RECORDS`; None: the default of the spool's mode.
    """
    options = () if block_records is None else ("--block-records", block_records)

    def arguments(spool: Path, trace: Path) -> list[str]:
        return ["convert", str(spool), "-o", str(trace), *options]

    return Converter(
        run=lambda spool, trace: [sys.executable, "-P", "-m", "lo2io", *arguments(spool, trace)],
        show=lambda spool, trace: shlex.join(["lo2io", *arguments(spool, trace)]),
    )


def convert_command(directory: Path) -> str:
    """The command that makes a trace of the spool in this directory, as the user would type it."""
    return converter().show(directory / SPOOL, directory)


def keep_sums(trace: Path) -> str:
    """Write the sums of a trace that lies in the folder of a node: the report of all nodes adds them up.

    Returns:
        A message, if they cannot be written; empty: all is well, or the trace is of no node.
    """
    if host_of(trace.name) is None:
        return ""
    from lo2io.cluster.sums import write_sums  # noqa: PLC0415 - only nodes of a job need it

    try:
        write_sums(trace)
    except TraceError as error:
        return f"{error}; `lo2io report` reads the tables instead"
    return ""
