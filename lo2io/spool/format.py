r"""``spool.json``: magic, version, and :class:`lo2io.model.SpoolMeta` to JSON and back.

The file is ASCII. Bytes of paths that are not UTF-8 are lone surrogates in Python strings (``surrogateescape``), which
JSON keeps as ``\udcXX``. So no byte is lost.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from functools import cache
from typing import TYPE_CHECKING, Any

from lo2io.errors import SpoolError
from lo2io.frozen import dataclass
from lo2io.model import ClockSync, Misses, SpoolMeta
from lo2io.units import MAX_RATE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAGIC = "lo2io-spool"
VERSION = 3
"""Grows when an older reader would misread the spool. Further keys do not count. Since 2, calls may lie in files of
their own, which a reader of version 1 would overlook. Since 3, events of tracepoints may, too."""
META_NAME = "spool.json"
FACTS_NAME = "facts.ring"
CLOCKS_NAME = "clocks.readings"
"""Readings of the machine's clocks, each a ``lo2_clock_reading`` of lo2io/native/api/capture.h."""
SEGMENT_NAME = "segment.json"
NEW_META_NAME = "spool.json.new"
"""The new ``spool.json`` while it is being written."""
RESERVE_NAME = ".reserve"
"""Space put aside for the last ``spool.json``."""
CONTROL_NAME = ".control"
"""The socket at which a flight recorder takes requests for its window."""
RECORD_ENDINGS = _RING, _CALLS, _EVENTS = (".ring", ".calls", ".events")
"""Endings of each CPU's files."""
BACKENDS = ("perf", "bpf")
MODES = ("process", "system")
MAX_CPUS = 1 << 16
"""More than any kernel's NR_CPUS."""
MAX_STACKS = 1 << 16
"""More kernel stacks than the programs in the kernel tell apart (``LO2_MAX_STACKS``)."""
MAX_TIME_NS = 1 << 62
"""Sums and differences of two times below this bound fit into 64 bits."""
SEGMENT_PATTERN = re.compile(r"seg-\d{6,}")
_RECORDS = rf"cpu-\d{{4,}}({'|'.join(map(re.escape, RECORD_ENDINGS))})|{re.escape(FACTS_NAME)}"
_OTHERS = (META_NAME, NEW_META_NAME, RESERVE_NAME, CONTROL_NAME, CLOCKS_NAME)
FILE_PATTERN = re.compile("|".join((_RECORDS, *map(re.escape, _OTHERS))))
"""Names of a spool's files. lo2io removes a spool only if it holds no other files, except segments."""
SEGMENT_FILE_PATTERN = re.compile(f"{_RECORDS}|{re.escape(SEGMENT_NAME)}")
"""Names of files in a segment of a flight recorder's spool."""
ANY_SEGMENT_PATTERN = re.compile(rf"\.?{SEGMENT_PATTERN.pattern}")
"""Names of segments. A name begins with a dot while its segment is being made or removed."""
MAX_META_BYTES = 256 << 20
"""The largest ``spool.json`` that is read. Counts of many events on a large machine take some MB."""


def ring_name(cpu: int) -> str:
    """The file of one CPU's perf buffer: ``cpu-0003.ring``."""
    return f"cpu-{cpu:04}{_RING}"


def kernel_name(cpu: int) -> str:
    """The file of the calls and facts that lo2io's programs in the kernel wrote on one CPU: ``cpu-0003.calls``."""
    return f"cpu-{cpu:04}{_CALLS}"


def events_name(cpu: int) -> str:
    """The file of the events of tracepoints that these programs wrote on one CPU: ``cpu-0003.events``."""
    return f"cpu-{cpu:04}{_EVENTS}"


def segment_name(number: int) -> str:
    """The folder of a segment: ``seg-000003``."""
    return f"seg-{number:06}"


@dataclass(frozen=True, slots=True)
class SegmentStart:
    """The content of ``segment.json``: the start of a spool that was cut off while this segment was its oldest."""

    start_ns: int
    """Begin on the spool's clock."""
    syncs: tuple[ClockSync, ...]


def dump_segment_start(start: SegmentStart) -> bytes:
    """The content of ``segment.json``."""
    return (json.dumps(dataclasses.asdict(start), indent=1) + "\n").encode("ascii")


def parse_segment_start(content: bytes, name: str = SEGMENT_NAME) -> SegmentStart:
    """Read ``segment.json``'s content.

    Raises:
        SpoolError: The content has another form.
    """
    try:
        start: SegmentStart = _read(SegmentStart, json.loads(content), "")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SpoolError(f"read {name}", str(error), "record again; this spool cannot be read") from error
    return start


def dump_meta(meta: SpoolMeta) -> bytes:
    """The content of ``spool.json``: one key a line."""
    version = VERSION if meta.has_event_files else 2 if meta.has_kernel_records else 1
    return dump_document({"magic": MAGIC, "version": version, **members(meta)})


def dump_document(document: Mapping[str, Any]) -> bytes:
    """An object of JSON, one key a line. Dataclasses are objects, too."""
    # Python's encoder in C takes no indentation, and the other one is far slower.
    lines = (f' "{key}": {json.dumps(value, default=members)}' for key, value in document.items())
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode("ascii")


def members(value: Any) -> dict[str, Any]:
    """Field → value of a dataclass."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def parse_meta(content: bytes, name: str = META_NAME) -> SpoolMeta:
    """Read ``spool.json``'s content. Unknown keys are ignored.

    Raises:
        SpoolError: The content is no spool's, or a newer version wrote it, or a value is missing or of the wrong kind.
    """
    tried = f"read {name}"
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SpoolError(tried, f"no JSON: {error}", "record again; this spool cannot be read") from error
    if not isinstance(document, dict) or document.get("magic") != MAGIC:
        raise SpoolError(
            tried, f'no "magic": "{MAGIC}"', "name a spool: T/spool, if --keep-spool or --no-convert left it"
        )
    version = document.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise SpoolError(tried, f"version {version!r} is none", "record again; this spool cannot be read")
    if version > VERSION:
        raise SpoolError(
            tried,
            f"the spool has version {version}, but this lo2io reads versions up to {VERSION}",
            "convert the spool with the lo2io that recorded it, or with a newer one",
        )
    try:
        meta: SpoolMeta = _read(SpoolMeta, document, "")
    except (ValueError, TypeError, KeyError) as error:
        raise SpoolError(tried, str(error), "record again; this spool cannot be read") from error
    return _checked(meta, tried)


def _checked(meta: SpoolMeta, tried: str) -> SpoolMeta:
    """Return the metadata, after a check that lengths agree and values are in their range."""
    problem = next((text for wrong, text in (*_wrong_lengths(meta), *_wrong_values(meta)) if wrong), "")
    if problem:
        raise SpoolError(tried, problem, "record again; this spool cannot be read")
    return meta


def _wrong_lengths(meta: SpoolMeta) -> Iterator[tuple[bool, str]]:
    nr_cpus = len(meta.cpus)
    yield len(meta.formats) != len(meta.events), f"{len(meta.events)} events and {len(meta.formats)} formats"
    alone = len({cpu.cpu for cpu in meta.cpus}) == nr_cpus
    yield not alone or any(cpu.cpu < 0 for cpu in meta.cpus), "a CPU stands twice or is negative"
    rows = [row for c in meta.counts for row in (c.counts, c.lost) if row is not None]
    yield any(len(row) != nr_cpus for row in rows), "counts for other than the spool's CPUs"
    slack = [c.slack for c in meta.counts if c.slack is not None]
    yield any(len(row) != nr_cpus for row in slack), "slack for other than the spool's CPUs"


def _wrong_values(meta: SpoolMeta) -> Iterator[tuple[bool, str]]:
    yield not 1 <= meta.sample_rate <= MAX_RATE, f"one in {meta.sample_rate} is no share"
    pids = (meta.recorder_pid, *meta.own_pids, *meta.roots)
    yield any(not 0 <= pid < 1 << 32 for pid in pids), "a process id is none"
    yield meta.mode not in MODES, f"the mode {meta.mode!r} is none"
    numbers = [number for d in meta.devices for number in (d.device, d.disk or 0)]
    numbers += [mount.id for mount in meta.mounts]
    yield any(not 0 <= number < 1 << 32 for number in numbers), "the number of a device or mount is none"
    yield any(mount.device < 0 for mount in meta.mounts), "the number of a device is negative"
    amounts = [n for d in meta.devices for n in (d.size_bytes or 0, d.start_sector or 0)]
    amounts += [n for c in meta.counts for row in (c.counts, c.lost, c.slack) for n in row or ()]
    yield any(amount < 0 for amount in (*amounts, meta.ring_bytes, meta.nr_bytes or 0)), "a size or count is negative"
    yield any(cpu.cpu >= MAX_CPUS for cpu in meta.cpus), f"a CPU's number is {MAX_CPUS} or more"
    times = [time for time in (meta.start_ns, meta.stop_ns, meta.recording_start_ns) if time is not None]
    yield any(abs(time) > MAX_TIME_NS for time in times), "a time is more than 146 years away"
    yield any(sync.error_ns < 0 for sync in meta.syncs), "the error of a clock is negative"
    yield any(not 0 <= stack.stack < MAX_STACKS for stack in meta.kernel_stacks), "the number of a kernel stack is none"
    yield (
        any(not 0 <= stack.stack < MAX_STACKS for stack in meta.user_stacks),
        "the number of a program's stack is none",
    )
    yield meta.slow_from_ns < 0 or meta.slow_one_of < 1, "no call can be as slow as said"
    uneven = any(len(stack.build_ids) != len(stack.offsets) or stack.beside < 0 for stack in meta.user_stacks)
    yield uneven, "a program's stack has other frames than files"
    offsets = [offset for stack in meta.user_stacks for offset in stack.offsets]
    yield any(offset < 0 for offset in offsets), "the offset of a frame is negative"
    names = [name in {"", ".", ".."} or "/" in name or "\0" in name for name in meta.segments]
    yield any(names), "a segment is no folder of the spool"
    yield meta.backend not in BACKENDS, f"calls were recorded by {meta.backend!r}"
    other_clock = meta.has_kernel_records and meta.clock != "monotonic"
    yield other_clock, f"the kernel's own programs tell CLOCK_MONOTONIC, and samples the clock {meta.clock!r}"
    missing = (getattr(meta, name) for name in Misses._fields)
    yield min(missing) < 0, "a number of calls or records is negative"
    absent = [time for each in meta.absences for time in (each.begin_ns, each.end_ns) if time is not None]
    yield any(abs(time) > MAX_TIME_NS for time in absent), "a time is more than 146 years away"


def _check_plain(value: Any, where: str) -> None:
    """Refuse a number beyond 64 bits with sign, and text that no bytes of a path can be."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{where}: {value} does not fit into 64 bits")
    if isinstance(value, str):
        try:
            value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise ValueError(f"{where}: a lone surrogate at {error.start}") from error
        if "\0" in value:
            raise ValueError(f"{where}: a zero byte in a text")


@cache
def _hints(kind: type) -> tuple[tuple[str, Any, bool], ...]:
    """Name and annotation of each member, and True if the member is required."""
    hints = typing.get_type_hints(kind)
    return tuple(
        (field.name, hints[field.name], field.default is dataclasses.MISSING) for field in dataclasses.fields(kind)
    )


def _read(hint: Any, value: Any, where: str) -> Any:
    """``value`` as the annotation's type. Values are not converted: another type is an error."""
    if type(value) is hint:
        _check_plain(value, where)
        return value
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        if not isinstance(value, list):
            raise ValueError(f"{where}: no list")
        if item is int and all(type(each) is int for each in value):  # numbers of a machine's CPUs: many
            _check_plain(min(value, default=0), where)
            _check_plain(max(value, default=0), where)
            return tuple(value)
        return tuple(_read(item, each, f"{where}[{index}]") for index, each in enumerate(value))
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        (inner,) = (arg for arg in typing.get_args(hint) if arg is not types.NoneType)
        return _read(inner, value, where)
    if dataclasses.is_dataclass(hint):
        return _read_dataclass(hint, value, where)
    raise ValueError(f"{where}: {type(value).__name__} instead of {hint.__name__}")


def _read_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where or 'the document'}: no object")  # noqa: TRY004 - one kind of error for bad input
    arguments = {}
    for name, hint, is_needed in _hints(kind):
        if name in value:
            arguments[name] = _read(hint, value[name], f"{where}.{name}")
        elif is_needed:
            raise ValueError(f"{where}.{name} is missing")
    return kind(**arguments)
