"""Histories of rings in which BPF programs tell what requests ask for.

Layouts are those of ``lo2io/bpf/programs/records.h``.

>>> rig = SqeRig(folder)
>>> times = [rig.setup(), rig.request(1, 512, opcode=22, fd=3, length=512)]
>>> rig.run().of("ring_requests", "bytes_request")
[512]
"""

from __future__ import annotations

from typing import Any, cast

from lo2io.native._lib import ffi

from build.kernelwriter import OF_REQUEST, SLOT, WHOLE, KernelSpool
from build.ringrig import PID, A, Rig

UNKNOWN_BYTES = 2**64 - 1
CONTEXT = 0x7F0000000000
"""A libaio context."""
FIXED_FILE, LINK, ASYNC, BUFFER_SELECT = 1, 4, 16, 32
POSITION = 2**64 - 1
"""The offset that means the file's position."""


class SqeRig(Rig):
    """A spool whose calls are perf samples, so that a test decides where facts stand."""

    builder = KernelSpool

    def __init__(self, path: Any, order: str = "before", **options: Any) -> None:
        """``order``: where SQEs stand.

        ``before`` the samples of their submissions; ``after`` them, where somebody else recorded the event before; or
        ``within`` the records of their submissions, which are no samples of perf then.
        """
        super().__init__(path, backend="perf", sampled=("io_uring",) if order == "within" else (), **options)
        self.order = order

    @property
    def kernel(self) -> KernelSpool:
        """The builder."""
        return cast("KernelSpool", self.spool)

    def sqe(
        self,
        req: int,
        ctx: int = A,
        tid: int = PID,
        *,
        opcode: int = 0,
        user_data: int = 0,
        flags: int = 0,
        fd: int = -1,
        off: int = 0,
        length: int = 0,
        op_flags: int = 0,
        file: int = 0,
        file_index: int = 0,
        buf_index: int = 0,
        nr_bytes: int = UNKNOWN_BYTES,
        file2: int = 0,
        ioprio: int = 0,
    ) -> int:
        """The SQE record of a request: right before its submission, or for its submission that comes next."""
        asked = {
            "offset": off,
            "file": file,
            "file2": file2,
            "bytes": nr_bytes,
            "length": length,
            "op_flags": op_flags,
            "fd": fd,
            "file_index": file_index,
            "buf_index": buf_index,
            "ioprio": ioprio,
            "opcode": opcode,
            "flags": flags,
        }
        if self.order == "within":
            self.kernel.asked = bytes(ffi.buffer(ffi.new("lo2_asked *", asked)))
        else:
            self.kernel.record("sqe", self.tick(), 0, tid, request=req, ring=ctx, user_data=user_data, asked=asked)
        return self.now

    def ask(self, req: int, tid: int = PID, **asked: Any) -> int:
        """SQE record and submission, in the order of this history; the time is the submission's."""
        told = {name: asked[name] for name in ("ctx", "opcode", "user_data", "flags") if name in asked}
        if self.order == "after":
            time = self.submit(req, tid=tid, **told)
            self.sqe(req, tid=tid, **asked)
            return time
        self.sqe(req, tid=tid, **asked)
        return self.submit(req, tid=tid, **told)

    def request(self, req: int, res: int, tid: int = PID, **asked: Any) -> int:
        """SQE record, submission, completion, and a call that settles all paths; the time is the completion's."""
        self.ask(req, tid, **asked)
        done = self.complete(req, res, tid=tid, user_data=asked.get("user_data", 0))
        self.call("sync", tid=tid)
        return done

    def iocb(
        self,
        place: int,
        *,
        time: int | None = None,
        tid: int = PID,
        opcode: int = 0,
        fd: int = -1,
        off: int = 0,
        length: int = 0,
        data: int = 0,
        iocb: int = 0,
        rw_flags: int = 0,
    ) -> int:
        """An iocb of an io_submit, right before its entry. Those of one call have the same time."""
        at = self.tick() if time is None else time
        self.kernel.record(
            "iocb",
            at,
            0,
            tid,
            iocb=iocb,
            data=data,
            offset=off,
            length=length,
            fd=fd,
            opcode=opcode,
            place=place,
            rw_flags=rw_flags,
        )
        return at

    def collect(
        self,
        *events: tuple[int, int, int],
        context: int = CONTEXT,
        tid: int = PID,
        told: bool = True,
        call: str = "io_getevents",
    ) -> int:
        """A call that returns events, each with the iocb, its data and the result; the time is the exit's.

        ``told`` False: the record of the events was lost.
        """
        self.enter(call, tid, ctx_id=context, min_nr=1, nr=max(len(events), 1))
        if told:
            self.events(events, context, tid)
        return self.leave(call, len(events), tid)

    def events(
        self, events: tuple[tuple[int, int, int], ...], context: int = CONTEXT, tid: int = PID, count: int | None = None
    ) -> None:
        """The record of such a call's events, right before the sample of its exit."""
        array = ffi.new("lo2_kernel_event[]", [(data, iocb, res, 0) for iocb, data, res in events])
        count = len(events) if count is None else count
        self.kernel.record("events", self.tick(), 0, tid, context=context, count=count, tail=bytes(ffi.buffer(array)))

    def told(self, fd: int, *names: bytes, file: int = 0x1000, tid: int = PID, slot: bool = False, **known: int) -> int:
        """The fact about a request's file, behind a descriptor or registered; names go upwards."""
        flags = WHOLE | SLOT * slot
        at = self.tick()
        self.kernel.kernel_file(at, 0, tid, fd, names, file=file, of=OF_REQUEST, flags=flags, **known)
        return at

    def names(self) -> dict[int | None, bytes | None]:
        """Number of each handle → its file."""
        return {row["handle"]: self.paths.get(row["file"]) for row in self.rows["handles"]}
