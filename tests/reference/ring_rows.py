"""Rows of the tables of rings, as the native engine has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reference.cache import NO_READ
from reference.ring_paths import Paths
from reference.ring_times import WORK_BEGIN, WORK_END, Times
from reference.ring_works import bound

if TYPE_CHECKING:
    from reference.engine import Reference
    from reference.ring_objects import Execution, Request, Ring

SILENT, INLINE, END = 5, 1, 512
OLDER = 1024
UNASKED = {"op_flags": None, "file_index": None, "buffer_index": -1}
"""Columns that only BPF programs can fill."""

Row = dict[str, Any]


def request_rows(engine: Reference, times: Times) -> list[Row]:
    """One row a request."""
    return [_request_row(engine, times, request) for request in engine.rings.requests.all if _is_written(request)]


def _is_written(request: Request) -> bool:
    return request.lane is not None and request.lane.recorded


def _request_row(engine: Reference, times: Times, request: Request) -> Row:
    requests = engine.rings.requests
    status = requests.status(request)
    bound(request)
    issue = times.issue(request)
    queued, executing, waiting = times.phases(request, issue)
    split = times.split(request)
    path = Paths(requests).path(request, issue)
    ended = status == SILENT and (request.end in ("over", "replaced") or (request.end == "gone" and path == INLINE))
    request.inferred |= END if ended else 0
    task = request.lane.task if request.lane is not None else None
    works = [each for each in request.executions if each.worker]
    last = works[-1] if works else None
    over = last is not None and last.last is not None and last.last.order < request.ended_at
    if last is not None:
        request.inferred |= WORK_BEGIN * last.begin_inferred | WORK_END * (last.end_inferred and over)
    wakes = [event for event in request.events if event.kind == "wake" and event.count]
    punts, arms = request.times("punt"), request.times("poll_arm")
    result, offset, size = request.result, request.offset, request.size
    if request.refusal is not None:
        refused_with, offset, size = request.refusal
        result = result if request.nr_completions else refused_with
    handles = [handle for *_, handle in request.fds] + [None, None]
    for handle in handles:
        if handle is not None:
            handle.used = True
    return {
        "request": request,
        "ring": request.ring,
        "task": task,
        "pid": task.process.pid if task is not None else None,
        "tid": task.tid if task is not None else None,
        "user_data": request.user_data,
        "opcode": request.opcode,
        "sqe_flags": request.flags,
        "status": status,
        "path": path,
        "traits": request.traits | (OLDER if request.older else 0),
        "inferred": request.inferred,
        "fd": request.fds[0][0] if request.fds else -1,
        "handle": handles[1] if request.splices else handles[0],
        "handle2": handles[0] if request.splices else None,
        "submit_time_ns": request.submit,
        "issue_time_ns": issue,
        "punt_time_ns": punts[-1] if punts else None,
        "poll_arm_time_ns": arms[0] if arms else None,
        "wake_time_ns": wakes[-1].time if wakes else None,
        "work_begin_time_ns": last.begin if last is not None else None,
        "work_end_time_ns": last.end if last is not None and over else None,
        "complete_time_ns": request.complete,
        "notify_time_ns": request.notify,
        "end_before_time_ns": request.end_time if ended else None,
        "queued_ns": queued,
        "executing_ns": executing,
        "waiting_ns": waiting,
        "worker": last.lane.task if last is not None else None,
        "waker": wakes[-1].lane.task if wakes and wakes[-1].lane.recorded else None,
        "waker_tid": wakes[-1].lane.tid if wakes else None,
        "previous": request.previous,
        "culprit": request.culprit,
        "offset_bytes": offset,
        "bytes_request": size,
        "bytes_result": request.bytes,
        "result": result,
        "error": -result if -4095 <= result < 0 else 0,
        "cqe_flags": request.cqe_flags,
        "nr_completions": request.nr_completions,
        "nr_polls": len(arms),
        "nr_punts": len(punts),
        **UNASKED,
        **NO_READ,
        "run_queue_ns": split[0],
        "blocked_ns": split[1],
    }


def work_rows(times: Times) -> list[Row]:
    """One row an execution by a worker."""
    return [_work_row(work) for work in times.works if work.lane.recorded and _is_written(work.request)]


def _work_row(work: Execution) -> Row:
    return {
        "request": work.request,
        "ring": work.request.ring,
        "task": work.lane.task,
        "process": work.lane.task.process.index,
        "pid": work.lane.task.process.pid,
        "tid": work.lane.task.tid,
        "opcode": work.last.opcode
        if work.last is not None and work.last.request is work.request
        else work.request.opcode,
        "inferred": WORK_BEGIN * work.begin_inferred | WORK_END * work.end_inferred,
        "queue_time_ns": work.queue,
        "begin_time_ns": work.begin,
        "end_time_ns": work.end,
    }


def ring_rows(rings: list[Ring]) -> list[Row]:
    """One row a ring."""
    return [_ring_row(ring) for ring in rings if ring.recorded]


def _ring_row(ring: Ring) -> Row:
    return {
        "ring": ring,
        "kind": ring.kind,
        "context": ring.context,
        "process": ring.process.index if ring.process is not None else None,
        "task": ring.task,
        "pid": ring.pid,
        "fd": ring.fd,
        "handle": ring.handle,
        "sq_entries": ring.sq_entries,
        "cq_entries": ring.cq_entries,
        "flags": ring.flags,
        "create_time_ns": ring.created,
        "end_time_ns": ring.end_time,
        "poller": ring.poller,
        "nr_files": ring.nr_files,
        "nr_buffers": ring.nr_buffers,
        "nr_requests": ring.nr_requests,
        "nr_completions": ring.nr_completions,
        "nr_overflows": ring.nr_overflows,
        "nr_messages": ring.nr_messages,
        "nr_orphans": ring.nr_orphans,
        "nr_batches": ring.nr_batches,
        "nr_punts": ring.nr_punts,
        "most_in_flight": ring.most_in_flight,
        "nr_workers": ring.nr_workers,
    }
