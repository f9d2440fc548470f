"""The file ``perf.data``: header, events, and the sections of its *features*.

In: a spool's metadata, and records from ``records.py``. Out: one file that ``perf`` reads. The layout is that of
tools/perf/Documentation/perf.data-file-format.txt; for tracing data, of tools/perf/util/trace-event-info.c (both Linux
6.18).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from lo2io._version import __version__
from lo2io.kernel import abi
from lo2io.kernel.tracefs import parse_format

if TYPE_CHECKING:
    from lo2io.model import SpoolMeta

MAGIC: Final = b"PERFILE2"
SAMPLE_TID, SAMPLE_CPU, SAMPLE_IDENTIFIER = 1 << 1, 1 << 7, 1 << 16
"""Bits of ``sample_type`` that samples of a spool do not have (include/uapi/linux/perf_event.h)."""
SAMPLE_TYPE: Final = abi.SAMPLE_TYPE | SAMPLE_TID | SAMPLE_CPU | SAMPLE_IDENTIFIER
_CLOCKS: Final = {"monotonic": 1, "monotonic_raw": 4}
"""Clock's name in a spool → clockid_t (include/uapi/linux/time.h). Other clocks are perf's own."""
_HEADER: Final = struct.Struct("<8sQQQQQQQQ32s")
_SECTION: Final = struct.Struct("<QQ")
_ATTR_BYTES: Final = 112
_NR_FEATURE_BITS: Final = 256
_NAME_ALIGN: Final = 64
TRACING_DATA, HOSTNAME, OSRELEASE, VERSION, ARCH, NRCPUS, CPUDESC, CPUID, CMDLINE = 1, 3, 4, 5, 6, 7, 8, 9, 11
EVENT_DESC, SAMPLE_TIME, CLOCKID, CLOCK_DATA = 12, 21, 23, 29
"""``HEADER_*`` of tools/perf/util/header.h."""
_TRACING_MAGIC: Final = b"\x17\x08\x44tracing"
_TRACING_VERSION: Final = b"0.6\0"
_PAGE_BYTES: Final = 4096


class PerfDataFile:
    """Writes one file: first the events, then records as they come, at the end the header and the features.

    Args:
        file: An empty file, open for writing.
        meta: The recording's metadata.
    """

    def __init__(self, file: BinaryIO, meta: SpoolMeta) -> None:
        self.formats = tuple(parse_format(text) for text in meta.formats)
        """The format of each event. An event's id in the file is its place, counted from 1. The last id is a
        dummy's."""
        self._file = file
        self._meta = meta
        self._attrs = [_attr(meta, event.id) for event in self.formats] + [_attr(meta, None)]
        ids = b"".join(struct.pack("<Q", number) for number in range(1, len(self._attrs) + 1))
        self._attrs_at = _HEADER.size + len(ids)
        self._attrs_size = len(self._attrs) * (_ATTR_BYTES + _SECTION.size)
        self._data_at = self._attrs_at + self._attrs_size
        file.write(bytes(_HEADER.size) + ids)
        file.writelines(attr + _SECTION.pack(_HEADER.size + 8 * place, 8) for place, attr in enumerate(self._attrs))

    @property
    def dummy_id(self) -> int:
        """The id of the dummy event, which records about tasks belong to."""
        return len(self._attrs)

    def close(self, first_ns: int, last_ns: int) -> None:
        """Write the sections after the records, and the header.

        Args:
            first_ns: Time of the first sample.
            last_ns: Time of the last sample.
        """
        data_size = self._file.tell() - self._data_at
        features = dict(sorted(self._features(first_ns, last_ns).items()))
        table_at = self._file.tell()
        place = table_at + _SECTION.size * len(features)
        for content in features.values():
            self._file.write(_SECTION.pack(place, len(content)))
            place += len(content)
        for content in features.values():
            self._file.write(content)
        bits = sum(1 << number for number in features).to_bytes(_NR_FEATURE_BITS // 8, "little")
        sections = (self._attrs_at, self._attrs_size, self._data_at, data_size, 0, 0)
        self._file.seek(0)
        self._file.write(_HEADER.pack(MAGIC, _HEADER.size, _ATTR_BYTES + _SECTION.size, *sections, bits))

    def _features(self, first_ns: int, last_ns: int) -> dict[int, bytes]:
        meta = self._meta
        names = [*meta.events, "dummy:HG"]
        described = b"".join(
            attr + struct.pack("<I", 1) + _string(name) + struct.pack("<Q", place + 1)
            for place, (attr, name) in enumerate(zip(self._attrs, names, strict=True))
        )
        nr_cpus = max((cpu.cpu for cpu in meta.cpus), default=0) + 1
        command = ("lo2io", "record", "--", *meta.command) if meta.command else ("lo2io", "system-wide", "-a")
        found = {
            TRACING_DATA: _tracing_data(meta),
            HOSTNAME: _string(meta.hostname),
            OSRELEASE: _string(meta.kernel),
            VERSION: _string(f"lo2io {__version__}"),
            ARCH: _string(meta.machine),
            NRCPUS: struct.pack("<II", nr_cpus, len(meta.cpus)),
            CPUDESC: _string("unknown"),  # `perf data convert --to-json` (6.1) crashes without this feature
            CPUID: _string("unknown"),
            CMDLINE: struct.pack("<I", len(command)) + b"".join(map(_string, command)),
            EVENT_DESC: struct.pack("<II", len(names), _ATTR_BYTES) + described,
            SAMPLE_TIME: struct.pack("<qq", first_ns, last_ns),
        }
        if meta.clock in _CLOCKS:
            found[CLOCKID] = struct.pack("<Q", 1)
        if meta.clock == "monotonic" and meta.syncs:
            sync = meta.syncs[0]
            times = (sync.realtime_ns, sync.monotonic_ns)
            found[CLOCK_DATA] = struct.pack("<IIQQ", 1, _CLOCKS[meta.clock], *times)
        return found


def _attr(meta: SpoolMeta, tracepoint: int | None) -> bytes:
    """``struct perf_event_attr`` of the tracepoint with this number; None: of the dummy, for names and births."""
    attr = abi.EventAttr(size=_ATTR_BYTES, sample_period=1, sample_type=SAMPLE_TYPE, read_format=abi.FORMAT_ID)
    attr.type, attr.config = (abi.TYPE_TRACEPOINT, tracepoint) if tracepoint is not None else (abi.TYPE_SOFTWARE, 9)
    attr.flags = abi.SAMPLE_ID_ALL | (abi.COMM | abi.TASK | abi.COMM_EXEC if tracepoint is None else 0)
    if meta.clock in _CLOCKS:
        attr.flags |= abi.USE_CLOCKID
        attr.clockid = _CLOCKS[meta.clock]
    return bytes(attr)


def _string(text: str) -> bytes:
    """Length, text and zero bytes up to a multiple of 64 (``do_write_string``, tools/perf/util/header.c)."""
    content = text.encode(errors="surrogateescape") + b"\0"
    padded = content + bytes(-len(content) % _NAME_ALIGN)
    return struct.pack("<I", len(padded)) + padded


def _tracing_data(meta: SpoolMeta) -> bytes:
    """The formats, in the form of ``trace.dat``. With them perf shows every field."""
    systems: dict[str, list[bytes]] = {}
    for name, text in zip(meta.events, meta.formats, strict=True):
        systems.setdefault(name.partition(":")[0], []).append(text.encode())
    page = meta.header_page.encode()
    parts: list[Any] = [_TRACING_MAGIC, _TRACING_VERSION, struct.pack("<BBI", 0, 8, _PAGE_BYTES)]
    parts += [b"header_page\0", struct.pack("<Q", len(page)), page, b"header_event\0", struct.pack("<Q", 0)]
    parts.append(struct.pack("<II", 0, len(systems)))  # no formats of ftrace's own
    for system, texts in systems.items():
        parts += [system.encode() + b"\0", struct.pack("<I", len(texts))]
        parts += [struct.pack("<Q", len(text)) + text for text in texts]
    parts.append(struct.pack("<IIQ", 0, 0, 0))  # no addresses of functions, no texts of printk, no names of threads
    return b"".join(parts)
