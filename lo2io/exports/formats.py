"""All formats of exports, and the function that writes one.

A format is a module with a function ``export(trace, target, progress, **options) -> ExportSummary``. The function
writes to ``target``: it makes a file, or fills an empty folder. :func:`lo2io.exports.target.open_output` then gives the
target its final name. The function reads the trace batch by batch, and calls ``progress`` with the finished share (0 to
1). A format's module is imported only when the format is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from lo2io.errors import TraceError, UsageError
from lo2io.exports.target import ExportSummary, check_apart, open_output, size_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from lo2io.exports.target import Progress
    from lo2io.trace.reader import Trace


@dataclass(frozen=True, slots=True)
class Option:
    """An option of one format, given as ``-O NAME=VALUE``."""

    name: str
    values: tuple[str, ...]
    """The allowed values, the default first. Empty: any text; the default is the empty text."""
    text: str


@dataclass(frozen=True, slots=True)
class Format:
    """One way to write a trace."""

    module: str
    text: str
    suffix: str
    """The suffix of the default name, with its dot."""
    folder: bool = False
    """True if the export is a folder of files."""
    magic: bytes = b""
    """The first bytes of the format's files."""
    options: tuple[Option, ...] = ()
    without_tables: str = ""
    """Why an archive without lo2io's tables cannot become this format; empty: it can."""
    counted_twice: str = ""
    """Why an archive that has operations twice cannot become this format; empty: it can."""


_TABLES = Option("tables", (), "the tables to write, separated by colons, e.g. tables=operations:files; default: all")

FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        "parquet": Format(
            "lo2io.exports.tables.parquet",
            "a folder of Parquet files, one for each table, for DuckDB, Polars, pandas",
            ".parquet",
            folder=True,
            options=(_TABLES, Option("compression", ("zstd", "snappy", "none"), "compression of the columns")),
        ),
        "csv": Format(
            "lo2io.exports.tables.csv",
            "a folder of CSV files, one for each table",
            ".csv",
            folder=True,
            options=(
                _TABLES,
                Option(
                    "text",
                    ("safe", "raw"),
                    "safe: without control characters, formulas of spreadsheets get an apostrophe; raw: as recorded",
                ),
            ),
        ),
        "perfetto": Format(
            "lo2io.exports.perfetto.export",
            "a file for ui.perfetto.dev and its trace processor",
            ".pftrace",
            magic=b"\n\x15P\x01h\x01b\x0f\n\r\x08\x80\x80\x80\x80\x08\x12\x05lo2io",
        ),
        "firefox": Format(
            "lo2io.exports.firefox",
            "a file for profiler.firefox.com: calls with a stack (`--stacks`), by the functions that led to them",
            ".profile.json",
            magic=b'{"meta":{"product":"lo2io",',
            without_tables="an archive without lo2io's tables has no stacks",
        ),
        "perf-data": Format(
            "lo2io.exports.perf_data.export",
            "the recorded samples, for `perf script` and `perf report`; needs a recording with --keep-spool",
            ".perf.data",
            magic=b"PERFILE2",
            without_tables="an archive without lo2io's tables has no samples",
        ),
        "fio": Format(
            "lo2io.exports.fio.export",
            "a folder of I/O logs for `fio --read_iolog`, one for each process or disk",
            ".iologs",
            folder=True,
            options=(
                Option("by", ("process", "thread", "device"), "write a log for each of these"),
                Option("version", ("3", "2"), "version of the logs: 3 with times, 2 without"),
            ),
            counted_twice="a replay would do much of it twice",
        ),
    }
)
"""Name for ``--to`` → format."""


def find_format(name: str) -> Format:
    """The format of this name.

    Raises:
        UsageError: There is no such format.
    """
    if name not in FORMATS:
        raise UsageError(f"export to {name!r}", "there is no such format", f"formats are {', '.join(FORMATS)}")
    return FORMATS[name]


def check_foreign(name: str, trace: Path, foreign: Mapping[str, Any] | None) -> None:
    """Refuse an export of another tool's archive that would be wrong.

    Args:
        name: One of ``FORMATS``.
        trace: The path for the error's text.
        foreign: The metadata about such an archive; None: the trace has lo2io's tables.

    Raises:
        TraceError: The archive lacks facts that the format needs.
    """
    if foreign is None:
        return
    found = find_format(name)
    tried, remedy = f"export {trace} to {name}", "use parquet, csv or perfetto, or record with lo2io"
    if found.without_tables:
        raise TraceError(tried, found.without_tables, remedy)
    if found.counted_twice and foreign["twice"]:
        raise TraceError(tried, f"{found.counted_twice}: {foreign['twice']}", remedy)


def read_options(name: str, given: Iterable[str]) -> dict[str, str]:
    """Options of the command line (``NAME=VALUE``) as keyword arguments of the format's ``export``, with defaults.

    Raises:
        UsageError: The format has no such option, or the option does not allow the value.
    """
    known = {option.name: option for option in find_format(name).options}
    chosen = {option.name: option.values[0] if option.values else "" for option in known.values()}
    for text in given:
        key, equal, value = text.partition("=")
        if not equal or key not in known:
            remedy = f"options are {', '.join(known)}: write -O NAME=VALUE" if known else "leave -O away"
            answer = f"{name} has no such option" if known else f"{name} has no options"
            raise UsageError(f"export to {name} with {text!r}", answer, remedy)
        if known[key].values and value not in known[key].values:
            remedy = f"allowed values are {', '.join(known[key].values)}"
            raise UsageError(f"export to {name} with {text!r}", f"{key} cannot be {value!r}", remedy)
        chosen[key] = value
    return chosen


def export(
    trace: Trace, name: str, target: Path, progress: Progress, *, force: bool = False, options: Iterable[str] = ()
) -> ExportSummary:
    """Write a trace in a format. Afterwards the target is a whole export, or after an error as it was before.

    Args:
        trace: A trace, or a part from :func:`lo2io.trace.selection.selection.select`.
        name: One of ``FORMATS``.
        target: The file or folder to write.
        progress: Called with the finished share.
        force: Replace an existing export.
        options: ``NAME=VALUE`` each.

    Raises:
        UsageError: The format, option or value does not exist; or the target must not be replaced, or lies in the
            trace.
        TraceError: A table cannot be read.
        Lo2ioError: The target cannot be written.
    """
    found = find_format(name)
    chosen = read_options(name, options)
    check_apart(target, trace.path)
    facts = {
        "to": name,
        "options": chosen,
        "trace": str(trace.path),
        "schema_version": trace.metadata["schema_version"],
    }
    with open_output(target, force=force, folder=found.folder, magic=found.magic, facts=facts) as part:
        summary: ExportSummary = import_module(found.module).export(trace, part, progress, **chosen)
        progress(1.0)
    return replace(summary, size_bytes=size_of(target))
