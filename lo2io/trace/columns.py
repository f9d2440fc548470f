"""The columns of the tables beside the trace: names, types, units and descriptions.

Names and types are those of ``lo2io/native/api/columns.h``; ``docs/reference/tables.md`` says the same for readers in
other languages. The tables of rings are in ``ring_columns.py``, the reader in ``reader.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.model import Columns


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, type, unit and description.

    ``null`` is the value that means unknown. ``labels`` names the codes of a dictionary-encoded column: ``"calls"``
    stands for the recorded system calls, ``"opcodes"`` for io_uring's opcodes, ``"reasons"`` for reasons of waits,
    ``"fuse_opcodes"`` for those of FUSE; all are known once the trace is.
    ``kind`` is ``number``, ``text`` (an offset and a length into the batch's text), ``bytes`` (the same, for text that
    is not UTF-8) or ``string`` (a list).
    """

    name: str
    dtype: str
    unit: str
    text: str
    null: int | None = None
    labels: tuple[str, ...] | str | None = None
    kind: str = "number"
    is_time: bool = False
    """A point in time on the trace's clock."""

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type. Codes have signed indices, because pandas refuses unsigned ones."""
        if self.kind in ("text", "string"):
            return pa.utf8()
        if self.kind == "bytes":
            return pa.binary()
        if self.labels is not None:
            return pa.dictionary(pa.from_numpy_dtype(np.dtype(self.index_dtype)), pa.utf8())
        return pa.bool_() if self.dtype == "bool" else pa.from_numpy_dtype(np.dtype(self.dtype))

    @property
    def index_dtype(self) -> str:
        """The signed type as wide as the codes. Opcodes go up to 255 and need the next wider type."""
        return "int16" if self.labels in {"opcodes", "fuse_opcodes"} else self.dtype.removeprefix("u")

    def unknown(self, rows: int) -> NDArray[Any]:
        """An array of this length in which each value is unknown."""
        return np.full(rows, self.null, self.index_dtype if self.labels else self.dtype)

    @property
    def nullable(self) -> bool:
        """True if the column can hold an unknown value."""
        return self.null is not None or self.kind in ("text", "bytes", "string")


def time_column(name: str, text: str, *, known: bool = False) -> Column:
    """A point in time on the trace's clock."""
    return Column(name, "int64", "ns", text, None if known else UNKNOWN_I64, is_time=True)


def size_column(name: str, text: str) -> Column:
    """A number of bytes, or an offset in bytes."""
    return Column(name, "int64", "B", text, UNKNOWN_I64)


def reference(name: str, text: str) -> Column:
    """A row of another table, or another number that may be unknown."""
    return Column(name, "uint32", "", text, UNKNOWN_U32)


def number_of(name: str, text: str) -> Column:
    """A number that is always known."""
    return Column(name, "uint32", "", text)


STATUS: Final = ("completed", "in flight", "merged")
REQUEST_STATUS: Final = (*STATUS, "inferred", "end unknown")
"""For a request without a completion: ``inferred`` if something proves that the request ended, else ``end unknown``."""
END_PROOF: Final = ("none", "call", "ring request", "later request")
WRITE_REASON: Final = (
    "none", "other", "background", "vmscan", "sync", "periodic", "laptop timer", "fs free space", "forker thread",
    "foreign flush",
)  # fmt: skip
"""The kernel's ``enum wb_reason``, numbered as in ``records.h``."""
OFFSET_SOURCE: Final = ("unknown", "explicit", "followed", "kernel")
ORIGIN: Final = (
    "opened",
    "duplicated",
    "inherited",
    "open before the trace",
    "appeared unseen",
    "opened by a ring",
    "registered with a ring",
)
NAME_SOURCE: Final = ("unknown", "proc", "call", "kernel")
REQUEST_OPERATION: Final = ("read", "write", "flush", "discard", "secure erase", "write zeroes", "zone", "other")
THREAD_KIND: Final = ("thread", "ring worker", "ring poller")
UNKNOWN_REASON: Final = 1
"""``LO2_WAIT_UNKNOWN``"""
OFF_STATE: Final = ("preempted", "waiting for a device", "blocked", "sleeping")
CACHE_VERDICT: Final = ("no read", "unknown", "none", "memory", "hit", "wait", "miss")
FILL_REASON: Final = ("demand", "ahead", "write", "advice", "metadata", "no call", "other")

CACHE_COLUMNS: Final = (
    Column("cache", "uint8", "", "what a read found in the page cache", labels=CACHE_VERDICT),
    reference("cache_missed_pages", "pages of the read that it put into the page cache; null: not known, or no read"),
    reference("cache_ahead_pages", "other pages of the file that it put there; null: as before"),
    Column("cache_wait_ns", "int64", "ns", "its waits for I/O; null: as before", UNKNOWN_I64),
)
OPERATIONS: Final = (
    Column("id", "uint64", "", "unique in the trace; the OTF2 matching id of the operation"),
    time_column("begin_time_ns", "entry of the call", known=True),
    time_column("end_time_ns", "exit of the call; null: in flight"),
    reference("task", "row of threads"),
    reference("pid", "process"),
    reference("tid", "thread"),
    Column("call", "uint16", "", "system call, by the name programmers know", labels="calls"),
    Column("status", "uint8", "", "how it ended", labels=STATUS[:2]),
    Column("offset_source", "uint8", "", "where the offset comes from", labels=OFFSET_SOURCE),
    Column("first_use", "uint8", "", "bit 0, 1: first appearance of handle, of handle2, never seen opened"),
    Column("closes", "bool", "", "the handle ended with this call"),
    Column("cpu", "uint16", "", "CPU at entry"),
    reference("handle", "row of handles: the fd's"),
    reference("handle2", "row of handles: the new one of a dup, the written one of a copy"),
    Column("fd", "int32", "", "fd argument, or the fd an open returned", -1),
    Column("flags", "uint32", "", "open flags, whence, fcntl or ioctl command, mode, as given; 0: none"),
    size_column("offset_bytes", "file offset; of a seek the requested one"),
    size_column("bytes_request", "bytes asked for; of truncate the new length, of fallocate and its like the range's"),
    size_column("bytes_result", "bytes moved; null: failed, or the call moves none"),
    Column("result", "int64", "", "return value as it was", UNKNOWN_I64),
    Column("error", "int16", "errno", "errno; 0: success"),
    *CACHE_COLUMNS,
    Column("run_queue_ns", "int64", "ns", "of its duration: ready to run, without a CPU; null: not known", UNKNOWN_I64),
    Column("blocked_ns", "int64", "ns", "of its duration: it waited; on a CPU the rest; null: not known", UNKNOWN_I64),
)
HANDLES: Final = (
    number_of("handle", "what operations refer to"),
    reference("process", "process instance that holds it, as in threads"),
    reference("task", "row of threads: opened it, or first used it"),
    Column("fd", "int32", "", "its number; null: registered with a ring", -1),
    Column("origin", "uint8", "", "how it came to be", labels=ORIGIN),
    Column("name_source", "uint8", "", "who proved the name", labels=NAME_SOURCE),
    Column("close_on_exec", "bool", "", "close-on-exec bit at its end"),
    Column("used", "bool", "", "some operation names it"),
    reference("parent", "row of handles it was duplicated or inherited from"),
    reference("description", "open file description: shared by duplicates"),
    reference("file", "row of files; null: unnamed"),
    reference("open_flags", "O_*"),
    time_column("open_time_ns", "null: before the trace, or unseen"),
    time_column("close_time_ns", "null: open at the end"),
)
FILES: Final = (
    number_of("file", "what handles refer to"),
    Column("mode", "uint32", "", "st_mode", 0),
    Column("device", "uint64", "", "st_dev, as stat(2) gives it", 0),
    Column("inode", "uint64", "", "st_ino", 0),
    Column("generation", "int64", "", "of the inode, where the kernel's own programs told", UNKNOWN_I64),
    reference("links", "st_nlink when it was first seen, where they told; 0: no name is left"),
    reference("mount", "mount id, as in the metadata's mounts"),
    Column("name_source", "uint8", "", "who proved the name", labels=NAME_SOURCE),
    Column("path", "", "", "path; bytes that are not UTF-8 stand as \\xNN", kind="text"),
    Column("path_bytes", "", "", "the exact bytes, where path could not hold them", kind="bytes"),
)
PATHS: Final = (
    Column("operation", "uint64", "", "id of the call, in operations"),
    Column("place", "uint8", "", "0: the call's first path, 1: its second"),
    Column("source", "uint8", "", "who read it; unknown: it could not be read", labels=NAME_SOURCE),
    Column("path", "", "", "as the call was given it; bytes that are not UTF-8 stand as \\xNN", kind="text"),
    Column("path_bytes", "", "", "the exact bytes, where path could not hold them", kind="bytes"),
    Column("directory", "", "", "where it starts: what it is relative to, else the thread's root", kind="text"),
    Column("directory_bytes", "", "", "the exact bytes, where directory could not hold them", kind="bytes"),
)
THREADS: Final = (
    number_of("task", "what operations refer to: one instance of a thread"),
    number_of("process", "one instance of a process: pids are used again"),
    reference("pid", "process id"),
    reference("tid", "thread id"),
    reference("ppid", "process id of the parent"),
    reference("parent_process", "process instance of the parent; null: not recorded"),
    Column("comm", "", "", "last name it bore", kind="text"),
    Column("cgroup", "", "", "last cgroup of its process, as the hierarchy of its controllers names it", kind="text"),
    Column("container", "", "", "id of the container, where the cgroup's name holds one", kind="string"),
    Column("cmdline", "", "", "last command line of its process, as for a shell; or its title", kind="text"),
    Column("cmdline_cut", "bool", "", "there is more of it than 4,096 bytes"),
    reference("rank", "of its process in a job, by its environment or its parent's; null: none is known"),
    time_column("start_time_ns", "null: before the trace"),
    time_column("exit_time_ns", "null: alive at the end"),
    Column("kind", "uint8", "", "what it is for, by the name the kernel gave it", labels=THREAD_KIND),
    Column("cpu_ns", "int64", "ns", "time on a CPU, from its birth to its exit", UNKNOWN_I64),
    Column("user_ns", "int64", "ns", "of it in user mode, in the proportion of the kernel's ticks", UNKNOWN_I64),
    Column("system_ns", "int64", "ns", "of it in the kernel", UNKNOWN_I64),
    Column("block_delay_ns", "int64", "ns", "waited for its block requests; null, too: delayacct is off", UNKNOWN_I64),
    Column("major_faults", "int64", "", "page faults that needed I/O", UNKNOWN_I64),
    Column("minor_faults", "int64", "", "page faults that needed none", UNKNOWN_I64),
    Column("voluntary_switches", "int64", "", "times it left its CPU to wait", UNKNOWN_I64),
    Column("involuntary_switches", "int64", "", "times it had to leave its CPU", UNKNOWN_I64),
)
REQUESTS: Final = (
    Column("id", "uint64", "", "unique in the trace, operations included"),
    Column("device", "uint32", "", "kernel dev_t: major << 20 | minor"),
    reference("task", "row of threads that submitted it; null: no recorded thread"),
    reference("tid", "submitter, as the kernel named it"),
    time_column("insert_time_ns", "queued; null: bypassed the scheduler"),
    time_column("issue_time_ns", "last issue to the device"),
    time_column("complete_time_ns", "last completion; null: none was seen"),
    time_column("end_earliest_ns", "of an inferred end: no earlier than that; null: not inferred"),
    time_column("end_latest_ns", "of an inferred end: no later than that; null: not inferred"),
    Column("sector", "uint64", "512 B", "first sector, as issued"),
    size_column("bytes_request", "at its start"),
    size_column("bytes_issued", "after merging; null: never issued"),
    size_column("bytes_result", "sum of completions"),
    Column("error", "int32", "errno", "errno; 0: success"),
    Column("operation", "uint8", "", "what it does", labels=REQUEST_OPERATION),
    Column("status", "uint8", "", "how it ended", labels=REQUEST_STATUS),
    Column("end_proof", "uint8", "", "of an inferred end: what proves it", labels=END_PROOF),
    Column("flags", "uint16", "", "1 preflush, 2 FUA, 4 readahead, 8 sync, 16 metadata"),
    Column("nr_requeues", "uint16", "", "times it went back to the queue"),
    Column("nr_merges", "uint16", "", "queued requests it absorbed"),
    Column("nr_completions", "uint16", "", "completions, partial ones included"),
    Column("ring_request", "uint64", "", "id in ring_requests of what caused it, where that is proven", 0),
    Column("reason", "uint8", "", "why a worker wrote pages back; null: no worker did, or not known", 0, WRITE_REASON),
)
OFF_CPU: Final = (
    Column("operation", "uint64", "", "id of the call, in operations; null: not known", 0),
    reference("task", "row of threads"),
    time_column("begin_time_ns", "it lost its CPU", known=True),
    time_column("end_time_ns", "it had one again, or its call ended; null: not seen"),
    Column("state", "uint8", "", "why", labels=OFF_STATE),
    time_column("wake_time_ns", "somebody let it run again; null: not seen, or not recorded"),
    Column("reason", "uint8", "", "what it waited for", labels="reasons"),
    reference("waker", "row of threads: who ran where it was woken; null: not recorded, or not seen"),
    reference("waker_tid", "tid of the same; 0: the idle thread; null: not seen"),
    reference("stack", "row of kernel_stacks; null: none was taken"),
    reference("holder", "row of threads: who had the lock when the wait began; null: no lock, or not recorded"),
    reference("holder_tid", "tid of the same; null: no lock, or not known"),
    Column("lock_inode", "uint64", "", "the inode whose lock it is; null: no lock, or another one", 0),
    Column("lock_device", "uint64", "", "its device: kernel dev_t", 0),
    Column("request", "uint64", "", "of a worker of io_uring: id in ring_requests; null: a call's, or not known", 0),
)
KERNEL_STACKS: Final = (
    number_of("stack", "what off_cpu refers to"),
    Column("reason", "uint8", "", "what a thread waits for there", labels="reasons"),
    Column("functions", "", "", "of the kernel, the outermost first, with ; between them", kind="string"),
)
LOSSES: Final = (
    number_of("cpu", "CPU whose buffer was full"),
    time_column("begin_time_ns", "perf: last record before the gap; programs: the first entry or exit lost"),
    time_column("end_time_ns", "perf: first record after it; programs: the last entry or exit lost"),
    Column("lost", "uint64", "", "perf: records lost in it; programs: entries and exits"),
)
DEVICES: Final = (
    Column("device", "uint32", "", "kernel dev_t: major << 20 | minor"),
    Column("name", "", "", "disk or partition", kind="string"),
    Column("scheduler", "", "", "I/O scheduler", kind="string"),
    Column("rotational", "uint8", "", "1: spinning", 255),
    size_column("size_bytes", "capacity"),
    Column("model", "", "", "model", kind="string"),
)
_PAGES: Final = (
    time_column("time_ns", "the first page", known=True),
    reference("task", "row of threads; null: not recorded"),
    reference("tid", "thread"),
    Column("cause", "uint64", "", "id in operations or ring_requests: in which it happened; null: in none", 0),
    Column("device", "uint64", "", "s_dev, major << 20 | minor; of a block device's own pages that device"),
    Column("inode", "uint64", "", "of a block device 0"),
    reference("file", "row of files; null: not known"),
    Column("first_page", "uint64", "pages", "place in the file"),
    number_of("pages", "how many, one after the other"),
    number_of("page_bytes", "size of a page"),
)
FILLS: Final = (
    *_PAGES,
    Column("why", "uint8", "", "what they were for", labels=FILL_REASON),
    reference("used_pages", "of them, read by calls or requests; null: not known"),
    Column(
        "first_use", "uint64", "", "id in operations or ring_requests: read them first; null: none, or not known", 0
    ),
)
EVICTIONS: Final = _PAGES
PART_KIND: Final = ("unknown", "file", "metadata", "journal", "anonymous", "swap", "flush", "discard", "zeroes")
REQUEST_PARTS: Final = (
    Column("request", "uint64", "", "id in requests"),
    Column("number", "uint16", "", "place among the request's parts"),
    Column("kind", "uint8", "", "what it carries", labels=PART_KIND),
    Column("direct", "bool", "", "direct I/O"),
    Column("cut", "bool", "", "the request has further parts, which are not known"),
    Column("sector", "uint64", "512 B", "first sector on the disk"),
    Column("bytes", "uint32", "B", "size"),
    Column("device", "uint64", "", "s_dev, major << 20 | minor; of a disk's own pages that disk; 0: not known"),
    Column("inode", "uint64", "", "0: none, or not known"),
    Column("generation", "int64", "", "of the inode", UNKNOWN_I64),
    reference("file", "row of files; null: not known"),
    size_column("offset_bytes", "in the file, or on the device where the bytes belong; null: not known"),
    Column("inner_device", "uint64", "", "of a loop device's direct I/O: the file whose pages these are; 0: none"),
    Column("inner_inode", "uint64", "", "the same file's inode"),
)
CHARGED: Final = ("unknown", "dirtied", "direct")
WRITE_BACKS: Final = (
    Column("request", "uint64", "", "id in requests; null: no request has written these pages", 0),
    Column("number", "uint16", "", "place of the part among the request's parts"),
    Column("charged", "uint8", "", "how the thread is known", labels=CHARGED),
    reference("task", "row of threads; null: not recorded, or unknown"),
    reference("tid", "thread; null: unknown"),
    Column("device", "uint64", "", "s_dev, major << 20 | minor; of a disk's own pages that disk"),
    Column("inode", "uint64", "", "0: none"),
    reference("file", "row of files; null: not known"),
    size_column("offset_bytes", "in the file; null: not known"),
    Column("bytes", "uint64", "B", "size"),
    time_column("call_begin_ns", "start of the thread's call that dirtied or wrote them; null: in no recorded call"),
    time_column("first_dirtied_ns", "the first of these pages became dirty; null: direct, or not known"),
    time_column("last_dirtied_ns", "the last of them did"),
    time_column("issue_time_ns", "the request went to the device; null: there is none"),
    time_column("complete_time_ns", "the request ended; null: not seen, or there is none"),
)
COMMITS: Final = (
    Column("device", "uint32", "", "of the file system: s_dev, major << 20 | minor"),
    Column("transaction", "uint32", "", "its number; the numbers of a journal follow one another"),
    number_of("tid", "journal's thread"),
    time_column("begin_time_ns", "the commit began; null: not seen, as for the next four"),
    time_column("locking_time_ns", "it begins to wait for the calls that still change the transaction"),
    time_column("flushing_time_ns", "it begins to send the data of files that must be on the disk first"),
    time_column("logging_time_ns", "it begins to write the log; waits for data and log, and flushes the disk"),
    time_column("end_time_ns", "all is on the disk"),
)
FAULTS: Final = (
    Column("operation", "uint64", "", "id in operations; null: inside a call, or its start is not known", 0),
    Column("inside", "bool", "", "the thread was inside a recorded call"),
    reference("task", "row of threads"),
    number_of("tid", "thread"),
    time_column("begin_time_ns", "first look for the page; null: not known"),
    time_column("end_time_ns", "the page was there", known=True),
    Column("address", "uint64", "", "that the thread touched"),
    Column("device", "uint64", "", "s_dev, major << 20 | minor; 0: not known"),
    Column("inode", "uint64", "", "0: none, or not known"),
    Column("generation", "int64", "", "of the inode", UNKNOWN_I64),
    reference("file", "row of files; null: not known"),
    size_column("offset_bytes", "of the page in the file; null: the file is not known"),
    Column("run_queue_ns", "int64", "ns", "of its time: ready to run, without a CPU; null: not known", UNKNOWN_I64),
    Column("blocked_ns", "int64", "ns", "of its time: waited; null: not known", UNKNOWN_I64),
    Column("filled_pages", "uint32", "", "of the file, that it put into the page cache; null: not known", UNKNOWN_U32),
    Column("request", "uint64", "", "id of the block request that read the page for it; null: none, or not known", 0),
)
FUSE_REQUESTS: Final = (
    number_of("connection", "of the file system: s_dev, major << 20 | minor"),
    Column("unique", "uint64", "", "number of the request among those of its connection, as the server sees it"),
    Column("opcode", "uint8", "", "what it asks the server for", labels="fuse_opcodes"),
    Column("operation", "uint64", "", "id of the call that sent it, in operations; null: none, or not known", 0),
    reference("task", "row of threads: who sent it"),
    number_of("tid", "thread"),
    time_column("begin_time_ns", "it was sent", known=True),
    time_column("end_time_ns", "it had ended; null: in flight"),
    Column("bytes_sent", "int64", "B", "size of the message, with its header"),
    size_column("bytes_replied", "size of the reply, with its header; null: in flight"),
    Column("error", "int32", "errno", "errno; 0: success, or in flight"),
)
CALL_STACKS: Final = (
    Column("operation", "uint64", "", "id of the call, in operations"),
    reference("stack", "its frames in stacks; null: nothing is known of it"),
)
FUTEXES: Final = (
    Column("operation", "uint64", "", "id of the call, in operations"),
    Column("address", "uint64", "", "of the futex, in the memory of the calling process"),
)
STACKS: Final = (
    number_of("stack", "what call_stacks refers to"),
    Column("frame", "uint16", "", "0: the innermost one, whose function made the call; each is called by the next"),
    Column("build_id", "", "", "of the frame's file, hexadecimal; empty: not known", kind="string"),
    Column("offset", "uint64", "", "of the return address in the file; of an unknown file: the address"),
    Column("file", "", "", "path of a file with this build id; empty: none was found", kind="string"),
    Column(
        "function",
        "",
        "",
        "by the file's own symbols, or by what the program wrote of code that it made; empty: not known",
        kind="string",
    ),
    Column("way", "uint8", "", "how the frame was found", labels=("frame pointers", "unwind tables")),
    Column(
        "end",
        "uint8",
        "",
        "of the whole stack: nothing tells what else there is; its outermost function is there; its rest lacks",
        labels=("unknown", "whole", "cut"),
    ),
)
CLOCK_READINGS: Final = (
    Column("monotonic_ns", "int64", "ns", "CLOCK_MONOTONIC in the middle of the reading"),
    Column("raw_ns", "int64", "ns", "CLOCK_MONOTONIC_RAW: no NTP turns it", UNKNOWN_I64),
    Column("realtime_ns", "int64", "ns", "CLOCK_REALTIME", UNKNOWN_I64),
    Column("tai_ns", "int64", "ns", "CLOCK_TAI; often nobody has set it, and it is CLOCK_REALTIME", UNKNOWN_I64),
    Column("width_ns", "int64", "ns", "these clocks were read within this time"),
    Column("tsc_ns", "int64", "ns", "CLOCK_MONOTONIC when tsc was read; null: no counter", UNKNOWN_I64),
    Column("tsc", "uint64", "", "the processor's counter: TSC, or CNTVCT of Arm; null: no counter", 0),
    Column("max_error_us", "int64", "us", "of CLOCK_REALTIME, by adjtimex(2); null: not known", UNKNOWN_I64),
    Column("estimated_error_us", "int64", "us", "the same, as estimated; null: not known", UNKNOWN_I64),
    Column("is_synchronised", "bool", "", "NTP, PTP or the like sets CLOCK_REALTIME"),
)
COMPLETENESS: Final = (
    Column("event", "", "", "tracepoint", kind="string"),
    number_of("cpu", "CPU"),
    Column("count", "int64", "", "counted by the kernel; null: not known", UNKNOWN_I64),
    Column("lost", "int64", "", "lost, as the kernel reported"),
    Column("samples", "int64", "", "samples read"),
    Column("slack", "int64", "", "the true count is at most count + slack: it was read while events went on"),
    Column("vanished", "int64", "", "count - lost - samples, where that is positive"),
)


def latest_end(requests: Columns) -> NDArray[np.int64]:
    """The time at which each block request had ended at the latest.

    This is the completion's time, else the latest time of an inferred end. Without either the time is unknown.
    """
    seen: NDArray[np.int64] = requests["complete_time_ns"]
    return np.where(seen == UNKNOWN_I64, requests["end_latest_ns"], seen)
