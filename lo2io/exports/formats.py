"""The formats there are, and how one is written.

A format is a module with a function ``export(trace, target, progress, **options) -> ExportSummary``. It writes to
``target``, which :func:`lo2io.exports.target.open_output` gives its name afterwards: a file it makes, or a folder that
is there and empty. It reads the trace batch by batch, and says how far it is through ``progress`` (0 to 1). Its module
is imported when it is asked for.
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
    """What it may be, the default first. Empty: any text, and an empty one by default."""
    text: str


@dataclass(frozen=True, slots=True)
class Format:
    """One way to write a trace."""

    module: str
    text: str
    suffix: str
    """Of the default name, with its dot."""
    folder: bool = False
    """It is a folder of files."""
    magic: bytes = b""
    """What its file begins with."""
    options: tuple[Option, ...] = ()
    without_tables: str = ""
    """Why an archive without lo2io's tables cannot become this format; empty: it can."""
    counted_twice: str = ""
    """Why an archive that has operations twice cannot become this format; empty: it can."""


_TABLES = Option("tables", (), "which tables, separated by colons; without it all: tables=operations:files")

FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        "parquet": Format(
            "lo2io.exports.tables.parquet",
            "a folder of Parquet files, one a table, for DuckDB, Polars, pandas",
            ".parquet",
            folder=True,
            options=(_TABLES, Option("compression", ("zstd", "snappy", "none"), "of the columns")),
        ),
        "csv": Format(
            "lo2io.exports.tables.csv",
            "a folder of CSV files, one a table",
            ".csv",
            folder=True,
            options=(_TABLES,),
        ),
        "perfetto": Format(
            "lo2io.exports.perfetto.export",
            "a file for ui.perfetto.dev and its trace processor",
            ".pftrace",
            magic=b"\n\x15P\x01h\x01b\x0f\n\r\x08\x80\x80\x80\x80\x08\x12\x05lo2io",
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
            "a folder of I/O logs that `fio --read_iolog` replays, one a process or disk",
            ".iologs",
            folder=True,
            options=(
                Option("by", ("process", "thread", "device"), "whose actions make a log"),
                Option("version", ("3", "2"), "of the logs: 3 with times, 2 without"),
            ),
            counted_twice="a replay would do much of it twice",
        ),
    }
)
"""By the name that ``--to`` takes."""


def find_format(name: str) -> Format:
    """The format of that name.

    Raises:
        UsageError: There is none.
    """
    if name not in FORMATS:
        raise UsageError(f"export to {name!r}", "it is no format", f"formats are {', '.join(FORMATS)}")
    return FORMATS[name]


def check_foreign(name: str, trace: Path, foreign: Mapping[str, Any] | None) -> None:
    """Refuse what would be wrong of another tool's archive.

    Args:
        name: One of ``FORMATS``.
        trace: Named in the error.
        foreign: What the metadata say of such an archive; None: the trace has lo2io's tables.

    Raises:
        TraceError: The format needs what the archive has not.
    """
    if foreign is None:
        return
    found = find_format(name)
    tried, remedy = f"export {trace} to {name}", "take parquet, csv or perfetto, or record with lo2io"
    if found.without_tables:
        raise TraceError(tried, found.without_tables, remedy)
    if found.counted_twice and foreign["twice"]:
        raise TraceError(tried, f"{found.counted_twice}: {foreign['twice']}", remedy)


def read_options(name: str, given: Iterable[str]) -> dict[str, str]:
    """``NAME=VALUE`` of the command line as keyword arguments of the format's ``export``, defaults filled in.

    Raises:
        UsageError: The format has no such option, or the option no such value.
    """
    known = {option.name: option for option in find_format(name).options}
    chosen = {option.name: option.values[0] if option.values else "" for option in known.values()}
    for text in given:
        key, equal, value = text.partition("=")
        if not equal or key not in known:
            remedy = f"it has {', '.join(known)}; write -O NAME=VALUE" if known else "leave it away: it has none"
            raise UsageError(f"export to {name} with {text!r}", "it has no such option", remedy)
        if known[key].values and value not in known[key].values:
            remedy = f"it may be {', '.join(known[key].values)}"
            raise UsageError(f"export to {name} with {text!r}", f"{key} cannot be {value!r}", remedy)
        chosen[key] = value
    return chosen


def export(
    trace: Trace, name: str, target: Path, progress: Progress, *, force: bool = False, options: Iterable[str] = ()
) -> ExportSummary:
    """Write a trace in a format; the target is whole afterwards, or as it was before.

    Args:
        trace: A trace, or what :func:`lo2io.trace.selection.selection.select` made of one.
        name: One of ``FORMATS``.
        target: File or folder.
        progress: Told how far it is.
        force: Replace an export that is there.
        options: ``NAME=VALUE``.

    Raises:
        UsageError: No such format, option or value; or the target must not be replaced, or lies in the trace.
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
