"""The columns of the tables about io_uring and libaio. docs/explanation/rules/rings.md says what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.native._lib import lib
from lo2io.trace.columns import CACHE_COLUMNS, Column, number_of, reference, size_column, time_column

if TYPE_CHECKING:
    from collections.abc import Mapping

RING_KIND: Final = ("io_uring", "libaio")
RING_STATUS: Final = ("completed", "in flight", "cancelled", "refused", "torn down", "silent", "unseen")
RING_PATH: Final = ("unknown", "inline", "device", "poll", "worker", "refused", "cancelled")
RING_TRAITS: Final = {
    lib.LO2_TRAIT_SQPOLL: "SQPOLL",
    lib.LO2_TRAIT_DRAINED: "drained",
    lib.LO2_TRAIT_HASHED: "hashed",
    lib.LO2_TRAIT_OVERFLOWED: "overflowed",
    lib.LO2_TRAIT_NOTIFIED: "notified",
    lib.LO2_TRAIT_MULTISHOT: "multi-shot",
    lib.LO2_TRAIT_CONTINUED: "continued by a worker",
    lib.LO2_TRAIT_SHORT: "short write",
    lib.LO2_TRAIT_BOUNDED: "bounded worker",
    lib.LO2_TRAIT_UNBOUNDED: "unbounded worker",
    lib.LO2_TRAIT_OLDER: "older than the trace",
}
"""Further facts about a request's path: bits of ``enum lo2_ring_trait``."""
RING_INFERRED: Final = {
    lib.LO2_INFERRED_ISSUE: "issue time",
    lib.LO2_INFERRED_WORKER: "worker",
    lib.LO2_INFERRED_WORK_BEGIN: "begin of work",
    lib.LO2_INFERRED_WORK_END: "end of work",
    lib.LO2_INFERRED_PATH: "path",
    lib.LO2_INFERRED_BOUND: "bounded or not",
    lib.LO2_INFERRED_IDENTITY: "identity",
    lib.LO2_INFERRED_CULPRIT: "culprit",
    lib.LO2_INFERRED_SIZE: "size",
    lib.LO2_INFERRED_END: "end",
}
"""Facts that are inferred, not stated by the kernel: bits of ``enum lo2_ring_inferred``."""


def _bits(words: Mapping[int, str]) -> str:
    return ", ".join(f"{bit} {word}" for bit, word in words.items())


_INFERRED: Final = (
    f"what is inferred, not stated by the kernel: {_bits(RING_INFERRED)}. Identity: which completion is its. Size: "
    "offset and bytes asked for. End: of libaio, the call that collected it returned then; of CQE_SKIP, it had ended "
    "by then"
)


def _duration(name: str, text: str) -> Column:
    return Column(name, "int64", "ns", text, UNKNOWN_I64)


def _request(name: str, text: str) -> Column:
    return Column(name, "uint64", "", text, 0)


RING_REQUESTS: Final = (
    Column("id", "uint64", "", "unique in the trace, operations included; the OTF2 matching id"),
    reference("ring", "row of rings"),
    reference("task", "row of threads that submitted it: the SQ thread with SQPOLL"),
    reference("pid", "its process"),
    reference("tid", "its thread"),
    Column("user_data", "uint64", "", "as the program chose it; libaio: aio_data"),
    Column("opcode", "uint8", "", "what it does; libaio: what does the same in io_uring", labels="opcodes"),
    Column("sqe_flags", "uint8", "", "IOSQE_*; the kernel may have set ASYNC (16), DRAIN (2) behind a drained chain"),
    Column("status", "uint8", "", "how it ended", labels=RING_STATUS),
    Column("path", "uint8", "", "the way it went", labels=RING_PATH),
    Column("traits", "uint16", "", _bits(RING_TRAITS)),
    Column("inferred", "uint16", "", _INFERRED),
    Column("fd", "int32", "", "as given; null: none, a registered file, or not known", -1),
    reference("handle", "row of handles: the fd's when it was looked up, or the registered file's"),
    reference("handle2", "row of handles: the written one of splice and tee"),
    time_column("submit_time_ns", "the kernel took it; null: before the trace"),
    time_column("issue_time_ns", "executed first; null: never, or not known"),
    time_column("punt_time_ns", "last handed to a worker; null: never"),
    time_column("poll_arm_time_ns", "began to wait for its file, the first time; null: never"),
    time_column("wake_time_ns", "its file became ready, the last time; null: never"),
    time_column("work_begin_time_ns", "start of the last execution by a worker"),
    time_column("work_end_time_ns", "its end"),
    time_column(
        "complete_time_ns",
        "last completion, or its overflow; cancelled without one: that moment; libaio: returned by a call",
    ),
    time_column("notify_time_ns", "SEND_ZC: its buffer was free again"),
    time_column("end_before_time_ns", "nobody saw its end, but it had ended by then: of libaio, or with CQE_SKIP"),
    _duration("queued_ns", "from submission to the first execution"),
    _duration("executing_ns", "all executions that are known"),
    _duration("waiting_ns", "the rest until its completion"),
    reference("worker", "row of threads: executed it last"),
    reference("waker", "row of threads: woke it last; null: none, or not recorded"),
    reference("waker_tid", "the thread that woke it last"),
    _request("previous", "id of the request it is linked after; null: none"),
    _request("culprit", "id of the request whose failure ended it; null: none, or not known"),
    size_column("offset_bytes", "file offset; null: at the position, none, or not known"),
    size_column("bytes_request", "bytes asked for; of truncate the new length, of fallocate and its like the range's"),
    size_column("bytes_result", "bytes moved, all completions together; null: failed, or it moves none"),
    Column("result", "int32", "", "of the last completion, as it was; 0 without one"),
    Column("error", "int16", "errno", "errno; 0: success"),
    Column("cqe_flags", "uint32", "", "IORING_CQE_F_* of the last completion"),
    Column("nr_completions", "uint32", "", "completions"),
    Column("nr_polls", "uint16", "", "times it waited for its file"),
    Column("nr_punts", "uint16", "", "times it was handed to a worker"),
    reference("op_flags", "rw_flags, open_flags and so on, by opcode; null: what it asks for is not known"),
    reference(
        "file_index", "number of the registered file that it works on, opens or closes; null: none, or not known"
    ),
    Column("buffer_index", "int32", "", "number of the registered buffer; null: none, or not known", -1),
    *CACHE_COLUMNS,
    _duration("run_queue_ns", "of its executions by workers: ready to run, without a CPU; null: none, or not known"),
    _duration("blocked_ns", "of its executions by workers: waits for something else; null likewise"),
)
IOCB_COMMAND: Final = (
    *("PREAD", "PWRITE", "FSYNC", "FDSYNC", "PREADX", "POLL", "NOOP", "PREADV", "PWRITEV"),
    "unknown",
)
"""``IOCB_CMD_*`` of ``include/uapi/linux/aio_abi.h`` by number."""
IOCBS: Final = (
    Column("operation", "uint64", "", "id in operations: the io_submit that took it"),
    Column("request", "uint64", "", "id in ring_requests"),
    number_of("place", "its place in the array of that call, from 0"),
    Column("opcode", "uint8", "", "what it does", labels=IOCB_COMMAND),
    Column("fd", "int32", "", "its descriptor", -1),
    reference("handle", "row of handles: the fd's at the entry of the call"),
    size_column("offset_bytes", "file offset; null: none, or the file appends"),
    size_column("bytes_request", "bytes asked for; null: vectors, or an opcode that moves none"),
    Column("data", "uint64", "", "aio_data, which its completion bears"),
    Column("iocb", "uint64", "", "its address in the program's memory, which its completion names"),
)
RING_WORKS: Final = (
    Column("id", "uint64", "", "id in ring_requests"),
    reference("ring", "row of rings"),
    reference("task", "row of threads: the worker"),
    Column("opcode", "uint8", "", "what the request does", labels="opcodes"),
    Column("inferred", "uint16", "", "as in ring_requests"),
    time_column("queue_time_ns", "handed over; null: continued by a link"),
    time_column("begin_time_ns", "the worker began"),
    time_column("end_time_ns", "it was done, or took up another; null: not known"),
)
RING_STATES: Final = (
    time_column("time_ns", "from here on", known=True),
    number_of("ring", "row of rings"),
    Column("in_flight", "uint32", "", "requests that began and have not ended"),
    Column("punted", "uint32", "", "of them, handed to workers"),
    Column("workers", "uint32", "", "worker threads alive that serve its submitters"),
    Column("cq_least", "uint32", "", "completions that nobody can have collected yet", UNKNOWN_U32),
    Column("cq_most", "uint32", "", "completions that may lie there", UNKNOWN_U32),
)
BATCHES: Final = (
    Column("id", "uint64", "", "id in operations"),
    reference("ring", "row of rings"),
    Column("asked", "uint32", "", "requests to submit, at most; of io_getevents completions to collect"),
    Column("wanted", "uint32", "", "completions to wait for"),
    Column("submitted", "int32", "", "requests submitted; null: failed, or it submits none", -1),
    Column(
        "collected",
        "int32",
        "",
        "completions it returned; null: io_uring, whose completions need no call",
        -1,
    ),
    Column("nr_requests", "uint32", "", "requests that began while it ran, on this ring and thread"),
    Column("nr_completions", "uint32", "", "completions that came to the ring while it ran"),
    time_column("sleep_time_ns", "it was about to sleep for completions; null: it was not seen to"),
)
RINGS: Final = (
    number_of("ring", "what the other tables refer to"),
    Column("kind", "uint8", "", "what it is", labels=RING_KIND),
    Column("context", "uint64", "", "address of the kernel's ring; aio_context_t"),
    reference("process", "process instance that it belongs to, as in threads"),
    reference("task", "row of threads that made it; null: before the trace"),
    reference("pid", "its process"),
    Column("fd", "int32", "", "its descriptor; null: not known, or libaio", -1),
    reference("handle", "row of handles"),
    Column("sq_entries", "uint32", "", "room for submissions; libaio: events asked for", 0),
    Column("cq_entries", "uint32", "", "room for completions", 0),
    reference("flags", "IORING_SETUP_*"),
    time_column("create_time_ns", "null: before the trace"),
    time_column("end_time_ns", "closed, or its last process ended; null: not seen"),
    reference("poller", "row of threads: the SQ thread"),
    reference("nr_files", "registered files, at most"),
    reference("nr_buffers", "registered buffers, at most"),
    Column("nr_requests", "uint64", "", "requests, sampled or not; likewise below"),
    Column("nr_completions", "uint64", "", "completions"),
    Column("nr_overflows", "uint64", "", "completions that found no room"),
    Column("nr_messages", "uint64", "", "completions that other rings sent"),
    Column("nr_orphans", "uint64", "", "completions of requests that began before the trace or were lost"),
    Column("nr_batches", "uint64", "", "calls that submit or collect"),
    Column("nr_punts", "uint64", "", "times a request was handed to a worker"),
    Column("most_in_flight", "uint32", "", "requests under way at one time, at most"),
    Column("nr_workers", "uint32", "", "worker threads born for its submitters"),
)
