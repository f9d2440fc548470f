-- The views of a trace: rows with the names that stand in other tables. Each begins with its name. docs/reference/tables.md
-- says what the columns of the tables mean; $start is the trace's start in ns. What stands in braces is left out for a
-- trace of one machine. Rows are numbered within a host.

-- calls: one row per system call
select {o.host,} o.id, (o.begin_time_ns - $start) / 1e9 as begin_s, o.end_time_ns - o.begin_time_ns as latency_ns, o.call,
       f.path, g.path as path2, d.name as device, o.pid, o.tid, {t.rank,} t.comm, t.cmdline, o.offset_bytes, o.bytes_request,
       o.bytes_result, o.result, o.error, o.status, o.cache, o.run_queue_ns, o.blocked_ns, o.begin_time_ns, o.end_time_ns
from operations o
left join handles h on {h.host = o.host and} h.handle = o.handle
left join files f on {f.host = h.host and} f.file = h.file
left join handles i on {i.host = o.host and} i.handle = o.handle2
left join files g on {g.host = i.host and} g.file = i.file
left join threads t on {t.host = o.host and} t.task = o.task
left join devices d on {d.host = f.host and}
       d.device = (((f.device >> 8) & 4095) << 20 | (f.device & 255) | ((f.device >> 12) & 1048320))

-- block_io: one row per block request
select {r.host,} r.id, (coalesce(r.insert_time_ns, r.issue_time_ns) - $start) / 1e9 as begin_s,
       r.complete_time_ns - coalesce(r.insert_time_ns, r.issue_time_ns) as latency_ns,
       r.issue_time_ns - r.insert_time_ns as queue_ns, r.complete_time_ns - r.issue_time_ns as device_ns, r.operation,
       d.name as device, r.sector, r.bytes_request, r.bytes_issued, r.bytes_result, r.error, r.status, t.pid, r.tid, {t.rank,} t.comm,
       t.cmdline, r.ring_request, r.insert_time_ns, r.issue_time_ns, r.complete_time_ns
from requests r
left join devices d on {d.host = r.host and} d.device = r.device
left join threads t on {t.host = r.host and} t.task = r.task

-- ring_io: one row per request of io_uring or libaio
select {q.host,} q.id, (q.submit_time_ns - $start) / 1e9 as begin_s, q.complete_time_ns - q.submit_time_ns as latency_ns,
       q.opcode, f.path, g.path as path2, q.ring, q.pid, q.tid, {t.rank,} t.comm, t.cmdline, w.comm as worker, q.path as way,
       q.offset_bytes, q.bytes_request, q.bytes_result, q.result, q.error, q.status, q.queued_ns, q.executing_ns, q.waiting_ns, q.cache,
       q.submit_time_ns, q.complete_time_ns
from ring_requests q
left join handles h on {h.host = q.host and} h.handle = q.handle
left join files f on {f.host = h.host and} f.file = h.file
left join handles i on {i.host = q.host and} i.handle = q.handle2
left join files g on {g.host = i.host and} g.file = i.file
left join threads t on {t.host = q.host and} t.task = q.task
left join threads w on {w.host = q.host and} w.task = q.worker
